package nomad

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"golang.org/x/sync/singleflight"

	"github.com/kale-sched/kale/core/backend"
)

// nomad implements backend.Backend.
type nomad struct {
	lg   *slog.Logger
	jobs backend.Jobs[settings]

	starts backend.Starts

	submitting singleflight.Group // by job and workload

	mu    sync.Mutex
	exits map[string]ending         // by allocation, of those that are over: it never changes
	told  map[string]time.Time      // Nomad jobs that were told to end, by this process, and when
	known map[string]driftVerdict   // by Nomad job: what others did to its present version
	sums  map[string]pendingVerdict // by Nomad job: why it is not placed
	waits map[string]queue          // by job
	bound map[string]string         // by Nomad job: the allocation that it is bound to
	swept map[string]uint64         // by job: the index of the ledger by which its variables were swept
}

// New gives the backend. lg may be nil.
func New(lg *slog.Logger) backend.Backend {
	if lg == nil {
		lg = slog.New(slog.DiscardHandler)
	}
	return &nomad{
		lg: lg, exits: map[string]ending{}, told: map[string]time.Time{},
		known: map[string]driftVerdict{}, sums: map[string]pendingVerdict{}, waits: map[string]queue{}, bound: map[string]string{}, swept: map[string]uint64{},
	}
}

// Info implements backend.Backend.
func (n *nomad) Info(context.Context) (backend.Info, error) {
	return backend.Info{Name: "nomad", Version: backend.BuildVersion(), Drains: true, GPUs: true, Survives: true, Queues: true}, nil
}

// Configure implements backend.Backend. It does not speak to the cluster.
func (n *nomad) Configure(ctx context.Context, cfg backend.Config) (backend.Diagnostics, error) {
	return n.jobs.Configure(ctx, cfg, decode)
}

// Close implements backend.Backend. The workloads go on.
func (n *nomad) Close() error {
	for _, s := range n.jobs.All() {
		s.client.Close()
	}
	return nil
}

// callTimeout bounds each call of Nomad's API: a server that is down must not hold the scheduler.
const callTimeout = 10 * time.Second

// answerIn is kept of the time that a caller has, a tenth of it at most, to tell him what it is that does not answer.
const answerIn = 250 * time.Millisecond

// inTime bounds one call: it ends before the caller's own deadline, after which nobody would hear whose silence it was. The caller cancels.
func inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	most := callTimeout
	if at, has := ctx.Deadline(); has {
		left := time.Until(at)
		most = min(most, left-min(left/10, answerIn))
	}
	return context.WithTimeout(ctx, most)
}

// read gives the options of a call that reads. The caller cancels.
func (s settings) read(ctx context.Context) (*api.QueryOptions, context.CancelFunc) {
	bounded, cancel := inTime(ctx)
	q := &api.QueryOptions{Namespace: s.namespace}
	return q.WithContext(bounded), cancel
}

// write gives the options of a call that changes something. The caller cancels.
func (s settings) write(ctx context.Context) (*api.WriteOptions, context.CancelFunc) {
	bounded, cancel := inTime(ctx)
	w := &api.WriteOptions{Namespace: s.namespace}
	return w.WithContext(bounded), cancel
}
