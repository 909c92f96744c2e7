package nomad

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

// A process that has ended since Nomad was asked what runs is drained already: that is nothing to warn of, and its Nomad job ends.
func TestReleaseOfWhatHasJustEnded(t *testing.T) {
	r := newRig(t)
	n := r.configured(t, "j", "")
	s, err := n.jobs.Of(t.Context(), "j")
	if err != nil {
		t.Fatal(err)
	}
	w := r.shell().Script("j", workerID(0, 1), `trap 'exit 0' TERM; `+conformance.CountStart+`sleep 1000 & wait`)
	w.StopGrace = time.Minute // longer than Nomad's own: Kale asks the process itself
	ensure(t, n, "j", w)
	conformance.WaitFor(t, n, "j", w.ID, "runs", in(backend.StateRunning))
	r.started(t, "j", w.ID, 1)
	before, err := s.look(t.Context(), "j")
	if err != nil {
		t.Fatal(err)
	}
	v, _ := before.find(w.ID)
	if err := s.signal(t.Context(), v.latest(), "SIGTERM"); err != nil {
		t.Fatal(err)
	}
	conformance.WaitFor(t, n, "j", w.ID, "has ended", in(backend.StateExited))
	var log bytes.Buffer
	n.lg = slog.New(slog.NewTextHandler(&log, nil))
	if err := n.stop(t.Context(), s, v, backend.Drained); err != nil || strings.Contains(log.String(), "WARN") {
		t.Errorf("it was released with %v, and is warned of: %s", err, log.String())
	}
	after, err := s.look(t.Context(), "j")
	if v, _ := after.find(w.ID); err != nil || !v.over() || !v.job.Stop {
		t.Errorf("its Nomad job is %+v, %v; want that it was told to end", v.job, err)
	}
	conformance.Drop(t, n, "j")
}
