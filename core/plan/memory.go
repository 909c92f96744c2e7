package plan

import (
	"math"
	"slices"
	"time"
)

// memory is what a policy with windows of its own remembers. It is bounded: a row
// keeps at most rowBuckets buckets, however long its window and however often is
// decided.
type memory struct {
	// Owner is the policy whose memory it is; another one starts afresh.
	Owner string `json:"owner"`
	// Since is when measuring began, after the last rescale.
	Since time.Time `json:"since,omitzero"`
	// Planned and Want are when a plan was made, and what it was.
	Planned time.Time `json:"planned,omitzero"`
	Want    int       `json:"want,omitempty"`
	// PutOff is how many decisions in a row put a scale-in off to the next one.
	PutOff int `json:"put_off,omitempty"`
	// Metrics, Wishes and Decays are rows over time.
	Metrics row `json:"metrics,omitempty"`
	Wishes  row `json:"wishes,omitempty"`
}

const rowBuckets = 288

// row is a sequence of buckets, oldest first.
type row []bucket

// bucket sums up what was noted from At on, until the next bucket.
type bucket struct {
	At  int64      `json:"t"` // Unix milliseconds
	N   int        `json:"n"`
	Sum [3]float64 `json:"s"` // of each value noted
	Min float64    `json:"a"` // of the first value
	Max float64    `json:"b"`
}

// remember is the policy's memory of last time, or a new one. It is a copy: the
// state of last time stays as it was, and whoever asks again in one decision has the same.
func (s *sheet) remember(owner string) *memory {
	if m := s.next.Memory; m != nil && m != s.prev.Memory && m.Owner == owner {
		return m
	}
	m := &memory{Owner: owner, Since: s.o.Now}
	if old := s.prev.Memory; old != nil && old.Owner == owner {
		*m = *old
		m.Metrics, m.Wishes = slices.Clone(old.Metrics), slices.Clone(old.Wishes)
		for _, t := range []*time.Time{&m.Since, &m.Planned} {
			if t.After(s.o.Now) { // the clock was set back
				*t = s.o.Now
			}
		}
	}
	s.next.Memory = m
	return m
}

// bucketWidth is how wide the buckets of a row are that were to be width wide: the row is bounded.
func bucketWidth(window, width time.Duration) time.Duration { return max(width, window/rowBuckets) }

// note adds values at now, drops what is older than window, and starts another
// bucket once the last one is width old. width 0 is the narrowest that keeps the
// row bounded.
func (r *row) note(now time.Time, window, width time.Duration, values ...float64) {
	r.forget(now, window)
	var v [3]float64
	copy(v[:], values)
	for i := range v {
		v[i] = rounded(v[i])
		if !finite(v[i]) {
			return
		}
	}
	at := now.UnixMilli()
	width = bucketWidth(window, width)
	if n := len(*r); n > 0 && (time.Duration(at-(*r)[n-1].At)*time.Millisecond < width) {
		b := &(*r)[n-1]
		b.N++
		for i := range v {
			b.Sum[i] += v[i]
		}
		b.Min, b.Max = min(b.Min, v[0]), max(b.Max, v[0])
		return
	}
	*r = append(*r, bucket{At: at, N: 1, Sum: v, Min: v[0], Max: v[0]})
	if extra := len(*r) - rowBuckets - 1; extra > 0 {
		*r = slices.Delete(*r, 0, extra)
	}
}

// forget drops buckets that began before the window or, after the clock was set
// back, lie in the future, and such as no policy has written.
func (r *row) forget(now time.Time, window time.Duration) {
	from, to := now.Add(-window).UnixMilli(), now.UnixMilli()
	*r = slices.DeleteFunc(*r, func(b bucket) bool {
		return b.At < from || b.At > to || b.N < 1 || !finite(b.Min+b.Max+b.Sum[0]+b.Sum[1]+b.Sum[2])
	})
}

// mean is the mean of the i-th value over the row; ok is false for an empty one.
func (r row) mean(i int) (mean float64, ok bool) {
	n := 0
	for _, b := range r {
		mean += b.Sum[i]
		n += b.N
	}
	return mean / float64(max(n, 1)), n > 0
}

// near is the bucket that was begun nearest to a time, and no further from it than
// within.
func (r row) near(at time.Time, within time.Duration) (b bucket, ok bool) {
	for _, one := range r {
		if d := at.Sub(time.UnixMilli(one.At)).Abs(); d <= within {
			b, ok, within = one, true, d
		}
	}
	return b, ok
}

// largest and smallest are over the first value of what was noted since.
func (r row) largest(since time.Time, or float64) float64 {
	for _, b := range r {
		if b.At >= since.UnixMilli() {
			or = max(or, b.Max)
		}
	}
	return or
}

func (r row) smallest(since time.Time, or float64) float64 {
	for _, b := range r {
		if b.At >= since.UnixMilli() {
			or = min(or, b.Min)
		}
	}
	return or
}

// rounded keeps six significant digits, so that a saved state is short.
func rounded(v float64) float64 {
	if v == 0 || !finite(v) {
		return v
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-5)
	if unit == 0 || math.IsInf(v/unit, 0) {
		return 0
	}
	return math.Round(v/unit) * unit
}

// inMinutes is a parameter's time.
func inMinutes(v float64) time.Duration { return time.Duration(v * float64(time.Minute)) }

// seconds is a time as a duration, the longest where it would not fit.
func seconds(v float64) time.Duration {
	if !(v < math.MaxInt64/1e9) {
		return math.MaxInt64
	}
	return time.Duration(v * 1e9)
}

// settling tells whether a rescale is under way or was just decided: what the
// members show then is not what they show at rest.
func (s *sheet) settling() bool {
	o := s.o
	return o.Action.Kind == KindOut || o.Action.Kind == KindIn || o.Workers.Pending > 0 || o.Workers.Running == 0
}

// idle is a proposal to leave everything as it is.
func (s *sheet) idle(source, why string) proposal {
	return proposal{want: s.current, load: math.NaN(), source: source, reason: why, hold: []string{why}}
}
