package core

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kale-sched/kale/forecast"
)

// aheadOccasions is how far ahead people are told of events and holidays.
const aheadOccasions = 48 * time.Hour

// occasions are the events and holidays of the job that are under way or begin within two days, in the order in which they begin: an event as it has come, as far as the last
// forecast's history tells.
func (s *Scheduler) occasions(now time.Time) []forecast.Occasion {
	return CalendarOf(s.job).Occasions(now, now.Add(aheadOccasions), s.foresee.outcomes)
}

// OccasionWords tell people of one: what it is, and until or from when.
func OccasionWords(o forecast.Occasion, now time.Time) string {
	const stamp = "2006-01-02 15:04"
	if o.From.After(now) {
		return fmt.Sprintf("%s, from %s to %s", o, o.From.Local().Format(stamp), o.To.Local().Format(stamp))
	}
	return fmt.Sprintf("%s, until %s", o, o.To.Local().Format(stamp))
}

// noteEvents remembers, for people, that an event does not come as it was declared: once as it goes on, and once when it has ended.
func (s *Scheduler) noteEvents(now time.Time) {
	for _, o := range s.foresee.outcomes {
		text := o.Says()
		if text == "" || slices.ContainsFunc(s.want.HandOvers, func(n Note) bool { return !n.At.Before(o.From) && told(n.Text) == told(text) }) || o.Over && now.Sub(o.To) > rollbackShown {
			continue
		}
		s.lg.Info("an event does not come as declared", "event", o.Name, "declared", o.Uplift, "measured", o.Measured, "over", o.Over)
		s.want.remember(Note{At: now, Text: text})
	}
}

// told is what a text says, without the figures that change.
func told(text string) string {
	before, _, _ := strings.Cut(text, " (measured ")
	return before
}

// calendarWords are the events and holidays that a view tells of.
func (s *Scheduler) calendarWords(now time.Time) (out []string) {
	for _, o := range s.occasions(now) {
		out = append(out, OccasionWords(o, now))
	}
	return out
}
