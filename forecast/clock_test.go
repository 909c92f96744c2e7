package forecast

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	_ "time/tzdata"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// byWallClock is traffic that keeps to a zone's clock.
func byWallClock(z *time.Location, from time.Time, step time.Duration, bins int) Series {
	s := Series{Start: from, Step: step, Values: make([]float64, bins)}
	for i := range s.Values {
		at := s.At(i).In(z)
		s.Values[i] = 1000 * cycle((float64(at.Hour())+float64(at.Minute())/60)/24)
	}
	return s
}

// Where clocks are put forward or back, what keeps to them is foreseen as on any other day: from the first hour on, and across the change.
func TestCalendarFollowsTheClock(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, c := range []struct {
		name, zone string
		change     time.Time
	}{
		{"spring", "Europe/Berlin", time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)},
		{"autumn", "Europe/Berlin", time.Date(2026, 10, 25, 1, 0, 0, 0, time.UTC)},
		{"the west's spring", "America/Los_Angeles", time.Date(2026, 3, 8, 10, 0, 0, 0, time.UTC)},
		{"half an hour", "Australia/Lord_Howe", time.Date(2026, 4, 4, 15, 0, 0, 0, time.UTC)},
	} {
		z := zone(t, c.zone)
		for _, after := range []time.Duration{-time.Hour, time.Hour + 30*time.Minute, 6 * time.Hour, 30 * time.Hour, 6 * day} {
			t.Run(c.name+", "+after.String(), func(t *testing.T) {
				t.Parallel()
				const step, steps = 10 * time.Minute, 18
				all := byWallClock(z, c.change.Add(after-15*day), step, int(15*day/step)+steps)
				n := len(all.Values) - steps
				past := Series{Start: all.Start, Step: step, Values: all.Values[:n]}
				wrong := func(f Forecaster) (sum float64) {
					got, err := f.Forecast(past, steps)
					if err != nil {
						t.Fatal(err)
					}
					if len(got.Mean) != steps || len(got.Lower) != steps || len(got.Quantiles[0]) != steps || !got.At.Equal(past.End()) {
						t.Fatalf("a forecast of %d bins, band %d, quantiles %d, from %v", len(got.Mean), len(got.Lower), len(got.Quantiles[0]), got.At)
					}
					for h, a := range all.Values[n:] {
						sum += math.Abs(a - got.Mean[h])
					}
					return sum / steps
				}
				heeded, blind := wrong(Calendar{Zone: z}.With(NewSeasonal([]time.Duration{day}))), wrong(NewSeasonal([]time.Duration{day}))
				// At a change an hour of the past is missing, or comes twice, within the horizon.
				if most := max(1, blind/2); heeded > most {
					t.Errorf("off by %.2f of 1000 with the clock, by %.2f without", heeded, blind)
				}
			})
		}
	}
}

// No history and no zone makes it fail, and what is learnt from ends where the history does.
func TestByClockKeepsTheEnd(t *testing.T) {
	t.Parallel()
	zones := []*time.Location{nil, time.UTC, zone(t, "Europe/London"), zone(t, "America/St_Johns"), zone(t, "Pacific/Apia"), zone(t, "Antarctica/Troll")}
	rng := rand.New(rand.NewPCG(7, 7))
	for range 3000 {
		z := zones[rng.IntN(len(zones))]
		step := []time.Duration{time.Minute, 7 * time.Minute, 30 * time.Minute, time.Hour, 6 * time.Hour}[rng.IntN(5)]
		s := Series{Start: time.Date(2011, 12, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(rng.IntN(500*24*60)) * time.Minute), Step: step, Values: make([]float64, 1+rng.IntN(3000))}
		sum := 0.0
		for i := range s.Values {
			s.Values[i] = 1 + rng.Float64()
			sum += s.Values[i]
		}
		c := Calendar{Zone: z}
		got := c.Plain(s)
		if !got.End().Equal(s.End()) || got.Step != step {
			t.Fatalf("%v: bins of %v from %v end at %v, and became ones of %v that end at %v", z, step, s.Start, s.End(), got.Step, got.End())
		}
		_, err := c.Forecast(s, 1+rng.IntN(200), func(_ Series, n int) (Forecast, error) {
			f := Forecast{At: s.End(), Step: step, Mean: make([]float64, n), Lower: make([]float64, n), Upper: make([]float64, n)}
			return f, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// In spring an hour of it is unknown, and what follows is an hour later than it was.
	start := time.Date(2026, 3, 28, 22, 0, 0, 0, time.UTC)
	got := Calendar{Zone: zone(t, "Europe/Berlin")}.Plain(Series{Start: start, Step: time.Hour, Values: []float64{1, 2, 3, 4, 5}})
	if want := []float64{1, 2, 3, math.NaN(), 4, 5}; !sameValues(got.Values, want) {
		t.Errorf("spring: %v, want %v", got.Values, want)
	}
	start = time.Date(2026, 10, 24, 22, 0, 0, 0, time.UTC) // 0:00, 1:00, 2:00, 2:00, 3:00
	got = Calendar{Zone: zone(t, "Europe/Berlin")}.Plain(Series{Start: start, Step: time.Hour, Values: []float64{1, 2, 3, 4, 5}})
	if want := []float64{math.NaN(), 1, 2, 3.5, 5}; !sameValues(got.Values, want) {
		t.Errorf("autumn: %v, want %v", got.Values, want)
	}
}

func sameValues(a, b []float64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] && (a[i] == a[i] || b[i] == b[i]) {
			return false
		}
	}
	return true
}
