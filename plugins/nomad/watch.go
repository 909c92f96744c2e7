package nomad

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/core/backend"
)

const (
	// lookEvery is how often Watch looks where no event of Nomad's tells it to: events are a hint, and may be lost.
	lookEvery = 5 * time.Second
	// gather is how long it waits for more events before it looks: one change makes several.
	gather = 50 * time.Millisecond
	// subscribeAgain is the pause after a stream of events that broke.
	subscribeAgain = time.Second
)

// Watch implements backend.Backend: Nomad's events say when to look, and what changed since is told.
func (n *nomad) Watch(ctx context.Context, job string) (<-chan backend.Event, error) {
	s, err := n.settings(ctx, job)
	if err != nil {
		return nil, err
	}
	events := make(chan backend.Event)
	hints := make(chan struct{}, 1)
	// Ends with ctx; writes to hints only.
	go s.subscribe(ctx, hints)
	// Ends with ctx; owns events.
	go func() {
		defer close(events)
		seen := map[backend.ID]backend.State{}
		for {
			if statuses, complete, err := n.List(ctx, job); err == nil && complete { // else it shows in the caller's own List
				now := map[backend.ID]backend.State{}
				for _, st := range statuses {
					now[st.ID] = st.State
				}
				for _, e := range changes(seen, now) {
					select {
					case events <- e:
					case <-ctx.Done():
						return
					}
				}
				seen = now
			}
			if !pause(ctx, hints) {
				return
			}
		}
	}()
	return events, nil
}

// pause waits for a hint or for the time to look without one; false when ctx ended.
func pause(ctx context.Context, hints <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(lookEvery):
		return true
	case <-hints:
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(gather):
	}
	select { // those that came meanwhile
	case <-hints:
	default:
	}
	return true
}

// subscribe turns Nomad's events into hints, and subscribes again when the stream breaks.
func (s settings) subscribe(ctx context.Context, hints chan<- struct{}) {
	topics := map[api.Topic][]string{api.TopicAllocation: {"*"}, api.TopicJob: {"*"}}
	for ctx.Err() == nil {
		q := &api.QueryOptions{Namespace: s.namespace}
		stream, err := s.client.EventStream().Stream(ctx, topics, 0, q)
		for err == nil {
			e, open := <-stream
			if !open || e.Err != nil {
				break
			}
			if e.IsHeartbeat() {
				continue
			}
			select {
			case hints <- struct{}{}:
			default: // one is waiting
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(subscribeAgain):
		}
	}
}

// changes gives what is new or other in now, and what has gone from it, as exited, ordered by ID.
func changes(seen, now map[backend.ID]backend.State) []backend.Event {
	var out []backend.Event
	for id, state := range now {
		if seen[id] != state {
			out = append(out, backend.Event{ID: id, State: state})
		}
	}
	for id := range seen {
		if _, there := now[id]; !there {
			out = append(out, backend.Event{ID: id, State: backend.StateExited})
		}
	}
	slices.SortFunc(out, func(a, b backend.Event) int { return a.ID.Compare(b.ID) })
	return out
}
