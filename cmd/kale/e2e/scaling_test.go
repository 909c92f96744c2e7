package e2e_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"
	"time"

	"github.com/kale-sched/kale/cmd/kale/audit"
	"github.com/kale-sched/kale/cmd/kale/demo"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/state"
	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/core/stream/kafkatest"
)

// hump is a day with a night that one worker trains and a noon that takes several.
type hump struct {
	most   int           // workers at noon
	step   time.Duration // of a worker, for batchSize records
	season time.Duration
}

var (
	toThree = hump{most: 3, step: 120 * time.Millisecond, season: 40 * time.Second} // 533 records/s for each worker
	toSix   = hump{most: 6, step: 240 * time.Millisecond, season: 60 * time.Second} // 267
)

// curve is the synthetic day: a quarter of it is night, then the rate grows, stays, and falls again for 15 % of it each, and the rest is night. The night's
// rate is 0.47 of what one worker trains, the noon's 0.875 of what most of them do.
func (h hump) curve() stream.Curve {
	c := stream.Curve{Step: 500 * time.Millisecond}
	one := batchSize / h.step.Seconds()
	night, noon := 0.47*one, 0.875*one*float64(h.most)
	for i := range int(h.season / c.Step) {
		high := 0.0
		switch at := float64(i) * float64(c.Step) / float64(h.season); {
		case at < 0.25, at >= 0.7:
		case at < 0.4:
			high = (at - 0.25) / 0.15
		case at < 0.55:
			high = 1
		default:
			high = 1 - (at-0.55)/0.15
		}
		c.Rates = append(c.Rates, night+high*(noon-night))
	}
	return c
}

// days plays history days of past, and then days live until they are ended.
func (r *rig) days(c stream.Curve, history int) *traffic {
	r.t.Helper()
	now := time.Now()
	wait := func(p *traffic) {
		<-p.done
		if p.err != nil {
			r.t.Fatal(p.err)
		}
	}
	wait(r.play(stream.ProduceOptions{Curve: c, Duration: time.Duration(history) * c.Duration(), Until: now}))
	// What would have arrived while the history was written.
	later := time.Now()
	wait(r.play(stream.ProduceOptions{Curve: c, Duration: later.Sub(now), Until: later}))
	return r.play(stream.ProduceOptions{Curve: c, From: later.Sub(now), Duration: time.Hour})
}

// A job follows its traffic by forecast: it grows before noon and shrinks after it. Its first worker trains on through all of it, those that leave do so
// in order, and every record is trained once.
func TestGrowsAndShrinksWithoutStopping(t *testing.T) {
	brokers(t, func(t *testing.T, kafka *kafkatest.Cluster) { growsAndShrinks(t, kafka, nil, toThree) })
}

// growsAndShrinks runs the job from its start to its end, at a site (nil: this machine).
func growsAndShrinks(t *testing.T, kafka *kafkatest.Cluster, at *site, h hump) {
	library(t)
	r := newRig(t, kafka, options{
		model: job.ModelDeepFM, policy: job.PolicyKale, min: 1, max: h.most, step: h.step, season: h.season, start: job.StartLatest, site: at,
	})
	p := r.days(h.curve(), 2)
	r.run()
	r.awaitSteady("one worker trains at night", 1)
	night := time.Now()
	first := r.process(backend.RoleWorker, 0)
	var w watch
	r.await("more train at noon", func() string { return w.look(r, func(n int) bool { return n == h.most }) })
	r.await("and one at night again", func() string { return w.look(r, func(n int) bool { return n == 1 }) })
	if now := r.process(backend.RoleWorker, 0); now.PID != first.PID || now.ID != first.ID || now.Restarts > 0 {
		r.fatalf("the first worker was %+v and is %+v", first, now)
	}
	r.endTraffic(p)
	r.awaitTrained("everything is trained")
	r.awaitLagZero()
	w.leftInOrder(r)
	r.stop()
	r.gone()
	r.rescaled(h, night)
	r.produced(nil)
	r.exact(int64(h.season.Seconds() * batchSize / h.step.Seconds() / 4))
}

// watch follows a job's members.
type watch struct {
	most int
	last *rpc.JobStatus
}

// look says why the number of workers is not yet as wanted. The job must never be without a worker that reads.
func (w *watch) look(r *rig, wanted func(ready int) bool) string {
	r.t.Helper()
	st, err := r.chief()
	if err != nil {
		return err.Error()
	}
	w.last = st
	ready, moving := 0, 0
	for _, m := range st.GetMembers() {
		switch m.GetState() {
		case rpc.MemberState_MEMBER_STATE_READY:
			ready++
		case rpc.MemberState_MEMBER_STATE_JOINING, rpc.MemberState_MEMBER_STATE_DRAINING:
			moving++
		case rpc.MemberState_MEMBER_STATE_EXPELLED:
			r.fatalf("%s was expelled", m.GetMember())
		}
	}
	if ready == 0 {
		r.fatalf("the job is without a worker that is ready: %v", st.GetMembers())
	}
	w.most = max(w.most, ready)
	if moving > 0 || !wanted(ready) {
		return fmt.Sprintf("%d are ready, %d join or drain", ready, moving)
	}
	return ""
}

// leftInOrder checks that every worker that left was ready first and drained later, that all joined before the first one left, and that every partition
// has a reader in the end.
func (w *watch) leftInOrder(r *rig) {
	r.t.Helper()
	st := w.last // as it was when the night had come
	var lastReady, firstDrained int64
	drained := 0
	for _, m := range st.GetMembers() {
		lastReady = max(lastReady, m.GetReadyUnixMs())
		if m.GetState() != rpc.MemberState_MEMBER_STATE_DRAINED {
			continue
		}
		drained++
		if m.GetReadyUnixMs() == 0 || m.GetFirstTrainedUnixMs() == 0 {
			r.t.Errorf("%s left without having trained", m.GetMember())
		}
		if at := m.GetDrainedUnixMs(); firstDrained == 0 || at < firstDrained {
			firstDrained = at
		}
	}
	if drained != w.most-1 {
		r.fatalf("%d workers are drained; there were %d and there is 1", drained, w.most)
	}
	if firstDrained < lastReady {
		r.t.Errorf("a worker had drained at %d, before the last one joined at %d", firstDrained, lastReady)
	}
	for _, p := range st.GetPartitions() {
		if p.GetHolder() == "" {
			r.t.Errorf("partition %d has no reader", p.GetPartition())
		}
	}
}

// rescaled checks the scheduler's own record: it grew to h.most and then shrank, by decisions on the load, each rescale came to its end in order and its gap
// was measured; and of several that grew one did so ahead of the load, by the broker's log, which is what a forecast is for. On a busy machine the job may have begun at noon, and shrunk before night.
func (r *rig) rescaled(h hump, night time.Time) {
	r.t.Helper()
	_, pinned, err := audit.Frozen(r.stores())
	if err != nil {
		r.fatalf("%v", err)
	}
	entries, err := audit.ReadEntries(r.t.Context(), r.kafka.Client(), r.topic, pinned.Starts)
	if err != nil {
		r.fatalf("%v", err)
	}
	grew, shrank, ahead, most := 0, 0, 0, 0
	var gap time.Duration
	for _, s := range records[core.Rescale](r, state.Rescales) {
		needed, before := demo.Ahead(s, entries, r.job.Forecast.Horizon)
		r.t.Logf("%s %d → %d, decided %s, done after %v, gap %v (known: %v), aborted %v, needed %v, ahead %v: %s", s.Kind, s.From, s.To, s.Decided.Format(time.TimeOnly),
			s.Done.Sub(s.Decided).Round(time.Millisecond), s.Gap, s.GapKnown, s.Aborted, needed, before, s.Reason)
		if s.Done.Before(s.Decided) {
			r.t.Errorf("a rescale was done at %v, before its decision at %v", s.Done, s.Decided)
		}
		if s.Aborted || s.From == 0 || s.Kind == plan.KindIn && grew == 0 && s.Decided.Before(night) {
			continue
		}
		if !s.GapKnown {
			r.t.Errorf("the gap of %d → %d is not known, though the chief was there all the time", s.From, s.To)
		}
		gap, most = max(gap, s.Gap), max(most, s.To)
		switch s.Kind {
		case plan.KindOut:
			grew++
			if before {
				ahead++
			}
			if s.FirstTrained.Before(s.Decided) || s.Done.Before(s.FirstTrained) {
				r.t.Errorf("a scale-out was decided at %v, its first worker trained at %v, and it was done at %v", s.Decided, s.FirstTrained, s.Done)
			}
		case plan.KindIn:
			shrank++
			if grew == 0 {
				r.t.Error("it shrank before it grew")
			}
		}
	}
	r.t.Logf("%d scale-outs, %d of them ahead of the load, to %d workers; %d scale-ins; the longest gap of a rescale was %v", grew, ahead, most, shrank, gap)
	if grew == 0 || shrank == 0 || most != h.most {
		r.t.Errorf("%d scale-outs to %d workers at the most, and %d scale-ins came to their end; want some of each, and %d workers", grew, most, shrank, h.most)
	}
	if grew > 1 && ahead == 0 { // a single one may come too late on a busy machine
		r.t.Errorf("none of %d scale-outs trained before its load came", grew)
	}
}

// The paper's way to rescale: everybody leaves, then the new number starts. Nothing is lost or repeated by it either.
func TestRestartModeRescales(t *testing.T) {
	t.Parallel()
	r := newRig(t, kafkatest.Embedded(t), options{mode: job.ModeRestart, min: 1, max: 3})
	r.run()
	p := r.steadyTraffic(800)
	r.awaitSteady("three workers train", 3)
	for _, to := range []int{1, 2} {
		before := r.pids()
		r.scale(to)
		r.await(fmt.Sprintf("all are replaced, by %d", to), func() string { return r.replaced(before, to) })
		r.awaitSteady("the new ones train", to)
	}
	r.endTraffic(p)
	r.awaitTrained("everything is trained")
	r.stop()
	r.gone()
	for _, s := range records[core.Rescale](r, state.Rescales) {
		t.Logf("%s %d → %d after %v, gap %v (known: %v)", s.Kind, s.From, s.To, s.Done.Sub(s.Decided), s.Gap, s.GapKnown)
	}
	r.produced(nil)
	r.exact(1000)
}

// replaced says why not all workers of before have gone and n others are there. Of both there must never be any at a time.
func (r *rig) replaced(before map[string]int, n int) string {
	r.t.Helper()
	older, newer := 0, 0
	for _, st := range r.list() {
		switch _, old := before[st.ID.String()]; {
		case st.ID.Role != backend.RoleWorker || !st.State.Live():
		case old:
			older++
		default:
			newer++
		}
	}
	if older > 0 && newer > 0 {
		r.fatalf("in restart mode %d old workers and %d new ones run at the same time", older, newer)
	}
	if older > 0 || newer != n {
		return fmt.Sprintf("%d old ones and %d new ones run", older, newer)
	}
	return ""
}

// mode = "observe" decides and records, and touches nothing: neither where nothing runs, nor where a job does.
func TestObserveTouchesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, kafkatest.Embedded(t), options{mode: job.ModeObserve, min: 3, max: 3})
	r.run()
	r.awaitDecisions("it would start three workers", 3)
	if list := r.list(); len(list) > 0 {
		r.fatalf("it has started %v", list)
	}
	if _, err := os.Stat(r.job.Checkpoint.Dir); !errors.Is(err, fs.ErrNotExist) {
		r.fatalf("there is a checkpoint folder: %v", err)
	}
	r.interrupt()
	r.gone()

	r.write(options{min: 1, max: 1})
	r.run()
	p := r.steadyTraffic(400)
	r.awaitSteady("a job of one worker trains", 1)
	r.interrupt()
	before := r.pids()
	r.write(options{mode: job.ModeObserve, min: 3, max: 3})
	r.run()
	r.awaitDecisions("it would have three", 3)
	r.awaitSteady("the one worker trains on", 1)
	r.sameProcesses("observation", before)
	if n := len(r.addresses); n != 3 {
		r.fatalf("two servers and one worker have listened on %d addresses", n)
	}
	r.finish(p, nil, 400)
}

// awaitDecisions waits until the scheduler has decided several times, in vain, to have n workers.
func (r *rig) awaitDecisions(what string, n int) {
	r.t.Helper()
	decisions := map[time.Time]bool{}
	r.await(what, func() string {
		v, err := r.view()
		if err != nil {
			return err.Error()
		}
		d := v.Decision
		if d == nil || !d.ObserveOnly || d.Decision.Target != n {
			return fmt.Sprintf("its decision is %+v", d)
		}
		if decisions[d.Decision.At] = true; len(decisions) < 4 {
			return fmt.Sprintf("it has decided so %d times", len(decisions))
		}
		return ""
	})
}
