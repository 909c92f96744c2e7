package e2e_test

import (
	"fmt"
	"maps"
	"syscall"
	"testing"
	"time"

	"github.com/kale-sched/kale/cmd/kale/audit"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/stream/kafkatest"
)

// brokers runs a test on the embedded broker and on real Kafka.
func brokers(t *testing.T, test func(t *testing.T, kafka *kafkatest.Cluster)) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		test(t, kafkatest.Embedded(t))
	})
	t.Run("kafka", func(t *testing.T) {
		t.Parallel()
		test(t, kafkatest.Start(t, kafkatest.Options{}))
	})
}

// Every kind of process is killed with SIGKILL once while training goes on, and one worker sleeps through its lease. No record is lost, none is trained
// twice.
func TestExactlyOnceThroughKills(t *testing.T) {
	brokers(t, func(t *testing.T, kafka *kafkatest.Cluster) {
		r := newRig(t, kafka, options{min: 3, max: 3})
		throughKills(t, r)
		if v := r.verdict(); v != audit.Exact {
			t.Errorf("kale audit finds it %s", v)
		}
	})
	t.Run("deepfm", func(t *testing.T) {
		t.Parallel()
		library(t)
		throughKills(t, newRig(t, kafkatest.Embedded(t), options{model: job.ModelDeepFM, min: 3, max: 3}))
	})
}

const (
	killWorkers = 3
	killRate    = 800 // records/s
)

// throughKills runs the job from its start to its end, with every fault on the way.
func throughKills(t *testing.T, r *rig) {
	r.run()
	p := r.steadyTraffic(killRate)
	r.steadyFor("the job trains")

	r.kill9(backend.RoleWorker, 1)
	r.steadyFor("it trains after a worker was killed")

	r.snapshot()
	r.awaitMore(killRate)
	r.kill9(backend.RoleServer, 1)
	r.steadyFor("it trains after server 1 was killed")

	before := r.chiefIncarnation()
	r.kill9(backend.RoleServer, 0)
	r.await("another chief serves", func() string {
		if now := r.chiefIncarnation(); now <= before {
			return fmt.Sprintf("its incarnation is %d, before it was %d", now, before)
		}
		return ""
	})
	r.steadyFor("it trains after server 0 with the chief was killed")

	r.withoutScheduler()
	r.pluginDies()
	r.brokerDies()
	r.sleeper(2)

	r.endTraffic(p)
	r.awaitTrained("everything is trained")
	r.awaitLagZero()
	r.stop()
	r.gone()
	r.produced(nil)
}

// steadyFor waits until the job trains in order and has trained a second's worth of records more: each fault finds it in the middle of its work.
func (r *rig) steadyFor(what string) {
	r.t.Helper()
	r.awaitSteady(what, killWorkers)
	r.awaitMore(killRate)
}

// awaitMore waits until n records more are trained than now.
func (r *rig) awaitMore(more uint64) {
	r.t.Helper()
	var from uint64
	r.await("and has trained on", func() string {
		st, err := r.chief()
		switch {
		case err != nil:
			return err.Error()
		case from == 0:
			from = st.GetTrainedRecords()
		}
		if n := st.GetTrainedRecords() - from; n < more {
			return fmt.Sprintf("it has trained %d records", n)
		}
		return ""
	})
}

// kill9 kills a workload's process and waits for the next one.
func (r *rig) kill9(role string, rank int) {
	r.t.Helper()
	st := r.process(role, rank)
	r.signal(st.PID, syscall.SIGKILL)
	r.await(fmt.Sprintf("%s (process %d) runs again after kill -9", st.ID, st.PID), func() string {
		if now := r.process(role, rank); now.PID == 0 || now.PID == st.PID {
			return fmt.Sprintf("it is %s, pid %d: %s", now.State, now.PID, now.Reason)
		}
		return ""
	})
}

// chiefIncarnation is that of the chief which answers, 0 when none does.
func (r *rig) chiefIncarnation() uint64 {
	st, err := r.chief()
	if err != nil {
		return 0
	}
	return st.GetChief()
}

// withoutScheduler kills the scheduler and its plugin's parent with it, sees training go on, and starts it again: it finds the same processes.
func (r *rig) withoutScheduler() {
	r.t.Helper()
	before := r.pids()
	r.killScheduler()
	r.awaitTrained("training goes on without a scheduler")
	r.awaitTrained("and on")
	r.run()
	r.await("the new scheduler has found the job", func() string {
		v, err := r.view()
		switch {
		case err != nil:
			return err.Error()
		case v.Sample.Running == nil || *v.Sample.Running != killWorkers || v.Sample.Unknown != "":
			return fmt.Sprintf("it sees %s workers run; unknown: %q", known(v.Sample.Running), v.Sample.Unknown)
		}
		return ""
	})
	r.sameProcesses("a restart of the scheduler", before)
	r.steadyFor("it trains after the scheduler was killed")
}

// pluginDies kills the backend's plugin: the scheduler starts another one, and nothing else happens.
func (r *rig) pluginDies() {
	r.t.Helper()
	before := r.pids()
	dead := r.plugin()
	r.signal(dead, syscall.SIGKILL)
	r.await("the scheduler has started its plugin again, and listens to it", func() string {
		v, err := r.view()
		switch now := r.plugin(); {
		case now == 0 || now == dead:
			return fmt.Sprintf("its process is %d", now)
		case err != nil:
			return err.Error()
		case v.Sample.Unknown != "" || len(v.Workers) != killWorkers:
			return fmt.Sprintf("the scheduler sees %d workers; unknown: %q", len(v.Workers), v.Sample.Unknown)
		}
		return ""
	})
	r.sameProcesses("the plugin's death", before)
	r.steadyFor("it trains after the plugin was killed")
}

func (r *rig) sameProcesses(what string, before map[string]int) {
	r.t.Helper()
	if now := r.pids(); !maps.Equal(before, now) {
		r.fatalf("through %s the processes changed from %v to %v", what, before, now)
	}
}

// brokerDies kills the broker and starts it again with its data.
func (r *rig) brokerDies() {
	r.t.Helper()
	before := r.pids()
	r.kafka.Kill9()
	r.await("the scheduler notices that the broker is away", func() string {
		if v, err := r.view(); err != nil || v.Sample.Unknown == "" {
			return fmt.Sprintf("it does not (%v)", err)
		}
		return ""
	})
	r.kafka.Restart()
	r.steadyFor("it trains after the broker was killed")
	r.sameProcesses("the broker's death", before)
}

// sleeper stops a worker until the chief has given its partitions to others, and lets it go on: what it had under way must not count twice.
func (r *rig) sleeper(rank int) {
	r.t.Helper()
	st := r.process(backend.RoleWorker, rank)
	r.signal(st.PID, syscall.SIGSTOP)
	r.await("the chief expels the worker that sleeps", func() string {
		if got := r.memberState(rank); got != rpc.MemberState_MEMBER_STATE_EXPELLED {
			return "it is " + got.String()
		}
		return ""
	})
	r.awaitTrained("the others train what it had")
	if belongs(st.PID, r.dir) {
		_ = syscall.Kill(st.PID, syscall.SIGCONT) // on a busy machine it may have slept for so long that it is replaced
	}
	r.steadyFor("it trains after a worker has slept past its lease")
}

func (r *rig) memberState(rank int) rpc.MemberState {
	st, err := r.chief()
	if err != nil {
		return rpc.MemberState_MEMBER_STATE_UNSPECIFIED
	}
	for _, m := range st.GetMembers() {
		if int(m.GetRank()) == rank {
			return m.GetState()
		}
	}
	return rpc.MemberState_MEMBER_STATE_UNSPECIFIED
}

// awaitLagZero waits until the scheduler itself says that nothing is waiting to be trained.
func (r *rig) awaitLagZero() {
	r.t.Helper()
	r.await("the scheduler sees a lag of zero", func() string {
		v, err := r.view()
		switch {
		case err != nil:
			return err.Error()
		case v.Sample.Lag == nil:
			return "it does not know the lag"
		case v.Sample.LagRecords != nil && *v.Sample.LagRecords > 0:
			return fmt.Sprintf("it sees %d records", *v.Sample.LagRecords)
		}
		return ""
	})
}

// The proof can fail: with parameter servers that apply duplicates the same job, through the same kills, has trained records twice, and the comparison
// says so. It snapshots only when it is told to, so that a server that is killed has certainly forgotten what it acknowledged.
func TestWithoutDeduplicationTheCheckFails(t *testing.T) {
	t.Parallel()
	r := newRig(t, kafkatest.Embedded(t), options{min: killWorkers, max: killWorkers, bare: true, every: time.Hour})
	throughKills(t, r)
	c := r.audit()
	t.Logf("audit: %+v", c)
	if v := r.verdict(); v != audit.NotExact {
		t.Errorf("kale audit finds it %s", v)
	}
	if c.Repeated == 0 || c.Exact() {
		t.Fatalf("without deduplication the check finds %d repeated records; it cannot fail", c.Repeated)
	}
	if n := r.repeatedCounters(); n == 0 {
		t.Fatal("without deduplication the counting model has counted no record twice")
	}
}
