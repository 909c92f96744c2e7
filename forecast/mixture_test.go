package forecast

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// gappy is traffic with a season of 24 bins of which every so manieth bin is unknown; 0: none.
func gappy(n, every int) []float64 {
	rng := rand.New(rand.NewPCG(6, 1))
	return synthetic(n, time.Second, func(i int) float64 {
		if every > 0 && i%every == 5 {
			return math.NaN()
		}
		return cycle(float64(i)/24) * math.Exp(0.2*rng.NormFloat64())
	}).Values
}

// What the mix says of single bins beside an origin is what it says of all that follow it, also some seasons ahead, beside gaps, and where the
// history is hardly longer than a candidate's lag.
func TestForesawIsTheMix(t *testing.T) {
	for _, every := range []int{0, 7} {
		y := gappy(400, every)
		cands := []candidate{{lag: 24, level: 3}, {lag: 24, level: 12}, {lag: 48, level: 0}, {lag: 72, level: 24}}
		const steps = 60
		m := study(y, cands, steps, 200)
		horizons := append(append([]int(nil), justBefore[:]...), m.probes...)
		got, want := make([]float64, len(horizons)), make([]float64, steps)
		for _, tr := range m.trials {
			m.foresaw(got, tr, horizons)
			m.blend(want, tr)
			for i, h := range m.probes {
				if g, w := got[len(justBefore)+i], want[h]; math.Abs(g-w) > 1e-9 || math.IsNaN(g) != math.IsNaN(w) {
					t.Fatalf("a gap every %d bins, %d bins after origin %d: %v, and all at once %v", every, h, tr.origin, g, w)
				}
			}
			before := make([]float64, len(justBefore))
			m.foresaw(before, tr, justBefore[:])
			for i, g := range before {
				if g != got[i] && (g == g || got[i] == got[i]) {
					t.Fatalf("bin %d before origin %d: %v by itself, and with others %v", -justBefore[i], tr.origin, g, got[i])
				}
			}
		}
		m.done()
	}
}

// A candidate weighs by the square of its error over the first one's in the last bins, over those bins that both know.
func TestRecentCountsWhatBothKnow(t *testing.T) {
	for _, every := range []int{0, 7, 11} {
		y := gappy(400, every)
		cands := []candidate{{lag: 24, level: 3}, {lag: 24, level: 12}, {lag: 48, level: 6}}
		const steps = 8
		m := study(y, cands, steps, 200)
		for _, tr := range m.trials {
			for c, cand := range cands {
				e, f, n := 0.0, 0.0, 0.0
				for back := m.recentBins(); back >= 1 && tr.origin-back >= cand.first(); back /= 2 {
					from := tr.origin - back
					for h := range min(back, steps) {
						miss := func(c int) float64 {
							p := m.parts[c][0]
							return math.Abs(y[from+h] - y[from+h-p.lag]*p.levels.ratio(from, cands[c].level))
						}
						if d, d0 := miss(c), miss(0); d+d0 == d+d0 {
							e, f, n = e+d, f+d0, n+1
						}
					}
				}
				if want := m.weight(e, f, n, lastSquares, 1); math.Abs(tr.recent[c]-want) > 1e-9*want {
					t.Fatalf("a gap every %d bins, origin %d: candidate %d weighs %v, want %v", every, tr.origin, c, tr.recent[c], want)
				}
			}
		}
		m.done()
	}
}
