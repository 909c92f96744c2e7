package e2e_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/stream/kafkatest"
	"github.com/kale-sched/kale/plugins/nomad/nomadtest"
)

// On a Nomad whose tasks run in containers of an image that holds the trainer and ONNX Runtime, a job trains, grows, shrinks, outlives the end of a container that
// somebody kills, and trains every record once.
func TestTrainsInContainers(t *testing.T) {
	t.Parallel()
	if why := nomadtest.MissingDocker(); why != "" {
		t.Skip(why)
	}
	inside := &site{backend: onNomad.backend}
	inside.start = func(r *rig) *site {
		trainer, runtime := filepath.Join(r.bins.dir, "kale-trainer"), library(t)
		s, _, _, _ := nomadOf(r, nomadtest.Options{
			Clients: nomadNodes, GPUs: stormWorkers, Drivers: []string{"docker"}, Extra: []string{trainer, runtime}, Volumes: map[string]string{"job": r.dir},
		})
		s.block = strings.Replace(s.block, "{ ", fmt.Sprintf("{ %s = %q, ", onnx.LibraryEnv, "/bin/"+filepath.Base(runtime)), 1) +
			fmt.Sprintf("    driver = \"docker\"\n    image  = %q\n    volume \"job\" {\n      path = %q\n    }\n", nomadtest.Image, r.dir)
		return s
	}
	r := newRig(t, kafkatest.Embedded(t), options{model: job.ModelLR, min: 1, max: 3, site: inside})
	r.run()
	r.scale(3)
	r.awaitSteady("three workers train", 3)
	p := r.steadyTraffic(300)
	before := r.process("worker", 1).ID
	r.signal(r.inContainer(before), syscall.SIGKILL)
	r.await("the worker that was killed runs again", func() string {
		if st := r.process("worker", 1); st.Restarts == 0 && st.ID == before {
			return st.String()
		}
		return ""
	})
	r.awaitSteady("it trains again", 3)
	r.awaitMore(600)
	r.scale(1)
	r.awaitSteady("one worker trains", 1)
	r.finish(p, nil, 600)
}

// inContainer is the process of a workload as this machine sees it, whatever its number in its container is.
func (r *rig) inContainer(id backend.ID) int {
	r.t.Helper()
	begins := fmt.Sprintf("kale-trainer worker --rank %d --generation %d", id.Rank, id.Generation)
	for pid, cmdline := range processes(r.dir) {
		if strings.HasPrefix(cmdline, begins) {
			return pid
		}
	}
	r.fatalf("no process of %s is seen", id)
	return 0
}
