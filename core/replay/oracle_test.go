package replay

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The programme's promise is what the schedule costs when the same engine that runs every policy carries it out.
func TestOracleKeepsItsPromise(t *testing.T) {
	c := compare(t, reference(t), morning(), CourseOptions{}, Options{World: PaperRestart(), Forecaster: PerfectForecast})
	for seed := range uint64(2) {
		sum, promised := c.playOracle(t.Context(), seed, restartGrid(c.j.SLO.MaxLag, c.o.World), nil)
		m := sum.metrics(&c.fig)
		// Both hold what the backlog of the end costs.
		if cost := c.costOf(sum); cost > promised*1.005 || cost < promised*0.995 {
			t.Errorf("seed %d: the programme promises a cost of %.2f and its schedule costs %.2f", seed, promised, cost)
		}
		if m.Rescales < 2 || m.ViolationPct > 0 {
			t.Errorf("seed %d: %.0f rescales, %.2f %% of the time over the objective: not what an oracle does on this day", seed, m.Rescales, m.ViolationPct)
		}
	}
}

// A finer grid changes the answer by less than 1 % (what the report's notes promise), on the ramps of a morning and with the outages of the paper.
func TestOracleGrid(t *testing.T) {
	c := compare(t, reference(t), morning(), CourseOptions{}, Options{World: PaperRestart(), Forecaster: PerfectForecast})
	cost := func(g Grid) float64 {
		sum, _ := c.playOracle(t.Context(), 0, g, nil)
		return c.costOf(sum)
	}
	g := restartGrid(c.j.SLO.MaxLag, c.o.World)
	fine := g
	fine.PerMinute *= 4
	if a, b := cost(g), cost(fine); math.Abs(a/b-1) > 0.01 {
		t.Errorf("the oracle costs %.2f on its grid and %.2f on one four times as fine", a, b)
	}
	c.o.World = LiveRescale()
	costLive := func(g Grid) float64 {
		sum, _ := c.playSchedules(t.Context(), []*liveOracle{c.newLiveOracle(0, 0, g, prices{Weights: c.fig.weights})}, 0.05, 0, nil)
		return c.costOf(sum)
	}
	g = liveGrid(c.j.SLO.MaxLag)
	fine = g
	fine.PerMinute *= 4
	if a, b := costLive(g), costLive(fine); math.Abs(a/b-1) > 0.01 {
		t.Errorf("the live oracle costs %.2f on its grid and %.2f on one four times as fine", a, b)
	}
}

// morning is eight hours of the synthetic week, the steepest ramps of the day in them.
func morning() Trace {
	tr := SyntheticWeek(1)
	return minutely(tr.Rates[2*24*60 : 2*24*60+8*60]...)
}

// Nothing is cheaper: on small problems every schedule of up to two rescales is tried.
func TestOracleAgainstAllSchedules(t *testing.T) {
	j := reference(t)
	j.Workers.Max = 6
	var rates []float64
	for i := range 120 { // a hump of 1 to 4.6 workers
		rates = append(rates, 16_000*(1+3.6*math.Exp(-math.Pow(float64(i-60)/20, 2))))
	}
	c := compare(t, j, minutely(rates...), CourseOptions{}, Options{World: PaperRestart(), Forecaster: PerfectForecast})
	sum, _ := c.playOracle(t.Context(), 0, Grid{PerMinute: 10, Oldest: 50 * time.Minute}, nil)
	oracle := c.costOf(sum)
	best, bestSchedule := math.Inf(1), sequence{}
	jj := *j
	jj.Autoscale.Mode, jj.Autoscale.Tick = "restart", time.Minute
	try := func(s sequence) {
		sum := &tally{}
		c.playPart(t.Context(), 0, &jj, s, 0, nil, sum)
		if cost := c.costOf(sum); cost < best {
			best, bestSchedule = cost, s
		}
	}
	for first := 2; first <= 6; first++ {
		try(sequence{0: first})
		for a := 2; a <= 6; a++ {
			for at := 4; at < 110; at += 7 {
				try(sequence{0: first, time.Duration(at) * time.Minute: a})
				for b := 2; b <= 6; b++ {
					for again := at + 10; again < 112; again += 11 {
						try(sequence{0: first, time.Duration(at) * time.Minute: a, time.Duration(again) * time.Minute: b})
					}
				}
			}
		}
	}
	if oracle > best*1.003 {
		t.Errorf("the oracle's schedule costs %.4f, and %v costs %.4f", oracle, bestSchedule, best)
	}
	if best < math.Inf(1) && oracle < best*0.8 {
		t.Errorf("the oracle's schedule costs %.4f and the best of many %.4f: too good to be true", oracle, best)
	}
}

// costOf is the whole cost of a run, not that of a day, the backlog that it leaves included as the oracle counts it.
func (c *Comparison) costOf(t *tally) float64 {
	return t.metrics(&c.fig).Cost * t.seconds / day.Seconds()
}

// With rescales that are free and instant, the oracle needs no more GPUs than the fluid bound, and no lag.
func TestOracleWithoutCostOfRescales(t *testing.T) {
	w := LiveRescale()
	w.Lead, w.Drain, w.PerDay, w.Burst = Between{}, Between{}, 0, 0
	c := compare(t, reference(t), morning(), CourseOptions{}, Options{World: w, Forecaster: PerfectForecast})
	sum, _, _ := c.playLiveOracle(t.Context(), 0, liveGrid(c.j.SLO.MaxLag), -1, nil)
	m := sum.metrics(&c.fig)
	fluid, _, _ := c.fluid()
	if m.Cost > fluid*1.001 || m.Cost < fluid*0.95 {
		t.Errorf("the oracle costs %.1f where rescales are free, the fluid bound is %.1f GPU-hours", m.Cost, fluid)
	}
}

// An oracle that holds fewer GPU-hours than the fluid bound, since it lets records wait, is explained; one that does not needs no explanation.
func TestReportExplainsOracleBelowFluidBound(t *testing.T) {
	w := LiveRescale()
	w.Lead, w.Drain, w.PerDay, w.Burst = Between{}, Between{}, 0, 0
	c := compare(t, reference(t), morning(), CourseOptions{}, Options{World: w, Forecaster: PerfectForecast, Policies: []string{"static"}, Seeds: 1})
	r, err := c.Run(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	if r.Oracle.GPUHours >= r.FluidGPUHours || r.Oracle.AccumulatedLagMin <= 0 {
		t.Fatalf("the oracle holds %v, with %v minutes of lag, and the bound is %v: this tests nothing", r.Oracle.GPUHours, r.Oracle.AccumulatedLagMin, r.FluidGPUHours)
	}
	explains := func() bool {
		return strings.Contains(strings.Join(r.remarks(), "\n"), fmt.Sprintf("The oracle holds less, %.1f: it lets records wait, %s at most", r.Oracle.GPUHours, short(r.Oracle.LagMax)))
	}
	if !explains() {
		t.Errorf("it explains nothing: %q", r.remarks())
	}
	if r.Oracle.GPUHours = r.FluidGPUHours; explains() || strings.Contains(strings.Join(r.remarks(), "\n"), "holds less") {
		t.Errorf("an oracle at the bound is explained: %q", r.remarks())
	}
}

// The live oracle keeps to the limit of rescales, and what it costs is close to what no schedule within the limit can go below.
func TestLiveOracleWithinItsLimit(t *testing.T) {
	w := LiveRescale()
	w.PerDay, w.Burst = 30, 5
	c := compare(t, reference(t), morning(), CourseOptions{}, Options{World: w, Forecaster: PerfectForecast})
	sum, bound, toll := c.playLiveOracle(t.Context(), 0, liveGrid(c.j.SLO.MaxLag), -1, nil)
	m := sum.metrics(&c.fig)
	if n := sum.rescales; n > 13 || toll <= 0 {
		t.Errorf("%d rescales with a toll of %v; 5 at once and 25 a day more are allowed, that is 13 in 8 hours, and without a limit it takes more", n, toll)
	}
	if cost := c.costOf(sum); cost > bound*1.01 || cost < bound*0.99 {
		t.Errorf("the schedule costs %.2f and no other less than %.2f", cost, bound)
	}
	again, _, other := c.playLiveOracle(t.Context(), 1, liveGrid(c.j.SLO.MaxLag), toll, nil)
	if n := again.rescales; n > 13 || math.Abs(again.metrics(&c.fig).Cost/m.Cost-1) > 0.02 {
		t.Errorf("another seed, with the toll of the first: %d rescales, cost %.2f (toll %v)", n, again.metrics(&c.fig).Cost, other)
	}
}

// In less than a day the oracle may rescale as often as the policies' budget lets them, so that it stays the bound; from a day on PerDay times in each.
func TestOracleMayRescaleAsOftenAsPolicies(t *testing.T) {
	var square []float64
	for range 4 {
		square = append(append(square, flat(44_800, 15)...), flat(448_000, 15)...)
	}
	for _, tt := range []struct {
		rates []float64
		want  float64
	}{{square, 15}, {flat(1000, 720), 30}, {flat(1000, 1440), 48}, {flat(1000, 2880), 96}} {
		c := compare(t, reference(t), minutely(tt.rates...), CourseOptions{}, Options{World: LiveRescale(), Forecaster: PerfectForecast})
		b, taken := newBudget(c.o.World), 0.0
		for s := range len(tt.rates) * 60 {
			if b.take(float64(s)) {
				taken++
			}
		}
		if got := c.allowed(); got != tt.want || len(tt.rates) < 1440 && math.Abs(taken-got) > 1 {
			t.Errorf("%d minutes: %v rescales are allowed, want %v; the budget gives %v", len(tt.rates), got, tt.want, taken)
		}
	}
	c := compare(t, reference(t), minutely(square...), CourseOptions{}, Options{World: LiveRescale(), Forecaster: PerfectForecast, Seeds: 2, Policies: []string{"hpa"}})
	r, err := c.Run(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	if p := r.Policies[0]; r.Oracle.Cost > p.Cost || p.Rescales < 100 {
		t.Errorf("hpa costs %v with %v rescales a day, the oracle %v with %v", p.Cost, p.Rescales, r.Oracle.Cost, r.Oracle.Rescales)
	}
}

// The windows of the live programme leave nothing out that matters.
func TestLiveOracleWindows(t *testing.T) {
	c := compare(t, reference(t), morning(), CourseOptions{}, Options{World: LiveRescale(), Forecaster: PerfectForecast})
	solve := func(all bool) (float64, int) {
		o := c.newLiveOracle(0, 0, liveGrid(c.j.SLO.MaxLag), prices{Weights: c.fig.weights})
		o.toll = 0.05
		if all {
			cost, first := o.solve(t.Context()) // makes the tables
			for t := range o.windows {
				o.windows[t] = span{o.lo, o.hi, o.lo, o.hi, o.hi}
			}
			_, _ = cost, first
			o.goal = nil // for these
		}
		return o.solve(t.Context())
	}
	a, firstA := solve(false)
	b, firstB := solve(true)
	if diff := cmp.Diff(firstA, firstB); diff != "" || math.Abs(a/b-1) > 1e-3 {
		t.Errorf("with windows %.4f, without %.4f; %s", a, b, diff)
	}
}

// Within limits the oracle is dearer than without, and keeps to them.
func TestOracleWithinLimits(t *testing.T) {
	c := compare(t, reference(t), minutely(morning().Rates[:300]...), CourseOptions{}, Options{World: PaperRestart(), Forecaster: PerfectForecast})
	free, _ := c.playOracle(t.Context(), 0, restartGrid(c.j.SLO.MaxLag, c.o.World), nil)
	f := free.metrics(&c.fig)
	l := Limits{AccumulatedLagMin: new(f.AccumulatedLagMin / 2), DowntimeMin: &f.DowntimeMin}
	sum, ok := c.playLimited(t.Context(), 0, l, nil)
	m := sum.metrics(&c.fig)
	if !ok || m.AccumulatedLagMin > *l.AccumulatedLagMin || m.DowntimeMin > *l.DowntimeMin {
		t.Errorf("lag %.0f min of at most %.0f, downtime %.1f min of at most %.1f, %v", m.AccumulatedLagMin, *l.AccumulatedLagMin, m.DowntimeMin, *l.DowntimeMin, ok)
	}
	if m.Cost < f.Cost || m.Cost > f.Cost*1.2 {
		t.Errorf("within limits the oracle costs %.1f, without %.1f", m.Cost, f.Cost)
	}
	// Nothing is a limit too, and one that 28 workers all the time keep to: so there is a schedule, and it is cheaper than that.
	static := c.playSteady(t.Context(), 0, 28, nil).metrics(&c.fig)
	for _, l := range []Limits{{AccumulatedLagMin: new(0.)}, {DowntimeMin: new(0.)}, {AccumulatedLagMin: new(5.)}, {AccumulatedLagMin: new(0.), DowntimeMin: new(0.)}} {
		sum, ok := c.playLimited(t.Context(), 0, l, nil)
		if m := sum.metrics(&c.fig); !ok || !l.lag(sum) || !l.down(sum) || m.Cost > static.Cost {
			t.Errorf("within %v: %v, lag %g min, downtime %g min, cost %.1f; 28 workers all the time cost %.1f", l.params(), ok, m.AccumulatedLagMin, m.DowntimeMin, m.Cost, static.Cost)
		}
	}
}

// What no schedule keeps to spoils no other figure: its row says that none was found, in every form.
func TestLimitThatNothingKeepsTo(t *testing.T) {
	j := reference(t)
	j.Workers.Max = 8 // fewer than the load needs
	c := compare(t, j, minutely(morning().Rates[:240]...), CourseOptions{}, Options{World: PaperRestart(), Forecaster: PerfectForecast, Policies: []string{"static", "follow"}, Seeds: 2,
		OracleLimits: Limits{AccumulatedLagMin: new(5.)}})
	r, err := c.Run(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	if r.Limited != nil || r.Oracle == nil || len(r.Policies) != 2 || !strings.Contains(strings.Join(r.Notes, " "), "No schedule was found within oracle-lag=5 (minutes a day), with 2 of 2 seeds: ") {
		t.Errorf("limited %v, notes %q", r.Limited, r.Notes)
	}
	var text, page, raw bytes.Buffer
	if err := errors.Join(WriteText(&text, r), WriteHTML(&page, r, ""), WriteJSON(&raw, r)); err != nil {
		t.Fatal(err)
	}
	const none = "none found within oracle-lag=5 (minutes a day)"
	if !strings.Contains(text.String(), "oracle within limits: "+none) || !strings.Contains(page.String(), none) || !strings.Contains(raw.String(), `"oracle_limited": null`) {
		t.Errorf("the row is missing:\n%s", text.String())
	}
}

// The same where rescales are live, within their number besides: downtime there is none of.
// The walk in small steps is what tollFrom stands for, and takes tens of times as many solutions.
func TestTollFrom(t *testing.T) {
	for _, hint := range []float64{0, 1e-4, 0.003, 0.2, 3.9, 4} {
		for _, least := range []float64{0, 5e-5, 1e-4, 0.0031, 0.19, 0.2, 0.7, 3.99, 9} {
			tries := 0
			within := func(toll float64) bool { tries++; return toll >= least }
			got := tollFrom(hint, within)
			if tries > 20 {
				t.Errorf("from %g to %g: %d solutions", hint, least, tries)
			}
			want := hint
			for want < tollMost && want < least {
				want = min(max(want*tollGrows, 1e-4), tollMost)
			}
			if math.Abs(got-want) > 1e-9 {
				t.Errorf("from %g to %g: %g, the walk gives %g", hint, least, got, want)
			}
		}
	}
}

func TestLiveOracleWithinLimits(t *testing.T) {
	w := LiveRescale()
	w.PerDay, w.Burst = 30, 5
	c := compare(t, reference(t), minutely(morning().Rates[:240]...), CourseOptions{}, Options{World: w, Forecaster: PerfectForecast})
	free, _, _ := c.playLiveOracle(t.Context(), 0, liveGrid(c.j.SLO.MaxLag), -1, nil)
	f := free.metrics(&c.fig)
	l := Limits{AccumulatedLagMin: new(f.AccumulatedLagMin / 2)}
	sum, ok := c.playLimited(t.Context(), 0, l, nil)
	m := sum.metrics(&c.fig)
	if !ok || m.AccumulatedLagMin > *l.AccumulatedLagMin || sum.rescales > 9 {
		t.Errorf("lag %.1f min of at most %.1f, %d rescales of at most 9, %v", m.AccumulatedLagMin, *l.AccumulatedLagMin, sum.rescales, ok)
	}
	if m.Cost < f.Cost || m.Cost > f.Cost*1.2 {
		t.Errorf("within limits the oracle costs %.1f, without %.1f", m.Cost, f.Cost)
	}
	// No lag at all is dearer than any price that is tried: then it is the least number of workers that does.
	l = Limits{AccumulatedLagMin: new(0.)}
	if sum, ok := c.playLimited(t.Context(), 0, l, nil); !ok || !l.lag(sum) {
		t.Errorf("no lag: %v, %g min", ok, sum.lagSum)
	}
	course := c.course
	for _, l := range []Limits{{DowntimeMin: new(5.)}, {DowntimeMin: new(0.)}, {AccumulatedLagMin: new(-1.)}, {AccumulatedLagMin: new(nan)}} {
		if _, err := New(t.Context(), c.j, course, Options{World: w, Forecaster: PerfectForecast, OracleLimits: l}); err == nil {
			t.Errorf("limits %+v are accepted where rescales are live", l)
		}
	}
}

// Of many workers few are considered, and the schedule is that of all: the same cost, the same decision in every minute, with every number of those workers and from every
// age, and the same beginning.
func TestFewWorkersDecideAsAllDo(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for round := range 6 {
		j := reference(t)
		j.Workers.Max, j.Workers.GPUs = 400, 64 // dear enough for 100 to be too many, whatever is too old
		j.SLO.MaxLag = time.Duration(1+rng.IntN(4)) * time.Minute
		if round%2 == 1 { // more than some train less
			j.Throughput.Form, j.Throughput.Theta = "usl", []float64{1. / 16_000, 1e-7, 1e-7}
		}
		rates := flat(RateOf(j, 1)*(0.5+rng.Float64()), 90)
		for range 4 {
			rates[rng.IntN(len(rates))] *= 1 + 4*rng.Float64()
		}
		w := PaperRestart()
		w.Outage = Between{From: time.Duration(rng.IntN(100)) * time.Second, To: 110 * time.Second}
		c := compare(t, j, minutely(rates...), CourseOptions{}, Options{World: w, Forecaster: PerfectForecast})
		some, every := c.newOracle(0, 0, restartGrid(j.SLO.MaxLag, w), prices{Weights: c.fig.weights}), c.newOracle(0, 0, restartGrid(j.SLO.MaxLag, w), prices{Weights: c.fig.weights})
		cost, first := some.solve(t.Context())
		all, from := every.fill(t.Context())
		t.Logf("round %d: %d of %d workers, cost %.3f, begins with %d; few %d", round, some.hi, every.hi, cost, first, some.few)
		if cost != all || first != from || some.few == 0 {
			t.Errorf("round %d: cost %v from %d workers, of all %v from %d", round, cost, first, all, from)
		}
		if some.hi >= every.hi {
			t.Errorf("round %d: %d workers are considered, of %d", round, some.hi, every.hi)
		}
		if !slices.Equal(some.best, every.best) {
			t.Errorf("round %d: other workers to go to", round)
		}
		n, m := (some.hi-some.lo+1)*some.words, (every.hi-every.lo+1)*every.words
		for k := range some.s.minutes {
			if !slices.Equal(some.rescale[k*n:(k+1)*n], every.rescale[k*m:k*m+n]) {
				t.Fatalf("round %d, minute %d: other rescales", round, k)
			}
		}
	}
}
