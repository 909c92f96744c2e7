package forecast

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"
)

const thousand = 1000

// fleet is a thousand jobs, each with a history and a forecaster of its own.
type fleet struct {
	step        time.Duration
	bins        int // of each history, a window that moves on
	histories   [][]float64
	steps       []int
	forecasters []Forecaster
}

// newFleet makes jobs of the same length of history and with horizons of half an hour to two hours. Levels, shapes of the day and noise are each job's own.
func newFleet(jobs int, step, history time.Duration, rounds int) *fleet {
	const day = 24 * time.Hour
	f := &fleet{step: step, bins: int(history / step)}
	rng := rand.New(rand.NewPCG(11, 13))
	for range jobs {
		y := make([]float64, f.bins+rounds)
		level, shift := 100+10_000*rng.Float64(), rng.Float64()
		for i := range y {
			y[i] = level * cycle(float64(i)*float64(step)/float64(day)+shift) * (1 + 0.1*rng.NormFloat64())
			y[i] = max(y[i], 0)
		}
		f.histories = append(f.histories, y)
		f.steps = append(f.steps, int((30*time.Minute+time.Duration(rng.IntN(7))*15*time.Minute)/step))
		f.forecasters = append(f.forecasters, NewSeasonal([]time.Duration{day, 7 * day}))
	}
	return f
}

// busy is how much processor time this process has had.
func busy(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// round makes one forecast of each job after so many bins have arrived, and says how much processor time that took.
func (f *fleet) round(tb testing.TB, arrived int) time.Duration {
	began := busy(tb)
	for j, fc := range f.forecasters {
		s := Series{Start: time.Unix(0, 0).Add(time.Duration(arrived) * f.step), Step: f.step, Values: f.histories[j][arrived : arrived+f.bins]}
		if _, err := fc.Forecast(s, f.steps[j]); err != nil {
			tb.Fatal(err)
		}
	}
	return busy(tb) - began
}

// BenchmarkThousandJobs is a round of forecasts for a thousand jobs on one core, as each bin arrives. An operation is as many rounds as a lesson serves, in one
// of which every lesson is learnt anew: s/round is their mean, s/lessons that round, s/kept the mean of the others, and s/cold the very first round.
func BenchmarkThousandJobs(b *testing.B) {
	for _, c := range []struct{ step, history time.Duration }{{5 * time.Minute, 28 * 24 * time.Hour}, {time.Minute, 14 * 24 * time.Hour}} {
		b.Run(fmt.Sprintf("%v,%dd", length(c.step), int(c.history.Hours()/24)), func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			rounds := int(24*time.Hour/c.step) / lessonShare
			f := newFleet(thousand, c.step, c.history, 2*rounds)
			cold := f.round(b, 0)
			var kept, lessons time.Duration
			arrived := 0
			for b.Loop() {
				for range rounds {
					arrived = arrived%(2*rounds) + 1
					took := f.round(b, arrived)
					if arrived%rounds == 0 {
						lessons += took
					} else {
						kept += took
					}
				}
			}
			n := float64(b.N)
			b.ReportMetric(cold.Seconds(), "s/cold")
			b.ReportMetric(lessons.Seconds()/n, "s/lessons")
			b.ReportMetric(kept.Seconds()/n/float64(rounds-1), "s/kept")
			b.ReportMetric((kept+lessons).Seconds()/n/float64(rounds), "s/round")
		})
	}
}
