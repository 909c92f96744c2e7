package audit

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/stream"
)

// Entries are the times at which the records of a log entered, by partition and offset from `from` on.
type Entries struct {
	from map[int32]int64
	at   map[int32][]int64 // milliseconds; holes have the time of the record before them
}

// ReadEntries reads the timestamps of all records from the given offsets to the log's end.
func ReadEntries(ctx context.Context, opts []kgo.Opt, topic string, from map[int32]int64) (*Entries, error) {
	e := &Entries{from: from, at: map[int32][]int64{}}
	var mu sync.Mutex
	err := stream.Scan(ctx, opts, topic, from, nil, func(r *kgo.Record) error {
		mu.Lock()
		defer mu.Unlock()
		v := e.at[r.Partition]
		for int64(len(v)) < r.Offset-from[r.Partition] {
			last := r.Timestamp.UnixMilli()
			if len(v) > 0 {
				last = v[len(v)-1]
			}
			v = append(v, last)
		}
		e.at[r.Partition] = append(v, r.Timestamp.UnixMilli())
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read when records entered: %w", err)
	}
	return e, nil
}

// Oldest is the age at a moment of the oldest record that had entered by then and was not yet trained, given each partition's watermark; 0 when all
// had been trained.
func (e *Entries) Oldest(at time.Time, applied map[int32]int64) time.Duration {
	oldest := time.Duration(0)
	for p, v := range e.at {
		next, ok := applied[p]
		if !ok {
			next = e.from[p]
		}
		i := max(0, next-e.from[p])
		if i >= int64(len(v)) {
			continue
		}
		oldest = max(oldest, at.Sub(time.UnixMilli(v[i])))
	}
	return oldest
}

// Rate is the mean arrival rate in [from, to), records/s.
func (e *Entries) Rate(from, to time.Time) float64 {
	if !to.After(from) {
		return math.NaN()
	}
	n := 0
	for _, v := range e.at {
		lo, _ := slices.BinarySearch(v, from.UnixMilli())
		hi, _ := slices.BinarySearch(v, to.UnixMilli())
		n += hi - lo
	}
	return float64(n) / to.Sub(from).Seconds()
}

// FirstAbove is the first moment in [from, to] at which the mean rate over a sliding window exceeded a rate.
func (e *Entries) FirstAbove(rate float64, from, to time.Time, window time.Duration) (time.Time, bool) {
	step := window / 10
	for t := from.Add(window); !t.After(to); t = t.Add(step) {
		if e.Rate(t.Add(-window), t) > rate {
			return t, true
		}
	}
	return time.Time{}, false
}

// Percentile is the p-th percentile (0 to 100) of values, by the nearest rank; 0 without values.
func Percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	return s[min(len(s)-1, max(0, int(math.Ceil(p/100*float64(len(s))))-1))]
}
