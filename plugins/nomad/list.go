package nomad

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/errgroup"

	"github.com/kale-sched/kale/core/backend"
)

// List implements backend.Backend. It also carries out what a Release put on record and could not finish, and tells what
// waits of the nodes that were lost or are back.
func (n *nomad) List(ctx context.Context, job string) ([]backend.Status, bool, error) {
	s, err := n.jobs.Of(ctx, job)
	if err != nil {
		return nil, false, err
	}
	began := time.Now()
	p, err := s.look(ctx, job)
	if err != nil {
		return nil, false, err
	}
	if err := p.ledger.refuse(s, job); err != nil {
		return nil, false, err
	}
	n.learn(job, p)
	n.finishReleases(ctx, s, job, p)
	n.steer(ctx, s, job, p)
	n.bind(ctx, s, p)
	drift := n.meetDrift(ctx, s, job, p)
	var mu sync.Mutex
	var out []backend.Status
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, v := range p.views {
		d := drift[v.id]
		if d.adopted && !v.released { // since the look
			v.released, v.how = true, backend.Drained
		}
		if v.reaped() && !v.leftAway() {
			continue
		}
		g.Go(func() error {
			st := n.statusOf(ctx, s, v)
			if d.ended != "" && !st.State.Live() {
				st.State, st.Reason = backend.StateFailed, d.ended
			}
			st.Reason, st.Remarks = joined(st.Reason, d.text), d.remarks
			if d.back && !st.State.Live() {
				st.State = backend.StatePending
			}
			mu.Lock()
			defer mu.Unlock()
			out = append(out, st)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, false, err
	}
	for _, st := range purged(p) {
		if n.starts.Since(began, job, st.ID) {
			st.State, st.Reason = backend.StatePending, "its Nomad job is being submitted"
		}
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b backend.Status) int { return a.ID.Compare(b.ID) })
	return out, true, nil
}

// joined gives both texts, or the one that there is.
func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// purged gives those that the ledger knows and Nomad no longer does.
func purged(p picture) []backend.Status {
	var out []backend.Status
	for place, e := range p.ledger.entries {
		id, err := backend.ParseID(place + "-g" + strconv.FormatUint(e.Generation, 10))
		if err != nil || e.Released != 0 {
			continue
		}
		if _, there := p.find(id); !there {
			out = append(out, backend.Status{
				ID: id, State: backend.StateFailed, Reason: "Nomad has no job for it: it was not submitted, or it was purged, or collected after its end",
			})
		}
	}
	return out
}

// finishEvery is how often a release that did not come through is tried again.
const finishEvery = 10 * time.Second

// finishReleases tells Nomad to end what was released by a process that died before it could say so, and removes what is left of what has ended.
func (n *nomad) finishReleases(ctx context.Context, s settings, job string, p picture) {
	for _, v := range p.views {
		n.mu.Lock()
		due := v.released && !v.over() && time.Since(n.told[v.job.ID]) > finishEvery
		if v.over() {
			delete(n.told, v.job.ID)
		}
		n.mu.Unlock()
		if !due {
			continue
		}
		if err := n.end(ctx, s, job, v, v.how); err != nil {
			n.lg.Warn("cannot end what was released; it is tried again", "job", job, "id", v.id.String(), "err", err)
		}
	}
	if err := n.sweep(ctx, s, job, p.ledger); err != nil {
		n.lg.Warn("cannot remove what was given to workloads that are no more; it is tried again", "job", job, "err", err)
	}
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, v := range append(outdated(p.views), s.lingering(ctx, p.views)...) {
		g.Go(func() error {
			opts, cancel := s.write(ctx)
			defer cancel()
			if _, _, err := s.client.Jobs().Deregister(v.job.ID, true, opts); err != nil && !notFound(err) {
				n.lg.Warn("cannot purge a Nomad job that was released; it is tried again", "job", job, "nomad_job", v.job.ID, "err", err)
			}
			return nil
		})
	}
	_ = g.Wait() // what failed was said
}

// lingering gives the released workloads that have ended and whose Nomad jobs would not be collected for a year: while a node does not answer, as for a moment after an
// outage of the servers too, there is an evaluation for the time at which it would be given up (lostAfter). Nomad takes that back when what ran there goes on, and not
// when it was released meanwhile, so that its job stays pending, and never is dead.
func (s settings) lingering(ctx context.Context, views []view) (out []view) {
	for _, v := range views {
		if !v.reaped() || v.leftAway() || !v.job.Stop || v.job.Status != jobPending || len(v.allocs) == 0 {
			continue
		}
		q, cancel := s.read(ctx)
		evals, _, err := s.client.Jobs().Evaluations(v.job.ID, q)
		cancel()
		if err == nil && !slices.ContainsFunc(evals, underWay) {
			out = append(out, v)
		}
	}
	return out
}

// underWay reports whether Nomad is at work on an evaluation, or about to be.
func underWay(e *api.Evaluation) bool {
	return e.Status == api.EvalStatusPending && !e.WaitUntil.After(time.Now())
}

// jobPending is the status of a Nomad job of which nothing lives, and for which Nomad has still something to do.
const jobPending = "pending"

const (
	// keepReleased is how many released workloads a job keeps in Nomad, for their logs. The ledger remembers the others.
	keepReleased = 32
	// purgeAtOnce bounds how many are purged at one look.
	purgeAtOnce = 4
)

// outdated gives the released workloads whose Nomad jobs are to be purged, oldest first. Those of which something may
// live on a node that is away are kept: they keep new ones off it.
func outdated(views []view) []view {
	var old []view
	for _, v := range views {
		away := slices.ContainsFunc(v.allocs, func(a *api.AllocationListStub) bool { return a.ClientStatus == api.AllocClientStatusLost })
		if v.reaped() && !away {
			old = append(old, v)
		}
	}
	slices.SortFunc(old, func(a, b view) int { return cmp.Compare(a.job.SubmitTime, b.job.SubmitTime) })
	return old[:min(purgeAtOnce, max(0, len(old)-keepReleased))]
}

// statusOf gives the workload's status, asking its node for what only that knows.
func (n *nomad) statusOf(ctx context.Context, s settings, v view) backend.Status {
	st := v.status(func(a *api.AllocationListStub) (ending, bool) { return n.ending(ctx, s, a) })
	if st.State == backend.StatePending && v.latest() == nil {
		st.Reason = n.whyPending(ctx, s, v)
	}
	return st
}

// ending reads what start.sh left when the workload ended for good. An answer is kept: it never changes.
func (n *nomad) ending(ctx context.Context, s settings, a *api.AllocationListStub) (ending, bool) {
	n.mu.Lock()
	e, known := n.exits[a.ID]
	n.mu.Unlock()
	if known {
		return e, true
	}
	bounded, cancel := context.WithTimeout(ctx, signalTimeout)
	defer cancel()
	raw, err := s.readFile(bounded, a, taskName+"/local/.kale/exit", 4096)
	if err != nil {
		n.lg.Debug("cannot read how a workload ended", "nomad_job", a.JobID, "err", err)
		return ending{}, false
	}
	code, reason, _ := strings.Cut(strings.TrimSpace(string(raw)), " ")
	if e.code, err = strconv.Atoi(code); err != nil {
		return ending{}, false
	}
	e.reason = reason
	n.mu.Lock()
	defer n.mu.Unlock()
	n.exits[a.ID] = e
	return e, true
}

// pendingVerdict is why a workload is not placed, as found at a time.
type pendingVerdict struct {
	at     time.Time
	reason string
}

// pendingFor is how long such a verdict is good.
const pendingFor = 2 * time.Second

// whyPending says what a workload without a place waits for.
func (n *nomad) whyPending(ctx context.Context, s settings, v view) string {
	n.mu.Lock()
	old, known := n.sums[v.job.ID]
	n.mu.Unlock()
	if known && time.Since(old.at) < pendingFor {
		return old.reason
	}
	reason := s.whyPending(ctx, v)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sums[v.job.ID] = pendingVerdict{time.Now(), reason}
	return reason
}

func (s settings) whyPending(ctx context.Context, v view) string {
	q, cancel := s.read(ctx)
	defer cancel()
	evals, _, err := s.client.Jobs().Evaluations(v.job.ID, q)
	if err != nil {
		return "it waits for a place; why is not known: " + failed(err, capRead, "read its evaluations").Message
	}
	var newest *api.Evaluation
	for _, e := range evals {
		if len(e.FailedTGAllocs) > 0 && (newest == nil || e.CreateIndex > newest.CreateIndex) {
			newest = e
		}
	}
	if newest == nil {
		return "Nomad has not looked for a place yet"
	}
	gpus := 0
	if job, _, err := s.client.Jobs().Info(v.job.ID, q); err == nil {
		gpus = gpusOf(job)
	}
	free := -1
	if gpus > 0 {
		if f, err := s.fleet(ctx, nil); err == nil {
			free = f.inventory(s).Free
		}
	}
	return joined(shortage(gpus, free, newest.FailedTGAllocs[groupName]), v.keepsOff())
}

func gpusOf(job *api.Job) int {
	total := 0
	for _, g := range job.TaskGroups {
		for _, t := range g.Tasks {
			if t.Resources == nil {
				continue
			}
			for _, d := range t.Resources.Devices {
				if d.Count != nil {
					total += int(*d.Count)
				}
			}
		}
	}
	return total
}

// shortage says what is missing for so many GPUs: "needs 3 GPUs, 1 free", and what Nomad has to say.
func shortage(gpus, free int, m *api.AllocationMetric) string {
	var parts []string
	switch {
	case gpus == 1 && free >= 0:
		parts = append(parts, fmt.Sprintf("needs 1 GPU, %d free", free))
	case gpus > 0 && free >= 0:
		parts = append(parts, fmt.Sprintf("needs %d GPUs, %d free", gpus, free))
	}
	if m == nil {
		return strings.Join(parts, "; ")
	}
	counted := func(of map[string]int, word string) {
		for _, what := range sortedKeys(of) {
			parts = append(parts, fmt.Sprintf("%s: %s on %d of %d nodes", word, what, of[what], max(m.NodesEvaluated, m.NodesInPool)))
		}
	}
	if m.NodesEvaluated == 0 {
		parts = append(parts, "no node is in its datacenters and node pool, ready and eligible")
	}
	counted(m.ConstraintFiltered, "constraint")
	counted(m.DimensionExhausted, "exhausted")
	for _, q := range m.QuotaExhausted {
		parts = append(parts, "quota exhausted: "+q)
	}
	if len(parts) == 0 {
		return "it does not fit now"
	}
	return strings.Join(parts, "; ")
}
