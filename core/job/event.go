package job

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"
)

// eventParts are the attributes of an event.
var eventParts = []string{"name", "from", "to", "uplift"}

// readEvent reads one object of forecast.events.
func readEvent(_ string, v cty.Value) (e Event, p *problem) {
	const form = `{ name = "sale", from = "2026-11-27T18:00:00Z", to = "2026-11-28T00:00:00Z", uplift = 1.8 }`
	if !v.Type().IsObjectType() && !v.Type().IsMapType() {
		return e, wrong("An event is needed here", "This is %s: write %s.", typeName(v), form)
	}
	parts := v.AsValueMap()
	for name, part := range parts {
		if !slices.Contains(eventParts, name) {
			return e, wrong(fmt.Sprintf("Unknown part %q of an event", name), "%sAn event has %s.", DidYouMean(name, eventParts), strings.Join(eventParts, ", "))
		}
		if part.IsNull() || !part.IsKnown() {
			return e, wrong(fmt.Sprintf("An event without %s", name), "Give it a value: %s.", form)
		}
	}
	for _, name := range eventParts {
		if _, there := parts[name]; !there {
			return e, wrong(fmt.Sprintf("An event without %s", name), "Write all of it: %s.", form)
		}
	}
	if e.Name, p = readText(nil)("", parts["name"]); p != nil {
		return e, p
	}
	for _, bound := range []struct {
		name string
		dst  *time.Time
	}{{"from", &e.From}, {"to", &e.To}} {
		s, p := asString(parts[bound.name])
		if p != nil {
			return e, p
		}
		t, err := time.Parse(time.RFC3339, s)
		if err != nil {
			return e, wrong(fmt.Sprintf("Invalid time %q", s), "%s of the event %q is a time with its zone, as in \"2026-11-27T18:00:00Z\" or \"2026-11-27T19:00:00+01:00\".", bound.name, e.Name)
		}
		*bound.dst = t
	}
	if !e.From.Before(e.To) {
		return e, wrong("An event that ends before it begins", "The event %q is from %s to %s.", e.Name, e.From.Format(time.RFC3339), e.To.Format(time.RFC3339))
	}
	if e.Uplift, p = asNumber(parts["uplift"]); p != nil {
		return e, p
	}
	if !(e.Uplift > 0 && e.Uplift <= mostUplift) {
		return e, wrong("Unsuitable uplift", "The uplift of the event %q is %v: what comes is so many times what would come without it, above 0 and at most %d.", e.Name, e.Uplift, mostUplift)
	}
	return e, nil
}

// mostUplift bounds the factor of an event, so that a slip (percent for a factor) is found here.
const mostUplift = 50
