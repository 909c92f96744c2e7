package chief

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kale-sched/kale/core/rpc"
)

// Chief serves rpc.ChiefServer over a machine. All methods are safe for concurrent use; one mutex guards the machine and is never held
// across I/O.
type Chief struct {
	rpc.UnimplementedChiefServer
	lg   *slog.Logger
	dial func(addr string) (*grpc.ClientConn, error)

	mu      sync.Mutex
	m       *machine
	changed chan struct{} // closed and replaced when a server has reported: Snapshot waits on it
	members map[string]rpc.MemberState
	// suspended: it may not be the chief any more. Nobody can beat then, so nobody is expelled for it.
	suspended atomic.Bool
}

// New starts a chief's state at now; Run must be called to expel members and move leases. dial connects to parameter servers (for Sums).
func New(lg *slog.Logger, o Options, dial func(addr string) (*grpc.ClientConn, error)) *Chief {
	if lg == nil {
		lg = slog.New(slog.DiscardHandler)
	}
	return &Chief{lg: lg, dial: dial, m: newMachine(o, time.Now()), changed: make(chan struct{}), members: map[string]rpc.MemberState{}}
}

// Run ticks until ctx ends.
func (c *Chief) Run(ctx context.Context) error {
	t := time.NewTicker(max(c.m.opt.Beat/2, 10*time.Millisecond))
	defer t.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			if c.suspended.Load() {
				continue // the time counts as a gap afterwards: see forgive
			}
			now := time.Now()
			c.mu.Lock()
			if gap := now.Sub(last); gap > c.m.opt.LeaseTimeout/2 {
				c.forgive(now, gap)
			}
			last = now
			c.m.tick(now)
			c.logChanges()
			c.logRollbacks()
			c.mu.Unlock()
		}
	}
}

// Suspend makes the chief decide nothing until it is told otherwise; whoever serves its RPCs refuses them meanwhile.
func (c *Chief) Suspend(yes bool) { c.suspended.Store(yes) }

// Suspended says whether the chief has been told to decide nothing.
func (c *Chief) Suspended() bool { return c.suspended.Load() }

// forgive extends all leases by the time in which this process itself did not run (it was stopped, or starved): the silence was its own.
func (c *Chief) forgive(now time.Time, gap time.Duration) {
	later := func(seen time.Time) time.Time {
		if seen = seen.Add(gap); seen.After(now) {
			return now
		}
		return seen
	}
	c.lg.Warn("the chief itself was not running for a while; all leases are extended by it", "gap", gap.Round(time.Millisecond))
	for _, w := range c.m.members {
		w.seen = later(w.seen)
	}
	for _, s := range c.m.servers {
		if s != nil {
			s.seen = later(s.seen)
		}
	}
}

func (c *Chief) logChanges() {
	for _, w := range c.m.sortedMembers() {
		if c.members[w.name] != w.state {
			c.members[w.name] = w.state
			c.lg.Info("member", "name", w.name, "generation", w.generation, "state", rpc.MemberStateName(w.state))
		}
	}
}

// logRollbacks tells of servers that came back with less than they had, and of the end of each repair. One that was told of is changed only by being done.
func (c *Chief) logRollbacks() {
	for _, r := range c.m.rollbacks {
		switch {
		case r.told == 0:
			r.told = 1
			c.lg.Warn("a parameter server was rolled back to its snapshot; what it lacks is trained again for it", "of_server", r.server, "of_incarnation", r.incarnation,
				"snapshot_unix_ms", r.snapshotMS, "offsets", c.m.remaining(r), "fallbacks", r.fallbacks)
		case r.told == 1 && !r.done.IsZero():
			r.told = 2
			if r.left > 0 {
				c.lg.Warn("a parameter server was replaced before it had been trained again what it had lost; the rest is part of the next repair",
					"of_server", r.server, "of_incarnation", r.incarnation, "left", r.left)
				continue
			}
			c.lg.Info("a parameter server has been trained again what it had lost", "of_server", r.server, "of_incarnation", r.incarnation, "took", r.done.Sub(r.at).Round(time.Millisecond))
		}
	}
}

// Join implements rpc.ChiefServer.
func (c *Chief) Join(_ context.Context, req *rpc.JoinRequest) (*rpc.JoinResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	resp, err := c.m.join(time.Now(), req)
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return resp, nil
}

// Beat implements rpc.ChiefServer.
func (c *Chief) Beat(_ context.Context, req *rpc.BeatRequest) (*rpc.Directive, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if why := c.m.fenced(req.GetFence()); why != "" {
		return nil, status.Error(codes.FailedPrecondition, why)
	}
	return c.m.beat(time.Now(), req), nil
}

// ServerBeat implements rpc.ChiefServer. A server may not know this chief yet: only the timeline and newer chiefs are checked.
func (c *Chief) ServerBeat(_ context.Context, req *rpc.ServerBeatRequest) (*rpc.ServerDirective, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := req.GetFence()
	if f.GetTimeline() != c.m.opt.Timeline || f.GetChief() > c.m.opt.Incarnation {
		return nil, status.Error(codes.FailedPrecondition, c.m.fenced(f))
	}
	d, err := c.m.serverBeat(time.Now(), req)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	close(c.changed)
	c.changed = make(chan struct{})
	return d, nil
}

// Memory is what this chief's successor must be told, encoded: see Options.Memory.
func (c *Chief) Memory() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return proto.MarshalOptions{Deterministic: true}.Marshal(c.m.memory())
}

// Status implements rpc.ChiefServer.
func (c *Chief) Status(context.Context, *rpc.StatusRequest) (*rpc.JobStatus, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m.status(time.Now()), nil
}

// Advances implements rpc.ChiefServer.
func (c *Chief) Advances(_ context.Context, req *rpc.AdvancesRequest) (*rpc.AdvancesResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit := int(req.GetLimit())
	if limit <= 0 || limit > 20000 {
		limit = 20000
	}
	out, truncated := c.m.log.after(req.GetAfter(), limit)
	return &rpc.AdvancesResponse{Advances: out, Truncated: truncated, Chief: c.m.opt.Incarnation}, nil
}

// Drain implements rpc.ChiefServer.
func (c *Chief) Drain(_ context.Context, req *rpc.DrainRequest) (*rpc.DrainResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	unknown := c.m.drain(req.GetMembers())
	c.m.assign(time.Now())
	return &rpc.DrainResponse{Unknown: unknown}, nil
}

// Pause implements rpc.ChiefServer.
func (c *Chief) Pause(_ context.Context, req *rpc.PauseRequest) (*rpc.PauseResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.m.paused = req.GetPaused()
	return &rpc.PauseResponse{}, nil
}

// SetPolicies implements rpc.ChiefServer.
func (c *Chief) SetPolicies(_ context.Context, req *rpc.SetPoliciesRequest) (*rpc.SetPoliciesResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was, now := c.m.opt.Policies, req.GetPolicies()
	if now == nil {
		return nil, status.Error(codes.InvalidArgument, "set policies: none are given")
	}
	c.m.opt.Policies = now
	if !proto.Equal(was, now) {
		c.lg.Info("other policies hold", "on_lost", now.GetOnLost(), "on_undecodable", now.GetOnUndecodable())
	}
	return &rpc.SetPoliciesResponse{}, nil
}

// MarkLost implements rpc.ChiefServer.
//
// The mark is durable before it takes effect: a later chief neither asks again nor waits for records that are gone.
func (c *Chief) MarkLost(_ context.Context, req *rpc.MarkLostRequest) (*rpc.MarkLostResponse, error) {
	c.mu.Lock()
	err, keep := c.m.mayLose(req.GetSpan()), c.m.opt.KeepLost
	c.mu.Unlock()
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if keep != nil {
		if err := keep(req.GetSpan()); err != nil {
			return nil, status.Errorf(codes.Unavailable, "mark lost: it could not be made durable: %v", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.m.keepLost(req.GetSpan().GetPartition(), req.GetSpan().GetBegin(), req.GetSpan().GetEnd())
	c.lg.Warn("span marked as lost", "partition", req.GetSpan().GetPartition(), "begin", req.GetSpan().GetBegin(), "end", req.GetSpan().GetEnd())
	return &rpc.MarkLostResponse{}, nil
}

// Snapshot implements rpc.ChiefServer.
func (c *Chief) Snapshot(ctx context.Context, _ *rpc.SnapshotRequest) (*rpc.SnapshotResponse, error) {
	c.mu.Lock()
	// Servers that outlive a chief remember the highest request of the one before: each chief counts from its own incarnation on.
	c.m.snapshotReq = max(c.m.snapshotReq, c.m.opt.Incarnation<<32) + 1
	want := c.m.snapshotReq
	c.mu.Unlock()
	for {
		c.mu.Lock()
		wait, late := c.changed, ""
		for i, s := range c.m.servers {
			if s == nil || s.snap < want {
				late = fmt.Sprintf("parameter server %d has not written its snapshot", i)
				if s != nil && s.metrics.GetSnapshotError() != "" {
					late += ": " + s.metrics.GetSnapshotError()
				}
			}
		}
		if late == "" {
			resp := &rpc.SnapshotResponse{}
			for _, p := range c.m.sorted() {
				resp.Durable = append(resp.Durable, &rpc.OffsetSet{Partition: p.id, Watermark: p.durable})
			}
			c.mu.Unlock()
			return resp, nil
		}
		c.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, status.Error(codes.DeadlineExceeded, "snapshot: "+late)
		case <-wait:
		}
	}
}

// Sums implements rpc.ChiefServer: it asks every server.
func (c *Chief) Sums(ctx context.Context, _ *rpc.SumsRequest) (*rpc.SumsResponse, error) {
	c.mu.Lock()
	infos := c.m.serverInfos()
	c.mu.Unlock()
	out := &rpc.SumsResponse{}
	for _, s := range infos {
		if s.GetAddress() == "" {
			return nil, status.Errorf(codes.Unavailable, "sums: parameter server %d has not registered", s.GetIndex())
		}
		r, err := c.sumsOf(ctx, s)
		if err != nil {
			return nil, err
		}
		out.Tablets = append(out.Tablets, r.GetTablets()...)
	}
	return out, nil
}

func (c *Chief) sumsOf(ctx context.Context, s *rpc.ServerInfo) (*rpc.SumsResponse, error) {
	conn, err := c.dial(s.GetAddress())
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "sums: dial parameter server %d at %s: %v", s.GetIndex(), s.GetAddress(), err)
	}
	defer conn.Close()
	r, err := rpc.NewParameterServerClient(conn).TabletSums(ctx, &rpc.SumsRequest{})
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "sums: parameter server %d at %s: %v", s.GetIndex(), s.GetAddress(), err)
	}
	return r, nil
}

// errTopicUnknown says that the brokers gave no answer about the topic; see watch.go.
var errTopicUnknown = errors.New("its state is not known")

// errTopicChanged is the reason of a halt; see watch.go.
var errTopicChanged = errors.New("the topic was deleted or created again")
