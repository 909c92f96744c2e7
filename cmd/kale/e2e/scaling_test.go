package e2e_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/state"
	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/core/stream/kafkatest"
)

// day is a synthetic day of 40 s: a night at 250 records/s, which one worker of 533 records/s trains, and a noon at 1,400, which takes three.
func day() stream.Curve {
	c := stream.Curve{Step: 500 * time.Millisecond}
	for i := range 80 {
		high := 0.0
		switch at := time.Duration(i) * c.Step; {
		case at < 10*time.Second, at >= 28*time.Second:
		case at < 16*time.Second:
			high = (at - 10*time.Second).Seconds() / 6
		case at < 22*time.Second:
			high = 1
		default:
			high = 1 - (at-22*time.Second).Seconds()/6
		}
		c.Rates = append(c.Rates, 250+high*1150)
	}
	return c
}

// days plays history days of past, and then days live until they are ended.
func (r *rig) days(history int) *traffic {
	r.t.Helper()
	c := day()
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
	brokers(t, func(t *testing.T, kafka *kafkatest.Cluster) { growsAndShrinks(t, kafka, nil) })
}

// growsAndShrinks runs the job from its start to its end, at a site (nil: this machine).
func growsAndShrinks(t *testing.T, kafka *kafkatest.Cluster, at *site) {
	library(t)
	r := newRig(t, kafka, options{
		model: job.ModelDeepFM, policy: job.PolicyKale, min: 1, max: 4, step: 120 * time.Millisecond, start: job.StartLatest, site: at,
	})
	p := r.days(2)
	r.run()
	r.awaitSteady("one worker trains at night", 1)
	first := r.process(backend.RoleWorker, 0)
	var w watch
	r.await("more train at noon", func() string { return w.look(r, func(n int) bool { return n >= 2 }) })
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
	r.rescaled()
	r.produced(nil)
	r.exact(3000)
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

// rescaled checks the scheduler's own record: it grew and then shrank, by decisions on the load, and each rescale came to its end in order.
func (r *rig) rescaled() {
	r.t.Helper()
	grew, shrank := 0, 0
	for _, s := range records[core.Rescale](r, state.Rescales) {
		r.t.Logf("%s %d → %d, decided %s, done after %v, gap %v (known: %v), aborted %v: %s", s.Kind, s.From, s.To, s.Decided.Format(time.TimeOnly),
			s.Done.Sub(s.Decided).Round(time.Millisecond), s.Gap, s.GapKnown, s.Aborted, s.Reason)
		if s.Done.Before(s.Decided) {
			r.t.Errorf("a rescale was done at %v, before its decision at %v", s.Done, s.Decided)
		}
		switch {
		case s.Aborted || s.From == 0:
		case s.Kind == plan.KindOut:
			grew++
			if s.FirstTrained.Before(s.Decided) || s.Done.Before(s.FirstTrained) {
				r.t.Errorf("a scale-out was decided at %v, its first worker trained at %v, and it was done at %v", s.Decided, s.FirstTrained, s.Done)
			}
		case s.Kind == plan.KindIn:
			shrank++
			if grew == 0 {
				r.t.Error("it shrank before it grew")
			}
		}
	}
	if grew == 0 || shrank == 0 {
		r.t.Errorf("%d scale-outs and %d scale-ins came to their end", grew, shrank)
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
	r.endTraffic(p)
	r.awaitTrained("everything is trained")
	r.stop()
	r.gone()
	r.produced(nil)
	r.exact(400)
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
