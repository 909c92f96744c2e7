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

// readEvent reads one object of forecast.events; what is wrong with each of its parts is a problem of its own.
func readEvent(_ string, v cty.Value) (e Event, _ *problem) {
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
			if *dst, p = eventTime(name, e.Name, s); p != nil {
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
		if e.Uplift, p = asNumber(v); p == nil && !(e.Uplift > 0 && e.Uplift <= mostUplift) {
			p = wrong("Unsuitable uplift", "The uplift of the event %q is %v: what comes is so many times what would come without it, above 0 and at most %d.", e.Name, e.Uplift, mostUplift)
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

// eventTime reads when an event begins or ends.
func eventTime(name, event, s string) (time.Time, *problem) {
	t, err := time.Parse(time.RFC3339, s)
	if err == nil {
		return t, nil
	}
	const form = `as in "2026-11-27T18:00:00Z" or "2026-11-27T19:00:00+01:00"`
	var parse *time.ParseError
	if errors.As(err, &parse) && strings.Contains(parse.Message, "out of range") {
		return t, wrong(fmt.Sprintf("There is no time %q", s), "%s of the event %q has a %s: a time with its zone is needed, %s.", name, event, strings.TrimPrefix(parse.Message, ": "), form)
	}
	return t, wrong(fmt.Sprintf("Invalid time %q", s), "%s of the event %q is a time with its zone, %s.", name, event, form)
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
