package plan

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// behind is a job of seconds that falls behind: one worker trains 560 of 900 records/s, six are allowed, and the objective is 5 s.
func behind(lag float64, join time.Duration, noise float64) Observation {
	const rate = 900
	o := Observation{
		Now: noon, Interval: time.Second,
		LagKnown: true, Lag: seconds(lag), BacklogRecords: int64(rate * lag),
		Target: 1, Workers: Workers{Running: 1}, Servers: 2,
		Model:    estimatorPerWorker(560),
		JoinTime: Measured{Value: join, Samples: 3}, RescaleCost: Measured{Samples: 3},
		Limits: Limits{Min: 1, Max: 6}, Rho: 1, Tau: 5 * time.Second,
		CooldownOut: time.Second, CooldownIn: 5 * time.Second, MaxLag: 5 * time.Second,
	}
	o.setRates(rate)
	o.setForecast(flat(rate, 30))
	r := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		row := flat(rate, 30)
		for i := range row {
			row[i] *= math.Exp(noise * r.NormFloat64())
		}
		o.Forecast.Scenarios = append(o.Forecast.Scenarios, row)
	}
	o.Forecast.Calibrated = true
	return o
}

// However far behind a job is, it does not wait: what it costs to be there is not what the line through the last two ages of a shorter table says.
func TestCostActsHoweverFarBehind(t *testing.T) {
	t.Parallel()
	p := policy(t, "cost")
	for _, noise := range []float64{0, 0.1} {
		for _, join := range []time.Duration{0, time.Second, 1500 * time.Millisecond, 4 * time.Second} {
			for _, lag := range []float64{12, 15, 19, 25, 40, 60, 100, 240, 1_000, 10_000} {
				o := behind(lag, join, noise)
				if d := p.Decide(o); d.Target < 2 {
					t.Errorf("a lag of %g s, workers join in %s, noise %g: %s", lag, join, noise, d.Explain())
				}
			}
		}
	}
}

// What a course costs, far behind too, rises with the backlog, and a worker more saves more the more there is to catch up with.
func TestCostFarBehindRisesWithTheBacklog(t *testing.T) {
	t.Parallel()
	s := newCost(Params{"lag": costDefault("lag"), "over": costDefault("over"), "rescale": costDefault("rescale")})
	for _, join := range []time.Duration{0, 1500 * time.Millisecond} {
		last := map[int]float64{}
		for lag := 1.0; lag < 20_000; lag *= 1.3 {
			o := behind(lag, join, 0.1)
			sh := &sheet{o: &o, current: 1, curve: curve(o.Model, o.Limits, o.Servers)}
			g := new(program)
			s.prepare(sh, g)
			g.solve()
			costs := g.now(sh)
			for i, c := range costs {
				if c < 0.97*last[g.workers[i]] { // between two ages lies a straight line
					t.Errorf("workers join in %s: a lag of %.3g s with %d workers costs %v, less than the %v of a shorter one", join, lag, g.workers[i], c, last[g.workers[i]])
				}
				last[g.workers[i]] = c
			}
		}
	}
}

// A job that starts has what costs least of what its limits allow, and not what is next to none.
func TestCostStartsWithWhatCostsLeast(t *testing.T) {
	t.Parallel()
	p := policy(t, "cost")
	for _, rate := range []float64{300, 898, 2_000} {
		o := behind(0, time.Second, 0.1)
		o.Target, o.Workers = 0, Workers{}
		o.setRates(rate)
		for _, row := range append(o.Forecast.Scenarios, o.Forecast.Mean) {
			for i := range row {
				row[i] *= rate / 900
			}
		}
		d := p.Decide(o)
		more, ok := d.Term("one more")
		if want := int(rate/560) + 1; d.Target < want || d.Target > want+1 || ok && more.Value < 0 {
			t.Errorf("a load of %g at 560 a worker begins with %d, one more costs %v: %s", rate, d.Target, more.Value, d.Explain())
		}
	}
}

// What is held for want of a forecast alone is told: a pool may have it. What the lag asks for, or a person, is not.
func TestKept(t *testing.T) {
	o := reference()
	o.Forecast, o.BacklogRecords = Forecast{}, 0
	o.setRates(40_000)
	for name, tt := range map[string]struct {
		change func(*Observation)
		want   int
	}{
		"7 for a load of 3":   {func(*Observation) {}, 4},
		"7 for a load of 6.3": {func(o *Observation) { o.setRates(100_000) }, 0},
		"a forecast":          {func(o *Observation) { o.setForecast(flat(40_000, 60)) }, 0},
		"late":                {func(o *Observation) { o.Lag, o.BacklogRecords = 12*time.Minute, 40_000*720 }, 2},
		"very late":           {func(o *Observation) { o.Lag, o.BacklogRecords = 30*time.Minute, 40_000*1_800 }, 0},
		"a person":            {func(o *Observation) { o.Manual = Manual{Pinned: true, Target: 7} }, 0},
		"no rate":             {func(o *Observation) { o.Rates = Series{} }, 0},
	} {
		o := o
		tt.change(&o)
		for _, name2 := range []string{"kale", "cost"} {
			if d := policy(t, name2).Decide(o); d.Kept() != tt.want {
				t.Errorf("%s, %s: %d kept, want %d: %s", name, name2, d.Kept(), tt.want, d.Explain())
			}
		}
	}
}
