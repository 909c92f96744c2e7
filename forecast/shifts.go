package forecast

import (
	"math"
	"slices"
	"time"
)

// How a shift of the level is told from what a stream does anyway; see [Series.levelled].
const (
	shiftBlocks = 288  // of the shortest season: five minutes of a day,
	shiftBins   = 3    // and so many bins at least, as long as that makes
	shiftFewest = 96   // no fewer blocks: a quarter of an hour of a day. A block of one bin, in five-minute data, finds shifts that are none [measured]
	shiftBefore = 4    // the level before a shift is that of this part of the season
	shiftLeast  = 1.25 // a factor closer to 1 is left to the level ratios
	shiftTwice  = 2.0  // it is so many times as large as anything before it, as a logarithm
	shiftShort  = 4.0  // and so many times while the history is too short for the longest season: with 2, nights before a weekend were shifts in the New York trace
	shiftLasts  = 2    // seasons: what goes back within them, or on, was a spell
	shiftKeeps  = 0.5  // it stays within so much of its logarithm, in each part of those seasons
	shiftWeek   = 7    // days: what comes on other days of the week is none, whether a week was named as a season or not
)

// shift is a bin from which on the level is a factor of what it was, and the block at which that was found.
type shift struct {
	bin, block int
	factor     float64
}

// levelled is the history as it would have been at its latest level: what lay before a lasting shift is multiplied by that one's factor. When a stream that keeps to its season gets
// another level at once, as when it is given to all users, or a half of its producers are switched off, nothing that was learnt before knows of it: the day after, what repeats itself would be a shift once more, a mean of
// seasons is of the days before and after for weeks, and the largest errors are those of the shift itself. It shares Values where there is no shift.
//
// A shift is what no past of the stream explains: the level, beside a season before and the hours before that, moves by so many times what it ever moved by, in the first two blocks
// of it already. So a stream of bursts has none. What is over within shiftLasts seasons was a spell, and stays, as the errors that it made. How large a shift is, is measured again each time that twice as much of it has come, until most of a season has:
// not at each bin, since all that was learnt depends on it.
func (s Series) levelled(seasons []time.Duration) Series {
	var lags []int
	for _, d := range seasons {
		if lag := int(d / s.Step); lag > 0 && d%s.Step == 0 {
			lags = append(lags, lag)
		}
	}
	if len(lags) == 0 {
		return s
	}
	slices.Sort(lags)
	if day := int(24 * time.Hour / s.Step); slices.Contains(lags, day) {
		lags = append(lags, shiftWeek*day)
		slices.Sort(lags)
	}
	lags = slices.Compact(lags)
	f := newShiftSearch(s, tellable(lags, len(s.Values)))
	if len(f.lags) < len(lags) {
		f.times = shiftShort
	}
	f.find()
	if len(f.found) == 0 {
		return s
	}
	return Series{Start: s.Start, Step: s.Step, Values: f.y}
}

// tellable is those lags beside which a history of so many bins tells by now how the level moves, the shortest at the least: a surge in the first week is one too. Of a weekend in it, which
// nothing told either, the second day is then at its level.
func tellable(lags []int, bins int) []int {
	n := len(lags)
	for n > 1 && lags[n-1]+lags[0]/shiftBefore+lags[0] > bins {
		n--
	}
	return lags[:n]
}

// shiftSearch looks for shifts block by block, in the order of time.
type shiftSearch struct {
	y      []float64 // the history; what lay before a shift that was found is at the level after it
	own    bool      // it is a copy
	lags   []int     // bins, shortest first
	from   int       // the first bin of the first block
	block  int       // bins
	blocks []float64 // their means, as y is
	levels []levels  // of the blocks, by lag
	moved  []float64 // by lag: the largest factor, or its inverse, that the level ever moved by
	times  float64   // a shift is so many times as large as any move before it, as a logarithm
	seen   int       // blocks of which it is known how the level moved
	found  []shift
}

// newShiftSearch divides the history into blocks that begin at whole ones since the epoch, so that they stay the same while it goes on. NaN is one that is not known by half.
func newShiftSearch(s Series, lags []int) *shiftSearch {
	whole := 0
	for _, lag := range lags {
		for a, b := whole, lag; ; a, b = b, a%b {
			if b == 0 {
				whole = a
				break
			}
		}
	}
	block := max(1, lags[0]/shiftBlocks, min(shiftBins, lags[0]/shiftFewest))
	for whole%block != 0 {
		block--
	}
	f := &shiftSearch{y: s.Values, lags: lags, block: block, times: shiftTwice, moved: make([]float64, len(lags)), levels: make([]levels, len(lags))}
	for i := range lags {
		f.moved[i] = 1
	}
	var to int
	f.from, to = milestones(s, block)
	for i := f.from; i < to; i += block {
		sum, n := 0.0, 0
		for _, v := range f.y[i : i+block] {
			if v == v {
				sum, n = sum+v, n+1
			}
		}
		if 2*n < block {
			sum = math.NaN()
		}
		f.blocks = append(f.blocks, sum/float64(n))
	}
	f.level()
	return f
}

// level looks at the blocks as they are now.
func (f *shiftSearch) level() {
	for i, lag := range f.lags {
		f.levels[i].set(f.blocks, lag/f.block, 0)
	}
}

// before is how many blocks tell of the level before a shift.
func (f *shiftSearch) before() int { return max(2, f.lags[0]/f.block/shiftBefore) }

// find goes through the blocks. The level has to be known for a season, beside the longest one before it, until a move can be called a shift. What it has just moved by may be the
// beginning of one, and does not count yet.
func (f *shiftSearch) find() {
	season, longest := f.lags[0]/f.block, f.lags[len(f.lags)-1]/f.block
	late := max(2, f.before()/4)
	moves := make([][]float64, late+1) // of the last blocks, in turn
	for i := range moves {
		moves[i] = make([]float64, len(f.lags))
	}
	pending := 0
	for b := longest + f.before(); b+1 < len(f.blocks); b++ {
		now, least := moves[b%len(moves)], math.Inf(1)
		for i := range f.lags {
			now[i] = f.move(b, &f.levels[i])
			least = min(least, now[i])
		}
		best := slices.Index(f.moved, slices.Min(f.moved))
		if f.seen >= season && least >= shiftLeast && least >= math.Pow(f.moved[best], f.times) && f.shifted(b, f.lags[best]) {
			b, pending = b+f.before(), 0
			continue
		}
		if least > 0 {
			f.seen++
		}
		if pending < late {
			pending++
			continue
		}
		for i, v := range moves[(b+1)%len(moves)] { // late blocks ago
			f.moved[i] = max(f.moved[i], v)
		}
	}
}

// move is by what factor the level moves with block b, beside one a lag before and the hours before both; of a fall its inverse. It is that of two blocks which is the less, 1 where
// they do not agree, and 0 where it is not known.
func (f *shiftSearch) move(b int, beside *levels) float64 {
	now, then, n := beside.sums(b-f.before(), b)
	level := now / then
	one := f.blocks[b] / f.blocks[b-beside.lag] / level
	two := f.blocks[b+1] / f.blocks[b+1-beside.lag] / level
	if one < 1 {
		one, two = 1/one, 1/two
	}
	least := min(one, two)
	if 2*n < f.before() || least != least || math.IsInf(least, 1) {
		return 0
	}
	return max(least, 1)
}

// shifted takes in the shift that is found at a block, unless it is none after all. What came before it is at the new level from then on.
func (f *shiftSearch) shifted(b, lag int) bool {
	first := f.from + b*f.block
	n := f.before() * f.block
	level := f.ratio(first-f.block-n, first-f.block, lag)
	bin := f.begin(first-f.block, first+2*f.block, lag, level)
	long := f.block
	for 2*long <= min(f.lags[0], len(f.y)-bin) {
		long *= 2
	}
	factor := f.ratio(bin, min(bin+long, len(f.y)), lag) / level
	size := math.Abs(math.Log(factor))
	if !(size >= math.Log(shiftLeast)) {
		return false
	}
	found := shift{bin, b, factor}
	if size > math.Log(levelMaxRatio) {
		f.spell(found, size)
		return true
	}
	if last := len(f.found) - 1; last >= 0 && b-f.found[last].block < shiftLasts*f.lags[0]/f.block {
		f.spell(f.found[last], size)
		f.raise(f.found[last], 1/f.found[last].factor)
		f.found = f.found[:last]
		return true
	}
	f.raise(found, factor)
	if !f.lasted(found, lag, level) {
		f.raise(found, 1/factor)
		f.spell(found, size)
		return true
	}
	f.found = append(f.found, found)
	return true
}

// spell notes that no move of a size is anything new, nor one as large as a shift that was none.
func (f *shiftSearch) spell(s shift, size float64) {
	most := math.Exp(max(size, math.Abs(math.Log(s.factor))))
	for i := range f.moved {
		f.moved[i] = max(f.moved[i], most)
	}
}

// lasted says whether the level is about as after a shift in all the parts of the next seasons that have come, and lately. What was before it has been raised.
func (f *shiftSearch) lasted(s shift, lag int, level float64) bool {
	part := f.before() * f.block
	for k := 0; k < shiftLasts*f.lags[0]/part && s.bin+(k+1)*part <= len(f.y); k++ {
		off := math.Log(f.ratio(s.bin+k*part, s.bin+(k+1)*part, lag) / level)
		if math.Abs(off) > shiftKeeps*math.Abs(math.Log(s.factor)) {
			return false
		}
	}
	// Of a part that has not come as a whole, the last two blocks tell: a spell of an hour is not taken for a shift for hours after it.
	to := f.from + len(f.blocks)*f.block
	if from := to - 2*f.block; from >= s.bin+2*f.block && to-s.bin <= shiftLasts*f.lags[0] {
		off := math.Log(f.ratio(from, to, lag) / level)
		return !(math.Abs(off) > shiftKeeps*math.Abs(math.Log(s.factor)))
	}
	return true
}

// raise multiplies what lies before a shift.
func (f *shiftSearch) raise(s shift, factor float64) {
	if !f.own {
		f.y, f.own = slices.Clone(f.y), true
	}
	for i := range s.bin {
		f.y[i] *= factor
	}
	for i := range s.block {
		f.blocks[i] *= factor
	}
	f.level()
}

// ratio is the level of the bins from … to − 1 beside that of a lag before.
func (f *shiftSearch) ratio(from, to, lag int) float64 {
	now, then := 0.0, 0.0
	for i := max(from, lag); i < to; i++ {
		if v, w := f.y[i], f.y[i-lag]; v+w == v+w {
			now, then = now+v, then+w
		}
	}
	return now / then
}

// begin is the bin from … to − 1 at which a shift begins: that which leaves the least squares of what is before it about the level, and of what is after it about that of the last third.
func (f *shiftSearch) begin(from, to, lag int, level float64) int {
	after := f.ratio(to-f.block, to, lag)
	off := func(i int, of float64) float64 {
		if d := f.y[i] - of*f.y[i-lag]; d == d {
			return d * d
		}
		return 0
	}
	sum := 0.0
	for i := from; i < to; i++ {
		sum += off(i, after)
	}
	best, least := from, sum
	for i := from; i < to; i++ {
		if sum += off(i, level) - off(i, after); sum < least {
			best, least = i+1, sum
		}
	}
	return best
}
