package fake_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
	"github.com/kale-sched/kale/core/backend/fake"
)

// envCluster turns this test binary into a plugin that serves the fake over the cluster in that file.
const envCluster = "KALE_TEST_FAKE_CLUSTER"

const slots = 4

func TestMain(m *testing.M) {
	if path := os.Getenv(envCluster); path != "" {
		backend.Serve(func(lg *slog.Logger) backend.Backend { return fake.New(lg, fake.OpenCluster(path, slots)) })
		return
	}
	os.Exit(m.Run())
}

func workload(_ string, id backend.ID, p conformance.Program) backend.Workload {
	argv := map[conformance.Program][]string{
		conformance.Steady: {"run"}, conformance.ExitZero: {"exit", "0"}, conformance.Fenced: {"exit", "3"},
		conformance.Crash: {"crash"}, conformance.Stubborn: {"stubborn"}, conformance.Echo: {"echo"},
		conformance.Missing: {"no-such-program"},
	}[p]
	return backend.Workload{ID: id, Argv: argv}
}

func config(job string) backend.Config {
	return backend.Config{Job: job, Source: []byte("\n  slots = " + strconv.Itoa(slots) + "\n"), Filename: "job.hcl", StartLine: 7, StartColumn: 17}
}

func badConfig(job string) (backend.Config, int) {
	cfg := config(job)
	cfg.Source = []byte("\n  slots = 4\n  slotz = 4\n")
	return cfg, 9
}

func harness(cluster *fake.Cluster) conformance.Harness {
	return conformance.Harness{
		Open:      func(testing.TB) backend.Backend { return fake.New(nil, cluster) },
		Config:    config,
		BadConfig: badConfig,
		Workload:  workload,
		Starts:    func(_ testing.TB, job string, id backend.ID) int { return cluster.Starts(job, id) },
		Slots:     slots,
		Stall: func(t testing.TB) func() {
			heal, err := cluster.Stall()
			if err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := heal(); err != nil {
					t.Error(err)
				}
			}
		},
		Lose: func(t testing.TB, job string, id backend.ID) {
			if err := cluster.SetState(job, id, backend.StateFailed, "its node died"); err != nil {
				t.Fatal(err)
			}
		},
		Obscure: func(t testing.TB, job string, id backend.ID) func() {
			set := func(s backend.State) {
				if err := cluster.SetState(job, id, s, "its node does not answer"); err != nil {
					t.Fatal(err)
				}
			}
			set(backend.StateUnknown)
			return func() { set(backend.StateRunning) }
		},
	}
}

func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Harness {
		cluster := fake.NewCluster(slots)
		if err := cluster.SetBeside(true); err != nil {
			t.Fatal(err)
		}
		return harness(cluster)
	})
}

// launch starts this test binary as a plugin over the cluster in the file.
func launch(t testing.TB, path string, opts backend.Options) *backend.Client {
	t.Helper()
	opts.Env = []string{envCluster + "=" + path}
	return conformance.Launch(t, os.Args[0], opts)
}

func TestConformanceOverPlugin(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Harness {
		path := filepath.Join(t.TempDir(), "cluster.json")
		h := harness(fake.OpenCluster(path, slots))
		h.Open = func(t testing.TB) backend.Backend { return launch(t, path, backend.Options{}) }
		h.Kill = conformance.KillPlugin
		return h
	})
}

// envBroken makes TestBrokenBackend run, on the cluster in that file.
const envBroken = "KALE_TEST_BROKEN_CLUSTER"

// broken answers for another workload than it was asked for.
type broken struct{ backend.Backend }

func (b broken) Ensure(ctx context.Context, job string, ws []backend.Workload) ([]backend.Status, error) {
	statuses, err := b.Backend.Ensure(ctx, job, ws)
	for i := range statuses {
		statuses[i].ID.Rank++
	}
	return statuses, err
}

func TestBrokenBackend(t *testing.T) {
	path := os.Getenv(envBroken)
	if path == "" {
		t.Skip("TestBrokenRuleLeavesNothing runs it")
	}
	conformance.Run(t, func(*testing.T) conformance.Harness {
		cluster := fake.OpenCluster(path, slots)
		h := harness(cluster)
		h.Open = func(testing.TB) backend.Backend { return broken{fake.New(nil, cluster)} }
		return h
	})
}

// A rule that a backend breaks ends there, and leaves nothing running; what it says of a workload can be read.
func TestBrokenRuleLeavesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cluster.json")
	c := exec.Command(os.Args[0], "-test.run", "^TestBrokenBackend$/^EnsureTwiceIsOneProcess$")
	c.Env = append(os.Environ(), envBroken+"="+path)
	out, err := c.CombinedOutput()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || !strings.Contains(string(out), "statuses come in the order of the workloads") {
		t.Fatalf("a backend that breaks the rule: %v\n%s", err, out)
	}
	b := fake.New(nil, fake.OpenCluster(path, slots))
	if _, err := b.Configure(t.Context(), config("conformance")); err != nil {
		t.Fatal(err)
	}
	if list, _, err := b.List(t.Context(), "conformance"); err != nil || len(list) > 0 {
		t.Errorf("it leaves %v, %v", list, err)
	}
}

func TestScript(t *testing.T) {
	cluster := fake.NewCluster(slots)
	b := fake.New(nil, cluster)
	ctx := t.Context()
	if _, err := b.Configure(ctx, config("j")); err != nil {
		t.Fatal(err)
	}
	id0, id1 := backend.ID{Role: "worker", Generation: 1}, backend.ID{Role: "worker", Rank: 1, Generation: 1}
	ws := []backend.Workload{workload("j", id0, conformance.Steady), workload("j", id1, conformance.Steady)}

	wanted := backend.RetryIn(time.Second, "the cluster is busy")
	b.FailNext(fake.OpEnsure, wanted)
	if _, err := b.Ensure(ctx, "j", ws); !errors.Is(err, wanted) {
		t.Errorf("Ensure = %v, want the scripted %v", err, wanted)
	}
	b.CrashNext(fake.OpEnsure, nil)
	if _, err := b.Ensure(ctx, "j", ws); err == nil || backend.CodeOf(err) != backend.Unavailable {
		t.Errorf("Ensure = %v, want the scripted crash", err)
	}
	if n := cluster.Starts("j", id0); n != 1 {
		t.Errorf("a crash after the work was done left %d starts, want 1", n)
	}
	b.PartialNext(id1)
	got, complete, err := b.List(ctx, "j")
	if err != nil || complete || len(got) != 1 || got[0].ID != id0 {
		t.Errorf("partial List = %v, %v, %v", got, complete, err)
	}
	hang, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	b.HangNext(fake.OpList)
	if _, _, err := b.List(hang, "j"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("hanging List = %v, want its deadline", err)
	}
	if err := cluster.Crash("j", id0); err != nil {
		t.Fatal(err)
	}
	if got, _, _ = b.List(ctx, "j"); got[0].Restarts != 1 || got[0].State != backend.StateRunning {
		t.Errorf("after a crash: %+v", got[0])
	}
	if err := cluster.Exit("j", id1, 3); err != nil {
		t.Fatal(err)
	}
	if got, _, _ = b.List(ctx, "j"); got[1].ExitCode != 3 || got[1].State != backend.StateFailed {
		t.Errorf("after an exit: %+v", got[1])
	}
	var ops []fake.Op
	for _, c := range b.Calls() {
		ops = append(ops, c.Op)
	}
	want := []fake.Op{
		fake.OpConfigure, fake.OpEnsure, fake.OpEnsure, fake.OpList, fake.OpList, fake.OpList, fake.OpList,
	}
	if diff := cmp.Diff(want, ops); diff != "" {
		t.Errorf("call log (-want +got):\n%s", diff)
	}
}

// A plugin that is told by its block to die after the work is done, before it answers.
func TestPluginCrashesInMidCall(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "cluster.json")
	c := launch(t, path, backend.Options{})
	cfg := config("j")
	cfg.Source = fmt.Appendf(nil, "crash_on = %q\nonce = %q\n", fake.OpEnsure, filepath.Join(dir, "once"))
	if diags, err := c.Configure(t.Context(), cfg); err != nil || diags.HasErrors() {
		t.Fatal(diags, err)
	}
	id := backend.ID{Role: "worker", Generation: 1}
	ws := []backend.Workload{workload("j", id, conformance.Steady)}
	if _, err := c.Ensure(t.Context(), "j", ws); err == nil || backend.CodeOf(err) != backend.Unavailable {
		t.Fatalf("Ensure whose plugin dies = %v, want code %q", err, backend.Unavailable)
	}
	conformance.Eventually(t, "the plugin is back, configured", func() error {
		_, err := c.Ensure(t.Context(), "j", ws)
		return err
	})
	if n := fake.OpenCluster(path, slots).Starts("j", id); n != 1 {
		t.Errorf("%d starts, want 1", n)
	}
	if c.Starts() != 2 {
		t.Errorf("the plugin was started %d times, want 2", c.Starts())
	}
}

// A call that hangs inside a plugin that is otherwise well fails at its deadline; the plugin stays.
func TestCallHangs(t *testing.T) {
	dir := t.TempDir()
	c := launch(t, filepath.Join(dir, "cluster.json"), backend.Options{CallTimeout: 500 * time.Millisecond})
	cfg := config("j")
	cfg.Source = fmt.Appendf(nil, "hang_on = %q\nonce = %q\n", fake.OpList, filepath.Join(dir, "once"))
	conformance.Eventually(t, "it is configured", func() error { // within the short deadline, on a busy machine
		_, err := c.Configure(t.Context(), cfg)
		return err
	})
	_, complete, err := c.List(t.Context(), "j")
	if complete || !errors.Is(err, context.DeadlineExceeded) || backend.CodeOf(err) != backend.Unavailable {
		t.Errorf("List that hangs = complete %v, %v; want its deadline", complete, err)
	}
	if c.Starts() != 1 {
		t.Errorf("the plugin was started %d times, want 1", c.Starts())
	}
}

// A stopped process answers nothing, and go-plugin would wait for it for ever.
func TestHungPluginIsReplaced(t *testing.T) {
	c := launch(t, filepath.Join(t.TempDir(), "cluster.json"), backend.Options{
		LivenessEvery: 20 * time.Millisecond, LivenessTimeout: 300 * time.Millisecond,
	})
	if _, err := c.Configure(t.Context(), config("j")); err != nil {
		t.Fatal(err)
	}
	hung := c.PID()
	if err := syscall.Kill(hung, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.List(t.Context(), "j"); err != nil && backend.CodeOf(err) != backend.Unavailable {
		t.Errorf("List on a hung plugin: %v, want code %q", err, backend.Unavailable)
	}
	conformance.Eventually(t, "another process answers, configured", func() error {
		_, _, err := c.List(t.Context(), "j")
		if err == nil && c.PID() == hung {
			err = errors.New("the hung one does")
		}
		return err
	})
	if err := syscall.Kill(hung, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the hung process %d is still there: %v", hung, err)
	}
}
