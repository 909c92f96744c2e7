package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/core/stream/kafkatest"
)

// soakEnv makes TestRandomFaults go on for longer, such as 30m: for hunting.
const soakEnv = "KALE_E2E_SOAK"

// chaosWorkers is the most workers of TestRandomFaults: more than the topic's six partitions, so that two have none and live on what others hand them.
const chaosWorkers = 8

// Faults strike at random, several at a time and without waiting for anything to settle, while the number of workers changes: kills, processes that sleep
// for a moment or past their lease, orders. Most records go to one partition, whose reader cannot train them all and hands them to others. When that is over, every record has been trained once.
func TestRandomFaults(t *testing.T) { brokers(t, randomFaults) }

func randomFaults(t *testing.T, kafka *kafkatest.Cluster) {
	length := 15 * time.Second
	if v := os.Getenv(soakEnv); v != "" {
		var err error
		if length, err = time.ParseDuration(v); err != nil {
			t.Fatalf("%s: %v", soakEnv, err)
		}
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := newRig(t, kafka, options{min: 2, max: chaosWorkers, step: 100 * time.Millisecond, every: time.Second})
	c := &chaos{r: r, rng: rand.New(rand.NewPCG(seed, 0)), began: time.Now()}
	r.run()
	p := r.play(stream.ProduceOptions{
		Curve: stream.Curve{Step: time.Second, Rates: []float64{1000}}, Duration: time.Hour, Skew: 0.7, HotPartitions: 1,
	})
	r.awaitSteady("the job trains", chaosWorkers)
	for end := time.Now().Add(length); time.Now().Before(end); {
		c.strike()
		c.sleepers.wake(time.Now(), false)
		c.pause()
	}
	c.sleepers.wake(time.Now(), true)
	r.scale(chaosWorkers)
	r.awaitSteady("all workers are there and train", chaosWorkers)
	if st, err := r.chief(); err != nil || st.GetTotals().GetForwardedRecords() == 0 {
		r.fatalf("no record was forwarded between workers (%v)", err)
	}
	r.endTraffic(p)
	r.awaitTrained("everything is trained")
	r.stop()
	r.gone()
	r.produced(nil)
	r.exact(int64(length.Seconds()) * 400)
}

// chaos draws faults.
type chaos struct {
	r        *rig
	rng      *rand.Rand
	began    time.Time
	sleepers sleepers
}

// sleepers are processes that are stopped, by when they are to go on.
type sleepers map[int]time.Time

// wake lets those go on whose time has come, or all.
func (s sleepers) wake(now time.Time, all bool) {
	for pid, at := range s {
		if all || now.After(at) {
			_ = syscall.Kill(pid, syscall.SIGCONT) // it may have been killed meanwhile
			delete(s, pid)
		}
	}
}

func (c *chaos) logf(format string, args ...any) {
	c.r.t.Helper()
	c.r.t.Logf("%6.2fs  %s", time.Since(c.began).Seconds(), fmt.Sprintf(format, args...))
}

// pause lets the job run for up to 1.2 s: what lies between two faults is chance, and proves nothing.
func (c *chaos) pause() { time.Sleep(time.Duration(c.rng.IntN(1200)) * time.Millisecond) }

func (c *chaos) strike() {
	r := c.r
	switch n := c.rng.IntN(20); {
	case n < 5:
		c.kill(backend.RoleWorker, c.rng.IntN(chaosWorkers))
	case n < 8:
		c.kill(backend.RoleServer, c.rng.IntN(2))
	case n < 11:
		c.sleep(backend.RoleWorker, c.rng.IntN(chaosWorkers))
	case n < 13:
		c.sleep(backend.RoleServer, c.rng.IntN(2))
	case n < 14:
		c.logf("kill the scheduler")
		r.killScheduler()
		c.pause()
		r.run()
	case n < 15:
		if pid := r.plugin(); pid > 0 {
			c.logf("kill the plugin")
			r.signal(pid, syscall.SIGKILL)
		}
	case n < 16:
		c.logf("kill the broker")
		r.kafka.Kill9()
		c.pause()
		r.kafka.Restart()
	case n < 17:
		c.logf("stop the broker")
		r.kafka.Suspend()
		c.pause()
		r.kafka.Resume()
	default:
		n := 2 + c.rng.IntN(chaosWorkers-1)
		c.logf("scale to %d", n)
		r.scale(n)
	}
}

// target finds a workload's process, 0 when it has none just now.
func (c *chaos) find(role string, rank int) int {
	st := c.r.process(role, rank)
	if st.PID > 0 && belongs(st.PID, c.r.dir) {
		return st.PID
	}
	return 0
}

func (c *chaos) kill(role string, rank int) {
	if pid := c.find(role, rank); pid > 0 {
		c.logf("kill %s %d (%d)", role, rank, pid)
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		delete(c.sleepers, pid)
	}
}

// sleep stops a process, for a moment or for longer than its lease.
func (c *chaos) sleep(role string, rank int) {
	pid := c.find(role, rank)
	if pid == 0 {
		return
	}
	d := time.Duration(c.rng.IntN(1500)) * time.Millisecond
	if c.rng.IntN(3) == 0 {
		d += 5 * time.Second
	}
	c.logf("stop %s %d (%d) for %v", role, rank, pid, d)
	if syscall.Kill(pid, syscall.SIGSTOP) == nil {
		if c.sleepers == nil {
			c.sleepers = sleepers{}
		}
		c.sleepers[pid] = time.Now().Add(d)
	}
}
