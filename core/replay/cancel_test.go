package replay

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"
)

// ending is a context that ends once it has been looked at so often, and counts how often it is after that. It is one goroutine's.
type ending struct {
	context.Context
	left, late int
}

func (e *ending) Err() error {
	if e.left--; e.left >= 0 {
		return nil
	}
	e.late++
	return context.Canceled
}

// Who has called it off does not wait for the oracle: with as many workers as there may be, one minute of its programme takes longer than anybody waits. It looks
// at its context again and again within a minute, and gives all of it up at once.
func TestOracleIsCalledOff(t *testing.T) {
	lag := 1.0
	for name, w := range worlds() {
		j := reference(t)
		j.Workers.Max = 20_000
		c := compare(t, j, minutely(flat(2e8, 60)...), CourseOptions{}, Options{World: w, Forecaster: PerfectForecast})
		for what, run := range map[string]func(ctx context.Context){
			"oracle": func(ctx context.Context) {
				if w.Live {
					c.playLiveOracle(ctx, 0, liveGrid(j.SLO.MaxLag), -1, nil)
					return
				}
				c.playOracle(ctx, 0, restartGrid(j.SLO.MaxLag, w), nil)
			},
			"within limits": func(ctx context.Context) { c.playLimited(ctx, 0, Limits{AccumulatedLagMin: &lag}, nil) },
			"blind":         func(ctx context.Context) { c.playBlind(ctx, 2) },
		} {
			ctx := &ending{Context: t.Context(), left: 200}
			begun := time.Now()
			run(ctx)
			if ctx.late == 0 || ctx.late > 400 {
				t.Errorf("%s, %s: looked at %d times after the end", name, what, ctx.late)
			}
			if took := time.Since(begun); took > 20*time.Second {
				t.Errorf("%s, %s: it took %v", name, what, took)
			}
		}
	}
}

// The programmes look at their context for every number of workers in every minute, and a run at every event.
func TestLooksAtTheContext(t *testing.T) {
	const minutes = 60
	trace := minutely(flat(100_000, minutes)...)
	looks := func(run func(ctx context.Context)) int {
		ctx := &ending{Context: t.Context(), left: math.MaxInt}
		run(ctx)
		return math.MaxInt - ctx.left
	}
	c := compare(t, reference(t), trace, CourseOptions{}, Options{World: PaperRestart(), Forecaster: PerfectForecast})
	o := c.newOracle(0, 0, restartGrid(c.j.SLO.MaxLag, c.o.World), prices{Weights: c.fig.weights})
	least := 0
	for t := range minutes {
		least += 27 // 2 to 28, to stay
		if t+o.span(o.outage[t]) <= minutes {
			least += 27
		}
	}
	if n := looks(func(ctx context.Context) { o.solve(ctx) }); n < least {
		t.Errorf("with outages: %d looks, want %d", n, least)
	}
	c = compare(t, reference(t), trace, CourseOptions{}, Options{World: LiveRescale(), Forecaster: PerfectForecast})
	l := c.newLiveOracle(0, 0, liveGrid(c.j.SLO.MaxLag), prices{Weights: c.fig.weights})
	n := looks(func(ctx context.Context) { l.solve(ctx) })
	least = 0
	for _, w := range l.windows[:minutes] {
		least += w.to - w.from + 1
	}
	if n < least {
		t.Errorf("live: %d looks, want %d", n, least)
	}
	sum := c.playSteady(&ending{Context: t.Context(), left: 10}, 0, 7, nil)
	if sum.seconds > 11*60 {
		t.Errorf("a run goes on for %.0f s of %d", sum.seconds, minutes*60)
	}
}

// A comparison that is called off in any of its phases says so, and gives no figures.
func TestComparisonIsCalledOff(t *testing.T) {
	lag := 500.0
	for name, w := range worlds() {
		for _, phase := range []string{"replaying", "solving the oracle", "solving the oracle within limits", "solving the blind oracle"} {
			ctx, cancel := context.WithCancel(t.Context())
			at := phase
			o := Options{World: w, Seeds: 1, Policies: []string{"static"}, OracleLimits: Limits{AccumulatedLagMin: &lag}, Forecaster: PerfectForecast,
				Progress: func(what string, _, _ int) {
					if what == at {
						cancel()
					}
				}}
			c := compare(t, reference(t), minutely(flat(100_000, 60)...), CourseOptions{}, o)
			if r, err := c.Run(ctx, false); r != nil || !errors.Is(err, context.Canceled) {
				t.Errorf("%s, %s: %v, %v", name, phase, r, err)
			}
			cancel()
		}
	}
}

// A saving is not all there is as long as something is held.
func TestLessBy(t *testing.T) {
	for percent, want := range map[float64]string{
		12.4: "12 %", 99.4: "99 %", 99.5: "99.5 %", 99.96: "99.96 %", 99.998: "99.998 %", 100 * (1 - 2./65536): "99.997 %", math.Nextafter(100, 0): "99.9999 %", 100: "100 %",
	} {
		if got := lessBy(percent); got != want {
			t.Errorf("%v: %q, want %q", percent, got, want)
		}
	}
	k := Row{Name: "kale", Setting: LabelPaper}
	k.GPUHours = 24 * 1.2
	r := &Report{Policies: []Row{k}, Days: 1, Max: 65536, gpus: 1, MaxLag: 1200}
	const want = `Kale's "kale" would have held 29 GPU-hours a day, 99.998 % less than 65536 workers all day (1572864)`
	if got := r.Headline(); len(got) < len(want) || got[:len(want)] != want {
		t.Errorf("%s", got)
	}
}
