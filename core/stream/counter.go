package stream

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Values says what the values of a trace are.
type Values int

const (
	// RatesOnly are events per second; what looks like a counter is refused: see [ErrCounter].
	RatesOnly Values = iota
	// Rates are events per second, whatever they look like.
	Rates
	// Counter is a number that grows by each event, such as a _total of Prometheus, read out once a bin. The rate of a bin is what was added between the row at its beginning
	// and the next, by the time between them. Where it falls it began anew: what came before that, since the row before, nobody knows, and the bin is a gap; so are bins without a row.
	Counter
)

// ErrCounter is in the chain of the error of a trace that looks like a counter, and was read as [RatesOnly].
var ErrCounter = errors.New("the values look like a counter, and not like rates")

// When values look like a counter. What people write by hand, such as ramps and saws, is none: its differences are smooth, but for their rounding.
const (
	counterLeast  = 200  // rows, unless its name says that it is one: then
	namedLeast    = 50   // where it never begins anew,
	restartsLeast = 20   // and where it does
	nearlyAll     = 20   // of so many rows one may fall,
	nearZero      = 0.1  // to no more than this share of what it was
	turnsLeast    = 5    // of so many differences one turns from growing to falling, or back; of those of noise two of three do
	aboveRounding = 1.5  // times the least that two differences differ by: so far apart are those that differ the most, one in ten
	sumLeast      = 500  // rows of a sum of counters, of which each begins anew by itself,
	sumFalls      = 100  // and of so many rows of that one may fall, to whatever it be
	blockLeast    = 4    // rows, up to one in so many
	blockShare    = 12   // of all: over so many it is looked whether noise adds up
	addsUp        = 0.65 // of what the noise of independent differences would add up to
	mostRestarts  = 10   // of so many rows of a [Counter] one may fall
	longGap       = 1.5  // median distances of rows: so far apart are two between which one is missing
)

// falls are the rows that are less than the one before.
func (p *rowParser) falls() (out []int) {
	for i := 1; i < len(p.rows); i++ {
		if p.rows[i].rate < p.rows[i-1].rate {
			out = append(out, i)
		}
	}
	return out
}

// checkRates says, as an error, that the rows, which are in order, look like a counter: nearly none is less than the one before, but for those that begin anew near zero, once or in rows
// running, or, of a long sum of counters, very few; and what is added from one to the next goes up and down as traffic does. A column whose name says that it is a counter needs no more than not to fall.
func (p *rowParser) checkRates() error {
	falls, n := p.falls(), len(p.rows)
	named := strings.HasSuffix(normal(p.columns.rateName), "_total")
	least := counterLeast
	if named {
		least = namedLeast
		if len(falls) > 0 {
			least = restartsLeast
		}
	}
	if n < least || len(falls)*nearlyAll > n || !p.beginsAnew(falls) && (n < sumLeast || len(falls)*sumFalls > n) || !p.grows(named) {
		return nil
	}
	at, never := p.rows[n-1].line, ""
	if len(falls) > 0 {
		at = p.rows[falls[0]].line
		never = fmt.Sprintf(", save %d that begin anew, the first on line %d", len(falls), at)
	}
	return fmt.Errorf("%s:%d:1: %w: of %d rows none is less than the one before%s. Give -counter to take what is added from row to row (its new beginnings are gaps), or -counter=false where they are events per second after all",
		p.name, at, ErrCounter, n, never)
}

// beginsAnew says whether each fall is to near zero, those in rows running by what was before the first.
func (p *rowParser) beginsAnew(falls []int) bool {
	before := 0.0
	for k, i := range falls {
		if k == 0 || falls[k-1] != i-1 {
			before = p.rows[i-1].rate
		}
		if p.rows[i].rate > nearZero*before {
			return false
		}
	}
	return true
}

// far is the distance of two rows between which one is missing.
func (p *rowParser) far() int64 { return int64(longGap * float64(medianStep(p.rows))) }

// grows says whether what is added from row to row is as traffic is: named, that anything is.
func (p *rowParser) grows(named bool) bool {
	far := p.far()
	var added []float64
	highest := 0.0
	for i := 1; i < len(p.rows); i++ {
		highest = max(highest, p.rows[i].rate)
		if d := p.rows[i].rate - p.rows[i-1].rate; d >= 0 && p.rows[i].at-p.rows[i-1].at <= far {
			added = append(added, d)
		}
	}
	if len(added) == 0 || slices.Max(added) == 0 {
		return false
	}
	if named {
		return true
	}
	var apart []float64
	turns, last := 0, 0.0
	least := 1e-9 * highest // below it lies what numbers cannot hold
	for i := 1; i < len(added); i++ {
		d := added[i] - added[i-1]
		if math.Abs(d) <= least {
			apart = append(apart, 0)
			continue
		}
		apart = append(apart, math.Abs(d))
		if d*last < 0 {
			turns++
		}
		last = d
	}
	slices.Sort(apart)
	first := slices.IndexFunc(apart, func(d float64) bool { return d > 0 })
	return first >= 0 && turns*turnsLeast >= len(apart) && apart[len(apart)*9/10] > aboveRounding*apart[first] && accumulates(added)
}

// accumulates says whether the noise of what is added from row to row adds up, as that of a counter does: what came once too many stays in it. The noise of a rate, or its rounding, is
// of its row alone. Third differences of the sum, which know nothing of level, slope and curve, over k rows are to those over one, in their mean square, as k : 1 where it adds up, and as
// 1 : 1 where it does not.
func accumulates(added []float64) bool {
	sum := make([]float64, len(added)+1)
	for i, d := range added {
		sum[i+1] = sum[i] + d
	}
	third := func(k int) float64 {
		squares, n := 0.0, 0
		for i := 0; i+3*k < len(sum); i++ {
			d := sum[i+3*k] - 3*sum[i+2*k] + 3*sum[i+k] - sum[i]
			squares, n = squares+d*d, n+1
		}
		return squares / float64(max(1, n))
	}
	for k := blockLeast; k <= max(blockLeast, len(added)/blockShare); k = k * 3 / 2 {
		if third(k) <= addsUp*float64(k)*third(1) {
			return false
		}
	}
	return true
}

// differences makes rates of the rows, which are in order and a counter's.
func (p *rowParser) differences() error {
	falls := p.falls()
	if len(falls)*mostRestarts > len(p.rows) {
		return fmt.Errorf("%s:%d:1: -counter reads a number that grows, and begins anew at times: these values fall in %d of %d rows, here first: leave -counter out where they are events per second",
			p.name, p.rows[falls[0]].line, len(falls), len(p.rows))
	}
	far := p.far()
	var out []row
	for i, r := range p.rows[:len(p.rows)-1] {
		next := p.rows[i+1]
		apart := next.at - r.at
		if next.rate < r.rate || apart > far {
			continue
		}
		rate := (next.rate - r.rate) / time.Duration(apart).Seconds()
		if rate > mostRate {
			return fmt.Errorf("%s:%d:1: the counter grows by %g a second from line %d to here: want at most %g events per second", p.name, next.line, rate, r.line, mostRate)
		}
		out = append(out, row{r.at, rate, r.line})
	}
	if len(out) < 2 {
		return fmt.Errorf("%s:%d:1: of the counter there are fewer than 2 pairs of rows that follow each other, which a curve needs at least", p.name, p.line)
	}
	p.columns.counts, p.restarts = "", len(falls)
	if len(falls) > 0 {
		p.restartLine = p.rows[falls[0]].line
	}
	p.rows = out
	return nil
}
