package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kale-sched/kale/cmd/kale/chaos"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/state"
	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/core/stream/kafkatest"
)

const (
	jobName    = "e2e"
	partitions = 6
)

// options are what differs between the tests' jobs. The zero value is two workers of the counting model that never rescale.
type options struct {
	name     string        // "" is jobName
	with     *rig          // whose scheduler's process runs this job too, at its site; nil is its own
	model    string        // kind; "" is counting
	min, max int           // workers; 0, 0 is 2, 2
	policy   string        // "" is static: always max
	mode     string        // "" is live
	onLost   string        // "" is stop
	every    time.Duration // between snapshots; 0 is 2 s
	step     time.Duration // of the emulated accelerator, for batchSize records; 0 is 40 ms
	bare     bool          // the trainer without deduplication
	season   time.Duration // of the forecast; 0 is 40 s
	start    string        // "" is earliest
	topic    string        // "" is clicks; its dead letters go to the topic with -dead behind the name
	site     *site         // where its processes run; nil is this machine, by backend "local"
	disk     bool          // the checkpoints lie on a file system of their own, where this user may make one
	proxied  bool          // a proxy stands in front of every server
	place    time.Duration // place_timeout; 0 is 10 min
	watch    time.Duration // how often the scheduler looks, and decides at most; 0 is 200 ms and 500 ms
}

// batchSize is the number of records of one step.
const batchSize = 64

// hcl is the job file.
func (o options) hcl(brokers []string, checkpoints string) string {
	set := func(s *string, or string) {
		if *s == "" {
			*s = or
		}
	}
	set(&o.name, jobName)
	set(&o.model, job.ModelCounting)
	set(&o.policy, job.PolicyStatic)
	set(&o.mode, job.ModeLive)
	set(&o.onLost, job.OnLostStop)
	set(&o.start, job.StartEarliest)
	set(&o.topic, "clicks")
	if o.site == nil {
		o.site = here
	}
	if o.max == 0 {
		o.min, o.max = 2, 2
	}
	if o.every == 0 {
		o.every = 2 * time.Second
	}
	if o.step == 0 {
		o.step = 40 * time.Millisecond
	}
	if o.season == 0 {
		o.season = 40 * time.Second
	}
	if o.place == 0 {
		o.place = 10 * time.Minute
	}
	tick := o.watch
	if o.watch == 0 {
		tick, o.watch = 500*time.Millisecond, 200*time.Millisecond
	}
	return fmt.Sprintf(`job %q {
  slo {
    max_lag = "5s"
  }
  stream "kafka" {
    brokers     = ["%s"]
    topic       = %q
    start       = %q
    on_lost     = %q
    dead_letter = %q
  }
  features {
    label  = "click"
    sparse = ["user", "item", "category", "slot"]
    dense  = ["price", "age"]
  }
  model {
    kind          = %q
    embedding_dim = 4
    hidden        = [8]
    batch         = %d
    linger        = "30ms"
    tablets       = 8
  }
  workers {
    min          = %d
    max          = %d
    gpus         = %d
    cpu          = 0.25
    memory       = "128MiB"
    emulate_step = "%s"
    chunk        = 32
    queue        = 256
  }
  servers {
    count  = 2
    cpu    = 0.25
    memory = "128MiB"
  }
  throughput {
    theta = [%g, 0, 0]
  }
  forecast {
    interval = "500ms"
    horizon  = "12s"
    season   = "%s"
    history  = "%s"
  }
  autoscale {
    policy       = %q
    mode         = %q
    tau          = "3s"
    cooldown_out = "1s"
    cooldown_in  = "3s"
    tick         = "%s"
    watch        = "%s"
    place_timeout = "%s"
  }
  checkpoint {
    dir   = %q
    every = "%s"
  }
  backend %q {
%s  }
}
`, o.name, strings.Join(brokers, `", "`), o.topic, o.start, o.onLost, o.topic+"-dead", o.model, batchSize, o.min, o.max, o.site.gpus, o.step,
		o.step.Seconds()/batchSize, o.season, 3*o.season, o.policy, o.mode, tick, o.watch, o.place, checkpoints, o.every, o.site.backend, o.site.block)
}

// rig is one job on one broker. Its methods are for the goroutine of the test; what fails ends the test with what is known of the job.
type rig struct {
	t     *testing.T
	o     options
	bins  bins
	kafka *kafkatest.Cluster
	dir   string
	file  string // the job file

	topic, dead string

	job     *job.Job
	spec    *rpc.TrainSpec
	look    backend.Backend // to look at processes when there is no scheduler
	sched   *scheduler      // nil while there is none
	token   string          // of the job; "" until its first process was seen
	site    *site
	disk    *disk                // of the checkpoints; nil is that of everything else
	trainer string               // the program, "" is that of bins
	proxies map[int]*chaos.Proxy // by server
	// addresses are all that the job's processes have listened on.
	addresses map[string]bool
	played    []*traffic
	together  []*rig   // whose jobs its scheduler's process runs too
	more      []string // arguments of kale run
}

// scheduler is `kale run` as a child of the test.
type scheduler struct {
	cmd   *exec.Cmd
	began time.Time
	ended chan struct{} // closed when it has ended; err is valid then
	err   error
}

// newRig makes the topics and the job file. Nothing of the job runs yet.
func newRig(t *testing.T, kafka *kafkatest.Cluster, o options) *rig {
	t.Helper()
	r := &rig{t: t, o: o, bins: programs(t), kafka: kafka, addresses: map[string]bool{}}
	var err error
	if o.with != nil {
		r.dir = o.with.dir
		o.with.together = append(o.with.together, r)
	} else if r.dir, err = os.MkdirTemp(scratch, "rig-"); err != nil {
		t.Fatal(err)
	}
	r.file = filepath.Join(r.dir, o.name+"job.hcl")
	switch r.site = o.site; {
	case r.site == nil && o.with != nil:
		r.site = o.with.site
	case r.site == nil:
		r.site = here
	}
	t.Cleanup(r.cleanUp)
	if o.disk {
		r.disk = newDisk(t, filepath.Join(r.dir, "checkpoint"))
	}
	if r.site.start != nil && o.with == nil { // after the disk: it is to have it too
		r.site = r.site.start(r)
	}
	r.look = r.site.look(r)
	if o.proxied {
		r.proxyServers()
	}
	r.write(o)
	r.topic, r.dead = r.job.Stream.Topic, r.job.Stream.DeadLetter
	kafka.CreateTopics(stream.TopicSpec{Name: r.topic, Partitions: partitions}, stream.TopicSpec{Name: r.dead, Partitions: 1})
	return r
}

// write writes the job file: at first, and when an operator changes it.
func (r *rig) write(o options) {
	r.t.Helper()
	o.site = r.site
	r.o = o
	if err := os.WriteFile(r.file, []byte(o.hcl(r.kafka.Brokers(), filepath.Join(r.dir, "checkpoint"))), 0o600); err != nil {
		r.t.Fatal(err)
	}
	j, _, diags := job.Load(r.file, nil, nil)
	if diags.HasErrors() {
		r.t.Fatalf("the tests' own job file is wrong: %v", diags)
	}
	r.job, r.spec = j, core.TrainSpec(j, "")
	if _, err := core.ConfigureForAny(r.t.Context(), r.look, j, r.stateDir()); err != nil {
		r.t.Fatal(err)
	}
}

// stateDir is the job's state folder.
func (r *rig) stateDir() string { return filepath.Join(r.dir, "s", r.name()) }

// name is the job's.
func (r *rig) name() string {
	if r.o.name != "" {
		return r.o.name
	}
	return jobName
}

func (r *rig) logFile() string { return filepath.Join(r.dir, "kale.log") }

// env is the environment of kale's processes.
func (r *rig) env() []string {
	env := append(os.Environ(), marker+"="+r.dir)
	if r.job.Model.Kind != job.ModelCounting {
		env = append(env, onnx.LibraryEnv+"="+library(r.t))
	}
	return env
}

// run starts the scheduler, for the first time or again, always with the same command, and waits until it answers.
func (r *rig) run() {
	r.t.Helper()
	r.start()
	r.await("the scheduler answers", func() string {
		if _, err := r.view(); err != nil {
			return err.Error()
		}
		return ""
	})
}

// start starts the scheduler.
func (r *rig) start() {
	r.t.Helper()
	if r.sched != nil {
		r.t.Fatal("the scheduler is running already")
	}
	trainer := filepath.Join(r.bins.dir, "kale-trainer")
	if r.o.bare {
		trainer = r.bins.bare
	}
	if r.trainer != "" {
		trainer = r.trainer
	}
	out, err := os.OpenFile(r.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	defer out.Close()
	args := append([]string{"-state-dir", filepath.Join(r.dir, "s"), "run", r.file, "-plain", "-log", "info", "-trainer", trainer}, r.more...)
	cmd := exec.Command(filepath.Join(r.bins.dir, "kale"), args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = r.dir, r.env(), out, out
	if err := cmd.Start(); err != nil {
		r.t.Fatalf("start the scheduler: %v", err)
	}
	s := &scheduler{cmd: cmd, began: time.Now(), ended: make(chan struct{})}
	go func() { // ends with the scheduler, which cleanUp sees to
		defer close(s.ended)
		s.err = cmd.Wait()
	}()
	r.sched = s
}

// killScheduler ends the scheduler with SIGKILL.
func (r *rig) killScheduler() {
	r.t.Helper()
	r.signal(r.sched.cmd.Process.Pid, syscall.SIGKILL)
	<-r.sched.ended
	r.sched = nil
}

// interrupt ends the scheduler as Ctrl-C does: training goes on.
func (r *rig) interrupt() {
	r.t.Helper()
	r.signal(r.sched.cmd.Process.Pid, syscall.SIGINT)
	r.awaitEnd("the interrupted scheduler ends")
}

// awaitEnd waits for the scheduler's own end, which must be a good one.
func (r *rig) awaitEnd(what string) {
	r.t.Helper()
	s := r.sched
	r.await(what, func() string {
		select {
		case <-s.ended:
			return ""
		default:
			return "it runs"
		}
	})
	r.sched = nil
	if s.err != nil {
		r.fatalf("%s: %v", what, s.err)
	}
}

// kale runs another command of kale to its end, which must be a good one.
func (r *rig) kale(args ...string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(r.bins.dir, "kale"), append([]string{"-state-dir", filepath.Join(r.dir, "s")}, args...)...)
	cmd.Dir, cmd.Env = r.dir, r.env()
	if out, err := cmd.CombinedOutput(); err != nil {
		r.fatalf("kale %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// child is a command of kale that runs beside the test.
type child struct {
	cmd      *exec.Cmd
	out, err output
	ended    chan error
	waited   error // what it came to: its exit code says the same
}

// output may be read while it is written.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// child starts a command of kale.
func (r *rig) child(args ...string) *child {
	r.t.Helper()
	c := &child{ended: make(chan error, 1)}
	c.cmd = exec.Command(filepath.Join(r.bins.dir, "kale"), append([]string{"-state-dir", filepath.Join(r.dir, "s")}, args...)...)
	c.cmd.Dir, c.cmd.Env, c.cmd.Stdout, c.cmd.Stderr = r.dir, r.env(), &c.out, &c.err
	if err := c.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.cmd.Process.Kill() }) // it may have ended
	go func() { c.ended <- c.cmd.Wait() }()          // ends with the process
	return c
}

// wait waits until it has ended, and gives its exit code.
func (c *child) wait(r *rig) int {
	r.t.Helper()
	r.awaitFor(fmt.Sprintf("kale %s ends", c.cmd.Args[3]), 2*patience, func() string {
		select {
		case c.waited = <-c.ended:
			return ""
		default:
			return "it runs"
		}
	})
	return c.cmd.ProcessState.ExitCode()
}

// scale orders a number of workers.
func (r *rig) scale(n int) {
	r.t.Helper()
	r.kale("scale", r.name(), strconv.Itoa(n))
}

// stop ends the job in order and waits for it. Its scheduler, if there is one, ends by itself when the job has stopped.
func (r *rig) stop(flags ...string) {
	r.t.Helper()
	r.kale(append([]string{"stop", r.name()}, flags...)...)
	if r.sched != nil {
		r.awaitEnd("the job has stopped, and its scheduler ends")
	}
}

// api connects to the scheduler's socket.
func (r *rig) api() (*api.Client, error) {
	path, err := api.SocketPath(r.stateDir())
	if err != nil {
		return nil, err
	}
	return api.Dial(r.t.Context(), path)
}

// records reads what the scheduler has recorded; it must have ended.
func records[T any](r *rig, l state.Log) []T {
	r.t.Helper()
	st, err := state.Open(r.stateDir())
	if err != nil {
		r.fatalf("%v", err)
	}
	var out []T
	err = state.Scan(st, l, time.Time{}, func(v T) bool { out = append(out, v); return true })
	if err := errors.Join(err, st.Close()); err != nil {
		r.fatalf("%v", err)
	}
	return out
}

// signal sends a signal to a process of this rig, and to none other.
func (r *rig) signal(pid int, sig syscall.Signal) {
	r.t.Helper()
	if pid <= 1 || !belongs(pid, r.dir) {
		r.fatalf("process %d is not one of this test's", pid)
	}
	if err := syscall.Kill(pid, sig); err != nil {
		r.fatalf("send %v to process %d: %v", sig, pid, err)
	}
}

// cleanUp takes down what a failed test has left, by force.
func (r *rig) cleanUp() {
	for _, p := range r.played {
		p.halt()
	}
	if r.sched != nil {
		_ = r.sched.cmd.Process.Kill() // it may have ended
		<-r.sched.ended
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for r.o.with == nil && r.look != nil && len(processes(r.dir)) > 0 {
		err := r.releaseAll(ctx)
		for _, other := range r.together {
			err = errors.Join(err, other.releaseAll(ctx))
		}
		select {
		case <-ctx.Done():
			r.t.Errorf("processes are left: %v (release them: %v)", processes(r.dir), err)
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
	for _, one := range append(r.together, r) {
		if one.look == nil || r.o.with != nil {
			continue
		}
		if err := one.look.Close(); err != nil {
			r.t.Error(err)
		}
	}
	for _, p := range r.proxies {
		p.Close()
	}
	if r.disk != nil {
		r.disk.close()
	}
}

// releaseAll releases what the backend has of the job, by force.
func (r *rig) releaseAll(ctx context.Context) error {
	if r.look == nil {
		return nil
	}
	list, _, err := r.look.List(ctx, r.name())
	if err != nil {
		return err
	}
	var ids []backend.ID
	for _, st := range list {
		ids = append(ids, st.ID)
	}
	return r.look.Release(ctx, r.name(), ids, backend.Forced)
}
