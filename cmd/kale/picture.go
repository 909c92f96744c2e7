package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/kale-sched/kale/cmd/kale/view"
	"github.com/kale-sched/kale/core"
)

// statusEvery is the time between the status lines of a run without a picture, whose log may be kept for months.
const statusEvery = time.Minute

// schedulerLog is where a run's log goes while a picture has the terminal, in the job's state folder; one of an earlier run above
// maxSchedulerLog bytes is begun anew.
const (
	schedulerLog    = "scheduler.log"
	maxSchedulerLog = 16 << 20
)

// screen is how a run is shown.
type screen struct {
	a    *app
	live bool
	lg   *slog.Logger
	note *note
	bar  *progress
	file *os.File // the log while there is a picture; nil without
}

// step shows how far long work has come.
func (s *screen) step(what string, done, total int) {
	switch {
	case s.live && done >= total:
		s.note.set(time.Now(), "")
		return
	case s.live:
		s.note.set(time.Now(), fmt.Sprintf("%s: %d of %d", what, done, total))
		return
	}
	s.bar.step(what, done, total)
}

// newScreen chooses how a run is shown, and where its log goes so that neither spoils the other.
func (a *app) newScreen(l *loaded, f runFlags) (*screen, error) {
	lg, err := a.parseLogger(f.log)
	if err != nil {
		return nil, usageError{err}
	}
	s := &screen{a: a, lg: lg, note: &note{}, bar: a.progress()}
	if s.live = a.pictured(a.out) && !f.plain; !s.live {
		return s, nil
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the job's state folder: %w", err)
	}
	path := filepath.Join(l.dir, schedulerLog)
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if info, err := os.Stat(path); err == nil && info.Size() > maxSchedulerLog {
		flags |= os.O_TRUNC
	}
	if s.file, err = os.OpenFile(path, flags, 0o600); err != nil {
		return nil, fmt.Errorf("open the scheduler's log: %w", err)
	}
	toFile := *a
	toFile.err = s.file
	if lg, err = toFile.parseLogger(f.log); err != nil {
		return nil, usageError{err}
	}
	s.lg = slog.New(noting{lg.Handler(), s.note})
	return s, nil
}

// show follows the scheduler until ctx ends or, with a picture, its user closes it.
func (s *screen) show(ctx context.Context, sch *core.Scheduler) error {
	o := view.Options{
		Title: "Kale", Every: statusEvery, Note: s.note.text, Coloured: s.a.coloured(s.a.out), Hint: "q or Ctrl-C ends the scheduler; what runs goes on",
		Store: sch.Store(),
	}
	if !s.live {
		return view.Plain(ctx, s.a.out, sch.View, o)
	}
	return view.Run(ctx, s.a.in, behind(s.a.out), sch.View, o)
}

func (s *screen) close() {
	if s.file != nil {
		s.file.Close()
	}
}

// note is what stands in a picture's last lines for a while: progress, or the log's newest warning.
type note struct {
	mu sync.Mutex
	at time.Time
	s  string
}

// noteShown is how long a note is shown.
const noteShown = 30 * time.Second

func (n *note) set(at time.Time, s string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at, n.s = at, s
}

func (n *note) text() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if time.Since(n.at) > noteShown {
		return ""
	}
	return n.s
}

// noting is a log handler that also keeps the newest warning.
type noting struct {
	slog.Handler
	last *note
}

func (n noting) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		s := r.Message
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "err" {
				s += ": " + a.Value.String()
			}
			return true
		})
		n.last.set(r.Time, s)
	}
	return n.Handler.Handle(ctx, r)
}

func (n noting) WithAttrs(attrs []slog.Attr) slog.Handler {
	return noting{n.Handler.WithAttrs(attrs), n.last}
}

func (n noting) WithGroup(name string) slog.Handler { return noting{n.Handler.WithGroup(name), n.last} }
