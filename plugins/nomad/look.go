package nomad

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/errgroup"

	"github.com/kale-sched/kale/core/backend"
)

// view is one look at one workload.
type view struct {
	id     backend.ID
	job    *api.JobListStub
	allocs []*api.AllocationListStub // oldest first, without copies
	nodes  map[string]*api.NodeListStub
	drains map[string]time.Time // by node ID, of those that are being drained: when what runs there is ended

	bound string // the ID of the allocation that it is bound to, where there is an older one that may still have a process

	released bool
	how      backend.How // how it was released; Forced when a higher generation replaced it
}

// picture is one look at a job.
type picture struct {
	ledger ledger
	views  []view // by ID
	nodes  []*api.NodeListStub
}

// find gives the view of id.
func (p picture) find(id backend.ID) (view, bool) {
	for _, v := range p.views {
		if v.id == id {
			return v, true
		}
	}
	return view{}, false
}

// look asks Nomad for all of the job: four calls, however many workloads there are, one for each of their nodes that
// is being drained, and one for each workload that was moved while its old process may live. It gives all or an error.
func (s settings) look(ctx context.Context, job string) (picture, error) {
	var p picture
	var jobs []*api.JobListStub
	var allocs []*api.AllocationListStub
	var nodes []*api.NodeListStub
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		p.ledger, err = s.readLedger(gctx, job)
		return err
	})
	g.Go(func() (err error) {
		q, cancel := s.read(gctx)
		defer cancel()
		q.Prefix = jobPrefix(job)
		jobs, _, err = s.client.Jobs().ListOptions(&api.JobListOptions{Fields: &api.JobListFields{Meta: true}}, q)
		if err != nil {
			return failed(err, capRead, "list the Nomad jobs of job %q", job)
		}
		return nil
	})
	g.Go(func() (err error) {
		allocs, err = s.allocations(gctx, s.namespace, `JobID matches "^`+jobPrefix(job)+`"`)
		return err
	})
	g.Go(func() (err error) {
		nodes, err = s.nodes(gctx)
		return err
	})
	if err := g.Wait(); err != nil {
		return picture{}, s.refusedNow(ctx, err)
	}
	s.trust.note(nil, time.Now())
	p.views, p.nodes = assemble(job, p.ledger, jobs, allocs, nodes), nodes
	drains, err := s.drains(ctx, p.views, nodes)
	if err != nil {
		return picture{}, err
	}
	for i := range p.views {
		p.views[i].drains = drains
	}
	return p, s.readBound(ctx, p.views)
}

func (s settings) allocations(ctx context.Context, namespace, filter string) ([]*api.AllocationListStub, error) {
	q, cancel := s.read(ctx)
	defer cancel()
	q.Namespace, q.Filter = namespace, filter
	q.Params = map[string]string{"resources": "true"}
	allocs, _, err := s.client.Allocations().List(q)
	if err != nil {
		return nil, failed(err, capRead, "list allocations")
	}
	return allocs, nil
}

func (s settings) nodes(ctx context.Context) ([]*api.NodeListStub, error) {
	q, cancel := s.read(ctx)
	defer cancel()
	q.Params = map[string]string{"resources": "true"}
	nodes, _, err := s.client.Nodes().List(q)
	if err != nil {
		return nil, failed(err, capNodes, "list the cluster's nodes")
	}
	return nodes, nil
}

// assemble puts together what belongs together, by ID.
func assemble(job string, l ledger, jobs []*api.JobListStub, allocs []*api.AllocationListStub, nodes []*api.NodeListStub) []view {
	byNode := map[string]*api.NodeListStub{}
	for _, n := range nodes {
		byNode[n.ID] = n
	}
	byJob := map[string][]*api.AllocationListStub{}
	for _, a := range allocs {
		if !isCopy(a) {
			byJob[a.JobID] = append(byJob[a.JobID], a)
		}
	}
	var views []view
	for _, j := range jobs {
		id, ours := idOf(job, l, j)
		if !ours {
			continue
		}
		v := view{id: id, job: j, allocs: byJob[j.ID], nodes: byNode}
		slices.SortFunc(v.allocs, func(a, b *api.AllocationListStub) int { return cmp.Compare(a.CreateIndex, b.CreateIndex) })
		if e := l.entries[seat(id)]; e.Generation > id.Generation {
			v.released, v.how = true, backend.Forced
		} else if e.Generation == id.Generation {
			v.released, v.how = e.Released != 0, e.Released
		}
		views = append(views, v)
	}
	slices.SortFunc(views, func(a, b view) int { return a.id.Compare(b.id) })
	return views
}

// idOf gives the ID of the workload that a Nomad job of the job's prefix is. ours is false of another job's whose name begins alike, and of a stranger's. One whose
// metadata somebody has taken away is known by its name and the ledger.
func idOf(job string, l ledger, j *api.JobListStub) (id backend.ID, ours bool) {
	name := j.Meta[metaID]
	if j.Meta[metaJob] == "" {
		name = strings.TrimPrefix(j.ID, jobPrefix(job))
	} else if j.Meta[metaJob] != job {
		return id, false
	}
	id, err := backend.ParseID(name)
	if err != nil || nomadJob(job, id) != j.ID {
		return id, false
	}
	return id, j.Meta[metaJob] != "" || l.entries[seat(id)].Generation >= id.Generation
}

// isCopy reports whether the allocation is one more than the workload's, which somebody asked for: it runs nothing (start.sh), so that its end is not the
// workload's. Nomad gives the workload's own, and all that follow it, the name that ends in [0].
func isCopy(a *api.AllocationListStub) bool {
	return strings.HasSuffix(a.Name, "]") && !strings.HasSuffix(a.Name, "[0]")
}

// latest gives the newest allocation, nil when there is none.
func (v view) latest() *api.AllocationListStub {
	if len(v.allocs) == 0 {
		return nil
	}
	return v.allocs[len(v.allocs)-1]
}

// ended reports whether the client has said that no task of the allocation lives, or the server has given it up.
func ended(a *api.AllocationListStub) bool {
	switch a.ClientStatus {
	case api.AllocClientStatusComplete, api.AllocClientStatusFailed, api.AllocClientStatusLost:
		return true
	}
	return false
}

// quiet reports whether no process of the workload lives.
func (v view) quiet() bool {
	return !slices.ContainsFunc(v.allocs, func(a *api.AllocationListStub) bool { return !ended(a) && !v.buried(a) })
}

// buried reports whether the allocation was on a node that the servers know no more: somebody purged it, or it was down for
// a day. Nomad says nothing of such an allocation again, when it had been told to end or the node had been lost before.
func (v view) buried(a *api.AllocationListStub) bool {
	return v.nodes[a.NodeID] == nil && (a.ClientStatus == api.AllocClientStatusUnknown || a.DesiredStatus != api.AllocDesiredStatusRun)
}

// over reports whether no process of the workload lives, nor will by Nomad's doing.
func (v view) over() bool {
	return v.quiet() && (v.job.Stop || v.job.Status == "dead")
}

// unreachable reports whether all that may live of the workload is told to end, and is on nodes that do not answer: Nomad
// will end it there before anything else when they are back, and new workloads keep off them until then (avoid).
func (v view) unreachable() bool {
	return v.job.Stop && !slices.ContainsFunc(v.allocs, func(a *api.AllocationListStub) bool {
		n := v.nodes[a.NodeID]
		return !ended(a) && n != nil && n.Status == "ready"
	})
}

// settled reports whether a higher generation may start.
func (v view) settled() bool { return v.over() || v.unreachable() }

// reaped reports whether a List has forgotten it.
func (v view) reaped() bool { return v.released && v.over() }

// placed gives where an allocation is.
func (v view) placed(a *api.AllocationListStub, st *backend.Status) {
	st.Node = a.NodeName
	if n := v.nodes[a.NodeID]; n != nil {
		st.Address = n.Address
	}
	if task := allocatedTask(a); task != nil {
		for _, d := range task.Devices {
			st.Devices = append(st.Devices, d.DeviceIDs...)
		}
	}
}

func allocatedTask(a *api.AllocationListStub) *api.AllocatedTaskResources {
	if a.AllocatedResources == nil {
		return nil
	}
	return a.AllocatedResources.Tasks[taskName]
}

// submitted is when the Nomad job was registered first; zero when that is not known.
func (v view) submitted() time.Time {
	since, err := time.Parse(time.RFC3339Nano, v.job.Meta[metaSince])
	switch {
	case err == nil:
		return since.UTC()
	case v.job.SubmitTime == 0 || v.job.Stop:
		return time.Time{}
	}
	return time.Unix(0, v.job.SubmitTime).UTC()
}
