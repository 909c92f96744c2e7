package nomad

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/errgroup"

	"github.com/kale-sched/kale/core/backend"
)

// drains gives, by node, when the drains of nodes end that workloads of the views are on: Nomad ends these then, and the
// caller may replace them before.
func (s settings) drains(ctx context.Context, views []view, nodes []*api.NodeListStub) (map[string]time.Time, error) {
	wanted := map[string]bool{}
	for _, v := range views {
		for _, a := range v.allocs {
			if !ended(a) {
				wanted[a.NodeID] = true
			}
		}
	}
	var mu sync.Mutex // guards ends
	ends := map[string]time.Time{}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, node := range nodes {
		if !node.Drain || !wanted[node.ID] {
			continue
		}
		g.Go(func() error {
			q, cancel := s.read(ctx)
			defer cancel()
			full, _, err := s.client.Nodes().Info(node.ID, q)
			if err != nil {
				return failed(err, capNodes, "read how node %s is drained", node.Name)
			}
			mu.Lock()
			defer mu.Unlock()
			ends[node.ID] = drainEnd(full)
			return nil
		})
	}
	return ends, g.Wait()
}

// drainEnd gives when what runs on the node is to be gone; zero when it is not drained, or is at once.
func drainEnd(n *api.Node) time.Time {
	switch {
	case n.DrainStrategy == nil:
		return time.Time{}
	case !n.DrainStrategy.ForceDeadline.IsZero():
		return n.DrainStrategy.ForceDeadline.UTC()
	case n.DrainStrategy.Deadline == 0 && n.LastDrain != nil:
		return n.LastDrain.StartedAt.UTC().Add(backend.DrainWithin) // else it would wait for batch jobs for ever
	}
	return time.Time{}
}
