package slurm

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

// What a workload is given in secret is seen by nobody else: not in the queue, not in a job's details or script, not in a list of processes.
func TestSecretsStaySecret(t *testing.T) {
	const token, password = "token-0f3b2c1d", "password-99e1aa"
	s := newSite(t, "")
	w := s.workload(s.job, worker(0, 1), conformance.Steady)
	w.Files = map[string][]byte{"spec": []byte(token)}
	w.Env["KAFKA_PASSWORD"] = password
	t.Setenv("KALE_TEST_SECRET", "environment-71be")
	s.ensure(w)
	s.waitState(worker(0, 1), backend.StateRunning)
	id := s.slurm("squeue", "--noheader", "-o", "%i")
	seen := map[string]string{
		"scontrol show job": s.slurm("scontrol", "--details", "show", "job", id),
		"batch script":      s.slurm("scontrol", "write", "batch_script", id, "-"),
		"squeue":            s.slurm("squeue", "--noheader", "-O", "ALL"),
	}
	ps, err := exec.CommandContext(t.Context(), "ps", "-eo", "args").Output()
	if err != nil {
		t.Fatal(err)
	}
	seen["ps"] = string(ps)
	for where, text := range seen {
		for _, secret := range []string{token, password, "environment-71be"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s shows %q", where, secret)
			}
		}
	}
	err = filepath.WalkDir(s.shared(), func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && d.Type()&os.ModeSymlink == 0 && info.Mode().Perm()&0o077 != 0 && path != s.shared() {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A program that keeps failing at once is given up for this ID, and its log says why.
func TestProgramThatNeverRuns(t *testing.T) {
	s := newSite(t, "")
	w := s.workload(s.job, worker(0, 1), conformance.Steady)
	w.Argv = []string{"/opt/no/such/kale-trainer"}
	s.ensure(w)
	st := s.waitState(worker(0, 1), backend.StateFailed)
	if st.ExitCode != 127 || st.Restarts != 5 || !strings.Contains(st.Reason, "in a row on node "+st.Node) {
		t.Errorf("it is %+v", st)
	}
	r, err := s.b.Logs(t.Context(), s.job, worker(0, 1), backend.LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil || !strings.Contains(string(text), "/opt/no/such/kale-trainer") {
		t.Errorf("its log is %q, %v", text, err)
	}
}

// The trainer may come from an address or a path, once, and only with the right sum.
func TestArtifact(t *testing.T) {
	r := newRig(t)
	program := filepath.Join(r.dir, "trainer-v1")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho I am the trainer \"$1\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sum, err := exec.CommandContext(t.Context(), "sha256sum", program).Output()
	if err != nil {
		t.Skip("sha256sum is not here: apt-get install coreutils")
	}
	s := &site{T: t, rig: r, job: "j"}
	for rank, sum := range []string{strings.Fields(string(sum))[0], strings.Repeat("0", 64)} {
		s.extra = fmt.Sprintf("artifact {\n source = %q\n checksum = %q\n}", program, sum)
		s.b = s.open()
		w := s.workload(s.job, worker(rank, 1), conformance.Steady)
		w.Argv = []string{trainerName, "worker"}
		s.ensure(w)
		st := s.waitFor(worker(rank, 1), "over", func(st backend.Status) bool { return !st.State.Live() })
		logs, err := s.b.Logs(t.Context(), s.job, worker(rank, 1), backend.LogOptions{})
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(logs)
		if err != nil {
			t.Fatal(err)
		}
		want, state := "I am the trainer worker", backend.StateExited
		if rank == 1 {
			want, state = "has the SHA-256", backend.StateFailed
		}
		if st.State != state || !strings.Contains(string(text), want) {
			t.Errorf("with the sum %s it is %+v, its log %q", sum, st, text)
		}
	}
}

// A drain's deadline is on record: a backend that comes later keeps it, though the workload never obeys and its script is stopped.
func TestDrainDeadlineOutlivesTheBackend(t *testing.T) {
	s := newSite(t, "")
	w := s.workload(s.job, worker(0, 1), conformance.Stubborn)
	w.StopGrace = 2 * time.Second
	s.ensure(w)
	s.waitState(worker(0, 1), backend.StateRunning)
	if err := s.b.Release(t.Context(), s.job, []backend.ID{worker(0, 1)}, backend.Drained); err != nil {
		t.Fatal(err)
	}
	if err := s.b.Close(); err != nil {
		t.Fatal(err)
	}
	b := s.open() // nobody lists: the backend looks after it by itself
	conformance.Eventually(t, "Slurm is rid of it", func() error {
		if out, err := cluster.Run(context.WithoutCancel(t.Context()), "squeue", "--noheader"); err != nil || strings.TrimSpace(out) != "" {
			return fmt.Errorf("%s, %w", out, err)
		}
		return nil
	})
	conformance.Eventually(t, "it is gone", func() error {
		if all, _, err := b.List(t.Context(), s.job); err != nil || len(all) > 0 {
			return fmt.Errorf("List = %+v, %w", all, err)
		}
		return nil
	})
}

// What a workload writes takes a bounded place, however much it is; the newest of it can be read, and who follows goes on reading.
func TestOutputIsBounded(t *testing.T) {
	s := newSite(t, "")
	id := worker(0, 1)
	// Twelve megabytes in three bursts of numbered lines, each when told, then the end.
	script := `trap 'exit 0' TERM; cd "$KALE_ALLOC_DIR"; n=0; for burst in 1 2 3; do until [ -e "go$burst" ]; do sleep 0.1; done; ` +
		`awk -v from=$n 'BEGIN { for (i = from; i < from + 50000; i++) printf "%079d\n", i }'; n=$((n + 50000)); done; until [ -e end ]; do sleep 0.1; done`
	st := s.ensure(backend.Workload{ID: id, Argv: []string{"/bin/sh", "-c", script}})
	if st.Err != nil {
		t.Fatal(st.Err)
	}
	dir := filepath.Join(s.shared(), s.job, id.String())
	signal := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "alloc", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	followed, err := s.b.Logs(t.Context(), s.job, id, backend.LogOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer followed.Close()
	lines := bufio.NewScanner(followed)
	last, torn := -1, 0
	readTo := func(n int) {
		t.Helper()
		for last < n-1 {
			if !lines.Scan() {
				t.Fatalf("the log ended after line %d: %v", last, lines.Err())
			}
			got, err := strconv.Atoi(lines.Text())
			switch {
			case err != nil || len(lines.Text()) != 79:
				torn++ // where it was cut off while the program wrote
			case got <= last:
				t.Fatalf("after line %d comes %d", last, got)
			default:
				last = got
			}
		}
		if torn > 2 {
			t.Errorf("%d lines are torn", torn)
		}
	}
	signal("go1")
	readTo(50_000)
	signal("go2") // seven and a half megabytes: not yet
	readTo(100_000)
	signal("go3")
	readTo(150_000)
	size := func(name string) int64 {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return -1
		}
		return info.Size()
	}
	conformance.Eventually(t, "the older part is there, and the newer begins anew", func() error {
		if size("output.log.1") < maxOutput || size("output.log.1") > 2*maxOutput+80 || size("output.log") < 0 || size("output.log") > maxOutput {
			return fmt.Errorf("they have %d and %d bytes", size("output.log.1"), size("output.log"))
		}
		return nil
	})
	signal("end")
	if s.waitState(id, backend.StateExited); lines.Scan() {
		t.Errorf("after its end the log has %q", lines.Text())
	}
	tail, err := s.b.Logs(t.Context(), s.job, id, backend.LogOptions{Tail: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Close()
	if got, err := io.ReadAll(tail); err != nil || string(got) != fmt.Sprintf("%079d\n%079d\n", 149_998, 149_999) {
		t.Errorf("its last lines are %q, %v", got, err)
	}
}
