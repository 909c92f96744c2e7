package core

import (
	"slices"
	"time"

	"github.com/kale-sched/kale/core/rpc"
)

// progressLog follows the chief's log of progress and measures from it how long a rescale kept partitions waiting.
type progressLog struct {
	chief   uint64
	last    uint64
	byPart  map[int32][]progressPoint
	holes   []time.Time // moments at which entries are missing before
	horizon time.Duration
}

type progressPoint struct {
	at        time.Time
	watermark int64
	chief     uint64
}

func newProgressLog(horizon time.Duration) *progressLog {
	return &progressLog{byPart: map[int32][]progressPoint{}, horizon: horizon}
}

// add takes in an answer of the chief.
func (l *progressLog) add(now time.Time, r *rpc.AdvancesResponse) {
	if r.GetChief() != l.chief {
		if l.chief != 0 {
			l.holes = append(l.holes, now)
		}
		l.chief, l.last = r.GetChief(), 0
	} else if r.GetTruncated() {
		l.holes = append(l.holes, now)
	}
	for _, a := range r.GetAdvances() {
		if a.GetSeq() <= l.last {
			continue
		}
		l.last = a.GetSeq()
		l.byPart[a.GetPartition()] = append(l.byPart[a.GetPartition()], progressPoint{time.UnixMilli(a.GetUnixMs()), a.GetWatermark(), l.chief})
	}
	for p, points := range l.byPart {
		cut := 0 // the last one stays: from it on, the partition waits
		for cut < len(points)-1 && now.Sub(points[cut].at) > l.horizon {
			cut++
		}
		if cut > 0 {
			l.byPart[p] = slices.Delete(points, 0, cut)
		}
	}
	for len(l.holes) > 0 && now.Sub(l.holes[0]) > l.horizon {
		l.holes = l.holes[1:]
	}
}

// rate is how fast a partition's watermark went forward between two moments, records/s; known is false where progress was not followed all that time.
func (l *progressLog) rate(partition int32, from, to time.Time) (perSecond float64, known bool) {
	points := l.byPart[partition]
	if len(points) == 0 || points[0].at.After(from) || !from.Before(to) || slices.ContainsFunc(l.holes, func(h time.Time) bool { return !h.Before(from) }) {
		return 0, false
	}
	before := points[0]
	for _, p := range points {
		if !p.at.After(from) {
			before = p
		}
	}
	return float64(max(0, points[len(points)-1].watermark-before.watermark)) / to.Sub(from).Seconds(), true
}

// entered says when the record at an offset entered the queue.
type entered func(partition int32, offset int64) (time.Time, bool)

// waits gives, for every two successive advances of each partition that overlap [from, to], how long records waited between them: from the first
// advance, or the entry of the next record when that was later, to the second. A wait that has not ended by to counts up to there.
// What of a wait lies before notBefore does not count.
func (l *progressLog) waits(from, to, notBefore time.Time, when entered) []time.Duration {
	var out []time.Duration
	for p, points := range l.byPart {
		for i, a := range points {
			start, at := a.at, to
			entry, known := when(p, a.watermark)
			if known && entry.After(start) {
				start = entry
			}
			if last := i == len(points)-1; !last {
				at = points[i+1].at
			} else if !known || !start.Before(to) {
				continue // nothing waits
			}
			if start.Before(notBefore) {
				start = notBefore
			}
			if !at.Before(from) && !a.at.After(to) {
				out = append(out, max(0, at.Sub(start)))
			}
		}
	}
	return out
}

// gap is the longest wait in [from, to] less the median wait of the steady time before it (Kale §4.1's downtime, per partition). It is not known when
// progress could not be followed all the time, or nothing was seen. A stall that was there before the decision is none of the rescale's: of a wait that
// began earlier, no more than the usual one counts before from.
func (l *progressLog) gap(from, to time.Time, steadyFrom time.Time, when entered) (time.Duration, bool) {
	for _, h := range l.holes {
		if !h.Before(from) && !h.After(to) {
			return 0, false
		}
	}
	usual := median(l.waits(steadyFrom, from, time.Time{}, when))
	during := l.waits(from, to, from.Add(-usual), when)
	if len(during) == 0 {
		return 0, false
	}
	return max(0, slices.Max(during)-usual), true
}

// bridged bounds the gap in [from, to] where another chief came meanwhile, so that it could not be followed: what the log lacks counts as waiting. It is not known
// where nothing waited, and not yet while a partition that has records to train has not advanced under the chief of now.
func (l *progressLog) bridged(from, to time.Time, when entered) (atMost time.Duration, known, yet bool) {
	if !slices.ContainsFunc(l.holes, func(h time.Time) bool { return !h.Before(from) && !h.After(to) }) {
		return 0, false, true
	}
	for p, points := range l.byPart {
		last := points[len(points)-1]
		if entry, waits := when(p, last.watermark); last.chief != l.chief && waits && entry.Before(to) {
			return 0, false, false
		}
	}
	waits := l.waits(from, to, from, when)
	if len(waits) == 0 {
		return 0, false, true
	}
	return slices.Max(waits), true, true
}

func median[T ~int64](v []T) T {
	if len(v) == 0 {
		return 0
	}
	s := slices.Clone(v)
	slices.Sort(s)
	return s[len(s)/2]
}
