package trainer

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/kale-sched/kale/core/rpc"
)

// validationBins is the resolution of the prediction histograms from which AUC is computed.
const validationBins = 256

// lagBuckets bounds the lag histogram: bucket i ends at 2^(i/4) ms, so 160 reach far beyond a year.
const lagBuckets = 160

// lagBucket is the bucket of an age in milliseconds: the smallest i with v ≤ 2^(i/4).
func lagBucket(ms float64) int {
	if !(ms > 1) {
		return 0
	}
	return min(int(math.Ceil(4*math.Log2(ms)-1e-9)), lagBuckets-1)
}

// metrics counts what the worker reports. All methods are safe for concurrent use.
type metrics struct {
	mu      sync.Mutex
	records uint64
	steps   uint64
	busy    time.Duration
	ready   time.Time
	// stepping is when the step under way began, zero when none is.
	stepping time.Time

	forwarded, received, replayed, dead, recomputed, fetchWaits uint64

	// absent counts, of the decoded records, those without each field.
	decodedRecords uint64
	absent         []uint64

	positive, negative [validationBins]uint64
	lossSum            float64
	lag                [lagBuckets]uint64
	stepSeconds        float64

	// saturated: since the last report, steps have begun and each found a full batch waiting.
	stepsBegun, stepsHungry int
	wasSaturated            bool
	emulated                bool
}

func (m *metrics) setReady(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ready = now
}

func (m *metrics) add(counter *uint64, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*counter += uint64(n)
}

// decoded counts records that were decoded, and in how many of them each field was absent.
func (m *metrics) decoded(n int, absent []uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.decodedRecords += uint64(n)
	if len(m.absent) < len(absent) {
		m.absent = append(m.absent, make([]uint64, len(absent)-len(m.absent))...)
	}
	for i, a := range absent {
		m.absent[i] += a
	}
}

func (m *metrics) stepBegins(now time.Time, saturated bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stepping = now
	m.stepsBegun++
	if !saturated {
		m.stepsHungry++
	}
}

// stepGrows is how many mean steps one counts as at most: a step in which the process was suspended says nothing of the next.
const stepGrows = 2

// stepEnds counts a finished step that took so long, and scores its predictions: they were made before the step's records were trained
// (progressive validation). Replayed records are left out (rule 22). first: it was the first step.
func (m *metrics) stepEnds(b *batch, g *gradients, took time.Duration) (first bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stepping = time.Time{}
	m.steps++
	first = m.steps == 1
	m.records += uint64(b.records())
	m.busy += took
	if m.stepSeconds == 0 {
		m.stepSeconds = took.Seconds()
	}
	m.stepSeconds += 0.1 * (min(took.Seconds(), stepGrows*m.stepSeconds) - m.stepSeconds)
	if g == nil {
		return first
	}
	for i, r := range b.recs {
		if r.replay {
			continue
		}
		p, y := g.pred[i], b.label[i]
		bin := min(max(int(p*validationBins), 0), validationBins-1)
		if y == 1 {
			m.positive[bin]++
		} else {
			m.negative[bin]++
		}
		m.lossSum += logLoss(p, y)
	}
	return first
}

// stepLeft estimates how long the step under way will take yet, 0 when none is, and what a step takes.
func (m *metrics) stepLeft(now time.Time) (left, step time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	step = time.Duration(m.stepSeconds * float64(time.Second))
	if !m.stepping.IsZero() {
		left = max(0, step-now.Sub(m.stepping))
	}
	return left, step
}

// acknowledged notes the age of a batch's records when its push was acknowledged.
func (m *metrics) acknowledged(b *batch, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ms := float64(now.UnixMilli())
	for _, r := range b.recs {
		m.lag[lagBucket(ms-float64(r.timestampMS))]++
	}
}

// report renders the metrics for a beat, and begins the next interval of saturated.
func (m *metrics) report(now time.Time, queued int) *rpc.WorkerMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	busy := m.busy
	if !m.stepping.IsZero() {
		busy += now.Sub(m.stepping)
	}
	switch {
	case m.stepsBegun > 0:
		m.wasSaturated = m.stepsHungry == 0
	case m.stepping.IsZero():
		m.wasSaturated = false // idle; while one long step is under way, what its beginning showed holds on
	}
	m.stepsBegun, m.stepsHungry = 0, 0
	r := &rpc.WorkerMetrics{
		Records: m.records, Steps: m.steps, BusySeconds: busy.Seconds(), QueueRecords: int64(queued),
		ForwardedRecords: m.forwarded, ReceivedRecords: m.received, ReplayedRecords: m.replayed, DeadRecords: m.dead,
		RecomputedRecords: m.recomputed, FetchWaits: m.fetchWaits, LossSum: m.lossSum, StepSeconds: m.stepSeconds,
		Emulated: m.emulated, Saturated: m.wasSaturated, DecodedRecords: m.decodedRecords, Absent: slices.Clone(m.absent),
		Validation: &rpc.Validation{Positive: trimmed(m.positive[:], true), Negative: trimmed(m.negative[:], true)},
		LagMs:      &rpc.Histogram{Counts: trimmed(m.lag[:], false)},
	}
	if !m.ready.IsZero() {
		r.WallSeconds = now.Sub(m.ready).Seconds()
	}
	return r
}

// trimmed copies a histogram: whole, or without the empty buckets at its end. An empty one has no buckets.
func trimmed(h []uint64, whole bool) []uint64 {
	n := len(h)
	for n > 0 && h[n-1] == 0 {
		n--
	}
	if n == 0 {
		return nil
	}
	if whole {
		n = len(h)
	}
	return append([]uint64(nil), h[:n]...)
}
