package plan

import (
	"fmt"
	"math"
	"time"
)

// hpa is Kubernetes' HorizontalPodAutoscaler v2 [code: kubernetes/kubernetes,
// pkg/controller/podautoscaler].
//
// ratio = busy share / target; nothing happens while |1 − ratio| ≤ tolerance;
// else desired = ⌈ratio · ready⌉. Workers that are not ready count as idle for a
// scale-out and as fully busy for a scale-in; where that turns the direction,
// nothing happens. Then the machinery of [behaviour].
//
// Ours: the metric is the busy share of the workers, and while a pause-and-restart
// is under way none is ready, so it holds. With demand it is an external one, what
// arrives, of which the HPA asks no worker whether it is ready.
type hpa struct {
	target float64
	demand bool
	behaviour
}

func (p hpa) propose(s *sheet) proposal {
	used, why := s.used(p.demand)
	ready, waiting := s.o.Workers.Running, s.o.Workers.Pending
	if p.demand {
		ready, waiting = s.current, 0
	}
	switch {
	case why != "":
		return s.idle("utilisation", why)
	case ready == 0:
		return s.idle("utilisation", "no worker is ready")
	}
	busy := used / float64(ready)
	ratio := busy / p.target
	name, of := "busy share", "of the workers that train"
	if p.demand {
		name, of = "demand", "last rate / F(current)"
	}
	s.note(name, busy, "", of)
	s.note("ratio", ratio, "", fmt.Sprintf("%s / target %g; within %g nothing changes", name, p.target, p.tolerance))
	desired := s.current
	switch near := math.Abs(1-ratio) <= p.tolerance; {
	case near:
	case waiting == 0:
		desired = ceilCount(ratio * float64(ready))
	default:
		all, missing := float64(ready+waiting), 0.0
		if ratio < 1 {
			missing = float64(waiting)
		}
		again := (busy*float64(ready) + missing) / all / p.target
		s.note("ratio of all", again, "", fmt.Sprintf("%d that are not ready counted as idle for a scale-out, as busy for a scale-in", waiting))
		if math.Abs(1-again) > p.tolerance && (again > 1) == (ratio > 1) {
			desired = ceilCount(again * all)
		}
	}
	load := s.lastLoad()
	want := p.behave(s, "hpa", desired)
	s.noteAlwaysBusy(want, p.target, p.demand)
	reason := fmt.Sprintf("the workers are %.0f %% busy", 100*busy)
	if p.demand {
		reason = fmt.Sprintf("what arrives keeps %.0f %% of the workers busy", 100*busy)
	}
	return proposal{want: want, load: load, source: "utilisation", reason: fmt.Sprintf("%s, and %.0f %% is aimed at: %s", reason, 100*p.target, s.cut(desired, want))}
}

// used is how many workers are kept busy: as those that train show it, or, with
// demand, by what arrives. A backlog keeps all of them busy, however many, and
// is no demand. why says what is missing, or "".
func (s *sheet) used(demand bool) (used float64, why string) {
	if demand {
		rate, ok := s.lastRate()
		if f := s.capacity(s.current); ok && f > 0 {
			return rate / f * float64(s.current), ""
		}
		return 0, "no rate was measured yet"
	}
	busy, ok := s.o.busy()
	if !ok {
		return 0, "the workers' busy share is not known"
	}
	return busy * float64(s.o.Workers.Running), ""
}

var demandParam = Param{Name: "demand", Max: 1, Whole: true, Doc: "1: what arrives counts as usage, and not how busy the workers are, which a backlog keeps busy however many they are"}

// behaviour is what the HPA does between a wish and a change: tolerance,
// stabilisation windows, which begin with the number of workers that is there,
// and rates [code, defaults of autoscaling/v2].
type behaviour struct {
	tolerance float64
	// up and down are the stabilisation windows: no more than the smallest wish of
	// up, no fewer than the largest of down.
	up, down time.Duration
}

var hpaParams = []Param{
	{Name: "tolerance", Default: 0.1, Max: 10, Doc: "a ratio this close to 1 changes nothing"},
	minutes("up_window", 0, week, "stabilisation of a scale-out: the smallest wish of this long"),
	minutes("down_window", 5, week, "stabilisation of a scale-in: the largest wish of this long"),
}

func hpaBehaviour(p Params) behaviour {
	return behaviour{tolerance: p["tolerance"], up: inMinutes(p["up_window"]), down: inMinutes(p["down_window"])}
}

// The HPA's rates: out by the larger of 4 and 100 % in 15 s, in without limit.
const (
	hpaPeriod   = 15 * time.Second
	hpaOutCount = 4
)

// behave notes the wish and returns what the windows and rates leave of it. A
// decision that comes every minute may do what four of 15 s would.
func (b behaviour) behave(s *sheet, owner string, desired int) int {
	o := s.o
	s.note("wish", float64(desired), "workers", "before limits, stabilisation and rate")
	desired = s.limited(desired)
	m := s.remember(owner)
	if len(m.Wishes) == 0 && m.Since.Equal(o.Now) { // the controller begins with the number that it finds as its first recommendation
		m.Wishes.note(o.Now, max(b.up, b.down), 0, float64(s.current))
	}
	m.Wishes.note(o.Now, max(b.up, b.down), 0, float64(desired))
	lo, hi := desired, desired // without a window no other wish counts
	if b.up > 0 {
		lo = int(m.Wishes.smallest(o.Now.Add(-b.up), float64(desired)))
	}
	if b.down > 0 {
		hi = int(m.Wishes.largest(o.Now.Add(-b.down), float64(desired)))
	}
	want := min(max(s.current, lo), hi)
	most := s.current
	for range min(max(int(o.Interval/hpaPeriod), 1), 16) {
		most = max(most+hpaOutCount, 2*most)
	}
	s.note("stabilised", float64(min(want, most)), "workers", fmt.Sprintf("at least the smallest wish of %s, at most the largest of %s", formatDuration(b.up), formatDuration(b.down)))
	return min(want, most)
}

// limited brings a wish into the limits, and says so where they change it.
func (s *sheet) limited(wish int) int {
	within := s.o.Limits.Clamp(wish)
	if within != wish {
		s.note("within limits", float64(within), "workers", fmt.Sprintf("limits are %s", s.o.Limits))
	}
	return within
}

// cut says how many workers are asked for, and what the limits make of them, and stabilisation and rate of that, which is want.
func (s *sheet) cut(wish, want int) string {
	within := s.o.Limits.Clamp(wish)
	if within == wish {
		return workers(want)
	}
	said := fmt.Sprintf("%s, which the limits of %d to %d make %d", workers(wish), s.o.Limits.Min, s.o.Limits.Max, within)
	if want != within {
		said += fmt.Sprintf(", and stabilisation and rate make %d", want)
	}
	return said
}

// ceilCount rounds up to a number of workers.
func ceilCount(v float64) int {
	if math.IsNaN(v) || v <= 0 {
		return 0
	}
	return int(min(math.Ceil(v-1e-9), unlimited))
}
