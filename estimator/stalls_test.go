package estimator

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// phase is a stay of n intervals at w workers, at a share of the true capacity.
type phase struct {
	n, w  int
	level float64
	// stalls are the intervals, from 0, whose rates are low times what they would be.
	stalls []int
	low    float64
	// turns tells that capacity changed when it began, at all counts.
	turns bool
}

// course is what a job goes through, seed by seed, and what may come of it.
type course struct {
	name         string
	prior, truth Model
	noise        float64
	first, seeds uint64
	phases       []phase
	// share of all intervals are, by chance, odd times what they would be; odd 0 stands
	// for anything between a fifth and nine tenths.
	share, odd float64

	delay     float64 // at most so many intervals until a true change is noticed, on average
	here, far float64 // at most this error of F in the end: at the last count in any seed, and on average over all
}

// outcome is what came of a course.
type outcome struct {
	intervals, falsely, turns, missed int
	delay, here, far                  float64
}

// told are the counts at which F is compared with the truth.
var told = []int{6, 8, 12, 16, 20, 28}

func (c course) run(t *testing.T) outcome {
	t.Helper()
	var out outcome
	for seed := c.first; seed < c.first+c.seeds; seed++ {
		o := newOnline(t, c.prior, OnlineOptions{PriorMax: 28})
		m := newMinutes(t, o, seed)
		for _, p := range c.phases {
			c.stay(m, p, &out)
		}
		end := c.phases[len(c.phases)-1]
		off := func(w int) float64 {
			return math.Abs(o.Model().Throughput(w, w)/(end.level*c.truth.Throughput(w, w)) - 1)
		}
		out.here = max(out.here, off(end.w))
		for _, w := range told {
			out.far += off(w) / float64(len(told)) / float64(c.seeds)
		}
	}
	out.delay /= max(1, float64(out.turns-out.missed))
	return out
}

// stay goes through a phase and counts the changes that are noticed in it.
func (c course) stay(m *minutes, p phase, out *outcome) {
	seen, was := !p.turns, m.o.LastChange()
	for i := range p.n {
		rate := p.level * c.truth.Throughput(p.w, p.w)
		switch {
		case slices.Contains(p.stalls, i):
			rate *= p.low
		case c.share == 0 || m.rng.Float64() >= c.share:
		case c.odd == 0:
			rate *= 0.2 + 0.7*m.rng.Float64()
		default:
			rate *= c.odd
		}
		m.feed(1, p.w, rate, c.noise)
		out.intervals++
		switch is := m.o.LastChange(); {
		case is == nil || was != nil && *is == *was:
			continue
		case seen:
			out.falsely++
			was = is
		default:
			seen, was, out.delay = true, is, out.delay+float64(i+1)
		}
	}
	if p.turns {
		out.turns++
	}
	if !seen {
		out.missed++
	}
}

// well is a stay at each of the counts, where nothing is wrong.
func well(n int, counts ...int) []phase {
	var out []phase
	for _, w := range counts {
		out = append(out, phase{n: n, w: w, level: 1})
	}
	return out
}

// known is what comes before: three counts that were measured.
func known() []phase { return well(15, 6, 10, 14) }

// stalledAtFirst are courses whose first intervals at a new count stall.
func stalledAtFirst() []course {
	var out []course
	for _, x := range []struct{ low, noise, here float64 }{{0.3, 0.01, 0.01}, {0.6, 0.03, 0.03}, {0.8, 0.03, 0.03}, {0.8, 0.05, 0.05}} {
		for _, stalls := range [][]int{{0, 1}, {0, 2}, {1, 2}, {0, 1, 3}, {0, 1, 2}} {
			out = append(out, course{name: fmt.Sprintf("%v of a new count to %v, noise %v", stalls, x.low, x.noise), prior: asyncA10, truth: asyncA10, noise: x.noise, seeds: 10,
				here: x.here, far: x.noise,
				phases: append(known(), phase{n: 10 + len(stalls), w: 12, level: 1, stalls: stalls, low: x.low})})
		}
		out = append(out, course{name: fmt.Sprintf("[0 1], then 600, to %v, noise %v", x.low, x.noise), prior: asyncA10, truth: asyncA10, noise: x.noise, seeds: 1,
			here: x.here, far: 1.5 * x.noise, phases: append(known(), phase{n: 602, w: 12, level: 1, stalls: []int{0, 1}, low: x.low})})
	}
	for _, low := range []float64{0.85, 0.5} { // what is expected at 28 is less sure
		out = append(out, course{name: fmt.Sprintf("[0 1 2] of a new count far off, to %v", low), prior: asyncA10, truth: asyncA10, noise: 0.02, seeds: 10,
			here: 0.03, far: 0.03, phases: append(well(15, 4), phase{n: 13, w: 28, level: 1, stalls: []int{0, 1, 2}, low: low})})
	}
	out = append(out, course{name: "9 of a new count to 0.6", prior: asyncA10, truth: asyncA10, noise: 0.02, seeds: 10, here: 0.02, far: 0.02,
		phases: append(known(), phase{n: 19, w: 12, level: 1, stalls: []int{0, 1, 2, 3, 4, 5, 6, 7, 8}, low: 0.6})})
	// Whatever was slow at the others was not when 12 was new, and is again: they know of it.
	slow := known()
	for i := range slow {
		slow[i].level = 0.6
	}
	out = append(out, course{name: "slow, well at a new count, slow", prior: asyncA10, truth: asyncA10, noise: 0.02, seeds: 10, here: 0.02, far: 0.02,
		phases: append(slow, phase{n: 15, w: 12, level: 1}, phase{n: 10, w: 12, level: 0.6})})
	return append(out, course{name: "[0 1 2] of a new count to 1.3", prior: asyncA10, truth: asyncA10, noise: 0.02, seeds: 10, here: 0.02, far: 0.02,
		phases: append(known(), phase{n: 13, w: 12, level: 1, stalls: []int{0, 1, 2}, low: 1.3})})
}

// stalledNowAndThen are courses with odd intervals at any time, with a fall and without.
func stalledNowAndThen() []course {
	var roam []phase
	for i := range 20 {
		roam = append(roam, phase{n: 20, w: []int{6, 10, 14, 12, 20, 8, 16}[i*3%7], level: 1})
	}
	out := []course{{name: "nothing odd", phases: roam}}
	for _, odd := range []float64{0.3, 0} {
		out = append(out, course{name: fmt.Sprintf("10 %% stall to %v", odd), share: 0.1, odd: odd, phases: roam})
	}
	for _, odd := range []float64{1.3, 2} {
		out = append(out, course{name: fmt.Sprintf("10 %% burst to %v", odd), share: 0.1, odd: odd, phases: roam})
	}
	for _, odd := range []float64{0.3, 0} {
		out = append(out, course{name: fmt.Sprintf("to 0.7, and 10 %% stall to %v", odd), share: 0.1, odd: odd, delay: 5, phases: append(known(), phase{n: 30, w: 10, level: 0.7, turns: true})})
	}
	for i := range out {
		out[i].prior, out[i].truth, out[i].noise, out[i].here, out[i].far = asyncA10, asyncA10, 0.03, 0.05, 0.02
		if out[i].seeds = 40; out[i].delay == 0 {
			out[i].first, out[i].seeds = 12, 15
		}
	}
	return out
}

// changed are courses in which capacity changes.
func changed() []course {
	var out []course
	add := func(name string, noise, delay float64, phases ...phase) {
		out = append(out, course{name: name, prior: asyncA10, truth: asyncA10, noise: noise, seeds: 40, delay: delay, here: 0.01 + 1.2*noise, far: max(0.015, 0.6*noise), phases: append(known(), phases...)})
	}
	for _, noise := range []float64{0.02, 0.05} {
		for _, to := range []float64{0.7, 1.4} {
			add(fmt.Sprintf("to %v at a known count, noise %v", to, noise), noise, 4, phase{n: 8, w: 10, level: to, turns: true})
			for _, older := range []int{3, 5} {
				add(fmt.Sprintf("to %v after %d at a new count, noise %v", to, older, noise), noise, 4, well(older, 12)[0], phase{n: 8, w: 12, level: to, turns: true})
			}
		}
	}
	slow := phase{n: 8, w: 10, level: 0.5, turns: true}
	add("back at the same count", 0.02, 4, slow, phase{n: 15, w: 10, level: 1, turns: true})
	add("back at another count", 0.02, 3.5, slow, phase{n: 15, w: 14, level: 1, turns: true})
	add("back at a new count", 0.02, 4, slow, phase{n: 15, w: 12, level: 1, turns: true})
	add("back at a new count, slow there at first", 0.02, 4, slow, phase{n: 6, w: 12, level: 0.5}, phase{n: 15, w: 12, level: 1, turns: true})
	// The prior knows of no contention and the truth has some, or the other way round: what is expected at 20 of 4 is off.
	straight, bent, worse := Model{Form: FormAsync, Theta: []float64{0.005, 0, 0}}, Model{Form: FormAsync, Theta: []float64{0.005, 0, 5e-5}}, Model{Form: FormAsync, Theta: []float64{0.005, 0, 1e-4}}
	for _, m := range [][2]Model{{straight, bent}, {bent, straight}, {worse, straight}} {
		for _, to := range []float64{0.7, 1.4} {
			for _, older := range []int{3, 15} {
				off := m[0].Throughput(20, 20)/m[1].Throughput(20, 20)*m[1].Throughput(4, 4)/m[0].Throughput(4, 4) - 1
				out = append(out, course{name: fmt.Sprintf("to %v after %d at 20, expected %+.0f %% off", to, older, 100*off),
					prior: m[0], truth: m[1], noise: 0.02, seeds: 20, delay: 4, here: 0.04, far: 0.06, phases: append(append(well(15, 4), well(older, 20)...), phase{n: 8, w: 20, level: to, turns: true})})
			}
		}
	}
	return out
}

// Stalls and bursts are no change, at a new count or at any time; a true change is noticed all the same, and as early. F is near the truth after either.
func TestStallsAndChanges(t *testing.T) {
	var table strings.Builder
	fmt.Fprintf(&table, "%-48s %9s %6s %6s %7s %6s %7s %6s\n", "", "intervals", "false", "missed", "of", "delay", "here", "far")
	for _, c := range slices.Concat(stalledAtFirst(), stalledNowAndThen(), changed()) {
		o := c.run(t)
		fmt.Fprintf(&table, "%-48s %9d %6d %6d %7d %6.2f %6.1f%% %5.1f%%\n", c.name, o.intervals, o.falsely, o.missed, o.turns, o.delay, 100*o.here, 100*o.far)
		if o.falsely > 0 || o.missed > 0 || o.delay > c.delay || o.here > c.here || o.far > c.far {
			t.Errorf("%s: %+v; want none false nor missed, a delay of at most %v, and F at most %v off here and %v elsewhere", c.name, o, c.delay, c.here, c.far)
		}
	}
	t.Log("\n" + table.String())
}

// What is less than changeLeast is none until most of a window says so (anchor.go), however quiet the intervals are; what is more is one.
func TestLeastChange(t *testing.T) {
	for share, want := range map[float64]bool{0.95: false, 1.06: false, 0.9: true, 1.1: true} {
		o := newOnline(t, asyncA10, OnlineOptions{PriorMax: 28})
		m := newMinutes(t, o, 1)
		for _, w := range []int{4, 8, 12, 16} {
			m.feed(15, w, asyncA10.Throughput(w, w), 0.002)
		}
		m.feed(7, 16, share*asyncA10.Throughput(16, 16), 0.002)
		if c := o.LastChange(); (c != nil) != want {
			t.Errorf("to %v: change %+v", share, c)
		}
	}
}

// However few intervals are kept, and however many of them stall, a change is seen.
func TestChangeInAShortWindow(t *testing.T) {
	o := newOnline(t, asyncA10, OnlineOptions{Window: 7, PriorMax: 28})
	m := newMinutes(t, o, 1)
	for _, w := range []int{4, 8, 12} {
		f := asyncA10.Throughput(w, w)
		for range 4 {
			m.feed(1, w, 0.4*f, 0.02)
			m.feed(2, w, f, 0.02)
		}
	}
	m.feed(4, 12, asyncA10.Throughput(12, 12), 0.02)
	m.feed(6, 12, 0.7*asyncA10.Throughput(12, 12), 0.02)
	if c := o.LastChange(); c == nil || math.Abs(c.After/c.Before-0.7) > 0.05 {
		t.Errorf("to 0.7, seven intervals kept: change %+v", c)
	}
}

// corrupted is the state of one that took two stalls at 12 for the level before, so that capacity seemed to have risen by 3.4 wherever else it was
// measured.
func corrupted(t *testing.T) OnlineState {
	t.Helper()
	o := newOnline(t, asyncA10, OnlineOptions{PriorMax: 28})
	m := newMinutes(t, o, 2)
	for _, w := range []int{6, 10, 14} {
		m.feed(15, w, asyncA10.Throughput(w, w), 0.01)
	}
	m.feed(6, 12, asyncA10.Throughput(12, 12), 0.01)
	s := o.State()
	f := asyncA10.Throughput(12, 12)
	s.Change = &Change{At: m.at, Workers: 12, Before: f / 3.4, After: f}
	for i := range s.Points {
		if s.Points[i].Workers != 12 {
			s.Points[i].Level = 3.4
		}
	}
	return s
}

// A change that was believed is undone where plenty of fresh intervals contradict what follows from it.
func TestEvidenceUndoesAChange(t *testing.T) {
	o, err := RestoreOnline(asyncA10, OnlineOptions{PriorMax: 28}, corrupted(t))
	if err != nil {
		t.Fatal(err)
	}
	f := asyncA10.Throughput(12, 12)
	if off := o.Model().Throughput(12, 12) / f; off < 1.5 {
		t.Fatalf("F(12) is %.2f times the truth; want a model that the change has corrupted", off)
	}
	observe(t, o, t0.Add(time.Hour+7*time.Minute), 12, 12, f)
	for _, w := range told {
		want := asyncA10.Throughput(w, w)
		near(t, fmt.Sprintf("F(%d)", w), o.Model().Throughput(w, w), want, 0.05*want)
	}
	for _, e := range o.Evidence() {
		if e.Adjusted {
			t.Errorf("evidence %+v follows the change still", e)
		}
	}
	if c := o.LastChange(); c != nil {
		t.Errorf("%+v was undone", c)
	}
}

// Where neither the change nor its undoing agrees with what was just measured plenty of times, only points that were measured count.
func TestEvidenceOverMovedPoints(t *testing.T) {
	s := corrupted(t)
	for i := range s.Points {
		if p := &s.Points[i]; p.Level != 0 { // so much slower before the change that they were wrong either way
			for k := range p.Rates {
				p.Rates[k] /= 1.7
			}
		}
	}
	o, err := RestoreOnline(asyncA10, OnlineOptions{PriorMax: 28}, s)
	if err != nil {
		t.Fatal(err)
	}
	f := asyncA10.Throughput(12, 12)
	for i := range 9 {
		observe(t, o, t0.Add(time.Hour+time.Duration(7+i)*time.Minute), 12, 12, f)
	}
	near(t, "F(12)", o.Model().Throughput(12, 12), f, 0.02*f)
}

// A restart between any two intervals changes nothing, with stalls, changes and their undoing.
func TestRestartAmongStalls(t *testing.T) {
	opt := OnlineOptions{PriorMax: 28}
	a, err := RestoreOnline(asyncA10, opt, corrupted(t))
	if err != nil {
		t.Fatal(err)
	}
	m := newMinutes(t, a, 3)
	m.at = t0.Add(2 * time.Hour)
	for i := range 150 {
		b := restarted(t, a, asyncA10, opt)
		w := []int{12, 10, 20, 14, 10, 14}[i/13%6]
		f := asyncA10.Throughput(w, w) * (1 + 0.02*m.rng.NormFloat64())
		switch {
		case m.rng.IntN(6) == 0:
			f *= 0.4
		case w == 10, i > 110:
			f *= 0.7
		}
		m.at = m.at.Add(time.Minute)
		observe(t, a, m.at, w, w, f)
		observe(t, b, m.at, w, w, f)
		if d := cmp.Diff(a.State(), b.State()); d != "" {
			t.Fatalf("interval %d: state of one that was restarted before it (-not +restarted):\n%s", i, d)
		}
		x, errX := json.Marshal(a.Model())
		y, errY := json.Marshal(b.Model())
		if errX != nil || errY != nil || string(x) != string(y) {
			t.Fatalf("interval %d: models %s and %s (%v, %v)", i, x, y, errX, errY)
		}
	}
}

// A count that is slow whenever it is used, and no other is, makes the others slow once; found well, they stay.
func TestSlowAtOneCountOnly(t *testing.T) {
	for _, level := range []float64{0.8, 0.7, 0.5} {
		changes, off, n := 0, 0.0, 0
		for seed := range uint64(20) {
			o := newOnline(t, asyncA10, OnlineOptions{PriorMax: 28})
			m := newMinutes(t, o, seed)
			for _, w := range []int{6, 10, 14} {
				m.feed(15, w, asyncA10.Throughput(w, w), 0.02)
			}
			last := Change{}
			for round := range 5 {
				for _, w := range []int{10, 14} {
					for i := range 12 {
						f := asyncA10.Throughput(w, w)
						if w == 10 {
							f *= level
						}
						m.feed(1, w, f, 0.02)
						if c := o.LastChange(); c != nil && *c != last {
							changes, last = changes+1, *c
						}
						if round > 0 && i >= 4 {
							for _, x := range []int{6, 14, 20} {
								n, off = n+1, off+math.Abs(o.Model().Throughput(x, x)/asyncA10.Throughput(x, x)-1)
							}
						}
					}
				}
			}
		}
		t.Logf("to %v: %d changes, %.1f %% off elsewhere", level, changes, 100*off/float64(n))
		if changes > 2*20 || off/float64(n) > 0.12 {
			t.Errorf("to %v: %d changes in 20 seeds, %.1f %% off elsewhere; want the fall and the recovery of the first round only", level, changes, 100*off/float64(n))
		}
	}
}
