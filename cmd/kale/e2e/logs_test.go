package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/stream/kafkatest"
)

// Logs are followed to the job's end, each line once, while the scheduler, the backend's plugin and workers are killed, workers go and come, and schedulers end.
func TestLogsAreFollowedToTheEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, kafkatest.Embedded(t), options{min: 1, max: 3})
	r.run()
	p := r.steadyTraffic(200)
	r.awaitSteady("the job trains", 3)
	all := r.child("logs", "-f", "-n", "1000000", r.name())
	one := r.child("logs", "-f", "-n", "1000000", r.name(), "worker-2")
	r.await("they have begun", func() string {
		if !strings.Contains(all.out.String(), "ps-1-g1 | ") || one.out.String() == "" {
			return "they print nothing yet"
		}
		return ""
	})

	r.killScheduler()
	r.kill9(backend.RoleWorker, 1)
	r.awaitSteady("a worker is replaced without a scheduler", 3)
	r.run()
	r.scale(2)
	r.rescaledTo("a worker leaves", 2)
	r.interrupt()
	r.signal(r.pluginOf(all.cmd.Process.Pid), syscall.SIGKILL)
	r.run()
	r.scale(3)
	r.rescaledTo("and another comes", 3)
	r.endTraffic(p)
	r.awaitTrained("everything is trained")
	r.stop()

	for _, c := range []*child{all, one} {
		if code := c.wait(r); code != 0 || !strings.Contains(c.err.String(), fmt.Sprintf("job %q has stopped", r.name())) {
			t.Errorf("%v: exit code %d, %s", c.cmd.Args[3:], code, c.err.String())
		}
	}
	got, third := map[string]string{}, ""
	for line := range strings.Lines(all.out.String()) {
		process, text, _ := strings.Cut(line, " | ")
		got[process] += text
	}
	want := map[string]string{}
	outputs, err := filepath.Glob(r.site.files(r, "output.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range outputs {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		process := filepath.Base(filepath.Dir(path))
		want[process] = string(raw)
		if strings.HasPrefix(process, "worker-2-") {
			third += string(raw)
		}
	}
	if len(want) < 6 {
		t.Errorf("the processes are %d; want two servers, three workers and one that took the place of another", len(want))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what was written and what was printed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(third, one.out.String()); diff != "" {
		t.Errorf("what worker 2 wrote and what was printed (-want +got):\n%s", diff)
	}
}
