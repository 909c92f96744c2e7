package demo

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/kale-sched/kale/examples"
)

// Cluster is what a demo's job runs on. Run starts it before the job, and closes it after the job has released everything, on every path.
type Cluster interface {
	// Start returns when the cluster takes jobs. dir is an empty folder of its own, which the demo's caller removes after Close. When it fails, what it had
	// started is ended by Close.
	Start(ctx context.Context, dir string) (Place, error)
	// Close ends every process that Start started. It is called once, also after a Start that failed.
	Close() error
	// EndLeftover ends every process of the job and of the cluster that an earlier process has left which ran a demo with these options and was killed. It needs no
	// Start, and touches nothing else.
	EndLeftover(ctx context.Context, o Options) error
}

// Place is what the demo needs to know of a cluster that runs.
type Place struct {
	// Backend is the label of the job file's backend block, and Block its body in HCL.
	Backend, Block string
	// Checkpoint is a folder that every node of the cluster and this process reach. It need not exist.
	Checkpoint string
	// GPUs is how many (fake) GPUs a worker asks for. The accelerator is emulated in any case.
	GPUs int
	// Env is given to the plugin's process beside this one's environment, "NAME=value".
	Env []string
}

// Local is this machine: nothing to start, nothing to end.
type Local struct{}

// Start implements Cluster.
func (Local) Start(_ context.Context, dir string) (Place, error) {
	return Place{Backend: "local", Checkpoint: filepath.Join(dir, "checkpoint")}, nil
}

// Close implements Cluster.
func (Local) Close() error { return nil }

// jobFile is examples/demo.hcl for a place.
func jobFile(p Place) ([]byte, error) {
	fail := func(err error) ([]byte, error) {
		return nil, fmt.Errorf("write the demo's job file for backend %q: %w", p.Backend, err)
	}
	f, diags := hclwrite.ParseConfig(examples.Demo, "demo.hcl", hcl.InitialPos)
	if diags.HasErrors() {
		return fail(diags)
	}
	block, diags := hclwrite.ParseConfig([]byte(p.Block), "backend.hcl", hcl.InitialPos)
	if diags.HasErrors() {
		return fail(diags)
	}
	job := f.Body().FirstMatchingBlock("job", []string{"demo"})
	if job == nil {
		return fail(errors.New("it has no job \"demo\""))
	}
	workers, backend := job.Body().FirstMatchingBlock("workers", nil), job.Body().FirstMatchingBlock("backend", []string{"local"})
	if workers == nil || backend == nil {
		return fail(errors.New("it has no workers, or no backend \"local\""))
	}
	workers.Body().SetAttributeValue("gpus", cty.NumberIntVal(int64(p.GPUs)))
	backend.SetLabels([]string{p.Backend})
	backend.Body().AppendUnstructuredTokens(block.BuildTokens(nil))
	return hclwrite.Format(f.Bytes()), nil
}
