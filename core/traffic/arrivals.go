package traffic

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"
)

// Defaults of ArrivalsOptions.
const (
	DefaultKeep = 8 * 24 * time.Hour // a week, for a weekly season, and a day
	DefaultStep = time.Minute
	DefaultFine = 10 * time.Minute
)

// ErrShrunk says that a partition ends lower than it did: the topic was created again, or its log was cut short.
var ErrShrunk = errors.New("end offsets went down")

// unknown marks an end offset that is not known.
const unknown = -1

// ArrivalsOptions bound a history. Zero fields take the defaults.
type ArrivalsOptions struct {
	Keep time.Duration // how far back; DefaultKeep
	Step time.Duration // distance between observations that are kept for long; DefaultStep
	Fine time.Duration // how long every observation is kept; DefaultFine
	// MaxGap is the longest time between two observations across which a rate or an entry time is interpolated;
	// beyond it they are unknown. 0 means three times Step.
	MaxGap time.Duration
}

// Arrivals is the history of a topic's end offsets: when had how much arrived. It is pure (time is passed in) and
// bounded, by Keep/Step + Fine/(distance of observations) samples of 8 bytes per partition. Not safe for concurrent use.
type Arrivals struct {
	o       ArrivalsOptions
	samples []sample // in order of time, ends not falling
	coarse  int      // samples[:coarse] are Step or more apart
	missed  time.Time
	shrunk  bool // the last observation was refused since end offsets went down
}

// sample is the end offset of each partition, by its number, at a time; unknown where it is not known. A partition
// beyond the slice did not exist yet.
type sample struct {
	at   time.Time
	ends []int64
	// cut says that what the offsets grew by since the sample before is not what arrived in the time between the two: the
	// clock was set back, or the ends had gone down meanwhile.
	cut bool
}

// NewArrivals makes an empty history.
func NewArrivals(o ArrivalsOptions) *Arrivals {
	if o.Keep <= 0 {
		o.Keep = DefaultKeep
	}
	if o.Step <= 0 {
		o.Step = DefaultStep
	}
	if o.Fine <= 0 {
		o.Fine = DefaultFine
	}
	if o.MaxGap <= 0 {
		o.MaxGap = 3 * o.Step
	}
	return &Arrivals{o: o}
}

// Observe adds the end offsets of all partitions as they are at now. Partitions may be more than before. A partition
// that is missing, or ends lower than it did (ErrShrunk), is an error, and so is the time of the last observation; the
// history stays as it was then, and what arrives until the next observation that is none is unknown. A time before that of
// the last says that the clock was set back: what was observed after it is dropped, and what has arrived since what is left is unknown.
func (a *Arrivals) Observe(now time.Time, ends map[int32]int64) error {
	now = now.Round(0) // records are dated by the wall clock, and the monotonic one stands still while a machine sleeps
	s, err := newSample(now, ends)
	if err != nil {
		return err
	}
	kept := len(a.samples)
	if kept > 0 {
		if err := s.follows(a.samples[kept-1]); err != nil {
			a.shrunk = a.shrunk || errors.Is(err, ErrShrunk)
			return err
		}
	}
	for kept > 0 && !now.After(a.samples[kept-1].at) {
		kept--
	}
	a.missed = time.Time{}
	gap := kept > 0 && now.Sub(a.samples[kept-1].at) > a.o.MaxGap
	if gap {
		a.missed = a.samples[kept-1].at
	}
	// After a gap the broker can be asked what arrived when, and what was observed by a clock that was ahead is gone.
	s.cut = a.shrunk || kept < len(a.samples) && !gap
	a.shrunk = false
	a.samples = append(a.samples[:kept], s)
	a.coarse = min(a.coarse, kept)
	a.thin(now)
	return nil
}

// newSample checks that there is an end for each partition.
func newSample(now time.Time, ends map[int32]int64) (sample, error) {
	s := sample{at: now, ends: make([]int64, len(ends))}
	for p := range s.ends {
		end, ok := ends[int32(p)]
		if !ok {
			return s, fmt.Errorf("observe end offsets: partition %d is missing among %d", p, len(ends))
		}
		if end < 0 {
			return s, fmt.Errorf("observe end offsets: partition %d ends at %d, which no partition does", p, end)
		}
		s.ends[p] = end
	}
	return s, nil
}

// follows says why s cannot come after the last observation.
func (s *sample) follows(last sample) error {
	if s.at.Equal(last.at) {
		return fmt.Errorf("observe end offsets: %s does not come after %s", s.at.Format(time.RFC3339Nano), last.at.Format(time.RFC3339Nano))
	}
	if len(s.ends) < len(last.ends) {
		return fmt.Errorf("observe end offsets: %d partitions, where there were %d: %w", len(s.ends), len(last.ends), ErrShrunk)
	}
	for p, end := range last.ends {
		if s.ends[p] < end {
			return fmt.Errorf("observe end offsets: partition %d ends at %d, after %d: %w", p, s.ends[p], end, ErrShrunk)
		}
	}
	return nil
}

// Missed says that the last observation came longer than MaxGap after the one before it, and when that was; the history may reach back less far.
func (a *Arrivals) Missed() (since time.Time, missed bool) { return a.missed, !a.missed.IsZero() }

// thin drops what is older than Keep, and of what is older than Fine all but one in each Step, and those on both sides of a cut.
func (a *Arrivals) thin(now time.Time) {
	old := now.Add(-a.o.Keep)
	drop := sort.Search(len(a.samples), func(i int) bool { return !a.samples[i].at.Before(old) })
	if drop >= 8 { // in bulk, so that it costs next to nothing per observation
		a.samples = slices.Delete(a.samples, 0, drop)
		a.coarse = max(0, a.coarse-drop)
	}
	fine := now.Add(-a.o.Fine)
	edge := sort.Search(len(a.samples), func(i int) bool { return !a.samples[i].at.Before(fine) })
	if edge-a.coarse < 64 {
		return
	}
	kept := a.samples[:a.coarse]
	for i, s := range a.samples[a.coarse:edge] {
		beside := s.cut || a.coarse+i+1 < len(a.samples) && a.samples[a.coarse+i+1].cut
		if n := len(kept); n == 0 || beside || s.at.Sub(kept[n-1].at) >= a.o.Step {
			kept = append(kept, s)
		}
	}
	a.coarse = len(kept)
	kept = append(kept, a.samples[edge:]...)
	clear(a.samples[len(kept):])
	a.samples = kept
}

// Span is the time of the first and the last observation; ok is false where there is none.
func (a *Arrivals) Span() (first, last time.Time, ok bool) {
	if len(a.samples) == 0 {
		return time.Time{}, time.Time{}, false
	}
	return a.samples[0].at, a.samples[len(a.samples)-1].at, true
}

// Ends is the last observation: end offsets by partition, and when; nil where there is none.
func (a *Arrivals) Ends() (at time.Time, ends map[int32]int64) {
	if len(a.samples) == 0 {
		return time.Time{}, nil
	}
	s := a.samples[len(a.samples)-1]
	ends = make(map[int32]int64, len(s.ends))
	for p, end := range s.ends {
		ends[int32(p)] = end
	}
	return s.at, ends
}

// Rate is the mean arrival rate (offsets/s, all partitions) over the window that ends with the last observation. It is
// not known where the history does not reach back that far, where there is a gap at its start, or where the last
// observation is more than MaxGap old.
func (a *Arrivals) Rate(now time.Time, window time.Duration) (perSecond float64, known bool) {
	if len(a.samples) == 0 || window <= 0 {
		return math.NaN(), false
	}
	last := a.samples[len(a.samples)-1].at
	if now.Sub(last) > a.o.MaxGap {
		return math.NaN(), false
	}
	n := a.between(last.Add(-window), last)
	return n / window.Seconds(), !math.IsNaN(n)
}

// PartitionRate is Rate of one partition.
func (a *Arrivals) PartitionRate(now time.Time, partition int32, window time.Duration) (perSecond float64, known bool) {
	if _, known := a.Rate(now, window); !known || partition < 0 {
		return math.NaN(), false
	}
	i := len(a.samples) - 1
	lo, share, _ := a.locate(a.samples[i].at.Add(-window))
	n := float64(a.end(int(partition), i)) - a.endAt(int(partition), lo, share)
	return n / window.Seconds(), !math.IsNaN(n)
}

// Series is the mean arrival rate (offsets/s, all partitions) in each bin of length step from from to to; the last bin
// is dropped unless it is whole. A bin that the history does not cover, that begins or ends
// in a gap longer than MaxGap, or has a cut in it, is NaN.
func (a *Arrivals) Series(step time.Duration, from, to time.Time) []float64 {
	if step <= 0 || !from.Before(to) {
		return nil
	}
	out := make([]float64, 0, int(to.Sub(from)/step))
	for t := from; !t.Add(step).After(to); t = t.Add(step) {
		out = append(out, a.between(t, t.Add(step))/step.Seconds())
	}
	return out
}

// between is the number of records that arrived in (from, to], as offsets, over all partitions; NaN where it is not known.
func (a *Arrivals) between(from, to time.Time) float64 {
	lo, loShare, ok1 := a.locate(from)
	hi, hiShare, ok2 := a.locate(to)
	if !ok1 || !ok2 {
		return math.NaN()
	}
	for _, s := range a.samples[lo+1 : max(lo, hi)+1] { // where to lies within a cut, it was not located
		if s.cut {
			return math.NaN()
		}
	}
	sum := 0.0
	for p := range a.samples[min(hi+1, len(a.samples)-1)].ends {
		sum += a.endAt(p, hi, hiShare) - a.endAt(p, lo, loShare)
	}
	return sum
}

// locate finds the observation at or before t and how far t is on the way to the next, 0 to 1. ok is false where t is
// outside the history, in a gap longer than MaxGap, or before a cut.
func (a *Arrivals) locate(t time.Time) (i int, share float64, ok bool) {
	i = sort.Search(len(a.samples), func(i int) bool { return a.samples[i].at.After(t) }) - 1
	switch {
	case i < 0:
		return 0, 0, false
	case a.samples[i].at.Equal(t):
		return i, 0, true
	case i == len(a.samples)-1:
		return 0, 0, false
	}
	gap := a.samples[i+1].at.Sub(a.samples[i].at)
	if gap > a.o.MaxGap || a.samples[i+1].cut {
		return 0, 0, false
	}
	return i, float64(t.Sub(a.samples[i].at)) / float64(gap), true
}

// end is the end offset of partition p at observation i: zero before the partition existed.
func (a *Arrivals) end(p, i int) int64 {
	if p >= len(a.samples[i].ends) {
		return 0
	}
	return a.samples[i].ends[p]
}

// endAt interpolates end between observation i and the next; NaN where one of them is not known.
func (a *Arrivals) endAt(p, i int, share float64) float64 {
	left := a.end(p, i)
	if left == unknown {
		return math.NaN()
	}
	if share == 0 {
		return float64(left)
	}
	return float64(left) + share*float64(a.end(p, i+1)-left)
}
