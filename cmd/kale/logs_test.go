package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kale-sched/kale/core/backend"
)

// lateLogs is a backend that cannot say which processes there are for its first mute answers.
type lateLogs struct {
	mute  int
	names []string
}

func (l *lateLogs) processes(context.Context) ([]string, string, error) {
	if l.mute--; l.mute >= 0 {
		return nil, "the backend does not answer: its plugin was started again", nil
	}
	return l.names, "", nil
}

func (l *lateLogs) open(_ context.Context, process string, _ backend.LogOptions) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("hello from " + process + "\n")), nil
}

func (l *lateLogs) close() error { return nil }

// A backend that cannot tell yet is waited for, and nobody says meanwhile that there is nothing.
func TestLogsWaitForABackendThatCannotTell(t *testing.T) {
	for name, c := range map[string]struct {
		src               lateLogs
		out, errs, failed string
	}{
		"it answers":         {lateLogs{0, []string{"ps-0-g1"}}, "ps-0-g1 | hello from ps-0-g1\n", "", ""},
		"it answers later":   {lateLogs{7, []string{"ps-0-g1"}}, "ps-0-g1 | hello from ps-0-g1\n", "waiting to see which processes there are: the backend does not answer: its plugin was started again\n", ""},
		"there are none":     {lateLogs{3, nil}, "", "waiting to see which processes there are: the backend does not answer: its plugin was started again\nthe job has no processes now\n", ""},
		"it does not answer": {lateLogs{1 << 20, nil}, "", "waiting to see which processes there are: the backend does not answer: its plugin was started again\n", "which processes there are is unknown, also after 30s: the backend does not answer: its plugin was started again; try again when the backend answers"},
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
