package forecast

import (
	"slices"
	"time"
)

// timeFeature is where in a cycle of the calendar a bin begins, in UTC, from −0.5
// to 0.5: as GluonTS and FEDformer's code compute them.
type timeFeature struct {
	name  string
	cycle time.Duration
	of    func(t time.Time) float64
}

// timeFeatures are all that the contract knows.
var timeFeatures = []timeFeature{
	{"second_of_minute", time.Minute, func(t time.Time) float64 { return float64(t.Second()) / 59 }},
	{"minute_of_hour", time.Hour, func(t time.Time) float64 { return float64(t.Minute()) / 59 }},
	{"hour_of_day", 24 * time.Hour, func(t time.Time) float64 { return float64(t.Hour()) / 23 }},
	{"day_of_week", 7 * 24 * time.Hour, func(t time.Time) float64 { return float64((t.Weekday()+6)%7) / 6 }}, // from Monday
	{"day_of_month", 31 * 24 * time.Hour, func(t time.Time) float64 { return float64(t.Day()-1) / 30 }},
	{"day_of_year", 366 * 24 * time.Hour, func(t time.Time) float64 { return float64(t.YearDay()-1) / 365 }},
}

// timeFeatureNames are the names of [timeFeatures], in their order.
func timeFeatureNames() []string {
	names := make([]string, len(timeFeatures))
	for i, f := range timeFeatures {
		names[i] = f.name
	}
	return names
}

// marks are the named time features, which exist, of n bins of the given length,
// the first of which begins at t: row-major, one row per bin.
func marks(names []string, t time.Time, step time.Duration, n int) []float32 {
	out := make([]float32, 0, n*len(names))
	of := make([]func(time.Time) float64, len(names))
	for i, name := range names {
		of[i] = timeFeatures[slices.IndexFunc(timeFeatures, func(f timeFeature) bool { return f.name == name })].of
	}
	t = t.UTC()
	for i := range n {
		at := t.Add(time.Duration(i) * step)
		for _, f := range of {
			out = append(out, float32(f(at)-0.5))
		}
	}
	return out
}
