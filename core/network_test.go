package core

import (
	"strings"
	"testing"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
)

// On backend "local" an interface that this machine does not have is a mistake of the job file; elsewhere the nodes have it, or not.
func TestInterfaceThatIsNotThere(t *testing.T) {
	t.Setenv(rpc.InterfaceEnv, "")
	for _, tt := range []struct {
		backend, via, env string
		wrong             bool
	}{
		{job.BackendLocal, "", "", false},
		{job.BackendLocal, "lo", "", false},
		{job.BackendLocal, "127.0.0.0/8", "", false},
		{job.BackendLocal, "ib9", "", true},
		{job.BackendLocal, "198.51.100.0/24", "", true},
		{job.BackendLocal, "ib9", "lo", false},
		{"slurm", "ib9", "", false},
	} {
		t.Setenv(rpc.InterfaceEnv, tt.env)
		j := &job.Job{}
		j.Backend.Name, j.Network.Interface = tt.backend, tt.via
		diags := CheckNetwork(j)
		if diags.HasErrors() != tt.wrong || tt.wrong && !strings.Contains(diags[0].Detail, "lo 127.0.0.1") {
			t.Errorf("%+v: %v", tt, diags)
		}
	}
}
