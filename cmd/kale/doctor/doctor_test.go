package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kale-sched/kale/cmd/internal/about"
	"github.com/kale-sched/kale/cmd/internal/probe"
	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
	"github.com/kale-sched/kale/core/backend/fake"
	"github.com/kale-sched/kale/core/job"
)

// says are findings as "state check".
func says(fs []Finding) (out []string) {
	for _, f := range fs {
		out = append(out, string(f.State)+" "+f.Check)
	}
	return out
}

// Groups run at the same time and are reported in their own order; what builds on a failure is not tried; a trial that hangs, whether it
// heeds its context or not, is a failure after its limit, and keeps nothing else waiting.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		after := func(d time.Duration, check string, s State) trial {
			return trial{check: check, limit: time.Minute, try: func(context.Context) []Finding {
				time.Sleep(d)
				return []Finding{ok(check, "done").but(s, "")}
			}}
		}
		vital := after(time.Second, "base", Fail)
		vital.vital = true
		forever := make(chan struct{})
		ended := false
		began := time.Now()
		got := run(t.Context(), []group{
			{trials: []trial{after(3*time.Second, "slow", OK), after(0, "quick", Warn)}, end: func() { ended = true }},
			{trials: []trial{vital, after(0, "on base", OK), after(0, "on that", OK)}},
			{trials: []trial{after(time.Second, "bad", Fail), after(0, "after bad", OK)}},
			{trials: []trial{
				{check: "heeds", limit: 4 * time.Second, try: func(ctx context.Context) []Finding {
					<-ctx.Done()
					return []Finding{ok("heeds", "it heard").but(Fail, "")}
				}},
				{check: "deaf", limit: 5 * time.Second, try: func(context.Context) []Finding { <-forever; return nil }},
			}},
		})
		want := []string{"ok slow", "warn quick", "fail base", "skip on base", "skip on that", "fail bad", "ok after bad", "fail heeds", "fail deaf"}
		if diff := cmp.Diff(want, says(got)); diff != "" {
			t.Error(diff)
		}
		if took := time.Since(began); took != 10*time.Second { // 4 s, then 5 s and a moment
			t.Errorf("it took %v", took)
		}
		if !ended || !strings.Contains(got[8].Says, "no answer within 5s") || got[8].Do == "" || got[7].Says != "it heard" || !strings.Contains(got[3].Says, `"base"`) {
			t.Errorf("ended %v: %+v", ended, got)
		}
		if got[0].Took != 3*time.Second || !Failed(got) || Failed(got[:2]) {
			t.Errorf("took %v", got[0].Took)
		}
		close(forever)
	})
}

const patientJob = `
job "ctr" {
  stream "kafka" {
    brokers = [%s]
    topic   = "clicks"
  }
  features {
    label  = "click"
    sparse = ["user"]
  }
  workers {
    min  = 2
    max  = 4
    gpus = 1
  }
  throughput {
    theta = [0.001, 0, 0]
  }
  checkpoint {
    dir = %q
  }
  backend "fake" {
  }
}
`

func patient(t *testing.T, brokers ...string) Patient {
	t.Helper()
	if len(brokers) == 0 {
		brokers = []string{"127.0.0.1:1"}
	}
	j, _, diags := job.Parse(fmt.Appendf(nil, patientJob, `"`+strings.Join(brokers, `", "`)+`"`, filepath.Join(t.TempDir(), "cp")), "ctr.hcl", job.Options{})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return Patient{Job: j, StateDir: filepath.Join(t.TempDir(), "ctr"), Log: slog.New(slog.DiscardHandler)}
}

func port(t *testing.T, addr string) int {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return a.Port
}

// Workers use the address that a broker tells them, so that one has to answer; a seed that does not is only worth knowing where another does.
func TestBrokers(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(2))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	up := c.ListenAddrs()[0]
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	down := l.Addr().(*net.TCPAddr) // nobody listens there once it is closed
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	if got := says(patient(t, up).brokers(t.Context())); !slices.Equal(got, []string{"ok broker 0", "ok broker 1"}) {
		t.Errorf("all is well: %q", got)
	}
	if got := says(patient(t, down.String(), up).brokers(t.Context())); !slices.Equal(got, []string{"warn broker address " + down.String(), "ok broker 0", "ok broker 1"}) {
		t.Errorf("one of two addresses: %q", got)
	}
	got := patient(t, down.String()).brokers(t.Context())
	if !slices.Equal(says(got), []string{"fail broker address " + down.String()}) || !strings.Contains(got[0].Says, "connection refused") || !strings.Contains(got[0].Do, "ctr.hcl:4:") {
		t.Errorf("nobody there: %+v", got)
	}

	c.ControlKey(kmsg.Metadata.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		for id, number := range []int{port(t, up), down.Port} {
			b := kmsg.NewMetadataResponseBroker()
			b.NodeID, b.Host, b.Port = int32(id), "127.0.0.1", int32(number)
			resp.Brokers = append(resp.Brokers, b)
		}
		return resp, nil, true
	})
	got = patient(t, up).brokers(t.Context())
	if !slices.Equal(says(got), []string{"ok broker 0", "fail broker 1"}) || !strings.Contains(got[1].Says, down.String()) || !strings.Contains(got[1].Do, "advertised.listeners") {
		t.Errorf("an advertised address that does not answer: %+v", got)
	}
}

// A dead-letter topic that may not be written would stop a partition at the first bad record.
func TestDeadLetter(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "clicks", "dead"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p := patient(t, c.ListenAddrs()[0])
	try := func() Finding { return p.deadLetter(t.Context())[0] }
	if f := try(); f.State != Warn || !strings.Contains(f.Do, "dead_letter") {
		t.Errorf("none: %+v", f)
	}
	p.Job.Stream.DeadLetter = "dad"
	if f := try(); f.State != Fail || !strings.Contains(f.Do, `Did you mean "dead"?`) {
		t.Errorf("one that does not exist: %+v", f)
	}
	p.Job.Stream.DeadLetter = "dead"
	if f := try(); f.State != OK {
		t.Errorf("one that is there: %+v", f)
	}
	for operations, want := range map[int32]State{1<<3 | 1<<4: OK, 1 << 3: Fail, operationsMute: OK} {
		c.ControlKey(kmsg.Metadata.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
			if !req.(*kmsg.MetadataRequest).IncludeTopicAuthorizedOperations {
				return nil, nil, false
			}
			resp := req.ResponseKind().(*kmsg.MetadataResponse)
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic, topic.AuthorizedOperations = &p.Job.Stream.DeadLetter, operations
			resp.Topics = append(resp.Topics, topic)
			b := kmsg.NewMetadataResponseBroker()
			b.Host, b.Port = "127.0.0.1", int32(port(t, c.ListenAddrs()[0]))
			resp.Brokers = append(resp.Brokers, b)
			return resp, nil, true
		})
		if f := try(); f.State != want {
			t.Errorf("operations %b: %+v, want %s", operations, f, want)
		}
	}
}

// What the backend has is held against what workers ask for, and the least and the most of them against what is free.
func TestBackend(t *testing.T) {
	for _, c := range []struct {
		name  string
		slots int
		fail  map[fake.Op]error
		gpus  int
		want  []string
		says  string
	}{
		{"room for all", 4, nil, 1, []string{"ok backend block", "warn devices", "ok room for 2 workers", "ok room for 4 workers"}, "there is"},
		{"room for some", 3, nil, 1, []string{"ok backend block", "warn devices", "ok room for 2 workers", "warn room for 4 workers"}, "workers.max"},
		{"no room", 1, nil, 1, []string{"ok backend block", "warn devices", "fail room for 2 workers", "warn room for 4 workers"}, "needs"},
		{"less than one worker", 1, nil, 2, []string{"ok backend block", "fail devices", "fail room for 2 workers", "warn room for 4 workers"}, "One worker asks for 2"},
		{"without GPUs", 0, nil, 0, []string{"ok backend block", "ok devices", "ok room for 2 workers", "ok room for 4 workers"}, "workers use none"},
		{"a cluster that is away", 4, map[fake.Op]error{fake.OpInventory: errors.New("no route"), fake.OpPlan: errors.New("no route")}, 1,
			[]string{"ok backend block", "fail devices", "fail room for 2 workers"}, "no route"},
		{"one that cannot tell", 4, map[fake.Op]error{fake.OpInventory: backend.Errorf(backend.Unsupported, "x"), fake.OpPlan: backend.Errorf(backend.Unsupported, "x")}, 1,
			[]string{"ok backend block", "skip devices", "skip room"}, "cannot tell"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := patient(t)
			p.Job.Workers.GPUs = c.gpus
			b := fake.New(nil, fake.NewCluster(c.slots))
			got := p.configure(t.Context(), b)
			for op, err := range c.fail {
				b.FailNext(op, err)
			}
			got = append(got, p.devices(t.Context(), b))
			got = append(got, p.room(t.Context(), b)...)
			if diff := cmp.Diff(c.want, says(got)); diff != "" {
				t.Errorf("%s\n%+v", diff, got)
			}
			if all := fmt.Sprint(got); !strings.Contains(all, c.says) {
				t.Errorf("nothing says %q: %s", c.says, all)
			}
			for _, f := range got {
				if f.State != OK && f.State != Skip && f.Do == "" {
					t.Errorf("no advice: %+v", f)
				}
			}
			if calls := b.Calls(); slices.ContainsFunc(calls, func(c fake.Call) bool { return c.Op == fake.OpEnsure || c.Op == fake.OpRelease }) {
				t.Errorf("it did something: %v", calls)
			}
		})
	}
	p := patient(t)
	p.Launch = func(context.Context) (*backend.Client, error) { return nil, errors.New("no such program") }
	if got := run(t.Context(), []group{p.backend()}); !slices.Equal(says(got), []string{"fail backend plugin", "skip backend block", "skip devices", "skip room"}) {
		t.Errorf("no plugin: %q", says(got))
	}
}

// A backend that has slots and no GPUs runs a job whose workers ask for GPUs, so that it is no failure.
func TestBackendWithoutGPUs(t *testing.T) {
	program, err := conformance.Build(t.TempDir(), "github.com/kale-sched/kale/examples/backend-processes")
	if err != nil {
		t.Fatal(err)
	}
	p := patient(t)
	p.Job.Backend.Name = "processes"
	p.Launch = func(context.Context) (*backend.Client, error) {
		return conformance.Launch(t, program, backend.Options{}), nil
	}
	if _, f := p.launch(t.Context()); f.State != Warn || !strings.Contains(f.Do, "slots") {
		t.Errorf("workers.gpus is 1: %+v", f)
	}
	p.Job.Workers.GPUs = 0
	if _, f := p.launch(t.Context()); f.State != OK {
		t.Errorf("workers.gpus is 0: %+v", f)
	}
}

// What the job itself holds is told from what others hold.
func TestOwnPlaces(t *testing.T) {
	p := patient(t) // 2 to 4 workers with a GPU each
	b := fake.New(nil, fake.NewCluster(3))
	p.configure(t.Context(), b)
	ensure := func(job string, ranks ...int) {
		t.Helper()
		for _, rank := range ranks {
			w := backend.Workload{ID: backend.ID{Role: backend.RoleWorker, Rank: rank, Generation: 1}, Argv: []string{"run"}, Resources: backend.Resources{GPUs: 1}}
			if _, err := b.Ensure(t.Context(), job, []backend.Workload{w}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := b.Configure(t.Context(), backend.Config{Job: "other"}); err != nil {
		t.Fatal(err)
	}
	ensure("other", 0)
	if f := p.devices(t.Context(), b); strings.Contains(f.Says, "this job") {
		t.Errorf("while it does not run: %s", f.Says)
	}
	ensure("ctr", 0, 1)
	if f := p.devices(t.Context(), b); !strings.Contains(f.Says, "0 free; 2 of those taken are this job's own") {
		t.Errorf("devices: %s", f.Says)
	}
	got := p.room(t.Context(), b)
	if diff := cmp.Diff([]string{"ok room for 2 workers", "warn room for 4 workers"}, says(got)); diff != "" || !strings.Contains(got[len(got)-1].Says, "2 workers of this job run already") {
		t.Errorf("%s%+v", diff, got)
	}
}

// While the plugin starts, whose socket goes into the state folder, that folder stays; in the end it is not there.
func TestStateFolderStaysForThePlugin(t *testing.T) {
	p := patient(t)
	tried := make(chan struct{})
	p.Launch = func(context.Context) (*backend.Client, error) {
		<-tried
		if _, err := os.Stat(p.StateDir); err != nil {
			t.Errorf("while the plugin starts: %v", err)
		}
		return nil, errors.New("no such program")
	}
	try := p.folders()
	state := try.trials[1].try
	try.trials[1].try = func(ctx context.Context) []Finding {
		defer close(tried)
		return state(ctx)
	}
	p.examine(t.Context(), p.backend(), try)
	if _, err := os.Stat(p.StateDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it left its folder: %v", err)
	}
}

// Folders are tried by writing, and left as they were.
func TestFolders(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := patient(t)
	try := func(dir string) Finding {
		p.Job.Checkpoint.Dir, p.StateDir = dir, filepath.Join(dir, "state")
		f, s := p.checkpoints(t.Context())[0], p.stateFolder(t.Context())[0]
		if (f.State == Fail) != (s.State == Fail) {
			t.Errorf("%s: %+v, but as state folder %+v", dir, f, s)
		}
		return f
	}
	for dir, want := range map[string]State{root: OK, filepath.Join(root, "a", "b"): OK, file: Fail, filepath.Join(file, "a"): Fail} {
		if f := try(dir); f.State == Fail != (want == Fail) || f.State == Fail && f.Do == "" {
			t.Errorf("%s: %+v, want %s", dir, f, want)
		}
	}
	if f := try("/proc"); f.State != Fail { // where nobody may make a file, root included
		t.Errorf("/proc: %+v", f)
	}
	if left, err := os.ReadDir(root); err != nil || len(left) != 1 {
		t.Errorf("it left %v, %v", left, err)
	}
}

// A state folder that cannot be used is told before anything starts, and nothing stays of the trial but what others have put there.
func TestCheckState(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	long := filepath.Join(root, strings.Repeat("l", 100))
	for _, c := range []struct{ dir, runtime, says string }{
		{filepath.Join(root, "a", "b"), "", ""},
		{file, "", file},
		{filepath.Join(file, "a"), "", file},
		{"/proc/nope", "", "/proc/nope"},
		{long, "", ""},
		{long, filepath.Join(root, strings.Repeat("r", 100)), "a socket's path may have"},
	} {
		t.Setenv("XDG_RUNTIME_DIR", c.runtime)
		diags := CheckState(c.dir)
		if c.says == "" && len(diags) > 0 || c.says != "" && (!diags.HasErrors() || !strings.Contains(diags[0].Detail, c.says)) {
			t.Errorf("%s: %v, want %q", c.dir, diags, c.says)
		}
		if c.says != "" && !strings.Contains(diags[0].Detail, "hoose") {
			t.Errorf("%s: no advice in %q", c.dir, diags[0].Detail)
		}
	}
	if left, err := os.ReadDir(root); err != nil || len(left) != 1 {
		t.Errorf("it left %v, %v", left, err)
	}
}

func TestMachine(t *testing.T) {
	if f := ports(t.Context())[0]; f.State != OK {
		t.Errorf("ports: %+v", f)
	}
	if f := clock(time.Unix(86400, 0)); f.State != Fail {
		t.Errorf("a clock that was never set: %+v", f)
	}
	if f := clock(time.Now()); f.State == Fail {
		t.Errorf("this clock: %+v", f)
	}
	now := time.Unix(1_800_000_000, 0)
	for age, want := range map[time.Duration]State{0: OK, time.Hour: OK, -time.Second: OK, -time.Minute: Fail} {
		if f := recordsClock(now, now.Add(-age).UnixNano())[0]; f.State != want {
			t.Errorf("a newest record of %v ago: %+v, want %s", age, f, want)
		}
	}
	if f := recordsClock(now, time.UnixMilli(now.Unix()).UnixNano())[0]; f.State != Warn || !strings.Contains(f.Says, "dated 1970-01-") {
		t.Errorf("seconds taken for milliseconds: %+v", f)
	}
	if f := recordsClock(now, 0)[0]; f.State != Skip {
		t.Errorf("no record: %+v", f)
	}

	p := patient(t)
	dir, err := os.MkdirTemp("", "doc") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	p.StateDir = dir
	if f := p.socket(t.Context())[0]; f.State != OK || !strings.Contains(f.Says, "is free") {
		t.Errorf("a free socket: %+v", f)
	}
	path, err := api.SocketPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	l, err := api.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if f := p.socket(t.Context())[0]; f.State != OK || !strings.Contains(f.Says, "a scheduler of this job answers") {
		t.Errorf("one that is taken: %+v", f)
	}
	t.Setenv("XDG_RUNTIME_DIR", "/"+strings.Repeat("x", 200))
	p.StateDir = "/" + strings.Repeat("y", 200)
	if f := p.socket(t.Context())[0]; f.State != Fail || f.Do == "" {
		t.Errorf("one whose path is too long: %+v", f)
	}
}

// expeditionOf is a look at nodes n1, n2, …, each of which has told all that is well; change spoils it.
func expeditionOf(t *testing.T, n int, change func([]*probed)) *expedition {
	t.Helper()
	e := &expedition{p: patient(t), run: "r", meet: "head:7700", ours: true}
	for i := range n {
		own := about.Build()
		own.ONNX, own.ONNXVersion = "libonnxruntime.so", "1.24"
		one := &probed{id: backend.ID{Role: "doctor", Rank: 400 + i, Generation: 1}, index: i, status: backend.Status{Node: fmt.Sprintf("n%d", i+1), State: backend.StateRunning}}
		one.lines = []probe.Line{
			{Wrote: &probe.Wrote{Host: "h", Free: 100 << 30}}, {Compute: &own}, {Network: &probe.Network{Listen: "10.0.0.1:1", Brokers: 3, Meet: "r"}}, {CUDA: &probe.CUDA{}},
		}
		for other := range n {
			if other != i {
				offset := 0.001
				one.lines = append(one.lines, probe.Line{Saw: &probe.Saw{Index: other, Offset: &offset}})
			}
		}
		e.probes = append(e.probes, one)
	}
	change(e.probes)
	return e
}

// What probes say becomes a finding that names the node and what to do.
func TestJudge(t *testing.T) {
	blind := func(p *probed, rank int) {
		p.lines = slices.DeleteFunc(p.lines, func(l probe.Line) bool { return l.Saw != nil && l.Saw.Index == rank })
	}
	for _, tt := range []struct {
		name   string
		nodes  int
		change func([]*probed)
		want   []string // findings that are not ok
		says   []string
	}{
		{"all is well", 3, func([]*probed) {}, nil, []string{"3 nodes wrote and read each other's files", "tried from inside on n1, n2, n3", "at most 1ms apart"}},
		{"one node", 1, func([]*probed) {}, []string{"warn nodes"}, []string{"only n1 could be tried"}},
		{"not shared", 2, func(ps []*probed) { blind(ps[1], 0) }, []string{"fail checkpoint folder on nodes"},
			[]string{"node n2 does not see what n1 wrote in", "checkpoint.dir is not shared", "(ctr.hcl:"}},
		{"other content", 2, func(ps []*probed) { ps[0].saw()[1].Wrong = `it reads ""` }, []string{"fail checkpoint folder on nodes"}, []string{`node n1 does not read what n2 wrote`}},
		{"not writable", 2, func(ps []*probed) { ps[0].wrote().Error = "permission denied"; blind(ps[1], 0) }, []string{"fail checkpoint folder on nodes"}, []string{"node n1 cannot write in", "permission denied"}},
		{"full", 2, func(ps []*probed) { ps[1].wrote().Free = 1 << 20 }, []string{"fail checkpoint folder on nodes"}, []string{"Make room on n2"}},
		{"another version", 2, func(ps []*probed) { ps[1].compute().Version = "v0.0.1" }, []string{"warn trainer on n2"}, []string{"v0.0.1"}},
		{"no library", 2, func(ps []*probed) { ps[1].compute().ONNX, ps[1].compute().NoONNX = "", "no libonnxruntime" }, []string{"fail ONNX Runtime on n2"}, []string{"no libonnxruntime"}},
		{"no broker", 2, func(ps []*probed) { ps[0].network().BrokerError = map[string]string{"": "i/o timeout"} }, []string{"fail network of n1"}, []string{"no broker answers: i/o timeout"}},
		{"no scheduler", 2, func(ps []*probed) { ps[0].network().MeetError = "refused" }, []string{"fail network of n1"}, []string{"head:7700", "network.advertise"}},
		{"another scheduler", 2, func(ps []*probed) { ps[0].network().Meet = "else" }, []string{"fail network of n1"}, []string{"somebody else"}},
		{"cannot listen", 2, func(ps []*probed) { ps[0].network().ListenError = "no interface ib0" }, []string{"fail network of n1"}, []string{"ib0"}},
		{"apart", 2, func(ps []*probed) { ps[0].saw()[1].DialError = "no route to host" }, []string{"fail between nodes"}, []string{"node n1 does not reach n2: no route to host"}},
		{"clocks", 2, func(ps []*probed) { *ps[0].saw()[1].Offset = -3 }, []string{"warn clocks of nodes"}, []string{"the clock of n2 is -3.0 s against that of n1"}},
		{"an old trainer", 2, func(ps []*probed) {
			ps[0].lines, ps[0].rest, ps[0].status.State, ps[0].status.ExitCode = nil, []string{`unknown command "probe"`}, backend.StateFailed, 2
			blind(ps[1], 0)
		}, []string{"fail trainer on n1", "skip between nodes"}, []string{"unknown command", "it ended with code 2"}},
		{"a library that kills", 2, func(ps []*probed) {
			ps[0].lines, ps[0].status.State, ps[0].status.ExitCode = slices.Delete(ps[0].lines, 1, 2), backend.StateFailed, 139
		}, []string{"fail trainer on n1"}, []string{"ONNX Runtime was tried and did not answer", "signal 11 (segmentation fault)"}},
		{"in time but for one thing", 2, func(ps []*probed) {
			ps[0].lines = slices.DeleteFunc(ps[0].lines, func(l probe.Line) bool { return l.Network != nil })
		}, []string{"fail trainer on n1"}, []string{"not answered everything in time"}},
		{"no logs", 2, func(ps []*probed) { ps[0].lines, ps[0].noLog = nil, errors.New("not allowed"); blind(ps[1], 0) }, []string{"fail trainer on n1", "skip between nodes"}, []string{"not allowed"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var bad []string
			text := ""
			for _, f := range expeditionOf(t, tt.nodes, tt.change).judge() {
				if text += f.Says + " " + f.Do + "\n"; f.State != OK {
					bad = append(bad, string(f.State)+" "+f.Check)
					if f.Do == "" && f.State != Skip {
						t.Errorf("%s does not say what to do", f.Check)
					}
				}
			}
			if diff := cmp.Diff(tt.want, bad); diff != "" {
				t.Errorf("%s\n%s", diff, text)
			}
			for _, want := range tt.says {
				if !strings.Contains(text, want) {
					t.Errorf("it does not say %q:\n%s", want, text)
				}
			}
		})
	}
}

// A trainer that is on no node is one finding, which names its path.
func TestTrainerThatIsOnNoNode(t *testing.T) {
	e := expeditionOf(t, 3, func(ps []*probed) {
		for _, o := range ps {
			o.lines, o.rest = nil, []string{"run.sh: 60: exec: /opt/kale/kale-trainer: not found"}
			o.status.State, o.status.ExitCode, o.status.Reason = backend.StateFailed, 127, "it crashed 6 times in a row on node "+o.status.Node
		}
	})
	var found []Finding
	for _, f := range e.judge() {
		if strings.HasPrefix(f.Check, "trainer on ") {
			found = append(found, f)
		}
	}
	if len(found) != 1 || found[0].State != Fail || found[0].Check != "trainer on n1, n2, n3" || !strings.Contains(found[0].Says, "/opt/kale/kale-trainer: not found") {
		t.Errorf("%+v", found)
	}
}

// Where workers compute on GPUs the CUDA provider is tried too, and what is wrong with it is said with what to install.
func TestJudgeCUDA(t *testing.T) {
	const failed = `onnx: create a session: device "cuda": this ONNX Runtime cannot use a GPU (OrtSessionOptionsAppendExecutionProvider_Cuda: `
	for _, tt := range []struct {
		name   string
		change func(*job.Job, *probed)
		want   State // "": nothing is said
		says   []string
	}{
		{"it computes", func(_ *job.Job, o *probed) { o.cuda().Error = "" }, OK, []string{"computes"}},
		{"no GPU is the probe's", func(_ *job.Job, o *probed) {
			o.cuda().Error = failed + "CUDA failure 100: no CUDA-capable device is detected ; GPU=-1 ; hostname=n1)"
		}, OK, []string{"can be loaded", "asks for no GPU"}},
		{"an old driver", func(_ *job.Job, o *probed) {
			o.cuda().Error = failed + "CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version ; GPU=-1)"
		}, Warn, []string{"no NVIDIA driver, or one that is too old", "nvidia-smi", "ctr.hcl:"}},
		{"a build for CPUs", func(_ *job.Job, o *probed) {
			o.rest = []string{"\x1b[1;31m2026 [E:onnxruntime:x] FAIL : Failed to load library /opt/libonnxruntime_providers_shared.so with error: /opt/libonnxruntime_providers_shared.so: " +
				"cannot open shared object file: No such file or directory\x1b[m"}
		}, Warn, []string{"libonnxruntime_providers_shared.so cannot be loaded: /opt/", "No such file", "GPU build of ONNX Runtime", "workers.gpus to 0", "ctr.hcl:"}},
		{"a library of CUDA that is not there", func(_ *job.Job, o *probed) {
			o.rest = []string{"FAIL : Failed to load library /opt/libonnxruntime_providers_cuda.so with error: libcublasLt.so.12: cannot open shared object file", "more"}
		}, Warn, []string{"libonnxruntime_providers_cuda.so cannot be loaded: libcublasLt.so.12:", "cuDNN"}},
		{"anything else", func(_ *job.Job, o *probed) {}, Warn, []string{"cannot be made: " + failed}},
		{"it kills", func(_ *job.Job, o *probed) {
			o.lines = slices.DeleteFunc(o.lines, func(l probe.Line) bool { return l.CUDA != nil })
			o.status.State, o.status.ExitCode = backend.StateFailed, 137
		}, Warn, []string{"ended the probe", "signal 9 (killed)"}},
		{"it hangs", func(_ *job.Job, o *probed) {
			o.lines = slices.DeleteFunc(o.lines, func(l probe.Line) bool { return l.CUDA != nil })
		}, Warn, []string{"did not answer in time"}},
		{"an emulated accelerator", func(j *job.Job, o *probed) {
			j.Workers.EmulateStep = time.Second
			o.lines = slices.DeleteFunc(o.lines, func(l probe.Line) bool { return l.CUDA != nil })
		}, "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := expeditionOf(t, 2, func([]*probed) {})
			e.p.Job.Backend.Name, e.p.Job.Workers.GPUs, e.p.Job.Workers.EmulateStep = "slurm", 1, 0
			e.probes[0].cuda().Error = failed + "Failed to load shared library)"
			tt.change(e.p.Job, e.probes[0])
			said := false
			for _, f := range e.judge() {
				text := f.Says + " " + f.Do
				switch {
				case f.Check != "ONNX Runtime on GPUs of n1":
					if f.State != OK && !strings.HasSuffix(f.Check, "of n2") {
						t.Errorf("%s is %s: %s", f.Check, f.State, text)
					}
					continue
				case f.State != tt.want || f.State != OK && f.Do == "":
					t.Errorf("%s: %s", f.State, text)
				}
				said = true
				for _, want := range tt.says {
					if !strings.Contains(text, want) {
						t.Errorf("it does not say %q: %s", want, text)
					}
				}
			}
			if said != (tt.want != "") {
				t.Errorf("said %v", said)
			}
		})
	}
}

// refusing has no place for anything.
type refusing struct {
	backend.Backend
	asked, released []backend.ID
}

func (r *refusing) Ensure(_ context.Context, _ string, ws []backend.Workload) (out []backend.Status, err error) {
	for _, w := range ws {
		r.asked = append(r.asked, w.ID)
		out = append(out, backend.Status{ID: w.ID, State: backend.StatePending, Reason: "Resources"})
	}
	return out, nil
}

func (r *refusing) Release(_ context.Context, _ string, ids []backend.ID, _ backend.How) error {
	r.released = append(r.released, ids...)
	return nil
}

func (r *refusing) Forget(context.Context, string, string) ([]string, error) { return nil, nil }

func (r *refusing) Inventory(context.Context) (backend.Inventory, error) {
	return backend.Inventory{}, nil
}

func (r *refusing) List(context.Context, string) ([]backend.Status, bool, error) {
	return nil, true, nil
}

// A cluster that places nothing is a finding with its reason after the limit, and what was asked for is taken back; so it is when a person interrupts.
func TestNodesThatHaveNoRoom(t *testing.T) {
	for _, interrupt := range []bool{false, true} {
		p := patient(t)
		p.ProbeLimit = time.Minute
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		b := &refusing{}
		if interrupt {
			cancel()
		} else {
			p.ProbeLimit = 10 * time.Millisecond
		}
		got := p.nodes(ctx, b)
		for ; !interrupt && len(got) == 1 && strings.Contains(got[0].Says, "the cluster says nothing") && p.ProbeLimit < time.Minute; got = p.nodes(ctx, b) {
			p.ProbeLimit *= 4 // it was over before the first answer
			b = &refusing{}
		}
		switch {
		case len(got) != 1:
			t.Errorf("%+v", got)
		case interrupt && got[0].State != Skip:
			t.Errorf("interrupted: %+v", got)
		case !interrupt && (got[0].State != Fail || !strings.Contains(got[0].Says, "did not place a probe") || !strings.Contains(got[0].Says, "Resources (pending)") || !strings.Contains(got[0].Says, "within "+job.Length(p.ProbeLimit))):
			t.Errorf("full: %+v", got)
		}
		if len(b.released) == 0 || b.released[0].Role != "doctor" || len(b.asked) > 0 && b.asked[0] != b.released[0] {
			t.Errorf("asked for %v, released %v", b.asked, b.released)
		}
	}
}

// Two looks at one job at the same time leave each other's probes alone; what a look left that was killed is removed by a later one, when it is over.
func TestLooksBesideEachOther(t *testing.T) {
	p := patient(t)
	p.ProbeLimit, p.Trainer = time.Minute, "run" // which is what the fake knows
	b := fake.New(nil, fake.NewCluster(9))
	p.configure(t.Context(), b)
	look := func(over time.Time, ranks int) *expedition {
		t.Helper()
		e := &expedition{p: p, b: b, run: leavable(over), over: over, ranks: ranks}
		e.clear(t.Context())
		if err := e.send(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(probe.Folder(p.Job.Checkpoint.Dir, e.run), 0o755); err != nil {
			t.Fatal(err)
		}
		return e
	}
	live := func() (out []string) {
		t.Helper()
		list, _, err := b.List(t.Context(), p.Job.Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range list {
			if st.State.Live() {
				out = append(out, fmt.Sprint(st.ID.Role, "-", st.ID.Rank))
			}
		}
		return out
	}
	left := func() int {
		t.Helper()
		found, err := filepath.Glob(probe.Folder(p.Job.Checkpoint.Dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	killed := look(time.Now().Add(-time.Hour), 0)
	first := look(p.over(), 4)
	if diff := cmp.Diff([]string{"doctor-4"}, live()); diff != "" || left() != 1 {
		t.Errorf("after one that was killed long ago there are (-want +got):\n%s and %d folders; one is the present one's", diff, left())
	}
	look(p.over(), 8)
	if diff := cmp.Diff([]string{"doctor-4", "doctor-8"}, live()); diff != "" || left() != 2 {
		t.Errorf("of two at the same time there are (-want +got):\n%s and %d folders", diff, left())
	}
	if st, err := b.Ensure(t.Context(), p.Job.Name, []backend.Workload{{ID: killed.probes[0].id, Argv: []string{"run"}}}); err != nil || st[0].Err == nil {
		t.Errorf("the probe of the one that was killed was not released: %+v, %v", st, err)
	}
	if err := first.letGo(t.Context()); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"doctor-8"}, live()); diff != "" {
		t.Errorf("when the first is over there are (-want +got):\n%s", diff)
	}
}

// A look's probes have ranks that no other has at the same time, of a few: backends remember each of them.
func TestRanksOfLooks(t *testing.T) {
	var taken []backend.ID
	for range looksAtOnce {
		first := freeRanks(taken)
		if first < 0 || first%probe.Most != 0 || first >= looksAtOnce*probe.Most || slices.ContainsFunc(taken, func(id backend.ID) bool { return id.Rank/probe.Most == first/probe.Most }) {
			t.Fatalf("%d beside %v", first, taken)
		}
		taken = append(taken, backend.ID{Role: "doctor", Rank: first + len(taken)%probe.Most, Generation: 1})
	}
	if first := freeRanks(taken); first < 0 || first%probe.Most != 0 || first >= looksAtOnce*probe.Most {
		t.Errorf("where all are taken: %d", first)
	}
}

// away is a cluster that refuses connections, until it is back.
type away struct {
	backend.Backend
	asked, back int
}

func (a *away) Inventory(context.Context) (backend.Inventory, error) {
	if a.asked++; a.back > 0 && a.asked >= a.back {
		return backend.Inventory{}, nil
	}
	return backend.Inventory{}, backend.Errorf(backend.Unavailable, "dial tcp 192.0.2.1:4646: connection refused")
}

// A cluster that is away is said once, within seconds, with the address that was tried, and nothing is tried that needs it. One that is slow for a moment is not away.
func TestClusterIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tried := false
		for _, c := range []struct {
			b    *away
			want []string
		}{
			{&away{}, []string{"fail cluster", "skip devices"}},
			{&away{back: 3}, []string{"ok devices"}},
		} {
			began := time.Now()
			g := group{trials: []trial{
				{check: "backend block", limit: pluginLimit, vital: true, try: func(ctx context.Context) []Finding { return answers(ctx, c.b) }},
				{check: "devices", limit: pluginLimit, try: func(context.Context) []Finding { tried = true; return []Finding{ok("devices", "")} }},
			}}
			got := g.run(t.Context())
			if diff := cmp.Diff(c.want, says(got)); diff != "" || tried != (c.b.back > 0) {
				t.Errorf("%s\n%+v", diff, got)
			}
			if c.b.back > 0 {
				continue
			}
			if took := time.Since(began); took > 10*time.Second { // of the test's own clock
				t.Errorf("it took %v", took)
			}
			if !strings.Contains(got[0].Says, "192.0.2.1:4646") || !strings.Contains(got[0].Do, "servers are up") || !strings.Contains(got[1].Says, `because of "cluster"`) {
				t.Errorf("%+v", got)
			}
		}
	})
}
