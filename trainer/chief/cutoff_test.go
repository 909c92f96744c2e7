package chief

import (
	"strings"
	"testing"
	"time"
)

// A worker that no broker answers loses its partitions to one that can read, after a bound, gets none while that lasts, and some again afterwards. When the
// brokers answer nobody, nothing is moved.
func TestCutOffWorkerGivesItsPartitionsBack(t *testing.T) {
	m := newTestMachine(2, 1)
	at := func(tenths int) time.Time { return t0.Add(time.Duration(tenths) * 100 * time.Millisecond) }
	report(t, m, at(0), 0, 1, nil)
	w0, w1 := join(t, m, at(0), 0), join(t, m, at(0), 1)
	now := 0
	beats := func(kafka bool) {
		for range 8 {
			now++
			if kafka {
				m.setEnds(at(now), map[int32]int64{0: 10, 1: 10})
			}
			w0.beat(m, at(now))
			w1.beat(m, at(now))
		}
	}
	want := func(n0, n1 int, when string) {
		t.Helper()
		if len(w0.leases) != n0 || len(w1.leases) != n1 {
			t.Fatalf("%s: worker 0 holds %d partitions and worker 1 %d, want %d and %d", when, len(w0.leases), len(w1.leases), n0, n1)
		}
	}
	beats(true)
	want(1, 1, "at first")
	w0.silence = m.patience() - time.Millisecond
	beats(true)
	want(1, 1, "within the bound")
	w0.silence, w1.silence, m.kafkaSeen = m.patience(), m.patience(), t0.Add(-time.Hour)
	beats(false) // all have told
	beats(true)
	want(1, 1, "when no worker hears a broker")
	if w0.giveBack || w1.giveBack {
		t.Error("asked to give back what nobody else can read")
	}
	w1.silence, m.kafkaSeen = 0, t0.Add(-time.Hour)
	beats(false)
	want(1, 1, "when the chief hears none either")
	beats(true)
	want(0, 2, "when one worker is cut off")
	if !w0.giveBack || w1.giveBack {
		t.Errorf("asked to give back what is still to be read: worker 0 %v, worker 1 %v; want only worker 0", w0.giveBack, w1.giveBack)
	}
	if p := m.status(at(now)).GetProblems(); len(p) != 1 || !strings.Contains(p[0].GetDetail(), "worker-0: no broker has answered it for 2s") {
		t.Errorf("problems %v", p)
	}
	w0.silence = 0
	beats(true)
	want(1, 1, "when a broker answers again")
}
