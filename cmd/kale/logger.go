package main

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/kale-sched/kale/core/job"
)

// logLevels are the values of -log.
const logLevels = "debug, info, warn, error or off"

// logger writes log lines of a level and above to standard error.
func (a *app) logger(level string) *slog.Logger {
	lg, err := a.parseLogger(level)
	if err != nil {
		panic("kale: " + err.Error())
	}
	return lg
}

func (a *app) parseLogger(level string) (*slog.Logger, error) {
	var l slog.Level
	switch strings.ToLower(level) {
	case "off":
		return slog.New(slog.DiscardHandler), nil
	case "debug":
		l = slog.LevelDebug
	case "info":
		l = slog.LevelInfo
	case "warn":
		l = slog.LevelWarn
	case "error":
		l = slog.LevelError
	default:
		return nil, fmt.Errorf("there is no log level %q. %sThere are: %s", level, job.DidYouMean(level, []string{"debug", "info", "warn", "error", "off"}), logLevels)
	}
	return slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: l})), nil
}

// progress shows how far long work has come: on a terminal in one line that is written over, elsewhere in a line now and then. Several goroutines may use one.
type progress struct {
	a     *app
	tty   bool
	width int

	mu    sync.Mutex // guards what follows
	last  time.Time
	more  string // what the last line said beside how far it was
	shown bool
	// what is counted, since when, and how far it was.
	what  string
	began time.Time
	steps int
	of    int
}

// progressEvery is the pause between two lines of progress where they cannot be written over.
const progressEvery = 10 * time.Second

func (a *app) progress() *progress {
	p := &progress{a: a, last: time.Now()}
	p.width, _ = terminal(a.err)
	p.tty = a.pictured(a.err)
	return p
}

// show replaces what was shown last.
func (p *progress) show(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write(format, args...)
}

// write is show; the caller holds mu.
func (p *progress) write(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if p.tty {
		if r := []rune(line); len(r) >= p.width {
			line = string(r[:p.width-1])
		}
		fmt.Fprintf(p.a.err, "\r\x1b[K%s", line)
		p.shown = true
		return
	}
	if now := time.Now(); now.Sub(p.last) >= progressEvery {
		p.last = now
		what, more, _ := strings.Cut(line, ": ")
		if p.more == more && len(more) > repeatedLength {
			line = what + ": as before"
		}
		p.more = more
		fmt.Fprintln(p.a.err, line)
	}
}

// repeatedLength is how long what a line of progress says may be to be said once more where nothing has changed.
const repeatedLength = 60

// leftFrom is how long work has to have gone on for an estimate of how long it will.
const leftFrom = 5 * time.Second

// step is show for work that counts its steps; the last one takes the line away.
func (p *progress) step(what string, done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if what != p.what || done < p.steps {
		p.what, p.began = what, now
	}
	p.steps, p.of = done, total
	p.write("%s: %d of %d%s", what, done, total, left(now.Sub(p.began), done, total))
	if done >= total {
		p.clear()
	}
}

// left says about how long work will go on that has taken so long for done of its steps; "" where it is too early to say, or it is done.
func left(took time.Duration, done, total int) string {
	if took < leftFrom || done < 1 || done >= total {
		return ""
	}
	return fmt.Sprintf(", about %s left", job.FormatDuration((took * time.Duration(total-done) / time.Duration(done)).Round(time.Second)))
}

// holding tells how far the model of a file is that is held to the past, which takes long for its first answer.
func (p *progress) holding(path string) func(done, total int) {
	return func(done, total int) { p.step("holding "+path+" to the past, moments", done, total) }
}

// reached says how far what is counted had come, for work that ended before its end; "" where nothing was counted yet.
func (p *progress) reached() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.what == "" {
		return ""
	}
	return fmt.Sprintf("; it was at %s, %d of %d", p.what, p.steps, p.of)
}

// done takes the line away, before other output.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

// clear is done; the caller holds mu.
func (p *progress) clear() {
	if p.tty && p.shown {
		fmt.Fprint(p.a.err, "\r\x1b[K")
		p.shown = false
	}
}
