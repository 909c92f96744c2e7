package view

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// What a picture says to its terminal. It asks nothing: a terminal that does not answer would keep it waiting, and the answer of a slow one would be
// typed into the shell that comes after it.
const (
	take     = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[?2004h" // the other screen, without a cursor and without wrapping; what is pasted is marked, and not taken for keys
	giveBack = "\x1b[?2004l\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// Keys that a picture heeds, as bytes.
const (
	keyCtrlC = 0x03
	keyCtrlL = 0x0c
	keyCtrlZ = 0x1a
	keyQ     = 'q'
)

// Size of the screen where out is no terminal, or one that does not know its own.
const (
	usualWidth  = 80
	usualHeight = 24
)

// canvas draws screens on a terminal. One goroutine owns it.
type canvas struct {
	out           io.Writer
	tty           *os.File // out, where it is a terminal; else nil
	keys          *os.File // where keys are typed, if that is a terminal; else nil
	cooked        *term.State
	width, height int
	drawn         []string // the lines that are on the screen; nil: nothing is known of it
}

func newCanvas(in io.Reader, out io.Writer) *canvas {
	c := &canvas{out: out, width: usualWidth, height: usualHeight}
	c.tty, c.keys = terminalOf(out), terminalOf(in)
	return c
}

// terminalOf is v where that is a terminal.
func terminalOf(v any) *os.File {
	if f, ok := v.(*os.File); ok && f != nil && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// take makes the terminal the picture's.
func (c *canvas) take() error {
	if c.keys != nil {
		before, err := term.MakeRaw(int(c.keys.Fd()))
		if err != nil {
			return fmt.Errorf("read keys one by one: %w", err)
		}
		c.cooked = before
	}
	c.drawn = nil
	_, err := io.WriteString(c.out, take)
	return err
}

// giveBack leaves the terminal as it was.
func (c *canvas) giveBack() error {
	_, err := io.WriteString(c.out, giveBack)
	if c.cooked != nil {
		err = errors.Join(err, term.Restore(int(c.keys.Fd()), c.cooked))
		c.cooked = nil
	}
	return err
}

// size is how large the screen is now.
func (c *canvas) size() (width, height int) {
	if c.tty != nil {
		if w, h, err := term.GetSize(int(c.tty.Fd())); err == nil && w > 0 && h > 0 {
			return w, h
		}
	}
	return usualWidth, usualHeight
}

// draw shows a screen, of which only the lines that changed are written.
func (c *canvas) draw(render func(width, height int) string) error {
	var b bytes.Buffer
	if w, h := c.size(); c.drawn == nil || w != c.width || h != c.height {
		c.width, c.height, c.drawn = w, h, nil
		b.WriteString("\x1b[2J")
	}
	lines := strings.Split(render(c.width, c.height), "\n")
	for i := range max(len(lines), len(c.drawn)) {
		line, before := "", ""
		if i < len(lines) {
			line = lines[i]
		}
		if i < len(c.drawn) {
			before = c.drawn[i]
		}
		if line != before {
			fmt.Fprintf(&b, "\x1b[%d;1H\x1b[K%s\x1b[m", i+1, line)
		}
	}
	c.drawn = lines
	if b.Len() == 0 {
		return nil
	}
	_, err := c.out.Write(b.Bytes())
	return err
}

// suspendFor is how long a suspended process waits to be woken: one whose session has no shell any more is not suspended at all.
const suspendFor = 300 * time.Millisecond

// suspend gives the terminal back and stops this process group, as Ctrl-Z does to a command without a picture, until it is called back.
func (c *canvas) suspend() error {
	if err := c.giveBack(); err != nil {
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
	return c.take()
}

// keyPoll is how soon a terminal is no longer read once nobody wants its keys.
const keyPoll = 100 * time.Millisecond

// listen gives what is typed, until done is called. The channel is never closed: who types nothing more only says nothing more.
func (c *canvas) listen(in io.Reader) (typed <-chan byte, done func()) {
	ctx, cancel := context.WithCancel(context.Background())
	read, waited := in, 3*keyPoll
	_, isFile := in.(*os.File)
	switch {
	case in == nil, isFile && c.keys == nil: // what is in a file or in a pipe was not typed
		return nil, cancel
	case isFile:
		read = patientReader{ctx, c.keys}
	default:
		waited = 0 // it ends when whoever has it closes it
	}
	keys, over := make(chan byte), make(chan struct{})
	go func() { // ends with ctx or with what it reads
		defer close(over)
		hear(ctx, read, keys)
	}()
	return keys, func() {
		cancel()
		select {
		case <-over:
		case <-time.After(waited): // somebody else took the key that it was to read
		}
	}
}

// hear sends keys until ctx ends or nothing more can be read.
func hear(ctx context.Context, in io.Reader, keys chan<- byte) {
	var k keyboard
	chunk := make([]byte, 256)
	for {
		n, err := in.Read(chunk)
		for _, key := range k.keys(chunk[:n]) {
			select {
			case keys <- key:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// patientReader reads from a terminal and stops waiting for it when ctx ends, so that no key that comes after is lost.
type patientReader struct {
	ctx context.Context
	f   *os.File
}

func (r patientReader) Read(p []byte) (int, error) {
	fd := int(r.f.Fd())
	for r.ctx.Err() == nil {
		var ready unix.FdSet // poll does not know terminals on every system
		ready.Set(fd)
		wait := unix.NsecToTimeval(keyPoll.Nanoseconds())
		switch n, err := unix.Select(fd+1, &ready, nil, nil, &wait); {
		case err != nil && !errors.Is(err, unix.EINTR):
			return 0, err
		case err == nil && n > 0:
			return r.f.Read(p)
		}
	}
	return 0, r.ctx.Err()
}

// keyboard tells keys from what terminals send for arrows, for keys with Alt, and around what is pasted.
type keyboard struct{ pasting bool }

// Marks around what is pasted, without their escape.
const (
	pasteBegins = "[200~"
	pasteEnds   = "[201~"
)

// keys are the bytes of a chunk that stand for themselves.
func (k *keyboard) keys(chunk []byte) (out []byte) {
	for len(chunk) > 0 {
		b := chunk[0]
		chunk = chunk[1:]
		if b != 0x1b {
			if !k.pasting {
				out = append(out, b)
			}
			continue
		}
		n := sequence(chunk)
		switch string(chunk[:n]) {
		case pasteBegins:
			k.pasting = true
		case pasteEnds:
			k.pasting = false
		}
		chunk = chunk[n:]
	}
	return out
}

// sequence is how many bytes after an escape belong to it.
func sequence(after []byte) int {
	switch {
	case len(after) == 0:
		return 0 // the key itself
	case after[0] == '[':
		for i := 1; i < len(after); i++ {
			if after[i] >= 0x40 && after[i] <= 0x7e {
				return i + 1
			}
		}
		return len(after)
	case after[0] == 'O':
		return min(2, len(after))
	}
	return 1 // with Alt
}

// guarded runs f; that it panics is an error.
func guarded(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return f()
}
