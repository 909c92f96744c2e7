package core

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
)

// specFile is the file of an allocation that holds the job's specification for its trainer.
const specFile = "spec.json"

// Timing of membership. A beat is short, since it bounds how long a partition rests when it changes hands; a lease is long enough for a
// busy machine to miss many beats.
const (
	beat         = 50 * time.Millisecond
	leaseTimeout = 5 * time.Second
	grace        = 3 * time.Second
	// windowRecords bounds what a worker may have fetched and not yet trained, per partition (rule 13): at least the peak rate times the lease timeout.
	windowRecords = 1 << 17
)

// TrainSpec is the job as its trainer processes need it.
func TrainSpec(j *job.Job, token string) *rpc.TrainSpec {
	s := &rpc.TrainSpec{
		Job: j.Name, Fingerprint: j.Fingerprint(), Token: token, CheckpointDir: j.Checkpoint.Dir,
		Stream: streamSpec(j),
		Features: &rpc.FeatureSpec{
			Format: j.Features.Format, Label: j.Features.Label, Sparse: j.Features.Sparse, Dense: j.Features.Dense,
		},
		Model: &rpc.ModelSpec{
			Kind: j.Model.Kind, EmbeddingDim: int32(j.Model.EmbeddingDim), Batch: int32(j.Model.Batch), L2: float32(j.Model.L2),
			Seed: uint64(j.Model.Seed), Optimiser: j.Model.Optimiser.Kind, LearningRate: float32(j.Model.Optimiser.LearningRate),
		},
		Servers: int32(j.Servers.Count), Tablets: int32(j.Model.Tablets),
		SnapshotEveryMs: j.Checkpoint.Every.Milliseconds(), SnapshotKeep: int32(j.Checkpoint.Keep),
		Worker: &rpc.WorkerSpec{
			Chunk: int32(j.Workers.Chunk), Queue: int32(j.Workers.Queue), Window: windowRecords, LingerMs: j.Model.Linger.Milliseconds(),
			EmulateStepMs: j.Workers.EmulateStep.Milliseconds(), Threads: int32(max(1, int(j.Workers.CPU))), Forward: j.Workers.Forward, Device: "cpu",
		},
		LeaseTimeoutMs: leaseTimeout.Milliseconds(), BeatMs: beat.Milliseconds(), GraceMs: grace.Milliseconds(),
	}
	for _, h := range j.Model.Hidden {
		s.Model.Hidden = append(s.Model.Hidden, int32(h))
	}
	if j.Workers.GPUs > 0 && j.Workers.EmulateStep == 0 { // an emulated accelerator stands in for the GPUs: they compute nothing
		s.Worker.Device = "cuda"
	}
	return s
}

func streamSpec(j *job.Job) *rpc.StreamSpec {
	s := &rpc.StreamSpec{Brokers: j.Stream.Brokers, Topic: j.Stream.Topic, OnLost: j.Stream.OnLost, OnUndecodable: j.Stream.OnUndecodable, DeadLetter: j.Stream.DeadLetter, NoCommit: j.Stream.NoCommit}
	switch j.Stream.Start.Kind {
	case job.StartAgo:
		s.Start = "-" + j.Stream.Start.Ago.String()
	case job.StartTime:
		s.Start = j.Stream.Start.Time.UTC().Format(time.RFC3339)
	default:
		s.Start = j.Stream.Start.Kind
	}
	if t := j.Stream.TLS; t != nil {
		s.Tls = &rpc.TLSSpec{CaFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile, ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify}
	}
	if a := j.Stream.SASL; a != nil {
		s.Sasl = &rpc.SASLSpec{Mechanism: a.Mechanism, Username: a.Username, Password: a.Password.Reveal()}
	}
	return s
}

// policies are what becomes of records that cannot be trained.
func policies(j *job.Job) *rpc.Policies {
	return &rpc.Policies{OnLost: j.Stream.OnLost, OnUndecodable: j.Stream.OnUndecodable}
}

// networkSpec says how trainers reach others and, at meet, the scheduler; nil: on the loopback interface.
func networkSpec(j *job.Job, meet string) *rpc.NetworkSpec {
	n := j.Network
	if n.Interface == "" && n.Ports == (job.PortRange{}) && meet == "" {
		return nil
	}
	return &rpc.NetworkSpec{Rendezvous: meet, Interface: n.Interface, FirstPort: int32(n.Ports.First), LastPort: int32(n.Ports.Last)}
}

// workloads renders trainer processes for the backend.
type workloads struct {
	job     *job.Job
	trainer string
	spec    []byte
	env     map[string]string
	begun   bool // servers that are started from now on make no checkpoint anew
}

func newWorkloads(j *job.Job, trainer, token, meet string, env map[string]string) (*workloads, error) {
	spec := TrainSpec(j, token)
	spec.Network = networkSpec(j, meet)
	raw, err := protojson.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("write the trainers' specification: %w", err)
	}
	return &workloads{job: j, trainer: trainer, spec: raw, env: env}, nil
}

func (w *workloads) server(index int, generation uint64) backend.Workload {
	argv := []string{w.trainer, "ps", "--index", fmt.Sprint(index), "--generation", fmt.Sprint(generation)}
	if w.begun {
		argv = append(argv, "--begun")
	}
	return backend.Workload{
		ID:   backend.ID{Role: backend.RoleServer, Rank: index, Generation: generation},
		Argv: argv, Env: w.env, Files: map[string][]byte{specFile: w.spec},
		Resources: backend.Resources{CPUMilli: int(w.job.Servers.CPU * 1000), MemoryBytes: w.job.Servers.Memory},
		StopGrace: 30 * time.Second,
	}
}

func (w *workloads) worker(rank int, generation uint64) backend.Workload {
	return backend.Workload{
		ID:   backend.ID{Role: backend.RoleWorker, Rank: rank, Generation: generation},
		Argv: []string{w.trainer, "worker", "--rank", fmt.Sprint(rank), "--generation", fmt.Sprint(generation)}, Env: w.env,
		Files:     map[string][]byte{specFile: w.spec},
		Resources: backend.Resources{GPUs: w.job.Workers.GPUs, CPUMilli: int(w.job.Workers.CPU * 1000), MemoryBytes: w.job.Workers.Memory},
		StopGrace: 15 * time.Second,
	}
}

// fallback maps the job file's thresholds.
func fallback(f job.Fallback) plan.Fallback {
	return plan.Fallback{LagOver: f.LagOver, UtilisationOver: f.UtilisationOver, UtilisationUnder: f.UtilisationUnder}
}
