package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/fake"
)

// lateLogs is a backend that cannot say which processes there are for its first mute answers.
type lateLogs struct {
	mute  int
	names []string
	shut  int // so many logs cannot be opened
	gone  bool
	away  bool
	slow  time.Duration // after which one cannot be opened
}

func (l *lateLogs) processes(context.Context) ([]string, string, error) {
	if l.mute--; l.mute >= 0 {
		return nil, "the backend does not answer: its plugin was started again", nil
	}
	return l.names, "", nil
}

func (l *lateLogs) open(_ context.Context, process string, _ backend.LogOptions) (io.ReadCloser, error) {
	if l.gone {
		return nil, backend.Errorf(backend.Gone, "read the log of %s: it is gone", process)
	}
	if l.away {
		return nil, &api.Error{Status: http.StatusConflict, Message: "read the log of " + process + ": its folder was moved (blocked)"}
	}
	if l.shut--; l.shut >= 0 {
		time.Sleep(l.slow)
		return nil, &api.Error{Status: http.StatusBadGateway, Message: "read the log of " + process + ": the plugin ended during the call: it hangs: no answer within 10s"}
	}
	return io.NopCloser(strings.NewReader("hello from " + process + "\n")), nil
}

func (l *lateLogs) close() error { return nil }

// A backend that cannot tell yet is waited for, and nobody says meanwhile that there is nothing.
func TestLogsWaitForABackendThatCannotTell(t *testing.T) {
	for name, c := range map[string]struct {
		src               lateLogs
		out, errs, failed string
	}{
		"it answers":         {lateLogs{names: []string{"ps-0-g1"}}, "ps-0-g1 | hello from ps-0-g1\n", "", ""},
		"it answers later":   {lateLogs{mute: 7, names: []string{"ps-0-g1"}}, "ps-0-g1 | hello from ps-0-g1\n", "waiting to see which processes there are: the backend does not answer: its plugin was started again\n", ""},
		"there are none":     {lateLogs{mute: 3}, "", "waiting to see which processes there are: the backend does not answer: its plugin was started again\nthe job has no processes now\n", ""},
		"it does not answer": {lateLogs{mute: 1 << 20}, "", "waiting to see which processes there are: the backend does not answer: its plugin was started again\n", "which processes there are is unknown, also after 30s: the backend does not answer: its plugin was started again; try again when the backend answers"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out, errs strings.Builder
				a := &app{out: &out, err: &errs}
				err := a.printLogs(t.Context(), &c.src, "", 0)
				failed := ""
				if err != nil {
					failed = err.Error()
				}
				if out.String() != c.out || errs.String() != c.errs || failed != c.failed {
					t.Errorf("it prints %q and %q, and fails with %q", out.String(), errs.String(), failed)
				}
			})
		})
	}
}

// A log that cannot be opened is tried again for a while: a plugin that hung has a successor. Where it cannot be read to the end of that, the command has failed; a log
// that is gone is no failure.
func TestLogsThatCannotBeOpened(t *testing.T) {
	const hangs = "read the log of ps-0-g1: the plugin ended during the call: it hangs: no answer within 10s"
	names := []string{"ps-0-g1"}
	for name, c := range map[string]struct {
		src               lateLogs
		out, errs, failed string
	}{
		"at first": {lateLogs{names: names, shut: 3}, "ps-0-g1 | hello from ps-0-g1\n", "trying again: " + hangs + "\n", ""},
		"ever": {lateLogs{names: names, shut: 1 << 20}, "", "trying again: " + hangs + "\nkale: " + hangs + "\n",
			"1 log of 1 could not be read to the end, as said above; try again when the backend answers: kale doctor says whether it does"},
		"ever, of many": {lateLogs{names: []string{"ps-0-g1", "worker-0-g1", "worker-1-g1"}, shut: 1 << 20, slow: openPatience}, "", "kale: " + hangs + "\n",
			"3 logs of 3 could not be read to the end, as said above; try again when the backend answers: kale doctor says whether it does"},
		"of many for one reason": {lateLogs{names: []string{"ps-0-g1", "worker-0-g1", "worker-1-g1"}, away: true}, "", "kale: read the log of ps-0-g1: its folder was moved (blocked)\n",
			"3 logs of 3 could not be read to the end, as said above"},
		"being gone": {lateLogs{names: names, gone: true}, "", "kale: read the log of ps-0-g1: it is gone (gone)\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out, errs strings.Builder
				a := &app{out: &out, err: &errs}
				failed, began := "", time.Now()
				err := a.printLogs(t.Context(), &c.src, "", 0)
				if err != nil {
					failed = err.Error()
				}
				if out.String() != c.out || errs.String() != c.errs || failed != c.failed {
					t.Errorf("it prints %q and %q, and fails with %q", out.String(), errs.String(), failed)
				}
				if took := time.Since(began); took > openPatience+time.Second {
					t.Errorf("it takes %v", took)
				}
			})
		})
	}
}

// Who follows logs is told once, too, what keeps all of them from being read.
func TestFollowedLogsThatCannotBeOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, errs strings.Builder
		a := &app{out: &out, err: &errs}
		ctx, cancel := context.WithTimeout(t.Context(), 5*newProcessesEvery-newProcessesEvery/2) // between two looks
		defer cancel()
		err := a.followLogs(ctx, &lateLogs{names: []string{"worker-0-g1", "worker-1-g1"}, away: true}, "ctr", "", 0)
		if says := errs.String(); err != nil || strings.Count(says, "its folder was moved (blocked); trying again\n") != 1 || out.Len() > 0 {
			t.Errorf("it prints %q and %q, and fails with %v", out.String(), says, err)
		}
	})
}

// While a cluster does not answer, the logs that its backend can read all the same are printed, of the processes that there were last, and that it does not is said.
func TestLogsOfASilentCluster(t *testing.T) {
	cluster := fake.NewCluster(4)
	b := fake.New(nil, cluster)
	if _, err := b.Configure(t.Context(), backend.Config{Job: "ctr"}); err != nil {
		t.Fatal(err)
	}
	id := backend.ID{Role: backend.RoleWorker, Generation: 1}
	if _, err := b.Ensure(t.Context(), "ctr", []backend.Workload{{ID: id, Argv: []string{"run"}}}); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Print("ctr", id, "hello\n"); err != nil {
		t.Fatal(err)
	}
	for process, prefix := range map[string]string{"": "worker-0-g1 | ", "worker-0": "", "worker-0-g1": ""} {
		b.FailNext(fake.OpList, backend.Errorf(backend.Unavailable, "squeue: Unable to contact slurm controller"))
		b.FailNext(fake.OpList, backend.Errorf(backend.Unavailable, "squeue: Unable to contact slurm controller"))
		var out, errs strings.Builder
		a := &app{out: &out, err: &errs}
		err := a.printLogs(t.Context(), backendLogs{b: b, job: "ctr", last: []backend.ID{id}}, process, 0)
		told := strings.Contains(errs.String(), "the backend does not answer, and these are what there was last: list the processes of job \"ctr\": squeue: Unable to contact slurm controller")
		if err != nil || out.String() != prefix+"started\n"+prefix+"hello\n" || told != (process != id.String()) {
			t.Errorf("%q: it prints %q and %q, and fails with %v", process, out.String(), errs.String(), err)
		}
		for range 2 { // what is scripted still
			_, _, _ = b.List(t.Context(), "ctr")
		}
	}
}
