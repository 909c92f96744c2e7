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

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/sys/unix"

	"github.com/kale-sched/kale/core/onnx"
)

// mute is a terminal that shows what is written to it and never answers, with a command on it.
type mute struct {
	t     *testing.T
	cmd   *exec.Cmd
	keys  *os.File // the other end of the terminal: what is typed
	shown buffer
	over  chan struct{} // closed when all of the terminal's users have ended
}

// onMute runs kale on a mute terminal of its own.
func (s *shell) onMute(args ...string) *mute {
	s.t.Helper()
	return s.startOnMute(exec.Command(s.exe, args...))
}

// startOnMute starts a command on a mute terminal of its own. Where no Stdin is given, that is the terminal too.
func (s *shell) startOnMute(cmd *exec.Cmd) *mute {
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
	m := &mute{t: s.t, cmd: cmd, keys: master, over: make(chan struct{})}
	if m.cmd.Stdin == nil {
		m.cmd.Stdin = tty
	}
	m.cmd.Stdout, m.cmd.Stderr = tty, tty
	m.cmd.Env = append(os.Environ(), append([]string{"TERM=xterm-256color", "KALE_STATE_DIR=" + s.env["KALE_STATE_DIR"]}, cmd.Env...)...)
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 1}
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
func (m *mute) until(words string) { m.untilTimes(1, words) }

// untilTimes waits until words were shown so many times, be it with the terminal's commands among them or without.
func (m *mute) untilTimes(times int, words string) {
	m.t.Helper()
	deadline := time.After(time.Minute)
	for {
		if shown := m.shown.String(); max(strings.Count(shown, words), strings.Count(ansi.Strip(shown), words)) >= times {
			return
		}
		select {
		case <-m.over:
			m.t.Fatalf("the command ended before it showed %q: %q", words, m.shown.String())
		case <-deadline:
			m.t.Fatalf("%q is not shown after a minute: %q", words, m.shown.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// types types keys.
func (m *mute) types(keys string) {
	m.t.Helper()
	if _, err := io.WriteString(m.keys, keys); err != nil {
		m.t.Fatal(err)
	}
}

// resize changes the terminal's size.
func (m *mute) resize(width, height uint16) {
	m.t.Helper()
	if err := unix.IoctlSetWinsize(int(m.keys.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: width}); err != nil {
		m.t.Fatal(err)
	}
}

// usual fails unless the terminal is as a shell has it: lines are edited and shown, Ctrl-C is a signal, and the usual screen is on.
func (m *mute) usual(when string) {
	m.t.Helper()
	modes, err := unix.IoctlGetTermios(int(m.keys.Fd()), unix.TCGETS)
	if err != nil {
		m.t.Fatal(err)
	}
	if want := uint32(unix.ICANON | unix.ECHO | unix.ISIG); modes.Lflag&want != want || modes.Iflag&unix.ICRNL == 0 || modes.Oflag&unix.OPOST == 0 {
		m.t.Errorf("%s, the terminal's modes are %+v", when, modes)
	}
	shown := m.shown.String()
	if strings.LastIndex(shown, leaveScreen) < strings.LastIndex(shown, enterScreen) {
		m.t.Errorf("%s, the picture's screen is still on: %q", when, shown)
	}
}

// What a picture writes to take a screen of its own, and to leave it.
const (
	enterScreen = "\x1b[?1049h"
	leaveScreen = "\x1b[?1049l"
)

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

	watch := s.onMute("status", "-watch", "-every", "20ms")
	watch.until("q ends")
	watch.types("q")
	asks(watch.end())
	watch.usual("after status -watch")

	folder := shortDir(t) // on a terminal, a run writes into its own state folder
	file := filepath.Join(folder, "job.hcl")
	if err := os.WriteFile(file, []byte(changed(t, text, `dir = "checkpoints"`, fmt.Sprintf("dir = %q", filepath.Join(folder, "checkpoints")))), 0o600); err != nil {
		t.Fatal(err)
	}
	const farewell, hint = "has ended; ", "q or Ctrl-C ends the scheduler"
	for name, c := range map[string]struct {
		cmd *exec.Cmd
		end func(m *mute)
	}{
		"interrupt": {exec.Command(s.exe, "run", file), func(m *mute) {
			if err := m.cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		}},
		"Ctrl-C": {exec.Command(s.exe, "run", file), func(m *mute) {
			m.types("\x1a") // no shell could wake it again: it does not stop
			m.untilTimes(2, enterScreen)
			m.types("\x03")
		}},
		"q": {exec.Command(s.exe, "run", file), func(m *mute) {
			m.resize(29, 30)
			m.until("q or Ctrl-C ends the schedul…")
			m.resize(0, 0) // unknown
			m.resize(100, 30)
			m.types("\x1b[200~quit\x1b[201~\x1b[Aq") // what is pasted is no key, and neither is an arrow
		}},
		"suspension": {exec.Command("sh", "-c", `set -m; "$0" run "$1"; echo it is stopped; read go; fg && echo it came back`, s.exe, file), func(m *mute) {
			m.types("\x1a")
			m.until("it is stopped")
			m.usual("suspended")
			m.types("\n")
			m.untilTimes(2, enterScreen)
			m.types("q")
		}},
		"Ctrl-C, with no keys read": {&exec.Cmd{Path: s.exe, Args: []string{s.exe, "run", file}, Stdin: strings.NewReader("q")}, func(m *mute) { m.types("\x03") }},
	} {
		c.cmd.Env = []string{"TERM=xterm-kitty"} // one that answers whatever it is asked
		run := s.startOnMute(c.cmd)
		run.until(hint)
		run.until("training  ") // its scheduler has looked: before, a run ends in other words
		c.end(run)
		shown := run.end()
		run.usual("after " + name)
		asks(shown)
		after := shown[strings.LastIndex(shown, leaveScreen)+1:]
		if !strings.Contains(after, farewell) || !strings.Contains(after, "takes it up again") {
			t.Errorf("after %s it shows %q", name, after)
		}
	}
}

// What runs in the background of a terminal shows lines, and is not stopped for taking the keys of who is in the foreground.
func TestInTheBackgroundOfATerminal(t *testing.T) {
	s := newShell(t).withPrograms()
	m := s.startOnMute(exec.Command("sh", "-c", `set -m; "$0" status -watch -every 20ms & read go; kill $!; wait $!; echo it ended`, s.exe))
	m.untilTimes(3, "no job is known")
	m.types("\n")
	if shown := m.end(); strings.Contains(shown, enterScreen) || !strings.Contains(shown, "it ended") {
		t.Errorf("it shows a picture, or has not ended: %q", shown)
	}
}

// What a command answers in words is wrapped as its advice is.
func TestAnswersFitTheTerminal(t *testing.T) {
	s := newShell(t).withPrograms()
	file := filepath.Join(t.TempDir(), strings.Repeat("a-long-way/", 6), "ctr.hcl")
	if err := saveInvocation(filepath.Join(s.env["KALE_STATE_DIR"], "ctr"), invocation{File: file}); err != nil {
		t.Fatal(err)
	}
	shown := s.onMute("forget", "ctr", "-force").end()
	if !strings.Contains(shown, "is forgotten; ") {
		t.Errorf("it is not said: %q", shown)
	}
	for _, line := range strings.Split(shown, "\r\n") {
		if len(line) > 100 && strings.Contains(strings.TrimSpace(line), " ") {
			t.Errorf("%q", line)
		}
	}
}
