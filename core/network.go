package core

import (
	"fmt"
	"os"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
)

// CheckNetwork says at network.interface that this machine, on which all processes of a job on backend "local" run, has nothing by that name.
func CheckNetwork(j *job.Job) hcl.Diagnostics {
	if j.Backend.Name != job.BackendLocal || j.Network.Interface == "" || os.Getenv(rpc.InterfaceEnv) != "" {
		return nil
	}
	have, err := rpc.HostAddresses()
	if err == nil {
		_, err = rpc.ChooseAddress(j.Network.Interface, have)
	}
	if err != nil {
		return hcl.Diagnostics{j.ErrorAt("network.interface", "No such interface on this machine", fmt.Sprintf("On backend \"local\" every process listens here: %v.", err))}
	}
	return nil
}
