package nomad

import (
	"errors"
	"syscall"
	"testing"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Harness {
		h := newRig(t).harness()
		h.Open = func(t testing.TB) backend.Backend { return launch(t) }
		h.Kill = killPlugin
		return h
	})
}

// killPlugin ends the plugin's process and waits until the client has noticed.
func killPlugin(t testing.TB, b backend.Backend) {
	t.Helper()
	c := b.(*backend.Client)
	pid := c.PID()
	if pid == 0 {
		return // it is down already
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatal(err)
	}
	eventually(t, "the client notices that the plugin is dead", func() error {
		if c.PID() == pid {
			return errors.New("it does not")
		}
		return nil
	})
}
