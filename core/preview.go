package core

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/pool"
	"github.com/kale-sched/kale/core/state"
	"github.com/kale-sched/kale/core/traffic"
	"github.com/kale-sched/kale/forecast"
)

// Preview is what a scheduler would do now, had it been started.
type Preview struct {
	// Record is the decision with what it was made from.
	Record Record
	// Workloads are the servers and workers that the decision wants.
	Workloads []backend.Workload
	// Report says whether those of them that do not run yet could be placed; Unplaced says why that is not known, "": it is.
	Report   backend.Report
	Unplaced string
	// Running is what the backend has of the job; Unlisted says why that may not be all, "": it is.
	Running  []backend.Status
	Unlisted string
	// Backfilled says what arrival history there is.
	Backfilled traffic.Backfilled
	// Ahead are records dated ahead of this machine's clock, for which a part of it is missing.
	Ahead []traffic.Ahead
	// NoHistory is why the arrival history could not be read.
	NoHistory error
	// Gone says that nothing lives of the job, which has not stopped: a run takes it up again. Ended is then what became of it, for people.
	Gone  bool
	Ended string
	// Locked says that a scheduler of the job runs. Unheard says that it did not tell what it wants (Options.Wanted): then what it has learnt, and what a person has
	// ordered, is not in the preview, which starts from the job file's prior.
	Locked, Unheard bool
	// Occasions are the job's events and holidays that are under way or begin within two days, an event as it has come so far.
	Occasions []forecast.Occasion
	// Damaged says what is wrong with the scheduler's state, and what helps; "": nothing was found, or the scheduler that runs has it, and tells.
	Damaged string
	// Offline says that the brokers were not asked: only the backend's part is known, and what is placed are workers.min.
	Offline bool
}

// NewPreview looks, forecasts and decides once, with the code that a running scheduler uses. It writes nothing and starts nothing.
func NewPreview(ctx context.Context, o Options) (*Preview, hcl.Diagnostics, error) {
	ps, diags, err := NewPreviews(ctx, []Options{o})
	if len(ps) == 0 {
		return nil, diags[0], err
	}
	return ps[0], diags[0], err
}

// NewPreviews is NewPreview for jobs that may share a pool: what each wants passes through it as it would live. There are diagnostics for each job; where
// one of them has errors there are no previews.
func NewPreviews(ctx context.Context, all []Options) (ps []*Preview, diags []hcl.Diagnostics, err error) {
	diags = make([]hcl.Diagnostics, len(all))
	var seers []*Scheduler
	defer func() {
		for _, s := range seers {
			_ = s.Close()
		}
	}()
	for i, o := range all {
		s, p, ds, err := foreseeOne(ctx, o)
		if diags[i] = ds; s != nil {
			seers = append(seers, s)
		}
		if err != nil || ds.HasErrors() {
			return nil, diags, err
		}
		ps = append(ps, p)
	}
	for i, s := range seers {
		if len(seers) > 1 && s.opt.Pool != nil && ps[i].Locked {
			s.recount(ctx)
		}
	}
	for i, s := range seers {
		if rec := &ps[i].Record; s.opt.Pool != nil {
			rec.Pool = s.opt.Pool.share(s.job.Name)
			if s.job.Autoscale.Mode != job.ModeObserve {
				rec.Observation, rec.Decision = rec.Pool.Within(s.policy.Decide, rec.Observation, rec.Decision)
			}
		}
		if err := s.place(ctx, ps[i]); err != nil {
			return ps, diags, err
		}
	}
	return ps, diags, nil
}

// recount counts what the job holds once more, just before the pool is divided. A scheduler that runs may have moved workers since it told what it wants: looked at one after another, several jobs would seem to
// hold the same GPU, and together more than there are. Where the cluster does not answer it stays as it was counted.
func (s *Scheduler) recount(ctx context.Context) {
	if s.seen.listErr != nil { // it would be waited for once more
		return
	}
	list, complete, err := s.opt.list(ctx)
	if err != nil || !complete {
		return
	}
	live := liveWorkers(list)
	s.opt.Pool.tell(s.job.Name, func(j *pool.Job) {
		j.Staying = min(j.Staying, live)
		j.Leaving = live - j.Staying
	})
}

// foreseeOne looks and decides for one job, and puts what it wants before its pool. The scheduler is for more questions; the caller closes it.
func foreseeOne(ctx context.Context, o Options) (*Scheduler, *Preview, hcl.Diagnostics, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	want := o.Wanted
	if want == nil {
		want, _ = WantedAt(o.StateDir) // who reads the rest of it says what is wrong with it
	}
	diags := CheckRunning(o.Job, want)
	if diags.HasErrors() {
		return nil, nil, diags, nil
	}
	diags, err := ConfigureBackend(ctx, o.Backend, o.Job, o.StateDir)
	if err != nil || diags.HasErrors() {
		return nil, nil, diags, err
	}
	diags = slices.Concat(diags, NotTakenUp(ctx, o.list, o.Job, want, nil), CheckNetwork(o.Job), CheckCheckpoint(o.Job), CheckModel(o.Job, want))
	if diags.HasErrors() {
		return nil, nil, diags, nil
	}
	s := &Scheduler{opt: o, job: o.Job, lg: o.Log.With("job", o.Job.Name), started: time.Now(), progress: newProgressLog(10 * time.Minute), want: newDesired("")}
	p := &Preview{Offline: o.Offline}
	var ended string
	if p.Locked, ended, err = s.readDesired(want); err == nil {
		err = s.connect(ctx)
	}
	if err != nil {
		return s, nil, diags, err
	}
	if !o.Offline {
		p.Backfilled, p.NoHistory = s.readHistory(ctx)
		p.Ahead = s.missed.ahead
	}
	s.seen = s.look(ctx)
	p.Running, p.Unlisted = s.seen.list, s.seen.unlisted()
	if s.supposesNone(p.Locked) {
		p.Unlisted += supposedNone
	}
	if p.Locked && s.want.Target > 0 && s.seen.unlisted() == "" {
		s.want.catchUp(s.seen.list)
	}
	s.gone = s.gone && !p.Locked // what the scheduler that runs has not started yet, it starts
	if p.Gone, p.Unheard = s.gone, p.Locked && want == nil; p.Gone {
		p.Ended = ended
	}
	now := time.Now()
	defer s.foresee.closeOn(ctx)()
	s.follow(now)
	if s.want.Target == 0 && len(s.seen.list) > 0 {
		s.want.adopt(s.seen.list)
	}
	obs := s.observe(now)
	p.Record = Record{Observation: obs, Decision: s.policy.Decide(obs), LastJoin: s.want.LastJoin, LagUnknown: s.lagUnknown(obs), ObserveOnly: o.Job.Autoscale.Mode == job.ModeObserve}
	p.Occasions = s.occasions(now)
	if s.damaged != nil {
		p.Damaged = damagedRest(s.damaged)
	}
	if o.Pool != nil {
		s.joinPool(false)
		o.Pool.tell(o.Job.Name, func(j *pool.Job) {
			if s.wish(j, obs, p.Record.Decision) && p.Locked { // as its scheduler would, which has heard it for longer
				s.want.PoolAsked.After(j, obs.Now, s.whimTime(obs)).Tell(j)
			}
		})
	}
	return s, p, diags, nil
}

// supposedNone follows why what runs of a job is not known.
const supposedNone = "; decided as if nothing of the job ran, since none of it is wanted"

// supposesNone takes the silence of a cluster for the answer that nothing runs, of a job of which nothing is wanted and no chief is heard: a run would hold until
// the cluster answers, and decide then what a preview can say now.
func (s *Scheduler) supposesNone(locked bool) bool {
	n := s.seen
	if locked || s.want.Target > 0 || len(n.list) > 0 || !silent(n.chiefErr) || n.listErr == nil || n.blind() {
		return false
	}
	n.list, n.complete, n.listErr = nil, true, nil
	return true
}

// catchUp takes in what a scheduler has replaced since it said what it wants, and before the list was looked at: newer generations, and workers in the places of those
// that are gone. Successors that only hold a place are not yet in anybody's.
func (d *desired) catchUp(list []backend.Status) {
	live := func(id backend.ID) bool {
		return slices.ContainsFunc(list, func(st backend.Status) bool {
			return st.ID == id && st.State.Live() && st.State != backend.StateStopping
		})
	}
	var more []int // ranks of workers that nobody has said are wanted
	for _, st := range list {
		gens := d.Workers
		if st.ID.Role == backend.RoleServer {
			gens = d.Servers
		}
		if st.Beside || succeeds(list, st) || !live(st.ID) || d.leaves(st.ID) {
			continue
		}
		if st.ID.Generation > gens[st.ID.Rank] {
			gens[st.ID.Rank] = st.ID.Generation
		}
		if st.ID.Role == backend.RoleWorker && !slices.Contains(d.Ranks, st.ID.Rank) {
			more = append(more, st.ID.Rank)
		}
	}
	slices.Sort(more)
	for i, rank := range d.Ranks {
		if len(more) > 0 && !live(workerID(rank, d.Workers[rank])) {
			d.Renewals = slices.DeleteFunc(d.Renewals, func(v renewal) bool { return v.Rank == rank || v.Successor == more[0] })
			d.Ranks[i], more = more[0], more[1:]
		}
	}
	slices.Sort(d.Ranks)
}

// leaves says that a worker is on its way out.
func (d *desired) leaves(id backend.ID) bool {
	return slices.ContainsFunc(d.Draining, func(l leaving) bool { return l.id() == id })
}

// readDesired takes what is wanted as the scheduler that runs says (nil: it did not), else from the state of the last one, if there is one, and leaves that as it is.
// ended is what became of the job after that one, for people.
func (s *Scheduler) readDesired(says *Wanted) (locked bool, ended string, err error) {
	st, err := state.OpenReader(s.opt.StateDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, "", nil
	case errors.Is(err, state.ErrLocked):
		err = s.want.copy(says)
		s.want.open(false)
		return true, "", err
	case err != nil:
		return false, "", err
	}
	s.damaged = st.Check(checkFor)
	_, err = st.Get(desiredKey, s.want)
	ended = s.want.ended()
	s.want.open(false)
	return false, ended, errors.Join(err, st.Close())
}

// place renders what the decision wants and asks the backend whether the missing part has room. That the cluster does not answer keeps nobody from the decision.
func (s *Scheduler) place(ctx context.Context, p *Preview) error {
	want := s.want.Target
	if p.Record.Decision.Target > 0 {
		want = p.Record.Decision.Target
	}
	if p.Offline && want == 0 {
		want = max(1, s.job.Workers.Min) // a decision needs to know what arrives; whether the first workers have room does not
	}
	s.want.setTarget(want, time.Now(), func(n int) []int { return victims(n, s.candidates()) })
	for range raisesMost {
		missing := s.foreseen(p)
		if len(missing) == 0 {
			p.Report = backend.Report{}
			return nil
		}
		var err error
		p.Report, err = s.opt.Backend.Plan(ctx, s.job.Name, missing)
		switch {
		case err != nil && ctx.Err() == nil && backend.CodeOf(err) == backend.Unavailable:
			p.Unplaced = backendSilent + backend.AsError(err).Message
			return nil
		case err != nil || !s.raise(p.Report):
			return err
		}
	}
	return nil
}

// raisesMost is how often a preview asks again with newer generations: a backend that knows them tells all at once, and a scheduler may start some meanwhile.
const raisesMost = 4

// foreseen renders what the preview's job wants, and gives what of it does not run.
func (s *Scheduler) foreseen(p *Preview) (missing []backend.Workload) {
	p.Workloads = nil
	add := func(w backend.Workload) {
		p.Workloads = append(p.Workloads, w)
		if st, found := s.seen.allocation(w.ID); !found || !st.State.Live() {
			missing = append(missing, w)
		}
	}
	for i := range s.job.Servers.Count {
		add(s.loads.server(i, max(1, s.want.Servers[i])))
	}
	for _, rank := range s.want.Ranks {
		add(s.loads.worker(rank, max(1, s.want.Workers[rank])))
	}
	return missing
}

// raise takes the next generation of what the backend has released or replaced, as a run does (refused): of that a state that was lost, or is an old one, does not
// tell. It reports whether there is any.
func (s *Scheduler) raise(r backend.Report) (raised bool) {
	for _, p := range r.Placements {
		gens := s.want.Workers
		if p.ID.Role == backend.RoleServer {
			gens = s.want.Servers
		}
		if !p.Fits && p.Newest >= p.ID.Generation {
			gens[p.ID.Rank], raised = p.Newest+1, true
		}
	}
	return raised
}
