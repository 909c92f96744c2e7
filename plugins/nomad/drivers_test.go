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
	crash, killed, again := event(api.TaskTerminated, "Exit Code: 1"), event(api.TaskTerminated, "Exit Code: 137, Signal: 9"), event(api.TaskRestarting, "Task restarting in 609.298677ms")
	crash.ExitCode, crash.Message = 1, "no space"
	killed.ExitCode, killed.Signal, again.StartDelay = 137, 9, 609298677
	for _, tt := range []struct {
		name   string
		events []*api.TaskEvent
		want   string
	}{
		{"nothing", nil, ""},
		{"all is well", []*api.TaskEvent{event(api.TaskSetup, "a"), event(api.TaskStarted, "b ")}, "b"},
		{"it has just failed", []*api.TaskEvent{event(api.TaskArtifactDownloadFailed, "checksums differ")}, "checksums differ"},
		{"it is tried again", []*api.TaskEvent{event(api.TaskArtifactDownloadFailed, "checksums differ"), again, event(api.TaskDownloadingArtifacts, "downloading")}, "checksums differ; downloading"},
		{"it was tried again, and runs", []*api.TaskEvent{event(api.TaskDriverFailure, "no memory"), event(api.TaskStarted, "started")}, "started"},
		{"it crashed", []*api.TaskEvent{event(api.TaskStarted, "started"), crash, again}, "it crashed with code 1 (no space); it starts again in 600ms"},
		{"it was killed", []*api.TaskEvent{event(api.TaskStarted, "started"), killed, again}, "it crashed with signal 9 (killed); it starts again in 600ms"},
		{"it ended well", []*api.TaskEvent{event(api.TaskStarted, "started"), event(api.TaskTerminated, "Exit Code: 0"), event(api.TaskKilled, "killed")}, "killed"},
	} {
		if got := joined(lately(tt.events)); got != tt.want {
			t.Errorf("%s: lately = %q, want %q", tt.name, got, tt.want)
		}
	}
}

// What starts in another place says how and why the process before it ended, and not what Nomad is about to do.
func TestMoved(t *testing.T) {
	killed := &api.TaskState{Events: []*api.TaskEvent{{Type: api.TaskTerminated, ExitCode: 137, Signal: 9}}}
	building := &api.TaskState{State: "pending", Events: []*api.TaskEvent{{Type: api.TaskSetup, DisplayMessage: "Building Task Directory"}}}
	runs := &api.TaskState{State: "running", Events: []*api.TaskEvent{{Type: api.TaskStarted, DisplayMessage: "Task started by client"}}}
	broken := &api.TaskState{State: "pending", Events: []*api.TaskEvent{{Type: api.TaskArtifactDownloadFailed, DisplayMessage: "checksums differ"}}}
	alloc := func(node, client, why string, task *api.TaskState) *api.AllocationListStub {
		return &api.AllocationListStub{NodeID: node, NodeName: node, ClientStatus: client, DesiredDescription: why, TaskStates: map[string]*api.TaskState{taskName: task}}
	}
	const preempted = "Preempted by alloc ID 1"
	for _, tt := range []struct {
		name   string
		older  *api.AllocationListStub
		newest *api.AllocationListStub
		code   int
		state  backend.State
		want   string
	}{
		{"preempted", alloc("n1", "complete", preempted, killed), alloc("n2", "pending", "", building), 137, backend.StateStarting, "Nomad took it from n1: preempted by alloc ID 1; it starts again on n2"},
		{"stopped by somebody", alloc("n1", "complete", "alloc is being migrated", killed), alloc("n2", "pending", "", building), 137, backend.StateStarting, "somebody had Nomad stop it on n1; it starts again on n2"},
		{"lost", alloc("n1", "lost", "alloc is lost", nil), alloc("n2", "pending", "", nil), 0, backend.StateStarting, "its node n1 was lost; it starts again on n2"},
		{"waits for the one before", alloc("n1", "running", preempted, runs), alloc("n2", "pending", "", building), 0, backend.StateStarting, "Nomad took it from n1: preempted by alloc ID 1; it starts again on n2 when the process before it has ended"},
		{"fails in its new place", alloc("n1", "complete", preempted, killed), alloc("n2", "pending", "", broken), 137, backend.StateStarting, "checksums differ"},
		{"runs in its new place", alloc("n1", "complete", preempted, killed), alloc("n2", "running", "", runs), 137, backend.StateRunning, ""},
	} {
		v := view{
			id: workerID(0, 1), job: &api.JobListStub{Status: "running"}, allocs: []*api.AllocationListStub{tt.older, tt.newest},
			nodes: map[string]*api.NodeListStub{"n1": {Name: "n1", Status: "ready"}, "n2": {Name: "n2", Status: "ready"}},
		}
		if tt.older.ClientStatus == "lost" {
			delete(v.nodes, "n1")
		}
		st := v.status(nil)
		if st.State != tt.state || st.Reason != tt.want || st.ExitCode != tt.code || st.Restarts != 1 {
			t.Errorf("%s: it is %s, %q, code %d, %d restarts; want %s, %q, code %d", tt.name, st.State, st.Reason, st.ExitCode, st.Restarts, tt.state, tt.want, tt.code)
		}
	}
}

// What somebody had Nomad restart did not end by itself.
func TestRestartedByHandIsTold(t *testing.T) {
	const asked = "User requested running tasks to restart"
	event := func(kind, message string) *api.TaskEvent { return &api.TaskEvent{Type: kind, DisplayMessage: message} }
	for want, events := range map[string][]*api.TaskEvent{
		"somebody had Nomad restart it (" + asked + "); it ended in order": {event(api.TaskStarted, ""), event(api.TaskRestartSignal, asked), event(api.TaskTerminated, "Exit Code: 0"), event(api.TaskRestarting, ""), event(api.TaskTerminated, "")},
		"it ended with code 0: done":                                       {event(api.TaskStarted, ""), event(api.TaskTerminated, "Exit Code: 0")},
	} {
		a := &api.AllocationListStub{NodeID: "n1", NodeName: "n1", ClientStatus: "complete", DesiredStatus: "run", TaskStates: map[string]*api.TaskState{taskName: {State: "dead", Events: events}}}
		v := view{id: workerID(0, 1), job: &api.JobListStub{Status: "dead"}, allocs: []*api.AllocationListStub{a}, nodes: map[string]*api.NodeListStub{"n1": {Name: "n1", Status: "ready"}}}
		st := v.status(func(*api.AllocationListStub) (ending, bool) {
			return ending{reason: "it ended with code 0: done"}, true
		})
		if st.State != backend.StateExited || st.Reason != want {
			t.Errorf("it is %s, %q; want %q", st.State, st.Reason, want)
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

// The whole suite, by drivers that give each task a file system and control groups of its own: exec as nobody, docker in a container of an image.
func TestConformanceByDriver(t *testing.T) {
	for _, tt := range []struct{ driver, missing, block string }{
		{"exec", nomadtest.MissingExec(), ""},
		{"docker", nomadtest.MissingDocker(), fmt.Sprintf("  image = %q\n", nomadtest.Image)},
	} {
		t.Run(tt.driver, func(t *testing.T) {
			if tt.missing != "" {
				t.Skip(tt.missing)
			}
			c, err := nomadtest.Start(t.Context(), nomadtest.Options{Clients: nodes, GPUs: gpusPerNode, Drivers: []string{tt.driver}})
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
				r.block = fmt.Sprintf("  driver = %q\n%s  volume \"shared\" {\n    path = %q\n  }\n", tt.driver, tt.block, c.Shared())
				h := r.harness()
				h.Open = func(t testing.TB) backend.Backend { return launch(t) }
				h.Kill = conformance.KillPlugin
				return h
			})
		})
	}
}
