package replay

import (
	"math"
	"math/rand/v2"
	"testing"
)

// simple are policies that the oracle is held against: they need no forecast but a perfect one.
var simple = []string{"cost", "flink", "follow", "static"}

// leastCost is the cheapest of the simple policies, by a whole run's cost.
func leastCost(t *testing.T, c *Comparison) (policy string, cost float64) {
	t.Helper()
	cost = math.Inf(1)
	for _, name := range simple {
		sum, err := c.play(t.Context(), Setting{Policy: name, Label: LabelDefault}, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		if at := c.costOf(sum); at < cost {
			policy, cost = name, at
		}
	}
	return policy, cost
}

// worlds are both kinds of rescales.
func worlds() map[string]World {
	return map[string]World{"live": LiveRescale(), "outages": PaperRestart()}
}

// oracleCost is what the oracle's schedule costs for the first seed, a backlog of the end not counted.
func oracleCost(t *testing.T, c *Comparison, finer int) float64 {
	if !c.o.World.Live {
		g := restartGrid(c.j.SLO.MaxLag, c.o.World)
		g.PerMinute, g.Behind = g.PerMinute*finer, g.Behind*finer
		sum, _ := c.playOracle(t.Context(), 0, g, nil)
		return c.costOf(sum)
	}
	g := liveGrid(c.j.SLO.MaxLag)
	g.PerMinute, g.Behind = g.PerMinute*finer, g.Behind*finer
	sum, _ := c.playSchedules(t.Context(), []*liveOracle{c.newLiveOracle(0, 0, g, prices{Weights: c.fig.weights})}, 0, 0, nil)
	return c.costOf(sum)
}

// floods are loads beyond all workers, of five workers' worth before and after: backlogs that no schedule keeps young.
func floods(rate float64) map[string][]float64 {
	out := map[string][]float64{}
	for name, burst := range map[string]struct {
		minutes int
		workers float64
	}{"an hour at twice all workers": {60, 56}, "a spike": {1, 4000}} {
		rates := flat(5*rate, 480)
		for k := range burst.minutes {
			rates[90+k] = burst.workers * rate
		}
		out[name] = rates
	}
	return out
}

// A backlog beyond all workers is worked off, not given up: no policy is cheaper than the oracle, and a finer grid changes its cost by less than 1 %.
func TestOracleBeyondAllWorkers(t *testing.T) {
	for kind, w := range worlds() {
		for name, rates := range floods(RateOf(reference(t), 1)) {
			c := compare(t, reference(t), minutely(rates...), CourseOptions{}, Options{World: w, Forecaster: PerfectForecast})
			policy, best := leastCost(t, c)
			oracle := oracleCost(t, c, 1)
			t.Logf("%s, %s: oracle %.2f, %s %.2f", name, kind, oracle, policy, best)
			if oracle > 1.01*best {
				t.Errorf("%s, %s: the oracle costs %.2f, and %s %.2f", name, kind, oracle, policy, best)
			}
			if fine := oracleCost(t, c, 2); math.Abs(oracle/fine-1) > 0.01 {
				t.Errorf("%s, %s: the oracle costs %.2f on its grid and %.2f on one twice as fine", name, kind, oracle, fine)
			}
		}
	}
}

// The same for bursts of any length and height, one after another, on any load.
func TestOracleUnderBursts(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	j := reference(t)
	one := RateOf(j, 1)
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		rates := flat((2+16*rng.Float64())*one, 420)
		for range 1 + rng.IntN(3) {
			from, minutes := 20+rng.IntN(200), int(math.Exp(rng.Float64()*math.Log(60)))
			work := 28 * math.Exp(rng.Float64()*math.Log(150)) // minutes of a worker
			for k := range minutes {
				rates[from+k] += work / float64(minutes) * one
			}
		}
		for kind, w := range worlds() {
			c := compare(t, j, minutely(rates...), CourseOptions{}, Options{World: w, Forecaster: PerfectForecast})
			policy, best := leastCost(t, c)
			oracle := oracleCost(t, c, 1)
			t.Logf("round %d, %s: oracle %.2f, %s %.2f", round, kind, oracle, policy, best)
			if oracle > 1.01*best {
				t.Errorf("round %d, %s: the oracle costs %.2f, and %s %.2f", round, kind, oracle, policy, best)
			}
		}
	}
}

// The states of a minute hold whatever any schedule comes to, down to what the workers that train most leave; where the load is never beyond all workers they are
// the ages of the grid alone.
func TestStates(t *testing.T) {
	rates := flat(5*16000, 600)
	usual := newAges(newArrivals(60, rates), len(rates), Grid{PerMinute: 4, Oldest: 600e9, Behind: 1}, 28*16000)
	for i, n := range usual.at {
		if len(n) > 41 || n[len(n)-1].at != float64(4*i) || len(n) > 1 && n[len(n)-2].at != float64(4*i-1) {
			t.Fatalf("minute %d: %d states, the youngest at step %g", i, len(n), n[len(n)-1].at)
		}
	}
	rates[100] = 4000 * 16000
	s := newAges(newArrivals(60, rates), len(rates), Grid{PerMinute: 4, Oldest: 600e9, Behind: 1}, 28*16000)
	trained, reached := 0., 0.
	for i, n := range s.at {
		if i > 0 {
			trained = min(trained+60*28*16000, s.arrived[4*i])
		}
		for k := range n[1:] {
			if n[k].at >= n[k+1].at || n[k].arrived > n[k+1].arrived {
				t.Fatalf("minute %d: node %d of %v is not before the next", i, k, n)
			}
		}
		if n[0].arrived > trained || n[len(n)-1].arrived < trained-1 {
			t.Fatalf("minute %d: states from %g to %g samples, and %g have been trained by all workers", i, n[0].arrived, n[len(n)-1].arrived, trained)
		}
		reached = max(reached, float64(4*i)-n[0].at)
	}
	if reached < 4*170 || s.n > 400 {
		t.Errorf("the oldest state is %g steps old, %d states at most; all workers need 174 minutes for the spike", reached, s.n)
	}
}

// A load that is always beyond all workers has no more states for going on.
func TestStatesOfAnEndlessFlood(t *testing.T) {
	for _, rate := range []float64{30, 60, 600} {
		rates := flat(rate*16000, 7*1440)
		s := newAges(newArrivals(60, rates), len(rates), Grid{PerMinute: 4, Oldest: 600e9, Behind: 1}, 28*16000)
		if last := len(s.at[len(rates)]); s.n > 320 || last < 150 {
			t.Errorf("%g workers' worth for a week: %d states at most, %d at the end", rate, s.n, last)
		}
	}
}
