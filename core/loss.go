package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/state"
)

// LossKind says why records were not trained.
type LossKind string

// The kinds of losses.
const (
	LossRetention   LossKind = "retention"   // removed before they were trained, and given up
	LossUndecodable LossKind = "undecodable" // they cannot be decoded
	LossCutOff      LossKind = "cut_off"     // they have offsets that were trained before the end of the log was cut off
)

// Loss is a time in which a job did not train records, again and again.
type Loss struct {
	Kind LossKind `json:"kind"`
	// At is when the scheduler learnt of the first, Until of the last.
	At    time.Time `json:"at"`
	Until time.Time `json:"until"`
	// Records are those of this time (of retention and of a log that was cut off: offsets), Total all since the job began.
	Records uint64 `json:"records"`
	Total   uint64 `json:"total"`
	// DeadLetter is the topic that they are in; "": none.
	DeadLetter string `json:"dead_letter,omitempty"`
	Timeline   string `json:"timeline"`
	// Open: more are expected.
	Open bool `json:"-"`
}

// lossRest is how long no more records must be lost for a loss to be over: longer than brokers let pass between two looks at what retention shall remove
// (log.retention.check.interval.ms, 5 min).
const lossRest = 10 * time.Minute

// keepLosses is how long the state has them. The newest says what was lost already when the scheduler starts.
const keepLosses = 366 * 24 * time.Hour

func (l Loss) String() string {
	text := `records that could not be decoded and were skipped (on_undecodable = "skip")`
	switch {
	case l.Kind == LossCutOff:
		text = "offsets that were trained before the end of the topic's log was cut off, where it has, or will have, other records, which are not trained"
	case l.Kind == LossRetention:
		text = "offsets that retention removed before they were trained, and that were given up"
	case l.DeadLetter != "":
		text = fmt.Sprintf("records that could not be decoded and were put into topic %q (dead_letter)", l.DeadLetter)
	}
	text += ": " + plan.Thousands(l.Records)
	if l.Total > l.Records {
		text += fmt.Sprintf(", %s since the job began", plan.Thousands(l.Total))
	}
	return text
}

// lossWords are a loss that goes on, as an operator should read it.
func (s *Scheduler) lossWords(l Loss) string {
	switch l.Kind {
	case LossCutOff:
		return fmt.Sprintf("the end of the topic's log was cut off: what it has there now, at %s offsets that were trained already, is not trained; kale audit %s counts it", plan.Thousands(l.Records), s.job.Name)
	case LossRetention:
		return fmt.Sprintf("retention removes records before they are trained: %s offsets were given up; %s",
			plan.Thousands(l.Records), s.trainSooner("raise the topic's retention.ms or retention.bytes"))
	}
	what := fmt.Sprintf(`%s were skipped (on_undecodable = "skip"); kale logs %s names them`, plan.Thousands(l.Records), s.job.Name)
	if l.DeadLetter != "" {
		what = fmt.Sprintf("%s in topic %q (dead_letter), each with its reason (header kale-reason)", plan.Thousands(l.Records), l.DeadLetter)
	}
	share := s.arrived.dead()
	switch {
	case share >= hardlyAny:
		what = "nearly all of the newest, so that hardly anything is trained; " + what
	case share > 0.5:
		what = "most of the newest, which are not trained; " + what
	default:
		return undecodable + what
	}
	return fmt.Sprintf("%s%s. Are they as features.format (%q) and features.label (%q) say? kale validate reads the newest", undecodable, what, s.job.Features.Format, s.job.Features.Label)
}

// undecodable is the problem of records that cannot be decoded, before what becomes of them.
const undecodable = "records cannot be decoded: "

// arrivedOver and arrivedLeast are of how much time, and of how many records, the share of those is told that cannot be decoded; hardlyAny is that at which hardly
// any other is left.
const (
	arrivedOver  = time.Minute
	arrivedLeast = 20
	hardlyAny    = 0.95
)

// arrived is how many records were trained, and how many could not be decoded, as counted at looks lately, the oldest first.
type arrived []arrivedAt

type arrivedAt struct {
	at            time.Time
	trained, dead uint64
}

// add takes in what was counted at a look. A count that is lower than before is of a server that was rolled back.
func (a *arrived) add(now arrivedAt) {
	k := *a
	if n := len(k); n > 0 {
		switch last := k[n-1]; {
		case now.trained < last.trained || now.dead < last.dead:
			k = nil
		case now.trained == last.trained && now.dead == last.dead:
			return
		}
	}
	k = append(k, now)
	for len(k) > 2 && now.at.Sub(k[1].at) >= arrivedOver && k[1:].records() >= arrivedLeast {
		k = k[1:]
	}
	*a = k
}

func (a arrived) records() uint64 {
	first, last := a[0], a[len(a)-1]
	return last.trained - first.trained + last.dead - first.dead
}

// dead is the share of those that cannot be decoded, 0 where too few have arrived.
func (a arrived) dead() float64 {
	if len(a) == 0 || a.records() < arrivedLeast {
		return 0
	}
	return float64(a[len(a)-1].dead-a[0].dead) / float64(a.records())
}

// Losses reads from a job's state what was not trained from a time on.
func Losses(st *state.Store, from time.Time) (out []Loss, err error) {
	err = state.Scan(st, state.Losses, from, func(l Loss) bool {
		out = append(out, l)
		return true
	})
	return out, err
}

// followLosses takes in what the chief counts.
func (s *Scheduler) followLosses(now time.Time) {
	st := s.seen.chief
	if s.seen.chiefErr != nil || trainedRecords(st) == nil {
		return
	}
	s.losses = slices.Clone(s.losses) // views share the old one
	s.followLoss(now, Loss{Kind: LossRetention, Total: st.GetLostOffsets(), Timeline: st.GetTimeline()})
	s.arrived.add(arrivedAt{now, *trainedRecords(st), st.GetDeadRecords()})
	s.followLoss(now, Loss{Kind: LossCutOff, Total: cutOff(st), Timeline: st.GetTimeline()})
	s.followLoss(now, Loss{Kind: LossUndecodable, Total: st.GetDeadRecords(), Timeline: st.GetTimeline(), DeadLetter: s.job.Stream.DeadLetter})
}

// cutOff is how many offsets were read before the end of the log was cut off below them.
func cutOff(st *rpc.JobStatus) (n uint64) {
	for _, sp := range st.GetCutOff() {
		n += uint64(max(0, sp.GetEnd()-sp.GetBegin()))
	}
	return n
}

// followLoss holds a count of now against what was counted of its kind. It is lower after a server was rolled back, until that is made good.
func (s *Scheduler) followLoss(now time.Time, l Loss) {
	var last *Loss
	for i := range s.losses {
		if o := &s.losses[i]; o.Kind == l.Kind && o.Timeline == l.Timeline {
			last = o
		}
	}
	var before uint64
	if last != nil {
		before = last.Total
	}
	goesOn := last != nil && last.Open && last.DeadLetter == l.DeadLetter
	switch {
	case l.Total > before && goesOn:
		last.Records, last.Total, last.Until = last.Records+l.Total-before, l.Total, now
		s.keepLoss(*last)
	case l.Total > before:
		if last != nil {
			last.Open = false
		}
		l.At, l.Until, l.Records, l.Open = now, now, l.Total-before, true
		s.losses = append(s.losses, l)
		s.keepLoss(l)
		s.warn("records are not trained", "why", string(l.Kind), "records", l.Records, "in_all", l.Total, "dead_letter", l.DeadLetter)
	case last != nil && last.Open && now.Sub(last.Until) >= lossRest:
		last.Open = false
	}
}

func (s *Scheduler) keepLoss(l Loss) {
	kinds := []LossKind{LossRetention, LossUndecodable, LossCutOff}
	if err := s.store.Set(state.Losses, l.At, uint64(slices.Index(kinds, l.Kind)), l); err != nil {
		s.lg.Error("a loss could not be recorded", "err", err)
	}
}

// losing says what goes untrained.
func (s *Scheduler) losing() []string {
	var out []string
	for _, l := range s.losses {
		if l.Open && !(l.Kind == LossCutOff && recreated(s.seen.chief.GetProblems())) { // which say so
			out = append(out, s.lossWords(l))
		}
	}
	return out
}
