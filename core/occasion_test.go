package core

import (
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/forecast"
	"github.com/kale-sched/kale/forecast/holidays"
)

// An event that does not come is told once while it goes on and once when it is over, and the forecast is trusted all the while.
func TestEventThatDoesNotCome(t *testing.T) {
	j := parseJob(t, fmt.Sprintf(rigJob, "b:1", rigTopic, "live", t.TempDir())) // interval 1 s, horizon 20 s, season 1 min
	begin := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	from, to := begin.Add(290*time.Second), begin.Add(340*time.Second)
	j.Forecast.Events = []job.Event{{Name: "sale", From: from, To: to, Uplift: 3}}
	f, err := newForesight(slog.New(slog.DiscardHandler), j, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &Scheduler{lg: slog.New(slog.DiscardHandler), foresee: f, job: j, want: &desired{}}
	series := forecast.Series{Start: begin, Step: time.Second, Values: make([]float64, 420)}
	for i := range series.Values {
		series.Values[i] = 100 + 30*math.Sin(2*math.Pi*float64(i)/60)
	}
	for i := 270; i < len(series.Values); i++ {
		past := series.Until(series.At(i))
		got := f.forecast(past.End(), past)
		if !got.Trusted {
			t.Fatalf("%d s: %s", i, got.Reason)
		}
		if late := i >= 296 && i < 340; late && math.Abs(got.Mean[0]-series.Values[i]) > 20 {
			t.Errorf("at %d s %.0f is expected, and %.0f comes", i, got.Mean[0], series.Values[i])
		}
		s.noteEvents(past.End())
		// Status and decisions count it as declared until it is measured, and then as it comes.
		words := strings.Join(s.calendarWords(past.End()), "; ")
		for where, text := range map[string]string{"the reason": got.Reason, "the calendar": words} {
			switch counts, comes := strings.Contains(text, "sale counts ×3"), strings.Contains(text, "sale counts ×1.") && strings.Contains(text, " as it comes, and not ×3 as declared"); {
			case i > 270 && i < 290 && !counts, i >= 296 && i < 340 && (counts || !comes), i >= 340 && (counts || comes):
				t.Errorf("at %d s %s is %q", i, where, text)
			}
		}
	}
	// Of an event in an outage nothing is known.
	for i := 290; i < 310; i++ {
		series.Values[i] = math.NaN()
	}
	past := series.Until(series.At(310))
	if got := f.forecast(past.End(), past); !strings.Contains(got.Reason, "sale counts ×3") {
		t.Errorf("after an outage the reason is %q", got.Reason)
	}
	var texts []string
	for _, n := range s.want.HandOvers {
		texts = append(texts, n.Text)
	}
	if len(texts) != 2 || !strings.HasPrefix(texts[0], `the declared event "sale" has not come so far (measured 1.`) || !strings.HasPrefix(texts[1], `the declared event "sale" did not come (measured 1.`) {
		t.Errorf("it tells %q", texts)
	}
}

// What is under way or comes within two days is told with its time.
func TestCalendarWords(t *testing.T) {
	j := parseJob(t, fmt.Sprintf(rigJob, "b:1", rigTopic, "live", t.TempDir()))
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	us, err := holidays.Parse("us")
	if err != nil {
		t.Fatal(err)
	}
	j.Forecast.Holidays = []holidays.Rule{us}
	j.Forecast.Events = []job.Event{{Name: "sale", From: now.Add(-time.Hour), To: now.Add(time.Hour), Uplift: 3}, {Name: "later", From: now.Add(72 * time.Hour), To: now.Add(80 * time.Hour), Uplift: 2}}
	got := strings.Join((&Scheduler{job: j, foresee: &foresight{}}).calendarWords(now), "\n")
	local := func(t time.Time) string { return t.Local().Format("2006-01-02 15:04") }
	day := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	want := "sale counts ×3, until " + local(now.Add(time.Hour)) + "\nThanksgiving Day is a holiday, from " + local(day) + " to " + local(day.Add(24*time.Hour))
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
