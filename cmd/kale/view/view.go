// Package view shows a running job in a terminal: as a picture that renews itself ([Run]), or as a line for each thing that happens ([Plain]),
// which [Run] falls back to where the output is no terminal.
//
// In: the scheduler's newest [core.View], from a function that does not block. Out: a screen with arrivals, the forecast's band and the
// capacity before and after now, workers by state, lag against its objective, the throughput model, the last decision and why, the last
// rescale and what it cost, and what is wrong. [Render] is pure: one [Frame] and a size in characters give one screen, always the same.
//
// While a picture is on, nothing else may write to its terminal: what must be said meanwhile is said by [Options].Note.
package view

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/state"
)

// Options are what a picture needs beside its source.
type Options struct {
	// Title stands first; "" is "Kale".
	Title string
	// EndsWhen ends the picture when it is closed; nil: never.
	EndsWhen <-chan struct{}
	// Note gives a line that stands above the last one: progress, a warning of the log. May be nil.
	Note func() string
	// Hint is the last line: what q and Ctrl-C do. "" says that they end the picture.
	Hint string
	// Coloured says that a picture may have colours: its terminal knows them, and its user wants them.
	Coloured bool
	// Store is where the job writes down what happens: [Plain] reads there what has followed each other between two looks. nil: only what views tell.
	Store *state.Store
	// Every is the time between the status lines of [Plain]; 0 is 10 s.
	Every time.Duration
	// Zone is that of the clock; nil is the machine's.
	Zone *time.Location
}

// refresh is the time between two looks at the source.
const refresh = 200 * time.Millisecond

// Run shows the job until its user presses q or Ctrl-C, Options.EndsWhen is closed or ctx ends: all of these return nil, and the caller
// decides what they mean. The terminal is as it was before, also after a panic of source, which is returned as an error. in is read for
// keys; nil reads none. Where out is no terminal, Run is Plain. Signals are the caller's: they reach the picture as the end of ctx.
//
// Once it is to end, Run takes a moment at most: one that cannot write to its terminal any more is left behind.
func Run(ctx context.Context, in io.Reader, out io.Writer, source func() *core.View, o Options) error {
	f := terminalOf(out)
	if f == nil {
		return Plain(ctx, out, source, o)
	}
	return restoring(f, func() error { return show(ctx, in, out, source, o) })
}

// show runs the picture on out, which understands a terminal's commands.
func show(ctx context.Context, in io.Reader, out io.Writer, source func() *core.View, o Options) error {
	p := &picture{stage: newStage(in, o.EndsWhen), source: source, options: o}
	err := bounded(ctx, o.EndsWhen, p.quit, func() error { return p.run(ctx, out, p) })
	if err != nil && !errors.Is(err, errStuck) {
		return fmt.Errorf("show the job on the terminal: %w (-plain shows it as lines)", err)
	}
	return err
}

// picture shows a job until it is to end: Bubbletea's model. The goroutine of run owns it.
type picture struct {
	stage
	source  func() *core.View
	options Options
	memory  memory
	screen  string // what is shown
}

// lookMsg has a picture look again.
type lookMsg struct{}

// look has the source looked at in a moment.
func look() tea.Cmd { return tea.Tick(refresh, func(time.Time) tea.Msg { return lookMsg{} }) }

// Init implements tea.Model.
func (p *picture) Init() tea.Cmd { return tea.Batch(p.see(), look(), p.ended) }

// Update implements tea.Model.
func (p *picture) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		p.width, p.height = msg.Width, msg.Height
		return p, p.see()
	case lookMsg:
		return p, tea.Batch(p.see(), look())
	case tea.KeyPressMsg:
		return p, p.heed(msg.String())
	case failure:
		return p, p.fail(msg.err)
	}
	return p, nil
}

// View implements tea.Model.
func (p *picture) View() tea.View { return whole(p.screen) }

// see looks at the source and draws the screen. That one of them panics ends the picture.
func (p *picture) see() tea.Cmd {
	return p.fail(guarded(func() {
		p.memory.see(p.source())
		p.screen = Render(p.frame(), p.width, p.height)
	}))
}

func (p *picture) frame() Frame {
	o := p.options
	f := Frame{View: p.memory.view, Trail: p.memory.trail, Finished: p.memory.finished, Title: o.Title, Hint: o.Hint, Zone: o.Zone, Coloured: o.Coloured}
	if o.Note != nil {
		f.Note = o.Note()
	}
	return f
}

// longestTrail bounds what a picture remembers: twelve hours of a look every five seconds.
const longestTrail = 8640

// memory is what a picture keeps of the views that it was shown.
type memory struct {
	view     *core.View
	trail    []core.Sample
	finished *core.Rescale
}

// see takes a view; nil and one that was seen before change nothing.
func (m *memory) see(v *core.View) {
	if v == nil || v == m.view {
		return
	}
	if n := len(m.trail); n == 0 || v.Sample.At.After(m.trail[n-1].At) {
		s := v.Sample
		s.Applied = nil
		m.trail = append(m.trail, s)
	}
	if over := len(m.trail) - longestTrail; over > 0 {
		m.trail = m.trail[over:]
	}
	if r := v.LastRescale; r != nil && (m.view == nil || m.view.LastRescale == nil || !r.Decided.Equal(m.view.LastRescale.Decided)) {
		m.finished = r
	} else if m.view != nil && m.view.Rescale != nil && (v.Rescale == nil || !v.Rescale.Decided.Equal(m.view.Rescale.Decided)) {
		r := *m.view.Rescale
		if r.Done.IsZero() {
			r.Done = v.Now
		}
		r.Aborted = r.Aborted || v.Rescale != nil
		m.finished = &r
	}
	m.view = v
}
