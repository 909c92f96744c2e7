package forecast

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Event is a time in which a known cause changes the traffic: a sale, a campaign, a holiday.
type Event struct {
	Name     string
	From, To time.Time
	Uplift   float64 // what comes is so many times what would come without it; above 0
}

// Calendar is what people know of the traffic that its past does not tell. The zero value knows nothing.
type Calendar struct {
	// Events are in any order.
	Events []Event
	// Zone is where the people live whose day the traffic follows: where their clocks are put forward or back, so is its course. nil: clocks are not.
	Zone *time.Location
}

// With gives a forecaster that forecasts from the history as it would have been without the events, and then adds those that are to come: no event is forgotten
// before it begins, or expected again a season later. It reads the history by the clock of the zone. Of a calendar that knows nothing it is f itself.
func (c Calendar) With(f Forecaster) Forecaster {
	if len(c.Events) == 0 && c.Zone == nil {
		return f
	}
	return calendared{f, c}
}

// Plain is what a forecaster learns from: the history as it would have been without the events, each bin at the hour that it had on the clock. Its end
// stays where it is; where the clock was put forward in it an hour is unknown, and where it was put back one is the mean of two. Values are a copy where any changes.
func (c Calendar) Plain(history Series) Series {
	return byClock(c.Zone, c.without(history))
}

// without is the history as it would have been without the events.
func (c Calendar) without(history Series) Series {
	out := history
	changed := false
	for i := range history.Values {
		uplift := c.uplift(history.At(i), history.Step)
		if uplift == 1 {
			continue
		}
		if !changed {
			out.Values, changed = slices.Clone(history.Values), true
		}
		out.Values[i] /= uplift
	}
	return out
}

// Forecast asks a forecaster for so many bins after what it is to learn from, [Calendar.Plain], and puts the answer at the hours that they will have on the clock, with
// the events that are to come. Where the clock is to skip an hour, it is asked for as much more.
func (c Calendar) Forecast(history Series, steps int, ask func(Series, int) (Forecast, error)) (Forecast, error) {
	plain := c.Plain(history)
	more := 0
	for _, by := range later(c.Zone, history.End(), history.Step, steps) {
		more = max(more, by)
	}
	f, err := ask(plain, steps+more)
	if err != nil && more > 0 {
		f, err = ask(plain, steps) // a model that looks no further
	}
	if err != nil {
		return f, err
	}
	if shifts := later(c.Zone, f.At, f.Step, min(steps, len(f.Mean))); shifts != nil {
		f = onClock(f, shifts)
	}
	return c.apply(f), nil
}

// apply is a forecast with the events: what it says of their bins is multiplied, with its band, quantiles and scenarios. It shares no values with f then.
func (c Calendar) apply(f Forecast) Forecast {
	factors := make([]float64, len(f.Mean))
	changes := false
	for i := range factors {
		factors[i] = c.uplift(f.At.Add(time.Duration(i)*f.Step), f.Step)
		changes = changes || factors[i] != 1
	}
	if !changes {
		return f
	}
	return f.with(func(row []float64) []float64 {
		out := slices.Clone(row)
		for i := range out {
			out[i] *= factors[i]
		}
		return out
	})
}

// with is a forecast of which every row was made anew: mean, band, quantiles and scenarios.
func (f Forecast) with(row func([]float64) []float64) Forecast {
	f.Mean, f.Lower, f.Upper = row(f.Mean), row(f.Lower), row(f.Upper)
	for _, rows := range []*[][]float64{&f.Quantiles, &f.Scenarios} {
		*rows = slices.Clone(*rows)
		for k, r := range *rows {
			(*rows)[k] = row(r)
		}
	}
	return f
}

// Within names the events of a time, for people; "": there is none.
func (c Calendar) Within(from, to time.Time) string {
	var names []string
	for _, e := range c.Events {
		if e.From.Before(to) && from.Before(e.To) {
			names = append(names, fmt.Sprintf("%s counts ×%.4g", e.Name, e.Uplift))
		}
	}
	return strings.Join(names, ", ")
}

// uplift is the factor of the bin that begins at a moment, that of all its events together. An event that covers a part of it counts by that part.
func (c Calendar) uplift(at time.Time, step time.Duration) float64 {
	factor := 1.0
	for _, e := range c.Events {
		from, to := at, at.Add(step)
		if e.From.After(from) {
			from = e.From
		}
		if e.To.Before(to) {
			to = e.To
		}
		if share := float64(to.Sub(from)) / float64(step); share > 0 {
			factor *= 1 + (e.Uplift-1)*share
		}
	}
	return factor
}

// calendared is a forecaster that heeds a calendar.
type calendared struct {
	Forecaster
	calendar Calendar
}

// Forecast implements [Forecaster].
func (c calendared) Forecast(history Series, steps int) (Forecast, error) {
	if err := checkRequest(c.Name(), history, steps); err != nil {
		return Forecast{}, err
	}
	return c.calendar.Forecast(history, steps, c.Forecaster.Forecast)
}

// ID and TrainedUntil pass on what a model file says of itself: the gate asks.
func (c calendared) ID() string {
	if m, ok := c.Forecaster.(interface{ ID() string }); ok {
		return m.ID()
	}
	return ""
}

func (c calendared) TrainedUntil() time.Time {
	if m, ok := c.Forecaster.(interface{ TrainedUntil() time.Time }); ok {
		return m.TrainedUntil()
	}
	return time.Time{}
}
