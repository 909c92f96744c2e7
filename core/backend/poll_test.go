package backend_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/backend"
)

func TestReadLogFile(t *testing.T) {
	long := strings.Repeat("a line of some length\n", 10_000) // more than is read at once
	for _, tt := range []struct {
		text string
		tail int
		want string
	}{
		{"", 0, ""},
		{"", 3, ""},
		{"one\ntwo\n", 0, "one\ntwo\n"},
		{"one\ntwo\n", -1, ""},
		{"one\ntwo\n", 1, "two\n"},
		{"one\ntwo", 1, "two"},
		{"one\ntwo\n", 2, "one\ntwo\n"},
		{"one\ntwo\n", 9, "one\ntwo\n"},
		{"\n\n", 1, "\n"},
		{long, 9_999, long[22:]},
		{"x" + long + "end", 10_001, "x" + long + "end"},
		{"x\n" + long + "end", 10_001, long + "end"},
	} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, follow := range []bool{false, true} {
			r, err := backend.ReadLogFile(t.Context(), path, backend.LogOptions{Tail: tt.tail, Follow: follow}, func(context.Context) bool { return false })
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(r)
			if err != nil || string(got) != tt.want {
				t.Errorf("the last %d lines of %.20q (follow %v): %d bytes %.40q, %v; want %d bytes %.40q", tt.tail, tt.text, follow, len(got), got, err, len(tt.want), tt.want)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	_, err := backend.ReadLogFile(t.Context(), filepath.Join(t.TempDir(), "absent"), backend.LogOptions{}, nil)
	if err == nil || backend.CodeOf(err) != backend.Gone {
		t.Errorf("a log that is not there: %v; want code %q", err, backend.Gone)
	}
}

// What is written while a log is followed arrives, the end of the workload ends it, and a reader that closes is not waited for.
func TestReadLogFileFollows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var mu sync.Mutex
	alive := true
	r, err := backend.ReadLogFile(t.Context(), path, backend.LogOptions{Follow: true}, func(context.Context) bool {
		mu.Lock()
		defer mu.Unlock()
		return alive
	})
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 5)
	for _, text := range []string{"first", "again"} {
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(r, buf); err != nil || string(buf) != text {
			t.Fatalf("followed %q, %v; want %q", buf, err, text)
		}
	}
	mu.Lock()
	alive = false
	_, err = f.WriteString("last")
	mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(r); err != nil || string(rest) != "last" {
		t.Errorf("the rest is %q, %v", rest, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	ended := make(chan struct{})
	other, err := backend.ReadLogFile(t.Context(), path, backend.LogOptions{Tail: -1, Follow: true}, func(ctx context.Context) bool {
		if ctx.Err() != nil {
			close(ended)
			return false
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	<-ended // or the test hangs: nobody looks at a log that nobody reads
}

// A log that is bounded has an older part, and is cut off in place: both are read as one, and who follows misses nothing and sees nothing twice.
func TestReadLogFileWithAnOlderPart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(backend.OlderLog(path), "one\ntwo\n")
	write(path, "three\nfour\n")
	for tail, want := range map[int]string{0: "one\ntwo\nthree\nfour\n", -1: "", 1: "four\n", 2: "three\nfour\n", 3: "two\nthree\nfour\n", 9: "one\ntwo\nthree\nfour\n"} {
		r, err := backend.ReadLogFile(t.Context(), path, backend.LogOptions{Tail: tail}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != want {
			t.Errorf("the last %d lines are %q, %v; want %q", tail, got, err, want)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	step := 0
	r, err := backend.ReadLogFile(t.Context(), path, backend.LogOptions{Tail: 1, Follow: true}, func(context.Context) bool {
		switch step++; step {
		case 2: // more is written, which nobody has read when it is moved away
			write(backend.OlderLog(path), "three\nfour\nfive\n")
			write(path, "six\n")
		case 4: // and once more, with nothing unread
			write(backend.OlderLog(path), "six\n")
			write(path, "")
		case 5:
			write(path, "seven\n")
		}
		return step < 6
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != "four\nfive\nsix\nseven\n" {
		t.Errorf("followed %q, %v", got, err)
	}
}

// looks is what a cluster lists, one look after the other; the last one stays.
type looks struct {
	n    int // looks so far; only the watching goroutine touches it
	list []look
}

type look struct {
	statuses []backend.Status
	complete bool
	err      error
}

func (l *looks) List(context.Context, string) ([]backend.Status, bool, error) {
	now := l.list[min(l.n, len(l.list)-1)]
	l.n++
	return now.statuses, now.complete, now.err
}

func TestWatchByList(t *testing.T) {
	zero, one := backend.ID{Role: "worker", Generation: 1}, backend.ID{Role: "worker", Rank: 1, Generation: 1}
	list := []look{
		{[]backend.Status{{ID: one, State: backend.StateStarting}, {ID: zero, State: backend.StateRunning}}, true, nil},
		{nil, true, errors.New("not now")},
		{[]backend.Status{{ID: one, State: backend.StateRunning}}, false, nil}, // zero is absent, which says nothing
		{nil, false, nil},
		{[]backend.Status{{ID: one, State: backend.StateRunning}, {ID: zero, State: backend.StateStopping}}, true, nil},
		{[]backend.Status{{ID: one, State: backend.StateRunning}}, true, nil},
	}
	want := []backend.Event{
		{ID: zero, State: backend.StateRunning}, {ID: one, State: backend.StateStarting}, {ID: one, State: backend.StateRunning},
		{ID: zero, State: backend.StateStopping}, {ID: zero, State: backend.StateExited},
	}
	for name, every := range map[string]time.Duration{"by time": time.Microsecond, "by hints": time.Hour} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var hints chan struct{}
			if every == time.Hour {
				hints = make(chan struct{}, len(list))
				for range list {
					hints <- struct{}{}
				}
			}
			events := backend.WatchByList(ctx, &looks{list: list}, "j", every, hints)
			var got []backend.Event
			for range want {
				got = append(got, <-events)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			cancel()
			for range events { // it must end
			}
		})
	}
}

func TestLiveByList(t *testing.T) {
	id, other := backend.ID{Role: "worker", Generation: 1}, backend.ID{Role: "worker", Rank: 1, Generation: 1}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name string
		ctx  context.Context
		look look
		want bool
	}{
		{"runs", t.Context(), look{[]backend.Status{{ID: other, State: backend.StateExited}, {ID: id, State: backend.StateRunning}}, true, nil}, true},
		{"ended", t.Context(), look{[]backend.Status{{ID: other, State: backend.StateRunning}, {ID: id, State: backend.StateFailed}}, true, nil}, false},
		{"gone", t.Context(), look{[]backend.Status{{ID: other, State: backend.StateRunning}}, true, nil}, false},
		{"not seen", t.Context(), look{[]backend.Status{{ID: other, State: backend.StateRunning}}, false, nil}, true},
		{"no answer", t.Context(), look{nil, false, errors.New("not now")}, true},
		{"no answer, and nobody waits for one", over, look{nil, false, context.Canceled}, false},
	} {
		if got := backend.LiveByList(&looks{list: []look{tt.look}}, "j", id)(tt.ctx); got != tt.want {
			t.Errorf("%s: live %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestPartLog(t *testing.T) {
	const line = backend.LogBoundary + "why\n"
	for before, want := range map[string]string{"": line, "a\n": "a\n" + line, "a": "a\n" + line} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_APPEND|os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(backend.PartLog(f, "why"), f.Close()); err != nil {
			t.Error(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%q became %q, %v; want %q", before, got, err, want)
		}
	}
}

func TestExitCode(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 3": 3, "kill -9 $$": 137} {
		cmd := exec.Command("/bin/sh", "-c", script)
		_ = cmd.Run() // what it ended with is looked at
		if got, how := backend.ExitCode(cmd.ProcessState); got != want || how == "" {
			t.Errorf("%s: code %d, %q; want %d", script, got, how, want)
		}
	}
}
