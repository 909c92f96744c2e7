package nomad

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
	"github.com/kale-sched/kale/plugins/nomad/nomadtest"
)

// What the tests' cluster has.
const (
	nodes       = 2
	gpusPerNode = 2
	slots       = nodes * gpusPerNode
)

// shared is the one cluster of this package's tests, started by the first that needs it.
var shared struct {
	once    sync.Once
	cluster *nomadtest.Cluster
	err     error
}

// pluginBinary is the real kale-backend-nomad, built by the first test that needs it.
var pluginBinary struct {
	once sync.Once
	dir  string
	path string
	err  error
}

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) (code int) {
	code = m.Run()
	if shared.cluster != nil {
		if err := shared.cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if pluginBinary.dir != "" {
		_ = os.RemoveAll(pluginBinary.dir) // in the system's temporary folder: it may as well stay
	}
	return code
}

// rig is one test's part of the cluster: a namespace and a folder on the shared file system.
type rig struct {
	cluster   *nomadtest.Cluster
	namespace string
	dir       string
	block     string // what the backend blocks of its jobs have beside
}

var rigs atomic.Int64

func newRig(t *testing.T) rig {
	t.Helper()
	if why := nomadtest.Missing(); why != "" {
		t.Skip(why)
	}
	shared.once.Do(func() {
		shared.cluster, shared.err = nomadtest.Start(context.Background(), nomadtest.Options{Clients: nodes, GPUs: gpusPerNode})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return rigOn(t, shared.cluster)
}

func rigOn(t *testing.T, c *nomadtest.Cluster) rig {
	t.Helper()
	r := rig{cluster: c, namespace: fmt.Sprintf("test-%d", rigs.Add(1))}
	r.dir = filepath.Join(c.Shared(), r.namespace)
	if err := os.Mkdir(r.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(r.dir, 0o777); err != nil { // whatever the umask: tasks may be nobody's
		t.Fatal(err)
	}
	if err := c.Namespace(r.namespace); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		if err := c.Clear(r.namespace); err != nil {
			t.Logf("what the test left running on the cluster stays there: %v", err)
		}
	})
	return r
}

func (r rig) source(extra string) []byte {
	return fmt.Appendf(nil, "\n  address   = %q\n  namespace = %q\n  token     = %q\n%s", r.cluster.Address(), r.namespace, r.cluster.Token(), extra)
}

func (r rig) config(job string) backend.Config {
	return backend.Config{Job: job, Filename: "job.hcl", StartLine: 40, StartColumn: 19, StartByte: 900, Source: r.source(r.block)}
}

func (r rig) badConfig(job string) (backend.Config, int) {
	cfg := r.config(job)
	cfg.Source = r.source("  port = \"x\"\n")
	return cfg, 44
}

func (r rig) shell() conformance.Shell { return conformance.Shell{Dir: r.dir} }

func (r rig) workload(job string, id backend.ID, p conformance.Program) backend.Workload {
	return r.shell().Workload(job, id, p)
}

func (r rig) starts(t testing.TB, job string, id backend.ID) int { return r.shell().Starts(t, job, id) }

// started waits until the workload's program has run so often, and no oftener.
func (r rig) started(t testing.TB, job string, id backend.ID, want int) {
	t.Helper()
	r.shell().AwaitStarts(t, job, id, want)
}

func (r rig) harness() conformance.Harness {
	return conformance.Harness{
		Config: r.config, BadConfig: r.badConfig, Workload: r.workload, Starts: r.starts, Crash: r.shell().Crash, Slots: slots,
		Stall: r.stall, Lose: r.lose, Obscure: r.obscure,
	}
}

// stall makes the server answer nothing.
func (r rig) stall(t testing.TB) (heal func()) {
	t.Helper()
	if err := r.cluster.SuspendServer(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := r.cluster.ResumeServer(); err != nil {
			t.Error(err)
		}
	}
}

// lose stops the workload's Nomad job, as a person does on the command line.
func (r rig) lose(t testing.TB, job string, id backend.ID) {
	t.Helper()
	if _, _, err := r.raw(t).Jobs().Deregister(nomadJob(job, id), false, nil); err != nil {
		t.Fatal(err)
	}
}

// obscure kills the client on whose node the workload runs.
func (r rig) obscure(t testing.TB, job string, id backend.ID) (heal func()) {
	t.Helper()
	n := r.nodeOf(t, job, id)
	r.cluster.KillClient(n)
	return func() {
		if err := r.cluster.StartClient(context.Background(), n); err != nil {
			t.Error(err)
		}
	}
}

// nodeOf gives the number of the node that the workload is on.
func (r rig) nodeOf(t testing.TB, job string, id backend.ID) int {
	t.Helper()
	allocs, _, err := r.raw(t).Jobs().Allocations(nomadJob(job, id), true, nil)
	if err != nil || len(allocs) == 0 {
		t.Fatalf("allocations of %s: %v, %v", id, allocs, err)
	}
	var n int
	if _, err := fmt.Sscanf(allocs[len(allocs)-1].NodeName, "n%d", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// open gives the backend, inside the test.
func open(t testing.TB) *nomad {
	n := New(conformance.Logger(t)).(*nomad)
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// launch starts the real plugin.
func launch(t testing.TB) *backend.Client {
	t.Helper()
	pluginBinary.once.Do(func() {
		if pluginBinary.dir, pluginBinary.err = os.MkdirTemp("", "kale-backend-nomad-"); pluginBinary.err != nil {
			return
		}
		pluginBinary.path, pluginBinary.err = conformance.Build(pluginBinary.dir, "github.com/kale-sched/kale/cmd/kale-backend-nomad")
	})
	if pluginBinary.err != nil {
		t.Fatal(pluginBinary.err)
	}
	return conformance.Launch(t, pluginBinary.path, backend.Options{})
}

// configured gives the backend, configured for the job.
func (r rig) configured(t testing.TB, job, extra string) *nomad {
	t.Helper()
	n := open(t)
	cfg := r.config(job)
	cfg.Source = r.source(extra)
	diags, err := n.Configure(t.Context(), cfg)
	if err == nil {
		err = diags.Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func ensure(t testing.TB, b backend.Backend, job string, ws ...backend.Workload) []backend.Status {
	t.Helper()
	sts, err := b.Ensure(t.Context(), job, ws)
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range sts {
		if st.Err != nil {
			t.Fatal(st.Err)
		}
	}
	return sts
}

func in(state backend.State) func(backend.Status) bool {
	return func(st backend.Status) bool { return st.State == state }
}

func workerID(rank int, generation uint64) backend.ID {
	return backend.ID{Role: backend.RoleWorker, Rank: rank, Generation: generation}
}

// raw gives a client of Nomad's API in the rig's namespace, as an administrator has one.
func (r rig) raw(t testing.TB) *api.Client {
	t.Helper()
	c, err := api.NewClient(&api.Config{Address: r.cluster.Address(), SecretID: r.cluster.Token(), Namespace: r.namespace})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
