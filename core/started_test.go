package core

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
)

// Of each part that a process is started with it is decided whether a change of it is told, and nothing else is in the tables.
func TestAllThatIsHeldIsDecided(t *testing.T) {
	leaves := map[string]bool{}
	var walk func(protoreflect.MessageDescriptor)
	walk = func(d protoreflect.MessageDescriptor) {
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			if f.Message() != nil {
				walk(f.Message())
				continue
			}
			leaves[heldName(f)] = true
			if h := heldFields[heldName(f)]; (h.path == "") == (h.why == "") {
				t.Errorf("%s: say in heldFields where the job file says it, or why a change of it is not told", heldName(f))
			}
		}
	}
	walk((&rpc.TrainSpec{}).ProtoReflect().Descriptor())
	for name, h := range heldFields {
		if !leaves[name] {
			t.Errorf("heldFields has %s, which no trainer's specification has", name)
		}
		if h.follows != "" && h.follows > h.path {
			t.Errorf("%s follows %s, which is looked at later", h.path, h.follows)
		}
	}
	j := newRig(t, rigOptions{}).job
	j.Stream.SASL = &job.SASL{Username: "somebody", Password: job.NewSecret("verysecret")}
	with := startsWith(j)
	if all := fmt.Sprint(with); strings.Contains(all, "verysecret") || !strings.Contains(all, "somebody") {
		t.Errorf("noted is %s", all)
	}
	for _, h := range heldFields {
		if _, has := with[h.path]; h.path != "" && !has {
			t.Errorf("%s is not noted", h.path)
		}
	}
	var fields []string
	for _, typ := range []reflect.Type{reflect.TypeFor[backend.Workload](), reflect.TypeFor[backend.Resources]()} {
		for i := range typ.NumField() {
			fields = append(fields, typ.Field(i).Name)
		}
	}
	// Files are the specification above, the resources are in startsWith, and of the rest the job file says nothing.
	want := []string{"ID", "Argv", "Env", "Files", "Resources", "StopGrace", "Beside", "Avoid", "GPUs", "CPUMilli", "MemoryBytes"}
	if d := cmp.Diff(want, fields); d != "" {
		t.Errorf("a workload has other fields than those of which it was decided whether a change is told (-want +got):\n%s", d)
	}
}

// What running processes do not take up is told at its line, of those that have another value; what the scheduler itself takes up is not.
func TestChangesThatAreNotTakenUp(t *testing.T) {
	change := func(j *job.Job) {
		j.Model.Batch, j.Workers.Queue, j.Model.Linger = 256, 1024, 7*time.Millisecond
		j.Workers.EmulateStep, j.Workers.Memory, j.Servers.Memory = 5*time.Millisecond, 3<<30, 1<<30+1
		j.Stream.OnLost, j.Stream.OnUndecodable = job.OnLostSkip, job.OnLostSkip
		j.Checkpoint.Every = 20 * time.Minute
		j.Model.Optimiser.LearningRate = 0.5
		j.Stream.Brokers = append(slices.Clone(j.Stream.Brokers), "b:9092")
		j.Network.Ports = job.PortRange{First: 4000, Last: 4100}
		j.SLO.MaxLag, j.Autoscale.Headroom, j.Forecast.Horizon, j.Workers.Max = time.Minute, 0.5, 30*time.Second, 7
		j.Stream.DeadLetter = "dead"
	}
	var text string
	r := newRig(t, rigOptions{change: func(rig string) string {
		text = strings.Replace(rig, `kind = "lr"`, "kind = \"lr\"\n    optimiser \"adagrad\" {\n      learning_rate = 0.05\n    }", 1)
		return text
	}})
	r.started(2)
	was := *r.job
	end := func() {
		if err := r.s.Close(); err != nil {
			t.Error(err)
		}
	}
	end()
	changed := was
	change(&changed)
	changed.File = "my ctr.hcl" // a shell takes it for one name
	says := func(diags hcl.Diagnostics) map[string]string {
		out := map[string]string{}
		for _, d := range diags {
			path, says, _ := strings.Cut(d.Detail, ": ")
			if d.Severity != hcl.DiagWarning || *d.Subject != changed.Range(path) {
				t.Errorf("not a warning at %s: %v", path, d)
			}
			out[path], _, _ = strings.Cut(says, "; ")
		}
		return out
	}
	if diags := NotTakenUp(t.Context(), nil, &was, r.wanted(), nil); len(diags) > 0 {
		t.Errorf("of a job that is as it runs: %v", diags)
	}
	want := map[string]string{
		"model.batch": "What runs keeps 1024", "model.linger": "What runs keeps 50ms", "workers.emulate_step": "What runs keeps 0s", "workers.memory": "What runs keeps 2GiB",
		"servers.memory":   "What runs keeps 2GiB",
		"checkpoint.every": "What runs keeps 10m", "model.optimiser.learning_rate": "What runs keeps 0.05", "network.ports": "What runs keeps any", "stream.dead_letter": "What runs keeps none",
		"stream.brokers": fmt.Sprintf("What runs keeps [%q]", was.Stream.Brokers[0]),
	}
	diags := NotTakenUp(t.Context(), nil, &changed, r.wanted(), nil)
	if d := cmp.Diff(want, says(diags)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, d := range diags {
		if at := string(d.Subject.SliceBytes([]byte(text))); strings.Contains(d.Detail, "learning_rate: ") && at != "0.05" {
			t.Errorf("it is told at %q, not where the file says it: %s", at, d.Detail)
		}
		if !strings.HasSuffix(d.Detail, "kale stop ctr and then kale run 'my ctr.hcl' change it for all.") {
			t.Errorf("what to do is not said: %s", d.Detail)
		}
	}

	if diags := NotTakenUp(t.Context(), nil, &changed, r.wanted(), func(path string) bool { return path != "model.batch" }); len(diags) != len(want)-1 {
		t.Errorf("where the batch is not known: %v", diags)
	}

	o := r.options("run")
	o.Job = &changed
	if _, diags, err := NewPreview(t.Context(), o); err != nil || cmp.Diff(want, says(diags)) != "" {
		t.Errorf("plan: %v, %v", err, diags)
	}
	r.job = &changed
	s, diags, err := Open(t.Context(), r.options("run"))
	if err != nil || cmp.Diff(want, says(diags)) != "" {
		t.Fatalf("run: %v, %v", err, diags)
	}
	r.s = s
	t.Cleanup(end)

	// A worker that is started now has what the file says: it is counted apart.
	r.order("scale", 3)
	r.beats(3)
	end()
	got := says(NotTakenUp(t.Context(), nil, &changed, r.wanted(), nil))
	want["model.batch"] = "2 of 3 workers that run keep 1024"
	if got["model.batch"] != want["model.batch"] || got["checkpoint.every"] != want["checkpoint.every"] {
		t.Errorf("after a scale-out: %v", got)
	}
}

// Of what a scheduler found running after its state was lost, nobody knows what it was started with: that is said, until it was started anew.
func TestWhatIsFoundCannotBeCompared(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(r.state, "state.db")); err != nil {
		t.Fatal(err)
	}
	r.open("run")
	r.beats(3)
	r.order("scale", 3)
	r.until("a third worker trains", r.settled(3))
	changed := *r.job
	changed.Model.Batch = 256
	reopened := func() hcl.Diagnostics {
		t.Helper()
		r.reopen()
		w, err := WantedIn(r.s.store)
		if err != nil {
			t.Fatal(err)
		}
		return NotTakenUp(t.Context(), nil, &changed, w, nil)
	}
	diags := reopened()
	if len(diags) != 2 {
		t.Fatalf("%v", diags)
	}
	if d := diags[0]; d.Severity != hcl.DiagWarning || !strings.HasPrefix(d.Detail, "4 of 5 processes were started before this scheduler's state was") || !strings.Contains(d.Detail, "kale stop ctr and then kale run ctr.hcl") {
		t.Errorf("of what was found: %v", d)
	}
	if d := diags[1]; !strings.HasPrefix(d.Detail, "model.batch: What runs keeps 1024") {
		t.Errorf("of what was started since: %v", d)
	}
	r.order("stop", 0)
	r.until("it has stopped", func() error {
		if !r.s.want.Stopped {
			return errors.New("it has not")
		}
		return nil
	})
	r.reopen()
	r.started(2)
	if diags := reopened(); len(diags) != 1 || !strings.HasPrefix(diags[0].Detail, "model.batch: ") {
		t.Errorf("after it was started anew: %v", diags)
	}
}

// After a reboot nothing runs any more: a changed file holds for all that is started then, and nobody is told otherwise. Where a part has ended, the rest is counted.
func TestWhatHasEndedTakesUpAChange(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	changed := *r.job
	changed.Stream.Brokers = append(slices.Clone(changed.Stream.Brokers), "b:9092")
	changed.Stream.OnLost, changed.Autoscale.Mode = job.OnLostSkip, job.ModeObserve
	r.job = &changed
	told := func() (says []string) {
		t.Helper()
		_, diags, err := NewPreview(t.Context(), r.options("run"))
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range diags {
			says = append(says, d.Detail)
		}
		return says
	}
	want := told()
	if len(want) != 2 || !strings.HasPrefix(want[0], "stream.on_lost: What runs goes on") || !strings.HasPrefix(want[1], "stream.brokers: What runs keeps") {
		t.Fatalf("while all runs: %q", want)
	}
	all := r.list()
	for i, st := range all {
		if st.ID.Role == backend.RoleWorker {
			continue
		}
		if err := r.cluster.Exit("ctr", st.ID, 137); err != nil {
			t.Fatal(err)
		}
		all[i].State = backend.StateFailed
	}
	r.backend.PartialNext()
	if d := cmp.Diff(want[1:], told()); d != "" { // the next chief goes by the file
		t.Errorf("while the workers run (-want +got):\n%s", d)
	}
	for _, st := range all {
		if st.State.Live() {
			if err := r.cluster.Exit("ctr", st.ID, 137); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := told(); len(got) > 0 {
		t.Errorf("when all has ended: %q", got)
	}
	changed.Autoscale.Mode = job.ModeLive
	s, diags, err := Open(t.Context(), r.options("run"))
	if err != nil || len(diags) > 0 {
		t.Errorf("run when all has ended: %v, %v", diags, err)
	}
	if s == nil {
		return
	}
	r.s = s
	r.beats(3)
	if got := NotTakenUp(t.Context(), nil, &changed, (*Wanted)(r.s.want), nil); len(got) > 0 {
		t.Errorf("when all was started again: %v", got)
	}
	if err := r.s.Close(); err != nil {
		t.Error(err)
	}
}

// What a server's successor was started with is known when it serves, whatever was started while it waited.
func TestWhatASuccessorWasStartedWithIsKnown(t *testing.T) {
	d := &desired{Target: 2, Ranks: []int{0, 1}, Servers: map[int]uint64{0: 1}, Workers: map[int]uint64{0: 1, 1: 1}}
	then, now := startedWith{"model.batch": "64"}, startedWith{"model.batch": "128"}
	start := func(with startedWith, ids ...backend.ID) {
		var ws []backend.Workload
		for _, id := range ids {
			ws = append(ws, backend.Workload{ID: id})
		}
		d.note(ws, with)
	}
	start(then, server(0, 1), worker(0, 1))
	start(then, server(0, 2)) // waits beside
	start(now, worker(1, 1))
	running := func(id backend.ID) backend.Status { return backend.Status{ID: id, State: backend.StateRunning} }
	if !d.adopt([]backend.Status{{ID: server(0, 1), State: backend.StateExited}, running(server(0, 2)), running(worker(0, 1)), running(worker(1, 1))}) {
		t.Fatal("the successor is not taken over")
	}
	if n := d.startedUnknown(); n != 0 {
		t.Errorf("of %d processes it is not known what they were started with: %+v", n, d.Started)
	}
	if keeps, n, of := d.keep("model.batch", "", "128"); n != 2 || of != 3 || keeps != "64" {
		t.Errorf("%d of %d have %s; want 2 of 3 and 64: %+v", n, of, keeps, d.Started)
	}
	start(now, worker(0, 2))
	for _, s := range d.Started {
		if slices.Contains(s.Processes, server(0, 1)) {
			t.Errorf("what has been replaced is still noted: %+v", d.Started)
		}
	}
}
