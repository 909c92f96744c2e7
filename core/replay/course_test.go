package replay

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/stream"
)

func curve(step time.Duration, rates ...float64) Trace {
	return Trace{Name: "test", Curve: stream.Curve{Start: monday, Step: step, Rates: rates}}
}

func concat(parts ...[]float64) []float64 {
	var out []float64
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

var nan = math.NaN()

// A gap of more than two bins ends a stretch; shorter ones are bridged, and what was bridged is not measured.
func TestCourseGaps(t *testing.T) {
	rates := concat(flat(10, 1440), []float64{nan, nan}, flat(16, 1438), flat(nan, 3), flat(20, 2880))
	rates[1440-1] = 10
	c, err := NewCourse(curve(time.Minute, rates...), CourseOptions{Days: 10, Interval: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Parts) != 2 || c.Days() != 4 {
		t.Fatalf("%d parts of %.2f days together, want two of 2 days each", len(c.Parts), c.Days())
	}
	first, second := c.Parts[0], c.Parts[1]
	if diff := cmp.Diff([]float64{10, 12, 14, 16}, first.Rates[1439:1443]); diff != "" {
		t.Errorf("around the bridged gap: %s", diff)
	}
	if got := first.History.Values[1439:1443]; got[0] != 10 || !math.IsNaN(got[1]) || !math.IsNaN(got[2]) || got[3] != 16 {
		t.Errorf("what was measured around the bridged gap: %v", got)
	}
	if second.First != 2883 || !second.Start.Equal(monday.Add(2883*time.Minute)) || !math.IsNaN(second.History.Values[2881]) {
		t.Errorf("the second stretch begins at %v, bin %d, with %v before it", second.Start, second.First, second.History.Values[2881])
	}
}

// Of a trace without a whole day to replay after its past, the rest is replayed, with that past; days that somebody asks for are taken without one.
func TestCourseOfLessThanADayLeavesAPast(t *testing.T) {
	for _, tt := range []struct {
		name   string
		rates  []float64
		o      CourseOptions
		from   int
		length int
		noPast bool
	}{
		{"fourteen minutes, seasons of two", flat(5, 14), CourseOptions{Past: 4 * time.Minute}, 4, 10, false},
		{"what is unknown at first is no past", concat(flat(nan, 100), flat(5, 14)), CourseOptions{Past: 4 * time.Minute}, 104, 10, false},
		{"after a gap", concat(flat(5, 60), flat(nan, 5), flat(5, 20), flat(nan, 5), flat(5, 3)), CourseOptions{Past: 20 * time.Minute}, 65, 20, false},
		{"two and a half days", flat(5, 3600), CourseOptions{Past: 48 * time.Hour}, 2880, 720, false},
		{"two days and next to nothing", flat(5, 2890), CourseOptions{Past: 48 * time.Hour}, 10, 2880, true},
		{"one day that was asked for", flat(5, 3600), CourseOptions{Past: 48 * time.Hour, Days: 1}, 2160, 1440, true},
	} {
		tt.o.Interval = time.Minute
		c, err := NewCourse(curve(time.Minute, tt.rates...), tt.o)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Parts) != 1 || c.Parts[0].First != tt.from || len(c.Parts[0].Rates) != tt.length || c.NoPast != tt.noPast {
			t.Errorf("%s: %d parts, the first of %d minutes from the %dth, no past %v", tt.name, len(c.Parts), len(c.Parts[0].Rates), c.Parts[0].First, c.NoPast)
		}
	}
}

// What is bridged in the replayed days is counted, in the trace's bins, and what is not replayed for gaps is told.
func TestCourseTellsWhatWasMissing(t *testing.T) {
	day := flat(10, 1440)
	holed := flat(10, 1440)
	for i := 1; i < 720; i += 2 {
		holed[i] = nan
	}
	for _, tt := range []struct {
		name   string
		step   time.Duration
		rates  []float64
		o      CourseOptions
		filled int
		of     int
		fewer  string
	}{
		{"nothing", time.Minute, concat(day, day), CourseOptions{}, 0, 2880, ""},
		{"every second bin of half a day", time.Minute, concat(day, holed), CourseOptions{Days: 1}, 360, 1440, ""},
		{"only before what is replayed", time.Minute, concat(holed, day), CourseOptions{Days: 1}, 0, 1440, ""},
		{"bins of five minutes", 5 * time.Minute, concat(flat(10, 100), []float64{nan}, flat(10, 187)), CourseOptions{Days: 1}, 1, 288, ""},
		{"bins of an hour", time.Hour, concat(flat(10, 10), []float64{nan}, flat(10, 13)), CourseOptions{Days: 1}, 1, 24, ""},
		{"a gap", time.Minute, concat(day, flat(nan, 180), day[:1300], day), CourseOptions{Days: 3}, 0, 1440 + 1440,
			"Taken of the trace: 2 days, and not the 3 days asked for: whole days are taken from what has no gap, and there is a gap of 3h, at 2024-01-02 00:00 UTC."},
		{"gaps, nobody having asked", time.Minute, concat(day[:1000], flat(nan, 3), day[:1000], flat(nan, 180), day), CourseOptions{}, 0, 1440,
			"Taken of the trace: 1 day, and not 2 days: whole days are taken from what has no gap, and there are 2 gaps, the longest of 3h, at 2024-01-02 09:23 UTC."},
		{"too short", time.Minute, concat(day, day), CourseOptions{Days: 5}, 0, 2880, "Taken of the trace: 2 days, and not the 5 days asked for: it holds no more whole days."},
		{"a past", time.Minute, concat(day, day, day), CourseOptions{Days: 2, Past: 48 * time.Hour}, 0, 1440,
			"Taken of the trace: 1 day, and not the 2 days asked for: forecasts need the 2d before."},
	} {
		tt.o.Interval = time.Minute
		c, err := NewCourse(curve(tt.step, tt.rates...), tt.o)
		if err != nil {
			t.Fatal(err)
		}
		if n, of := c.Filled(); n != tt.filled || of != tt.of || c.Fewer != tt.fewer {
			t.Errorf("%s: %d of %d bins are filled in, want %d of %d; %q, want %q", tt.name, n, of, tt.filled, tt.of, c.Fewer, tt.fewer)
		}
		r := Report{MaxLag: 1200, Days: 2, course: c}
		r.note()
		if notes := strings.Join(r.Notes, " "); strings.Contains(notes, "straight lines") != (tt.filled > 0) || !strings.Contains(notes, tt.fewer) {
			t.Errorf("%s: the notes are %q", tt.name, notes)
		}
	}
}

// Where a gap divides what is replayed, though there are as many days as were asked for, it is named, and what is left out for it.
func TestCourseNamesTheGapBetweenItsParts(t *testing.T) {
	day := flat(10, 288)
	for name, tt := range map[string]struct {
		rates []float64
		days  int
		want  string
	}{
		"an hour in spring": {concat(day, day, flat(10, 12), flat(nan, 12), flat(10, 276)), 2, ""},
		"an hour in spring, then two days": {concat(day, day, flat(10, 12), flat(nan, 12), flat(10, 264), day), 2,
			"Gaps divide what is replayed into 2 stretches; each begins without a backlog: there is a gap of 1h, at 2024-01-03 01:00 UTC; 22h after it, before whole days begin, are left out."},
		"whole days": {concat(day, flat(nan, 12), day), 2, "each begins without a backlog: there is a gap of 1h, at 2024-01-02 00:00 UTC."},
		"two gaps": {concat(day, flat(nan, 12), day, flat(nan, 24), flat(10, 12), day), 3,
			"into 3 stretches; each begins without a backlog: there are 2 gaps, the longest of 2h, at 2024-01-03 01:00 UTC; 1h after them, before whole days begin, are left out."},
		"told of the days": {concat(day, flat(nan, 36), day[:260], day), 3, "into 2 stretches; each begins without a backlog."},
	} {
		c, err := NewCourse(curve(5*time.Minute, tt.rates...), CourseOptions{Days: tt.days, Interval: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		r := Report{MaxLag: 1200, Days: 2, course: c}
		r.note()
		if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, tt.want) || strings.Count(notes, "there ") > 1 {
			t.Errorf("%s: %d parts, %q", name, len(c.Parts), notes)
		}
	}
}

// The last days are taken, as many as leave a past; the scale is that of their peak.
func TestCourseDays(t *testing.T) {
	ten := concat(flat(7, 10*1440))
	ten[0], ten[9*1440] = 100, 14
	for _, tt := range []struct {
		name   string
		o      CourseOptions
		days   float64
		start  time.Duration
		scale  float64
		noPast bool
	}{
		{"all that leave a past", CourseOptions{Past: 48 * time.Hour}, 8, 48 * time.Hour, 1, false},
		{"three", CourseOptions{Days: 3, Past: 48 * time.Hour}, 3, 7 * 24 * time.Hour, 1, false},
		{"scaled to the peak of the days", CourseOptions{Days: 3, ScaleTo: 28}, 3, 7 * 24 * time.Hour, 2, false},
		{"no past", CourseOptions{Past: 30 * 24 * time.Hour}, 10, 0, 1, true},
	} {
		tt.o.Interval = time.Minute
		c, err := NewCourse(curve(time.Minute, ten...), tt.o)
		if err != nil {
			t.Fatal(err)
		}
		if c.Days() != tt.days || !c.Parts[0].Start.Equal(monday.Add(tt.start)) || c.Scale != tt.scale || c.NoPast != tt.noPast {
			t.Errorf("%s: %v days from %v, scale %v, no past %v", tt.name, c.Days(), c.Parts[0].Start, c.Scale, c.NoPast)
		}
	}
	short, err := NewCourse(curve(time.Minute, flat(5, 90)...), CourseOptions{Interval: time.Minute, Past: 75 * time.Minute})
	if err != nil || len(short.Parts) != 1 || len(short.Parts[0].Rates) != 90 || !short.NoPast {
		t.Errorf("a trace of an hour and a half, of which a past leaves next to nothing, is replayed whole: %+v, %v", short, err)
	}
}

// Bins of up to five minutes are taken as they are, longer ones get noise and keep their mean.
func TestCourseCoarse(t *testing.T) {
	c, err := NewCourse(curve(5*time.Minute, concat(flat(10, 288), flat(20, 288))...), CourseOptions{Interval: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if p := c.Parts[0]; c.Coarse || p.Step != time.Minute || p.Rates[1439] != 10 || p.Rates[1440] != 20 {
		t.Errorf("5-minute bins: coarse %v, step %v, %v at the edge", c.Coarse, p.Step, p.Rates[1439:1441])
	}
	hours := concat(flat(100, 24), flat(200, 24))
	c, err = NewCourse(curve(time.Hour, hours...), CourseOptions{Interval: time.Minute, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	p := c.Parts[0]
	if !c.Coarse || len(p.Rates) != 48*60 {
		t.Fatalf("hours: coarse %v, %d bins", c.Coarse, len(p.Rates))
	}
	differs := 0
	for h, want := range hours {
		sum := 0.0
		for _, r := range p.Rates[h*60 : h*60+60] {
			if sum += r; r != want {
				differs++
			}
		}
		if !near(sum/60, want, 1e-9) {
			t.Errorf("hour %d: mean %v, want %v", h, sum/60, want)
		}
	}
	if differs < 47*60 {
		t.Errorf("only %d of %d bins have noise", differs, 48*60)
	}
	again, _ := NewCourse(curve(time.Hour, hours...), CourseOptions{Interval: time.Minute, Seed: 7})
	if diff := cmp.Diff(p.Rates, again.Parts[0].Rates); diff != "" {
		t.Error("the same seed gave other noise")
	}
}

func TestCourseRefuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		tr   Trace
		o    CourseOptions
		want string
	}{
		{"nothing known", curve(time.Minute, nan, nan), CourseOptions{}, "no known rate"},
		{"nothing arrives", curve(time.Minute, flat(0, 1440)...), CourseOptions{ScaleTo: 5}, "cannot be scaled"},
		{"bins of seven minutes", curve(7*time.Minute, flat(1, 400)...), CourseOptions{}, "do not divide a day"},
		{"bins of 90 s", curve(90*time.Second, flat(1, 2000)...), CourseOptions{}, "whole number"},
	} {
		tt.o.Interval = time.Minute
		if _, err := NewCourse(tt.tr, tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want an error with %q", tt.name, err, tt.want)
		}
	}
}

// A coarse trace is scaled with its noise, so that its peak is no more than was asked for.
func TestCourseScalesNoise(t *testing.T) {
	c, err := NewCourse(curve(time.Hour, concat(flat(100, 24), flat(200, 24))...), CourseOptions{Interval: time.Minute, ScaleTo: 28, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	peak := 0.0
	for _, r := range c.Parts[0].Rates {
		peak = max(peak, r)
	}
	if !near(peak, 28, 1e-9) || c.Peak != 28 || !near(c.Parts[0].History.Values[77], c.Parts[0].Rates[77], 1e-9) {
		t.Errorf("the peak is %v, and is said to be %v", peak, c.Peak)
	}
}
