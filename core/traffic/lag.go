package traffic

import (
	"sort"
	"time"
)

// EnteredAt is when the record at an offset of a partition entered the queue, interpolated between the observations
// before and after. ok is false where it has not been seen to enter yet, or entered before the history, or within a gap
// that is longer than MaxGap, or just before a cut.
func (a *Arrivals) EnteredAt(partition int32, offset int64) (at time.Time, ok bool) {
	at, how := a.entered(int(partition), offset)
	return at, how == entered
}

type entry int

const (
	entered       entry = iota // at the time given
	enteredBefore              // at the time given or before it
	notEntered                 // not by the last observation
)

func (a *Arrivals) entered(p int, offset int64) (time.Time, entry) {
	n := len(a.samples)
	i := sort.Search(n, func(i int) bool { return a.end(p, i) > offset })
	switch i {
	case n:
		return time.Time{}, notEntered
	case 0:
		return a.samples[0].at, enteredBefore
	}
	before, after := a.samples[i-1], a.samples[i]
	from := a.end(p, i-1)
	switch {
	case from == unknown:
		return after.at, enteredBefore
	case after.at.Sub(before.at) > a.o.MaxGap || after.cut:
		return after.at, enteredBefore
	}
	// Of the n records that entered between the two, the k-th is taken to have entered at (k+1/2)/n of the way.
	share := (float64(offset-from) + 0.5) / float64(a.end(p, i)-from)
	return before.at.Add(time.Duration(share * float64(after.at.Sub(before.at)))), entered
}

// PartitionLag is how far the training of one partition is behind.
type PartitionLag struct {
	Partition  int32
	Records    int64         // offsets from the next to be trained to the end
	Age        time.Duration // since the next record to be trained entered; 0 where there is none
	Known      bool          // false: Records, Age or both are not known
	LowerBound bool          // Age is at least this: the record entered before the history began, or in a gap of it
}

// Lag is how far training is behind the end offsets last observed. applied is, for every partition, the offset after
// the last one that is trained. records counts offsets (see the package comment); oldest is the age at now of the
// oldest record that is not trained.
//
// known is false where a partition is missing from applied, nothing was observed, the last observation is more than
// MaxGap old, or an age reaches beyond the history: records and oldest are then the least that they can be, and it is
// wrong to take them for the whole.
func (a *Arrivals) Lag(now time.Time, applied map[int32]int64) (records int64, oldest time.Duration, known bool) {
	parts, known := a.Lags(now, applied)
	for _, l := range parts {
		records += l.Records
		oldest = max(oldest, l.Age)
	}
	return records, oldest, known
}

// Fresh says that there is an observation that is no more than MaxGap old.
func (a *Arrivals) Fresh(now time.Time) bool {
	n := len(a.samples)
	return n > 0 && now.Sub(a.samples[n-1].at) <= a.o.MaxGap
}

// Lags is Lag by partition, in order; known is that of all.
func (a *Arrivals) Lags(now time.Time, applied map[int32]int64) (lags []PartitionLag, known bool) {
	n := len(a.samples)
	if n == 0 {
		return nil, false
	}
	last := a.samples[n-1]
	known = a.Fresh(now)
	for p, end := range last.ends {
		l := PartitionLag{Partition: int32(p)}
		next, ok := applied[int32(p)]
		if ok && end != unknown {
			l.Records = max(0, end-next) // training may be ahead of the last observation
			l.Known = true
			if l.Records > 0 {
				at, how := a.entered(p, next)
				l.Age = max(0, now.Sub(at))
				l.LowerBound = how == enteredBefore
				l.Known = how == entered
			}
		}
		known = known && l.Known
		lags = append(lags, l)
	}
	return lags, known
}
