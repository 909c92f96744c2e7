package replay

import (
	"math"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/examples"
)

// reference is the reference job.
func reference(t testing.TB) *job.Job {
	t.Helper()
	j, _, diags := job.Parse(examples.Replay, "replay.hcl", job.Options{})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return j
}

// week is the last days of the synthetic week, with forecasts that cost nothing to make.
func week(t testing.TB, days int, o Options) *Comparison {
	t.Helper()
	o.Forecaster = PerfectForecast
	return compare(t, reference(t), SyntheticWeek(1), CourseOptions{Days: days}, o)
}

func compare(t testing.TB, j *job.Job, tr Trace, co CourseOptions, o Options) *Comparison {
	t.Helper()
	co.Interval, co.Past = j.Forecast.Interval, PastNeeded(j)
	course, err := NewCourse(tr, co)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(t.Context(), j, course, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var monday = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// minutely is a trace of one-minute bins.
func minutely(rates ...float64) Trace {
	return Trace{Name: "test", Curve: stream.Curve{Start: monday, Step: time.Minute, Rates: rates}}
}

func flat(rate float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = rate
	}
	return out
}

func near(a, b, tolerance float64) bool {
	return math.Abs(a-b) <= tolerance*max(1, math.Abs(a), math.Abs(b))
}

// sequence is a decider that does what it is told: from each time on so many workers.
type sequence map[time.Duration]int

func (s sequence) decide(r *run) (int, bool) {
	n, ok := s[seconds(r.q.t)]
	return n, ok
}
