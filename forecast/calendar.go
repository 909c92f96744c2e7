package forecast

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kale-sched/kale/forecast/holidays"
)

// Event is a time in which a known cause changes the traffic: a sale, a campaign, a maintenance.
type Event struct {
	Name     string
	From, To time.Time
	Uplift   float64 // what comes is so many times what would come without it; 0: nothing comes
}

// Calendar is what people know of the traffic that its past does not tell. The zero value knows nothing.
type Calendar struct {
	// Events are in any order. Where several are at once, their uplifts are multiplied.
	Events []Event
	// Holidays are days of a kind of their own, in Zone: see [dayTable]. The zero value has none.
	Holidays holidays.Calendar
	// Zone is where the people live whose day the traffic follows: where their clocks are put forward or back, so is its course. nil: clocks are not, and days are those of UTC.
	Zone *time.Location
	// Seasons are after what traffic repeats. With them it is measured whether an event comes, and how strongly: see events.go. Without, each is taken as it is declared.
	Seasons []time.Duration
}

// empty says that it knows nothing.
func (c Calendar) empty() bool {
	return len(c.Events) == 0 && len(c.Holidays.Rules) == 0 && c.Zone == nil
}

// With gives a forecaster that forecasts from the history as it would have been without the events and holidays, and then adds those that are to come: none is forgotten
// before it begins, or expected again a season later. It reads the history by the clock of the zone. Of a calendar that knows nothing it is f itself.
func (c Calendar) With(f Forecaster) Forecaster {
	if c.empty() {
		return f
	}
	return calendared{f, c}
}

// Plain is what a forecaster learns from: the history as it would have been without the events and holidays, each bin at the hour that it had on the clock. Its end
// stays where it is; where the clock was put forward in it an hour is unknown, and where it was put back one is the mean of two. Values are a copy where any changes.
func (c Calendar) Plain(history Series) Series { return c.look(history, 0).plain }

// looked is a history as a calendar sees it.
type looked struct {
	plain   Series    // see [Calendar.Plain]
	days    *dayTable // nil: no holidays
	factors []float64 // of the events, in the bins of the history and those that follow; nil: all are 1
}

// look looks at a history and so many bins after it.
func (c Calendar) look(history Series, steps int) (l looked) {
	if len(history.Values) == 0 {
		l.factors = c.declared(history, steps)
		l.plain = history
		l.days = newDayTable(c.Holidays, c.Zone, history)
		return l
	}
	var days *dayTable
	if declared := c.declared(history, steps); declared != nil && len(c.Holidays.Rules) > 0 && len(c.Seasons) > 0 {
		days = newDayTable(c.Holidays, c.Zone, byClock(c.Zone, history.over(declared))) // how strong an event is, is measured beside the holiday that it falls on
	}
	l.factors = c.came(history, steps, days)
	l.plain = byClock(c.Zone, history.over(l.factors))
	if l.days = newDayTable(c.Holidays, c.Zone, l.plain); l.days != nil {
		l.plain = l.days.plain()
	}
	return l
}

// over is the history as it would have been without what multiplied its bins; nil: nothing did.
func (s Series) over(factors []float64) Series {
	if factors == nil {
		return s
	}
	out := Series{Start: s.Start, Step: s.Step, Values: slices.Clone(s.Values)}
	for i, f := range factors[:len(out.Values)] {
		if f != 1 {
			out.Values[i] = undone(out.Values[i], f)
		}
	}
	return out
}

// Forecast asks a forecaster for so many bins after what it is to learn from, [Calendar.Plain], and puts the answer at the hours that they will have on the clock, with
// the events and holidays that are to come. Where the clock is to skip an hour, it is asked for as much more.
func (c Calendar) Forecast(history Series, steps int, ask func(Series, int) (Forecast, error)) (Forecast, error) {
	l := c.look(history, steps)
	more := 0
	for _, by := range later(c.Zone, history.End(), history.Step, steps) {
		more = max(more, by)
	}
	f, err := ask(l.plain, steps+more)
	if err != nil && more > 0 {
		f, err = ask(l.plain, steps) // a model that looks no further
	}
	if err != nil {
		return f, err
	}
	if shifts := later(c.Zone, f.At, f.Step, min(steps, len(f.Mean))); shifts != nil {
		f = onClock(f, shifts)
	}
	if l.days != nil {
		f = f.onHolidays(l.days, c.Zone)
	}
	if l.factors == nil {
		return f, nil
	}
	usual := f.Mean
	f = f.times(func(at time.Time) float64 { return mean(l.factors, history, at, f.Step) })
	if &usual[0] != &f.Mean[0] {
		f.Usual = usual
	}
	return f, nil
}

// mean is that of the factors of a history's bins and those that follow, over a time; the last of them goes on.
func mean(factors []float64, history Series, at time.Time, long time.Duration) float64 {
	from := history.Bin(at)
	to := max(from+1, history.Bin(at.Add(long)))
	sum := 0.0
	for i := from; i < to; i++ {
		sum += factors[min(max(i, 0), len(factors)-1)]
	}
	return sum / float64(to-from)
}

// times is a forecast whose bins are multiplied, with band, quantiles and scenarios. It shares no values with f then, and is f itself where nothing changes.
func (f Forecast) times(factor func(at time.Time) float64) Forecast {
	factors := make([]float64, len(f.Mean))
	changes := false
	for i := range factors {
		factors[i] = factor(f.At.Add(time.Duration(i) * f.Step))
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
	if f.Usual != nil {
		f.Usual = row(f.Usual)
	}
	for _, rows := range []*[][]float64{&f.Quantiles, &f.Scenarios} {
		*rows = slices.Clone(*rows)
		for k, r := range *rows {
			(*rows)[k] = row(r)
		}
	}
	return f
}

// Within names the events and holidays of a time, for people, each event by what it counts: as it has come, where outcomes tell that, else as it is declared. "": there is none.
func (c Calendar) Within(from, to time.Time, outcomes []EventOutcome) string {
	var names []string
	for _, o := range c.Occasions(from, to, outcomes) {
		names = append(names, o.String())
	}
	return strings.Join(names, ", ")
}

// Occasion is an event, or a holiday from midnight to midnight.
type Occasion struct {
	Name     string    `json:"name"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Holiday  bool      `json:"holiday,omitempty"`
	Declared float64   `json:"declared,omitempty"` // the event's uplift, or that of a holiday that has one
	Like     string    `json:"like,omitempty"`     // of a holiday: the weekday that it is like until others were seen
	// Came is by what an event that does not come as it was declared multiplies what is usual, as was measured; nil: it comes as declared, or that is not known.
	Came *float64 `json:"came,omitempty"`
}

// String is the occasion for people, without its time.
func (o Occasion) String() string {
	switch {
	case o.Holiday && o.Like != "":
		return fmt.Sprintf("%s is a holiday", o.Name)
	case o.Holiday:
		return fmt.Sprintf("%s is a holiday that counts ×%.4g", o.Name, o.Declared)
	case o.Came != nil:
		return fmt.Sprintf("%s counts ×%.2f as it comes, and not ×%.4g as declared", o.Name, *o.Came, o.Declared)
	case o.Declared == 0:
		return o.Name + " lets nothing come"
	}
	return fmt.Sprintf("%s counts ×%.4g", o.Name, o.Declared)
}

// mostOccasionDays bounds for how long ahead holidays are listed.
const mostOccasionDays = 3 * 366

// Occasions are the events and holidays that touch a time, in the order in which they begin: those under way from now on are
// Occasions(now, now+1ns, …), those that come in the next two days Occasions(now, now+48h, …). outcomes are those of the history before, nil: of no event is known what came of it.
func (c Calendar) Occasions(from, to time.Time, outcomes []EventOutcome) (out []Occasion) {
	for _, e := range c.Events {
		if !e.From.Before(to) || !from.Before(e.To) {
			continue
		}
		o := Occasion{Name: e.Name, From: e.From, To: e.To, Declared: e.Uplift}
		if k := slices.IndexFunc(outcomes, func(o EventOutcome) bool { return o.Event == e }); k >= 0 {
			o.Came = outcomes[k].otherwise()
		}
		out = append(out, o)
	}
	if len(c.Holidays.Rules) > 0 && from.Before(to) {
		zone := c.Zone
		if zone == nil {
			zone = time.UTC
		}
		y, m, d := from.In(zone).Date()
		table := c.Holidays.Table()
		for k := range mostOccasionDays {
			begin := time.Date(y, m, d+k, 0, 0, 0, 0, zone)
			if !begin.Before(to) {
				break
			}
			h, ok := table.Day(holidays.DateOf(begin))
			if !ok {
				continue
			}
			o := Occasion{Name: h.Name, From: begin, To: time.Date(y, m, d+k+1, 0, 0, 0, 0, zone), Holiday: true}
			if h.Uplift != nil {
				o.Declared = *h.Uplift
			} else {
				o.Like = h.Weekday().String()
			}
			if n := len(out); n > 0 && out[n-1].Holiday && out[n-1].Name == o.Name && out[n-1].To.Equal(o.From) {
				out[n-1].To = o.To // a stretch of days
				continue
			}
			out = append(out, o)
		}
	}
	slices.SortStableFunc(out, func(a, b Occasion) int { return a.From.Compare(b.From) })
	return out
}

// declared are the factors of the bins of a history and of so many after it, as the events say; nil: all are 1.
func (c Calendar) declared(history Series, steps int) []float64 {
	end := history.At(len(history.Values) + steps)
	if history.Step <= 0 || !slices.ContainsFunc(c.Events, func(e Event) bool { return e.From.Before(end) && history.Start.Before(e.To) }) {
		return nil
	}
	out := make([]float64, len(history.Values)+steps)
	for i := range out {
		out[i] = c.uplift(history.At(i), history.Step)
	}
	return out
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

// came are the factors of the events in the bins of a history: those by which what was said without them is to be held against what came.
func (c calendared) came(history Series) []float64 {
	if c.calendar.declared(history, 0) == nil {
		return nil
	}
	return c.calendar.look(history, 0).factors
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
