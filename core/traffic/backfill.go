package traffic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// MaxTimes bounds what one call asks of the broker, in steps: five months of minutes.
const MaxTimes = 200_000

// BackfillOptions say which past to ask the broker for.
type BackfillOptions struct {
	Step     time.Duration // between the times asked for; 0 means the history's Step
	From, To time.Time     // To should not be later than the first live observation
	Parallel int           // requests under way at a time; 0 means 8
	Progress func(done, total int)
}

// Backfilled is what Backfill found.
type Backfilled struct {
	KnownFrom time.Time // from here on every partition's end is known; zero where it is at no time asked for
	Samples   int       // observations added
	Requests  int
	Elapsed   time.Duration
	// Ahead are records dated ahead of this machine's clock, the first of each partition; Disordered those of the past that were dated ahead of what came after them.
	// Of the times at which they hid what came, nothing is added.
	Ahead, Disordered []Ahead
}

// Backfill asks the broker where each partition ended at every Step from From to To (the first offset whose timestamp is
// as late) and adds the answers to the history, so that a scheduler that has just started knows the arrivals of the past
// days. It relies on the records' timestamps, as producers or the broker set them; where their clock differs from this one
// by minutes, as [Client.Skew] sees in what arrives meanwhile, it reckons with that. Where single records are dated ahead of those after them,
// the times at which they hide what came are left out ([Ahead]).
//
// Unknown is never zero: before the first record that the log still holds, a partition from which retention has deleted
// something is unknown, and before the first record of all partitions everything is. A history that has live
// observations keeps them: answers are added only before them and in gaps between them longer than MaxGap.
func Backfill(ctx context.Context, c *Client, a *Arrivals, o BackfillOptions) (Backfilled, error) {
	past, err := ReadPast(ctx, c, a, o)
	if err != nil {
		return Backfilled{}, err
	}
	return a.Add(past), nil
}

// Past is what ReadPast found.
type Past struct {
	samples []sample
	found   Backfilled
}

// ReadPast is the part of Backfill that asks the broker. It leaves the history as it is, so that its owner may go on observing, and [Arrivals.Add] the answers.
func ReadPast(ctx context.Context, c *Client, a *Arrivals, o BackfillOptions) (Past, error) {
	began := time.Now()
	if o.Step <= 0 {
		o.Step = a.o.Step
	}
	if o.Parallel <= 0 {
		o.Parallel = 8
	}
	if !o.From.Before(o.To) {
		return Past{}, fmt.Errorf("backfill the arrivals of topic %q: from %s to %s is no time", c.topic, o.From.Format(time.RFC3339), o.To.Format(time.RFC3339))
	}
	switch {
	case o.Step > a.o.MaxGap:
		return Past{}, fmt.Errorf("backfill the arrivals of topic %q: steps of %v are longer than the %v across which the history interpolates: make MaxGap longer, or the steps shorter", c.topic, o.Step, a.o.MaxGap)
	case o.To.Sub(o.From)/o.Step > MaxTimes:
		return Past{}, fmt.Errorf("backfill the arrivals of topic %q: from %s to %s in steps of %v are %d requests, more than %d: make the steps longer", c.topic, o.From.Format(time.RFC3339), o.To.Format(time.RFC3339), o.Step, o.To.Sub(o.From)/o.Step, MaxTimes)
	}
	f := &filler{c: c, o: o, maxGap: a.o.MaxGap}
	if err := f.run(ctx); err != nil {
		return Past{}, fmt.Errorf("backfill the arrivals of topic %q: %w", c.topic, err)
	}
	samples, knownFrom := f.samples()
	return Past{samples: samples, found: Backfilled{KnownFrom: knownFrom, Requests: f.requests, Elapsed: time.Since(began), Ahead: f.ahead, Disordered: f.past}}, nil
}

// Add puts into the history what it lacks of a past.
func (a *Arrivals) Add(p Past) Backfilled {
	p.found.Samples = a.merge(p.samples)
	return p.found
}

// filler asks for one grid of times.
type filler struct {
	c     *Client
	o     BackfillOptions
	parts []int32
	ends  []int64 // of the log now
	first []int64 // offset where each partition's log starts
	since []int64 // timestamp (ms) of its first record, -1 where it has none
	times []time.Time
	skew  time.Duration // of the records' dates against the times
	rows  [][]int64     // offsets by time and partition; nil where not asked for
	// stamps are the timestamps (ms) of the records at these offsets, -1 where there is none.
	stamps [][]int64
	maxGap time.Duration
	wrong  []bool // times whose answers are not to be trusted
	ahead  []Ahead
	past   []Ahead

	mu       sync.Mutex // rows, requests, done
	requests int
	done     int
}

func (f *filler) run(ctx context.Context) error {
	var err error
	if f.parts, err = within(ctx, f.c, f.c.partitions); err != nil {
		return err
	}
	slices.Sort(f.parts)
	if len(f.parts) == 0 {
		return errors.New("it has no partitions")
	}
	if int(f.parts[len(f.parts)-1]) != len(f.parts)-1 {
		return fmt.Errorf("its partitions are not numbered from 0: %v", f.parts)
	}
	row := func(at int64, stamp bool) ([]int64, error) {
		m, err := f.list(ctx, at)
		if err != nil {
			return nil, err
		}
		out := make([]int64, len(f.parts))
		for p, l := range m {
			out[p] = l.offset
			if stamp {
				out[p] = l.stamp
			}
		}
		return out, nil
	}
	if f.first, err = row(atStart, false); err != nil {
		return err
	}
	if f.since, err = row(0, true); err != nil {
		return err
	}
	if f.ends, err = row(atEnd, false); err != nil {
		return err
	}
	if time.Since(f.o.To) < skewMost {
		f.skew, _, _ = f.c.Skew(ctx) // brokers that fail now fail at what is asked next
	}
	for t := f.o.From; !t.After(f.o.To); t = t.Add(f.o.Step) {
		f.times = append(f.times, t)
	}
	f.rows, f.stamps = make([][]int64, len(f.times)), make([][]int64, len(f.times))
	if err := f.fill(ctx); err != nil {
		return err
	}
	return f.distrust(ctx)
}

// fill asks for the rows: the two ends first, and then, of each stretch whose ends differ, the middle. Stretches in
// which nothing arrived cost nothing.
func (f *filler) fill(ctx context.Context) error {
	last := len(f.times) - 1
	lo := 0
	for lo < last && f.unborn(f.times[lo+1]) { // the log holds nothing as old as that
		lo++
	}
	f.advance(lo)
	if err := f.ask(ctx, lo); err != nil {
		return err
	}
	if err := f.ask(ctx, last); err != nil {
		return err
	}
	type span struct{ lo, hi int }
	level := []span{{lo, last}}
	for len(level) > 0 {
		var next []span
		g, gctx := errgroup.WithContext(ctx)
		g.SetLimit(f.o.Parallel)
		for _, s := range level {
			if s.hi-s.lo < 2 {
				continue
			}
			if slices.Equal(f.rows[s.lo], f.rows[s.hi]) {
				for i := s.lo + 1; i < s.hi; i++ {
					f.rows[i], f.stamps[i] = f.rows[s.lo], f.stamps[s.lo]
				}
				f.advance(s.hi - s.lo - 1)
				continue
			}
			mid := (s.lo + s.hi) / 2
			next = append(next, span{s.lo, mid}, span{mid, s.hi})
			g.Go(func() error { return f.ask(gctx, mid) })
		}
		if err := g.Wait(); err != nil {
			return err
		}
		level = next
	}
	return nil
}

// dated is the timestamp (ms) of records that entered at a time.
func (f *filler) dated(t time.Time) int64 { return t.Add(f.skew).UnixMilli() }

// unborn says that no partition has a record as old as t.
func (f *filler) unborn(t time.Time) bool {
	for _, since := range f.since {
		if since >= 0 && since <= f.dated(t) {
			return false
		}
	}
	return true
}

// list is the client's, as a question of its own (within).
func (f *filler) list(ctx context.Context, at int64) (map[int32]listedOffset, error) {
	return within(ctx, f.c, func(ctx context.Context) (map[int32]listedOffset, error) { return f.c.list(ctx, f.parts, at) })
}

func (f *filler) ask(ctx context.Context, i int) error {
	if f.rows[i] != nil {
		return nil
	}
	m, err := f.list(ctx, f.dated(f.times[i]))
	if err != nil {
		return fmt.Errorf("ask for the offsets at %s: %w", f.times[i].Format(time.RFC3339), err)
	}
	row, stamps := make([]int64, len(f.parts)), make([]int64, len(f.parts))
	for p, l := range m {
		row[p], stamps[p] = l.offset, l.stamp
		if l.offset < 0 { // no record is as late: all that there is came before
			row[p] = f.ends[p]
		}
	}
	f.mu.Lock()
	f.rows[i], f.stamps[i] = row, stamps
	f.requests++
	f.mu.Unlock()
	f.advance(1)
	return nil
}

func (f *filler) advance(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done += n
	if f.o.Progress != nil && n > 0 {
		f.o.Progress(min(f.done, len(f.times)), len(f.times))
	}
}

// samples turns the answers into observations, with what is not known marked, and says from when on all is known.
func (f *filler) samples() (out []sample, knownFrom time.Time) {
	for i, t := range f.times {
		if f.rows[i] == nil || f.wrong[i] || f.unborn(t) {
			continue
		}
		ends := slices.Clone(f.rows[i])
		whole := true
		for p := range ends {
			if n := len(out); n > 0 {
				ends[p] = max(ends[p], out[n-1].ends[p])
			}
			if f.first[p] > 0 && (f.since[p] < 0 || f.dated(t) < f.since[p]) {
				ends[p] = unknown
				whole = false
			}
		}
		if whole && knownFrom.IsZero() {
			knownFrom = t
		}
		out = append(out, sample{at: t, ends: ends})
	}
	return out, knownFrom
}

// merge adds past observations to the history, where it has none, and returns how many.
func (a *Arrivals) merge(past []sample) int {
	out := make([]sample, 0, len(past)+len(a.samples))
	added, i := 0, 0
	for _, s := range past {
		for i < len(a.samples) && !a.samples[i].at.After(s.at) {
			out = append(out, a.samples[i])
			i++
		}
		if i > 0 {
			if i == len(a.samples) || a.samples[i].at.Sub(a.samples[i-1].at) <= a.o.MaxGap {
				continue // after the last observation, or where there are enough
			}
		}
		if a.contradicts(s, i) {
			continue
		}
		var before, after *sample
		if len(out) > 0 {
			before = &out[len(out)-1]
		}
		if i < len(a.samples) {
			after = &a.samples[i]
		}
		if s.holdBetween(before, after) {
			out = append(out, s)
			added++
		}
	}
	a.samples = append(out, a.samples[i:]...)
	a.coarse = 0
	return added
}

// contradicts says that a past sample before observation i cannot be of its time: the log is not the one from before the cut there, or it has fewer records a Step
// later than were observed. Then the dates of records are not those of this clock, which has jumped ahead.
func (a *Arrivals) contradicts(s sample, i int) bool {
	if i == 0 {
		return false
	}
	if i < len(a.samples) && a.samples[i].cut {
		return true
	}
	before := a.samples[i-1]
	if s.at.Sub(before.at) < a.o.Step {
		return false
	}
	for p, end := range before.ends {
		if p < len(s.ends) && s.ends[p] != unknown && s.ends[p] < end {
			return true
		}
	}
	return false
}

// holdBetween keeps s within its neighbours, either of which may be nil: timestamps are the producers', so that an
// offset by timestamp may lie a little outside of what was observed. It reports whether s adds anything: not at the
// time of its neighbour, and not where it does not know what its neighbour knows.
func (s *sample) holdBetween(before, after *sample) bool {
	if before != nil && !s.at.After(before.at) {
		return false
	}
	if after != nil && len(s.ends) > len(after.ends) {
		s.ends = s.ends[:len(after.ends)] // the others did not exist yet
	}
	for p, end := range s.ends {
		if before != nil && p < len(before.ends) {
			if end == unknown && before.ends[p] != unknown {
				return false
			}
			end = max(end, before.ends[p])
		}
		if after != nil && end != unknown {
			end = min(end, after.ends[p])
		}
		s.ends[p] = end
	}
	return true
}
