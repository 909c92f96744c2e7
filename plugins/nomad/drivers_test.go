package nomad

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
	"github.com/kale-sched/kale/plugins/nomad/nomadtest"
)

// The program comes over HTTP: the agent fetches it, checks it, and runs it by the name that the scheduler knows it by.
func TestLately(t *testing.T) {
	event := func(kind, message string) *api.TaskEvent { return &api.TaskEvent{Type: kind, DisplayMessage: message} }
	crash := event(api.TaskTerminated, "Exit Code: 1")
	crash.ExitCode = 1
	for _, tt := range []struct {
		name   string
		events []*api.TaskEvent
		want   string
	}{
		{"nothing", nil, ""},
		{"all is well", []*api.TaskEvent{event(api.TaskSetup, "a"), event(api.TaskStarted, "b ")}, "b"},
		{"it has just failed", []*api.TaskEvent{event(api.TaskArtifactDownloadFailed, "checksums differ")}, "checksums differ"},
		{"it is tried again", []*api.TaskEvent{event(api.TaskArtifactDownloadFailed, "checksums differ"), event(api.TaskRestarting, "in 1s"), event(api.TaskDownloadingArtifacts, "downloading")}, "checksums differ; downloading"},
		{"it was tried again, and runs", []*api.TaskEvent{event(api.TaskDriverFailure, "no memory"), event(api.TaskStarted, "started")}, "started"},
		{"it crashed", []*api.TaskEvent{event(api.TaskStarted, "started"), crash, event(api.TaskRestarting, "in 1s")}, "Exit Code: 1; in 1s"},
		{"it ended well", []*api.TaskEvent{event(api.TaskStarted, "started"), event(api.TaskTerminated, "Exit Code: 0"), event(api.TaskKilled, "killed")}, "killed"},
	} {
		if got := lately(tt.events); got != tt.want {
			t.Errorf("%s: lately = %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestArtifact(t *testing.T) {
	r := newRig(t)
	program, err := conformance.Build(t.TempDir(), "github.com/kale-sched/kale/cmd/kale-trainer")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(raw)
	var fetched atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodGet {
			fetched.Add(1)
		}
		http.ServeFile(w, req, program)
	}))
	defer server.Close()
	block := func(checksum string) string {
		return "  artifact {\n    source = \"" + server.URL + "/kale-trainer\"\n    checksum = \"sha256:" + checksum + "\"\n  }\n"
	}
	t.Run("as it is meant to be", func(t *testing.T) {
		n := r.configured(t, "good", block(hex.EncodeToString(sum[:])))
		w := backend.Workload{ID: workerID(0, 1), Argv: []string{"/where/the/scheduler/has/it/kale-trainer", "help"}}
		ensure(t, n, "good", w)
		st := conformance.WaitFor(t, n, "good", w.ID, "ends well", in(backend.StateExited))
		if log := logOf(t, n, "good", w.ID); st.ExitCode != 0 || !strings.Contains(log, "kale-trainer") || fetched.Load() == 0 {
			t.Errorf("it ended with %d and printed %q; the program was fetched %d times", st.ExitCode, log, fetched.Load())
		}
		conformance.Drop(t, n, "good")
	})
	t.Run("another one", func(t *testing.T) {
		n := r.configured(t, "bad", block(strings.Repeat("0", 64)))
		w := backend.Workload{ID: workerID(0, 1), Argv: []string{"kale-trainer", "help"}}
		ensure(t, n, "bad", w)
		conformance.WaitFor(t, n, "bad", w.ID, "says that it is another one", func(st backend.Status) bool {
			return st.State != backend.StateRunning && strings.Contains(strings.ToLower(st.Reason), "checksum")
		})
		conformance.Drop(t, n, "bad")
	})
}

// The whole suite, by a driver that gives each task a file system and control groups of its own, as nobody.
func TestConformanceByExec(t *testing.T) {
	if why := nomadtest.MissingExec(); why != "" {
		t.Skip(why)
	}
	c, err := nomadtest.Start(t.Context(), nomadtest.Options{Clients: nodes, GPUs: gpusPerNode, Drivers: []string{"exec"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	conformance.Run(t, func(t *testing.T) conformance.Harness {
		r := rigOn(t, c)
		r.block = fmt.Sprintf("  driver = \"exec\"\n  volume \"shared\" {\n    path = %q\n  }\n", c.Shared())
		h := r.harness()
		h.Open = func(t testing.TB) backend.Backend { return launch(t) }
		h.Kill = conformance.KillPlugin
		return h
	})
}
