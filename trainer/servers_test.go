package trainer

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"google.golang.org/grpc"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/auth"
	"github.com/kale-sched/kale/trainer/checkpoint"
	"github.com/kale-sched/kale/trainer/chief"
	"github.com/kale-sched/kale/trainer/ps"
)

// testServer is one life of a parameter server, server 0 with the chief: the real ones, wired together without the process around them, so that
// tests choose when a snapshot is written and can kill a server between two instructions.
type testServer struct {
	t     testing.TB
	spec  *rpc.TrainSpec
	index int
	inc   uint64
	store *checkpoint.Store
	job   checkpoint.JobState
	ps    *ps.Server
	chief *chief.Chief
	grpc  *grpc.Server
	addr  string
	stop  context.CancelFunc
	tasks sync.WaitGroup
	// mute keeps the server from reporting to the chief.
	mute atomic.Bool
}

// tellTopic stands for the chief's watch of its topic, which these servers lack: workers are told, as by a chief whose broker knows no ids, that there is
// none to compare.
func tellTopic(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	if join, ok := resp.(*rpc.JoinResponse); ok && err == nil {
		join.TopicId = kadm.TopicID{}.String()
	}
	return resp, err
}

// testPartitions is how many partitions the test jobs pin, all at offset 0.
const testPartitions = 8

func startServer(t testing.TB, spec *rpc.TrainSpec, index int) *testServer {
	t.Helper()
	s := &testServer{t: t, spec: spec, index: index}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	s.store, err = checkpoint.Open(spec.GetCheckpointDir(), spec.GetJob())
	must(err)
	s.inc, err = s.store.ClaimIncarnation(index)
	must(err)
	fresh := false
	s.job, err = s.store.LoadJob()
	if errors.Is(err, checkpoint.ErrNoJob) {
		fresh = true
		starts := map[int32]int64{}
		for p := range int32(testPartitions) {
			starts[p] = 0
		}
		s.job = checkpoint.JobState{Job: spec.GetJob(), Timeline: "t1", Fingerprint: spec.GetFingerprint(), Topic: testTopic,
			Tablets: int(spec.GetTablets()), Servers: int(spec.GetServers()), MapVersion: 1, Starts: starts}
		err = s.store.SaveJob(s.job, s.inc)
	}
	must(err)
	s.restore(must)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	s.addr = lis.Addr().String()
	s.grpc = grpc.NewServer(grpc.ChainUnaryInterceptor(auth.UnaryServer(spec.GetToken()), tellTopic), grpc.StreamInterceptor(auth.StreamServer(spec.GetToken())),
		grpc.MaxRecvMsgSize(maxMessage))
	s.ps.Register(s.grpc)
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	if index == 0 {
		s.chief = chief.New(testLogger(t, "chief"), chief.Options{
			Job: spec.GetJob(), Timeline: s.job.Timeline, Incarnation: s.inc, MapVersion: 1, Servers: s.job.Servers, Starts: s.job.Starts,
			Fresh: fresh, LeaseTimeout: millis(spec.GetLeaseTimeoutMs()), Beat: millis(spec.GetBeatMs()), Grace: millis(spec.GetGraceMs()),
			Policies: policies(spec.GetStream()),
		}, s.dial)
		rpc.RegisterChiefServer(s.grpc, s.chief)
		s.tasks.Go(func() { _ = s.chief.Run(ctx) })
		must(s.store.PublishChief(checkpoint.ChiefInfo{Address: s.addr, Incarnation: s.inc, Timeline: s.job.Timeline}))
	}
	s.tasks.Go(func() { _ = s.grpc.Serve(lis) })
	s.tasks.Go(func() { s.beats(ctx) })
	t.Cleanup(s.kill)
	return s
}

func (s *testServer) restore(must func(error)) {
	s.t.Helper()
	layout, width, initRow, initDense, err := stateShape(s.spec)
	must(err)
	counting := s.spec.GetModel().GetKind() == KindCounting
	if counting {
		width = 0
	}
	m := s.spec.GetModel()
	s.ps, err = ps.Restore(testLogger(s.t, "ps"), ps.Options{
		Job: s.spec.GetJob(), Topic: testTopic, Fingerprint: s.spec.GetFingerprint(), Timeline: s.job.Timeline, Server: s.index,
		Incarnation: s.inc, MapVersion: 1, Layout: layout, RowWidth: width, InitRow: initRow, InitDense: initDense,
		Optimiser: ps.Optimiser{Kind: m.GetOptimiser(), LearningRate: m.GetLearningRate()}, Counting: counting,
		Keep: int(s.spec.GetSnapshotKeep()), UnsafeNoDedup: s.spec.GetUnsafeNoDedup(), Store: s.store,
	})
	must(err)
	must(s.ps.SetStarts(s.job.Starts))
}

func (s *testServer) dial(addr string) (*grpc.ClientConn, error) {
	return dialPeer(addr, s.spec.GetToken())
}

// kill ends the server at once: nothing is written any more.
func (s *testServer) kill() {
	s.stop()
	s.grpc.Stop()
	s.tasks.Wait()
}

// snapshot writes one now.
func (s *testServer) snapshot() {
	s.t.Helper()
	if err := s.ps.Snapshot(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// beats reports progress to whatever chief there is.
func (s *testServer) beats(ctx context.Context) {
	var at checkpoint.ChiefInfo
	var conn *grpc.ClientConn
	hangUp := func() {
		if conn != nil {
			_ = conn.Close()
			conn = nil
		}
	}
	defer hangUp()
	for seq := uint64(1); ctx.Err() == nil; seq++ {
		if info, err := s.store.Chief(); err == nil && info != at {
			hangUp()
			if conn, err = dialPeer(info.Address, s.spec.GetToken()); err == nil {
				at = info
			}
		}
		if conn != nil && !s.mute.Load() {
			applied, touched, durable := s.ps.Progress()
			cctx, cancel := context.WithTimeout(ctx, time.Second)
			d, err := rpc.NewChiefClient(conn).ServerBeat(cctx, &rpc.ServerBeatRequest{
				Fence: &rpc.Fence{Timeline: s.job.Timeline, Chief: at.Incarnation, Server: s.inc, MapVersion: 1},
				Index: int32(s.index), Address: s.addr, Applied: applied, Touched: touched, Durable: durable, Metrics: s.ps.Metrics(), Seq: seq,
			})
			cancel()
			if err == nil {
				s.ps.SetChief(d.GetFence().GetChief())
			}
		}
		sleep(ctx, 5*time.Millisecond)
	}
}
