package view

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"
)

// restoring runs what draws on a terminal, and gives the terminal back as it was where that was left behind, which is no error.
func restoring(f *os.File, run func() error) error {
	before, stateErr := term.GetState(f.Fd())
	err := run()
	if errors.Is(err, errStuck) {
		if stateErr == nil {
			_ = term.Restore(f.Fd(), before) // a terminal that is gone needs none
		}
		return nil
	}
	return err
}

// errStuck says that what showed the job was left behind, since it did not end.
var errStuck = errors.New("the terminal takes nothing any more: it is left as it is")

// patience is how long a picture may take to leave its terminal.
const patience = 2 * time.Second

// bounded runs f, whose end is asked for by ctx, ends or what f closes itself: it is waited for only so long after that. Where f is left behind, it
// holds nothing but its output.
func bounded(ctx context.Context, ends, quit <-chan struct{}, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }() // waited for below, save where out blocks it for good
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	case <-ends:
	case <-quit:
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-t.C:
		return errStuck
	}
}

// stage is a whole terminal that something is shown on until it is to end: what a picture and [Pages] have in common. The goroutine of run owns it.
type stage struct {
	keys          *keyboard
	width, height int
	ends          <-chan struct{} // ends it from outside; may be nil
	ended         tea.Cmd         // waits for what ends it from outside
	failed        error           // why it ended itself
	quit          chan struct{}   // closed when its user ends it, or it itself
	quitOnce      *sync.Once
}

func newStage(in io.Reader, ends <-chan struct{}) stage {
	return stage{keys: newKeyboard(in), width: usualWidth, height: usualHeight, ends: ends, quit: make(chan struct{}), quitOnce: new(sync.Once)}
}

// run has the terminal from its beginning to its end, however that comes. Bubbletea is asked to end, and never killed: so it always gives back all that it takes.
func (s *stage) run(ctx context.Context, out io.Writer, model tea.Model) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.ended = func() tea.Msg {
		select {
		case <-ctx.Done():
		case <-s.ends:
		}
		return tea.QuitMsg{}
	}
	err := s.keys.take()
	if err == nil {
		program := tea.NewProgram(model, append(quiet(nil, out), tea.WithFilter(sized))...)
		done := s.keys.listen(program)
		_, err = program.Run()
		done()
	}
	return errors.Join(s.failed, err, s.keys.giveBack())
}

// failure is a message to a stage, beside Bubbletea's own: what it cannot go on after. nil: nothing.
type failure struct{ err error }

// whole is text on a screen of its own.
func whole(text string) tea.View {
	v := tea.NewView(text)
	v.AltScreen = true
	return v
}

// heed does what a key asks for, whatever is shown.
func (s *stage) heed(key string) tea.Cmd {
	switch key {
	case "q", "ctrl+c":
		return s.end()
	case "ctrl+l":
		return tea.ClearScreen
	case "ctrl+z":
		return tea.Exec(suspension{s.keys}, func(err error) tea.Msg { return failure{err} })
	}
	return nil
}

// end is what ends it from inside.
func (s *stage) end() tea.Cmd {
	s.quitOnce.Do(func() { close(s.quit) })
	return tea.Quit
}

// fail ends it with an error; nil ends nothing.
func (s *stage) fail(err error) tea.Cmd {
	if err == nil {
		return nil
	}
	s.failed = errors.Join(s.failed, err)
	return s.end()
}

// guarded runs f; that it panics is an error.
func guarded(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	f()
	return nil
}
