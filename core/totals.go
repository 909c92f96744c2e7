package core

import (
	"fmt"
	"slices"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
)

// Totals is what a job has trained.
type Totals struct {
	Trained uint64   `json:"trained_records"`
	Dead    uint64   `json:"dead_records"`
	Lost    uint64   `json:"lost_offsets"`
	CutOff  uint64   `json:"cut_off_offsets"`
	AUC     *float64 `json:"auc,omitempty"`
	// Skips and DeadLetter say what became of the dead ones: they are in no topic, since stream.on_undecodable is "skip"; or in this one.
	Skips      bool   `json:"skips_undecodable,omitempty"`
	DeadLetter string `json:"dead_letter,omitempty"`
	// Most is what it had before, trained and dead, where it was restored with less and does not have as much again; 0: it has not.
	Most uint64 `json:"most_records,omitempty"`
	// Chief is the one that counted.
	Chief uint64 `json:"chief,omitempty"`
	// Final: nothing was trained after it was counted, and a snapshot has all of it.
	Final bool `json:"final,omitempty"`
}

// totalsOf is what a chief says of it, nil while that is not known.
func totalsOf(st *rpc.JobStatus) *Totals {
	n := trainedRecords(st)
	if n == nil {
		return nil
	}
	t := &Totals{Chief: st.GetChief(), Trained: *n, Dead: st.GetDeadRecords(), Lost: st.GetLostOffsets(), CutOff: cutOff(st)}
	if auc, ok := AUC(st.GetTotals().GetValidation()); ok {
		t.AUC = &auc
	}
	return t
}

// Skips says that records which cannot be decoded are in no topic.
func Skips(j *job.Job) bool {
	return j.Stream.DeadLetter == "" && j.Stream.OnUndecodable == job.OnLostSkip
}

// remember keeps, for whoever asks when the job does not run any more, what it had trained and which processes it had; it is saved with what is wanted.
func (s *Scheduler) remember() {
	if s.seen.chiefErr == nil {
		if t := totalsOf(s.seen.chief); t != nil {
			t.Skips, t.DeadLetter = Skips(s.job), s.job.Stream.DeadLetter
			s.noteOlder(t)
			if was := s.want.Totals; was != nil {
				t.Final = s.want.Snapshotted && was.Final && was.Chief == t.Chief
			}
			s.want.Totals = t
		}
	}
	if s.seen.listErr != nil || !s.seen.complete {
		return
	}
	if !s.want.Stopping {
		s.want.Processes = nil
	}
	for _, st := range s.seen.list {
		if !slices.Contains(s.want.Processes, st.ID) {
			s.want.Processes = append(s.want.Processes, st.ID)
		}
	}
	slices.SortFunc(s.want.Processes, backend.ID.Compare)
}

// Restored is how the note begins that a job has less than had been trained.
const Restored = "the job was restored with "

// count is how many records it has, the dead ones included; most is that, or what it had before.
func (t *Totals) count() uint64 { return t.Trained + t.Dead }

func (t *Totals) most() uint64 { return max(t.Most, t.count()) }

// fall is how many records a job had before its chief was replaced, and with how many it was restored.
type fall struct{ from, to uint64 }

// noteOlder tells that a chief which follows another one has less than that one had, where it does not know all of it to be lost. Servers that were killed go back to their last
// snapshots, and so does a job whose folder was replaced by an older copy: which it was cannot be told from here. What workers know to have been trained, a chief learns
// when they register, for which it has its time, unless the job is being stopped.
func (s *Scheduler) noteOlder(now *Totals) {
	was := s.want.Totals
	if was == nil {
		return
	}
	if had := was.most(); had > now.count() {
		now.Most = had
	}
	if was.Chief != now.Chief && was.count() > now.count() {
		f := fall{was.count(), now.count()}
		if s.fell != nil {
			f.from = max(f.from, s.fell.from)
		}
		s.fell = &f
	}
	f := s.fell
	if f == nil || s.chiefIsNew() && !s.want.Stopping {
		return
	}
	s.fell = nil
	if f.from-f.to <= knownLost(s.seen.chief) {
		return
	}
	n := Note{At: s.seen.at, Text: fmt.Sprintf(Restored+"%s records, and had %s before: the last snapshots in its checkpoint had no more; the others are trained again",
		plan.Thousands(f.to), plan.Thousands(max(f.from, now.Most)))}
	s.warn("restored with less than was trained", "says", n.Text)
	s.want.remember(n)
}

// knownLost is how many offsets a chief knew to be lost when it was new: what its servers had lost since, or lacked still of what they had lost under the chief before. What it
// knows is as old as what was kept beside the checkpoint, where the workers that knew more have ended too.
func knownLost(st *rpc.JobStatus) (n uint64) {
	for _, r := range st.GetRollbacks() {
		switch {
		case r.GetUnixMs() >= st.GetStartedUnixMs():
			n = max(n, r.GetOffsets())
		case r.GetDoneUnixMs() == 0:
			n = max(n, r.GetRemaining())
		}
	}
	return n
}
