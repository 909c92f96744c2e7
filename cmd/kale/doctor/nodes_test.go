package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/cmd/internal/about"
	"github.com/kale-sched/kale/cmd/internal/probe"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

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
		{"not shared by one of three", 3, func(ps []*probed) { blind(ps[1], 0); blind(ps[1], 2); blind(ps[0], 1) }, []string{"fail checkpoint folder on nodes"},
			[]string{"node n2 does not see what n1, n3 wrote in", "node n1 does not see what n2 wrote in"}},
		{"not shared by anybody", 4, func(ps []*probed) {
			for i := range ps {
				for j := range ps {
					blind(ps[i], j)
				}
			}
		}, []string{"fail checkpoint folder on nodes", "skip between nodes"}, []string{"none of the 4 nodes sees what another wrote in", "checkpoint.dir is not shared"}},
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
		{"not even begun", 2, func(ps []*probed) {
			for _, o := range ps {
				o.lines, o.status.State, o.status.Reason = nil, backend.StateFailed, "shared_dir is not there, on node "+o.status.Node
			}
		}, []string{"fail start on n1, n2", "skip checkpoint folder on nodes", "skip between nodes"}, []string{"shared_dir is not there", "the backend block (ctr.hcl:"}},
		{"a library that kills", 2, func(ps []*probed) {
			ps[0].lines, ps[0].status.State, ps[0].status.ExitCode = slices.Delete(ps[0].lines, 1, 2), backend.StateFailed, 139
		}, []string{"fail trainer on n1"}, []string{"ONNX Runtime was tried and did not answer", "signal 11 (segmentation fault)"}},
		{"in time but for one thing", 2, func(ps []*probed) {
			ps[0].lines = slices.DeleteFunc(ps[0].lines, func(l probe.Line) bool { return l.Network != nil })
		}, []string{"fail trainer on n1"}, []string{"not answered everything within", "-probe-timeout waits longer"}},
		{"no logs", 2, func(ps []*probed) { ps[0].lines, ps[0].noLog = nil, errors.New("not allowed"); blind(ps[1], 0) }, []string{"fail trainer on n1", "skip between nodes"}, []string{"not allowed", "keeps its log from being read"}},
		{"no leave to read logs", 2, func(ps []*probed) {
			ps[0].lines, ps[0].noLog = nil, backend.Errorf(backend.Unauthorised, `the token lacks "read-logs"`)
			blind(ps[1], 0)
		}, []string{"fail trainer on n1", "skip between nodes"}, []string{`lacks "read-logs"`, "Give whoever runs kale what is lacking"}},
		{"no trainer, and no log", 1, func(ps []*probed) {
			ps[0].lines, ps[0].status = nil, backend.Status{Node: "n1", State: backend.StateFailed, ExitCode: 127, Reason: "the program /opt/kale-trainer is not there"}
		}, []string{"warn nodes", "fail trainer on n1", "skip checkpoint folder on nodes"}, []string{"(the program /opt/kale-trainer is not there)"}},
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

// Nodes of which the same is to be said share a finding.
func TestNodesThatAreAlikeShareAFinding(t *testing.T) {
	e := expeditionOf(t, 3, func(ps []*probed) { ps[1].compute().ONNX, ps[1].compute().NoONNX = "", "no libonnxruntime" })
	var found []string
	for _, f := range e.judge() {
		if strings.HasPrefix(f.Check, "trainer on n") || strings.HasPrefix(f.Check, "ONNX Runtime on n") {
			found = append(found, string(f.State)+" "+f.Check)
		}
	}
	if diff := cmp.Diff([]string{"ok trainer on n1, n2, n3", "ok ONNX Runtime on n1, n3", "fail ONNX Runtime on n2"}, found); diff != "" {
		t.Error(diff)
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
				case !strings.HasPrefix(f.Check, "ONNX Runtime on GPUs of n1"):
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

// Where no node that was tried, and has GPUs where the backend tells which have, can make the CUDA provider, no worker would start: that is a failure.
func TestNoNodeComputesOnGPUs(t *testing.T) {
	const driver, library = "CUDA failure 35: CUDA driver version is insufficient", "Failed to load shared library"
	for name, tt := range map[string]struct {
		says [2]string // of nodes n1 and n2; "-": nothing yet
		gpus []string  // the nodes that have GPUs, as far as the backend tells
		want []State
	}{
		"none of two":                      {[2]string{library, library}, nil, []State{Fail}},
		"none of two, for two reasons":     {[2]string{library, driver}, nil, []State{Fail, Fail}},
		"one can":                          {[2]string{library, ""}, nil, []State{Warn, OK}},
		"one could":                        {[2]string{library, "CUDA failure 100: no CUDA-capable device"}, nil, []State{Warn, OK}},
		"one has not said":                 {[2]string{library, "-"}, nil, []State{Warn, Warn}},
		"neither has GPUs":                 {[2]string{driver, driver}, []string{"n3"}, []State{Warn}},
		"the one that has GPUs":            {[2]string{library, ""}, []string{"n1"}, []State{Fail, OK}},
		"the one that has none cannot":     {[2]string{driver, ""}, []string{"n2"}, []State{Warn, OK}},
		"neither, and one has no GPU":      {[2]string{driver, library}, []string{"n2"}, []State{Warn, Fail}},
		"all that have GPUs are elsewhere": {[2]string{driver, library}, []string{"n3", "n4"}, []State{Warn, Warn}},
	} {
		t.Run(name, func(t *testing.T) {
			e := expeditionOf(t, 2, func([]*probed) {})
			e.p.Job.Backend.Name, e.p.Job.Workers.GPUs, e.p.Job.Workers.EmulateStep, e.gpus = "slurm", 1, 0, tt.gpus
			for i, o := range e.probes {
				if o.cuda().Error = tt.says[i]; tt.says[i] == "-" {
					o.lines = slices.DeleteFunc(o.lines, func(l probe.Line) bool { return l.CUDA != nil })
				}
			}
			var got []State
			for _, f := range e.judge() {
				if !strings.HasPrefix(f.Check, "ONNX Runtime on GPUs of ") {
					continue
				}
				got = append(got, f.State)
				if no := strings.HasPrefix(f.Do, "No worker would start"); no != (f.State == Fail) {
					t.Errorf("%s of %s: %s", f.State, f.Check, f.Do)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
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

// lonely has one node: a probe runs there at once, and no other ever finds a place.
type lonely struct {
	refusing
	asked map[int]bool
}

func (l *lonely) Ensure(ctx context.Context, job string, ws []backend.Workload) ([]backend.Status, error) {
	if ws[0].ID.Rank > ranksFrom(l.asked, ws[0].ID.Rank) {
		return l.refusing.Ensure(ctx, job, ws)
	}
	return []backend.Status{{ID: ws[0].ID, State: backend.StateRunning, Node: "n1"}}, nil
}

// ranksFrom is the least of the ranks that were asked for.
func ranksFrom(asked map[int]bool, rank int) int {
	asked[rank] = true
	least := rank
	for r := range asked {
		least = min(least, r)
	}
	return least
}

// The search for a second node leaves the first one's probe half of the time to answer.
func TestSearchLeavesTimeToAnswer(t *testing.T) {
	p := patient(t)
	p.ProbeLimit, p.Job.Backend.Name = 2*time.Second, "slurm"
	e := &expedition{p: p, b: &lonely{asked: map[int]bool{}}, run: "r", over: p.over()}
	ctx, cancel := context.WithTimeout(t.Context(), p.ProbeLimit)
	defer cancel()
	if err := e.send(ctx); err != nil {
		t.Fatal(err)
	}
	if ctx.Err() != nil || len(e.probes) != 1 || e.unfound == "" {
		t.Errorf("the time is over: %v; %d probes run; no other node: %q", ctx.Err(), len(e.probes), e.unfound)
	}
}

// single is a cluster of one node, as its inventory says.
type single struct{ lonely }

func (single) Inventory(context.Context) (backend.Inventory, error) {
	return backend.Inventory{MemoryBytes: 8 << 30, NodeMemoryBytes: 8 << 30}, nil
}

// On a cluster of one node no second one is looked for, nor missed.
func TestTheOnlyNode(t *testing.T) {
	p := patient(t)
	p.Job.Backend.Name = "slurm"
	b := &single{lonely{asked: map[int]bool{}}}
	e := &expedition{p: p, b: b, run: "r", over: p.over()}
	if err := e.send(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(e.probes) != 1 || len(b.asked) != 1 {
		t.Errorf("%d probes run, %d were asked for", len(e.probes), len(b.asked))
	}
	if f := e.where(); f.State != OK || !strings.Contains(f.Says, "n1, the only node that the backend has now") {
		t.Errorf("it is %s: %s", f.State, f.Says)
	}
}

// queueing lets every probe wait in its queue, and says whether there is a place for one.
type queueing struct {
	refusing
	fits bool
	err  error
}

func (q *queueing) Ensure(_ context.Context, _ string, ws []backend.Workload) ([]backend.Status, error) {
	return []backend.Status{{ID: ws[0].ID, State: backend.StatePending, Reason: "all nodes are drained"}}, nil
}

func (q *queueing) Plan(_ context.Context, _ string, ws []backend.Workload) (backend.Report, error) {
	return backend.Report{Placements: []backend.Placement{{ID: ws[0].ID, Fits: q.fits}}}, q.err
}

// A probe for which the cluster has no place is given up soon; one that it may place any moment, or of which it cannot tell, and who insists, wait.
func TestNoWaitWhereThereIsNoPlace(t *testing.T) {
	for name, c := range map[string]struct {
		b       *queueing
		insists bool
		waits   time.Duration
		says    string
	}{
		"no place":    {&queueing{}, false, fullLimit, "has no place for a probe (1 CPU, no GPU), and did not place one within 8s: all nodes are drained (pending)"},
		"it insists":  {&queueing{}, true, time.Minute, "did not place a probe (1 CPU, no GPU) within 1m: all nodes are drained (pending)"},
		"a place":     {&queueing{fits: true}, false, time.Minute, "did not place a probe (1 CPU, no GPU) within 1m"},
		"cannot tell": {&queueing{err: errors.New("no route")}, false, time.Minute, "did not place a probe (1 CPU, no GPU) within 1m"},
	} {
		p := patient(t)
		p.ProbeLimit, p.Insists, p.Job.Backend.Name = time.Minute, c.insists, "slurm"
		synctest.Test(t, func(t *testing.T) {
			e := &expedition{p: p, b: c.b, run: "r", over: p.over()}
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), p.ProbeLimit)
			defer cancel()
			err := e.send(ctx)
			if took := time.Since(began); took < c.waits || took > c.waits+time.Second { // of the test's own clock
				t.Errorf("%s: it took %v, want %v", name, took, c.waits)
			}
			if f := e.notPlaced(t.Context(), err, ctx.Err() != nil); f.State != Fail || !strings.Contains(f.Says, c.says) || !strings.Contains(f.Do, "-probe-timeout") {
				t.Errorf("%s: %+v", name, f)
			}
		})
	}
}

// crashing starts each probe on a node of its own, where it ends at once and is started again and again.
type crashing struct {
	refusing
	list []backend.Status
}

func (c *crashing) Ensure(_ context.Context, _ string, ws []backend.Workload) ([]backend.Status, error) {
	st := backend.Status{ID: ws[0].ID, State: backend.StateStarting, Node: fmt.Sprintf("n%d", len(c.list)+1), Restarts: 1, ExitCode: 127}
	c.list = append(c.list, st)
	return []backend.Status{st}, nil
}

func (c *crashing) List(context.Context, string) ([]backend.Status, bool, error) {
	return c.list, true, nil
}

func (c *crashing) Logs(context.Context, string, backend.ID, backend.LogOptions) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("exec: /opt/kale-trainer: not found\n" + backend.LogBoundary + "2026-01-01T00:00:00Z it crashed with code 127\n")), nil
}

// A trainer that is nowhere is known when its node's shell has said so once, not when the node has given up starting it.
func TestNoWaitForATrainerThatIsNotThere(t *testing.T) {
	p := patient(t)
	p.ProbeLimit, p.Job.Backend.Name = time.Minute, "slurm"
	synctest.Test(t, func(t *testing.T) {
		e := &expedition{p: p, b: &crashing{}, run: "r", over: p.over()}
		began := time.Now()
		if err := e.send(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.gather(t.Context())
		if took := time.Since(began); took > time.Second { // of the test's own clock
			t.Errorf("it took %v", took)
		}
		found := e.judge()
		if i := slices.IndexFunc(found, func(f Finding) bool { return f.Check == "trainer on n1, n2, n3, n4" }); i < 0 || !strings.Contains(found[i].Says, "/opt/kale-trainer: not found") {
			t.Errorf("%+v", found)
		}
	})
}
