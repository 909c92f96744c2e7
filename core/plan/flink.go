package plan

import (
	"fmt"
	"math"
	"time"
)

// flink is the autoscaler of Flink's Kubernetes operator, after DS2 [code:
// apache/flink-kubernetes-operator, flink-autoscaler].
//
// From a window of metrics: input = max(0, consumed + d(backlog)/dt); the true
// processing rate TPR = consumed / busy share, or, while it catches up, the
// observed rate where the first is more than 15 % above it. The capacity wanted is
//
//	target(u, restart) = backlog/catch-up + (restart: input·restart/catch-up) + input/u
//
// It acts where TPR lies outside target(u* + boundary, without) … target(u* −
// boundary, with), and then scales by target(u*, with)/TPR. While the backlog is
// worth more than 5 min of input the bounds are u = 1 and 0: no scale-in. After a
// rescale it waits out a stabilisation time and then a full window. A scale-in is
// put off for an hour, and takes the largest wish meanwhile.
type flink struct {
	target, boundary, maxDown                          float64
	catchUp, restart, window, stabilisation, downAfter time.Duration
}

func newFlink(p Params) flink {
	return flink{
		target: p["target"], boundary: p["boundary"], maxDown: p["max_down"],
		catchUp: inMinutes(p["catch_up"]), restart: inMinutes(p["restart"]), window: inMinutes(p["window"]),
		stabilisation: inMinutes(p["stabilisation"]), downAfter: inMinutes(p["down_interval"]),
	}
}

const (
	flinkBacklogged = 5 * time.Minute  // lag above which bounds are 1 and 0
	flinkCatching   = 30 * time.Second // lag above which the observed rate counts
	flinkExceeds    = 1.15
)

// flinkMetrics are the means over the window.
type flinkMetrics struct{ consumed, busy, backlog, input, tpr float64 }

func (p flink) propose(s *sheet) proposal {
	o, m := s.o, s.remember("flink")
	if s.settling() {
		m.Since, m.Metrics, m.Wishes, m.Planned = o.Now, nil, nil, time.Time{}
		return s.idle("utilisation", "a rescale is not complete")
	}
	measured := o.Now.Sub(m.Since) - p.stabilisation
	if measured < 0 {
		return s.idle("utilisation", "stabilising since the last rescale, "+formatDuration(-measured)+" to go")
	}
	busy, ok := o.busy()
	trained, known := s.trained()
	if !ok || !known || !o.lagKnown() {
		return s.idle("utilisation", "trained rate, busy share or backlog is not known")
	}
	m.Metrics.note(o.Now, p.window, 0, trained, busy, float64(max(o.BacklogRecords, 0)))
	if measured < p.window {
		return s.idle("utilisation", "the metrics window is not full, "+formatDuration(p.window-measured)+" to go")
	}
	v, ok := p.read(m.Metrics, float64(max(o.BacklogRecords, 0)))
	if !ok {
		return s.idle("utilisation", "no metrics in the window")
	}
	return p.decide(s, m, v)
}

// trained is the rate that the members train, or without it that which arrives.
func (s *sheet) trained() (rate float64, ok bool) {
	if s.o.flowKnown() {
		return s.o.Flow.Trained, true
	}
	return s.lastRate()
}

// read evaluates the window; backlog is the present one.
func (p flink) read(r row, backlog float64) (v flinkMetrics, ok bool) {
	if v.consumed, ok = r.mean(0); !ok {
		return v, false
	}
	v.busy, _ = r.mean(1)
	v.backlog = backlog
	first, last := r[0], r[len(r)-1]
	growth := 0.0
	if d := float64(last.At-first.At) / 1000; d > 0 {
		growth = (last.Sum[2]/float64(last.N) - first.Sum[2]/float64(first.N)) / d
	}
	v.input = max(0, v.consumed+growth)
	v.tpr = v.consumed / max(v.busy, 1e-3)
	if catching := backlog > v.input*flinkCatching.Seconds(); catching && v.tpr > flinkExceeds*v.consumed && v.consumed > 0 {
		v.tpr = v.consumed
	}
	return v, true
}

// wanted is target(u, restart).
func (p flink) wanted(v flinkMetrics, u float64, restart time.Duration) float64 {
	if u <= 0 {
		return math.Inf(1)
	}
	catch := max(p.catchUp.Seconds(), 1e-3)
	return v.backlog/catch + v.input*restart.Seconds()/catch + v.input/u
}

// decide compares the rates and applies the delay of a scale-in.
func (p flink) decide(s *sheet, m *memory, v flinkMetrics) proposal {
	restart := p.restart
	if restart == 0 {
		restart = s.o.RescaleCost.Value
	}
	upper, lower := p.target+p.boundary, p.target-p.boundary
	if v.backlog > v.input*flinkBacklogged.Seconds() {
		upper, lower = 1, 0
	}
	least, most := p.wanted(v, upper, 0), p.wanted(v, lower, restart)
	need := p.wanted(v, p.target, restart)
	s.note("input", v.input, "records/s", "trained + growth of the backlog, mean of the window")
	s.note("true processing rate", v.tpr, "records/s", fmt.Sprintf("trained / busy share %.2f", v.busy))
	s.note("acts below", least, "records/s", fmt.Sprintf("backlog/catch-up + input/%.2f", upper))
	if finite(most) {
		s.note("acts above", most, "records/s", fmt.Sprintf("the same with a restart of %s, at %.2f", formatDuration(restart), lower))
	}
	s.note("needed", need, "records/s", fmt.Sprintf("with a restart, at %g", p.target))
	out := proposal{want: s.current, load: need, source: "utilisation", reason: fmt.Sprintf("the true processing rate of %s is within its bounds", formatRate(v.tpr))}
	if v.tpr <= 0 || (v.tpr >= least && v.tpr <= most) {
		m.Planned, m.Wishes = time.Time{}, nil
		return out
	}
	scale := max(need/v.tpr, 1-p.maxDown)
	wish := ceilCount(scale * float64(s.current))
	s.note("wish", float64(wish), "workers", fmt.Sprintf("⌈needed / true processing rate × %d⌉, at least %g of them; before limits", s.current, 1-p.maxDown))
	want := s.limited(wish)
	out.reason = fmt.Sprintf("the true processing rate is %s and %s is needed: %s", formatRate(v.tpr), formatRate(need), s.cut(wish, want))
	switch {
	case v.tpr < least:
		m.Planned, m.Wishes = time.Time{}, nil
		out.want = max(want, s.current)
	case want < s.current:
		out.want = p.delayed(s, m, want)
		if out.want == s.current {
			out.hold = []string{"a scale-in waits " + formatDuration(p.downAfter) + " from when it was first wanted"}
		}
	}
	return out
}

// delayed puts off a scale-in: Planned is when it was first wanted.
func (p flink) delayed(s *sheet, m *memory, want int) int {
	now := s.o.Now
	if m.Planned.IsZero() {
		m.Planned = now
	}
	m.Wishes.note(now, max(p.downAfter, time.Second), 0, float64(want))
	if now.Sub(m.Planned) < p.downAfter {
		return s.current
	}
	return int(m.Wishes.largest(m.Planned, float64(want)))
}
