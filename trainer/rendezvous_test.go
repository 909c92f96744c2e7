package trainer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/auth"
	"github.com/kale-sched/kale/trainer/checkpoint"
)

// testScheduler answers as the scheduler does, from memory. It can go away and come back at the same port.
type testScheduler struct {
	rpc.UnimplementedRendezvousServer
	t       testing.TB
	address string
	srv     *grpc.Server

	mu     sync.Mutex
	chief  *rpc.ChiefPlace
	asked  int // how often the chief was asked for
	phases map[string]rpc.Phase
}

// startScheduler begins at a free port.
func startScheduler(t testing.TB) *testScheduler {
	t.Helper()
	s := &testScheduler{t: t, address: "127.0.0.1:0", phases: map[string]rpc.Phase{}}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *testScheduler) start() {
	s.t.Helper()
	var lis net.Listener
	eventually(s.t, func() (ok bool) { // somebody's outgoing connection may have the port for a moment
		var err error
		lis, err = net.Listen("tcp", s.address)
		return err == nil
	}, func() string { return "the port " + s.address })
	s.address = lis.Addr().String()
	s.srv = grpc.NewServer(grpc.UnaryInterceptor(auth.UnaryServer("secret")), acceptKeepalive())
	rpc.RegisterRendezvousServer(s.srv, s)
	srv := s.srv
	go func() { _ = srv.Serve(lis) }() // ends with stop
}

func (s *testScheduler) stop() { s.srv.Stop() }

func (s *testScheduler) knows(info checkpoint.ChiefInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chief = rpc.ChiefRecord(info).Place()
}

func (s *testScheduler) FindChief(context.Context, *rpc.FindChiefRequest) (*rpc.ChiefPlace, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.chief == nil {
		return nil, status.Error(codes.NotFound, "no chief yet")
	}
	return s.chief, nil
}

func (s *testScheduler) Announce(_ context.Context, r *rpc.AnnounceRequest) (*rpc.AnnounceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.GetChief().GetIncarnation() < s.chief.GetIncarnation() {
		return nil, status.Error(codes.FailedPrecondition, "older")
	}
	s.chief = r.GetChief()
	return &rpc.AnnounceResponse{NextMs: 300}, nil
}

func (s *testScheduler) Alive(_ context.Context, r *rpc.AliveRequest) (*rpc.AliveResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phases[fmt.Sprintf("%s-%d-g%d", r.GetRole(), r.GetRank(), r.GetGeneration())] = r.GetPhase()
	return &rpc.AliveResponse{NextMs: 300}, nil
}

// waitPhase waits until a process has said that it is in a phase.
func (s *testScheduler) waitPhase(who string, want rpc.Phase) {
	s.t.Helper()
	var got rpc.Phase
	eventually(s.t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		got = s.phases[who]
		return got == want
	}, func() string { return fmt.Sprintf("%s in %v, it is in %v", who, want, got) })
}

// waitAsked waits until the chief has been asked for n more times.
func (s *testScheduler) waitAsked(n int) {
	s.t.Helper()
	s.mu.Lock()
	until := s.asked + n
	s.mu.Unlock()
	eventually(s.t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.asked >= until
	}, func() string { return "somebody who asks for the chief" })
}

// farWorker is a worker on a machine that lacks the checkpoint folder.
func (j *job) farWorker(rank int, scheduler string) (w *process, folder string) {
	j.t.Helper()
	spec := proto.Clone(j.spec).(*rpc.TrainSpec)
	spec.CheckpointDir = filepath.Join(j.t.(*testing.T).TempDir(), "not-mounted")
	spec.Network = &rpc.NetworkSpec{Rendezvous: scheduler}
	return start(j.t, func(ctx context.Context) error {
		return RunWorker(ctx, testLogger(j.t, fmt.Sprint("worker", rank)), spec, WorkerOptions{Rank: rank, Generation: 1})
	}), spec.CheckpointDir
}

func (j *job) place() checkpoint.ChiefInfo {
	j.t.Helper()
	info, err := j.servers[0].store.Chief()
	if err != nil {
		j.t.Fatal(err)
	}
	return info
}

// A worker on a machine without the checkpoint folder joins and trains, and makes no empty folder of that name there.
func TestWorkerWithoutTheFolderTrains(t *testing.T) {
	c := broker(t, 2)
	cl := producer(t, c)
	produce(t, cl, 0, 300)
	produce(t, cl, 1, 200)
	j := startJob(t, jobSpec(t, c))
	s := startScheduler(t)
	s.knows(j.place())
	w, folder := j.farWorker(0, s.address)
	ends := map[int32]int64{0: 300, 1: 200}
	j.waitApplied(ends)
	j.checkOnce(readLog(t, c, ends), nil)
	s.waitPhase("worker-0-g1", rpc.Phase_PHASE_JOINED)
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v; the worker made the folder that it lacks", folder, err)
	}
}

// The scheduler is away when the worker starts, comes back knowing nothing, goes away again while the worker asks, and comes back with a chief to tell of.
func TestSchedulerRestartsWhileAWorkerLooksForItsChief(t *testing.T) {
	c := broker(t, 1)
	produce(t, producer(t, c), 0, 100)
	s := startScheduler(t)
	s.stop()
	early := &job{t: t, spec: jobSpec(t, c)}
	early.farWorker(0, s.address)
	s.start()
	s.waitPhase("worker-0-g1", rpc.Phase_PHASE_DIALLING)
	s.waitAsked(2)
	s.stop()
	j := startJob(t, early.spec)
	s.knows(j.place())
	s.start()
	ends := map[int32]int64{0: 100}
	j.waitApplied(ends)
	j.checkOnce(readLog(t, c, ends), nil)
}

// The chief dies and comes back elsewhere while the scheduler is down. The worker keeps what it holds, learns of the new chief from the scheduler, and
// every record is trained once.
func TestChiefMovesWhileTheSchedulerIsDown(t *testing.T) {
	c := broker(t, 1)
	cl := producer(t, c)
	produce(t, cl, 0, 200)
	j := startJob(t, jobSpec(t, c))
	s := startScheduler(t)
	s.knows(j.place())
	j.farWorker(0, s.address)
	j.waitApplied(map[int32]int64{0: 200})
	j.servers[0].snapshot()
	produce(t, cl, 0, 100)
	j.waitApplied(map[int32]int64{0: 300})
	s.stop()
	old := j.place()
	j.crash(0)
	if now := j.place(); now.Incarnation <= old.Incarnation || now.Address == old.Address {
		t.Fatalf("the chief has not moved: %+v, %+v", old, now)
	}
	produce(t, cl, 0, 100)
	s.start() // it still knows the old chief: nobody has announced the new one
	s.waitAsked(2)
	s.knows(j.place())
	ends := map[int32]int64{0: 400}
	j.waitApplied(ends)
	j.checkOnce(readLog(t, c, ends), nil)
	s.waitPhase("worker-0-g1", rpc.Phase_PHASE_JOINED)
}

// A worker that was told of a chief goes on without the scheduler, and one beat that is lost does not make it forget where the chief is.
func TestNobodyNeedsTheSchedulerWhoKnowsAChief(t *testing.T) {
	c := broker(t, 1)
	cl := producer(t, c)
	produce(t, cl, 0, 100)
	j := startJob(t, jobSpec(t, c))
	s := startScheduler(t)
	s.knows(j.place())
	j.farWorker(0, s.address)
	j.waitApplied(map[int32]int64{0: 100})
	s.stop()
	j.servers[1].kill() // the chief stays; pushes wait for server 1
	produce(t, cl, 0, 100)
	j.servers[1] = startServer(t, j.spec, 1)
	ends := map[int32]int64{0: 200}
	j.waitApplied(ends)
	j.checkOnce(readLog(t, c, ends), nil)
}

// What is believed of two sources, in the order in which they are heard.
func TestFolderComesFirst(t *testing.T) {
	at := func(address string, incarnation uint64, timeline string) checkpoint.ChiefInfo {
		return checkpoint.ChiefInfo{Address: address, Incarnation: incarnation, Timeline: timeline}
	}
	unreadable := errors.New("stale file handle")
	type says struct {
		folder checkpoint.ChiefInfo
		err    error
		told   checkpoint.ChiefInfo // zero: nothing new
	}
	none := checkpoint.ChiefInfo{}
	for name, c := range map[string]struct {
		says []says
		want checkpoint.ChiefInfo
	}{
		"nothing":                            {[]says{{none, checkpoint.ErrNoChief, none}}, none},
		"the folder alone":                   {[]says{{at("a", 1, "t"), nil, none}}, at("a", 1, "t")},
		"the scheduler alone":                {[]says{{none, checkpoint.ErrNoChief, at("b", 1, "t")}}, at("b", 1, "t")},
		"a folder that lags behind":          {[]says{{at("a", 1, "t"), nil, at("b", 2, "t")}}, at("b", 2, "t")},
		"a scheduler that lags behind":       {[]says{{at("a", 3, "t"), nil, at("b", 2, "t")}}, at("a", 3, "t")},
		"a scheduler of another checkpoint":  {[]says{{at("a", 1, "t"), nil, at("b", 9, "old")}}, at("a", 1, "t")},
		"the folder was lost":                {[]says{{at("a", 1, "t"), nil, none}, {none, unreadable, none}}, at("a", 1, "t")},
		"the folder was lost, and a new one": {[]says{{at("a", 1, "t"), nil, none}, {none, unreadable, at("b", 2, "t")}}, at("b", 2, "t")},
		"the folder shows what was":          {[]says{{at("b", 2, "t"), nil, none}, {at("a", 1, "t"), nil, none}}, at("b", 2, "t")},
		"the scheduler forgot":               {[]says{{none, unreadable, at("b", 2, "t")}, {none, unreadable, at("a", 1, "t")}}, at("b", 2, "t")},
		"a new checkpoint, told":             {[]says{{none, unreadable, at("b", 9, "t")}, {none, unreadable, at("a", 1, "new")}}, at("a", 1, "new")},
		"a new checkpoint, read":             {[]says{{at("b", 9, "t"), nil, none}, {at("a", 1, "new"), nil, none}}, at("a", 1, "new")},
	} {
		var now says
		r := newRendezvous(testLogger(t, name), &rpc.TrainSpec{Network: &rpc.NetworkSpec{Rendezvous: "x:1"}}, roleWorker, 0, 1,
			func() (checkpoint.ChiefInfo, error) { return now.folder, now.err })
		var got checkpoint.ChiefInfo
		var err error
		for _, now = range c.says {
			if now.told != none {
				r.told = newer(r.told, rpc.ChiefRecord(now.told))
			}
			got, err = r.find()
		}
		if got != c.want || (err != nil) != (c.want == none) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
	if r := newRendezvous(nil, &rpc.TrainSpec{Network: &rpc.NetworkSpec{Interface: "ib0"}}, roleWorker, 0, 1, nil); r != nil {
		t.Error("there is a rendezvous without an address")
	}
}
