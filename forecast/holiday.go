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
// rates of the same weekdays before either. Where the history tells nothing, the ratio is 1. How much of it comes is measured as the day goes on: see [keeping]. What it is at midnight fades in the night that follows:
// see [dayTable.evening].
type dayTable struct {
	s      Series        // by the clock
	offset time.Duration // by which that clock is ahead of UTC, throughout
	perDay int           // bins, the last of them perhaps begun
	first  holidays.Date
	days   []dayOf
	table  *holidays.Table

	feasts   map[holidays.Date]*feast
	ratios   map[holidays.Date][]float64
	nights   map[holidays.Date]night
	doubts   map[holidays.Date]float64
	measured map[int]squares   // see [dayTable.squares]
	courses  map[int][]float64 // see [dayTable.usual]
	// now is the strength of the history's last day at its end, where that is a holiday, and nowExpected what was expected of it.
	now         *keeping
	nowExpected float64
}

// dayOf is one day of a table.
type dayOf struct {
	date    holidays.Date
	from    int // bin; that of an incomplete first day lies before the history
	whole   bool
	holiday *feast  // nil: an ordinary one
	mean    float64 // rate; NaN where less than half is known
	// strengths are those of its hours, of a holiday among the last days, and end is the strength at its end, as far as it has come; see [dayTable.follow].
	strengths []float64
	end       keeping
}

// newDayTable looks over a history by the clock. nil: it has no bins of which a day holds two, and knows of no day.
func newDayTable(from holidays.Calendar, zone *time.Location, s Series) *dayTable {
	const day = 24 * time.Hour
	if len(from.Rules) == 0 || s.Step > day/2 || s.Step <= 0 {
		return nil
	}
	t := &dayTable{s: s, perDay: int((day + s.Step - 1) / s.Step), table: from.Table(), feasts: map[holidays.Date]*feast{}, nights: map[holidays.Date]night{},
		ratios: map[holidays.Date][]float64{}, doubts: map[holidays.Date]float64{}, measured: map[int]squares{}, courses: map[int][]float64{}}
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
		d.holiday = t.holiday(d.date)
		if d.whole {
			if part := s.Values[d.from:to]; 2*(Series{Values: part}).Known() >= len(part) {
				d.mean = meanKnown(part)
			}
		}
		t.days = append(t.days, d)
	}
	t.follow()
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
	sums, known := make([]float64, len(course)+1), make([]float64, len(course)+1) // of what lies before
	for h, v := range course {
		sums[h+1], known[h+1] = sums[h], known[h]
		if v == v {
			sums[h+1], known[h+1] = sums[h]+v, known[h]+1
		}
	}
	for h := range out {
		from, to := max(0, h-reach), min(len(course), h+reach+1)
		out[h] = max(0, sums[to]-sums[from])/(known[to]-known[from]) + floor
	}
	return out
}

// usual is the course of an ordinary day in the place of day k: of its weekday or, where no such is known, of any from Monday to Friday or of any.
func (t *dayTable) usual(k int) []float64 {
	of, ok := t.courses[k]
	if !ok {
		of = t.ordinaryCourse(k, t.first.Plus(k).Weekday())
		t.courses[k] = of
	}
	return of
}

func (t *dayTable) ordinaryCourse(k int, on time.Weekday) []float64 {
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
func (t *dayTable) ratio(date holidays.Date, f *feast) []float64 {
	if out, ok := t.ratios[date]; ok {
		return out
	}
	out := make([]float64, t.perDay)
	t.ratios[date] = out
	for i := range out {
		out[i] = 1
		if f.Uplift != nil {
			out[i] = *f.Uplift
		}
	}
	k := t.index(date)
	usual := t.usual(k)
	if f.Uplift != nil || usual == nil {
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
	same, others := t.seen(k, f)
	if len(same) > 0 {
		others = same
	} else {
		if days := t.ordinary(k, f.Weekday()); days != nil {
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
	if f.bridge && len(same) == 0 { // the night belongs to the holiday before it
		for i := range lowest(usual[:len(usual)/2]) {
			out[i] = 1
		}
	}
	return out
}

// seen are the past holidays that tell what day k will be: those of its name, and all.
func (t *dayTable) seen(k int, f *feast) (same, others []int) {
	if f.Unlearnt {
		return nil, nil
	}
	for i := range min(max(k, 0), len(t.days)) {
		d := &t.days[i]
		if d.holiday == nil || d.mean != d.mean || d.holiday.Uplift != nil {
			continue
		}
		if d.holiday.bridge == f.bridge && d.holiday.Name == f.Name {
			same = append(same, i)
		}
		if !d.holiday.bridge {
			others = append(others, i)
		}
	}
	return same, others
}

// factor is what comes in the bin of a length that begins at a moment, in proportion to an ordinary day, as is expected before any of a holiday is seen.
func (t *dayTable) factor(at time.Time, step time.Duration, zone *time.Location) float64 {
	date, f, phase := t.at(at, step, zone)
	if f == nil {
		return 1
	}
	return t.ratio(date, f)[phase]
}

// at is the date of the bin of a length that begins at a moment, what holiday it is, and its phase; nil: it is an ordinary one.
func (t *dayTable) at(at time.Time, step time.Duration, zone *time.Location) (date holidays.Date, f *feast, phase int) {
	middle := at.Add(step / 2).UTC()
	if zone != nil {
		middle = middle.Add(ahead(zone, at))
	}
	date = holidays.DateOf(middle)
	into := middle.Sub(middle.Truncate(24 * time.Hour))
	return date, t.holiday(date), min(int(into/t.s.Step), t.perDay-1)
}

// foresee is the factor of a bin after the history as it is known at the end of it, and the standard deviation of its logarithm.
func (t *dayTable) foresee(at time.Time, step time.Duration, zone *time.Location) (factor, unsure float64) {
	date, f, phase := t.at(at, step, zone)
	factor = 1
	if ratio, s := t.evening(date, phase); ratio != 1 {
		factor, unsure = factorOf(ratio, s.mean), math.Sqrt(s.variance)*math.Abs(math.Log(ratio))
	}
	if f == nil {
		return factor, unsure
	}
	ratio := t.ratio(date, f)[phase]
	s := t.foreseen(date, f, at.Add(step/2).Sub(t.s.End()))
	return factor * factorOf(ratio, s.mean), math.Hypot(unsure, math.Sqrt(s.variance)*math.Abs(math.Log(max(ratio, leastFactor))))
}

// plain is the history as it would have been without holidays. What has come on the last two days of it is divided by what was measured to be of a holiday, or of the evening before, so that what is
// more or less than that is seen. An earlier one is replaced by the ordinary day that would have been. Values are a copy where any changes.
func (t *dayTable) plain() Series {
	out := t.s
	changed := false
	set := func(i int, v float64) {
		if !changed {
			out.Values, changed = append([]float64(nil), t.s.Values...), true
		}
		out.Values[i] = v
	}
	for k := range t.days {
		d := &t.days[k]
		late := k >= len(t.days)-latestDays
		if d.holiday == nil && !(late && k > 0 && t.days[k-1].holiday != nil) {
			continue
		}
		usual := t.usual(k)
		var ratio []float64
		if d.holiday != nil {
			ratio = t.ratio(d.date, d.holiday)
		}
		for h := range t.perDay {
			i := d.from + h
			if i < 0 || i >= len(t.s.Values) || k+1 < len(t.days) && i >= t.days[k+1].from {
				continue
			}
			v := t.s.Values[i]
			if v != v {
				continue
			}
			if !late && usual != nil && usual[h] == usual[h] {
				set(i, usual[h])
				continue
			}
			if ratio != nil {
				v = undone(v, d.came(t, ratio, h))
			}
			if evening, s := t.evening(d.date, h); evening != 1 {
				v = undone(v, factorOf(evening, s.mean))
			}
			set(i, v)
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

// lowest is the index of the least of values, 0 where none is known.
func lowest(values []float64) (at int) {
	least := math.Inf(1)
	for i, v := range values {
		if v < least {
			at, least = i, v
		}
	}
	return at
}

// leastFactor is what remains of traffic where it is said to stop.
const leastFactor = 0.02
