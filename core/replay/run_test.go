package replay

import (
	"errors"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/plan"
)

// played runs a sequence of orders on a trace of whole minutes.
func played(t *testing.T, w World, rates []float64, orders sequence) (*tally, *Trail) {
	t.Helper()
	j := reference(t)
	c := compare(t, j, minutely(rates...), CourseOptions{}, Options{World: w, Forecaster: PerfectForecast})
	jj := *j
	jj.Autoscale.Mode, jj.Autoscale.Tick = w.mode(), time.Minute
	sum, trail := &tally{}, &Trail{}
	c.playPart(t.Context(), 0, &jj, orders, 0, trail, sum)
	return sum, trail
}

// A restart stops everybody: lag grows to the outage, the new number is paid for from the decision on, and the backlog is worked off.
func TestRestartByHand(t *testing.T) {
	w := PaperRestart()
	w.Outage = Between{6 * time.Minute, 6 * time.Minute}
	// 32,000/s are two workers' work; 4 work the outage off at twice the pace that it comes in.
	sum, trail := played(t, w, flat(32_000, 60), sequence{0: 3, 10 * time.Minute: 4})
	if sum.downtime != 360 || sum.rescales != 1 {
		t.Errorf("downtime %v s, %d rescales", sum.downtime, sum.rescales)
	}
	if want := 3*600.0 + 4*3000; sum.held != want {
		t.Errorf("held %v worker-seconds, want %v", sum.held, want)
	}
	// 1, 2, … 6 minutes at the ends of the minutes of the outage, then one less in each two... of 64,000/s half is new: the lag falls by a minute a minute.
	var got []float64
	for _, lag := range trail.Lag[8:24] {
		got = append(got, math.Round(lag))
	}
	if diff := cmp.Diff([]float64{0, 0, 60, 120, 180, 240, 300, 360, 300, 240, 180, 120, 60, 0, 0, 0}, got); diff != "" {
		t.Errorf("lags at the ends of minutes, s (-want +got):\n%s", diff)
	}
	if sum.lagSum != 36 || sum.over != 0 {
		t.Errorf("accumulated lag %v min, %v min over the objective; want 36 and 0", sum.lagSum, sum.over)
	}
	// Before: two of three busy. After the outage: all until the backlog is gone, six minutes later, then two of four.
	if want := 600*2.0 + 4*360 + 2*(3600-600-720); !near(sum.busy, want, 1e-9) {
		t.Errorf("busy %v worker-seconds, want %v", sum.busy, want)
	}
	if !near(sum.lags.total(), 60*60*32_000, 1e-9) || sum.lags.max != 360 {
		t.Errorf("%v samples with a lag of up to %v s", sum.lags.total(), sum.lags.max)
	}
}

// Live: the old ones go on, the new ones are held from the decision and train after their lead; a drained one is held until it is released.
func TestLiveByHand(t *testing.T) {
	w := LiveRescale()
	w.Lead, w.Drain = Between{90 * time.Second, 90 * time.Second}, Between{30 * time.Second, 30 * time.Second}
	sum, trail := played(t, w, concat(flat(32_000, 10), flat(64_000, 20), flat(32_000, 30)), sequence{0: 2, 10 * time.Minute: 4, 40 * time.Minute: 2})
	if sum.downtime != 0 || sum.rescales != 2 {
		t.Errorf("downtime %v s, %d rescales", sum.downtime, sum.rescales)
	}
	if want := 2*600.0 + 4*1800 + 2*30 + 2*1200; sum.held != want {
		t.Errorf("held %v worker-seconds, want %v", sum.held, want)
	}
	// For 90 s half of 64,000/s is trained: after a minute 32,000·60 wait, half a minute's arrivals.
	if got := trail.Lag[10]; !near(got, 30, 1e-9) {
		t.Errorf("a minute after the decision the lag is %v s, want 30", got)
	}
	if got := trail.Lag[20]; !near(got, 45, 1e-9) { // 4 train just what arrives, so the lag stays
		t.Errorf("then the lag is %v s, want 45", got)
	}
}

// Everybody meets the same draws, whatever else they do; another seed meets others.
func TestDrawsAreThoseOfTheMinute(t *testing.T) {
	w := PaperRestart()
	outage := func(seed uint64, before sequence) float64 {
		j := reference(t)
		c := compare(t, j, minutely(flat(32_000, 200)...), CourseOptions{}, Options{World: w, Forecaster: PerfectForecast})
		jj := *j
		jj.Autoscale.Mode, jj.Autoscale.Tick = "restart", time.Minute
		orders := sequence{0: 4, 150 * time.Minute: 5}
		for k, v := range before {
			orders[k] = v
		}
		sum := &tally{}
		c.playPart(t.Context(), 0, &jj, orders, seed, nil, sum)
		other := &tally{}
		delete(orders, 150*time.Minute)
		c.playPart(t.Context(), 0, &jj, orders, seed, nil, other)
		return sum.downtime - other.downtime
	}
	plain := outage(3, nil)
	if got := outage(3, sequence{20 * time.Minute: 9, 60 * time.Minute: 4}); !near(got, plain, 1e-9) || plain < 300 || plain > 480 {
		t.Errorf("the rescale in minute 150 takes %v s, and %v s after others", plain, got)
	}
	if got := outage(4, nil); got == plain {
		t.Errorf("another seed has the same outage of %v s", got)
	}
}

// No more live rescales in any 24 hours than the limit, and what is refused is counted.
func TestRescaleBudget(t *testing.T) {
	w := LiveRescale()
	w.PerDay, w.Burst = 12, 4
	orders := sequence{0: 3}
	for m := 1; m < 1430; m++ {
		orders[time.Duration(m)*time.Minute] = 3 + m%2
	}
	sum, _ := played(t, w, flat(32_000, 1440), orders)
	if sum.rescales > 12 || sum.rescales < 11 || sum.refused == 0 {
		t.Errorf("%d rescales and %d refused; 12 a day are allowed", sum.rescales, sum.refused)
	}
	b := newBudget(w)
	taken := 0
	for range 100 {
		if b.take(0) {
			taken++
		}
	}
	if v := b.view(90 * 60); taken != 4 || v.Left != 0 || v.Next != 90*time.Minute || v.Every != 3*time.Hour || !v.Limited {
		t.Errorf("%d at once, then %+v; want 4, and one more every 3 hours", taken, v)
	}
}

// Workers that are lost are paid for and do not train.
func TestLosses(t *testing.T) {
	w := LiveRescale()
	w.LossesPerDay, w.Return = 24, Between{2 * time.Minute, 2 * time.Minute}
	sum, _ := played(t, w, flat(31_900, 1440), sequence{0: 2})
	if sum.lost < 25 || sum.lost > 75 {
		t.Errorf("%d workers were lost, about 48 are expected", sum.lost)
	}
	if sum.held != 2*86400 || sum.lagSum == 0 {
		t.Errorf("held %v worker-seconds, accumulated lag %v min", sum.held, sum.lagSum)
	}
}

// Changing the trace after a moment changes no decision up to it: forecasts included.
func TestCausal(t *testing.T) {
	tr := SyntheticWeek(5)
	half := len(tr.Rates) - 12*60 // noon of the last day
	other := minutely(append([]float64(nil), tr.Rates...)...)
	other.Start = tr.Start
	for i := half; i < len(other.Rates); i++ {
		other.Rates[i] = tr.Rates[i]*0.3 + 1000*float64(i%97)
	}
	j := reference(t)
	j.Forecast.Horizon, j.Forecast.History, j.Forecast.Season = 30*time.Minute, 48*time.Hour, j.Forecast.Season[:1]
	w := PaperRestart()
	comparison := func(tr Trace) *Comparison { // its forecasts serve all policies
		return compare(t, j, tr, CourseOptions{Days: 1}, Options{World: w, ForecastEvery: 30})
	}
	is, would := comparison(tr), comparison(other)
	decisions := func(c *Comparison, policy string) []plan.Decision {
		var log []plan.Decision
		jj, p, err := Setting{Policy: policy, Label: LabelPaper}.apply(j, w)
		if err != nil {
			t.Fatal(err)
		}
		c.playPart(t.Context(), 0, jj, &policyDecider{policy: plan.NewSuccession(p), outlook: c.outlooks[0], needs: plan.NeedsOf(policy), model: c.model, log: &log}, 1, nil, &tally{})
		return log
	}
	for _, policy := range []string{"kale", "hpa", "quantile"} {
		a, b := decisions(is, policy), decisions(would, policy)
		until := monday.Add(time.Duration(half) * time.Minute)
		compared, later := 0, false
		for i := range a {
			if a[i].At.After(until) {
				later = later || a[i].Explain() != b[i].Explain()
				continue
			}
			compared++
			if diff := cmp.Diff(a[i].Explain(), b[i].Explain()); diff != "" {
				t.Fatalf("%s: a change after %v changed the decision at %v:\n%s", policy, until, a[i].At, diff)
			}
		}
		if compared < 700 || !later {
			t.Errorf("%s: %d decisions compared, and later ones differ: %v", policy, compared, later)
		}
	}
}

// Two runs of the same comparison give the same figures, in the same order, however many processors there are.
func TestDeterministic(t *testing.T) {
	run := func() *Report {
		c := week(t, 1, Options{World: PaperRestart(), Seeds: 2, Policies: []string{"static", "kale", "follow"}})
		r, err := c.Run(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	a, b := run(), run()
	if diff := cmp.Diff(a.Policies, b.Policies, cmp.AllowUnexported(Row{}), cmp.AllowUnexported(Trail{})); diff != "" {
		t.Errorf("two runs differ:\n%s", diff)
	}
	if a.Policies[0].CostRatioOracle < 1 || a.Oracle.CostRatioOracle != 1 {
		t.Errorf("ratios to the oracle: %v and %v", a.Policies[0].CostRatioOracle, a.Oracle.CostRatioOracle)
	}
}

// A grid that goes on beyond its edge has the values that a person would write.
func TestAGridsNextValueIsRound(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		best   float64
		want   float64
	}{
		{[]float64{0.1, 0.2, 0.3}, 0.3, 0.4},
		{[]float64{0.7, 0.8}, 0.8, 0.9},
		{[]float64{0.15, 0.3}, 0.15, 0},
		{[]float64{0.1 + 0.2 - 0.15, 0.3}, 0.1 + 0.2 - 0.15, 0}, // 2.8e-17 above 0.15
	} {
		grid := []Axis{{Name: "margin", Values: tt.values, Min: -1, Max: 10}}
		more := extend(grid, Setting{Params: map[string]float64{"margin": tt.best}})
		if len(more) != 1 || more[0].Params["margin"] != tt.want {
			t.Errorf("after %v: %v, want %v", tt.values, more, tt.want)
		}
	}
}

// Work that cannot be done for one seed is not tried for all others first.
func TestParallelEndsWithTheFirstError(t *testing.T) {
	c := &Comparison{o: Options{Progress: func(string, int, int) {}}}
	var begun atomic.Int32
	err := c.parallel(t.Context(), "failing", 1000, func(int) error { begun.Add(1); return errors.New("cannot be done") })
	if err == nil || int(begun.Load()) > runtime.GOMAXPROCS(0) {
		t.Errorf("%v after %d pieces", err, begun.Load())
	}
}

// Policies that do not say that they go by forecasts do not: with none they decide as with those that know everything. So no forecasts are made for them.
func TestNoForecastsWhereNoneIsNeeded(t *testing.T) {
	t.Parallel()
	var blind []string
	for _, name := range Policies() {
		if !ForecastsNeeded([]string{name}) {
			blind = append(blind, name)
		}
	}
	if len(blind) != len(Policies())-4 || !ForecastsNeeded([]string{"static", "cost"}) {
		t.Fatalf("without forecasts: %v", blind)
	}
	for _, w := range []World{PaperRestart(), LiveRescale()} {
		o := Options{World: w, Seeds: 2, Policies: blind}
		knows := week(t, 1, Options{World: w, Seeds: 2, Policies: append(blind[:len(blind):len(blind)], "kale")})
		o.Progress = func(what string, _, _ int) {
			if strings.HasPrefix(what, "forecasting") {
				t.Errorf("%s, for %v", what, blind)
			}
		}
		c := compare(t, reference(t), SyntheticWeek(1), CourseOptions{Days: 1}, o) // the job's forecaster
		for _, name := range blind {
			s := PaperSetting(name)
			for seed := range uint64(2) {
				a, err := c.play(t.Context(), s, seed, nil)
				b, err2 := knows.play(t.Context(), s, seed, nil)
				if err := errors.Join(err, err2); err != nil {
					t.Fatal(err)
				}
				if a, b := a.metrics(&c.fig), b.metrics(&knows.fig); a != b {
					t.Errorf("%s, without forecasts and with them (-want +got):\n%s", name, cmp.Diff(a, b))
				}
			}
		}
	}
}

// Records that still wait at the end are among those of which the figures are: with a flood at the end, fewer workers make more lag, and a lower AUC.
func TestBacklogAtTheEnd(t *testing.T) {
	rates := append(flat(16_000, 90), flat(640_000, 30)...) // trained as it comes, and then never
	c := compare(t, reference(t), minutely(rates...), CourseOptions{}, Options{World: LiveRescale(), Seeds: 1, Policies: []string{"static"}, Forecaster: PerfectForecast})
	before := Metrics{AUCPct: 100}
	for _, workers := range []int{8, 6, 4, 2} {
		sum := c.playSteady(t.Context(), 0, workers, nil)
		if got, want := sum.lags.total(), c.arrived[0].cum[len(rates)]; !near(got, want, 1e-6) {
			t.Errorf("%d workers: %v records are counted of %v", workers, got, want)
		}
		m := sum.metrics(&c.fig)
		if m.AUCPct >= before.AUCPct || m.AccumulatedLagMin <= before.AccumulatedLagMin || m.LagP50 <= before.LagP50 {
			t.Errorf("%d workers: AUC %.3f %% with %.0f minutes of lag, half of the records %.0f s; with more workers %.3f %%, %.0f and %.0f s",
				workers, m.AUCPct, m.AccumulatedLagMin, m.LagP50, before.AUCPct, before.AccumulatedLagMin, before.LagP50)
		}
		t.Logf("%d workers: AUC %.3f %%, %.0f minutes of lag, p50 %.0f s, p99 %.0f s", workers, m.AUCPct, m.AccumulatedLagMin, m.LagP50, m.LagP99)
		before = m
	}
}
