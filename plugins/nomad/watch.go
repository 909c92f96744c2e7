package nomad

import (
	"context"
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
	s, err := n.jobs.Of(ctx, job)
	if err != nil {
		return nil, err
	}
	hints := make(chan struct{}, 1)
	// Ends with ctx; writes to hints only.
	go s.subscribe(ctx, hints)
	return backend.WatchByList(ctx, n, job, lookEvery, hints), nil
}

// subscribe turns Nomad's events into hints, and subscribes again when the stream breaks.
func (s settings) subscribe(ctx context.Context, hints chan<- struct{}) {
	topics := map[api.Topic][]string{api.TopicAllocation: {"*"}, api.TopicJob: {"*"}}
	for ctx.Err() == nil {
		if stream, err := s.client.EventStream().Stream(ctx, topics, 0, &api.QueryOptions{Namespace: s.namespace}); err == nil {
			follow(stream, hints)
		}
		select {
		case <-ctx.Done():
		case <-time.After(subscribeAgain):
		}
	}
}

// follow hints once for all events that come within gather of the first, until the stream breaks.
func follow(stream <-chan *api.Events, hints chan<- struct{}) {
	var due <-chan time.Time // when to hint; nil while there is nothing to hint at
	hint := func() {
		due = nil
		select {
		case hints <- struct{}{}:
		default: // one is waiting
		}
	}
	for {
		select {
		case <-due:
			hint()
		case e, open := <-stream:
			if !open || e.Err != nil {
				if due != nil {
					hint()
				}
				return
			}
			if !e.IsHeartbeat() && due == nil {
				due = time.After(gather)
			}
		}
	}
}
