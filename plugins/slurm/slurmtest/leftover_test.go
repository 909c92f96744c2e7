package slurmtest

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// What a cluster that was killed leaves are its jobs; a program that a person started to use the cluster, with SLURM_CONF in its environment, is left alone.
func TestLeftoversAreJobs(t *testing.T) {
	dir := t.TempDir()
	start := func(env ...string) (ended chan struct{}) {
		t.Helper()
		cmd := exec.Command("sleep", "600")
		cmd.Env = append(os.Environ(), env...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended = make(chan struct{})
		go func() { // ends with the process, below at the latest
			defer close(ended)
			_ = cmd.Wait() // killed or not
		}()
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		return ended
	}
	conf := "SLURM_CONF=" + confIn(dir)
	job, other, own := start(conf, "SLURM_JOB_ID=7"), start("SLURM_CONF=/etc/slurm/slurm.conf", "SLURM_JOB_ID=7"), start(conf)
	if err := EndLeftover(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	select {
	case <-job:
	case <-time.After(time.Minute):
		t.Error("a job of the cluster's is left")
	}
	select {
	case <-other:
		t.Error("another cluster's job was ended")
	case <-own:
		t.Error("a person's program was ended")
	default:
	}
}
