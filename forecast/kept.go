package forecast

import (
	"math"
	"slices"
	"time"

	"github.com/kale-sched/kale/forecast/holidays"
)

// How it is measured whether a holiday is kept; see [dayTable.follow].
const (
	keptBlock   = time.Hour      // whose bins tell of one strength
	keptMemory  = 12 * time.Hour // after which of a strength that was measured 1/e is left
	keptAtMost  = 2.0            // a strength
	bridgeKept  = 0.5            // strength that is expected of a bridge day
	nightTold   = 2 * time.Hour  // before midnight, that tell of an evening
	latestDays  = 2              // last days of a history of which what is measured of a holiday is undone
	keptLookout = 7              // days before a holiday among which its level is looked up
)

// keeping is what is known of the strength of a holiday at a moment.
//
// A holiday is what people expect, as an event is, and may be kept by all, by some or by nobody. Its strength s says how much of it comes:
//
//	came / usual = ratio^s
//
// is 0 where the day runs as an ordinary one and 1 where it runs as [dayTable] expects of the holiday. It is not one for the whole day: that the night was long does not yet
// say that the morning is quiet. So s is taken for a process about what is expected, m, with the standard deviation d and a memory of half a day,
//
//	s(t+Δ) = m + φ·(s(t) − m) + N(0, d²·(1 − φ²)),  φ = exp(−Δ/12h)
//
// which is measured once an hour by log(came/usual) = s·log(ratio) + noise (a Kalman filter). m is 1, and 0.5 of a bridge day as long as none was seen. d² is the
// mean square by which past holidays came otherwise than was expected of them, in logarithms, in proportion to that of log(ratio); with 0.5² as one more of them.
// How far s may be off widens the bands.
type keeping struct{ mean, variance float64 }

// after is it when some time has passed, and what is expected is perhaps another.
func (s keeping) after(long time.Duration, was, is, variance float64) keeping {
	phi := math.Exp(-float64(long) / float64(keptMemory))
	return keeping{is + phi*(s.mean-was), variance + phi*phi*(s.variance-variance)}
}

// told is it after log(came/usual) was seen to be got where the whole of the holiday makes it said, with a noise of a variance.
func (s keeping) told(got, said, noise float64) keeping {
	gain := s.variance * said / (said*said*s.variance + noise)
	return keeping{min(max(s.mean+gain*(got-said*s.mean), 0), keptAtMost), s.variance * (1 - gain*said)}
}

// holiday says what kind of day a date is: a holiday of the calendar, or a bridge day; nil: an ordinary one. A bridge day is a workday between a holiday and a day off. It is
// what a holiday like the one beside it would be, from the hour of the least traffic on: the night before that belongs to the holiday.
func (t *dayTable) holiday(d holidays.Date) *feast {
	if f, ok := t.feasts[d]; ok {
		return f
	}
	var f *feast
	if h, ok := t.table.Day(d); ok {
		f = &feast{Day: h}
	} else if h, ok := t.bridge(d); ok {
		f = &feast{Day: h, bridge: true}
	}
	t.feasts[d] = f
	return f
}

// feast is a day that is no ordinary one.
type feast struct {
	holidays.Day
	bridge bool
}

// bridge says whether a date that is no holiday is a bridge day, and what holiday makes it one.
func (t *dayTable) bridge(d holidays.Date) (holidays.Day, bool) {
	off := func(by int) (h holidays.Day, free, feast bool) {
		day := d.Plus(by)
		h, feast = t.table.Day(day)
		feast = feast && h.Uplift == nil
		return h, feast || weekend(day.Weekday()), feast
	}
	before, free, feast := off(-1)
	after, freeToo, feastToo := off(1)
	h := before
	if !feast {
		h = after
	}
	if !free || !freeToo || !feast && !feastToo || weekend(d.Weekday()) || d.Weekday() == h.Weekday() {
		return holidays.Day{}, false
	}
	return holidays.Day{Name: "bridge day", How: h.How}, true
}

func weekend(on time.Weekday) bool { return on == time.Saturday || on == time.Sunday }

// expected is the strength that is expected of day k before any of it is seen.
func (t *dayTable) expected(k int, f *feast) float64 {
	if same, _ := t.seen(k, f); f.bridge && len(same) == 0 {
		return bridgeKept
	}
	return 1
}

// hourly is what an hour of a day says of its strength: log(came/usual), less the level of the day before, and log(ratio); how much of it is known, 0 to 1; and the variance of the first of an ordinary day.
type hourly struct {
	got, said, known []float64
	noise            float64
}

// hourly is what those of day k say, as far as it has come; none where it is not known what is usual.
func (t *dayTable) hourly(k int) (out hourly) {
	d := &t.days[k]
	got := t.beyond(k)
	if got == nil {
		return out
	}
	level, noise := t.levelBefore(k)
	out.noise = noise * noise
	ratio := t.ratio(d.date, d.holiday)
	long := max(1, int(keptBlock/t.s.Step))
	for from := 0; from < len(got); from += long {
		var all []float64
		said := 0.0
		for h := from; h < min(from+long, len(got)); h++ {
			if got[h] == got[h] {
				all = append(all, got[h])
				said += math.Log(max(ratio[h], leastFactor))
			}
		}
		n := float64(len(all))
		g, s := 0.0, 0.0
		if n > 0 {
			g, s = median(all)-level, said/n
		}
		out.got, out.said, out.known = append(out.got, g), append(out.said, s), append(out.known, n/float64(min(long, t.perDay-from)))
	}
	return out
}

// beyond is log(came/usual) in the bins of day k, as far as it has come; nil where it is not known what is usual.
func (t *dayTable) beyond(k int) []float64 {
	d := &t.days[k]
	usual := t.usual(k)
	if usual == nil {
		return nil
	}
	floor := softFloor * meanKnown(usual)
	usual = t.soft(usual, floor)
	var out []float64
	for h := range min(t.perDay, len(t.s.Values)-d.from) {
		v := math.NaN()
		if i := d.from + h; i >= 0 {
			v = math.Log((t.s.Values[i] + floor) / usual[h])
		}
		out = append(out, v)
	}
	return out
}

// levelBefore is how log(came/usual) was on the last ordinary day before day k, that of its last hours as much as that of the day, and its standard deviation.
func (t *dayTable) levelBefore(k int) (level, noise float64) {
	for i := k - 1; i >= max(0, k-keptLookout); i-- {
		if t.days[i].holiday != nil || t.days[i].mean != t.days[i].mean {
			continue
		}
		var known []float64
		for _, v := range t.beyond(i) {
			if v == v {
				known = append(known, v)
			}
		}
		if len(known) < eventMinBins {
			return 0, eventNoise
		}
		latest := known[max(0, len(known)-max(eventMinBins, t.perDay/8)):]
		level = (median(known) + median(latest)) / 2
		for j, v := range known {
			known[j] = math.Abs(v - level)
		}
		return level, max(eventNoise, 1.4826*median(known))
	}
	return 0, eventNoise
}

// squares are sums over the hours of a whole holiday: of by how much log(came/usual) was not what was expected, and of log(ratio).
type squares struct{ missed, said float64 }

// squares are those of day k.
func (t *dayTable) squares(k int) (out squares) {
	if a, ok := t.measured[k]; ok {
		return a
	}
	o := t.hourly(k)
	e := t.expected(k, t.days[k].holiday)
	for b, l := range o.said {
		w, off := o.known[b], o.got[b]-e*l
		out = squares{out.missed + w*off*off, out.said + w*l*l}
	}
	t.measured[k] = out
	return out
}

// doubt is the variance of the strength of day k before any of it is seen.
func (t *dayTable) doubt(k int, date holidays.Date, f *feast) float64 {
	if v, ok := t.doubts[date]; ok {
		return v
	}
	said := 0.0
	ratio := t.ratio(date, f)
	for _, r := range ratio {
		l := math.Log(max(r, leastFactor))
		said += l * l
	}
	said *= float64(t.s.Step) / float64(keptBlock) // as hours
	missed := eventDoubt * eventDoubt * said
	for i := range min(max(k, 0), len(t.days)) {
		d := &t.days[i]
		if d.holiday != nil && d.holiday.bridge == f.bridge && d.mean == d.mean {
			s := t.squares(i)
			missed, said = missed+s.missed, said+s.said
		}
	}
	v := eventDoubt * eventDoubt
	if said > 0 {
		v = missed / said
	}
	t.doubts[date] = v
	return v
}

// follow measures the strengths of the last days of the history, hour by hour: of the two that [dayTable.plain] divides by them, and of the one whose night reaches into these.
func (t *dayTable) follow() {
	n := len(t.days)
	was := 1.0
	for k := max(0, n-latestDays-1); k < n; k++ {
		d := &t.days[k]
		if d.holiday == nil {
			t.now = nil
			continue
		}
		expected, doubt := t.expected(k, d.holiday), t.doubt(k, d.date, d.holiday)
		s := keeping{expected, doubt}
		if t.now != nil {
			s = t.now.after(0, was, expected, doubt)
		}
		o := t.hourly(k)
		for b, l := range o.said {
			s = s.after(keptBlock, expected, expected, doubt)
			if o.known[b] > 0 {
				s = s.told(o.got[b], l, o.noise/o.known[b])
			}
			d.strengths = append(d.strengths, s.mean)
		}
		d.end, t.now, was = s, &s, expected
	}
	t.nowExpected = was
}

// came is by what day k multiplied its bin h, as it was measured then.
func (d *dayOf) came(t *dayTable, ratio []float64, h int) float64 {
	if b := h / max(1, int(keptBlock/t.s.Step)); b < len(d.strengths) {
		return factorOf(ratio[h], d.strengths[b])
	}
	return ratio[h]
}

// night is what the hours after midnight have of the holiday before them, until the hour of the least traffic: so many bins, and by what it multiplies what comes at midnight, as a logarithm.
type night struct {
	bins int
	last float64
}

// night is that of a date. It has no bins after ordinary days, on holidays and bridge days that have a night of their own, and after a holiday with an uplift, which is declared from midnight to midnight.
func (t *dayTable) night(date holidays.Date) (out night) {
	if n, ok := t.nights[date]; ok {
		return n
	}
	defer func() { t.nights[date] = out }()
	before, own := t.holiday(date.Plus(-1)), t.holiday(date)
	if before == nil || before.Uplift != nil || own != nil && !own.bridge {
		return out
	}
	k := t.index(date)
	if own != nil {
		if same, _ := t.seen(k, own); len(same) > 0 {
			return out
		}
	}
	if usual := t.usual(k); usual != nil {
		out = night{lowest(usual[:len(usual)/2]), math.Log(max(t.ratio(date.Plus(-1), before)[t.perDay-1], leastFactor))}
		out.last *= t.carried(k, before, out)
	}
	return out
}

// left is how much of the evening before is left at a phase.
func (n night) left(phase int) float64 { return max(0, 1-(float64(phase)+0.5)/float64(n.bins)) }

// carried is how much of a holiday's evening the night after it has, from 0 to 1: what fits the nights after the holidays before it best, by least squares of log(came/usual); with a half, as of a bridge day, as
// one more of them.
func (t *dayTable) carried(k int, f *feast, n night) float64 {
	said, both := 0.0, 0.0
	add := func(evening, share float64, phase int) {
		e := evening * n.left(phase)
		said, both = said+e*e, both+e*e*share
	}
	for h := range n.bins {
		add(n.last, bridgeKept, h)
	}
	_, past := t.seen(k-1, f)
	for _, i := range past {
		if i+1 >= min(k, len(t.days)) || t.days[i+1].holiday != nil {
			continue
		}
		came, after := t.beyond(i), t.beyond(i+1)
		level, _ := t.levelBefore(i)
		if len(came) < t.perDay || len(after) < n.bins {
			continue
		}
		told := came[t.perDay-max(1, int(nightTold/t.s.Step)):]
		evening := median(slices.DeleteFunc(told, func(v float64) bool { return v != v })) - level
		for h, v := range after[:n.bins] {
			if e := evening * n.left(h); math.Abs(e) >= leastSaid && v == v {
				add(evening, (v-level)/e, h)
			}
		}
	}
	if said == 0 {
		return bridgeKept
	}
	return min(max(both/said, 0), 1)
}

// evening is by what the holiday before a date multiplies what comes at a phase of it, and the strength that it has then. People who were up late are up late after midnight: what a holiday was at
// its end fades until the hour of the least traffic, where a bridge day begins too.
func (t *dayTable) evening(date holidays.Date, phase int) (ratio float64, s keeping) {
	n := t.night(date)
	if phase >= n.bins {
		return 1, s
	}
	ratio = math.Exp(n.last * n.left(phase))
	before := date.Plus(-1)
	f, k := t.holiday(before), t.index(before)
	long := time.Duration(phase) * t.s.Step
	if k >= 0 && k < len(t.days) && t.days[k].whole && t.days[k].strengths != nil {
		expected := t.expected(k, f)
		return ratio, t.days[k].end.after(long, expected, expected, t.doubt(k, before, f))
	}
	begin := t.local(t.s.Start).Truncate(24 * time.Hour)
	at := begin.Add(time.Duration(k+1)*24*time.Hour + long)
	return ratio, t.foreseen(before, f, max(0, at.Sub(t.local(t.s.End()))))
}

// foreseen is what is known of the strength of a holiday at a moment after the history.
func (t *dayTable) foreseen(date holidays.Date, f *feast, ahead time.Duration) keeping {
	k := t.index(date)
	expected, doubt := t.expected(k, f), t.doubt(k, date, f)
	if t.now == nil || k > len(t.days) { // of one that begins tomorrow or later, with an ordinary day before it
		return keeping{expected, doubt}
	}
	return t.now.after(ahead, t.nowExpected, expected, doubt)
}

// onHolidays is a forecast with the holidays that it reaches, and bands as wide as these are not known: the logarithm of what comes on one is the sum of what the forecaster does not know
// and what is not known of the holiday, which are independent.
func (f Forecast) onHolidays(t *dayTable, zone *time.Location) Forecast {
	steps := len(f.Mean)
	factors, unsure := make([]float64, steps), make([]float64, steps)
	known := true
	for h := range factors {
		factors[h], unsure[h] = t.foresee(f.At.Add(time.Duration(h)*f.Step), f.Step, zone)
		known = known && unsure[h] == 0
	}
	f = f.times(func(at time.Time) float64 { return factors[int(at.Sub(f.At)/f.Step)] })
	if known {
		return f
	}
	return f.blurred(unsure)
}

// blurred is a forecast of which it is not known by what its bins are to be multiplied: unsure are the standard deviations of that one's logarithm, which is 0 in the mean.
func (f Forecast) blurred(unsure []float64) Forecast {
	// apart moves a row of the quantile of a normal z away from the middle: distances of independent causes add up in squares.
	apart := func(row, middle []float64, z float64) []float64 {
		out := slices.Clone(row)
		for h, v := range row {
			if unsure[h] > 0 && z != 0 {
				out[h] = max(0, middle[h]+math.Copysign(math.Hypot(v-middle[h], middle[h]*math.Expm1(z*unsure[h])), z))
			}
		}
		return out
	}
	middle := f.quantile(0.5)
	if middle == nil {
		middle = f.Mean
	}
	f.Lower, f.Upper = apart(f.Lower, f.Mean, zOf(lowerQuantile)), apart(f.Upper, f.Mean, zOf(upperQuantile))
	f.Quantiles, f.Scenarios = slices.Clone(f.Quantiles), slices.Clone(f.Scenarios)
	for i, q := range f.Levels {
		f.Quantiles[i] = apart(f.Quantiles[i], middle, zOf(q))
	}
	if f.quantile(lowerQuantile) != nil && f.quantile(upperQuantile) != nil {
		f.bound()
	}
	for k, row := range f.Scenarios {
		_, part := math.Modf(float64(k+1) * math.Phi)
		z := zOf(part) // the same for the whole of a scenario, and over all of them as of a normal distribution
		f.Scenarios[k] = slices.Clone(row)
		for h := range row {
			f.Scenarios[k][h] *= math.Exp(z * unsure[h])
		}
	}
	return f
}
