package traffic

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// Ahead is a record that is dated later than it entered. Brokers answer with the first record that is as late as a time they are asked for, so that one dated two
// hours ahead hides, for two hours, all that came after it: nothing seems to arrive, and then all at once.
type Ahead struct {
	Partition int32
	Offset    int64
	Stamp     time.Time
	By        time.Duration // ahead of when it entered, at least so much, or of this machine's clock now: not above 0 where all others are dated behind that
	Latest    time.Time     // the latest date of a record of the partition, as far as the brokers tell; else Stamp
}

func (a Ahead) String() string {
	return fmt.Sprintf("the record at offset %d of partition %d is dated %s, ahead of this machine's clock by %v", a.Offset, a.Partition, a.Stamp.UTC().Format(time.RFC3339), a.By.Round(time.Second))
}

// AheadLeast is how far ahead a single record may be dated without a word: what it hides is short.
const AheadLeast = time.Minute

// AheadAdvice is what to do about such records.
const AheadAdvice = "set the clock right of who writes such records, or the topic's message.timestamp.type to LogAppendTime"

const (
	// latestStamp asks ListOffsets for the record with the latest timestamp.
	latestStamp = -3
	// aheadLeast is how many records have to come at once for it to be asked whether they came before.
	aheadLeast = 8
	// aheadChecks bounds how many stretches of a partition's past are looked into.
	aheadChecks = 16
)

// Ahead are the first records, one of a partition at most, that are dated ahead of this machine's clock by more than a tolerance now, and of what enters; skew is by
// how much all records are (Skew).
func (c *Client) Ahead(ctx context.Context, skew, tolerance time.Duration) ([]Ahead, error) {
	found, err := within(ctx, c, func(ctx context.Context) ([]Ahead, error) {
		parts, err := c.partitions(ctx)
		if err != nil {
			return nil, err
		}
		return c.ahead(ctx, parts, skew, tolerance)
	})
	if err != nil {
		return nil, fmt.Errorf("look for records of topic %q that are dated ahead: %w", c.topic, err)
	}
	return slices.DeleteFunc(found, func(a Ahead) bool { return a.By < tolerance }), nil
}

func (c *Client) ahead(ctx context.Context, parts []int32, skew, tolerance time.Duration) ([]Ahead, error) {
	clock := time.Now()
	now := clock.Add(skew)
	m, err := c.list(ctx, parts, now.Add(tolerance).UnixMilli())
	if err != nil {
		return nil, err
	}
	var out []Ahead
	for p, l := range m {
		if l.offset >= 0 && l.stamp >= 0 {
			at := time.UnixMilli(l.stamp)
			out = append(out, Ahead{Partition: p, Offset: l.offset, Stamp: at, By: at.Sub(clock), Latest: at})
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	latest, _ := c.list(ctx, parts, latestStamp) // brokers before 3.0 do not tell (KIP-734)
	for i, a := range out {
		if l, ok := latest[a.Partition]; ok && l.stamp > a.Stamp.UnixMilli() {
			out[i].Latest = time.UnixMilli(l.stamp)
		}
	}
	slices.SortFunc(out, func(a, b Ahead) int { return cmp.Compare(a.Partition, b.Partition) })
	return out, nil
}

// distrust marks the times of which the answers are wrong since a record is dated ahead of what came after it. They are left out, as a gap: what arrived then is not
// known.
func (f *filler) distrust(ctx context.Context) error {
	f.wrong = make([]bool, len(f.times))
	now, err := within(ctx, f.c, func(ctx context.Context) ([]Ahead, error) { return f.c.ahead(ctx, f.parts, f.skew, SkewLeast) })
	if err != nil {
		return fmt.Errorf("look for records that are dated ahead: %w", err)
	}
	newest := map[int32]int64{}
	for _, a := range now {
		f.hide(a)
		if end := f.ends[a.Partition]; a.Offset < end-1 {
			newest[a.Partition] = end - 1
		}
	}
	stamps, _ := f.c.Stamps(ctx, newest) // of what is missing nothing more is known
	began := time.Now()
	for _, at := range stamps {
		if at.Sub(began.Add(f.skew)) < SkewLeast {
			continue
		}
		// All that is written is dated ahead: what the log's end is ahead of the answers did not come in the last bins either.
		for i, t := range f.times {
			f.wrong[i] = f.wrong[i] || began.Sub(t) <= f.maxGap+f.o.Step
		}
	}
	f.ahead = now
	return f.distrustPast(ctx)
}

// hide marks the times at which a record's partition is answered with that record, though it was written before.
func (f *filler) hide(a Ahead) {
	for i, row := range f.rows {
		if row != nil && row[a.Partition] >= a.Offset && f.dated(f.times[i]) <= a.Stamp.UnixMilli() {
			f.wrong[i] = true
		}
	}
}

// stretch are times in a row, more than one, at which a partition is answered with the same record, and then with a much later one.
type stretch struct {
	first, last int   // of the times
	offset      int64 // of the record
	jump        int64 // records from it to the next answer
}

// distrustPast looks for records of the past that were dated ahead: all that was hidden by one seems to have come at once when its date was reached. Where it did come at once,
// the record in the middle of it is dated no earlier.
func (f *filler) distrustPast(ctx context.Context) error {
	suspects := map[int32][]stretch{}
	for p := range f.parts {
		suspects[int32(p)] = f.suspects(int32(p))
	}
	for range aheadChecks {
		middle := map[int32]int64{}
		for p, ss := range suspects {
			if len(ss) > 0 {
				middle[p] = ss[0].offset + ss[0].jump/2
			}
		}
		if len(middle) == 0 {
			return nil
		}
		stamps, _ := f.c.Stamps(ctx, middle) // what is missing is not distrusted
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for p, ss := range suspects {
			if len(ss) == 0 {
				continue
			}
			s := ss[0]
			suspects[p] = ss[1:]
			dated := time.UnixMilli(f.stamps[s.first][p])
			if at, ok := stamps[p]; ok && dated.Sub(at) > f.o.Step/2 {
				a := Ahead{Partition: p, Offset: s.offset, Stamp: dated, By: dated.Add(-f.skew).Sub(f.times[s.first])}
				f.hide(a)
				f.past = append(f.past, a)
			}
		}
	}
	return nil
}

// suspects are the stretches of a partition that may be such, those with most records first.
func (f *filler) suspects(p int32) []stretch {
	var out []stretch
	var bins []int64
	for i := 0; i < len(f.rows); {
		if f.rows[i] == nil {
			i++
			continue
		}
		s := stretch{first: i, last: i, offset: f.rows[i][p]}
		for s.last+1 < len(f.rows) && f.rows[s.last+1][p] == s.offset {
			s.last++
		}
		i = s.last + 1
		next := f.ends[p]
		if i < len(f.rows) {
			next = f.rows[i][p]
		}
		if s.jump = next - s.offset; s.jump > 0 && i < len(f.rows) {
			bins = append(bins, s.jump)
		}
		if s.last > s.first && s.jump >= aheadLeast && f.stamps[s.first][p] >= 0 && !f.wrong[s.first] {
			out = append(out, s)
		}
	}
	slices.Sort(bins)
	usual := int64(0)
	if len(bins) > 0 {
		usual = bins[len(bins)/2]
	}
	out = slices.DeleteFunc(out, func(s stretch) bool { return s.jump < 2*usual })
	slices.SortStableFunc(out, func(a, b stretch) int { return cmp.Compare(b.jump, a.jump) })
	return out
}
