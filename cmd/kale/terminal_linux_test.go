package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kale-sched/kale/core/onnx"
)

// mute is a terminal that shows what is written to it and never answers, with a command on it.
type mute struct {
	t     *testing.T
	cmd   *exec.Cmd
	keys  io.Writer // what is typed
	shown buffer
	over  chan struct{} // closed when all of the terminal's users have ended
}

// onMute runs kale on a mute terminal of its own.
func (s *shell) onMute(args ...string) *mute {
	s.t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		s.t.Skipf("no terminal can be made here: %v", err)
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = errors.Join(unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0), unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 100}))
	}
	if err != nil {
		s.t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	m := &mute{t: s.t, cmd: exec.Command(s.exe, args...), keys: master, over: make(chan struct{})}
	m.cmd.Stdin, m.cmd.Stdout, m.cmd.Stderr = tty, tty, tty
	m.cmd.Env = append(os.Environ(), "TERM=xterm-256color", "KALE_STATE_DIR="+s.env["KALE_STATE_DIR"])
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := m.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	_ = tty.Close()
	go func() { // ends when nobody has the terminal open any more
		defer close(m.over)
		_, _ = io.Copy(&m.shown, master)
	}()
	s.t.Cleanup(func() {
		_ = m.cmd.Process.Kill()
		<-m.over
		_ = master.Close()
	})
	return m
}

// until waits for words on the terminal.
func (m *mute) until(words string) {
	m.t.Helper()
	deadline := time.After(time.Minute)
	for !strings.Contains(m.shown.String(), words) {
		select {
		case <-m.over:
			m.t.Fatalf("the command ended before it showed %q: %q", words, m.shown.String())
		case <-deadline:
			m.t.Fatalf("%q is not shown after a minute: %q", words, m.shown.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// end gives what was shown when the command has ended well.
func (m *mute) end() string {
	m.t.Helper()
	if err := m.cmd.Wait(); err != nil {
		m.t.Errorf("kale %s: %v: %q", quoted(m.cmd.Args[1:]), err, m.shown.String())
	}
	<-m.over
	return m.shown.String()
}

// questions are what a program may ask a terminal: colours, attributes, modes, its name, the cursor's place, its keyboard.
var questions = []string{"\x1b]10;?", "\x1b]11;?", "\x1b]4;", "\x1b[c", "\x1b[0c", "\x1b[>c", "\x1b[>0q", "\x1b[6n", "\x1b[?6n", "$p", "\x1bP+q", "\x1b[?u", "\x1b[18t", "\x1b[14t"}

// No command asks a terminal anything: on one that never answers it would wait, and the answer of a slow one would be typed into the shell after it.
func TestTerminalThatAnswersNothing(t *testing.T) {
	lib, err := onnx.Locate()
	if err != nil {
		t.Skipf("ONNX Runtime is missing, so that no job can be run: make deps installs it (%v)", err)
	}
	t.Setenv(onnx.LibraryEnv, lib)
	s := newShell(t).withPrograms()
	_, text := scaffolded(t, s)
	asks := func(shown string) {
		t.Helper()
		for _, q := range questions {
			if at := strings.Index(shown, q); at >= 0 {
				t.Errorf("it asks the terminal %q: %q", q, shown[:min(len(shown), at+40)])
			}
		}
	}
	for _, args := range [][]string{{"version"}, {"status"}, {"validate", write(t, text)}} {
		shown := s.onMute(args...).end()
		asks(shown)
		if len(bytes.TrimSpace([]byte(shown))) == 0 {
			t.Errorf("kale %s says nothing", quoted(args))
		}
	}

	folder := shortDir(t) // on a terminal, a run writes into its own state folder
	file := filepath.Join(folder, "job.hcl")
	if err := os.WriteFile(file, []byte(changed(t, text, `dir = "checkpoints"`, fmt.Sprintf("dir = %q", filepath.Join(folder, "checkpoints")))), 0o600); err != nil {
		t.Fatal(err)
	}
	const farewell = "has ended; "
	for name, end := range map[string]func(m *mute) error{
		"interrupt": func(m *mute) error { return m.cmd.Process.Signal(syscall.SIGINT) },
		"Ctrl-C":    func(m *mute) error { _, err := io.WriteString(m.keys, "\x03"); return err },
		"q": func(m *mute) error {
			_, err := io.WriteString(m.keys, "\x1b[200~quit\x1b[201~\x1b[Aq") // what is pasted is no key, and neither is an arrow
			return err
		},
	} {
		run := s.onMute("run", file)
		run.until("q or Ctrl-C ends the scheduler")
		if err := end(run); err != nil {
			t.Fatal(err)
		}
		shown := run.end()
		asks(shown)
		_, after, left := strings.Cut(shown, "\x1b[?1049l")
		if !left || !strings.Contains(after, farewell) || !strings.Contains(after, "takes it up again") {
			t.Errorf("after %s it shows %q", name, after)
		}
	}
}
