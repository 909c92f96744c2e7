package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/plugins/nomad/nomadtest"
	"github.com/kale-sched/kale/plugins/slurm/slurmtest"
)

// unsized is a pool of two types that does not say how many GPUs there are.
const unsized = `
pool "main" {
  type "fast" {
  }
  type "slow" {
  }
  job "a" {
    type = "fast"
  }
  job "b" {
    type = "slow"
  }
}
`

// onCluster makes the files of two jobs and a pool; the jobs' workers have so many GPUs each, and their backend blocks are those.
func onCluster(t *testing.T, pool string, gpus int, backend, blockA, blockB string) (a, b, file string) {
	t.Helper()
	a, b, file = twoFiles(t, pool)
	for path, block := range map[string]string{a: blockA, b: blockB} {
		text, err := os.ReadFile(path)
		if err == nil {
			text = []byte(strings.NewReplacer("  backend \"local\" {\n", fmt.Sprintf("  backend %q {\n%s", backend, block), "    max = 4\n", fmt.Sprintf("    max  = 4\n    gpus = %d\n", gpus)).Replace(string(text)))
			err = os.WriteFile(path, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return a, b, file
}

// sizes holds what is said of a pool's size against what is expected. The jobs' broker does not answer, which is said after that.
func sizes(t *testing.T, s *shell, a, b, pool string, want ...string) {
	t.Helper()
	says := strings.Join(strings.Fields(s.run("plan", a, b, "-pool", pool).err), " ") // whatever the lines
	for _, w := range want {
		if !strings.Contains(says, w) {
			t.Errorf("it says not %q but: %s", w, says)
		}
	}
}

// A pool whose file does not say how many GPUs there are is as large as a real Slurm says: what the partitions of each type's jobs have.
func TestPoolSizeOnSlurm(t *testing.T) {
	c := privateSlurm(t, slurmtest.Options{Nodes: 3, GPUsPerNode: 2, Conf: []string{
		"PartitionName=fast Nodes=n1 Default=YES State=UP", "PartitionName=slow Nodes=n[2-3] State=UP"}})
	s := newShell(t).withPlugin("kale-backend-slurm")
	block := func(partition string) string {
		return fmt.Sprintf("    shared_dir = %q\n    shared_paths = [\"/\"]\n    bin_dir = %q\n    partition = %q\n", c.Shared(), c.Bin(), partition)
	}
	a, b, pool := onCluster(t, unsized, 1, "slurm", block("fast"), block("slow"))
	sizes(t, s, a, b, pool, `type "fast" of pool "main" has 2 GPUs: what backend "slurm" has for a now`, `type "slow" of pool "main" has 4 GPUs: what backend "slurm" has for b now`)

	// A node that is held by others counts, and one that takes no work does not.
	if _, err := c.Run(t.Context(), "sbatch", "--no-requeue", "--partition=fast", "--gres=gpu:2", "--output=/dev/null", "--chdir=/", "--wrap=exec sleep 1000"); err != nil {
		t.Fatal(err)
	}
	if err := c.Drain(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	sizes(t, s, a, b, pool, `type "fast" of pool "main" has 2 GPUs`, `type "slow" of pool "main" has 2 GPUs`)

	// Both jobs may have either type's: nothing in their blocks asks for one.
	a, b, pool = onCluster(t, unsized, 1, "slurm", block("fast"), block("fast"))
	sizes(t, s, a, b, pool, `warning: Nothing asks for the type`, `Job "b" is to run on "slow" and job "a" on "fast", and their blocks backend "slurm" are the same`)
}

// The same of a real Nomad, by node pools.
func TestPoolSizeOnNomad(t *testing.T) {
	t.Parallel()
	c := privateNomad(t, nomadtest.Options{Clients: 2, GPUs: 2})
	client, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	if _, err := client.NodePools().Register(&api.NodePool{Name: "other"}, nil); err != nil {
		t.Fatal(err)
	}
	s := newShell(t).withPlugin("kale-backend-nomad")
	block := func(address, pool string) string {
		return fmt.Sprintf("    address = %q\n    shared_paths = [\"/\"]\n    node_pool = %q\n", address, pool)
	}
	a, b, pool := onCluster(t, unsized, 1, "nomad", block(c.Address(), "default"), block(c.Address(), "other"))
	sizes(t, s, a, b, pool, `type "fast" of pool "main" has 4 GPUs: what backend "nomad" has for a now`, `Backend "nomad" has none that b may have. Write gpus = … here.`)
	a, b, pool = onCluster(t, unsized, 1, "nomad", block("http://127.0.0.1:1", "default"), block("http://127.0.0.1:1", "other"))
	sizes(t, s, a, b, pool, `pool.hcl:3:3: error: How many GPUs there are is not known`, `backend "nomad" does not say what it has`, "Write gpus = … here.")
}

// Where only a person can count, that is said.
func TestPoolSizeOfSlots(t *testing.T) {
	s := newShell(t)
	a, b, pool := onCluster(t, "pool \"main\" {\n}\n", 0, "local", "", "")
	sizes(t, s, a, b, pool, `pool.hcl:1:1: error: How many GPUs there are is not known`, `Workers of job "a" take no GPUs (workers.gpus), so that this is of slots, which only you can count. Write gpus = … here.`)
	a, _, pool = twoFiles(t, "pool \"main\" {\n  type \"l4\" {\n    gpus = 2\n  }\n  type \"a100\" {\n  }\n  job \"a\" {\n    type = \"l4\"\n  }\n}\n")
	if r := s.runCtx(context.Background(), "run", a, "-pool", pool); r.code != exitFailed || !strings.Contains(r.err, "pool.hcl:5:3: error: How many GPUs there are is not known") || !strings.Contains(r.err, "No job runs on this type") {
		t.Errorf("code %d: %s", r.code, r.err)
	}
}
