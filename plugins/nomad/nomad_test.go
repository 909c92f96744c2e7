package nomad

import (
	"testing"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Harness {
		h := newRig(t).harness()
		h.Open = func(t testing.TB) backend.Backend { return launch(t) }
		h.Kill = conformance.KillPlugin
		return h
	})
}
