package forecast

import (
	"math"
	"time"

	"github.com/kale-sched/kale/forecast/holidays"
)

// How a holiday's course is found; see [dayTable].
const (
	daysLookedAt = 4                // ordinary days of a weekday that its course is the mean of
	softReach    = 30 * time.Minute // over which a course is averaged, on either side of a bin
	softFloor    = 0.01             // of the mean rate, below which courses are taken for equal
	mostRatio    = 20.0             // bounds the ratio of a holiday to an ordinary day
	eveningShare = 4                // of a holiday, whose level is still seen the day after
	likeDays     = 1.0              // as how many past holidays the day counts that a holiday is taken to be like
)

// dayTable has the whole days of a history by the clock, without events, and says what of it a holiday is.
//
// A holiday is a kind of day of its own. What comes on it is, phase by phase, so many times what an ordinary day of its weekday would have:
//
//	ratio = course(holiday) / course(ordinary)
//
// where course(ordinary) is the mean of the last four ordinary days of the weekday, and course(holiday) that of the past holidays of the same name, where the history
// has any. Else it is the (geometric) mean of the past holidays of any name and, as one more of them, of the weekday that it is said to be like. Courses of different weeks are brought to one level by the mean
// rates of the same weekdays before either. Where the history tells nothing, the ratio is 1.
type dayTable struct {
	s      Series        // by the clock
	offset time.Duration // by which that clock is ahead of UTC, throughout
	perDay int           // bins, the last of them perhaps begun
	first  holidays.Date
	days   []dayOf
	table  *holidays.Table
	ratios map[holidays.Date][]float64
}

// dayOf is one day of a table.
type dayOf struct {
	date    holidays.Date
	from    int // bin; that of an incomplete first day lies before the history
	whole   bool
	holiday *holidays.Day // nil: an ordinary one
	mean    float64       // rate; NaN where less than half is known
}

// newDayTable looks over a history by the clock. nil: it has no bins of which a day holds two, and knows of no day.
func newDayTable(from holidays.Calendar, zone *time.Location, s Series) *dayTable {
	const day = 24 * time.Hour
	if len(from.Rules) == 0 || s.Step > day/2 || s.Step <= 0 {
		return nil
	}
	t := &dayTable{s: s, perDay: int((day + s.Step - 1) / s.Step), table: from.Table(), ratios: map[holidays.Date][]float64{}}
	if zone != nil {
		t.offset = ahead(zone, s.End())
	}
	local := t.local(s.Start)
	begin := local.Truncate(day)
	t.first = holidays.DateOf(begin)
	for ; begin.Before(t.local(s.End())); begin = begin.Add(day) {
		d := dayOf{date: holidays.DateOf(begin), from: t.bin(begin), mean: math.NaN()}
		to := t.bin(begin.Add(day))
		d.whole = !begin.Before(local) && to <= len(s.Values)
		if h, ok := t.table.Day(d.date); ok {
			d.holiday = &h
		}
		if d.whole {
			if part := s.Values[d.from:to]; 2*(Series{Values: part}).Known() >= len(part) {
				d.mean = meanKnown(part)
			}
		}
		t.days = append(t.days, d)
	}
	return t
}

// local is a moment's time on the clock, as if that were UTC.
func (t *dayTable) local(at time.Time) time.Time { return at.UTC().Add(t.offset) }

// bin is the first that begins at a local time or later.
func (t *dayTable) bin(local time.Time) int {
	d := local.Sub(t.local(t.s.Start))
	i := int(d / t.s.Step)
	if d%t.s.Step > 0 {
		i++
	}
	return i
}

// index is that of a date in days; it may lie outside.
func (t *dayTable) index(d holidays.Date) int { return d.Since(t.first) }

// usable says whether day k tells of ordinary days of a weekday.
func (t *dayTable) usable(k int, on time.Weekday) bool {
	d := &t.days[k]
	return d.holiday == nil && d.mean == d.mean && d.date.Weekday() == on
}

// ordinary are the last ordinary days of a weekday before day k, the latest first, or else those that follow it, as far as they are there.
func (t *dayTable) ordinary(k int, on time.Weekday) (out []int) {
	for i := min(k, len(t.days)) - 1; i >= 0 && len(out) < daysLookedAt; i-- {
		if t.usable(i, on) {
			out = append(out, i)
		}
	}
	for i := max(0, k+1); i < len(t.days) && len(out) == 0; i++ {
		if t.usable(i, on) {
			out = append(out, i)
		}
	}
	return out
}

// level is how much more comes around day k than around day other, by the mean rates of the last ordinary days of the same weekdays before them.
func (t *dayTable) level(k, other int) float64 {
	now, then := 0.0, 0.0
	last := func(k int, on time.Weekday) float64 {
		for i := min(k, len(t.days)) - 1; i >= max(0, k-14); i-- {
			if t.usable(i, on) {
				return t.days[i].mean
			}
		}
		return math.NaN()
	}
	for on := time.Sunday; on <= time.Saturday; on++ {
		if a, b := last(k, on), last(other, on); a+b == a+b {
			now, then = now+a, then+b
		}
	}
	if now <= 0 || then <= 0 {
		return 1
	}
	return now / then
}

// course is the mean of days, brought to the level of day k, by phase; NaN where none is known, nil of no days.
func (t *dayTable) course(k int, days []int) []float64 {
	if len(days) == 0 {
		return nil
	}
	out, n := make([]float64, t.perDay), make([]float64, t.perDay)
	for _, i := range days {
		level := t.level(k, i)
		for h := range out {
			if at := t.days[i].from + h; at < len(t.s.Values) {
				if v := t.s.Values[at]; v == v {
					out[h], n[h] = out[h]+level*v, n[h]+1
				}
			}
		}
	}
	for h := range out {
		out[h] /= n[h]
	}
	return out
}

// soft is a course averaged over the phases beside each, and no less than a floor.
func (t *dayTable) soft(course []float64, floor float64) []float64 {
	if course == nil {
		return nil
	}
	reach := max(1, int(softReach/t.s.Step))
	out := make([]float64, len(course))
	for h := range out {
		out[h] = meanOrNaN(course[max(0, h-reach):min(len(course), h+reach+1)]) + floor
	}
	return out
}

// usual is the course of an ordinary day in the place of day k: of its weekday or, where no such is known, of any from Monday to Friday or of any.
func (t *dayTable) usual(k int, on time.Weekday) []float64 {
	if days := t.ordinary(k, on); days != nil {
		return t.course(k, days)
	}
	workday := func(on time.Weekday) bool { return on != time.Saturday && on != time.Sunday }
	var alike, any []int
	for i := min(k, len(t.days)) - 1; i >= 0 && len(alike) < daysLookedAt; i-- {
		of := t.days[i].date.Weekday()
		if !t.usable(i, of) {
			continue
		}
		if workday(of) == workday(on) {
			alike = append(alike, i)
		}
		if len(any) < daysLookedAt {
			any = append(any, i)
		}
	}
	if alike != nil {
		return t.course(k, alike)
	}
	return t.course(k, any)
}

// ratio is what comes on a holiday in proportion to an ordinary day, by phase. What is learnt is from before it.
func (t *dayTable) ratio(date holidays.Date, h holidays.Day) []float64 {
	if out, ok := t.ratios[date]; ok {
		return out
	}
	out := make([]float64, t.perDay)
	t.ratios[date] = out
	for i := range out {
		out[i] = 1
		if h.Uplift != nil {
			out[i] = *h.Uplift
		}
	}
	k := t.index(date)
	usual := t.usual(k, date.Weekday())
	if h.Uplift != nil || usual == nil {
		return out
	}
	floor := softFloor * meanKnown(usual)
	usual = t.soft(usual, floor)
	logs, weights := make([]float64, t.perDay), make([]float64, t.perDay)
	add := func(course []float64, weight float64) {
		for i, v := range t.soft(course, floor) {
			if r := math.Log(math.Min(math.Max(v/usual[i], 1/mostRatio), mostRatio)); r == r {
				logs[i], weights[i] = logs[i]+weight*r, weights[i]+weight
			}
		}
	}
	same, others := t.seen(k, h)
	if len(same) > 0 {
		others = same
	} else {
		if days := t.ordinary(k, h.Weekday()); days != nil {
			add(t.course(k, days), likeDays)
		}
	}
	for _, i := range others {
		add(t.course(k, []int{i}), 1)
	}
	for i := range out {
		if weights[i] > 0 {
			out[i] = math.Exp(logs[i] / weights[i])
		}
	}
	return out
}

// seen are the past holidays that tell what day k will be: those of its name, and all.
func (t *dayTable) seen(k int, h holidays.Day) (same, others []int) {
	if h.Unlearnt {
		return nil, nil
	}
	for i := range min(max(k, 0), len(t.days)) {
		d := &t.days[i]
		if d.holiday == nil || d.mean != d.mean || d.holiday.Uplift != nil {
			continue
		}
		others = append(others, i)
		if d.holiday.Name == h.Name {
			same = append(same, i)
		}
	}
	return same, others
}

// factor is what comes in the bin of a length that begins at a moment, in proportion to an ordinary day.
func (t *dayTable) factor(at time.Time, step time.Duration, zone *time.Location) float64 {
	middle := at.Add(step / 2).UTC()
	if zone != nil {
		middle = middle.Add(ahead(zone, at))
	}
	date := holidays.DateOf(middle)
	h, ok := t.table.Day(date)
	if !ok {
		return 1
	}
	phase := middle.Sub(middle.Truncate(24 * time.Hour))
	return t.ratio(date, h)[min(int(phase/t.s.Step), t.perDay-1)]
}

// plain is the history as it would have been without holidays. A whole one is replaced by the ordinary day that would have been; of one that is not over, and of the
// evening of one that ended yesterday, what has come is divided by what it was expected to be of one, so that what is more or less than that is seen. Values are a copy where any changes.
func (t *dayTable) plain() Series {
	out := t.s
	changed := false
	for k, d := range t.days {
		if d.holiday == nil {
			continue
		}
		if !changed {
			out.Values, changed = append([]float64(nil), t.s.Values...), true
		}
		usual := t.usual(k, d.date.Weekday())
		ratio := t.ratio(d.date, *d.holiday)
		last := d.from+t.perDay > len(t.s.Values)
		for h := range t.perDay {
			i := d.from + h
			if i < 0 || i >= len(out.Values) || k+1 < len(t.days) && i >= t.days[k+1].from {
				continue
			}
			switch v := out.Values[i]; {
			case v != v:
			case !last && !(k == len(t.days)-2 && h >= t.perDay-t.perDay/eveningShare) && usual != nil && usual[h] == usual[h]:
				out.Values[i] = usual[h]
			default:
				out.Values[i] = undone(v, ratio[h])
			}
		}
	}
	return out
}

// undone is a rate as it would have been without what multiplied it; where that left nothing, nobody knows.
func undone(v, factor float64) float64 {
	if factor < leastFactor {
		return math.NaN()
	}
	return v / factor
}

// leastFactor is what remains of traffic where it is said to stop.
const leastFactor = 0.02
