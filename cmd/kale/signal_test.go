package main

import (
	"bufio"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
)

// A terminal that is closed ends a command as cleanly as Ctrl-C does, also when it says so twice; under nohup it ends nothing.
func TestClosedTerminal(t *testing.T) {
	s := newShell(t).withPrograms()
	// Whoever started the tests may ignore hups (nohup), which what they start would inherit: what is caught is not inherited.
	hups := make(chan os.Signal, 1)
	signal.Notify(hups, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hups) })
	for name, c := range map[string]struct {
		shell string
		ends  []syscall.Signal // all but the last end nothing where hups are ignored
	}{
		"closed":       {`exec "$0" status -watch -every 20ms`, []syscall.Signal{syscall.SIGHUP}},
		"closed twice": {`exec "$0" status -watch -every 20ms`, []syscall.Signal{syscall.SIGHUP, syscall.SIGHUP}},
		"nohup":        {`trap "" HUP; exec "$0" status -watch -every 20ms`, []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM}},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("sh", "-c", c.shell, s.exe)
			cmd.Env = append(os.Environ(), "KALE_STATE_DIR="+filepath.Join(t.TempDir(), "state"))
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			lines := bufio.NewScanner(out)
			for _, sig := range c.ends {
				if !lines.Scan() && name == "nohup" {
					t.Error("it ended before its last signal")
				}
				_ = cmd.Process.Signal(sig) // it may have ended by the first of two
			}
			for lines.Scan() { // until it has ended
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}
