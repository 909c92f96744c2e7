package replay

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
)

// The bounds of what spoils forecasts: of a share that is added to each, and of a standard deviation.
const (
	LeastBias = -0.99
	MostBias  = 10.
	MostNoise = 3.
)

// LongestOutage is the longest that a rescale may stop training, and that a worker may be on its way.
const LongestOutage = day

// World is how the simulated cluster behaves: what a rescale costs, and what goes wrong.
type World struct {
	// Live says that training goes on through a rescale (guarantee 2 of the design); otherwise it pauses and restarts, as the paper's does.
	Live bool
	// Outage is how long a restart stops training: uniform between the two. The GPUs of the new number are held from the decision on.
	Outage Between
	// Lead is how long a new worker of a live job takes from the decision until it trains, Drain how long one that leaves is held before it is released.
	Lead, Drain Between
	// PerDay bounds the live rescales in any 24 hours, Burst those at once: one more is allowed every 24 h / (PerDay − Burst). 0: no bound.
	PerDay, Burst int
	// LossesPerDay is how many times a day a worker is lost; another is there after Return.
	LossesPerDay float64
	Return       Between
	// ForecastBias and ForecastNoise spoil the forecasts: all of them by the share ForecastBias (0.1: too high by a tenth), and each half hour's by a factor
	// whose logarithm has the standard deviation ForecastNoise. The bands, quantiles and scenarios are those of a forecaster that makes such errors: what came of the forecasts before makes
	// them; until enough did, some hours, they are the unspoilt ones times the same factor, and are not called calibrated.
	ForecastBias, ForecastNoise float64
}

// Between are two durations between which one is drawn.
type Between struct{ From, To time.Duration }

func (b Between) draw(c chance, what int, minute int64) float64 {
	return c.within(b.From.Seconds(), b.To.Seconds(), what, minute)
}

// String writes 5m..8m.
func (b Between) String() string {
	if b.From == b.To {
		return job.FormatDuration(b.From)
	}
	return job.FormatDuration(b.From) + ".." + job.FormatDuration(b.To)
}

// PaperRestart is the paper's rescale: training stops for 5 to 8 minutes (Kale §4.4, read off its figure).
func PaperRestart() World {
	return World{Outage: Between{5 * time.Minute, 8 * time.Minute}, Return: Between{5 * time.Minute, 8 * time.Minute}}
}

// LiveRescale is Kale's own: a worker trains 5 to 90 s after the decision (as measured on the backends), one that leaves is released within 30 s; at most 48
// rescales a day, 12 of them at once.
func LiveRescale() World {
	return World{
		Live: true, Lead: Between{5 * time.Second, 90 * time.Second}, Drain: Between{2 * time.Second, 30 * time.Second}, PerDay: 48, Burst: 12,
		Return: Between{5 * time.Second, 90 * time.Second},
	}
}

// mode is the job's autoscale.mode in this world.
func (w World) mode() string {
	if w.Live {
		return job.ModeLive
	}
	return job.ModeRestart
}

// validate says what makes a world impossible.
func (w World) validate() error {
	for _, b := range []struct {
		name string
		Between
	}{{"outage", w.Outage}, {"lead", w.Lead}, {"drain", w.Drain}, {"return", w.Return}} {
		if b.From < 0 || b.To < b.From || b.To > LongestOutage {
			return fmt.Errorf("replay: %s %v: want two durations of 0 to 24h, the first not above the second", b.name, b.Between)
		}
	}
	switch {
	case w.PerDay < 0 || w.Burst < 0 || w.PerDay > 0 && w.Burst >= w.PerDay:
		return fmt.Errorf("replay: %d rescales a day, %d at once: want fewer at once than a day", w.PerDay, w.Burst)
	case !(w.LossesPerDay >= 0 && w.LossesPerDay <= 1440):
		return errors.New("replay: workers lost a day: want 0 to 1440")
	case !(w.ForecastBias >= LeastBias && w.ForecastBias <= MostBias) || !(w.ForecastNoise >= 0 && w.ForecastNoise <= MostNoise):
		return fmt.Errorf("replay: the forecast's bias must lie between %v and %v, its noise between 0 and %v", LeastBias, MostBias, MostNoise)
	}
	return nil
}

// budget is how many rescales are allowed now; it fills as time goes by.
type budget struct {
	limited bool
	left    float64
	burst   float64
	every   float64 // s
	at      float64
}

func newBudget(w World) budget {
	if w.PerDay == 0 {
		return budget{}
	}
	return budget{limited: true, left: float64(w.Burst), burst: float64(w.Burst), every: day.Seconds() / float64(w.PerDay-w.Burst)}
}

// fill brings the budget up to now.
func (b *budget) fill(now float64) {
	b.left = min(b.burst, b.left+(now-b.at)/b.every)
	b.at = now
}

// view is what a policy sees of the budget.
func (b *budget) view(now float64) plan.Budget {
	if !b.limited {
		return plan.Budget{}
	}
	b.fill(now)
	whole := math.Floor(b.left)
	return plan.Budget{Limited: true, Left: int(whole), Next: seconds((whole + 1 - b.left) * b.every), Every: seconds(b.every)}
}

// take uses one rescale, if one is left.
func (b *budget) take(now float64) bool {
	if !b.limited {
		return true
	}
	b.fill(now)
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}
