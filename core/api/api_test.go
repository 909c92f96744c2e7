package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/state"
)

// scheduler is a stand-in with a real store: it remembers its orders.
type scheduler struct {
	view  *core.View
	store *state.Store
	deaf  bool            // takes no orders
	ended bool            // its loop has ended
	asked chan core.Order // of a deaf one; nil: nobody wants to know
	says  error           // to an order; of a deaf one when time is over

	mu     sync.Mutex
	orders []core.Order
}

func (s *scheduler) View() *core.View    { return s.view }
func (s *scheduler) Store() *state.Store { return s.store }

func (s *scheduler) Do(ctx context.Context, o core.Order) error {
	if s.deaf {
		if s.asked != nil {
			s.asked <- o
		}
		<-ctx.Done()
		says := s.says
		if says == nil {
			says = core.ErrNotTaken
		}
		return fmt.Errorf("%s: %w: %w", o.Kind, says, ctx.Err())
	}
	if s.ended {
		return fmt.Errorf("stop: %w", core.ErrNotRunning)
	}
	if s.says != nil {
		return s.says
	}
	if o.Kind == "scale" && o.Target > 8 {
		return errors.New("scale job \"ctr\" to 9 workers: the job file allows 1 to 8")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders = append(s.orders, o)
	return nil
}

var start = time.Date(2026, 1, 31, 6, 0, 0, 0, time.UTC)

func newScheduler(t *testing.T) *scheduler {
	t.Helper()
	st, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	for i := range 6 {
		at := start.Add(time.Duration(i) * time.Second)
		kind := plan.KindNone
		if i == 2 {
			kind = plan.KindOut
		}
		must(t, st.Append(state.Decisions, at, core.Record{Decision: plan.Decision{At: at, Kind: kind, Target: i, Policy: "kale"}}))
		must(t, st.Append(state.Samples, at, core.Sample{At: at, Target: i}))
	}
	must(t, st.Append(state.Rescales, start, core.Rescale{Kind: plan.KindOut, From: 1, To: 3, Decided: start, Done: start.Add(time.Second)}))
	return &scheduler{store: st, view: &core.View{
		Job: "ctr", Min: 1, Max: 8, MaxLag: time.Minute, Now: start,
		Workers: []core.WorkerView{{ID: "worker-0-g1"}, {ID: "worker-3-g1"}, {ID: "worker-3-g2"}}, Servers: []core.ServerView{{ID: "ps-0-g1"}},
	}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve runs the API for the length of a test and gives its socket.
func serve(t *testing.T, s *scheduler, o api.Options) string {
	t.Helper()
	path := filepath.Join(shortDir(t), "api.sock")
	l, err := api.Listen(path)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- api.Serve(ctx, slog.New(slog.DiscardHandler), l, s, o) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if _, err := os.Lstat(path); err == nil {
			t.Error("the socket is still there after Serve")
		}
	})
	return path
}

// shortDir is a folder whose path leaves room for a socket's name, which t.TempDir does not promise.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kale-api")
	must(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func dial(t *testing.T, path string) *api.Client {
	t.Helper()
	c, err := api.Dial(t.Context(), path)
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestReading(t *testing.T) {
	s := newScheduler(t)
	c := dial(t, serve(t, s, api.Options{}))

	v, err := c.Status(t.Context())
	must(t, err)
	if !v.Now.After(s.view.Now) {
		t.Errorf("now is %s, when the view was made", v.Now)
	}
	v.Now = s.view.Now
	if diff := cmp.Diff(s.view, v); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	ds, err := c.Decisions(t.Context(), 2, false)
	must(t, err)
	if len(ds) != 2 || ds[0].Decision.Target != 4 || ds[1].Decision.Target != 5 {
		t.Errorf("the last 2 decisions are %+v", ds)
	}
	ds, err = c.Decisions(t.Context(), 5, true)
	must(t, err)
	if len(ds) != 1 || ds[0].Decision.Target != 2 {
		t.Errorf("the changes are %+v", ds)
	}
	samples, err := c.Samples(t.Context(), start.Add(3*time.Second))
	must(t, err)
	if len(samples) != 3 || samples[0].Target != 3 {
		t.Errorf("the samples since the third are %+v", samples)
	}
	if all, err := c.Samples(t.Context(), time.Time{}); err != nil || len(all) != 6 {
		t.Errorf("all samples: %d, %v", len(all), err)
	}
	rs, err := c.Rescales(t.Context(), 10)
	must(t, err)
	if len(rs) != 1 || rs[0].To != 3 {
		t.Errorf("rescales are %+v", rs)
	}
}

// What is wanted is told as it was written down, without the job's token.
func TestWanted(t *testing.T) {
	st, err := state.Open(t.TempDir())
	must(t, err)
	defer func() { must(t, st.Close()) }()
	c := dial(t, serve(t, &scheduler{store: st}, api.Options{}))
	if w, err := c.Wanted(t.Context()); err != nil || w.Runs() {
		t.Errorf("before anything is wanted: %+v, %v", w, err)
	}
	must(t, st.Put("desired", map[string]any{"version": 2, "token": "a secret", "target": 3, "checkpoint": "/ckpt"}))
	w, err := c.Wanted(t.Context())
	must(t, err)
	if !w.Runs() || w.Target != 3 || w.Checkpoint != "/ckpt" || w.Token != "" {
		t.Errorf("it says %+v", w)
	}
}

func TestNothingYet(t *testing.T) {
	st, err := state.Open(t.TempDir())
	must(t, err)
	defer func() { must(t, st.Close()) }()
	c := dial(t, serve(t, &scheduler{store: st}, api.Options{}))
	_, err = c.Status(t.Context())
	var e *api.Error
	if !errors.As(err, &e) || !e.Temporary() {
		t.Errorf("status before the first look: %v; want a temporary error", err)
	}
	ds, err := c.Decisions(t.Context(), 5, true)
	if err != nil || ds == nil || len(ds) != 0 {
		t.Errorf("decisions before the first one: %#v, %v; want an empty list", ds, err)
	}
}

func TestOrders(t *testing.T) {
	s := newScheduler(t)
	c := dial(t, serve(t, s, api.Options{}))
	must(t, c.Order(t.Context(), core.Order{Kind: "scale", Target: 4}))
	must(t, c.Order(t.Context(), core.Order{Kind: "stop"}))
	for i := range s.orders {
		if until := s.orders[i].Until; until.IsZero() || time.Until(until) > time.Hour {
			t.Errorf("order %d may be carried out until %v", i, until)
		}
		s.orders[i].Until = time.Time{}
	}
	if diff := cmp.Diff([]core.Order{{Kind: "scale", Target: 4}, {Kind: "stop"}}, s.orders); diff != "" {
		t.Errorf("orders (-want +got):\n%s", diff)
	}
	err := c.Order(t.Context(), core.Order{Kind: "scale", Target: 9})
	var e *api.Error
	if !errors.As(err, &e) || e.Status != http.StatusConflict || !strings.Contains(e.Message, "allows 1 to 8") {
		t.Errorf("an order that is refused: %v", err)
	}
	if e.Ended() {
		t.Error("a refusal is taken for the scheduler's end")
	}
	s.says = fmt.Errorf("pause: %w", core.ErrChiefSilent)
	if err := c.Order(t.Context(), core.Order{Kind: "pause"}); !errors.As(err, &e) || !e.ChiefSilent() || e.Ended() || e.Temporary() {
		t.Errorf("an order for a chief that does not answer: %v", err)
	}
	s.ended = true
	if err := c.Order(t.Context(), core.Order{Kind: "stop"}); !errors.As(err, &e) || !e.Ended() || e.Temporary() {
		t.Errorf("an order to a loop that has ended: %v", err)
	}
}

// An order whose client goes away while the scheduler is busy must not keep the server from ending.
func TestDeafScheduler(t *testing.T) {
	s := newScheduler(t)
	s.deaf = true
	c := dial(t, serve(t, s, api.Options{}))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Order(ctx, core.Order{Kind: "stop"}); !errors.Is(err, api.ErrSilent) {
		t.Errorf("order to a scheduler that takes none: %v", err)
	}
}

// An order that waits when the scheduler ends is told so, whatever became of it: that it was not taken in time would be untrue, and that it did not hold may be.
func TestOrderThatWaitsAtTheEnd(t *testing.T) {
	for _, says := range []error{core.ErrNotRunning, core.ErrNotTaken, core.ErrUnsettled} {
		s := newScheduler(t)
		s.deaf, s.asked, s.says = true, make(chan core.Order, 1), says
		path := filepath.Join(shortDir(t), "api.sock")
		l, err := api.Listen(path)
		must(t, err)
		ctx, end := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- api.Serve(ctx, nil, l, s, api.Options{}) }() // ended below
		c := dial(t, path)
		go func() { <-s.asked; end() }()
		var e *api.Error
		if err := c.Order(t.Context(), core.Order{Kind: "stop"}); !errors.As(err, &e) || !e.Ended() {
			t.Errorf("%v: %v", says, err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

// What is said of an order when its time is over: whether it may hold.
func TestOrderThatTakesTooLong(t *testing.T) {
	for says, want := range map[error]string{
		core.ErrNotTaken:  `the scheduler did not take the order "pause" within 20s: it is starting, or ending; ask again`,
		core.ErrUnsettled: `the scheduler has begun to take the order "pause" and was not done with it within 20s: kale status tells whether it holds`,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &scheduler{deaf: true, says: says}
			r := httptest.NewRequest(http.MethodPost, "/v1/orders", strings.NewReader(`{"kind":"pause"}`))
			r.Header.Set("Content-Type", "application/json")
			w, began := httptest.NewRecorder(), time.Now()
			api.Handler(slog.New(slog.DiscardHandler), s, api.Options{}).ServeHTTP(w, r)
			if text := strings.ReplaceAll(w.Body.String(), `\"`, `"`); w.Code != http.StatusServiceUnavailable || !strings.Contains(text, want) || time.Since(began) != 20*time.Second {
				t.Errorf("after %s: %d, %s", time.Since(began), w.Code, text)
			}
		})
	}
}

// A scheduler whose process is stopped takes connections, since its kernel does, and answers nothing. The order says until when it may be carried out.
func TestOrderToAStoppedScheduler(t *testing.T) {
	path := filepath.Join(shortDir(t), "api.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // nothing was written to it
	c, err := api.Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	patience, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := c.Order(patience, core.Order{Kind: "scale", Target: 3}); err == nil || !strings.Contains(err.Error(), `did not take the order "scale"`) ||
		!strings.Contains(err.Error(), "will not carry it out later") {
		t.Errorf("%v", err)
	}
}

func TestGarbage(t *testing.T) {
	s := newScheduler(t)
	path := serve(t, s, api.Options{})
	hc := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
		DisableKeepAlives: true,
	}}
	const js = "application/json"
	for _, tt := range []struct {
		name, method, path, ctype, body, version string
		status                                   int
		says                                     string
	}{
		{name: "unknown path", method: "GET", path: "/v1/sttus", status: 404, says: "no GET /v1/sttus"},
		{name: "wrong method", method: "DELETE", path: "/v1/status", status: 404, says: "no DELETE"},
		{name: "root", method: "GET", path: "/", status: 404, says: "no GET /"},
		{name: "another version", method: "GET", path: "/v1/status", version: "7", status: 400, says: "version \"7\""},
		{name: "n is text", method: "GET", path: "/v1/decisions?n=many", status: 400, says: "n=\"many\""},
		{name: "n is too large", method: "GET", path: "/v1/decisions?n=99999999", status: 400, says: "from 1 to"},
		{name: "n is below 1", method: "GET", path: "/v1/rescales?n=0", status: 400, says: "from 1 to"},
		{name: "changes is no truth", method: "GET", path: "/v1/decisions?changes=perhaps", status: 400, says: "true or false"},
		{name: "since is no time", method: "GET", path: "/v1/samples?since=yesterday", status: 400, says: "2026-01-31T06:00:00Z"},
		{name: "order is no JSON", method: "POST", path: "/v1/orders", ctype: js, body: "scale 4", status: 400, says: "an order is"},
		{name: "order is empty", method: "POST", path: "/v1/orders", ctype: js, status: 400, says: "an order is"},
		{name: "order has an unknown field", method: "POST", path: "/v1/orders", ctype: js, body: `{"kind":"scale","to":4}`, status: 400, says: `unknown field "to"`},
		{name: "order of the wrong type", method: "POST", path: "/v1/orders", ctype: js, body: `{"kind":"scale","target":"four"}`, status: 400, says: "an order is"},
		{name: "order without a type", method: "POST", path: "/v1/orders", body: `{"kind":"stop"}`, status: 415, says: "Content-Type"},
		{name: "order that is endless", method: "POST", path: "/v1/orders", ctype: js, body: `{"kind":"` + strings.Repeat("x", 1<<17), status: 400, says: "an order is"},
		{name: "order that is endless, and of no type", method: "POST", path: "/v1/orders", body: strings.Repeat("x", 1<<19), status: 415, says: "Content-Type"},
		{name: "no logs", method: "GET", path: "/v1/workloads/worker-0/logs", status: 501, says: "no logs"},
		{name: "no report", method: "GET", path: "/v1/report", status: 404, says: "no GET /v1/report"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), tt.method, "http://kale"+tt.path, strings.NewReader(tt.body))
			must(t, err)
			if tt.ctype != "" {
				req.Header.Set("Content-Type", tt.ctype)
			}
			if tt.version != "" {
				req.Header.Set(api.VersionHeader, tt.version)
			}
			resp, err := hc.Do(req)
			must(t, err)
			defer resp.Body.Close()
			var e struct{ Error string }
			if err := json.NewDecoder(resp.Body).Decode(&e); err != nil {
				t.Fatalf("the error is no JSON: %v", err)
			}
			if resp.StatusCode != tt.status || !strings.Contains(e.Error, tt.says) {
				t.Errorf("%d %q; want %d and %q", resp.StatusCode, e.Error, tt.status, tt.says)
			}
			if got := resp.Header.Get(api.VersionHeader); got != api.Version {
				t.Errorf("the answer's version is %q", got)
			}
		})
	}
	if len(s.orders) > 0 {
		t.Errorf("garbage became orders: %v", s.orders)
	}
}

// What is not HTTP at all must not disturb the next client.
func TestNoHTTP(t *testing.T) {
	path := serve(t, newScheduler(t), api.Options{})
	conn, err := net.Dial("unix", path)
	must(t, err)
	_, err = conn.Write([]byte("\x00\xff\xfehello\r\n\r\n"))
	must(t, err)
	conn.Close()
	if _, err := dial(t, path).Status(t.Context()); err != nil {
		t.Errorf("after garbage: %v", err)
	}
}

func TestClientOfAnotherVersion(t *testing.T) {
	path := filepath.Join(shortDir(t), "api.sock")
	l, err := api.Listen(path)
	must(t, err)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(api.VersionHeader, "2")
		_, _ = io.WriteString(w, "{}")
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	defer func() { must(t, srv.Close()); <-done }()
	if _, err := dial(t, path).Status(t.Context()); err == nil || !strings.Contains(err.Error(), `version "2"`) {
		t.Errorf("a scheduler of version 2: %v", err)
	}
}

func TestLogs(t *testing.T) {
	s := newScheduler(t)
	written, log := io.Pipe()
	var asked []string
	path := serve(t, s, api.Options{Logs: func(ctx context.Context, id backend.ID, o backend.LogOptions) (io.ReadCloser, error) {
		asked = append(asked, id.String())
		if id.Rank == 0 && id.Role == backend.RoleWorker {
			return nil, backend.Errorf(backend.Gone, "its log is gone")
		}
		if o.Tail == 7 {
			return nil, backend.Errorf(backend.Blocked, "its folder was moved")
		}
		if !o.Follow {
			return io.NopCloser(strings.NewReader("a line\n")), nil
		}
		context.AfterFunc(ctx, func() { written.CloseWithError(ctx.Err()) })
		return written, nil
	}})
	c := dial(t, path)

	t.Run("newest generation", func(t *testing.T) {
		rc, err := c.Logs(t.Context(), "worker-3", backend.LogOptions{Tail: 5})
		must(t, err)
		defer rc.Close()
		if got, err := io.ReadAll(rc); err != nil || string(got) != "a line\n" {
			t.Errorf("log %q, %v", got, err)
		}
		if diff := cmp.Diff([]string{"worker-3-g2"}, asked); diff != "" {
			t.Errorf("asked (-want +got):\n%s", diff)
		}
	})
	for name, says := range map[string]string{"worker-7": "it has ps-0, worker-0, worker-3", "wroker-3": `Did you mean "worker-3"?`, "worker-0": "its log is gone", "../..": "no process", "x y?&#": "no process"} {
		t.Run(name, func(t *testing.T) {
			_, err := c.Logs(t.Context(), name, backend.LogOptions{})
			var e *api.Error
			if !errors.As(err, &e) || e.Status != http.StatusNotFound || !strings.Contains(e.Message, says) {
				t.Errorf("%v; want %q", err, says)
			}
		})
	}
	t.Run("that needs a person", func(t *testing.T) {
		_, err := c.Logs(t.Context(), "ps-0", backend.LogOptions{Tail: 7})
		var e *api.Error
		if !errors.As(err, &e) || e.Status != http.StatusConflict || !strings.Contains(e.Message, "its folder was moved") {
			t.Errorf("%v; it is no matter of trying again", err)
		}
	})
	t.Run("follow", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		rc, err := c.Logs(ctx, "ps-0", backend.LogOptions{Follow: true})
		must(t, err)
		defer rc.Close()
		lines := bufio.NewScanner(rc)
		for _, want := range []string{"one", "two"} {
			if _, err := log.Write([]byte(want + "\n")); err != nil {
				t.Fatal(err)
			}
			if !lines.Scan() || lines.Text() != want {
				t.Fatalf("line %q, %v; want %q as soon as it is written", lines.Text(), lines.Err(), want)
			}
		}
		cancel()
		if lines.Scan() {
			t.Errorf("a line after the end: %q", lines.Text())
		}
		// The server's side ends too: writing fails once its request is over.
		for {
			if _, err := log.Write([]byte("x")); err != nil {
				break
			}
		}
	})
}

// "ps-1" is the server that serves, whose log is asked for, and not the successor that waits for its end.
func TestWorkloadIsWhoServes(t *testing.T) {
	v := &core.View{
		Servers: []core.ServerView{{ID: "ps-0-g2"}, {ID: "ps-1-g3"}, {ID: "ps-1-g4", Beside: true}, {ID: "ps-2-g5", Beside: true}},
		Workers: []core.WorkerView{{ID: "worker-1-g7"}, {ID: "worker-1-g9"}},
		Left:    []string{"worker-1-g6", "worker-3-g2"},
	}
	for name, want := range map[string]string{"ps-0": "ps-0-g2", "ps-1": "ps-1-g3", "ps-1-g4": "ps-1-g4", "ps-2": "ps-2-g5", "worker-1": "worker-1-g9", "worker-3": "worker-3-g2"} {
		if id, err := api.Workload(v, name); err != nil || id.String() != want {
			t.Errorf("%s is %s, want %s: %v", name, id, want, err)
		}
	}
	if _, err := api.Workload(v, "worker-4"); err == nil || strings.Contains(err.Error(), "worker-3") {
		t.Errorf("of one that never was: %v", err)
	}
}

func TestReport(t *testing.T) {
	path := serve(t, newScheduler(t), api.Options{Report: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<html>")
	})})
	var page bytes.Buffer
	must(t, dial(t, path).Report(t.Context(), &page))
	if page.String() != "<html>" {
		t.Errorf("report %q", page.String())
	}
}
