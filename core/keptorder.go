package core

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

// orderFile is the number of workers that a person has ordered, in the checkpoint folder of a job that runs: a scheduler whose own state does not know of it,
// because it took the job from another one or lost its folder, keeps to it. The chief remembers a pause, and nobody else this.
const orderFile = "order.json"

// keptOrder is what orderFile says. Whoever removes the file has given no order.
type keptOrder struct {
	Pinned bool `json:"pinned"` // false: the job's policy decides, as it was told to again
	Target int  `json:"target,omitempty"`
}

func orderPath(j *job.Job) string { return filepath.Join(CheckpointFolder(j), orderFile) }

// keepOrder writes down the order in force. Before the job has a checkpoint folder there is nobody to take it over. One that only observes is given none, and another
// scheduler may have the job.
func (s *Scheduler) keepOrder() {
	if s.lease == nil {
		return
	}
	m := s.want.Manual
	var was keptOrder
	err := backend.ReadJSON(orderPath(s.job), &was)
	now := keptOrder{Pinned: m.Pinned, Target: m.Target}
	if err == nil && was == now || errors.Is(err, fs.ErrNotExist) && !m.Pinned {
		return
	}
	err = backend.WriteJSON(orderPath(s.job), now)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.lg.Warn("the number of workers that was ordered cannot be kept in the checkpoint folder: a scheduler with another state folder would not know of it", "err", err)
	}
}

// takeOrder makes the order that the scheduler before was given this one's. known says that this one has a state of its own: that counts, unless another
// one had the job since.
func (s *Scheduler) takeOrder(known bool) error {
	if known && (s.lease == nil || !s.lease.elsewhere) {
		return nil
	}
	var o keptOrder
	err := backend.ReadJSON(orderPath(s.job), &o)
	m := &s.want.Manual
	switch {
	case errors.Is(err, fs.ErrNotExist):
		o = keptOrder{} // nobody has ordered a number, or the job was stopped since
	case err != nil, o.Pinned && (o.Target < s.job.Workers.Min || o.Target > s.job.Workers.Max):
		s.lg.Warn("the number of workers that the scheduler before was ordered cannot be used; the policy decides", "file", orderPath(s.job), "workers", o.Target, "err", err)
		o = keptOrder{}
	}
	if m.Pinned == o.Pinned && m.Target == o.Target {
		return nil
	}
	if m.Pinned, m.Target = o.Pinned, o.Target; o.Pinned {
		s.lg.Info("a person ordered this number of workers, of the scheduler before; kale scale auto lets the policy decide", "workers", o.Target)
	} else {
		s.lg.Info("the policy decides again: so it was ordered, or the job was stopped, while another scheduler had it")
	}
	return s.save()
}

// ForgetOrder removes the number of workers that was ordered from a job's checkpoint folder, and gives the file that it was in; "": there was none.
func ForgetOrder(j *job.Job) (file string, err error) {
	err = os.Remove(orderPath(j))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return orderPath(j), err
}

// dropOrder removes what keepOrder wrote, when the job has stopped: what its own scheduler remembers is in its state.
func (s *Scheduler) dropOrder() {
	if _, err := ForgetOrder(s.job); err != nil {
		s.lg.Warn("the number of workers that was ordered stays in the checkpoint folder: the next scheduler with another state folder keeps to it", "err", err)
	}
}
