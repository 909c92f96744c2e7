package core

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/pool"
)

// Pool is a pool of GPUs that the schedulers of one process share: each decision passes through it. It keeps nothing on disk: what must survive a
// restart, the jobs' targets and how long they have waited, is in their own states, and counts from Open on. It is safe for concurrent use; its lock is never held while anything else is.
type Pool struct {
	rules *job.Pool

	mu    sync.Mutex
	jobs  []pool.Job
	last  []pool.Division // by type
	stale bool            // last is of before the last change
	heard map[string]bool // who has asked, or will not
	first time.Time       // when one of them has asked first
}

// firstAsks is for how long at the most jobs that are run together wait for what each asks for first: which of them decides first is chance, and what it took before the others were heard, they
// would have to take back.
const firstAsks = 10 * time.Second

// NewPool makes the pool of a pool file. Every job that shares it must be opened with it before any of them is run.
func NewPool(rules *job.Pool) *Pool { return &Pool{rules: rules, heard: map[string]bool{}} }

// Names says whether the pool file names a job, without which the pool is not run then.
func (p *Pool) Names(name string) bool {
	return slices.ContainsFunc(p.rules.Jobs, func(j job.PoolJob) bool { return j.Name == name })
}

// PoolShare is what a pool gives to a job, and why.
type PoolShare struct {
	// Pool is its name; Size, Held and Free are GPUs of the job's type, as in [pool.Division].
	Pool string `json:"pool"`
	Size int    `json:"size"`
	Held int    `json:"held"`
	Free int    `json:"free"`
	pool.Share
	// Why is the arithmetic in words.
	Why string `json:"why"`
}

// String is the share for people.
func (p *PoolShare) String() string {
	return fmt.Sprintf("%q, %s: %s %s", p.Pool, p.use(), p.Job.Name, p.Why)
}

// use says how much of the pool is in use or, where it has types, of the job's.
func (p *PoolShare) use() string {
	unit := "GPU"
	if p.Type != "" {
		unit = p.Type + " GPU"
	}
	if more := p.Held - p.Size; more > 0 {
		return fmt.Sprintf("all of %s in use, and %d to be given back", job.Count(p.Size, unit), more)
	}
	return fmt.Sprintf("%d of %s in use", p.Held, job.Count(p.Size, unit))
}

// Called names the pool, and the type of the job's GPUs where it has types, for the middle of a sentence.
func (p *PoolShare) Called() string {
	if p.Type == "" {
		return fmt.Sprintf("pool %q", p.Pool)
	}
	return fmt.Sprintf("pool %q (%s)", p.Pool, p.Type)
}

// tell changes what the pool knows of a job, which is new to it or not.
func (p *Pool) tell(name string, change func(*pool.Job)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.jobs, func(j pool.Job) bool { return j.Name == name })
	if i < 0 {
		i = len(p.jobs)
		p.jobs = append(p.jobs, pool.Job{Name: name})
	}
	change(&p.jobs[i])
	p.stale = true
}

// share is what the pool gives to a job that it knows.
func (p *Pool) share(name string) *PoolShare {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shareOf(name)
}

// shareOf is share with p.mu held.
func (p *Pool) shareOf(name string) *PoolShare {
	if p.stale {
		p.last, p.stale = pool.DivideTypes(p.types(), p.jobs), false
	}
	for _, d := range p.last {
		if i := slices.IndexFunc(d.Shares, func(s pool.Share) bool { return s.Name == name }); i >= 0 {
			return &PoolShare{Pool: p.rules.Name, Size: d.Size, Held: d.Held, Free: d.Free, Share: d.Shares[i], Why: d.Words(i)}
		}
	}
	panic("core: job " + name + " is not in its pool")
}

// types are the GPUs of the pool, by type.
func (p *Pool) types() []pool.Type {
	if len(p.rules.Types) == 0 {
		return []pool.Type{{GPUs: p.rules.GPUs}}
	}
	out := make([]pool.Type, len(p.rules.Types))
	for i, t := range p.rules.Types {
		out[i] = pool.Type{Name: t.Name, GPUs: t.GPUs}
	}
	return out
}

// awaits names the jobs, in words, of which it is not known at now what they ask for, and for which the others wait; "": there are none.
func (p *Pool) awaits(now time.Time) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.awaited(now)
}

// awaited is awaits with p.mu held.
func (p *Pool) awaited(now time.Time) string {
	if p.first.IsZero() || now.Sub(p.first) >= firstAsks || now.Before(p.first) {
		return ""
	}
	var names []string
	for _, j := range p.jobs {
		if !p.heard[j.Name] {
			names = append(names, j.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return pool.Named(names)
}

// passOver: nobody waits for what a job asks for.
func (p *Pool) passOver(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard[name] = true
}

// hasHeard says whether the job has asked for anything yet, or is known not to.
func (p *Pool) hasHeard(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heard[name]
}

// ask says what a job may have at now that asks for something, and puts so much of it aside, up to target, that nobody else is promised the same. Until all have asked first it has no more than
// it holds.
func (p *Pool) ask(name string, now time.Time, target int, change func(*pool.Job)) *PoolShare {
	p.tell(name, change)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.jobs { // a turn ends though the scheduler of its job may be gone
		if j := &p.jobs[i]; !j.Turn.IsZero() && !now.Before(j.Turn) {
			j.Turn, p.stale = time.Time{}, true
		}
	}
	if p.heard[name] = true; p.first.IsZero() {
		p.first = now
	}
	s := p.shareOf(name)
	if who := p.awaited(now); who != "" && min(s.May, target) > s.Staying {
		s.May, s.Waits = s.Staying, s.Goal-s.Staying
		s.Why += fmt.Sprintf("; takes no more before it is known what is first asked for by %s, which takes %s at the most", who, job.FormatDuration(firstAsks))
	}
	if take := min(s.May, target); take > s.Staying {
		i := slices.IndexFunc(p.jobs, func(j pool.Job) bool { return j.Name == name })
		p.jobs[i].Staying, p.stale = take, true
	}
	return s
}

// spare puts one more worker aside for a job, where there is room that nobody else is to have.
func (p *Pool) spare(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shareOf(name)
	if s.Free < s.GPUs {
		return false
	}
	i := slices.IndexFunc(p.jobs, func(j pool.Job) bool { return j.Name == name })
	p.jobs[i].Leaving, p.stale = p.jobs[i].Leaving+1, true
	return true
}

// leave says that nobody decides for a job any more, if the pool knows it: it wants no more than what it holds, which counts still.
func (p *Pool) leave(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.IndexFunc(p.jobs, func(j pool.Job) bool { return j.Name == name }); i >= 0 {
		j := &p.jobs[i]
		j.Ask, p.stale, p.heard[name] = j.Staying, true, true
		pool.Wait{}.Tell(j, time.Time{}, 0, 0)
	}
}

// joinPool makes the job known to its pool, with what its state says that it holds. A job without a state may run all the same: that is not known before
// it was looked at.
func (s *Scheduler) joinPool(known bool) {
	if s.opt.Pool == nil {
		return
	}
	if s.want.Target == 0 { // it was stopped since, and did not wait
		s.want.PoolWait, s.want.PoolAsked = pool.Wait{}, pool.Asked{}
	}
	s.opt.Pool.tell(s.job.Name, func(j *pool.Job) {
		j.Unknown = !known
		s.want.PoolWait.Tell(j, time.Now(), s.opt.Pool.rules.Patience, 0)
	})
	s.tellPool()
}

// tellPool says what the job holds as far as it was seen, and what of it is at the pool's disposal.
func (s *Scheduler) tellPool() {
	if s.opt.Pool == nil {
		return
	}
	of := s.opt.Pool.rules.Of(s.job)
	looked := s.seen != nil && s.seen.listErr == nil && s.seen.complete
	if s.want.Stopping {
		s.opt.Pool.passOver(s.job.Name)
	}
	heard := s.opt.Pool.hasHeard(s.job.Name)
	s.opt.Pool.tell(s.job.Name, func(j *pool.Job) {
		j.Type, j.Priority, j.Weight = of.Type, of.Priority, of.Weight
		j.Guarantee, j.Limit, j.GPUs = of.Guarantee, of.Limit, s.job.PoolGPUs()
		j.Staying, j.Leaving = s.holds(looked)
		j.Unknown = j.Unknown && !looked
		if j.Ask = max(j.Ask, j.Staying); !heard { // until it asks for less
			j.Ask = max(j.Ask, j.Guarantee, s.job.Workers.Min)
		}
		switch {
		case s.want.Stopping:
			j.Ask = 0
		case s.want.Manual.Paused || s.job.Autoscale.Mode == job.ModeObserve: // a person says that this stays as it is
			j.Ask, j.Guarantee, j.Limit = j.Staying, j.Staying, j.Staying
		}
	})
}

// holds is how many workers the job has that stay, and how many others that hold GPUs.
func (s *Scheduler) holds(looked bool) (staying, leaving int) {
	w := s.want
	live := 0
	if looked {
		live = liveWorkers(s.seen.list)
	}
	leaving = len(w.Draining) + len(w.Renewals)
	switch {
	case w.Stopped:
		return 0, 0
	case w.Stopping && looked:
		return 0, live
	case w.Stopping:
		return 0, w.Target + leaving
	case s.job.Autoscale.Mode == job.ModeObserve:
		return live, 0
	case w.Restart > 0: // they leave before the others come
		staying, leaving = w.Restart, leaving-w.Restart
	default:
		staying = w.Target
	}
	return staying, max(leaving, live-staying, 0)
}

// liveWorkers is how many workers of a list live.
func liveWorkers(list []backend.Status) (n int) {
	for _, st := range list {
		if st.ID.Role == backend.RoleWorker && st.State.Live() {
			n++
		}
	}
	return n
}

// heedPool makes the job decide at once when the pool wants workers back, or has some that the job did not get when it asked. A rescale under way is waited
// for, unless it waits itself, for places: that may be for hours.
func (s *Scheduler) heedPool() {
	if s.opt.Pool == nil || s.want.Stopping || s.want.Rescale != nil && !s.onlyWaits() || s.want.Restart > 0 || s.seen.unknown(s.begun()) != "" || s.opt.Pool.awaits(s.seen.at) != "" {
		return
	}
	sh := s.opt.Pool.share(s.job.Name)
	if sh.May < s.want.Target || sh.May > s.want.Target && sh.May != s.may {
		s.tickAt = s.seen.at
	}
}

// onlyWaits says that all workers that a scale-out lacks wait for a place.
func (s *Scheduler) onlyWaits() bool {
	waiting := len(s.want.Unplaced)
	return s.want.Rescale.Kind == plan.KindOut && waiting > 0 && waiting+s.workers().Running == s.want.Target
}

// throughPool asks the pool for what a decision wants. Where it gives less, the policy decides again, within that.
func (s *Scheduler) throughPool(obs plan.Observation, d plan.Decision) (plan.Observation, plan.Decision, *PoolShare) {
	if s.opt.Pool == nil {
		return obs, d, nil
	}
	sh := s.opt.Pool.ask(s.job.Name, obs.Now, d.Target, func(j *pool.Job) {
		if s.wish(j, obs, d) { // else it stands there as it was told last
			s.want.PoolAsked = s.want.PoolAsked.After(j, obs.Now, s.whimTime(obs))
			s.want.PoolAsked.Tell(j)
		}
		if obs.Manual.Pinned { // a person says so
			j.Fresh, j.Whim = 0, 0
		}
	})
	s.may = sh.May
	if sh.Fresh > 0 && sh.Short() > 0 {
		s.askAgain = s.whimTime(obs)
	}
	s.keepWait(obs, sh)
	obs, d = sh.Within(s.policy.Decide, obs, d)
	return obs, d, sh
}

// wish puts what a decision wants, and what that is worth, before the pool. What cannot be known now, or is kept by a person, wishes for nothing else: isNew is false then.
func (s *Scheduler) wish(j *pool.Job, obs plan.Observation, d plan.Decision) (isNew bool) {
	if isNew = !obs.Hold.Unknown && !obs.Manual.Paused && s.job.Autoscale.Mode != job.ModeObserve; isNew {
		j.Ask = d.Wants()
		j.Worth, j.Kept = plan.Worth(obs, j.Ask), d.Kept()
		Calmly(j, obs, d, s.lastHistory, s.whimTime(obs))
	}
	j.Move = PoolMove(obs, j.GPUs, measured(s.want.Drains, assumedDrain).Value)
	s.want.PoolWait.Tell(j, obs.Now, s.opt.Pool.rules.Patience, s.moveTime(obs))
	return isNew
}

// keepWait remembers since when the job has no more than its guarantee and wants more, and until when its turn lasts. It is saved with the decision.
func (s *Scheduler) keepWait(obs plan.Observation, sh *PoolShare) {
	rules := s.opt.Pool.rules
	s.want.PoolWait = s.want.PoolWait.After(sh.Share, obs.Now, rules.Patience, s.moveTime(obs))
	s.opt.Pool.tell(s.job.Name, func(j *pool.Job) { s.want.PoolWait.Tell(j, obs.Now, rules.Patience, s.moveTime(obs)) })
}

// moveTime is how long it takes to move a worker to this job.
func (s *Scheduler) moveTime(obs plan.Observation) time.Duration {
	return obs.JoinTime.Value + obs.RescaleCost.Value + measured(s.want.Drains, assumedDrain).Value
}

// whimPart: nobody waits for a turn because what it asks for is not firm yet.
const whimPart = 4

// whimTime is for how long the job must ask for what others have: as long as moving a worker takes, and a quarter of the pool's patience at most.
func (s *Scheduler) whimTime(obs plan.Observation) time.Duration {
	if patience := s.opt.Pool.rules.Patience; patience > 0 {
		return min(s.moveTime(obs), patience/whimPart)
	}
	return s.moveTime(obs)
}

// Calmly puts into j what an observation and the past arrivals say of the job's need on the whole, where it takes so long to move a worker to it, and whether it is late. What a person or
// the job file fixes follows no traffic.
func Calmly(j *pool.Job, o plan.Observation, d plan.Decision, past plan.Series, move time.Duration) {
	var calm plan.Calm
	if d.Source != "manual" && d.Policy != job.PolicyStatic && !o.Manual.Pinned {
		calm = plan.CalmOf(o, past, move)
	}
	j.Calm, j.CalmMost, j.Late, j.Objective = calm.Needs, calm.Most, o.LagKnown && o.Lag > o.MaxLag, o.MaxLag
}

// PoolMove is what it costs to take a worker of so many GPUs from this job and to give it to another one, by the times that were measured here.
func PoolMove(o plan.Observation, gpus int, drain time.Duration) float64 {
	kept := max(o.CooldownIn, o.Tau, o.Interval) // at least
	return pool.Move(gpus, (o.JoinTime.Value + o.RescaleCost.Value).Seconds(), drain.Seconds(), kept.Seconds())
}

// Within is a decision within what the pool gives. Where that is less, decide decides again, on narrower limits.
func (p *PoolShare) Within(decide func(plan.Observation) plan.Decision, obs plan.Observation, d plan.Decision) (plan.Observation, plan.Decision) {
	short := d.Target > p.May
	switch {
	case short && p.May < 1: // no room at all
		d.Target, d.Kind, d.Source = d.Current, plan.KindHold, "pool"
		gives := "has none to give"
		if p.Size-p.Held >= max(p.GPUs, 1) { // they are for others, or it is not known yet whether they are
			gives = "gives none yet"
		}
		d.Reason = fmt.Sprintf("hold at %s: %s %s", job.Count(d.Current, "worker"), p.Called(), gives)
		if d.Current == 0 {
			d.Reason = fmt.Sprintf("no worker is asked for yet: %s %s", p.Called(), gives)
		}
	case short:
		obs.Limits.Max, obs.Limits.Min = min(obs.Limits.Max, p.May), min(obs.Limits.Min, p.May)
		obs.Limits.Why, obs.Limits.Short = p.Called(), plan.Short{}
		wants := d.Reason
		if d = decide(obs); d.Target == p.May && !strings.Contains(d.Reason, obs.Limits.Why) {
			// What is narrow is the pool's part, and not what the job file allows, of which the policy speaks.
			d.Source, d.Reason = "pool", fmt.Sprintf("no more than %s by %s; without that: %s", job.Count(p.May, "worker"), p.Called(), wants)
		}
	}
	if short || p.Short() > 0 {
		d.Hold = append(slices.Clone(d.Hold), p.held())
	}
	return obs, d
}

// Keeps says what the pool makes of an order to have so many workers, "" where it gives them.
func (p *PoolShare) Keeps(target int) string {
	if p == nil || p.Goal >= target {
		return ""
	}
	return fmt.Sprintf("for now %s makes that %d: %s, and %s %s", p.Called(), p.Goal, p.use(), p.Job.Name, p.Why)
}

// held is how a decision says that the pool gives less than is asked for.
func (p *PoolShare) held() string { return "by pool " + p.String() }

// Holds says whether a decision's own words tell of the pool.
func (p *PoolShare) Holds(d plan.Decision) bool { return slices.Contains(d.Hold, p.held()) }
