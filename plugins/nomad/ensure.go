package nomad

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/errgroup"

	"github.com/kale-sched/kale/core/backend"
)

const (
	// replaceTimeout bounds the wait for the end of what a higher generation replaces; the next Ensure goes on.
	replaceTimeout = 10 * time.Second
	// replaceEvery is how often that end is looked for.
	replaceEvery = 100 * time.Millisecond
	// atOnce is how many calls to Nomad one call of ours makes at a time.
	atOnce = 8
)

// Ensure implements backend.Backend. It claims the generations in the ledger first, then ends what they replace, then
// submits: whoever comes between, or after a crash, finds a claim and goes on from there.
func (n *nomad) Ensure(ctx context.Context, job string, ws []backend.Workload) ([]backend.Status, error) {
	s, err := n.jobs.Of(ctx, job)
	if err != nil {
		return nil, err
	}
	problems, err := backend.ValidateAll(job, ws)
	if err != nil {
		return nil, err
	}
	s.payloadProblems(job, ws, problems)
	defer n.starts.Begin(job, ws)()
	if err := s.claim(ctx, job, ws, problems); err != nil {
		return nil, err
	}
	if err := n.submitMissing(ctx, s, job, ws, problems); err != nil {
		return nil, err
	}
	p, err := s.look(ctx, job)
	if err != nil {
		return nil, err
	}
	n.bind(ctx, s, p)
	out := make([]backend.Status, len(ws))
	for i, w := range ws {
		v, there := p.find(w.ID)
		switch {
		case problems[i] != nil:
			out[i] = backend.Status{ID: w.ID, State: backend.StateFailed, Reason: problems[i].Message, Err: problems[i]}
		case !there:
			out[i] = backend.Status{ID: w.ID, State: backend.StatePending, Reason: "its Nomad job was just submitted"}
		default:
			out[i] = n.statusOf(ctx, s, v)
		}
	}
	return out, nil
}

// payloadProblems finds what is wrong with workloads that only this backend minds.
func (s settings) payloadProblems(job string, ws []backend.Workload, problems []*backend.Error) {
	for i, w := range ws {
		if problems[i] == nil {
			problems[i] = s.payloadProblem(i, w, job)
		}
	}
}

func (s settings) payloadProblem(i int, w backend.Workload, job string) *backend.Error {
	_, problem := s.parcel(w, len(payloadPaths(nomadJob(job, w.ID))))
	if problem != nil {
		problem.Field = fmt.Sprintf("workloads[%d].%s", i, problem.Field)
	}
	return problem
}

// claim puts the workloads' generations on record, and refuses those that are behind it.
func (s settings) claim(ctx context.Context, job string, ws []backend.Workload, problems []*backend.Error) error {
	_, err := s.changeLedger(ctx, job, func(l *ledger) (changed bool) {
		if s.owner.ID != "" && l.owner.ID != s.owner.ID {
			l.owner, changed = s.owner, true
		}
		for i, w := range ws {
			if problems[i] != nil && problems[i].Code != backend.Gone {
				continue
			}
			problems[i] = nil // of an earlier try
			e, known := l.entries[seat(w.ID)]
			switch {
			case known && e.Generation > w.ID.Generation:
				problems[i] = backend.Errorf(backend.Gone, "start %s of job %q: generation %d has replaced it", w.ID, job, e.Generation)
			case known && e.Generation == w.ID.Generation && e.Released != 0:
				problems[i] = backend.Errorf(backend.Gone, "start %s of job %q: it was released; use a higher generation", w.ID, job)
			case known && e.Generation == w.ID.Generation:
			default:
				l.entries[seat(w.ID)] = entry{Generation: w.ID.Generation}
				changed = true
			}
		}
		return changed
	})
	return err
}

// submitMissing ends what the workloads replace and submits those that have no Nomad job. What fails for one is put
// into problems; the error is for all.
func (n *nomad) submitMissing(ctx context.Context, s settings, job string, ws []backend.Workload, problems []*backend.Error) error {
	p, err := s.look(ctx, job)
	if err != nil {
		return err
	}
	var missing []int
	for i, w := range ws {
		if _, there := p.find(w.ID); problems[i] == nil && !there {
			missing = append(missing, i)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if err := newEnough(p.nodes); err != nil {
		return err
	}
	p, err = n.endReplaced(ctx, s, job, ws, missing, p)
	if err != nil {
		return err
	}
	var mu sync.Mutex // guards problems
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, i := range missing {
		g.Go(func() error {
			problem := n.submitOnce(ctx, s, job, ws[i], p)
			mu.Lock()
			defer mu.Unlock()
			problems[i] = problem
			return nil
		})
	}
	return g.Wait()
}

// newEnough refuses nodes whose Nomad does not know the disconnect block: it would start a worker that it deems lost a
// second time by itself.
func newEnough(nodes []*api.NodeListStub) error {
	for _, n := range nodes {
		var major, minor int
		if _, err := fmt.Sscanf(n.Version, "%d.%d", &major, &minor); err != nil || n.Status != "ready" {
			continue
		}
		if major < 1 || major == 1 && minor < 8 {
			return backend.Errorf(backend.Blocked, "node %s runs Nomad %s; this backend needs 1.8 or newer, which keeps a worker on a lost node from being started twice: upgrade it", n.Name, n.Version)
		}
	}
	return nil
}

// replacedBy gives the workloads of lower generations in the places of those that are missing, as far as they are in the way.
func replacedBy(p picture, ws []backend.Workload, missing []int) []view {
	var out []view
	for _, v := range p.views {
		if v.settled() {
			continue
		}
		if slices.ContainsFunc(missing, func(i int) bool { return seat(ws[i].ID) == seat(v.id) && v.id.Generation < ws[i].ID.Generation }) {
			out = append(out, v)
		}
	}
	return out
}

// endReplaced ends the lower generations by force and waits for their end, within bounds.
func (n *nomad) endReplaced(ctx context.Context, s settings, job string, ws []backend.Workload, missing []int, p picture) (picture, error) {
	old := replacedBy(p, ws, missing)
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, v := range old {
		g.Go(func() error { return n.end(ctx, s, job, v, backend.Forced) })
	}
	if err := g.Wait(); err != nil {
		return picture{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, replaceTimeout)
	defer cancel()
	for len(old) > 0 {
		next, err := s.look(bounded, job)
		if err != nil {
			if bounded.Err() != nil && ctx.Err() == nil {
				break
			}
			return picture{}, err
		}
		if p, old = next, replacedBy(next, ws, missing); len(old) == 0 {
			break
		}
		select {
		case <-bounded.Done():
			return p, nil
		case <-time.After(replaceEvery):
		}
	}
	return p, nil
}

// submitOnce is submit for callers at the same time: the server lets several registrations that expect no job through at once, and each
// one that differs, as in when it was made, would start the workload again.
func (n *nomad) submitOnce(ctx context.Context, s settings, job string, w backend.Workload, p picture) *backend.Error {
	problem, _, _ := n.submitting.Do(job+"/"+w.ID.String(), func() (any, error) { return n.submit(ctx, s, job, w, p), nil })
	return problem.(*backend.Error)
}

// submit registers the workload's Nomad job, unless what it replaces still lives.
func (n *nomad) submit(ctx context.Context, s settings, job string, w backend.Workload, p picture) *backend.Error {
	doing := fmt.Sprintf("start %s of job %q", w.ID, job)
	for _, v := range p.views {
		if seat(v.id) == seat(w.ID) && v.id.Generation < w.ID.Generation && !v.settled() {
			return backend.Errorf(backend.Conflict, "%s: generation %d is still ending; ask again", doing, v.id.Generation)
		}
	}
	if problem := s.writePayload(ctx, job, w); problem != nil {
		return problem
	}
	spec := s.render(time.Now(), job, w)
	keepOff(spec, avoid(p))
	spec.Constraints = append(spec.Constraints, offNodes(w.Avoid)...)
	opts, cancel := s.write(ctx)
	defer cancel()
	_, _, err := s.client.Jobs().RegisterOpts(spec, &api.RegisterOptions{EnforceIndex: true, ModifyIndex: 0}, opts)
	if err == nil {
		n.lg.Info("workload submitted", "job", job, "id", w.ID.String(), "nomad_job", *spec.ID)
		return nil
	}
	problem := failed(err, capSubmit, "%s", doing)
	if problem.Code == backend.Conflict && strings.Contains(err.Error(), "job modify index") {
		return nil // another caller was faster: it is there
	}
	return problem
}

// Release implements backend.Backend. The ledger has it first: from then on the workload never starts again, whatever
// becomes of the calls that follow, and List makes up for those that failed.
func (n *nomad) Release(ctx context.Context, job string, ids []backend.ID, how backend.How) error {
	s, err := n.jobs.Of(ctx, job)
	if err != nil {
		return err
	}
	if how != backend.Drained && how != backend.Forced {
		return backend.Invalidf("how", "release workloads of job %q: %v is no way to release; it is drained or forced", job, how)
	}
	for _, id := range ids {
		if err := id.Validate(); err != nil {
			return err
		}
	}
	if len(ids) == 0 {
		return nil
	}
	_, err = s.changeLedger(ctx, job, func(l *ledger) (changed bool) {
		for _, id := range ids {
			e, known := l.entries[seat(id)]
			if known && e.Generation == id.Generation && e.Released < how { // a forced release is not taken back
				l.entries[seat(id)] = entry{Generation: e.Generation, Released: how}
				changed = true
			}
		}
		return changed
	})
	if err != nil {
		return err
	}
	p, err := s.look(ctx, job)
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, id := range ids {
		if v, there := p.find(id); there && v.released {
			g.Go(func() error { return n.end(ctx, s, job, v, how) })
		}
	}
	return errors.Join(g.Wait(), n.sweep(ctx, s, job, p.ledger))
}

// end makes Nomad end the workload.
func (n *nomad) end(ctx context.Context, s settings, job string, v view, how backend.How) error {
	var all []error
	n.mu.Lock()
	n.told[v.job.ID] = time.Now()
	n.mu.Unlock()
	if !v.over() {
		all = append(all, n.stop(ctx, s, v, how))
	}
	if err := s.deletePayload(ctx, job, v.id); err != nil {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// stop asks the node to end the process, and Nomad to end the job. A node that does not answer is told by Nomad when
// it is back.
func (n *nomad) stop(ctx context.Context, s settings, v view, how backend.How) error {
	a := v.latest()
	lives := a != nil && a.ClientStatus == api.AllocClientStatusRunning
	grace, err := time.ParseDuration(v.job.Meta[metaGrace])
	if err != nil {
		grace = backend.DefaultStopGrace
	}
	switch {
	case how == backend.Forced && lives:
		if err := s.signal(ctx, a, "SIGUSR2"); err != nil {
			n.lg.Debug("cannot reach the process to kill it; Nomad will", "nomad_job", v.job.ID, "err", err)
		}
	case how == backend.Drained && lives && grace+time.Second > maxKillTimeout && !v.job.Stop:
		err := s.signal(ctx, a, "SIGTERM") // start.sh keeps the grace: Nomad would cut it short
		if err == nil {
			return nil
		}
		if backend.CodeOf(err) == backend.Gone { // there is nothing left to drain
			break
		}
		n.lg.Warn("cannot reach the process to drain it; Nomad will, with a grace of at most its own", "nomad_job", v.job.ID, "err", err)
	}
	if v.job.Stop {
		return nil
	}
	opts, cancel := s.write(ctx)
	defer cancel()
	if _, _, err := s.client.Jobs().Deregister(v.job.ID, false, opts); err != nil && !notFound(err) {
		return failed(err, capSubmit, "stop %s", v.id)
	}
	return nil
}

// signalTimeout bounds the call that goes through to the node: one that is away must not hold a release.
const signalTimeout = 5 * time.Second

func (s settings) signal(ctx context.Context, a *api.AllocationListStub, name string) error {
	bounded, cancel := context.WithTimeout(ctx, signalTimeout)
	defer cancel()
	q, cancelCall := s.read(bounded)
	defer cancelCall()
	if err := s.client.Allocations().Signal(&api.Allocation{ID: a.ID, NodeID: a.NodeID}, q, taskName, name); err != nil {
		return failed(err, capLifecycle, "send %s to %s on %s", name, a.JobID, a.NodeName)
	}
	return nil
}
