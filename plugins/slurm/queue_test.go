package slurm

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// hanging is a controller that answers nothing, and takes its time.
type hanging struct {
	controller
	asked int
}

func (h *hanging) jobs(context.Context) ([]row, error) {
	h.asked++
	time.Sleep(askTimeout)
	return nil, errors.New("no answer")
}

// Who asks one thing after the other of a cluster that hangs waits for it once, and it is asked again before long.
func TestQueueThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{}
		q := newQueue(h, defaultPoll)
		ask := func(want int) {
			t.Helper()
			if snap := q.poll(t.Context(), 0); snap.err == nil || h.asked != want {
				t.Errorf("asked %d times, %v; want %d times, and an error", h.asked, snap.err, want)
			}
		}
		began := time.Now()
		ask(1)
		ask(1)
		if waited := time.Since(began); waited != askTimeout {
			t.Errorf("two questions took %v, want %v", waited, askTimeout)
		}
		time.Sleep(askTimeout)
		ask(2)
	})
}
