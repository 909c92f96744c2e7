package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/fake"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/state"
	"github.com/kale-sched/kale/core/stream"
)

// rig is a scheduler between a fake cluster, a scriptable chief and an embedded broker. Tests drive it beat by beat, with a clock of their own.
type rig struct {
	t       *testing.T
	job     *job.Job
	state   string // the scheduler's own folder
	cluster *fake.Cluster
	backend *fake.Backend
	broker  *stream.Broker
	chief   *fakeChief
	s       *Scheduler
	now     time.Time
	wrap    func(backend.Backend) backend.Backend // what the scheduler sees of the backend
	pool    *Pool                                 // nil: the job is alone
	lost    error                                 // of the last beat
	stop    bool                                  // schedulers that are opened only stop the job
	byForce bool                                  // and do so by force
	marked  int                                   // calls of the backend that are history
}

// rigOptions change the job of a rig.
type rigOptions struct {
	mode    string // autoscale.mode, "live"
	trainer string // what the fake cluster runs, "run"
	slots   int    // of the cluster, 16
	broker  *stream.Broker
	wrap    func(backend.Backend) backend.Backend
	change  func(text string) string // of the job file
	pool    *Pool
}

const rigTopic, rigPartitions = "clicks", 4

func openBroker(t *testing.T) *stream.Broker {
	t.Helper()
	b, err := stream.OpenBroker(t.Context(), nil, stream.BrokerOptions{Topics: []stream.TopicSpec{{Name: rigTopic, Partitions: rigPartitions}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

const rigJob = `
job "ctr" {
  slo {
    max_lag = "30s"
  }
  stream "kafka" {
    brokers = [%q]
    topic   = %q
    start   = "earliest"
  }
  features {
    label  = "click"
    sparse = ["user"]
  }
  model {
    kind = "lr"
  }
  workers {
    min = 1
    max = 8
    gpus = 1
  }
  servers {
    count = 2
  }
  throughput {
    theta = [0.001, 0, 0]
  }
  forecast {
    interval = "1s"
    horizon  = "20s"
    season   = "1m"
    history  = "1m"
  }
  autoscale {
    mode         = %q
    tick         = "1s"
    watch        = "100ms"
    tau          = "1s"
    cooldown_out = "0s"
    cooldown_in  = "0s"
  }
  checkpoint {
    dir = %q
  }
  backend "fake" {
  }
}
`

// newRig makes the world and opens a scheduler in it, which has not looked yet.
func newRig(t *testing.T, o rigOptions) *rig {
	t.Helper()
	if o.slots == 0 {
		o.slots = 16
	}
	if o.mode == "" {
		o.mode = job.ModeLive
	}
	if o.trainer == "" {
		o.trainer = "run"
	}
	r := &rig{t: t, state: t.TempDir(), cluster: fake.NewCluster(o.slots), broker: o.broker, wrap: o.wrap, pool: o.pool, now: time.Now()}
	if r.broker == nil {
		r.broker = openBroker(t)
	}
	text := fmt.Sprintf(rigJob, r.broker.Addr(), rigTopic, o.mode, filepath.Join(t.TempDir(), "checkpoints"))
	if o.change != nil {
		text = o.change(text)
	}
	r.job = parseJob(t, text)
	r.open(o.trainer)
	r.chief = newFakeChief(t, r.job, r.s.want.Token)
	return r
}

func parseJob(t *testing.T, text string) *job.Job {
	t.Helper()
	j, files, diags := job.Parse([]byte(text), "ctr.hcl", job.Options{})
	if diags.HasErrors() {
		var b strings.Builder
		_ = job.Render(&b, files, diags, 0, false) // a strings.Builder takes everything
		t.Fatal(b.String())
	}
	return j
}

// options are those of a scheduler of this world.
func (r *rig) options(trainer string) Options {
	r.backend = fake.New(nil, r.cluster)
	r.marked = 0
	var b backend.Backend = r.backend
	if r.wrap != nil {
		b = r.wrap(b)
	}
	return Options{
		Job: r.job, StateDir: r.state, Backend: b, Trainer: trainer, Pool: r.pool, Stop: r.stop, Force: r.byForce,
		Log: slog.New(slog.NewTextHandler(r.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
}

func (r *rig) open(trainer string) {
	r.t.Helper()
	s, diags, err := Open(r.t.Context(), r.options(trainer))
	if err != nil || diags.HasErrors() {
		r.t.Fatal(err, diags)
	}
	r.s = s
	s.spawn, s.roomEvery = func(f func()) { f() }, 0
	r.t.Cleanup(func() {
		s.missed.end()
		s.endChange()
		if err := s.Close(); err != nil {
			r.t.Error(err)
		}
	})
}

// reopen ends the scheduler, as kill -9 would after its last write, and opens another one.
func (r *rig) reopen() {
	r.t.Helper()
	trainer := r.s.opt.Trainer
	r.s.endSnapshot()
	r.s.missed.end()
	r.s.endChange()
	if err := r.s.Close(); err != nil {
		r.t.Fatal(err)
	}
	r.open(trainer)
}

// wanted is what a scheduler that has ended wrote down.
func (r *rig) wanted() *Wanted {
	r.t.Helper()
	w, err := WantedAt(r.state)
	if err != nil {
		r.t.Fatal(err)
	}
	return w
}

// beat is one look and one step, a second after the last one.
func (r *rig) beat() {
	r.t.Helper()
	r.now = r.now.Add(time.Second)
	r.s.noteUnsaved(r.s.hearChange())
	r.s.seen = r.s.look(r.t.Context())
	r.lost = r.s.step(r.t.Context(), r.now)
}

func (r *rig) beats(n int) {
	r.t.Helper()
	for range n {
		r.beat()
	}
}

// until beats until a condition holds. The world is as fast as its clock, which stands between beats: what has not come after many will not come.
func (r *rig) until(what string, cond func() error) {
	r.t.Helper()
	var err error
	for range 100 {
		if err = cond(); err == nil {
			return
		}
		r.beat()
	}
	r.t.Fatalf("it never came that %s: %v", what, err)
}

// eventually polls something that another goroutine does.
func eventually(t *testing.T, what string, cond func() error) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		err := cond()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it never came that %s: %v", what, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (r *rig) order(kind string, target int) {
	r.t.Helper()
	if err := r.s.obey(r.t.Context(), command{Order: Order{Kind: kind, Target: target}}); err != nil {
		r.t.Fatal(err)
	}
}

// list is the truth about the cluster.
func (r *rig) list() []backend.Status {
	r.t.Helper()
	b := fake.New(nil, r.cluster)
	if _, err := b.Configure(r.t.Context(), backend.Config{Job: r.job.Name}); err != nil {
		r.t.Fatal(err)
	}
	all, _, err := b.List(r.t.Context(), r.job.Name)
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// live names the processes that run, in order, such as "ps-0-g1 worker-0-g1".
func (r *rig) live() string {
	r.t.Helper()
	var names []string
	for _, st := range r.list() {
		if st.State.Live() {
			names = append(names, st.ID.String())
		}
	}
	return strings.Join(names, " ")
}

// isLive is a condition for until.
func (r *rig) isLive(want string) func() error {
	return func() error {
		if got := r.live(); got != want {
			return fmt.Errorf("live are %q, want %q", got, want)
		}
		return nil
	}
}

func (r *rig) mustBeLive(want string) {
	r.t.Helper()
	if err := r.isLive(want)(); err != nil {
		r.t.Fatal(err)
	}
}

// started brings the job up with so many workers, all ready, and no rescale under way.
func (r *rig) started(workers int) {
	r.t.Helper()
	r.order("scale", workers)
	r.until("the job runs", r.settled(workers))
	r.mark()
}

// settled is the condition that so many workers are wanted, are members, and nothing is under way. It lets every worker that runs join.
func (r *rig) settled(workers int) func() error {
	return func() error {
		r.joinAll()
		w := r.s.want
		if w.Target != workers || w.Rescale != nil || len(w.Draining) > 0 || w.Restart > 0 || r.s.seen == nil || r.s.workers().Running != workers {
			return fmt.Errorf("target %d, rescale %+v, draining %v, restart %d", w.Target, w.Rescale, w.Draining, w.Restart)
		}
		return nil
	}
}

// joinAll makes the chief know every process that runs: servers are up, workers are ready and have trained.
func (r *rig) joinAll() {
	r.t.Helper()
	for _, st := range r.list() {
		switch {
		case st.State != backend.StateRunning:
		case st.ID.Role == backend.RoleServer:
			r.chief.serverUp(st.ID.Rank)
		default:
			r.chief.join(st.ID.Rank, st.ID.Generation)
		}
	}
}

// mark forgets the backend's calls so far.
func (r *rig) mark() { r.marked = len(r.backend.Calls()) }

// calls are what the scheduler asked the backend for since mark, as "ensure worker-1-g1", "release worker-1-g1 drained"; looks are left out.
func (r *rig) calls() []string {
	var out []string
	for _, c := range r.backend.Calls()[r.marked:] {
		for _, id := range c.IDs {
			switch c.Op {
			case fake.OpEnsure:
				out = append(out, "ensure "+id.String())
			case fake.OpRelease:
				out = append(out, "release "+id.String()+" "+c.How.String())
			}
		}
	}
	return out
}

func (r *rig) wantCalls(want ...string) {
	r.t.Helper()
	if got := r.calls(); !slices.Equal(got, want) {
		r.t.Fatalf("the backend was asked for %q, want %q", got, want)
	}
}

func (r *rig) decision() plan.Decision {
	r.t.Helper()
	if r.s.last == nil {
		r.t.Fatal("nothing was decided")
	}
	return r.s.last.Decision
}

// problem is the first problem of the view that contains a text.
func (r *rig) problem(text string) (string, error) {
	for _, p := range r.s.View().Problems {
		if strings.Contains(p, text) {
			return p, nil
		}
	}
	return "", fmt.Errorf("no problem says %q: %q", text, r.s.View().Problems)
}

func (r *rig) rescales() []Rescale {
	r.t.Helper()
	out, err := state.Last[Rescale](r.s.store, state.Rescales, 100)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// produce writes records into a partition.
func (r *rig) produce(partition int32, n int) {
	r.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.broker.Addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		r.t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	var records []*kgo.Record
	for range n {
		records = append(records, &kgo.Record{Topic: rigTopic, Partition: partition, Value: []byte(`{"click":1,"user":"u"}`)})
	}
	if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
		r.t.Fatal(err)
	}
}

func worker(rank int, generation uint64) backend.ID {
	return backend.ID{Role: backend.RoleWorker, Rank: rank, Generation: generation}
}

func server(rank int, generation uint64) backend.ID {
	return backend.ID{Role: backend.RoleServer, Rank: rank, Generation: generation}
}

// errKilled is what a mortal scheduler panics with.
var errKilled = errors.New("killed")

// running is how many workers a view knows to train, -1 where it does not know.
func running(v *View) int {
	if v.Sample.Running == nil {
		return -1
	}
	return *v.Sample.Running
}
