package stream

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Reference: Kale §4.4 (paper.md, arrival rate): within 10 minutes, p95 9.5 % and p99 12.5 %.
func TestSyntheticWeekChanges(t *testing.T) {
	for _, seed := range []uint64{0, 1, 7, 42, 2024} {
		c := SyntheticWeek(seed)
		p95, p99, most := changes(c.Rates, 10)
		_, _, hour := changes(c.Rates, 60)
		t.Logf("seed %d: p95 %.2f %%, p99 %.2f %%, max %.2f %%; within 60 min max x%.2f", seed, p95, p99, most, 1+hour/100)
		if math.Abs(p95-9.5) > 1 {
			t.Errorf("seed %d: p95 of the change within 10 minutes is %.2f %%, want 9.5 ± 1", seed, p95)
		}
		if math.Abs(p99-12.5) > 1.5 {
			t.Errorf("seed %d: p99 of the change within 10 minutes is %.2f %%, want 12.5 ± 1.5", seed, p99)
		}
		if most > 26 {
			t.Errorf("seed %d: the largest change within 10 minutes is %.2f %%, want at most 26", seed, most)
		}
	}
}

// changes gives percentiles of |r(t+k)/r(t) - 1| in percent.
func changes(rates []float64, k int) (p95, p99, most float64) {
	var d []float64
	for i := 0; i+k < len(rates); i++ {
		d = append(d, 100*math.Abs(rates[i+k]/rates[i]-1))
	}
	slices.Sort(d)
	return d[len(d)*95/100], d[len(d)*99/100], d[len(d)-1]
}

// Reference: Kale §4.4 (paper.md): the hourly means of weekday, Friday and weekend, from Monday on.
func TestSyntheticWeekHours(t *testing.T) {
	want := [][24]float64{weekdayHours, weekdayHours, weekdayHours, weekdayHours, fridayHours, weekendHours, weekendHours}
	for _, seed := range []uint64{1, 2, 3} {
		c := SyntheticWeek(seed)
		if len(c.Rates) != 7*24*60 || c.Start.Weekday() != time.Monday || c.Gaps() != 0 {
			t.Fatalf("%d bins from a %s with %d gaps; want a whole week from Monday", len(c.Rates), c.Start.Weekday(), c.Gaps())
		}
		worst := 0.0
		for h := range 7 * 24 {
			mean := Curve{Step: time.Minute, Rates: c.Rates[h*60 : h*60+60]}.Mean()
			worst = max(worst, math.Abs(mean/want[h/24][h%24]-1))
		}
		if worst > 0.08 { // what joining the hours costs, and their noise
			t.Errorf("seed %d: an hour's mean is off by %.1f %%, want at most 8 %%", seed, 100*worst)
		}
		t.Logf("seed %d: worst hour off by %.2f %%", seed, 100*worst)
	}
	if diff := cmp.Diff(SyntheticWeek(3).Rates, SyntheticWeek(3).Rates); diff != "" {
		t.Errorf("the same seed gave another week: %s", diff)
	}
}
