package core

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

// RoleProbe is the role of the short workloads with which kale doctor tries nodes. A scheduler leaves them alone.
const RoleProbe = backend.RoleProbe

// Processes is what a backend has of a job, but for what kale doctor tries nodes with: that ends by itself, and nothing waits for it.
func Processes(ctx context.Context, b backend.Backend, name string) (list []backend.Status, complete bool, err error) {
	list, complete, err = b.List(ctx, name)
	return slices.DeleteFunc(list, func(st backend.Status) bool { return st.ID.Role == RoleProbe }), complete, err
}

// A probe's needs are small, so that it finds a place beside what runs; CUDA's libraries take more.
const (
	probeMemory     = 512 << 20
	probeCUDAMemory = 2 << 30
	probeGrace      = 5 * time.Second
)

// Probe is one look at a node from inside an allocation: kale-trainer probe, with the specification that the job's own processes get there.
type Probe struct {
	Run        string // names the look; all its probes have the same
	Index      int    // from 0
	Rank       int    // no other look at the same time may have it: a higher generation would replace its probe
	Generation uint64
	Limit      time.Duration // after which it ends by itself
	Meet       string        // HOST:PORT at which it is to call back; "" where the job's processes do not
	Avoid      []string      // nodes to keep off
}

// ProbeWorkload renders a probe for the backend.
func ProbeWorkload(o Options, p Probe) (backend.Workload, error) {
	loads, err := newWorkloads(o.Job, o.Trainer, "", p.Meet, o.Env)
	if err != nil {
		return backend.Workload{}, err
	}
	memory := int64(probeMemory)
	if TrainSpec(o.Job, "").GetWorker().GetDevice() != "cpu" {
		memory = probeCUDAMemory
	}
	return backend.Workload{
		ID:   backend.ID{Role: RoleProbe, Rank: p.Rank, Generation: p.Generation},
		Argv: []string{o.Trainer, "probe", "--run", p.Run, "--index", strconv.Itoa(p.Index), "--limit", p.Limit.String()},
		Env:  o.Env, Files: map[string][]byte{specFile: loads.spec}, Avoid: p.Avoid,
		Resources: backend.Resources{CPUMilli: 1000, MemoryBytes: memory}, StopGrace: probeGrace,
	}, nil
}

// ListenAsScheduler listens where a scheduler of the job would wait for its processes, and gives the address that those are told. Without an address the
// job's processes need none; without a listener somebody else has the port, such as the job's own scheduler.
func ListenAsScheduler(ctx context.Context, j *job.Job) (lis net.Listener, address string, err error) {
	if !meets(j) {
		return nil, "", nil
	}
	r := &rendezvous{lg: slog.New(slog.DiscardHandler), job: j.Name}
	var port int
	lis, err = r.listen(j.Network.Listen, false)
	switch {
	case err == nil:
		port = lis.Addr().(*net.TCPAddr).Port
	case errors.Is(err, syscall.EADDRINUSE):
		_, named, _ := net.SplitHostPort(j.Network.Listen) // it was listened on
		if port, err = strconv.Atoi(named); err != nil {
			return nil, "", err
		}
	default:
		return nil, "", err
	}
	if address, err = advertise(ctx, j, port); err != nil && lis != nil {
		err = errors.Join(err, lis.Close())
		lis = nil
	}
	return lis, address, err
}
