package view

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/term"
	"golang.org/x/sys/unix"
)

// Size of the screen where out is no terminal, or one that does not know its own.
const (
	usualWidth  = 80
	usualHeight = 24
)

// quiet are the options under which Bubbletea only draws. It would ask the terminal for its modes, and for its keyboard if it read the keys itself:
// the answer of a slow terminal would be typed into the shell that comes after the picture. It asks for no modes where it believes the terminal to be
// behind SSH and is told no kind of terminal, and [keyboard] reads the keys. Colours are Options.Coloured's matter, and signals the caller's.
func quiet(in io.Reader, out io.Writer) []tea.ProgramOption {
	return []tea.ProgramOption{
		tea.WithInput(in), tea.WithOutput(out), tea.WithEnvironment([]string{"SSH_TTY="}), tea.WithColorProfile(colorprofile.TrueColor),
		tea.WithWindowSize(usualWidth, usualHeight), tea.WithoutSignalHandler(),
	}
}

// sized gives a terminal that does not know its size the usual one.
func sized(_ tea.Model, msg tea.Msg) tea.Msg {
	if size, ok := msg.(tea.WindowSizeMsg); ok && (size.Width <= 0 || size.Height <= 0) {
		return tea.WindowSizeMsg{Width: usualWidth, Height: usualHeight}
	}
	return msg
}

// terminalOf is v where that is a terminal.
func terminalOf(v any) *os.File {
	if f, ok := v.(*os.File); ok && f != nil && term.IsTerminal(f.Fd()) {
		return f
	}
	return nil
}

// Foreground says whether a terminal's keys are ours: one that has us in the background, as after kale run &, stops who takes them. One that controls no processes of
// ours takes any.
func Foreground(terminal *os.File) bool {
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}

// keyboard is where keys are typed for a picture.
type keyboard struct {
	in     io.Reader   // nil: there are none
	tty    *os.File    // in, where that is a terminal; else nil
	cooked *term.State // how the terminal was before take; nil: it is so
}

func newKeyboard(in io.Reader) *keyboard {
	k := &keyboard{in: in, tty: terminalOf(in)}
	if _, isFile := in.(*os.File); isFile && k.tty == nil {
		k.in = nil // what is in a file or in a pipe was not typed
	}
	return k
}

// take has the terminal give keys one by one, and not show them. A line's end goes on returning to its first column: so Bubbletea takes it to be.
func (k *keyboard) take() error {
	if k.tty == nil {
		return nil
	}
	fd := k.tty.Fd()
	before, err := term.MakeRaw(fd)
	if err != nil {
		return fmt.Errorf("read keys one by one: %w", err)
	}
	k.cooked = before
	raw, err := term.GetState(fd)
	if err == nil {
		raw.Oflag |= unix.OPOST | unix.ONLCR
		err = term.SetState(fd, raw)
	}
	if err != nil {
		return fmt.Errorf("read keys one by one: %w", err)
	}
	return nil
}

// giveBack leaves the terminal as take found it.
func (k *keyboard) giveBack() error {
	if k.cooked == nil {
		return nil
	}
	before := k.cooked
	k.cooked = nil
	return term.Restore(k.tty.Fd(), before)
}

// listen sends what is typed to a program until done is called, which waits for its end: what is typed after that is for others.
func (k *keyboard) listen(to *tea.Program) (done func()) {
	if k.in == nil {
		return func() {}
	}
	typed := tea.NewProgram(typist{to}, append(quiet(k.in, io.Discard), tea.WithoutRenderer())...)
	over := make(chan struct{})
	go func() { // ends with done
		defer close(over)
		if _, err := typed.Run(); err != nil && !errors.Is(err, tea.ErrProgramKilled) { // killed: the terminal is gone, of which a signal tells
			to.Send(failure{fmt.Errorf("read keys: %w", err)})
		}
	}()
	return func() {
		typed.Quit()
		<-over
	}
}

// typist is a program that draws nothing, and sends each key to another.
type typist struct{ to *tea.Program }

// Init implements tea.Model.
func (t typist) Init() tea.Cmd { return nil }

// View implements tea.Model.
func (t typist) View() tea.View { return tea.View{} }

// Update implements tea.Model.
func (t typist) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	if key, ok := msg.(tea.KeyPressMsg); ok {
		t.to.Send(key)
	}
	return t, nil
}

// suspendFor is how long a suspended process waits to be woken: one whose session has no shell any more is not suspended at all, and would wait for
// good with Bubbletea's own command for this.
const suspendFor = 300 * time.Millisecond

// suspension stops this process group, as Ctrl-Z does to a command without a picture, until it is called back. It is a tea.ExecCommand: while it runs,
// the picture is off.
type suspension struct{ keys *keyboard }

// Run implements tea.ExecCommand.
func (s suspension) Run() error {
	if err := s.keys.giveBack(); err != nil {
		return err
	}
	woken := make(chan os.Signal, 1)
	signal.Notify(woken, syscall.SIGCONT)
	defer signal.Stop(woken)
	_ = syscall.Kill(0, syscall.SIGTSTP) // the group is our own
	select {
	case <-woken:
	case <-time.After(suspendFor):
	}
	return s.keys.take()
}

// SetStdin implements tea.ExecCommand.
func (s suspension) SetStdin(io.Reader) {}

// SetStdout implements tea.ExecCommand.
func (s suspension) SetStdout(io.Writer) {}

// SetStderr implements tea.ExecCommand.
func (s suspension) SetStderr(io.Writer) {}
