package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/state"
)

// Rollback says that a parameter server came back from its snapshots with less than it had been taught, which is trained again for it and for no other.
type Rollback struct {
	Server      int    `json:"server"`
	Incarnation uint64 `json:"incarnation"`
	// At is when the chief learnt of it.
	At time.Time `json:"at"`
	// Snapshot is when the oldest snapshot was written from which its tablets came; zero: it had none and began anew.
	Snapshot time.Time `json:"snapshot,omitzero"`
	// Offsets are to be trained again, Remaining are not yet: at Done, those that became part of the next one because the server was replaced once more.
	Offsets   uint64 `json:"offsets"`
	Remaining uint64 `json:"remaining"`
	// Done is when none was left or the server was replaced, zero before.
	Done time.Time `json:"done,omitzero"`
	// Unknown: the chief that knew of it was replaced before it was done.
	Unknown bool `json:"unknown,omitempty"`
	// Fallbacks are the tablets that were not restored from their newest snapshot: which, from which, why, and what is trained again for it.
	Fallbacks []string `json:"fallbacks,omitempty"`
}

func (r Rollback) same(o Rollback) bool {
	return r.Server == o.Server && r.Incarnation == o.Incarnation
}

// UnderWay says that the server is still being taught what it lost.
func (r Rollback) UnderWay() bool { return r.Done.IsZero() && !r.Unknown }

// String says it in one sentence, with the age of the snapshot instead of a time of day, which depends on where it is read.
func (r Rollback) String() string {
	from := "without a snapshot: it began anew"
	if !r.Snapshot.IsZero() {
		from = fmt.Sprintf("from a snapshot that was %s old", job.Length(max(0, r.At.Sub(r.Snapshot))))
	}
	text := fmt.Sprintf("parameter server %d was restored %s", r.Server, from)
	if r.Offsets > 0 || len(r.Fallbacks) == 0 { // else nobody knows how many it had
		text += fmt.Sprintf("; %s offsets are trained again for it", plan.Thousands(r.Offsets)) + r.progress()
	}
	for _, f := range r.Fallbacks {
		text += "; " + f
	}
	return text
}

func (r Rollback) progress() string {
	switch {
	case !r.Done.IsZero() && r.Remaining > 0:
		return fmt.Sprintf("; when it was replaced after %s, %s were left, which are part of its next repair", job.Length(r.Done.Sub(r.At)), plan.Thousands(r.Remaining))
	case !r.Done.IsZero():
		return fmt.Sprintf(", done after %s", job.Length(r.Done.Sub(r.At)))
	case r.Unknown:
		return "; the chief was replaced before it was done"
	}
	return fmt.Sprintf(", %s are left", plan.Thousands(r.Remaining))
}

// keptRollbacks is how many are shown at most; the state keeps more.
const keptRollbacks = 16

// Rollbacks reads the rollbacks since a time from a job's state, each as it was seen last.
func Rollbacks(st *state.Store, from time.Time) ([]Rollback, error) {
	var out []Rollback
	err := state.Scan(st, state.Rollbacks, from, func(r Rollback) bool {
		out = mergeRollback(out, r)
		return true
	})
	return out, err
}

// rollbackShown is how long a rollback, or what else is noted, is shown after the chief learnt of it; the report has it for longer.
const rollbackShown = 24 * time.Hour

// RecentRollbacks are those that are still shown.
func RecentRollbacks(st *state.Store, now time.Time) ([]Rollback, error) {
	all, err := Rollbacks(st, now.Add(-rollbackShown))
	return all[max(0, len(all)-keptRollbacks):], err
}

// mergeRollback replaces what was seen of the same one before.
func mergeRollback(all []Rollback, r Rollback) []Rollback {
	if i := slices.IndexFunc(all, r.same); i >= 0 {
		all[i] = r
		return all
	}
	return append(all, r)
}

// followRollbacks takes in what the chief says of rollbacks, and records when one begins and when it ends.
func (s *Scheduler) followRollbacks(now time.Time) {
	if s.seen.chiefErr != nil {
		return
	}
	all := slices.Clone(s.rollbacks) // views share the old one
	var known []Rollback
	for _, m := range s.seen.chief.GetRollbacks() {
		r := rollbackOf(m)
		known = append(known, r)
		if !r.UnderWay() && now.Sub(r.At) > rollbackShown {
			continue // chiefs remember for longer
		}
		i := slices.IndexFunc(all, r.same)
		if i < 0 || !all[i].Done.Equal(r.Done) || all[i].Offsets != r.Offsets {
			s.recordRollback(now, r)
		}
		all = mergeRollback(all, r)
	}
	for i, r := range all {
		if r.UnderWay() && !slices.ContainsFunc(known, r.same) {
			all[i].Unknown = true
			s.recordRollback(now, all[i])
		}
	}
	s.rollbacks = all[max(0, len(all)-keptRollbacks):]
}

func (s *Scheduler) recordRollback(now time.Time, r Rollback) {
	says := s.warn
	if !r.UnderWay() && r.At.Before(s.started) { // the chief tells what happened before this scheduler's state was
		says = s.lg.Info
	}
	says("rollback", "server", r.Server, "incarnation", r.Incarnation, "says", r.String())
	if err := s.store.Append(state.Rollbacks, now, r); err != nil {
		s.lg.Error("a rollback could not be recorded", "err", err)
	}
}

// Rollbacks are those that are still shown, of a scheduler that does not run (any more): one that has only killed its job has no View.
func (s *Scheduler) Rollbacks() []Rollback { return s.rollbacks }

func rollbackOf(m *rpc.Rollback) Rollback {
	r := Rollback{Server: int(m.GetServer()), Incarnation: m.GetIncarnation(), At: moment(m.GetUnixMs()), Offsets: m.GetOffsets(), Remaining: m.GetRemaining(), Fallbacks: m.GetFallbacks()}
	if ms := m.GetSnapshotUnixMs(); ms > 0 {
		r.Snapshot = moment(ms)
	}
	if ms := m.GetDoneUnixMs(); ms > 0 {
		r.Done = moment(ms)
	}
	return r
}

// Unrepaired says of a job that has stopped what its servers have yet to be taught again.
func Unrepaired(all []Rollback) []string {
	var out []string
	for _, r := range all {
		if r.UnderWay() && r.Remaining > 0 {
			out = append(out, fmt.Sprintf("of the %s offsets that parameter server %d had lost, %s were not trained again when the job stopped; the next run trains them",
				plan.Thousands(r.Offsets), r.Server, plan.Thousands(r.Remaining)))
		}
	}
	return out
}

// RepairEnds is how a problem ends that is a server's loss being made good: that it has been, a note tells.
const RepairEnds = "; until that is done lag counts them too"

// repairs says which rollbacks are being made good.
func (s *Scheduler) repairs() []string {
	var out []string
	for _, r := range s.rollbacks {
		if r.UnderWay() {
			out = append(out, fmt.Sprintf("since %s: %s"+RepairEnds, r.At.UTC().Format(time.RFC3339), r))
		}
	}
	return out
}
