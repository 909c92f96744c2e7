package ps

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/checkpoint"
)

// MaxMessage is the size in bytes of the largest request or answer: serve with grpc.MaxRecvMsgSize(ps.MaxMessage). The client sets it by itself.
const MaxMessage = 1 << 30

const (
	defaultKeep     = 2
	defaultMaxSpans = 1 << 14
	// maxPartition bounds the ledgers' length; Kafka itself gets into trouble below that.
	maxPartition = 1 << 18
)

// Options say what a parameter server serves.
type Options struct {
	Job, Topic string
	// Fingerprint, Timeline: a snapshot of another is not restored, a message of another timeline is refused.
	Fingerprint, Timeline string
	// Server is the number of this server, 0 ≤ Server < Layout.Servers().
	Server int
	// Incarnation is what checkpoint.Store.ClaimIncarnation gave this process.
	Incarnation uint64
	// MapVersion is the version of the map from tablets to servers.
	MapVersion uint64
	Layout     Layout
	// RowWidth is the number of float32 in a row; 0 for a model without rows.
	RowWidth int
	// InitRow fills a new row. It must depend on nothing but the id (and the model), since an unknown row is answered and not stored.
	// It is called concurrently. Nil: zeros.
	InitRow func(id uint64, row []float32)
	// InitDense is the full dense vector that a new job starts from. Nil: zeros.
	InitDense func() []float32
	Optimiser Optimiser
	// Counting serves the counting model (EXACTLY_ONCE rule 20): no rows, no dense vector; integers.
	Counting bool
	// Keep is the number of verified snapshot generations that stay per tablet; 0: 2.
	Keep int
	// MaxSpans bounds a tablet's applied set per partition, in disjoint spans; 0: 16,384. A push that would go beyond is refused for now.
	MaxSpans int
	// UnsafeNoDedup applies every push, duplicates included: for the test that proves that the sums can fail (rule 19).
	UnsafeNoDedup bool
	Store         *checkpoint.Store
}

// Validate fills in defaults and names what is wrong.
func (o *Options) Validate() error {
	if o.Keep == 0 {
		o.Keep = defaultKeep
	}
	if o.MaxSpans == 0 {
		o.MaxSpans = defaultMaxSpans
	}
	switch {
	case o.Layout.tablets == 0:
		return errors.New("no layout: make it with NewLayout")
	case o.Server < 0 || o.Server >= o.Layout.servers:
		return fmt.Errorf("server %d is not among the job's %d", o.Server, o.Layout.servers)
	case o.Incarnation == 0:
		return errors.New("no incarnation: claim one in the checkpoint store first")
	case o.Store == nil:
		return errors.New("no checkpoint store")
	case o.RowWidth < 0 || o.RowWidth > 1<<16:
		return fmt.Errorf("rows of %d weights: 0 to %d are possible", o.RowWidth, 1<<16)
	case o.Keep < 1:
		return fmt.Errorf("%d snapshot generations: at least one must stay", o.Keep)
	case o.MaxSpans < 1:
		return fmt.Errorf("at most %d spans: at least one is needed", o.MaxSpans)
	case o.Counting && (o.RowWidth != 0 || o.Layout.dense != 0):
		return errors.New("the counting model has neither rows nor a dense vector")
	}
	if !o.Counting {
		return o.Optimiser.Validate()
	}
	return nil
}

// Server serves the tablets of one parameter server. Its methods are safe for concurrent use.
//
// Locks, in this order: snapshotting, then one tablet's mu; no two tablets are ever locked together.
type Server struct {
	rpc.UnimplementedParameterServerServer
	lg  *slog.Logger
	opt Options

	first   int // number of tablets[0]
	tablets []*tablet

	chief  atomic.Uint64
	starts atomic.Pointer[map[int32]int64]
	// startsMu serialises changes of starts.
	startsMu sync.Mutex

	// snapshotting is held while a snapshot is taken.
	snapshotting sync.Mutex
	generation   uint64                     // of the last snapshot begun; guarded by snapshotting
	noted        map[int]checkpoint.Written // what the manifest says, as it was saved last; guarded by snapshotting
	restored     int64                      // when the oldest snapshot that was restored was written, Unix ms; 0: none
	fallbacks    []string                   // see Fallbacks; set by Restore
	last         atomic.Pointer[snapshotResult]

	pushes, pulls, duplicates, partials atomic.Uint64

	scratch sync.Pool // *scratch

	// beforeTablet and midApply, when set, run in Push before a tablet's lock is asked for, and between a claim and its gradients: tests
	// hold pushes there.
	beforeTablet, midApply func(tablet int)
}

// snapshotResult is what is known of snapshots, for Metrics.
type snapshotResult struct {
	doneUnixMs int64 // of the last complete success
	seconds    float64
	err        string
}

// Register adds the ParameterServer service to a gRPC server. Serve with grpc.MaxRecvMsgSize(MaxMessage), and with package auth's interceptors.
func (s *Server) Register(r grpc.ServiceRegistrar) { rpc.RegisterParameterServerServer(r, s) }

// SetStarts tells the pinned start offsets of partitions: the floors of their applied sets. Pushes of a partition whose start is not known
// are refused as UNAVAILABLE, and succeed when repeated later. A start that is known already cannot change: that is an error, and nothing
// of the call takes effect.
func (s *Server) SetStarts(starts map[int32]int64) error {
	s.startsMu.Lock()
	defer s.startsMu.Unlock()
	old := *s.starts.Load()
	merged := maps.Clone(old)
	for p, at := range starts {
		if p < 0 || p >= maxPartition || at < 0 {
			return fmt.Errorf("pinned start %d of partition %d: neither may be negative, and partitions end at %d", at, p, maxPartition-1)
		}
		if was, known := old[p]; known && was != at {
			return fmt.Errorf("the start of partition %d is pinned at %d in this server's state, and the chief says %d: the folder belongs to another run of the job", p, was, at)
		}
		merged[p] = at
	}
	if len(merged) != len(old) {
		s.starts.Store(&merged)
	}
	return nil
}

// SetChief tells the chief's incarnation; pushes and pulls that name a lower one are refused from then on. It never goes back.
func (s *Server) SetChief(inc uint64) {
	for {
		old := s.chief.Load()
		if inc <= old || s.chief.CompareAndSwap(old, inc) {
			return
		}
	}
}

// checkFence refuses, with FAILED_PRECONDITION, whoever believes in another world than this server's (rule 2).
func (s *Server) checkFence(f *rpc.Fence) error {
	refuse := func(format string, args ...any) error {
		return status.Errorf(codes.FailedPrecondition, "server %d, incarnation %d: %s", s.opt.Server, s.opt.Incarnation, fmt.Sprintf(format, args...))
	}
	switch {
	case f == nil:
		return refuse("the request has no fence")
	case f.Timeline != s.opt.Timeline:
		return refuse("the request is of timeline %q, this is %q", f.Timeline, s.opt.Timeline)
	case f.Server != s.opt.Incarnation:
		return refuse("the request is for incarnation %d: ask the chief again", f.Server)
	case f.MapVersion != s.opt.MapVersion:
		return refuse("the request goes by map version %d, this is %d: ask the chief again", f.MapVersion, s.opt.MapVersion)
	case f.Chief < s.chief.Load():
		return refuse("the request goes by chief %d, and %d has taken over: ask the checkpoint store", f.Chief, s.chief.Load())
	}
	s.SetChief(f.Chief)
	return nil
}

// Pull answers the rows and, if asked, the server's dense blocks. A row that was never pushed is answered as InitRow makes it and not
// stored. Each tablet's rows are from one moment; different tablets' are not.
func (s *Server) Pull(_ context.Context, req *rpc.PullRequest) (*rpc.PullResponse, error) {
	if err := s.checkFence(req.Fence); err != nil {
		return nil, err
	}
	if s.opt.Counting && len(req.Ids) > 0 {
		return nil, status.Error(codes.InvalidArgument, "pull: the counting model has no rows")
	}
	sc := s.takeScratch()
	defer s.scratch.Put(sc)
	if err := sc.sort(s, req.Ids); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "pull: %v", err)
	}
	s.pulls.Add(1)
	out := &rpc.PullResponse{Rows: make([]byte, len(sc.order)*4*s.opt.RowWidth)}
	blockBytes := 0
	if req.Dense {
		lo, hi := s.opt.Layout.DensePart(s.opt.Server)
		out.Dense = make([]byte, 4*(hi-lo))
	}
	for i, t := range s.tablets {
		mine := sc.of(i)
		if len(mine) == 0 && !req.Dense {
			continue
		}
		t.mu.RLock()
		s.readRows(t, req.Ids, mine, out.Rows, sc.row)
		if req.Dense {
			putFloats(out.Dense[blockBytes:], t.dense.v[:t.block.Len()])
			blockBytes += 4 * t.block.Len()
		}
		t.mu.RUnlock()
	}
	return out, nil
}

// readRows writes the weights of the ids at the positions mine into out. The caller holds t.mu for reading.
func (s *Server) readRows(t *tablet, ids []byte, mine []int32, out []byte, fresh []float32) {
	width := s.opt.RowWidth
	for _, at := range mine {
		id := idAt(ids, int(at))
		row := t.rows.read(id)
		if row == nil {
			clear(fresh)
			if s.opt.InitRow != nil {
				s.opt.InitRow(id, fresh)
			}
			row = fresh
		}
		putFloats(out[int(at)*4*width:], row[:width])
	}
}

// TabletSums answers what each of this server's tablets has counted (rule 19).
func (s *Server) TabletSums(context.Context, *rpc.SumsRequest) (*rpc.SumsResponse, error) {
	return &rpc.SumsResponse{Tablets: s.Sums()}, nil
}
