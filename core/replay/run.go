package replay

import (
	"context"
	"math"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/estimator"
	"github.com/kale-sched/kale/forecast"
)

// decider says how many workers are wanted: a policy, or the oracle's plan.
type decider interface {
	// decide is asked at every tick; r is the run as it stands.
	decide(r *run) (target int, ok bool)
}

// run is one part of a course under one decider and one seed. It is one goroutine's.
type run struct {
	j        *job.Job
	w        World
	part     *Part
	chance   chance
	by       decider
	interval float64   // between decisions, s
	capacity []float64 // F(w)

	q        queue
	end      float64
	running  int     // workers that train, or would if they were not lost
	pending  []batch // on their way, live
	draining []batch // on their way out, live
	lost     []float64
	paused   float64 // the end of the outage; 0: none
	target   int
	rescale  *core.Rescale
	budget   budget
	gaps     []time.Duration
	joins    []time.Duration
	window   window
	tally    tally
	trail    *Trail
}

// batch is workers that change their state together, at a moment.
type batch struct {
	n  int
	at float64
}

// window is what happened since the last decision: for how many seconds there were members, for how many these were busy, and what had been trained before.
type window struct{ busy, had, served float64 }

// start begins a run with the workers that the first minute's load needs.
func (r *run) start() {
	r.end = r.part.Duration().Seconds()
	r.q = queue{a: newArrivals(r.part.Step.Seconds(), r.part.Rates)}
	r.budget = newBudget(r.w)
	r.running = smallest(r.capacity, r.part.Rates[0], r.j.Workers.Min, r.j.Workers.Max)
	r.target = r.running
	// The job has run before: its last rescales have been measured.
	for k := int64(5); k >= 1; k-- {
		minute := r.minute(0) - k
		if r.w.Live {
			r.joins, r.gaps = core.Remember(r.joins, seconds(r.w.Lead.draw(r.chance, drawLead, minute))), core.Remember(r.gaps, 0)
		} else {
			out := seconds(r.w.Outage.draw(r.chance, drawOutage, minute))
			r.joins, r.gaps = core.Remember(r.joins, out), core.Remember(r.gaps, out)
		}
	}
}

// smallest is the least number of workers from lo to hi that train more than load, or else the least of those that train most.
func smallest(capacity []float64, load float64, lo, hi int) int {
	return sufficient(capacity, math.Nextafter(load, math.Inf(1)), lo, hi)
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }

// clock is the moment s seconds after the beginning of the part.
func (r *run) clock(s float64) time.Time { return r.part.Start.Add(seconds(s)) }

// minute numbers the minutes since 1970.
func (r *run) minute(s float64) int64 { return r.part.Start.Unix()/60 + int64(math.Floor(s/60)) }

// play runs the part from its beginning to its end, or until ctx has ended: what the run shows is of no use then.
func (r *run) play(ctx context.Context) {
	r.start()
	r.first()
	minute, tick := 60.0, r.interval
	for r.q.t < r.end && ctx.Err() == nil {
		next := min(r.end, minute, tick, r.nextChange())
		r.advance(next)
		r.change()
		if next == minute || next == r.end {
			r.mark(minute - 60)
			r.lose()
			minute += 60
		}
		if next == tick && next < r.end {
			r.tick()
			tick += r.interval
		}
	}
	r.leave()
}

// leave ends a run: what still waits is among what its figures are of, and is charged for.
func (r *run) leave() {
	most := trainsMost(r.capacity, max(r.j.Workers.Min, 1), r.j.Workers.Max)
	r.tally.left = r.tally.left.plus(leftAt(r.q.a, r.q.served, r.q.t, most, r.capacity[most], r.j.SLO.MaxLag.Seconds()))
	r.q.leave()
	r.tally.lags.merge(&r.q.lags)
}

// nextChange is when a worker comes, goes or is back, or the outage ends.
func (r *run) nextChange() float64 {
	next := math.Inf(1)
	if r.paused > 0 {
		next = r.paused
	}
	for _, b := range r.pending {
		next = min(next, b.at)
	}
	for _, b := range r.draining {
		next = min(next, b.at)
	}
	for _, at := range r.lost {
		next = min(next, at)
	}
	return next
}

// training is the number of workers that train.
func (r *run) training() int {
	if r.paused > 0 {
		return 0
	}
	return max(r.running-len(r.lost), 0)
}

// held is the number of workers that are paid for.
func (r *run) held() int {
	n := r.running
	for _, b := range r.pending {
		n += b.n
	}
	for _, b := range r.draining {
		n += b.n
	}
	return n
}

func (r *run) advance(to float64) {
	d := to - r.q.t
	if d <= 0 {
		return
	}
	n := r.training()
	busy := r.q.advance(to, r.capacity[n])
	held := r.held()
	t := &r.tally
	t.seconds += d
	t.held += float64(held) * d
	t.busy += busy * float64(n)
	if held <= r.j.Workers.Min {
		t.atMin += d
	}
	if r.paused > 0 {
		t.downtime += d
	}
	if n > 0 {
		r.window.busy += busy
		r.window.had += d
	}
}

// change carries out what is due now.
func (r *run) change() {
	now := r.q.t
	if r.paused > 0 && r.paused <= now {
		r.paused = 0
		r.finish()
	}
	moved := false
	r.pending, moved = due(r.pending, now, moved, func(b batch) { r.running += b.n })
	r.draining, moved = due(r.draining, now, moved, func(batch) {})
	kept := r.lost[:0]
	for _, at := range r.lost {
		if at > now {
			kept = append(kept, at)
		}
	}
	r.lost = kept
	if moved && len(r.pending) == 0 && len(r.draining) == 0 {
		r.finish()
	}
}

// due removes the batches whose time has come.
func due(list []batch, now float64, moved bool, then func(batch)) ([]batch, bool) {
	kept := list[:0]
	for _, b := range list {
		if b.at > now {
			kept = append(kept, b)
			continue
		}
		then(b)
		moved = true
	}
	return kept, moved
}

// finish measures the rescale that was under way, as the scheduler does.
func (r *run) finish() {
	s := r.rescale
	if s == nil {
		return
	}
	r.rescale = nil
	took := r.clock(r.q.t).Sub(s.Decided)
	switch {
	case !r.w.Live:
		r.gaps = core.Remember(r.gaps, took)
	default:
		r.gaps = core.Remember(r.gaps, 0)
	}
	if s.Kind == plan.KindOut {
		r.joins = core.Remember(r.joins, took)
	}
}

// mark takes the metrics at the end of a minute.
func (r *run) mark(from float64) {
	lag := r.q.lag()
	share := (r.q.t - from) / 60 // the last minute may be cut short
	r.tally.minute(lag, share, r.j.SLO.MaxLag.Seconds())
	if r.trail != nil {
		r.trail.add(r.clock(r.q.t), r.held(), r.capacity[r.training()], lag, &r.tally)
	}
}

// lose takes the workers that are lost in the minute that begins now.
func (r *run) lose() {
	if r.w.LossesPerDay <= 0 || r.paused > 0 {
		return
	}
	minute := r.minute(r.q.t)
	for i := range r.training() {
		if r.chance.uniform(drawLoss, minute, i) < r.w.LossesPerDay/1440 {
			r.lost = append(r.lost, r.q.t+r.w.Return.draw(r.chance, drawLoss, minute*1009+int64(i)))
			r.tally.lost++
		}
	}
}

// first is the decision before anything runs: it is carried out at once and costs nothing, as the job has been running.
func (r *run) first() {
	if target, ok := r.by.decide(r); ok && target >= 1 {
		r.running, r.target = min(target, len(r.capacity)-1), target
	}
	r.window = window{served: r.q.served}
}

func (r *run) tick() {
	target, ok := r.by.decide(r)
	r.window = window{served: r.q.served}
	if !ok || target < 1 || target == r.target || target >= len(r.capacity) {
		return
	}
	if !r.budget.take(r.q.t) {
		r.tally.refused++
		return
	}
	r.tally.rescales++
	r.aim(target)
}

// aim opens the rescale to target.
func (r *run) aim(target int) {
	now := r.q.t
	minute := r.minute(now)
	kind := plan.KindOut
	if target < r.target {
		kind = plan.KindIn
	}
	r.rescale = &core.Rescale{Kind: kind, From: r.target, To: target, Decided: r.clock(now)}
	switch {
	case !r.w.Live:
		r.running, r.lost = target, r.lost[:0]
		r.paused = now + r.w.Outage.draw(r.chance, drawOutage, minute)
	case kind == plan.KindOut:
		r.pending = append(r.pending, batch{target - r.target, now + r.w.Lead.draw(r.chance, drawLead, minute)})
	default:
		r.running -= r.target - target
		r.draining = append(r.draining, batch{r.target - target, now + r.w.Drain.draw(r.chance, drawDrain, minute)})
	}
	r.target = target
	r.change() // a draw of nothing is over at once
}

// capacities are F(0) … F(hi).
func capacities(m estimator.Model, hi, servers int) []float64 {
	f := make([]float64, hi+1)
	for w := 1; w <= hi; w++ {
		f[w] = m.Throughput(w, servers)
	}
	return f
}

// policyDecider is a policy as the scheduler runs it.
type policyDecider struct {
	policy  *plan.Succession
	outlook []*packed                   // one per bin of the part
	foresee func(bin int) plan.Forecast // instead of outlook, where that is nil
	needs   plan.Needs
	model   estimator.Model
	log     *[]plan.Decision // nil: not kept

	calibrator *forecast.Calibrator // of forecasts that the world spoils
}

func (p *policyDecider) decide(r *run) (int, bool) {
	d := p.policy.Decide(p.observe(r))
	if p.log != nil {
		*p.log = append(*p.log, d)
	}
	return d.Target, d.Kind != plan.KindHold
}

// bin is the part's bin of what is measured that begins at the moment, or is the last to have begun.
func (r *run) bin() int {
	return min(int(r.q.t/r.part.History.Step.Seconds()+1e-9), len(r.part.History.Values)-r.part.First)
}

// past is the arrivals that have been measured.
func (r *run) past() plan.Series {
	h := r.part.History
	return plan.Series{Start: h.Start, Step: h.Step, Values: plan.Values(h.Values[:r.part.First+r.bin()])}
}

// observe is what the scheduler would see.
func (p *policyDecider) observe(r *run) plan.Observation {
	now := r.q.t
	bin := r.bin()
	past := r.part.History
	past.Values = past.Values[:r.part.First+bin]
	training := r.training()
	v := core.Sight{
		Now: r.clock(now), History: past, Forecast: p.spoiled(r, bin, p.forecast(bin)),
		BacklogRecords: int64(r.q.backlog()), Lag: seconds(r.q.lag()), LagKnown: true,
		Target: r.target, Workers: plan.Workers{Running: training}, Model: p.model,
		Gaps: r.gaps, Joins: r.joins, Limits: plan.Limits{Min: r.j.Workers.Min, Max: r.j.Workers.Max},
		Rescale: r.rescale,
	}
	v.Workers.Pending = r.running - training
	for _, b := range r.pending {
		v.Workers.Pending += b.n
	}
	for _, b := range r.draining {
		v.Workers.Draining += b.n
	}
	if r.window.had > 0 {
		v.Utilisation, v.UtilKnown = min(r.window.busy/r.window.had, 1), true
		v.Flow = plan.Flow{Known: true, Busy: v.Utilisation, Trained: (r.q.served - r.window.served) / r.window.had}
	}
	v.Budget = r.budget.view(r.q.t)
	return v.Observation(r.j)
}

// forecast is what was expected in a bin of the part.
func (p *policyDecider) forecast(bin int) plan.Forecast {
	if p.outlook == nil {
		return p.foresee(bin)
	}
	return p.outlook[bin].unpack(p.needs)
}
