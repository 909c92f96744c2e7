package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
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
		want := []string{"ended before it had taken the order", "does not hold", "then kale -state-dir ", strings.Join(c.order, " ")}
		if c.taken {
			want = []string{"ended before it had answered the order", "holds, and the next scheduler follows it"}
		}
		order, code := r.unanswered(c.order, c.taken)
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

// standsStill says that every thread of a process is stopped: they come to a signal one after the other.
func standsStill(pid int) bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // the pattern is a good one
	for _, path := range stats {
		if raw, err := os.ReadFile(path); err == nil && !strings.Contains(string(raw), ") T ") {
			return false
		}
	}
	return len(stats) > 0
}

// unanswered gives an order through a relay on the scheduler's socket, and kills the scheduler: suspended, before it can take the order, or when it has taken it and
// its answer has not been passed on.
func (r *rig) unanswered(order []string, taken bool) (c *child, code int) {
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
	on := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", behind)
	}}
	defer on.CloseIdleConnections()
	answered, killed := make(chan struct{}), make(chan struct{})
	pid := r.sched.cmd.Process.Pid
	relay := &http.Server{Handler: &httputil.ReverseProxy{
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(&url.URL{Scheme: "http", Host: "kale"}) },
		Transport: on,
		ModifyResponse: func(resp *http.Response) error {
			if resp.Request.Method == http.MethodPost {
				close(answered)
				<-killed
				return errors.New("the scheduler is killed")
			}
			return nil
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }, // as if it had been the scheduler's own end
	}}
	if through := relay.Handler; !taken {
		relay.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.Method == http.MethodPost {
				_ = syscall.Kill(pid, syscall.SIGSTOP) // that it is not there shows in what the order says
				for req.Context().Err() == nil && !standsStill(pid) {
					time.Sleep(time.Millisecond)
				}
			}
			through.ServeHTTP(w, req)
		})
	}
	served := make(chan struct{})
	go func() { // ends when the relay is closed, and is waited for
		defer close(served)
		_ = relay.Serve(l)
	}()
	defer func() { _ = relay.Close(); <-served }()
	c = r.child(order...)
	if taken {
		select {
		case <-answered:
		case <-time.After(patience):
			r.fatalf("the order is not taken: %s", c.err.String())
		}
	} else {
		r.await("the order waits", func() string {
			if !strings.Contains(c.err.String(), "has not taken the order") {
				return "it says " + c.err.String()
			}
			return ""
		})
	}
	r.killScheduler()
	close(killed)
	return c, c.wait(r)
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
