package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// envKilledDemo makes the test below the demo that it kills.
const envKilledDemo = "KALE_TEST_DEMO_TO_KILL"

// A demo that is killed leaves no process and no folder.
func TestDemoThatIsKilled(t *testing.T) {
	t.Parallel()
	if os.Getenv(envKilledDemo) != "" {
		s := newShell(t)
		s.exe = os.Getenv(envKilledDemo)
		var out, err buffer
		t.Error(s.app(&out, &err).demo(t.Context(), demoFlags{plain: true, report: filepath.Join(t.TempDir(), "demo.html"), seed: 1, log: "error", backend: "local", peak: 20}), out.String(), err.String())
		return
	}
	needONNX(t)
	s := newShell(t).withPrograms()
	temp := shortDir(t) // the demo's folder is the only thing in it
	cmd := exec.Command(os.Args[0], "-test.run=^TestDemoThatIsKilled$")
	cmd.Env = append(os.Environ(), envKilledDemo+"="+s.exe, "TMPDIR="+temp)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &said, &said, time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the demo, which the cleanup ends at the latest
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	servers := func() (n int) {
		for _, line := range processesOf(temp) {
			if strings.Contains(line, "kale-trainer") {
				n++
			}
		}
		return n
	}
	for deadline := time.Now().Add(2 * time.Minute); servers() < 2; time.Sleep(20 * time.Millisecond) {
		select {
		case err := <-ended:
			t.Fatalf("the demo ended before its processes ran: %v\n%s", err, said.String())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("the demo starts no processes within two minutes")
		}
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Fatal("a demo that was killed says that it ended well")
	}
	folders := func() []string {
		found, _ := filepath.Glob(filepath.Join(temp, "kale-demo-*")) // the pattern is right
		return found
	}
	for deadline := time.Now().Add(2 * time.Minute); len(processesOf(temp))+len(folders()) > 0; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("two minutes after the demo was killed there are %q and %q", processesOf(temp), folders())
		}
	}
}

// processesOf are the command lines of the processes that name a folder in it, or work in one below it.
func processesOf(dir string) (lines []string) {
	all, _ := filepath.Glob("/proc/[0-9]*") // the pattern is right
	for _, proc := range all {
		raw, err := os.ReadFile(filepath.Join(proc, "cmdline"))
		if pid, e := strconv.Atoi(filepath.Base(proc)); err != nil || e != nil || pid == os.Getpid() {
			continue
		}
		line := string(bytes.ReplaceAll(raw, []byte{0}, []byte(" ")))
		if cwd, _ := os.Readlink(filepath.Join(proc, "cwd")); strings.Contains(line, dir) || strings.HasPrefix(cwd, dir) {
			lines = append(lines, line)
		}
	}
	return lines
}

// A guard whose demo has said that it is done ends and touches nothing; one that is kept removes nothing.
func TestDemoGuard(t *testing.T) {
	dir := t.TempDir()
	var out buffer
	if code := demoGuardMain(strings.NewReader("."), &out, []string{"-backend", "local", dir}); code != exitDone || !exists(dir) {
		t.Errorf("after the demo has cleaned up: exit code %d, %s", code, out.String())
	}
	if code := demoGuardMain(strings.NewReader(""), &out, []string{"-backend", "local", "-keep=true", dir}); code != exitDone || !exists(dir) {
		t.Errorf("with -keep: exit code %d, %s", code, out.String())
	}
	if code := demoGuardMain(strings.NewReader(""), &out, []string{"-backend", "local", dir}); code != exitDone || exists(dir) {
		t.Errorf("of a demo that had started nothing yet: exit code %d, %s", code, out.String())
	}
	if code := demoGuardMain(strings.NewReader(""), &out, nil); code != exitUsage || !strings.Contains(out.String(), "is started by kale demo") {
		t.Errorf("started by a person: exit code %d, %s", code, out.String())
	}
}
