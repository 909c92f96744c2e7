package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kale-sched/kale/core/stream"
)

// narrow is an output with so much room.
type narrow struct {
	room int
	text strings.Builder
}

func (n *narrow) Write(p []byte) (int, error) {
	took := min(len(p), n.room)
	n.room -= took
	n.text.Write(p[:took])
	if took < len(p) {
		return took, &fs.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.ENOSPC}
	}
	return took, nil
}

// What cannot be written is lost, said as long as that lasts, and said again where it is missing; a line that was cut off ends there.
func TestOutputWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now().Local()
		clocks := strings.NewReplacer("00:00:01", began.Add(time.Second).Format("15:04:05"), "00:00:03", began.Add(3*time.Second).Format("15:04:05"),
			"00:00:04", began.Add(4*time.Second).Format("15:04:05"), "00:00:05", began.Add(5*time.Second).Format("15:04:05"), "2000-01-01", began.Format("2006-01-02"))
		n := &narrow{room: 8}
		o, beside := newOutlet(n), &narrow{room: 1 << 10}
		o.beside = newOutlet(beside)
		say := func(line string) {
			if took, err := o.Write([]byte(line)); took != len(line) || err != nil {
				t.Errorf("write %q: %d, %v", line, took, err)
			}
			time.Sleep(time.Second)
		}
		say("one\n")
		if got := o.problem(); got != "" {
			t.Errorf("it has room: %s", got)
		}
		say("two and more\n")
		say("three\n")
		want := clocks.Replace("the scheduler's output cannot be written, and its lines are lost since 2000-01-01 00:00:01: write /dev/stdout: no space left on device: free some space there")
		if got := o.problem(); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		n.room = 1 << 10
		if got := o.problem(); got != "" {
			t.Errorf("it has room again: %s", got)
		}
		say("four\n")
		n.room = 0
		say("five\n")
		n.room = 1 << 10
		say("six\n")
		want = clocks.Replace(`one
two 
kale: lines of 00:00:01 to 00:00:03 are missing here, since they could not be written: no space left on device
four
kale: lines of 00:00:04 to 00:00:05 are missing here, since they could not be written: no space left on device
six
`)
		if got := n.text.String(); got != want {
			t.Errorf("%q\nwant %q", got, want)
		}
		want = strings.Repeat("kale: standard output cannot be written, and its lines are lost until it can: write /dev/stdout: no space left on device\n", 2) // once for each time
		if got := beside.text.String(); got != want {
			t.Errorf("beside it %q\nwant %q", got, want)
		}
	})
}

// Nobody waits for who does not read: what comes meanwhile is lost, and told when it is read again; what was being written is not lost.
func TestOutputThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		o := newOutlet(w)
		began := time.Now()
		var all sync.WaitGroup
		for _, line := range []string{"one\n", "two\n", "two\n"} { // the first is stuck, and the others wait for it
			all.Go(func() {
				if n, err := o.Write([]byte(line)); n != len(line) || err != nil {
					t.Errorf("%d, %v", n, err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if took := time.Since(began); took > 2*outletPatience {
			t.Errorf("they waited for %s", took)
		}
		began = time.Now()
		for range 1000 {
			_, _ = o.Write([]byte("lost\n")) // it does not fail
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("what comes when it is known waited for %s", took)
		}
		if got := o.problem(); !strings.Contains(got, "its lines are lost since") || !strings.Contains(got, "who reads it stands still: have it go on") {
			t.Errorf("problem %q", got)
		}
		text := make(chan string)
		go func() {
			b, _ := io.ReadAll(r)
			text <- string(b)
		}()
		synctest.Wait()
		if got := o.problem(); got != "" {
			t.Errorf("it is read again: %s", got)
		}
		_, _ = o.Write([]byte("last\n")) // it does not fail
		_ = w.Close()
		lines := strings.Split(<-text, "\n")
		if len(lines) != 4 || lines[0] != "one" || !strings.Contains(lines[1], "are missing here, since they could not be written: who reads it stands still") || lines[2] != "last" {
			t.Errorf("%q", lines)
		}
	})
}

// Either output that is lost is a problem, and none when it can be written again.
func TestBothOutputsMayBeLost(t *testing.T) {
	for name, which := range map[string]int{"standard output": 0, "standard error": 1} {
		b := [2]*buffer{{}, {}}
		a := &app{printed: &printed{w: b[0]}, err: b[1]}
		a.out = a.printed
		a.outlive()
		b[which].fill(true)
		_, outErr := io.WriteString(a.out, "a line\n")
		_, errErr := io.WriteString(a.err, "a line\n")
		if outErr != nil || errErr != nil {
			t.Errorf("%s: writing fails: %v, %v", name, outErr, errErr)
		}
		if got := a.unheard(); len(got) != 1 || !strings.Contains(got[0], "its lines are lost since") {
			t.Errorf("%s: problems %q", name, got)
		}
		b[which].fill(false)
		if got := a.unheard(); len(got) > 0 || !strings.Contains(b[which].String(), "are missing here") {
			t.Errorf("%s: when it can be written again: problems %q, %q", name, got, b[which])
		}
	}
}

// A job is looked after, whatever becomes of what its scheduler prints: a log's disk that is full, for a while or for good, and a reader that has gone.
func TestRunGoesOnWithoutItsOutput(t *testing.T) {
	t.Parallel()
	needONNX(t)
	addr := broker(t, stream.TopicSpec{Name: "clicks", Partitions: 2})
	s := newShell(t).withPrograms()
	file := lifeAt(t, addr)
	s.must("produce", "-brokers", addr, "-topic", "clicks", "-peak", "300", "-history", "2m", "-duration", "0")
	t.Cleanup(func() { _ = s.runCtx(context.Background(), "stop", "life", "-force") }) // whatever fails, no process may be left
	lost := func() bool {
		r := s.run("status", "life")
		return strings.Contains(strings.Join(strings.Fields(r.out), " "), "output cannot be written, and its lines are lost since")
	}
	follows := func(n string) {
		t.Helper()
		s.must("scale", "life", n)
		if text := s.must("explain", "life").out; text == "" {
			t.Error("it explains nothing")
		}
	}

	run := s.start("run", file, "-plain")
	run.eventually("its first lines", func() bool { return strings.Contains(run.out.String(), "status") })
	run.out.fill(true)
	run.err.fill(true)
	follows("2")
	run.eventually("word of the full disk", lost)
	follows("1")
	run.out.fill(false)
	run.err.fill(false)
	run.eventually("lines again", func() bool {
		return !lost() && strings.Contains(run.out.String(), "are missing here")
	})
	run.interrupt()
	if r := run.end(); r.code != exitDone {
		t.Errorf("exit code %d: %s%s", r.code, r.out, r.err)
	}

	r, full := fullPipe(t)
	for _, into := range []string{"exec \"$0\" run life >/dev/full 2>&1", "\"$0\" run life 2>&1 | true", "exec \"$0\" run life"} {
		cmd := exec.Command("sh", "-c", into, s.exe)
		for name, value := range s.env {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		cmd.Env = slices.Concat(os.Environ(), cmd.Env)
		cmd.Stdout, cmd.Stderr = full, full // which the last of them writes to
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(time.Minute)
		for !lost() && time.Now().Before(deadline) {
			time.Sleep(50 * time.Millisecond)
		}
		if !lost() {
			t.Errorf("%s: its status does not tell:\n%s", into, s.run("status", "life").out)
		}
		follows("2")
		s.must("stop", "life")
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", into, err)
		}
	}
	_ = r.Close()
}

// fullPipe is a pipe that takes nothing more, and nobody reads it.
func fullPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	if err := w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = w.Write(make([]byte, 4096))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return r, w
}
