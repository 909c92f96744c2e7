package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/state"
	"github.com/kale-sched/kale/core/stream"
)

// stuck gives a shell's state folder a job whose scheduler is answered for by h; its holder is this process.
func (s *shell) stuck(name string, h http.Handler) {
	s.t.Helper()
	dir := filepath.Join(s.env["KALE_STATE_DIR"], name)
	file := filepath.Join(s.t.TempDir(), name+".hcl")
	text := strings.NewReplacer("%BROKER%", "127.0.0.1:1", `job "life"`, fmt.Sprintf("job %q", name), "var.checkpoints", fmt.Sprintf("%q", s.t.TempDir())).Replace(lifeJob)
	_, text, _ = strings.Cut(text, "\n}\n") // without the variable
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := saveInvocation(dir, invocation{File: file}); err != nil {
		s.t.Fatal(err)
	}
	st, err := state.Open(dir)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = st.Close() })
	l, err := net.Listen("unix", filepath.Join(dir, "api.sock"))
	if err != nil {
		s.t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	s.t.Cleanup(func() { _ = srv.Close(); <-done })
}

// silent answers nothing for as long as somebody waits for it.
func silent(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// A scheduler that is there and does not answer keeps nobody waiting: its process is named, and its job is looked at without it.
func TestSilentScheduler(t *testing.T) {
	s := newShell(t)
	s.stuck("ctr", http.HandlerFunc(silent))
	s.patience = 50 * time.Millisecond
	says := fmt.Sprintf("its scheduler does not answer (pid %d runs), nor does its chief", os.Getpid())
	if r := s.must("status"); !strings.Contains(r.out, "ctr  unknown  "+says) {
		t.Errorf("status of all jobs:\n%s", r.out)
	}
	var g core.Glance
	if err := json.Unmarshal([]byte(s.must("status", "ctr", "-json").out), &g); err != nil {
		t.Fatal(err)
	}
	if g.Job != "ctr" || g.State != core.StateUnknown || !g.Scheduler || !strings.HasPrefix(g.Says, says[:len(says)-len(", nor does its chief")]) {
		t.Errorf("status ctr: %+v", g)
	}
	if got := (&app{getenv: func(string) string { return s.env["KALE_STATE_DIR"] }}).asked("ctr", fmt.Errorf("ask: %w", api.ErrSilent)).Error(); !strings.Contains(got, fmt.Sprintf("kill -9 %d", os.Getpid())) {
		t.Errorf("an order that is not answered: %s", got)
	}
}

// A scheduler whose process runs and that does not answer at once, as on a machine that is busy, is waited for, which is said.
func TestSlowScheduler(t *testing.T) {
	s := newShell(t)
	var asked atomic.Int32
	s.stuck("ctr", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) < 3 {
			silent(w, r)
			return
		}
		w.Header().Set(api.VersionHeader, api.Version)
		fmt.Fprintln(w, "{}")
	}))
	s.patience = 50 * time.Millisecond
	r := s.must("pause", "ctr")
	if says := fmt.Sprintf("its scheduler does not answer (pid %d runs); waiting for it up to 20s", os.Getpid()); strings.Count(r.err, says) != 1 || !strings.Contains(r.out, "paused") {
		t.Errorf("%s%s; want %q once", r.out, r.err, says)
	}
}

// Brokers that take connections and answer nothing are said to be waited for, and then to do just that.
func TestMuteBrokers(t *testing.T) {
	t.Parallel()
	mute, err := net.Listen("tcp", "127.0.0.1:0") // the system takes connections, and nobody reads them
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mute.Close() }) // nothing was written to it
	s := newShell(t)
	s.patience = 50 * time.Millisecond
	addr := mute.Addr().String()
	var all []*background
	for _, args := range [][]string{
		{"init", "-brokers", addr, "-topic", "clicks", "-o", filepath.Join(t.TempDir(), "x.hcl")},
		{"produce", "-brokers", addr, "-topic", "clicks"},
		{"replay", "-trace", "kafka://" + addr + "/clicks"},
		{"audit", jobAt(t, addr)},
	} {
		all = append(all, s.start(args...))
	}
	two := []string{"plan", "", ""}
	for i := range two[1:] {
		text := changed(t, read(t, jobAt(t, addr)), `"life"`, fmt.Sprintf("\"life-%d\"", i))
		two[i+1] = write(t, text)
	}
	both, doctor := s.start(two...), s.start("doctor", jobAt(t, addr), "-no-probe")
	waits := "waiting for the brokers at " + addr + ", which have not answered yet, up to 10s"
	says := `ask the brokers for topic "clicks": the brokers at ` + addr + " accept connections and do not answer; are the addresses right, and does a broker run there?\n"
	for _, b := range all {
		if r := b.end(); r.code != exitFailed || strings.Count(r.err, waits) != 1 || !strings.HasSuffix(r.err, says) {
			t.Errorf("exit code %d, %q; want %q and %q", r.code, r.err, waits, says)
		}
	}
	r := both.end()
	if says := "the brokers at " + addr + " accept connections and do not"; r.code != exitFailed || strings.Count(r.err, waits) != 1 || strings.Count(strings.Join(strings.Fields(r.err), " "), says) != 2 {
		t.Errorf("plan of two jobs: exit code %d, %q; want %q once and %q twice", r.code, r.err, waits, says)
	}
	if r, says := doctor.end(), "no answer yet: brokers; waiting up to 15s\n"; !strings.Contains(r.err, says) || !strings.Contains(r.out, "no answer within 5s") {
		t.Errorf("doctor: %q, %q; want %q", r.out, r.err, says)
	}
}

// muteAt stands before a broker whose address it has its clients told, and gives them no answer any more from the first request of a kind (Kafka's API key) on.
func muteAt(t *testing.T, key int16) (addr string) {
	t.Helper()
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b, err := stream.OpenBroker(t.Context(), nil, stream.BrokerOptions{Advertise: front.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	var mute atomic.Bool
	var all sync.WaitGroup
	var open []net.Conn // of the one goroutine that accepts
	relay := func(client, server net.Conn) {
		defer client.Close()
		defer server.Close()
		all.Go(func() {
			defer client.Close()
			for buf := make([]byte, 32<<10); ; {
				n, err := server.Read(buf)
				if _, werr := client.Write(buf[:n]); err != nil || werr != nil {
					return
				}
			}
		})
		for head := make([]byte, 6); ; { // a length, and the API key
			_, err := io.ReadFull(client, head)
			if err != nil {
				return
			}
			if int16(binary.BigEndian.Uint16(head[4:])) == key {
				mute.Store(true)
			}
			rest := io.LimitReader(client, int64(binary.BigEndian.Uint32(head))-2)
			if mute.Load() {
				_, err = io.Copy(io.Discard, rest)
			} else if _, err = server.Write(head); err == nil {
				_, err = io.Copy(server, rest)
			}
			if err != nil {
				return
			}
		}
	}
	all.Go(func() {
		for {
			client, err := front.Accept()
			if err != nil {
				for _, conn := range open {
					_ = conn.Close() // it may have ended
				}
				return
			}
			server, err := net.Dial("tcp", b.Addr())
			if err != nil {
				t.Error(err)
				_ = client.Close()
				continue
			}
			open = append(open, client)
			all.Go(func() { relay(client, server) })
		}
	})
	t.Cleanup(func() { _ = front.Close(); all.Wait() })
	if err := stream.EnsureTopics(t.Context(), []kgo.Opt{kgo.SeedBrokers(front.Addr().String())}, []stream.TopicSpec{{Name: "clicks", Partitions: 2}}); err != nil {
		t.Fatal(err)
	}
	return front.Addr().String()
}

// Brokers that fall silent after some answers are waited for once, and what is not asked any more is said.
func TestBrokersThatFallSilent(t *testing.T) {
	t.Parallel()
	s := newShell(t).withPrograms()
	s.patience = 50 * time.Millisecond
	const listOffsets = 2
	addr := muteAt(t, listOffsets)
	r := s.run("validate", jobAt(t, addr))
	if waits := "waiting for the brokers at " + addr + ", which have not answered yet, up to 20s"; strings.Count(r.err, waits) != 1 {
		t.Errorf("%q; want %q once", r.err, waits)
	}
	for _, says := range []string{"warning: The features could not be checked", "warning: The brokers have stopped answering", "Not checked for that: whether workers.max can train what arrives."} {
		if !strings.Contains(strings.Join(strings.Fields(r.err), " "), says) {
			t.Errorf("%q; want %q", r.err, says)
		}
	}
}

// The list asks all schedulers at the same time: here none answers before all have been asked.
func TestListAsksAllAtOnce(t *testing.T) {
	s := newShell(t)
	const jobs = 4
	var asked sync.WaitGroup
	asked.Add(jobs)
	for i := range jobs {
		s.stuck(fmt.Sprintf("job-%d", i), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked.Done()
			asked.Wait()
			w.Header().Set(api.VersionHeader, api.Version)
			api.Fail(w, http.StatusServiceUnavailable, fmt.Errorf("ask again"))
		}))
	}
	if r := s.must("status"); strings.Count(r.out, "starting") != jobs {
		t.Errorf("status of all jobs:\n%s", r.out)
	}
}

// A scheduler that answers, and whose backend's plugin does not, keeps nobody waiting for logs: the backend is asked without it, which is said.
func TestLogsBesideASilentPlugin(t *testing.T) {
	t.Parallel()
	s := newShell(t).withPrograms()
	view := core.View{Job: "ctr", Servers: []core.ServerView{{ID: "ps-0-g1"}}, Workers: []core.WorkerView{{ID: "worker-0-g1"}}}
	s.stuck("ctr", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/logs") {
			silent(w, r)
			return
		}
		w.Header().Set(api.VersionHeader, api.Version)
		if err := json.NewEncoder(w).Encode(view); err != nil {
			t.Error(err)
		}
	}))
	if err := s.app(&buffer{}, &buffer{}).onBackend(t.Context(), "ctr", func(b backend.Backend) error {
		var all []backend.Workload
		for _, id := range []backend.ID{{Role: backend.RoleServer, Generation: 1}, {Role: backend.RoleWorker, Generation: 1}} {
			all = append(all, backend.Workload{ID: id, Argv: []string{"/bin/sh", "-c", "echo hello from " + id.String()}})
		}
		_, err := b.Ensure(t.Context(), "ctr", all)
		for _, w := range all { // what they wrote is whole when they have ended
			if err == nil {
				var log io.ReadCloser
				if log, err = b.Logs(t.Context(), "ctr", w.ID, backend.LogOptions{Follow: true}); err == nil {
					_, err = io.Copy(io.Discard, log)
					err = errors.Join(err, log.Close())
				}
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s.patience = 2 * time.Second
	const says = "job \"ctr\": its scheduler's backend does not answer; asking it without the scheduler\n"
	for _, tt := range []struct {
		args []string
		out  string
	}{
		{[]string{"logs", "ctr"}, "ps-0-g1 | hello from ps-0-g1\nworker-0-g1 | hello from worker-0-g1\n"},
		{[]string{"logs", "ctr", "worker-0"}, "hello from worker-0-g1\n"},
	} {
		if r := s.start(tt.args...).end(); r.code != exitDone || r.out != tt.out || r.err != says {
			t.Errorf("kale %s: exit code %d, %q, %q", quoted(tt.args), r.code, r.out, r.err)
		}
	}
	how, err := loadInvocation(filepath.Join(s.env["KALE_STATE_DIR"], "ctr"))
	if err == nil {
		err = os.Remove(how.File)
	}
	if err != nil {
		t.Fatal(err)
	}
	b := s.start("logs", "ctr", "worker-0")
	const waits = "job \"ctr\": its scheduler's backend does not answer; waiting for it\n"
	b.eventually("that it waits is said", func() bool { return b.err.String() == waits })
	b.interrupt()
	if r := b.end(); r.out != "" || !strings.HasPrefix(r.err, waits) {
		t.Errorf("without the job file: %q, %q", r.out, r.err)
	}
}

// An order of more workers than the cluster has places for, as was found out before, says so; one of as many as there are does not.
func TestOrdersBesideAFullCluster(t *testing.T) {
	const full = core.NoPlace + "more than 1 worker: needs 1 GPU, 0 free; more are tried at 12:00:00, or when there is room"
	v := &core.View{Job: "ctr", Problems: []string{"another", full}, Workers: make([]core.WorkerView, 1)}
	for target, want := range map[int]string{4: "; " + full, 1: ""} {
		if got := besidesOrder(core.Order{Kind: "scale", Target: target}, v); got != want {
			t.Errorf("%d workers: %q, want %q", target, got, want)
		}
	}
}

// An order that has to wait for the backend says so.
func TestOrdersBesideASilentBackend(t *testing.T) {
	v := &core.View{Job: "ctr", Unlisted: "the backend does not answer: list jobs: slurmctld is down"}
	for kind, want := range map[string]string{"scale": "; the backend does not answer, so that no worker comes or goes until it does", "pause": ""} {
		if got := besidesOrder(core.Order{Kind: kind, Target: 3}, v); got != want {
			t.Errorf("%s: %q, want %q", kind, got, want)
		}
	}
	v.Unlisted = "what runs cannot be seen: list the jobs: Permission denied"
	if got, want := besidesOrder(core.Order{Kind: "scale", Target: 3}, v), "; what runs cannot be seen, so that no worker comes or goes until it can"; got != want {
		t.Errorf("a backend that refuses: %q, want %q", got, want)
	}
	v.Unlisted = core.ListedInPart(nil)
	if got, want := besidesOrder(core.Order{Kind: "scale", Target: 3}, v), "; the backend could not look everywhere, so that no worker comes or goes until it can"; got != want {
		t.Errorf("a list that is not whole: %q, want %q", got, want)
	}
}

// A cluster that lets itself be called and answers nothing keeps a look at a job file waiting for a bounded time in all, and is told of with what was not checked.
func TestValidateBesideAClusterThatHangs(t *testing.T) {
	hang, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var held []net.Conn
	done := make(chan struct{})
	go func() { // until hang is closed
		defer close(done)
		for {
			c, err := hang.Accept()
			if err != nil {
				return
			}
			held = append(held, c)
		}
	}()
	defer func() {
		_ = hang.Close()
		<-done
		for _, c := range held {
			_ = c.Close()
		}
	}()
	s := newShell(t).withPlugin("kale-backend-nomad")
	s.patience = time.Second
	addr, dir := broker(t, stream.TopicSpec{Name: "clicks", Partitions: 2}), t.TempDir()
	block := fmt.Sprintf("    address = \"http://%s\"\n    shared_paths = [%q]\n    trainer = \"/opt/kale-trainer\"\n", hang.Addr(), dir)
	r := s.run("validate", write(t, fmt.Sprintf(clusterJob, addr, filepath.Join(dir, "cp"), "nomad", block)))
	says := strings.Join(strings.Fields(r.err+r.out), " ")
	for _, want := range []string{"The cluster does not answer", "has not answered yet, up to 5s", "were not checked, or not all of them", "kale validate -offline"} {
		if !strings.Contains(says, want) {
			t.Errorf("it does not say %q: %s", want, says)
		}
	}
	if r.code != exitFailed {
		t.Errorf("exit code %d", r.code)
	}
}
