package forecast

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/forecast/holidays"
)

// partly is traffic of which a day comes so much of the way, in logarithms, from what its weekday has to what a Sunday has.
func partly(n int, days map[holidays.Date]float64) Series {
	ordinary := weeks(n, time.UTC, func(holidays.Date) float64 { return 0 })
	off := weeks(n, time.UTC, func(d holidays.Date) float64 {
		if _, ok := days[d]; ok {
			return 1
		}
		return 0
	})
	for i, v := range off.Values {
		if s, ok := days[holidays.DateOf(off.At(i))]; ok {
			off.Values[i] = ordinary.Values[i] * math.Pow(v/ordinary.Values[i], s)
		}
	}
	return off
}

// How much of a holiday comes is seen by noon: the rest of it is forecast by that, the day after as ever, and the bands hold what comes whether it is kept, half kept or not kept.
func TestHolidayKept(t *testing.T) {
	t.Parallel()
	seasons := []time.Duration{24 * time.Hour, 7 * 24 * time.Hour}
	const steps = 12
	for _, strength := range []float64{0, 0.5, 1} {
		truth := partly(9, map[holidays.Date]float64{date(4, 15): strength})
		c := Calendar{Holidays: holidays.Calendar{Rules: []holidays.Rule{on("feast", 4, 15, holidays.How{})}}}
		begin := time.Date(2026, 4, 15, 0, 0, 0, 0, time.UTC)
		noon := begin.Add(12 * time.Hour)
		if got := c.look(truth.Until(noon), steps).days.now.mean; math.Abs(got-strength) > 0.15 {
			t.Errorf("kept to %.1f: at noon its strength is measured as %.2f", strength, got)
		}
		f := c.With(NewSeasonal(seasons))
		if got := wapeAt(t, f, truth, noon, noon.Add(6*time.Hour)); got > 0.1 {
			t.Errorf("kept to %.1f: the afternoon is off by %.1f %%", strength, 100*got)
		}
		if got := wapeAt(t, f, truth, begin.Add(30*time.Hour), begin.Add(42*time.Hour)); got > 0.04 {
			t.Errorf("kept to %.1f: the day after is off by %.1f %%", strength, 100*got)
		}
		inside, bins := 0.0, 0.0
		for o := truth.Bin(begin) - steps; o < truth.Bin(begin)+48-steps; o++ {
			fc, err := f.Forecast(truth.Until(truth.At(o)), steps)
			if err != nil {
				t.Fatal(err)
			}
			if err := fc.Validate(); err != nil {
				t.Fatal(err)
			}
			for h := range steps {
				if !truth.At(o + h).Before(begin) {
					s := fc.bin(h)
					inside, bins = inside+within(truth.Values[o+h], s.q05, s.q95), bins+1
				}
			}
		}
		if inside/bins < 0.8 {
			t.Errorf("kept to %.1f: the bands of 90 %% hold %.1f %% of it", strength, 100*inside/bins)
		}
	}
}

// How far past holidays came otherwise than was expected is how wide the bands of the next one are.
func TestHolidayDoubtIsLearnt(t *testing.T) {
	t.Parallel()
	rules := []holidays.Rule{on("first", 3, 25, holidays.How{}), on("second", 4, 8, holidays.How{}), on("third", 4, 22, holidays.How{})}
	c := Calendar{Holidays: holidays.Calendar{Rules: rules}}
	begin := time.Date(2026, 4, 22, 0, 0, 0, 0, time.UTC)
	width := func(strength float64) float64 {
		truth := partly(9, map[holidays.Date]float64{date(3, 25): strength, date(4, 8): strength})
		days := c.look(truth.Until(begin), 48).days
		return math.Sqrt(days.doubt(days.index(date(4, 22)), date(4, 22), days.holiday(date(4, 22))))
	}
	kept, not := width(1), width(0)
	if kept > 0.4 || not < 0.6 {
		t.Errorf("the standard deviation of the third one's strength is %.2f after two that were kept, and %.2f after two that were not", kept, not)
	}
}

// A workday between a holiday and a day off is a bridge day, which is kept by half until one was seen.
func TestBridgeDays(t *testing.T) {
	t.Parallel()
	half := 0.5
	for _, c := range []struct {
		rule holidays.Rule
		day  int
		want bool
	}{
		{on("thursday", 4, 9, holidays.How{}), 10, true},
		{on("thursday", 4, 9, holidays.How{}), 8, false},
		{on("tuesday", 4, 14, holidays.How{}), 13, true},
		{on("tuesday", 4, 14, holidays.How{}), 15, false},
		{on("wednesday", 4, 8, holidays.How{}), 9, false},
		{on("monday", 4, 13, holidays.How{}), 10, false},                // its neighbour is a Saturday, and the day before a Thursday
		{on("friday", 4, 10, holidays.How{}), 11, false},                // no workday
		{on("thursday", 4, 9, holidays.How{Uplift: &half}), 10, false},  // no day off
		{on("thursday", 4, 9, holidays.How{Like: friday()}), 10, false}, // where Fridays are off
	} {
		truth := partly(5, nil)
		days := newDayTable(holidays.Calendar{Rules: []holidays.Rule{c.rule}}, nil, truth)
		if f := days.holiday(date(4, c.day)); (f != nil && f.bridge) != c.want {
			t.Errorf("%s: %d April is %+v, want a bridge day %v", c.rule.Name, c.day, f, c.want)
		}
	}
	rules := []holidays.Rule{on("one", 4, 9, holidays.How{}), on("two", 4, 30, holidays.How{})}
	cal := Calendar{Holidays: holidays.Calendar{Rules: rules}}
	seasons := []time.Duration{24 * time.Hour, 7 * 24 * time.Hour}
	truth := partly(11, map[holidays.Date]float64{date(4, 9): 1, date(4, 10): 1, date(4, 30): 1, date(5, 1): 1})
	morning := func(m time.Month, d int) float64 {
		at := time.Date(2026, m, d, 6, 0, 0, 0, time.UTC)
		f, err := cal.With(NewSeasonal(seasons)).Forecast(truth.Until(at.Add(-6*time.Hour)), 36)
		if err != nil {
			t.Fatal(err)
		}
		said, came := 0.0, 0.0
		for h := 12; h < 36; h++ {
			said, came = said+f.Mean[h], came+truth.Values[truth.Bin(f.At)+h]
		}
		return said / came
	}
	// A Friday is 2.3 times a Sunday from six to six.
	if first, next := morning(4, 10), morning(5, 1); first < 1.2 || first > 1.9 || next < 0.9 || next > 1.1 {
		t.Errorf("the first bridge day is foreseen as %.2f times what comes, want about 1.5; the next one as %.2f times, want 1", first, next)
	}
}

func friday() *time.Weekday {
	day := time.Friday
	return &day
}

// Where no holiday is near, forecasts are those without holidays, to the bit: mean, quantiles and scenarios.
func TestNoHolidayNear(t *testing.T) {
	t.Parallel()
	seasons := []time.Duration{24 * time.Hour, 7 * 24 * time.Hour}
	truth := partly(4, nil)
	c := Calendar{Holidays: holidays.Calendar{Rules: []holidays.Rule{on("feast", 6, 4, holidays.How{})}}}
	want, err := NewSeasonal(seasons).Forecast(truth, 48)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.With(NewSeasonal(seasons)).Forecast(truth, 48)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, %s", err, diff)
	}
}

// What is not known of a bin widens quantiles and scenarios by the same, and leaves the middle where it is.
func TestBlurred(t *testing.T) {
	const n = 32
	f := Forecast{Mean: []float64{100, 100}, Levels: slices.Clone(spreadLevels), Source: "test"}
	for range f.Levels {
		f.Quantiles = append(f.Quantiles, []float64{100, 100})
	}
	for range n {
		f.Scenarios = append(f.Scenarios, []float64{100, 100})
	}
	f.bound()
	got := f.blurred([]float64{0, 0.3})
	if err := got.Validate(); err != nil {
		t.Fatal(err)
	}
	squares := 0.0
	for _, row := range got.Scenarios {
		squares += math.Pow(math.Log(row[1]/100), 2) / n
	}
	if sd := math.Sqrt(squares); math.Abs(sd-0.3) > 0.03 {
		t.Errorf("the scenarios' standard deviation is %.3f, want 0.3", sd)
	}
	upper, want := got.Upper[1], 100*math.Exp(0.3*zOf(0.9))
	if math.Abs(upper-want) > 1e-9 || got.Upper[0] != 100 || f.Upper[1] != 100 || got.quantile(0.5)[1] != 100 {
		t.Errorf("upper is %v, want 100 and %v; that of the forecast itself %v", got.Upper, want, f.Upper)
	}
}

// The night after a holiday has of its evening what the nights after earlier ones had, and from the hour of the least traffic on the day is an ordinary one. Where the holiday was not kept, neither
// is its night.
func TestNightAfterHoliday(t *testing.T) {
	t.Parallel()
	seasons := []time.Duration{24 * time.Hour, 7 * 24 * time.Hour}
	const lowest = 8 // the bin from four o'clock on
	feast := time.Date(2026, 4, 20, 0, 0, 0, 0, time.UTC)
	after := feast.AddDate(0, 0, 1)
	rules := []holidays.Rule{on("first", 3, 16, holidays.How{}), on("second", 4, 1, holidays.How{}), on("third", 4, 20, holidays.How{})}
	// traffic is that of Sundays on the two first, and on the third as far as it is kept. The nights after them have so much of it, which fades.
	traffic := func(kept, nights float64) Series {
		s := Series{Start: time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC), Step: 30 * time.Minute}
		strength := map[holidays.Date]float64{date(3, 16): 1, date(4, 1): 1, date(4, 20): kept}
		for i := range 9 * 7 * 48 {
			day := holidays.DateOf(s.At(i))
			off := strength[day] // of a Sunday
			if before := strength[day.Plus(-1)]; i%48 < lowest {
				off += nights * before * (1 - float64(i%48)/lowest)
			}
			if day.Weekday() == time.Sunday {
				off = 1
			}
			v := 100 - 70*math.Cos(2*math.Pi*float64(i%48-lowest)/48)
			s.Values = append(s.Values, v*math.Pow(0.4, off)*(1+0.03*math.Sin(7.7*float64(i)*float64(i))))
		}
		return s
	}
	c := Calendar{Holidays: holidays.Calendar{Rules: rules}}
	f := c.With(NewSeasonal(seasons))
	for _, tt := range []struct{ kept, nights float64 }{{1, 1}, {1, 0}, {0, 1}, {0, 0}} {
		truth := traffic(tt.kept, tt.nights)
		off := func(from, to int) float64 {
			return wapeAt(t, f, truth, after.Add(time.Duration(from)*truth.Step), after.Add(time.Duration(to)*truth.Step))
		}
		if night, day := off(-12, 8), off(8, 36); night > 0.12 || day > 0.05 {
			t.Errorf("%+v: forecasts from the evening and the night after it are off by %.1f %%, those of the day by %.1f %%", tt, 100*night, 100*day)
		}
		plain := c.Plain(truth.Until(after.Add(12 * time.Hour)))
		ordinary := truth.Bin(after.AddDate(0, 0, 7))
		for h := range 24 {
			if is, usual := plain.Values[truth.Bin(after)+h], truth.Values[ordinary+h]; math.Abs(math.Log(is/usual)) > 0.25 {
				t.Errorf("%+v: without the holiday bin %d of the day after is %.0f, usually it is %.0f", tt, h, is, usual)
			}
		}
	}
	// Of the first nothing is known but that it is one: a half of its evening is expected in its night.
	first := traffic(1, 1)
	days := c.look(first.Until(time.Date(2026, 3, 16, 12, 0, 0, 0, time.UTC)), 48).days
	ratio, _ := days.evening(date(3, 17), 0)
	if want := math.Pow(0.4, 0.5*(1-0.5/lowest)); math.Abs(math.Log(ratio/want)) > 0.1 {
		t.Errorf("after the first holiday midnight has %.2f of what comes usually, want %.2f", ratio, want)
	}
}
