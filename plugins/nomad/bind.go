package nomad

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/errgroup"

	"github.com/kale-sched/kale/core/backend"
)

// Nomad moves what it or others take off a node (a preemption, a drain, a person who stops the allocation) by another
// allocation of the same Nomad job. It makes that one wait for the end of the old process only where it knows which the
// old one is: after a preemption, or where there was no place at first, it does not (seen with 1.11.3), and both live for
// as long as the old one drains. So a workload is bound to one allocation, by an item among those of its payload: start.sh
// runs the program in no other, and the binding moves when all earlier allocations have ended.
const (
	boundFile = ".bound"     // what start.sh reads it from
	boundKey  = "allocation" // the item, in the first of the payload's variables
)

// boundTemplate makes Nomad's client write the binding, and write it again soon after it has moved.
func boundTemplate(nomadJob string) *api.Template {
	return &api.Template{
		EmbeddedTmpl: ptr(fmt.Sprintf(`{{ with nomadVar "%s" }}{{ with .%s }}{{ .Value }}{{ end }}{{ end }}`, payloadPaths(nomadJob)[0], boundKey)),
		DestPath:     ptr(filesDir + boundFile), Perms: ptr("0600"), ChangeMode: ptr("noop"),
		Wait: &api.WaitConfig{Min: ptr(50 * time.Millisecond), Max: ptr(time.Second)},
	}
}

// awaitsOlder gives the first allocation before the newest that may still have a process, nil when none may. One that was lost may: the server has given it
// up without a word of its node's. What is bound to the newest runs, whatever becomes of the others: their node was purged, and may be back.
func (v view) awaitsOlder() *api.AllocationListStub {
	if a := v.latest(); v.bound != "" && a.ID == v.bound {
		return nil
	}
	for _, a := range v.allocs[:max(0, len(v.allocs)-1)] {
		if (!ended(a) || a.ClientStatus == api.AllocClientStatusLost) && !v.buried(a) && v.nodes[a.NodeID] != nil {
			return a
		}
	}
	return nil
}

// waits overrules the state of a newest allocation whose program does not run yet, or never will.
func (v view) waits(a *api.AllocationListStub, st *backend.Status) {
	older := v.awaitsOlder()
	switch {
	case older == nil || ended(a):
	case older.ClientStatus == api.AllocClientStatusLost:
		st.State = backend.StateFailed
		before := ""
		if task := older.TaskStates[taskName]; task == nil || task.StartedAt.IsZero() {
			before = " before it had said that it runs there"
		}
		st.Reason = fmt.Sprintf("its node %s was lost%s; what Nomad has started on %s instead waits", older.NodeName, before, a.NodeName)
	default:
		st.State, st.Reason = backend.StateStarting, v.whyMoved(older)+"; it starts again on "+a.NodeName+" when the process before it has ended"
	}
}

// readBound finds out which allocations the workloads are bound to, where that makes a difference.
func (s settings) readBound(ctx context.Context, views []view) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, v := range views {
		if v.released || v.job.Stop || v.awaitsOlder() == nil {
			continue
		}
		g.Go(func() error {
			items, err := s.readItems(gctx, v.job.ID)
			if err == nil && items != nil {
				views[i].bound = items.Items[boundKey]
			}
			return err
		})
	}
	return g.Wait()
}

// readItems reads the first of a workload's variables; nil when that is gone: it is being released.
func (s settings) readItems(ctx context.Context, nomadJob string) (*api.Variable, error) {
	q, cancel := s.read(ctx)
	defer cancel()
	v, _, err := s.client.Variables().Read(payloadPaths(nomadJob)[0], q)
	switch {
	case errors.Is(err, api.ErrVariablePathNotFound):
		return nil, nil
	case err != nil:
		return nil, failed(err, capVariables, "read what %s is bound to", nomadJob)
	}
	return v, nil
}

// bind binds the workloads to their newest allocations, as soon as these are there and all earlier ones have ended. What
// fails is tried again at the next look.
func (n *nomad) bind(ctx context.Context, s settings, p picture) {
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, v := range p.views {
		a := v.latest()
		n.mu.Lock()
		if v.released || v.job.Stop {
			delete(n.bound, v.job.ID)
		}
		done := a != nil && n.bound[v.job.ID] == a.ID
		n.mu.Unlock()
		if done || v.released || v.job.Stop || a == nil || ended(a) || v.awaitsOlder() != nil {
			continue
		}
		g.Go(func() error {
			if err := s.bind(ctx, v.job.ID, a.ID); err != nil {
				n.lg.Warn("cannot bind a workload to its allocation; it is tried again", "nomad_job", v.job.ID, "err", err)
				return nil
			}
			n.mu.Lock()
			defer n.mu.Unlock()
			n.bound[v.job.ID] = a.ID
			return nil
		})
	}
	_ = g.Wait() // none of them fails
}

// bind binds one, unless its payload is gone: it is being released.
func (s settings) bind(ctx context.Context, nomadJob, alloc string) error {
	v, err := s.readItems(ctx, nomadJob)
	if err != nil || v == nil || v.Items[boundKey] == alloc {
		return err
	}
	v.Items[boundKey] = alloc
	w, cancel := s.write(ctx)
	defer cancel()
	if _, _, err := s.client.Variables().CheckedUpdate(v, w); err != nil {
		return failed(err, capVariables, "bind %s to allocation %s", nomadJob, alloc)
	}
	return nil
}
