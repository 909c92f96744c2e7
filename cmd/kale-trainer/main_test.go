package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/fake"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/stream"
)

const jobText = `
job "ctr" {
  stream "kafka" {
    brokers = [%q]
    topic   = "clicks"
    start   = "earliest"
  }
  features {
    label = "click"
  }
  model {
    kind    = "counting"
    batch   = 64
    tablets = 4
  }
  workers {
    max = 1
  }
  throughput {
    theta = [0.001, 0, 0]
  }
  autoscale {
    policy = "static"
    tick   = "100ms"
    watch  = "50ms"
  }
  checkpoint {
    dir = %q
  }
  network {
    listen = "127.0.0.1:0"
  }
  backend "fake" {
  }
}
`

// cluster remembers what the scheduler wants started; the test starts it.
type cluster struct {
	backend.Backend
	mu   sync.Mutex
	want map[string]backend.Workload
}

func (c *cluster) Ensure(ctx context.Context, job string, ws []backend.Workload) ([]backend.Status, error) {
	c.mu.Lock()
	for _, w := range ws {
		c.want[w.ID.Role] = w
	}
	c.mu.Unlock()
	return c.Backend.Ensure(ctx, job, ws)
}

// far is a job between a real scheduler, a broker, and trainers that this test runs as their machines would.
type far struct {
	t       *testing.T
	job     *job.Job
	state   string
	cluster *cluster
	broker  *stream.Broker
	s       *core.Scheduler
	end     func()
}

func (f *far) schedule() {
	f.t.Helper()
	s, diags, err := core.Open(f.t.Context(), core.Options{Job: f.job, StateDir: f.state, Backend: f.cluster, Trainer: "run"})
	if err != nil || diags.HasErrors() {
		f.t.Fatal(err, diags)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := s.Run(ctx); err != nil {
			f.t.Error(err)
		}
	})
	f.s, f.end = s, sync.OnceFunc(func() {
		cancel()
		done.Wait()
		if err := s.Close(); err != nil {
			f.t.Error(err)
		}
	})
	f.t.Cleanup(f.end)
}

// trainer runs what the scheduler has asked for, with the specification that it wrote, changed as the machine needs it. stop is a SIGTERM.
func (f *far) trainer(role string, change func(*rpc.TrainSpec)) (stop func()) {
	f.t.Helper()
	var w backend.Workload
	eventually(f.t, role+" is wanted", func() (ok bool) {
		f.cluster.mu.Lock()
		defer f.cluster.mu.Unlock()
		w, ok = f.cluster.want[role]
		return ok
	})
	spec := &rpc.TrainSpec{}
	if err := protojson.Unmarshal(w.Files["spec.json"], spec); err != nil {
		f.t.Fatal(err)
	}
	change(spec)
	raw, err := protojson.Marshal(spec)
	if err != nil {
		f.t.Fatal(err)
	}
	path := filepath.Join(f.t.TempDir(), "spec.json")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if code := run(ctx, append(w.Argv[1:], "--spec", path)); code != 0 {
			f.t.Errorf("%s ended with code %d", w.ID, code)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		done.Wait()
	})
	f.t.Cleanup(stop)
	return stop
}

func (f *far) produce(n int) {
	f.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(f.broker.Addr()))
	if err != nil {
		f.t.Fatal(err)
	}
	defer cl.Close()
	var records []*kgo.Record
	for i := range n {
		records = append(records, &kgo.Record{Topic: "clicks", Value: fmt.Appendf(nil, `{"click":1,"n":%d}`, i)})
	}
	if err := cl.ProduceSync(f.t.Context(), records...).FirstErr(); err != nil {
		f.t.Fatal(err)
	}
}

// trained waits until the tablets have counted so many records, no more and no fewer, with no lag left.
func (f *far) trained(n uint64) {
	f.t.Helper()
	eventually(f.t, fmt.Sprintf("%d records are trained", n), func() bool {
		v := f.s.View()
		if v != nil && v.Trained != nil && *v.Trained > n {
			f.t.Fatalf("%d records are trained, and there are %d", *v.Trained, n)
		}
		return v != nil && v.Trained != nil && *v.Trained == n && v.Sample.Lag != nil && v.Sample.LagRecords != nil && *v.Sample.LagRecords == 0
	})
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(40 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never came that %s", what)
		}
	}
}

// A worker on a machine that lacks the checkpoint folder finds the chief through the scheduler and trains; so it does when the chief has moved while the
// scheduler was down. Every record is trained once. It does not matter whether the scheduler can read the folder.
func TestTrainsWithoutASharedFolder(t *testing.T) {
	t.Run("scheduler reads it", func(t *testing.T) { trainWithoutASharedFolder(t, true) })
	t.Run("only the server reads it", func(t *testing.T) { trainWithoutASharedFolder(t, false) })
}

func trainWithoutASharedFolder(t *testing.T, schedulerReads bool) {
	broker, err := stream.OpenBroker(t.Context(), nil, stream.BrokerOptions{Topics: []stream.TopicSpec{{Name: "clicks", Partitions: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	checkpoints, missing := filepath.Join(t.TempDir(), "checkpoints"), filepath.Join(t.TempDir(), "not-mounted")
	schedulers := missing
	if schedulerReads {
		schedulers = checkpoints
	}
	mounted := func(s *rpc.TrainSpec) { s.CheckpointDir = checkpoints }
	j, _, diags := job.Parse(fmt.Appendf(nil, jobText, broker.Addr(), schedulers), "ctr.hcl", job.Options{})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	f := &far{t: t, job: j, state: t.TempDir(), broker: broker, cluster: &cluster{Backend: fake.New(nil, fake.NewCluster(4)), want: map[string]backend.Workload{}}}
	f.schedule()
	f.trainer(backend.RoleWorker, func(s *rpc.TrainSpec) { s.CheckpointDir = missing })
	shows := func(member string) {
		t.Helper()
		eventually(t, "the worker is "+member, func() bool {
			v := f.s.View()
			return v != nil && len(v.Workers) == 1 && v.Workers[0].Member == member
		})
	}
	shows("started, dialling chief") // there is none yet
	stopServer := f.trainer(backend.RoleServer, mounted)
	f.produce(500)
	f.trained(500)
	shows("ready")

	before, err := rpc.FindChief(checkpoints, "ctr")
	if err != nil {
		t.Fatal(err)
	}
	f.end()
	stopServer()
	f.trainer(backend.RoleServer, mounted)
	eventually(t, "the chief has moved", func() bool {
		now, err := rpc.FindChief(checkpoints, "ctr")
		return err == nil && now.Incarnation > before.Incarnation
	})
	f.produce(300)
	f.schedule()
	f.trained(800)
	if _, err := os.Stat(missing); !os.IsNotExist(err) {
		t.Errorf("the worker made a folder that is not there: %v", err)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"worker", "x"}, {"worker"}, {"ps", "--index", "x"}, {"--nonsense"}} {
		t.Setenv("KALE_ALLOC_DIR", "")
		if code := run(t.Context(), args); code != exitUsage {
			t.Errorf("%s: code %d, want %d", strings.Join(args, " "), code, exitUsage)
		}
	}
}
