package view

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// Pages shows a text on the whole of a terminal, and again every so often, until its user presses q or Ctrl-C or ctx ends, which is no error. Where the
// text has more lines than the terminal, its beginning is shown, the last line says so, and the arrow keys go through the rest. text is called by one
// goroutine at a time; that it fails ends Pages with its error. in is read for keys; nil reads none. The terminal is as it was before.
func Pages(ctx context.Context, in io.Reader, out io.Writer, every time.Duration, text func(ctx context.Context) (string, error)) error {
	f := terminalOf(out)
	if f == nil {
		return errors.New("pages are shown on terminals only")
	}
	return restoring(f, func() error { return leaf(ctx, in, out, every, text) })
}

// leaf is Pages on what understands a terminal's commands.
func leaf(ctx context.Context, in io.Reader, out io.Writer, every time.Duration, text func(ctx context.Context) (string, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of a text that is asked for when its user has seen enough
	p := &pages{stage: newStage(in, nil), every: every, text: func() (string, error) { return text(ctx) }}
	return bounded(ctx, nil, p.quit, func() error { return p.run(ctx, out, p) })
}

// pages is Bubbletea's model of a text that is renewed.
type pages struct {
	stage
	every  time.Duration
	text   func() (string, error)
	lines  []string // nil: there is no text yet
	top    int      // the first line that is shown
	asking bool
	stale  bool // the terminal has changed since the text was asked for
	turn   int  // how many texts there were: only the newest has the next one asked for
}

// Messages to pages, beside Bubbletea's own.
type (
	askMsg  struct{ turn int }
	textMsg struct {
		text string
		err  error
	}
)

// ask has the text written again, unless it is just being written.
func (p *pages) ask() tea.Cmd {
	if p.asking {
		p.stale = true
		return nil
	}
	p.asking, p.stale = true, false
	return func() tea.Msg {
		var m textMsg
		if err := guarded(func() { m.text, m.err = p.text() }); err != nil {
			m.err = err
		}
		return m
	}
}

// Init implements tea.Model.
func (p *pages) Init() tea.Cmd { return tea.Batch(p.ask(), p.ended) }

// Update implements tea.Model.
func (p *pages) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		changed := p.width != msg.Width // the text is written for a width
		if p.width, p.height = msg.Width, msg.Height; changed {
			p.stale = true
			return p, p.ask()
		}
	case askMsg:
		if msg.turn == p.turn {
			return p, p.ask()
		}
	case textMsg:
		p.asking = false
		if msg.err != nil {
			return p, p.fail(msg.err)
		}
		p.lines = strings.Split(strings.TrimRight(msg.text, "\n"), "\n")
		if p.stale {
			return p, p.ask()
		}
		p.turn++
		next := askMsg{p.turn}
		return p, tea.Tick(p.every, func(time.Time) tea.Msg { return next })
	case tea.KeyPressMsg:
		return p, p.press(msg.String())
	case failure:
		return p, p.fail(msg.err)
	}
	return p, nil
}

// press goes through the text, or does what every stage does.
func (p *pages) press(key string) tea.Cmd {
	page := max(1, p.room()-1)
	switch key {
	case "down", "j", "enter":
		p.top++
	case "up", "k":
		p.top--
	case "pgdown", "space", "f":
		p.top += page
	case "pgup", "b":
		p.top -= page
	case "home", "g":
		p.top = 0
	case "end", "G":
		p.top = len(p.lines)
	default:
		return p.heed(key)
	}
	p.top = p.within()
	return nil
}

// room is how many lines of the text are shown: all of the terminal's but the last.
func (p *pages) room() int { return max(1, p.height-1) }

// within is the first line that is shown: the end of the text is not above the end of the screen.
func (p *pages) within() int { return max(0, min(p.top, len(p.lines)-p.room())) }

// View implements tea.Model.
func (p *pages) View() tea.View {
	if p.lines == nil {
		return whole(fit("asking …", p.width))
	}
	room, top := p.room(), p.within()
	out := make([]string, room)
	shown := copy(out, p.lines[top:])
	for i := range out {
		out[i] = fit(clean(out[i]), p.width)
	}
	if p.height > 1 {
		out = append(out, p.foot(top, shown))
	}
	return whole(strings.Join(out, "\n"))
}

// foot is the last line: where in the text one is, and what the keys do, as far as there is room.
func (p *pages) foot(top, shown int) string {
	if shown < len(p.lines) {
		at := fmt.Sprintf("lines %d to %d of %d: ", top+1, top+shown, len(p.lines))
		for _, keys := range []string{"↑ ↓ PgUp PgDn Home End show the rest, q ends", "↑ ↓ show the rest, q ends", "↑ ↓, q ends"} {
			if ansi.StringWidth(at+keys) <= p.width {
				return at + keys
			}
		}
	}
	return fit("q ends", p.width)
}
