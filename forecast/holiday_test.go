package forecast

import (
	"math"
	"testing"
	"time"

	"github.com/kale-sched/kale/forecast/holidays"
)

// weeks are so many weeks of bins of half an hour by a zone's clock, from Monday 2 March 2026: people are up later and for less on Saturdays and Sundays, and on what days holiday says it is so many times a
// Sunday, with a little noise.
func weeks(n int, zone *time.Location, holiday func(holidays.Date) float64) Series {
	s := Series{Start: time.Date(2026, 3, 2, 0, 0, 0, 0, zone), Step: 30 * time.Minute, Values: make([]float64, n*7*48)}
	for i := range s.Values {
		at := s.At(i).In(zone)
		day := holidays.DateOf(at)
		phase := (float64(at.Hour()) + float64(at.Minute())/60) / 24
		v := 100 + 70*math.Sin(2*math.Pi*(phase-0.3))
		if at.Weekday() == time.Saturday || at.Weekday() == time.Sunday || holiday(day) > 0 {
			v = 50 + 30*math.Sin(2*math.Pi*(phase-0.45))
		}
		if by := holiday(day); by > 0 {
			v *= by
		}
		s.Values[i] = v * (1 + 0.03*math.Sin(7.7*float64(i)*float64(i)))
	}
	return s
}

func date(m time.Month, d int) holidays.Date { return holidays.Date{Year: 2026, Month: m, Day: d} }

func on(name string, m time.Month, d int, how holidays.How) holidays.Rule {
	return holidays.Rule{Name: name, From: date(m, d), To: date(m, d), How: how}
}

// dayError is the error over a day of forecasts of six hours, from six hours before it begins on.
func dayError(t *testing.T, f Forecaster, truth Series, begin time.Time) float64 {
	t.Helper()
	return wapeAt(t, f, truth, begin.Add(-6*time.Hour), begin.Add(24*time.Hour))
}

// A holiday is foreseen as a day of its own kind, from the midnight before it on; the eve of it, the day after it and the same weekday a week later are as without one.
func TestHoliday(t *testing.T) {
	t.Parallel()
	zone := zone(t, "Europe/Berlin")
	seasons := []time.Duration{24 * time.Hour, 7 * 24 * time.Hour}
	wednesday := date(4, 15) // the clock was put forward on 29 March
	truth := weeks(9, zone, func(d holidays.Date) float64 {
		if d == wednesday {
			return 1
		}
		return 0
	})
	ordinary := weeks(9, zone, func(holidays.Date) float64 { return 0 })
	known := Calendar{Zone: zone, Holidays: holidays.Calendar{Rules: []holidays.Rule{on("feast", 4, 15, holidays.How{})}}}
	blind := Calendar{Zone: zone}
	begin := time.Date(2026, 4, 15, 0, 0, 0, 0, zone)
	seasonal := NewSeasonal(seasons)
	for _, f := range []Forecaster{seasonal, NewEnsemble(seasonal, NewNaive(7*24*time.Hour)), NewNaive(7 * 24 * time.Hour)} {
		with, without := dayError(t, known.With(f), truth, begin), dayError(t, blind.With(f), truth, begin)
		if with > 0.1 || without < 2*with {
			t.Errorf("%s: on the holiday it is off by %.1f %%, and by %.1f %% where it does not know of it", f.Name(), 100*with, 100*without)
		}
		for _, later := range []int{-1, 1, 2, 7} { // the eve, the days after, and a week after
			at := time.Date(2026, 4, 15+later, 6, 0, 0, 0, zone)
			asEver := wapeAt(t, blind.With(f), ordinary, at, at.Add(18*time.Hour))
			if later == -1 {
				at, asEver = at.Add(-6*time.Hour), wapeAt(t, blind.With(f), ordinary, at.Add(-6*time.Hour), at.Add(12*time.Hour))
			}
			to := at.Add(18 * time.Hour)
			if got := wapeAt(t, known.With(f), truth, at, to); got > asEver+0.015 {
				t.Errorf("%s: %d days after the holiday it is off by %.2f %%, where there was none by %.2f %%", f.Name(), later, 100*got, 100*asEver)
			}
		}
	}
	week := begin.AddDate(0, 0, 7)
	if got, spoilt := dayError(t, known.With(NewNaive(7*24*time.Hour)), truth, week), dayError(t, blind.With(NewNaive(7*24*time.Hour)), truth, week); spoilt < 3*got {
		t.Errorf("a week after it is off by %.1f %%, and by %.1f %% where the holiday is in what is learnt: the test tells nothing", 100*got, 100*spoilt)
	}
}

// What holidays were is learnt: from those of the same name, or else from any, beside the day that they are said to be like.
func TestHolidayLearnt(t *testing.T) {
	t.Parallel()
	seasons := []time.Duration{24 * time.Hour, 7 * 24 * time.Hour}
	quiet, busy := date(3, 25), date(4, 8)
	truth := weeks(11, time.UTC, func(d holidays.Date) float64 {
		switch d {
		case quiet, date(5, 6):
			return 0.4
		case busy, date(5, 13):
			return 1.8
		}
		return 0
	})
	rules := []holidays.Rule{on("quiet", 3, 25, holidays.How{}), on("busy", 4, 8, holidays.How{})}
	off := func(d int, rule holidays.Rule) float64 {
		c := Calendar{Holidays: holidays.Calendar{Rules: append([]holidays.Rule{rule}, rules...)}}
		// At the first forecast nothing is known of the day but what the calendar says.
		begin := time.Date(2026, 5, d, 0, 0, 0, 0, time.UTC)
		f, err := c.With(NewSeasonal(seasons)).Forecast(truth.Until(begin), 48)
		if err != nil {
			t.Fatal(err)
		}
		missed, came := 0.0, 0.0
		for h, v := range f.Mean {
			a := truth.Values[truth.Bin(begin)+h]
			missed, came = missed+math.Abs(a-v), came+a
		}
		return missed / came
	}
	saturday, uplift := time.Saturday, 0.0
	for _, c := range []struct {
		day         int
		rule        holidays.Rule
		least, most float64
	}{
		{6, on("quiet", 5, 6, holidays.How{}), 0, 0.15},
		{13, on("busy", 5, 13, holidays.How{}), 0, 0.15},
		{6, on("quiet", 5, 6, holidays.How{Unlearnt: true}), 1.2, 1.8},                   // like a Sunday, which is 2.5 times as much
		{13, on("busy", 5, 13, holidays.How{Unlearnt: true, Like: &saturday}), 0.3, 0.6}, // 1/1.8 of it
		{6, on("new", 5, 6, holidays.How{}), 0.9, 1.4},                                   // ∛(0.4 · 1.8 · 1) of a Sunday
		{6, on("off", 5, 6, holidays.How{Uplift: &uplift}), 1, 1},
	} {
		if got := off(c.day, c.rule); got < c.least || got > c.most {
			t.Errorf("%s, %+v: off by %.1f %%, want %.0f to %.0f %%", c.rule.Name, c.rule.How, 100*got, 100*c.least, 100*c.most)
		}
	}
}

// A day that is no holiday is forecast as ever where the calendar has others, and a history of less than a week has no Sunday to be like.
func TestHolidayNotKnown(t *testing.T) {
	t.Parallel()
	truth := weeks(2, time.UTC, func(holidays.Date) float64 { return 0 })
	day := []time.Duration{24 * time.Hour}
	at := truth.Start.Add(3 * 24 * time.Hour)
	want, err := NewSeasonal(day).Forecast(truth.Until(at), 48)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []int{5, 20} { // of a history of three days, and none
		c := Calendar{Holidays: holidays.Calendar{Rules: []holidays.Rule{on("feast", 3, d, holidays.How{})}}}
		got, err := c.With(NewSeasonal(day)).Forecast(truth.Until(at), 48)
		if err != nil {
			t.Fatal(err)
		}
		for h, v := range got.Mean {
			if v != want.Mean[h] {
				t.Fatalf("a holiday on %d March: bin %d is %v, want %v", d, h, v, want.Mean[h])
			}
		}
	}
}

// What is under way and what comes is told with its times, holidays from midnight to midnight by the clock.
func TestOccasions(t *testing.T) {
	zone := zone(t, "America/New_York")
	us, err := holidays.Parse("us")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 27, 12, 0, 0, 0, zone)
	c := Calendar{Zone: zone, Holidays: holidays.Calendar{Rules: []holidays.Rule{us, {Name: "recess", From: holidays.Date{Month: 12, Day: 24}, To: holidays.Date{Month: 1, Day: 2}}}},
		Events: []Event{{Name: "sale", From: at.Add(-time.Hour), To: at.Add(time.Hour), Uplift: 3}}}
	if got := c.Within(at, at.Add(1), nil); got != "sale counts ×3" {
		t.Errorf("now: %q", got)
	}
	got := c.Occasions(at.Add(-24*time.Hour), at.Add(60*24*time.Hour), nil)
	want := []string{"Thanksgiving Day is a holiday", "sale counts ×3", "recess is a holiday", "Martin Luther King Jr. Day is a holiday"}
	for i, o := range got {
		if i >= len(want) || o.String() != want[i] {
			t.Errorf("%d: %v", i, o)
		}
	}
	if len(got) != len(want) || !got[0].From.Equal(time.Date(2026, 11, 26, 0, 0, 0, 0, zone)) || !got[2].To.Equal(time.Date(2027, 1, 3, 0, 0, 0, 0, zone)) {
		t.Errorf("%+v", got)
	}
}
