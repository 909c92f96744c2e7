package e2e_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/stream/kafkatest"
)

// A scheduler is killed while it is given an order: before it takes it, and when it has taken it and has not said so. Either way it is said whether the order holds,
// and what to do, and that is so.
func TestOrdersToASchedulerThatIsKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t, kafkatest.Embedded(t), options{min: 1, max: 3})
	r.run()
	r.awaitSteady("the job runs", 3)
	for _, c := range []struct {
		order []string
		pins  bool // as the next scheduler sees it
		taken bool
	}{
		{[]string{"scale", r.name(), "2"}, false, false},
		{[]string{"scale", r.name(), "2"}, true, true},
		{[]string{"scale", r.name(), "auto"}, true, false},
		{[]string{"scale", r.name(), "auto"}, false, true},
		{[]string{"pause", r.name()}, false, false},
		{[]string{"pause", r.name()}, false, true},
		{[]string{"resume", r.name()}, false, false},
		{[]string{"resume", r.name()}, false, true},
	} {
		var order *child
		want := []string{"ended before it had taken the order", "does not hold", "then kale -state-dir ", strings.Join(c.order, " ")}
		if c.taken {
			want = []string{"ended before it had answered the order", "holds, and the next scheduler follows it"}
			order = r.takenUnsaid(c.order)
		} else {
			r.signal(r.sched.cmd.Process.Pid, syscall.SIGSTOP)
			order = r.child(c.order...)
			r.await("the order waits", func() string {
				if !strings.Contains(order.err.String(), "has not taken the order") {
					return "it says " + order.err.String()
				}
				return ""
			})
			r.killScheduler()
		}
		code := order.wait(r)
		for _, text := range append(want, "kale run -state-dir ") {
			if code != 1 || !strings.Contains(order.err.String(), text) {
				t.Errorf("%v, taken %v: exit code %d, and it does not say %q:\n%s", c.order, c.taken, code, text, order.err.String())
			}
		}
		r.run()
		paused := c.order[0] == "pause" && c.taken || c.order[0] == "resume" && !c.taken
		r.await(fmt.Sprintf("%v, taken %v, is what the next scheduler finds", c.order, c.taken), func() string {
			v, err := r.view()
			if err != nil || v.Manual.Pinned != c.pins || v.Manual.Paused != paused {
				return fmt.Sprintf("it sees %+v (%v)", v, err)
			}
			return ""
		})
	}
	r.stop()
	r.gone()
}

// takenUnsaid gives an order to the scheduler through a relay on its socket, which kills it when it answers, and passes no answer on.
func (r *rig) takenUnsaid(order []string) *child {
	r.t.Helper()
	path, err := api.SocketPath(r.stateDir())
	if err != nil {
		r.t.Fatal(err)
	}
	behind := path + ".behind"
	if err := os.Rename(path, behind); err != nil {
		r.t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	c := r.child(order...)
	for { // at first it only sees whether somebody is there
		if err := l.(*net.UnixListener).SetDeadline(time.Now().Add(patience)); err != nil {
			r.t.Fatal(err)
		}
		conn, err := l.Accept()
		if err != nil {
			r.fatalf("the order does not come: %v", err)
		}
		to, err := net.Dial("unix", behind)
		if err != nil {
			r.fatalf("%v", err)
		}
		go func() { // ends with conn
			_, _ = io.Copy(to, conn)
			_ = to.(*net.UnixConn).CloseWrite()
		}()
		n, _ := to.Read(make([]byte, 1<<10))
		if n > 0 {
			r.killScheduler()
		}
		_ = conn.Close()
		_ = to.Close()
		if n > 0 {
			return c
		}
	}
}

// A stop without a scheduler starts a server again that is gone for good: nobody else can take the last snapshot.
func TestStopStartsAServerAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, kafkatest.Embedded(t), options{})
	r.run()
	p := r.steadyTraffic(200)
	r.awaitSteady("the job runs", 2)
	r.killScheduler()
	r.signal(parent(r.process(backend.RoleServer, 0).PID), syscall.SIGKILL)
	r.stop()
	r.gone()
	r.run()
	r.awaitSteady("the job runs again", 2)
	r.endTraffic(p)
	r.awaitTrained("everything is trained")
	r.stop()
	r.gone()
	r.exact(1)
}

// A job whose state lies on a full disk can be stopped, with a scheduler and without: that may be what frees the disk.
func TestStopOnAFullDisk(t *testing.T) {
	t.Parallel()
	r := newRig(t, kafkatest.Embedded(t), options{})
	r.disk = newDisk(t, filepath.Join(r.dir, "s"))
	if !r.disk.mount {
		t.Skip("no file system of its own for the state folder: run the tests as root")
	}
	for _, scheduler := range []bool{true, false} {
		r.run()
		r.awaitSteady("the job runs", 2)
		if !scheduler {
			r.killScheduler()
		}
		t.Log(r.disk.fill())
		r.stop()
		r.disk.free()
		r.gone()
	}
}
