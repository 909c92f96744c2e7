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
	counterLeast  = 50  // rows, where it never begins anew,
	restartsLeast = 20  // and where it does
	nearlyAll     = 20  // of so many rows one may fall,
	nearZero      = 0.1 // to no more than this share of what it was
	turnsLeast    = 5   // of so many differences one turns from growing to falling, or back; of those of noise two of three do
	aboveRounding = 3   // times the least that two differences differ by: so far apart are those that differ the most, one in ten
	mostRestarts  = 10  // of so many rows of a [Counter] one may fall
	longGap       = 1.5 // median distances of rows: so far apart are two between which one is missing
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

// checkRates says, as an error, that the rows, which are in order, look like a counter: nearly none is less than the one before, but for those that begin anew near zero, and what is
// added from one to the next goes up and down as traffic does. A column whose name says that it is a counter needs no more than not to fall.
func (p *rowParser) checkRates() error {
	falls, n := p.falls(), len(p.rows)
	if n < restartsLeast || len(falls) == 0 && n < counterLeast || len(falls)*nearlyAll > n {
		return nil
	}
	for _, i := range falls {
		if p.rows[i].rate > nearZero*p.rows[i-1].rate {
			return nil
		}
	}
	if !p.grows(strings.HasSuffix(normal(p.columns.rateName), "_total")) {
		return nil
	}
	at, never := p.rows[n-1].line, ""
	if len(falls) > 0 {
		at = p.rows[falls[0]].line
		never = fmt.Sprintf(", save %d that begin anew near 0, the first on line %d", len(falls), at)
	}
	return fmt.Errorf("%s:%d:1: %w: of %d rows none is less than the one before%s. Give -counter to take what is added from row to row (its new beginnings are gaps), or -counter=false where they are events per second after all",
		p.name, at, ErrCounter, n, never)
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
	return first >= 0 && turns*turnsLeast >= len(apart) && apart[len(apart)*9/10] > aboveRounding*apart[first]
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
