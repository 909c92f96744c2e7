package estimator

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// each1000 is a prior of 1,000 samples/s for each worker.
var each1000 = Model{Form: FormAsync, Theta: []float64{0.001, 0, 0}}

// quarters feeds saturated intervals of 15 s each, with normal noise.
type quarters struct {
	*minutes
	noise float64
}

func newQuarters(t *testing.T, seed uint64) quarters {
	o := newOnline(t, each1000, OnlineOptions{PriorMax: 28, PriorServers: func(int) int { return 1 }})
	return quarters{newMinutes(t, o, seed), 0.03}
}

func (q quarters) feed(n, w int, level float64) {
	q.t.Helper()
	for range n {
		q.at = q.at.Add(15 * time.Second)
		observe(q.t, q.o, q.at, w, 1, 1000*float64(w)*level*(1+q.noise*q.rng.NormFloat64()))
	}
}

// slide lets capacity go from 1 to a level in so many intervals, 20 in turn at 8 and 6, and then stay.
func (q quarters) slide(intervals int, to float64) {
	for i := range intervals {
		q.feed(1, []int{8, 6}[i/20%2], 1+(to-1)*float64(i)/float64(intervals))
	}
	q.feed(40, 8, to)
	q.feed(40, 6, to)
}

// A capacity that falls slowly, or by a few percent, falls at the counts that were not measured since too, or the model says that it is unsure of them.
func TestSlowAndSmallFallsHoldElsewhere(t *testing.T) {
	var table strings.Builder
	for _, c := range []struct {
		name  string
		level float64
		to    func(q quarters)
		most  float64 // F is off by at most where it was measured, on average over the seeds
	}{
		{"to 0.6 in 40 min", 0.6, func(q quarters) { q.slide(160, 0.6) }, 0.04},
		{"to 0.6 in 4 h", 0.6, func(q quarters) { q.slide(960, 0.6) }, 0.04},
		{"to 0.6 in 24 h", 0.6, func(q quarters) { q.slide(5760, 0.6) }, 0.04},
		{"to 0.8 in 40 min", 0.8, func(q quarters) { q.slide(160, 0.8) }, 0.04},
		{"to 0.8 in 4 h", 0.8, func(q quarters) { q.slide(960, 0.8) }, 0.04},
		{"to 0.8 in 24 h", 0.8, func(q quarters) { q.slide(5760, 0.8) }, 0.04},
		{"to 0.6 in 4 h, quiet", 0.6, func(q quarters) { q.slide(960, 0.6) }, 0.02},
		{"at 6 to 0.9", 0.9, func(q quarters) { q.feed(40, 6, 0.9) }, 0.03},
		{"at 6 to 0.95", 0.95, func(q quarters) { q.feed(40, 6, 0.95) }, 0.03},
	} {
		const seeds = 5
		counts := []int{2, 4, 6, 8, 16, 28}
		off, claimed, smallest := make([]float64, len(counts)), make([]float64, len(counts)), ""
		within := 0
		for seed := range uint64(seeds) {
			q := newQuarters(t, seed)
			if strings.HasSuffix(c.name, "quiet") {
				q.noise = 0.005
			}
			for _, w := range []int{2, 4, 8, 6} {
				q.feed(20, w, 1)
			}
			c.to(q)
			m, sure := q.o.Model(), q.o.Confidence()
			for i, w := range counts {
				x, e := m.Throughput(w, 1)/(1000*float64(w)*c.level)-1, sure.Error(w, 1)
				off[i], claimed[i] = off[i]+x/seeds, claimed[i]+e/seeds
				if math.Abs(x) <= 2*e+0.005 {
					within++
				}
			}
			for _, load := range []float64{5.88, 9.8} {
				s, saturated := m.Smallest(1000*load*c.level, 1, 28, func(int) int { return 1 })
				smallest += fmt.Sprintf(" %d", s)
				if want := int(load) + 1; saturated || s < want-1 || s > want+1 {
					t.Errorf("%s, seed %d: for %.0f samples/s %d workers, saturated %v; want %d, one more or less", c.name, seed, 1000*load*c.level, s, saturated, want)
				}
			}
		}
		fmt.Fprintf(&table, "%-20s", c.name)
		for i, w := range counts {
			fmt.Fprintf(&table, " F(%d) %+5.1f±%-4.1f", w, 100*off[i], 100*claimed[i])
			most := c.most
			if w > 8 { // nothing was ever measured there
				most = 0.12
			}
			if math.Abs(off[i]) > most {
				t.Errorf("%s: F(%d) is %+.1f %% off, said to be %.1f %%", c.name, w, 100*off[i], 100*claimed[i])
			}
		}
		share := float64(within) / float64(seeds*len(counts))
		if share < 0.75 { // without anchors 35 to 70 %
			t.Errorf("%s: within two standard errors in %.0f %%", c.name, 100*share)
		}
		fmt.Fprintf(&table, " within 2 s.e. %.0f %%, smallest%s\n", 100*share, smallest)
	}
	t.Log("\n" + table.String())
}

// A count that alone is slow, since its last worker sits on a second node, say, is not what others are: where it was so from the start, nothing changes;
// where it becomes so, that is no change once the others were measured again, however often both are in turn.
func TestOneSlowCountDragsNoOthers(t *testing.T) {
	for _, c := range []struct {
		slow float64
		from int // the visit, of 16 to 9 and 8 in turn, from which 9 is slow
		most int // changes in a run: the fall, and that it is gone at 8
	}{{0.95, 0, 0}, {0.92, 0, 0}, {0.95, 4, 2}, {0.93, 4, 2}, {0.92, 4, 2}} {
		for seed := range uint64(10) {
			q := newQuarters(t, seed)
			for _, w := range []int{2, 4, 6, 12, 8} {
				q.feed(20, w, 1)
			}
			changes, last := 0, Change{}
			for visit := range 16 {
				w, level := []int{9, 8}[visit%2], 1.0
				if w == 9 && visit >= c.from {
					level = c.slow
				}
				q.feed(20, w, level)
				if ch := q.o.LastChange(); ch != nil && *ch != last {
					changes, last = changes+1, *ch
				}
			}
			if changes > c.most {
				t.Errorf("9 at %v from visit %d, seed %d: %d changes; want %d at most", c.slow, c.from, seed, changes, c.most)
			}
			for _, w := range []int{2, 4, 6, 8, 12} { // the form bends a little to 9, as it did without anchors
				near(t, fmt.Sprintf("9 at %v from visit %d, seed %d: F(%d)", c.slow, c.from, seed, w), q.o.Model().Throughput(w, 1), 1000*float64(w), 55*float64(w))
			}
		}
	}
}

// A restart at any time of a drift changes nothing, and a state of a program that knew of no anchors is taken up and follows the rest of it.
func TestRestartInADrift(t *testing.T) {
	opt := OnlineOptions{PriorMax: 28, PriorServers: func(int) int { return 1 }}
	q := newQuarters(t, 3)
	for _, w := range []int{2, 4, 8, 6} {
		q.feed(20, w, 1)
	}
	older := q.o.State()
	for i := range older.Points {
		if older.Points[i].Anchor == (Anchor{}) {
			t.Errorf("no anchor at %d workers", older.Points[i].Workers)
		}
		older.Points[i].Anchor = Anchor{}
	}
	b, err := json.Marshal(older)
	if err != nil || strings.Contains(string(b), "anchor") {
		t.Fatalf("a state without anchors is %s, error %v", b, err)
	}
	var read OnlineState
	if err := json.Unmarshal(b, &read); err != nil {
		t.Fatal(err)
	}
	old, err := RestoreOnline(each1000, opt, read)
	if err != nil {
		t.Fatal(err)
	}
	again, changes, last := q.o, 0, Change{}
	for i := range 640 {
		again = restarted(t, again, each1000, opt)
		q.at = q.at.Add(15 * time.Second)
		w, level := []int{8, 6}[i/20%2], 1-0.4*min(float64(i)/480, 1)
		rate := 1000 * float64(w) * level * (1 + 0.03*q.rng.NormFloat64())
		for _, o := range []*Online{q.o, again, old} {
			observe(t, o, q.at, w, 1, rate)
		}
		if d := cmp.Diff(q.o.State(), again.State()); d != "" {
			t.Fatalf("interval %d: state of one that is restarted before each (-not +restarted):\n%s", i, d)
		}
		if !q.o.Model().Equal(again.Model()) {
			t.Fatalf("interval %d: models %v and %v", i, q.o.Model(), again.Model())
		}
		if ch := q.o.LastChange(); ch != nil && *ch != last {
			changes, last = changes+1, *ch
		}
	}
	if changes < 3 {
		t.Errorf("%d changes; nothing was restarted between", changes)
	}
	for _, w := range []int{2, 4, 6, 8} {
		near(t, fmt.Sprintf("F(%d)", w), q.o.Model().Throughput(w, 1), 600*float64(w), 50*float64(w))
		near(t, fmt.Sprintf("F(%d), from a state without anchors", w), old.Model().Throughput(w, 1), 600*float64(w), 50*float64(w))
	}
	for _, a := range []Anchor{{Rate: -1, Own: 1}, {Rate: 1}, {Rate: math.Inf(1), Own: 1}, {Rate: 1, Own: math.NaN()}} {
		s := OnlineState{Version: 1, Points: []OnlinePoint{{Workers: 2, Rates: []float64{1}, Anchor: a}}}
		if _, err := RestoreOnline(each1000, opt, s); err == nil {
			t.Errorf("%+v was taken up", a)
		}
	}
}

// Stalls, bursts and noise that lasts are no slow change.
func TestLastingNoiseIsNoSlowChange(t *testing.T) {
	for _, c := range []struct {
		name       string
		noise, rho float64
		odd        func(rng *rand.Rand) float64 // what one of ten is times what it would be
		most       int
	}{
		{"10 % stall", 0.03, 0, func(rng *rand.Rand) float64 { return 0.2 + 0.7*rng.Float64() }, 1},
		{"10 % are outliers", 0.03, 0, func(rng *rand.Rand) float64 { return 0.3 + 1.7*rng.Float64() }, 1},
		{"noise", 0.03, 0, nil, 1},
		{"noise of 10 %", 0.1, 0, nil, 1},
		{"lasting noise of 10 %", 0.1, 0.8, nil, 95}, // 82 without anchors; F is as near with them
	} {
		changes := 0
		for seed := range uint64(40) {
			q := newQuarters(t, seed)
			x, last := 0.0, Change{}
			for i := range 400 {
				x = c.rho*x + math.Sqrt(1-c.rho*c.rho)*q.rng.NormFloat64()
				w := []int{6, 8, 4}[i/20%3]
				rate := 1000 * float64(w) * max(1+c.noise*x, 0.1)
				if c.odd != nil && q.rng.IntN(10) == 0 {
					rate *= c.odd(q.rng)
				}
				q.at = q.at.Add(15 * time.Second)
				observe(t, q.o, q.at, w, 1, rate)
				if ch := q.o.LastChange(); ch != nil && *ch != last {
					changes, last = changes+1, *ch
				}
			}
		}
		if t.Logf("%s: %d changes in 16,000 intervals", c.name, changes); changes > c.most {
			t.Errorf("%s: %d changes in 16,000 intervals; want %d at most", c.name, changes, c.most)
		}
	}
}
