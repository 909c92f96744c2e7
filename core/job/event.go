package job

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"
)

// eventParts are the attributes of an event.
var eventParts = []string{"name", "from", "to", "uplift"}

// eventForm is a whole event.
const eventForm = `{ name = "sale", from = "2026-11-27T18:00:00Z", to = "2026-11-28T00:00:00Z", uplift = 1.8 }`

// eventList reads forecast.events; a time without a zone is one of forecast.timezone, which is read before.
type eventList struct{}

func (eventList) kind() string   { return "list of objects" }
func (eventList) limits() string { return "each with name, from, to, uplift" }

func (eventList) set(dir string, j *Job, v cty.Value) []*problem {
	zone := j.Forecast.Zone()
	return list[Event]{dst: func(j *Job) *[]Event { return &j.Forecast.Events }, read: func(_ string, v cty.Value) (Event, *problem) { return readEvent(zone, v) }}.set(dir, j, v)
}

// readEvent reads one object of forecast.events; what is wrong with each of its parts is a problem of its own.
func readEvent(zone *time.Location, v cty.Value) (e Event, _ *problem) {
	if !v.Type().IsObjectType() && !v.Type().IsMapType() {
		return e, wrong("An event is needed here", "This is %s: write %s.", typeName(v), eventForm)
	}
	parts := v.AsValueMap()
	all := eventShape(parts)
	part := func(name string, read func(cty.Value) *problem) (good bool) {
		v, there := parts[name]
		if !there || v.IsNull() || !v.IsKnown() {
			return false
		}
		p := read(v)
		if p != nil {
			p.part = name
			all = append(all, p)
		}
		return p == nil
	}
	part("name", func(v cty.Value) (p *problem) {
		e.Name, p = readText(nil)("", v)
		return p
	})
	moment := func(name string, dst *time.Time) bool {
		return part(name, func(v cty.Value) *problem {
			s, p := asString(v)
			if p != nil {
				return p
			}
			if *dst, p = eventTime(zone, name, e.Name, s); p != nil {
				return p
			}
			return nil
		})
	}
	from, to := moment("from", &e.From), moment("to", &e.To)
	if from && to && !e.From.Before(e.To) {
		p := wrong("An event that ends before it begins", "The event %q is from %s to %s.", e.Name, e.From.Format(time.RFC3339), e.To.Format(time.RFC3339))
		p.part = "to"
		all = append(all, p)
	}
	part("uplift", func(v cty.Value) (p *problem) {
		if e.Uplift, p = asNumber(v); p == nil && !(e.Uplift >= 0 && e.Uplift <= mostUplift) {
			p = wrong("Unsuitable uplift", "The uplift of the event %q is %v: what comes is so many times what would come without it, 0 (nothing comes) to %d.", e.Name, e.Uplift, mostUplift)
		}
		return p
	})
	return e, together(all)
}

// eventShape says which parts an event has that there are not, and which it lacks.
func eventShape(parts map[string]cty.Value) (all []*problem) {
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		if !slices.Contains(eventParts, name) {
			p := wrong(fmt.Sprintf("Unknown part %q of an event", name), "%sAn event has %s.", DidYouMean(name, eventParts), strings.Join(eventParts, ", "))
			p.part = name
			all = append(all, p)
		}
	}
	var lacks []string
	for _, name := range eventParts {
		if v, there := parts[name]; !there || v.IsNull() || !v.IsKnown() {
			lacks = append(lacks, name)
		}
	}
	if len(lacks) > len(all) { // else what is unknown may be what it lacks, misspelt
		all = append(all, wrong("An event without "+strings.Join(lacks, ", "), "Write all of it: %s.", eventForm))
	}
	return all
}

// zoneless are the forms of a time that lacks its zone.
var zoneless = []string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly}

// eventTime reads when an event begins or ends: with a zone of its own, or in zone. nil: there is none.
func eventTime(zone *time.Location, name, event, s string) (time.Time, *problem) {
	t, err := time.Parse(time.RFC3339, s)
	if err == nil {
		return t, nil
	}
	form := `as in "2026-11-27T18:00:00Z" or "2026-11-27T19:00:00+01:00", or "2026-11-27T19:00" on the clock of forecast.timezone`
	for _, layout := range zoneless {
		t, e := time.Parse(layout, s)
		switch {
		case e == nil && zone != nil:
			return onClock(zone, t, name, event, s)
		case e == nil:
			return t, wrong(fmt.Sprintf("A time without its zone, %q", s), "%s of the event %q lacks its zone: set forecast.timezone, as in \"Europe/Berlin\", or write it %s.", name, event, form)
		case outOfRange(e):
			err = e
		}
	}
	var parse *time.ParseError
	if errors.As(err, &parse) && outOfRange(err) {
		return t, wrong(fmt.Sprintf("There is no time %q", s), "%s of the event %q has a %s: write a time, %s.", name, event, strings.TrimPrefix(parse.Message, ": "), form)
	}
	return t, wrong(fmt.Sprintf("Invalid time %q", s), "%s of the event %q is a time, %s.", name, event, form)
}

// onClock is when the clock of a zone shows what t does in UTC. In the night in which clocks are put forward there are times that they never show, and in that in
// which they are put back some that they show twice.
func onClock(zone *time.Location, t time.Time, name, event, s string) (time.Time, *problem) {
	var at []time.Time
	for _, near := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		_, offset := t.Add(near).In(zone).Zone()
		one := t.Add(-time.Duration(offset) * time.Second).In(zone)
		if one.Format(time.DateTime) == t.Format(time.DateTime) && !slices.ContainsFunc(at, one.Equal) {
			at = append(at, one)
		}
	}
	switch len(at) {
	case 0:
		after := time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, zone)
		return t, wrong(fmt.Sprintf("There is no time %q", s), "%s of the event %q falls into the hour that clocks skip in %s when they are put forward: write %q, or another time with its zone.",
			name, event, zone, after.Format(time.RFC3339))
	case 1:
		return at[0], nil
	}
	return t, wrong(fmt.Sprintf("A time that comes twice, %q", s), "%s of the event %q falls into the hour that clocks repeat in %s when they are put back: write %q for the first or %q for the second.",
		name, event, zone, at[0].Format(time.RFC3339), at[1].Format(time.RFC3339))
}

// outOfRange says that a time is written as it should be, and there is none.
func outOfRange(err error) bool {
	var parse *time.ParseError
	return errors.As(err, &parse) && strings.Contains(parse.Message, "out of range")
}

// together makes one problem of several, nil of none.
func together(all []*problem) *problem {
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return &problem{parts: all}
}

// mostUplift bounds the factor of an event, so that a slip (percent for a factor) is found here.
const mostUplift = 50
