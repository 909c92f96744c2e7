package forecast

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// days are so many days of bins of 10 minutes from midnight, a sine each, without noise.
func days(n int) Series {
	s := Series{Start: time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC), Step: 10 * time.Minute, Values: make([]float64, n*144)}
	for i := range s.Values {
		s.Values[i] = 100 + 60*math.Sin(2*math.Pi*float64(i)/144)
	}
	return s
}

// scale multiplies the bins from one moment to another.
func scale(s Series, from, to time.Time, factor float64) {
	for i := s.Bin(from); i < s.Bin(to) && i < len(s.Values); i++ {
		s.Values[i] *= factor
	}
}

// worst is the largest error of a forecast of 12 bins at each of several origins, as a share of what came.
func worst(t *testing.T, f Forecaster, truth Series, origins ...time.Time) (off float64) {
	t.Helper()
	for _, at := range origins {
		got, err := f.Forecast(truth.Until(at), 12)
		if err != nil {
			t.Fatal(err)
		}
		for h, v := range got.Mean {
			came := truth.Values[truth.Bin(at)+h]
			off = max(off, math.Abs(v-came)/came)
			if v < got.Lower[h] || v > got.Upper[h] {
				t.Errorf("at %v, bin %d: %v is not in its band from %v to %v", at, h, v, got.Lower[h], got.Upper[h])
			}
		}
	}
	return off
}

// An event is foreseen before it begins, and the day after it nobody expects it again.
func TestCalendarEvent(t *testing.T) {
	t.Parallel()
	truth := days(7)
	from := truth.Start.Add(5*24*time.Hour + 8*time.Hour)
	to := from.Add(4 * time.Hour)
	scale(truth, from, to, 2)
	calendar := Calendar{Events: []Event{{Name: "sale", From: from, To: to, Uplift: 2}}}
	plain := NewSeasonal([]time.Duration{24 * time.Hour})
	known := calendar.With(plain)
	origins := []time.Time{from.Add(-time.Hour), from, to.Add(-time.Hour), to, from.Add(23 * time.Hour), to.Add(23 * time.Hour)}
	if off := worst(t, known, truth, origins...); off > 0.001 {
		t.Errorf("with the calendar it is off by %.1f %%", 100*off)
	}
	if off := worst(t, plain, truth, origins[0]); off < 0.4 {
		t.Errorf("without the calendar it is off by %.1f %% only: the test tells nothing", 100*off)
	}
	if got := calendar.Within(from.Add(-time.Hour), from.Add(time.Minute), nil); got != "sale counts ×2" {
		t.Errorf("within: %q", got)
	}
	if got := calendar.Within(to, to.Add(time.Hour), nil); got != "" {
		t.Errorf("after it: %q", got)
	}
}

// All that a forecast says of a bin is multiplied once, and the forecast itself stays as it is: it may be remembered.
func TestCalendarApply(t *testing.T) {
	at := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	low := []float64{8, 80}
	f := Forecast{At: at, Step: time.Hour, Mean: []float64{10, 100}, Lower: low, Upper: []float64{12, 120}, Quantiles: [][]float64{low}, Scenarios: [][]float64{{9, 90}}}
	got, err := Calendar{Events: []Event{{Name: "sale", From: at.Add(time.Hour), To: at.Add(2 * time.Hour), Uplift: 2}}}.
		Forecast(Series{Start: at.Add(-time.Hour), Step: time.Hour, Values: []float64{1}}, 2, func(Series, int) (Forecast, error) { return f, nil })
	if err != nil {
		t.Fatal(err)
	}
	want := Forecast{At: at, Step: time.Hour, Mean: []float64{10, 200}, Lower: []float64{8, 160}, Upper: []float64{12, 240}, Quantiles: [][]float64{{8, 160}}, Scenarios: [][]float64{{9, 180}}, Usual: []float64{10, 100}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if low[1] != 80 || f.Mean[1] != 100 || f.Scenarios[0][1] != 90 {
		t.Errorf("the forecast was changed: %+v", f)
	}
}

// What a calendar does to a history is told by bins; the history itself stays as it is.
func TestCalendarPlain(t *testing.T) {
	at := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	s := Series{Start: at, Step: time.Hour, Values: []float64{100, 100, 100, 100, 100, 100}}
	c := Calendar{Events: []Event{
		{Name: "half an hour", From: at.Add(30 * time.Minute), To: at.Add(time.Hour), Uplift: 3},
		{Name: "less", From: at.Add(2 * time.Hour), To: at.Add(4 * time.Hour), Uplift: 0.5},
		{Name: "within", From: at.Add(3 * time.Hour), To: at.Add(4 * time.Hour), Uplift: 4},
	}}
	for i, v := range c.Plain(s).Values {
		if want := []float64{50, 100, 200, 50, 100, 100}[i]; v != want {
			t.Errorf("bin %d is %v, want %v", i, v, want)
		}
	}
	if s.Values[0] != 100 || s.Values[2] != 100 {
		t.Errorf("the history was changed: %v", s.Values)
	}
	if f := NewNaive(time.Hour); (Calendar{}).With(f) != f {
		t.Error("an empty calendar changes a forecaster")
	}
}
