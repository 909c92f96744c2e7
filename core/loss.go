package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/state"
)

// LossKind says why records were not trained.
type LossKind string

// The kinds of losses.
const (
	LossRetention   LossKind = "retention"   // removed before they were trained, and given up
	LossUndecodable LossKind = "undecodable" // they cannot be decoded
)

// Loss is a time in which a job did without records again and again.
type Loss struct {
	Kind LossKind `json:"kind"`
	// At is when the scheduler learnt of the first, Until of the last.
	At    time.Time `json:"at"`
	Until time.Time `json:"until"`
	// Records are those of this time (of retention: offsets), Total all since the job began.
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
	n := plan.Thousands(l.Records)
	text := fmt.Sprintf("records that could not be decoded and were skipped (on_undecodable = \"skip\"): %s", n)
	if l.Kind == LossRetention {
		text = fmt.Sprintf("offsets that retention removed before they were trained, and that were given up: %s", n)
	}
	if l.Total > l.Records {
		text += fmt.Sprintf(", %s since the job began", plan.Thousands(l.Total))
	}
	return text
}

// lossWords are a loss that goes on, as an operator should read it.
func (s *Scheduler) lossWords(l Loss) string {
	if l.Kind == LossRetention {
		return fmt.Sprintf("retention removes records before they are trained: %s offsets were given up; %s",
			plan.Thousands(l.Records), s.trainSooner("raise the topic's retention.ms or retention.bytes"))
	}
	return fmt.Sprintf(`records cannot be decoded: %s were skipped (on_undecodable = "skip"); kale logs %s names them`, plan.Thousands(l.Records), s.job.Name)
}

// Losses reads from a job's state what was lost from a time on, without what is in a dead-letter topic.
func Losses(st *state.Store, from time.Time) ([]Loss, error) {
	all, err := countedLosses(st, from)
	return slices.DeleteFunc(all, func(l Loss) bool { return l.DeadLetter != "" }), err
}

func countedLosses(st *state.Store, from time.Time) (out []Loss, err error) {
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
	s.followLoss(now, Loss{Kind: LossUndecodable, Total: st.GetDeadRecords(), Timeline: st.GetTimeline(), DeadLetter: s.job.Stream.DeadLetter})
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
		if l.DeadLetter == "" {
			s.lg.Warn("records are not trained", "why", string(l.Kind), "records", l.Records, "in_all", l.Total)
		}
	case last != nil && last.Open && now.Sub(last.Until) >= lossRest:
		last.Open = false
	}
}

func (s *Scheduler) keepLoss(l Loss) {
	kinds := []LossKind{LossRetention, LossUndecodable}
	if err := s.store.Set(state.Losses, l.At, uint64(slices.Index(kinds, l.Kind)), l); err != nil {
		s.lg.Error("a loss could not be recorded", "err", err)
	}
}

// losing says what is being lost.
func (s *Scheduler) losing() []string {
	var out []string
	for _, l := range s.losses {
		if l.Open && l.DeadLetter == "" {
			out = append(out, s.lossWords(l))
		}
	}
	return out
}
