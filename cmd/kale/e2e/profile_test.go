package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/core/stream/kafkatest"
)

// profiledStep is of the emulated accelerators: slow enough for the records to last.
const profiledStep = 80 * time.Millisecond

// profile is kale profile as a child of the test.
func (r *rig) profile(args ...string) *child {
	r.t.Helper()
	return r.child(append([]string{"profile", r.file}, args...)...)
}

// A profile is measured beside a job that trains, whose counts stay exact and whose processes stay what they are; nothing of it is left, whether it ends by itself,
// is interrupted or killed.
func TestProfilesBesideARunningJob(t *testing.T) {
	t.Parallel()
	r := newRig(t, kafkatest.Embedded(t), options{min: 1, max: 2, start: "latest", step: profiledStep})
	// The measuring job begins an hour ago, and not at the first record: an offset that it could commit.
	now := time.Now()
	for i, until := range []time.Time{now.Add(-2 * time.Hour), now} {
		rate := []float64{100, 6000}[i]
		past := r.play(stream.ProduceOptions{Curve: stream.Curve{Step: time.Second, Rates: []float64{rate}}, Duration: 10 * time.Second, Until: until})
		<-past.done
		if past.err != nil {
			t.Fatal(past.err)
		}
	}
	r.run()
	r.awaitSteady("the job trains", 2)
	p := r.steadyTraffic(200)
	before := r.pids()
	alone := func() string {
		if n := len(trainees(r.dir)); n != len(before) {
			return "there are other trainers than the job's"
		}
		return ""
	}
	beside := func() string {
		if n := len(trainees(r.dir)); n <= len(before)+2 {
			return "the measuring job has no worker yet"
		}
		return ""
	}

	interrupted := r.profile()
	r.await("the measuring job runs", beside)
	r.signal(interrupted.cmd.Process.Pid, syscall.SIGINT)
	if code := interrupted.wait(r); code != 1 || !strings.Contains(interrupted.err.String(), "interrupted after") {
		r.fatalf("exit code %d: %s", code, interrupted.err.String())
	}
	r.await("an interrupted profile leaves nothing", alone)

	killed := r.profile()
	r.await("the measuring job runs", beside)
	r.signal(killed.cmd.Process.Pid, syscall.SIGKILL)
	killed.wait(r)

	whole := r.profile("-intervals", "2", "-interval", "500ms", "-json")
	if code := whole.wait(r); code != 0 || !strings.Contains(whole.err.String(), "which an earlier kale profile had left, is ended and removed") {
		r.fatalf("exit code %d: %s", code, whole.err.String())
	}
	r.await("a profile leaves nothing", alone)
	if diff := cmp.Diff(before, r.pids()); diff != "" {
		r.fatalf("the job's processes (-before +after the profiles):\n%s", diff)
	}
	r.measured([]byte(whole.out.String()), 1, 2)
	r.onlyTheJob()

	r.endTraffic(p)
	r.awaitTrained("everything is trained")
	r.stop()
	r.gone()
	r.exact(500)
}

// measured checks what a profile says: points with so many workers, each slower than the emulated accelerators together can be.
func (r *rig) measured(raw []byte, workers ...int) {
	r.t.Helper()
	var got struct {
		Points []struct {
			Workers int
			Rates   []float64
			Why     string
		}
		Block string
		File  string
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		r.fatalf("%v in %s", err, raw)
	}
	if len(got.Points) != len(workers) || !strings.Contains(got.Block, "throughput {") {
		r.fatalf("%s", raw)
	}
	for i, w := range workers {
		p := got.Points[i]
		if p.Workers != w || p.Why != "" || len(p.Rates) < 2 {
			r.fatalf("point %+v", p)
		}
		for _, rate := range p.Rates { // a step may have begun before its interval
			if most := 1.2 * float64(w) * batchSize / profiledStep.Seconds(); rate <= 0 || rate > most {
				r.fatalf("%d workers train %v records/s, and they can do no more than %v", w, rate, most)
			}
		}
	}
	if _, err := os.Stat(got.File); err != nil {
		r.fatalf("%v", err)
	}
}

// onlyTheJob checks that nothing but the job has a checkpoint, a group of committed offsets or a state.
func (r *rig) onlyTheJob() {
	r.t.Helper()
	entries, err := os.ReadDir(filepath.Join(r.dir, "checkpoint"))
	if err != nil {
		r.fatalf("%v", err)
	}
	for _, e := range entries { // beside the job's own there is its scheduler's lease
		if strings.Contains(e.Name(), "-profile-") {
			r.fatalf("checkpoints: %v", entries)
		}
	}
	for _, dir := range []string{filepath.Join(r.stateDir(), "profile"), filepath.Join(r.stateDir(), "local", "backend-local", "jobs", "*-profile-*")} {
		if left, _ := filepath.Glob(dir); len(left) > 0 {
			r.fatalf("left: %v", left)
		}
	}
	adm := r.admin()
	defer adm.Close()
	groups, err := adm.ListGroups(r.t.Context())
	if err != nil {
		r.fatalf("%v", err)
	}
	for _, g := range groups.Groups() {
		if g != "kale-"+jobName {
			r.fatalf("group %q has committed offsets", g)
		}
	}
}
