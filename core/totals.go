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

// noteOlder tells that a chief which follows another one has less than that one had, where it knows of nothing that was lost: it knows what is in the checkpoint.
// Servers that were killed go back to their last snapshots, and so does a job whose folder was replaced by an older copy: which it was cannot be told from here.
func (s *Scheduler) noteOlder(now *Totals) {
	was, st := s.want.Totals, s.seen.chief
	known := slices.ContainsFunc(st.GetRollbacks(), func(r *rpc.Rollback) bool { return r.GetDoneUnixMs() == 0 || r.GetUnixMs() >= st.GetStartedUnixMs() })
	if known || was == nil || was.Chief == now.Chief || was.Trained+was.Dead <= now.Trained+now.Dead {
		return
	}
	n := Note{At: s.seen.at, Text: fmt.Sprintf(Restored+"%s records, and had %s when its chief was heard last: the last snapshots in its checkpoint had no more; the others are trained again",
		plan.Thousands(now.Trained+now.Dead), plan.Thousands(was.Trained+was.Dead))}
	s.warn("restored with less than was trained", "says", n.Text)
	s.want.remember(n)
}
