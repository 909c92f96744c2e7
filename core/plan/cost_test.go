package plan

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/estimator"
)

// play lets a policy decide over the loop's load for so many minutes and returns the
// targets, the lag and the workers held, per minute.
func (l *loop) play(p Policy, minutes int) (targets []int, lag []time.Duration) {
	s := NewSuccession(p)
	for range minutes {
		o := l.observe()
		d := s.Decide(o)
		l.step(d)
		targets, lag = append(targets, d.Target), append(lag, o.Lag)
	}
	return targets, lag
}

// Under a constant load the policy rests, and the more the load the higher.
func TestCostRestsHigherUnderMoreLoad(t *testing.T) {
	t.Parallel()
	last := 0
	for rate := 40_000.0; rate <= 440_000; rate += 80_000 {
		l := newLoop(func(time.Duration) float64 { return rate })
		targets, _ := l.play(policy(t, "cost"), 90)
		end := targets[len(targets)-1]
		if end < last || linear.Throughput(end, 2) < rate {
			t.Errorf("at %v records/s it rests at %d workers, and at less load at %d", rate, end, last)
		}
		if end > last+7 { // 5 for the load
			t.Errorf("at %v records/s it rests at %d workers, %v records/s", rate, end, linear.Throughput(end, 2))
		}
		last = end
	}
}

// Before a ramp it rescales while the load is still low, in the trough, since the
// outage leaves the smaller backlog there; and once, not step by step.
func TestCostRescalesInTheTroughBeforeTheRamp(t *testing.T) {
	ramp := func(at time.Duration) float64 {
		h := at.Hours()
		return 60_000 + 160_000*min(max((h-1.5)/0.5, 0), 1)
	}
	l := newLoop(ramp)
	l.o.Target, l.running = 4, 4
	targets, lag := l.play(policy(t, "cost"), 240)
	first, changes := -1, 0
	for i := range targets {
		if i > 0 && targets[i] != targets[i-1] {
			changes++
			if first < 0 {
				first = i
			}
		}
	}
	if first < 0 || ramp(time.Duration(first)*time.Minute) > 130_000 {
		t.Errorf("it rescales at minute %d, when the load is %v of 220,000", first, ramp(time.Duration(max(first, 0))*time.Minute))
	}
	if changes > 2 {
		t.Errorf("%d rescales for one ramp: %v", changes, targets)
	}
	if worst := slices.Max(lag); worst > l.o.MaxLag {
		t.Errorf("the lag reaches %v", worst)
	}
}

// A spike that would be over before a rescale has paid for itself is ridden out.
func TestCostRidesOutAShortSpike(t *testing.T) {
	spike := func(at time.Duration) float64 {
		if m := at.Minutes(); m >= 60 && m < 66 {
			return 170_000
		}
		return 100_000
	}
	l := newLoop(spike)
	l.o.Target, l.running = 7, 7
	targets, lag := l.play(policy(t, "cost"), 120)
	if slices.Min(targets) != 7 || slices.Max(targets) != 7 {
		t.Errorf("it rescales for a spike of 6 min: %v", targets)
	}
	if worst := slices.Max(lag); worst > 5*time.Minute {
		t.Errorf("the lag reaches %v", worst)
	}
}

// A dip that is shorter than the rescales that would use it is ridden out as well,
// and a long one is used.
func TestCostUsesOnlyADipThatPays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		minutes float64
		used    bool
	}{{12, false}, {240, true}} {
		l := newLoop(func(at time.Duration) float64 {
			if m := at.Minutes(); m >= 60 && m < 60+c.minutes {
				return 100_000
			}
			return 200_000
		})
		l.o.Target, l.running = 14, 14
		targets, _ := l.play(policy(t, "cost"), int(c.minutes)+120)
		if used := slices.Min(targets) < 12; used != c.used {
			t.Errorf("a dip of %v min: down to %d workers, want it used: %v", c.minutes, slices.Min(targets), c.used)
		}
	}
}

// With a live rescale it follows the load closely, in both directions, and without
// lag.
func TestCostFollowsCloselyWhenRescalesAreLive(t *testing.T) {
	l := newLoop(daily)
	l.outage = 0
	l.o.RescaleCost, l.o.JoinTime = Measured{Samples: 3}, Measured{Value: 40 * time.Second, Samples: 3}
	l.o.Target, l.running = 5, 5
	targets, lag := l.play(policy(t, "cost"), 360)
	held, needed := 0.0, 0.0
	for i, w := range targets {
		held += float64(w)
		needed += math.Ceil(daily(time.Duration(i)*time.Minute) / 16_000)
	}
	if held > 1.1*needed {
		t.Errorf("%.0f worker-minutes for a load that needs %.0f", held, needed)
	}
	if worst := slices.Max(lag); worst > 3*time.Minute {
		t.Errorf("the lag reaches %v", worst)
	}
}

// A backlog is worked off before it breaks the objective, though nobody foresaw it.
func TestCostWorksOffABacklogInTime(t *testing.T) {
	l := newLoop(func(time.Duration) float64 { return 100_000 })
	l.backlog = 6 * 60 * 100_000
	_, lag := l.play(policy(t, "cost"), 120)
	if worst := slices.Max(lag); worst > l.o.MaxLag {
		t.Errorf("the lag reaches %v", worst)
	}
	if end := lag[len(lag)-1]; end > time.Minute {
		t.Errorf("after two hours the lag is still %v", end)
	}
}

// The less sure of the throughput model, the more workers.
func TestCostHedgesAgainstTheModelsError(t *testing.T) {
	rest := func(params Params) int {
		p, err := New("cost", params)
		if err != nil {
			t.Fatal(err)
		}
		l := newLoop(func(time.Duration) float64 { return 155_000 })
		targets, _ := l.play(p, 60)
		return targets[59]
	}
	sure, unsure := rest(nil), rest(Params{"model_error": 0.25})
	if unsure <= sure {
		t.Errorf("%d workers where F is sure, %d where it may be off by a quarter", sure, unsure)
	}
}

// A decision says what the alternatives would cost, and what that is made of.
func TestCostSaysWhyNotAnother(t *testing.T) {
	o := busyMoment(1)
	o.Target, o.Workers.Running = 9, 9
	d := policy(t, "cost").Decide(o)
	for _, name := range []string{"backlog", "load", "rescale outage", "expected cost", "one fewer", "one more"} {
		if _, ok := d.Term(name); !ok {
			t.Errorf("no term %q in\n%s", name, d.Explain())
		}
	}
	for _, name := range []string{"one fewer", "one more"} {
		if term, _ := d.Term(name); term.Value < 0 || len(term.Parts) == 0 || !strings.Contains(term.how(), "GPUs") && !strings.Contains(term.how(), "lag") {
			t.Errorf("%s: %v %s", name, term.Value, term.how())
		}
	}
	if len(d.Plan.Workers) == 0 || d.Plan.Workers[0] != d.Target {
		t.Errorf("target %d, plan %v", d.Target, d.Plan.Workers)
	}
	if !strings.Contains(d.Reason, "GPU-hours") {
		t.Errorf("reason %q", d.Reason)
	}
}

// Where the forecast does not know its own errors, nobody is let go, and the load
// that is measured is followed upwards.
func TestCostIsReactiveWithoutAForecastThatKnowsItsErrors(t *testing.T) {
	o := busyMoment(1)
	o.Forecast.Trusted, o.Forecast.Reason = false, "it was never scored"
	o.setRates(180_000)
	d := policy(t, "cost").Decide(o)
	if d.Source != "reactive" || d.Target <= o.Target {
		t.Errorf("decides\n%s", d.Explain())
	}
	o.Forecast.Calibrated = true
	if d := policy(t, "cost").Decide(o); d.Source != "cost" {
		t.Errorf("an inaccurate forecast that knows its errors is not used:\n%s", d.Explain())
	}
}

// Rows of the transition matrices are distributions, and stay put the more the
// closer the correlation.
func TestMoves(t *testing.T) {
	for k, m := range moves {
		for a := range m {
			sum := 0.0
			for b, p := range m[a] {
				if p < 0 {
					t.Fatalf("moves[%d][%d][%d] is %v", k, a, b, p)
				}
				sum += p
				if k == 0 && math.Abs(p-classShare[b]) > 1e-9 {
					t.Errorf("without correlation class %d follows with %v, want its share %v", b, p, classShare[b])
				}
			}
			if math.Abs(sum-1) > 1e-9 {
				t.Errorf("moves[%d][%d] sums to %v", k, a, sum)
			}
			if k > 0 && m[a][a] < moves[k-1][a][a]-1e-9 {
				t.Errorf("moves[%d] stays in class %d less than moves[%d]", k, a, k-1)
			}
		}
	}
	if sum := classZ[0] + classZ[4] + classZ[1] + classZ[3] + classZ[2]; math.Abs(sum) > 1e-9 {
		t.Errorf("the classes' means are not symmetric: %v", classZ)
	}
}

// A model that is not sure of F needs more room than one that is, and says how unsure it is.
func TestCostLeavesRoomForTheModelsError(t *testing.T) {
	var basis Basis
	rest := func(d estimator.Doubts) (int, string) {
		l := newLoop(func(time.Duration) float64 { return 150_000 })
		l.o.ModelError, l.o.Basis = d, basis
		targets, _ := l.play(policy(t, "cost"), 60)
		o := l.observe()
		return targets[len(targets)-1], policy(t, "cost").Decide(o).Explain()
	}
	sure, said := rest(nil)
	if strings.Contains(said, "±") {
		t.Errorf("an exact model has an error:\n%s", said)
	}
	if same, _ := rest(estimator.Doubts{{Workers: 2, Error: 0.3}, {Workers: 5, Error: 0.001}, {Workers: 12, Error: 0.001}, {Workers: 28, Error: 0.5}}); same != sure {
		t.Errorf("%d workers for a model that is sure where it counts, %d for an exact one", same, sure)
	}
	unsure, said := rest(estimator.Doubts{{Workers: 1, Error: 0.15}})
	if unsure <= sure || !strings.Contains(said, "± 15 %") {
		t.Errorf("%d workers for a model that may be 15 %% off, %d for an exact one:\n%s", unsure, sure, said)
	}
	const guessed = "the prior: a guess; ± 15 %, which is assumed: the job has measured nothing yet"
	basis.Prior = "a guess"
	if _, said = rest(estimator.Doubts{{Workers: 1, Error: 0.15}}); !strings.Contains(said, guessed) {
		t.Errorf("a guess is told as if it were measured:\n%s", said)
	}
	basis.Measured = []estimator.Evidence{{Workers: 1, Rate: 1600, Intervals: 5}}
	if _, said = rest(estimator.Doubts{{Workers: 1, Error: 0.15}}); strings.Contains(said, "assumed") {
		t.Errorf("what was measured is told as a guess:\n%s", said)
	}
}

// The range of the load holds what is expected, also where the forecast's past errors all lay on one side of it.
func TestCostRangeHoldsWhatIsExpected(t *testing.T) {
	o := busyMoment(1)
	o.Rates = Series{}
	o.Forecast.Trusted, o.Forecast.Calibrated = false, true
	for i := range o.Forecast.Mean {
		o.Forecast.Mean[i] = 0
	}
	o.Forecast.Scenarios = nil
	for k := range 8 {
		row := make(Values, len(o.Forecast.Mean))
		for i := range row {
			row[i] = float64(10 + k)
		}
		o.Forecast.Scenarios = append(o.Forecast.Scenarios, row)
	}
	d := policy(t, "cost").Decide(o)
	const want = "expected next, by a forecast that is not trusted; 0 to "
	if term, _ := d.Term("load"); term.Value != 0 || !strings.HasPrefix(term.Expr, want) {
		t.Errorf("load %v %q; want %q", term.Value, term.Expr, want)
	}
}

// Where changes are limited the limit keeps them rare: while many are left they cost less, and the load is followed more closely; with the last one all of the
// price is asked for, as without a limit.
func TestCostSpendsWhatIsLeftOfALimit(t *testing.T) {
	t.Parallel()
	play := func(b Budget) (changes int, held float64) {
		l := newLoop(daily)
		l.outage = 0
		l.o.RescaleCost, l.o.JoinTime = Measured{Samples: 3}, Measured{Value: 40 * time.Second, Samples: 3}
		l.o.Target, l.running, l.o.Budget = 5, 5, b
		targets, _ := l.play(policy(t, "cost"), 240)
		for i, w := range targets {
			if held += float64(w); i > 0 && w != targets[i-1] {
				changes++
			}
		}
		return changes, held
	}
	free, heldFree := play(Budget{})
	last, heldLast := play(Budget{Limited: true, Left: 1, Every: 40 * time.Minute})
	many, heldMany := play(Budget{Limited: true, Left: 12, Every: 40 * time.Minute})
	if last != free || heldLast != heldFree {
		t.Errorf("%d changes and %v worker-minutes with one left, %d and %v without a limit", last, heldLast, free, heldFree)
	}
	if many <= last || heldMany >= heldLast {
		t.Errorf("%d changes and %v worker-minutes with twelve left, %d and %v with one", many, heldMany, last, heldLast)
	}
	p := newCost(Params{"rescale": 0.5})
	for _, c := range []struct {
		left int
		want float64
	}{{0, 0.5}, {1, 0.5}, {7, 0.25}, {13, 0.125}, {100, 0.125}} {
		if got := p.change(Budget{Limited: true, Left: c.left, Every: 40 * time.Minute}, 8*3600); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("with %d left a change costs %v GPU-hours, want %v", c.left, got, c.want)
		}
	}
}
