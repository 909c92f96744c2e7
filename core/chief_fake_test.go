package core

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
)

// fakeChief is a chief over real gRPC whose members a test moves. It publishes itself as trainer/checkpoint does.
type fakeChief struct {
	rpc.UnimplementedChiefServer
	t     *testing.T
	job   *job.Job
	token string

	mu          sync.Mutex
	srv         *grpc.Server
	incarnation uint64
	status      *rpc.JobStatus
	log         []*rpc.Advance
	drained     []string      // members whose drain was asked for, each once
	drainFails  int           // so many calls of Drain fail
	slow        bool          // who is asked to drain does not finish by itself
	requested   int           // snapshots that were asked for
	snapshots   int           // that were written
	snapshotErr error         // why none can be
	hold        chan struct{} // a snapshot waits until it is closed
	refuse      error         // answer of every call
	mute        bool          // it takes calls and answers none, as a process that is suspended
	pauses      int           // calls of Pause that reached it
}

// newFakeChief makes a chief that is not up: see start. The folders are those that a trainer makes.
func newFakeChief(t *testing.T, j *job.Job, token string) *fakeChief {
	c := &fakeChief{t: t, job: j, token: token, status: &rpc.JobStatus{Job: j.Name, Timeline: "t1", Policies: policies(j)}}
	for p := range int32(rigPartitions) {
		c.status.Partitions = append(c.status.Partitions, &rpc.PartitionStatus{Partition: p, End: -1})
	}
	for i := range int32(j.Servers.Count) {
		c.status.Servers = append(c.status.Servers, &rpc.ServerStatus{Info: &rpc.ServerInfo{Index: i}, Metrics: &rpc.ServerMetrics{}})
	}
	t.Cleanup(c.stop)
	return c
}

// start brings up a new incarnation at an address of its own and publishes it.
func (c *fakeChief) start() {
	c.t.Helper()
	c.stop()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.incarnation++
	c.status.Chief, c.status.StartedUnixMs = c.incarnation, time.Now().Add(-time.Minute).UnixMilli()
	c.log = nil
	srv := grpc.NewServer(grpc.UnaryInterceptor(c.enter))
	rpc.RegisterChiefServer(srv, c)
	c.srv = srv
	go func() { _ = srv.Serve(lis) }() // ends with stop
	c.publish(lis.Addr().String())
}

// publish writes the chief's record and the job's, as trainer/checkpoint does.
func (c *fakeChief) publish(address string) {
	c.write("chief", rpc.ChiefRecord{Address: address, Incarnation: c.incarnation, Timeline: c.status.Timeline})
	c.write("job", map[string]any{"fingerprint": c.job.Fingerprint(), "tablets": c.job.Model.Tablets, "servers": c.job.Servers.Count})
}

func (c *fakeChief) write(kind string, v any) {
	c.t.Helper()
	dir := filepath.Join(c.job.Checkpoint.Dir, c.job.Name, kind)
	body, err := json.Marshal(v)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		text := fmt.Sprintf("{\"xxhash64\":\"%016x\",\"record\":%s}\n", xxhash.Sum64(body), body)
		err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("%020d-%010d.json", c.incarnation, 1)), []byte(text), 0o644)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// stop ends the chief's process; its record stays.
func (c *fakeChief) stop() {
	c.mu.Lock()
	srv := c.srv
	c.srv = nil
	c.mu.Unlock()
	if srv != nil {
		srv.Stop()
	}
}

// enter checks the token as trainer/auth does.
func (c *fakeChief) enter(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	c.mu.Lock()
	refuse, token, mute := c.refuse, c.token, c.mute
	if _, ok := req.(*rpc.PauseRequest); ok {
		c.pauses++
	}
	c.mu.Unlock()
	if mute {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if got := md.Get("kale-token"); len(got) != 1 || got[0] != token {
		return nil, status.Error(codes.Unauthenticated, "the token in \"kale-token\" is not this job's: the caller belongs to another job or to an earlier run of it")
	}
	if refuse != nil {
		return nil, refuse
	}
	return handler(ctx, req)
}

// with changes the chief's world.
func (c *fakeChief) with(f func(*rpc.JobStatus)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.status)
}

// serverUp makes a parameter server known; server 0 brings the chief up.
func (c *fakeChief) serverUp(index int) {
	c.mu.Lock()
	up := c.srv != nil
	if index < len(c.status.Servers) {
		c.status.Servers[index].Info.Up = true
	}
	c.mu.Unlock()
	if index == 0 && !up {
		c.start()
	}
}

// join makes a worker a member that is ready and has trained, unless it is one.
func (c *fakeChief) join(rank int, generation uint64) {
	if m := c.member(rank, generation); m != nil && m.State != rpc.MemberState_MEMBER_STATE_JOINING {
		return
	}
	c.set(rank, generation, rpc.MemberState_MEMBER_STATE_READY)
	c.with(func(*rpc.JobStatus) { c.find(rank, generation).FirstTrainedUnixMs = time.Now().UnixMilli() })
}

// set puts a member into a state. Of a rank there is one member, as in the chief.
func (c *fakeChief) set(rank int, generation uint64, st rpc.MemberState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.find(rank, generation)
	if m == nil {
		c.status.Members = slices.DeleteFunc(c.status.Members, func(m *rpc.MemberStatus) bool { return int(m.Rank) == rank })
		m = &rpc.MemberStatus{Member: fmt.Sprintf("worker-%d", rank), Rank: int32(rank), Generation: generation, Metrics: &rpc.WorkerMetrics{}}
		c.status.Members = append(c.status.Members, m)
	}
	if m.State != rpc.MemberState_MEMBER_STATE_READY && st == rpc.MemberState_MEMBER_STATE_READY {
		m.ReadyUnixMs = time.Now().UnixMilli()
	}
	m.State = st
}

func (c *fakeChief) find(rank int, generation uint64) *rpc.MemberStatus {
	for _, m := range c.status.Members {
		if int(m.Rank) == rank && m.Generation == generation {
			return m
		}
	}
	return nil
}

func (c *fakeChief) member(rank int, generation uint64) *rpc.MemberStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.find(rank, generation)
}

// asked are the members that were asked to drain, in order.
func (c *fakeChief) asked() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.drained)
}

func (c *fakeChief) Status(context.Context, *rpc.StatusRequest) (*rpc.JobStatus, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := copyOf(c.status)
	if st.NowUnixMs == 0 {
		st.NowUnixMs = time.Now().UnixMilli()
	}
	return st, nil
}

func (c *fakeChief) Advances(_ context.Context, req *rpc.AdvancesRequest) (*rpc.AdvancesResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	resp := &rpc.AdvancesResponse{Chief: c.incarnation}
	for _, a := range c.log {
		if a.Seq > req.GetAfter() {
			resp.Advances = append(resp.Advances, copyOf(a))
		}
	}
	return resp, nil
}

// Drain lets members finish at once, unless the chief is slow.
func (c *fakeChief) Drain(_ context.Context, req *rpc.DrainRequest) (*rpc.DrainResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drainFails > 0 {
		c.drainFails--
		return nil, status.Error(codes.Unavailable, "scripted")
	}
	resp := &rpc.DrainResponse{}
	for _, name := range req.GetMembers() {
		i := slices.IndexFunc(c.status.Members, func(m *rpc.MemberStatus) bool { return m.Member == name })
		if i < 0 {
			resp.Unknown = append(resp.Unknown, name)
			continue
		}
		if !slices.Contains(c.drained, name) {
			c.drained = append(c.drained, name)
		}
		if m := c.status.Members[i]; m.State != rpc.MemberState_MEMBER_STATE_DRAINED {
			m.State = rpc.MemberState_MEMBER_STATE_DRAINING
			if !c.slow {
				m.State = rpc.MemberState_MEMBER_STATE_DRAINED
			}
		}
	}
	return resp, nil
}

func (c *fakeChief) Pause(_ context.Context, req *rpc.PauseRequest) (*rpc.PauseResponse, error) {
	c.with(func(s *rpc.JobStatus) { s.Paused = req.GetPaused() })
	return &rpc.PauseResponse{}, nil
}

func (c *fakeChief) SetPolicies(_ context.Context, req *rpc.SetPoliciesRequest) (*rpc.SetPoliciesResponse, error) {
	c.with(func(s *rpc.JobStatus) { s.Policies = copyOf(req.GetPolicies()) })
	return &rpc.SetPoliciesResponse{}, nil
}

func (c *fakeChief) Snapshot(ctx context.Context, _ *rpc.SnapshotRequest) (*rpc.SnapshotResponse, error) {
	c.mu.Lock()
	hold, err := c.hold, c.snapshotErr
	c.requested++
	c.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.snapshots++
	tablet := filepath.Join(CheckpointFolder(c.job), "tablets", "000000")
	if err := os.MkdirAll(tablet, 0o755); err != nil {
		return nil, err
	}
	return &rpc.SnapshotResponse{}, os.WriteFile(filepath.Join(tablet, fmt.Sprintf("%020d-%020d.snap", c.incarnation, c.snapshots)), nil, 0o644)
}

// copyOf is a message of its own: gRPC encodes an answer after the lock is let go.
func copyOf[M proto.Message](m M) M { return proto.Clone(m).(M) }
