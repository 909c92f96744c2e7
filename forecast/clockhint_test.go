package forecast

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
	_ "time/tzdata" // zones that a machine may not have
)

// lived is five weeks of days and weekends by the clock of a zone, with noise.
func lived(t *testing.T, zone string, from time.Time, noise float64) Series {
	t.Helper()
	z, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(8, 8))
	s := Series{Start: from, Step: 15 * time.Minute, Values: make([]float64, 35*96)}
	for i := range s.Values {
		at := s.At(i).In(z)
		v := cycle((float64(at.Hour()) + float64(at.Minute())/60) / 24)
		if d := at.Weekday(); d == time.Saturday || d == time.Sunday {
			v *= 0.6
		}
		s.Values[i] = v * math.Exp(noise*rng.NormFloat64())
	}
	return s
}

func TestClocks(t *testing.T) {
	spring, autumn, summer := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 10, 12, 0, 0, 0, 0, time.UTC), time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, zone string
		from       time.Time
		noise      float64
		want       string
	}{
		{"the USA in spring", "America/Los_Angeles", spring.AddDate(0, 0, -8), 0.05, "America/New_York"},
		{"Europe in spring", "Europe/Paris", spring.AddDate(0, 0, 3), 0.05, "Europe/Berlin"},
		{"Europe in autumn", "Europe/Paris", autumn, 0.05, "Europe/Berlin"},
		{"the USA in autumn", "America/Chicago", autumn.AddDate(0, 0, 4), 0.05, "America/New_York"},
		{"Japan", "Asia/Tokyo", spring, 0.05, ""},
		{"UTC", "UTC", autumn, 0.05, ""},
		{"between two changes", "Europe/Paris", summer, 0.05, ""},
		{"mostly noise", "Europe/Paris", spring.AddDate(0, 0, 3), 3, ""},
	} {
		h, moves := lived(t, c.zone, c.from, c.noise).Clocks()
		if moves != (c.want != "") || h.Zone != c.want {
			t.Errorf("%s: %+v, %v, want %q", c.name, h, moves, c.want)
		}
	}
	if _, moves := (Series{Start: spring, Step: 7 * time.Hour, Values: make([]float64, 300)}).Clocks(); moves {
		t.Error("bins longer than the change tell of one")
	}
}
