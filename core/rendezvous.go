package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/state"
)

const (
	rendezvousKey = "rendezvous"
	// announceEvery is how often a chief announces itself: a scheduler that was away knows it again after that long, at the latest.
	announceEvery = 5 * time.Second
	// aliveEvery is how often a process that has joined says that it lives; one that has not does so more often, of its own accord.
	aliveEvery = 15 * time.Second
	// aliveFor is how long a process that says no more is still believed to look for the chief.
	aliveFor = 3 * aliveEvery
	// mostAlive bounds what is kept of processes; beyond it the one that was heard of longest ago is forgotten.
	mostAlive = 1 << 14
)

// meeting is what the rendezvous keeps across restarts of the scheduler.
type meeting struct {
	// Port is the one that was listened on last: processes that were started then ask there.
	Port  int             `json:"port"`
	Chief rpc.ChiefRecord `json:"chief"`
}

// dialled is a process that said that it lives.
type dialled struct {
	phase   rpc.Phase
	trouble string
	at      time.Time
}

// rendezvous is where a job's processes ask for the chief when they cannot read the checkpoint folder (rpc.Rendezvous). It believes the folder first,
// where the scheduler reads it, then what chiefs announce. It is safe for concurrent use; nothing that it does waits for the network or for the folder.
// A nil one, that of who only glances at a job, knows nothing of its own.
type rendezvous struct {
	rpc.UnimplementedRendezvousServer
	lg    *slog.Logger
	job   string
	token string
	store *state.Store
	// address is what trainers dial, "" when nothing is served.
	address string
	srv     *grpc.Server
	served  sync.WaitGroup

	mu    sync.Mutex
	kept  meeting
	alive map[backend.ID]dialled
}

// openRendezvous takes up what was kept and, where the job asks for it, listens and serves until close. Without a store, that of a preview, it keeps nothing
// and serves nobody. ends is that the job is opened only to be stopped: no trainer goes on then that would have to find its chief.
func openRendezvous(ctx context.Context, lg *slog.Logger, j *job.Job, token string, store *state.Store, ends bool) (*rendezvous, error) {
	r := &rendezvous{lg: lg, job: j.Name, token: token, store: store, alive: map[backend.ID]dialled{}}
	if store == nil {
		return r, nil
	}
	if _, err := store.Get(rendezvousKey, &r.kept); err != nil {
		return nil, err
	}
	if !meets(j) {
		return r, nil
	}
	lis, err := r.listen(j.Network.Listen, ends)
	if err != nil {
		return nil, err
	}
	port := lis.Addr().(*net.TCPAddr).Port
	if r.address, err = advertise(ctx, j, port); err == nil && port != r.kept.Port {
		r.kept.Port = port
		err = store.Put(rendezvousKey, r.kept)
	}
	if err != nil {
		return nil, errors.Join(err, lis.Close())
	}
	r.srv = grpc.NewServer(grpc.UnaryInterceptor(r.admit), grpc.MaxRecvMsgSize(1<<16), grpc.WaitForHandlers(true),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}))
	rpc.RegisterRendezvousServer(r.srv, r)
	r.served.Go(func() { // ends with close
		if err := r.srv.Serve(lis); err != nil {
			r.lg.Error("trainers cannot ask for the chief any more", "address", r.address, "err", err)
		}
	})
	return r, nil
}

// meets says that the job's processes can ask its scheduler for the chief.
func meets(j *job.Job) bool { return j.Network.Listen != "" || j.Backend.Name != job.BackendLocal }

// firstPort and lastPort are tried when the job file names no port: few enough to open in a firewall, and below those that systems give to outgoing
// connections, which could have one when the scheduler comes back for it.
const firstPort, lastPort = 7700, 7799

// listen takes the port that the job file names, else the one of the last time, else the first free one.
func (r *rendezvous) listen(where string, ends bool) (net.Listener, error) {
	host, port, err := net.SplitHostPort(cmp.Or(where, ":0"))
	if err != nil {
		return nil, fmt.Errorf("listen for trainers: network.listen is %q: %w", where, err)
	}
	at := func(port int) (net.Listener, error) {
		return net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	}
	if port == "0" && r.kept.Port > 0 {
		lis, err := at(r.kept.Port)
		if err == nil {
			return lis, nil
		}
		level := slog.LevelWarn
		switch {
		case r.kept.Chief == (rpc.ChiefRecord{}): // nothing that was started got as far as to ask
			level = slog.LevelDebug
		case ends: // and nobody can do anything about it
			level = slog.LevelInfo
		}
		r.lg.Log(context.Background(), level, "the port that running trainers know is taken; they find the chief here no more, and in the checkpoint folder still", "port", r.kept.Port, "err", err)
	}
	for p := firstPort; where == "" && p <= lastPort; p++ {
		if lis, err := at(p); err == nil {
			return lis, nil
		}
	}
	lis, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listen for trainers: %w: another job's scheduler may have it; give each job a network.listen of its own, or leave it out", err)
	}
	if err != nil {
		return nil, fmt.Errorf("listen for trainers on %s: %w: see network.listen", where, err)
	}
	return lis, nil
}

// advertise is the address under which other machines reach this one.
func advertise(ctx context.Context, j *job.Job, port int) (string, error) {
	n := j.Network
	host, named := "", strconv.Itoa(port)
	if n.Advertise != "" {
		h, p, err := net.SplitHostPort(n.Advertise)
		if err != nil {
			return "", fmt.Errorf("network.advertise is %q: %w", n.Advertise, err)
		}
		if host = h; p != "0" {
			named = p
		}
		return net.JoinHostPort(host, named), nil
	}
	if n.Listen != "" {
		host, _, _ = net.SplitHostPort(n.Listen) // it was listened on
	}
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		return net.JoinHostPort(host, named), nil
	}
	if n.Interface != "" {
		have, err := rpc.HostAddresses()
		if err != nil {
			return "", err
		}
		if addr, err := rpc.ChooseAddress(n.Interface, have); err == nil { // else the interface is one of the nodes only
			return net.JoinHostPort(addr.String(), named), nil
		}
	}
	if addr, err := rpc.SourceAddress(ctx, j.Stream.Brokers...); err == nil {
		return net.JoinHostPort(addr.String(), named), nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find the address under which nodes reach the scheduler: %w: set network.advertise", err)
	}
	return net.JoinHostPort(host, named), nil
}

// close stops serving. It is idempotent and waits for no caller.
func (r *rendezvous) close() {
	if r.srv != nil {
		r.srv.Stop()
		r.served.Wait()
	}
}

func (r *rendezvous) admit(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := rpc.CheckToken(ctx, r.token, info.FullMethod); err != nil {
		return nil, err
	}
	if of, ok := req.(interface{ GetJob() string }); ok && of.GetJob() != r.job {
		return nil, status.Errorf(codes.PermissionDenied, "%s: this is the scheduler of job %q and not of %q", info.FullMethod, r.job, of.GetJob())
	}
	return handler(ctx, req)
}

// FindChief says where the newest known chief is.
func (r *rendezvous) FindChief(context.Context, *rpc.FindChiefRequest) (*rpc.ChiefPlace, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept.Chief.Address == "" {
		return nil, status.Errorf(codes.NotFound, "job %q has no chief yet", r.job)
	}
	return r.kept.Chief.Place(), nil
}

// Announce takes in where a chief is, unless a newer one is known.
func (r *rendezvous) Announce(_ context.Context, req *rpc.AnnounceRequest) (*rpc.AnnounceResponse, error) {
	rec := rpc.ChiefRecordOf(req.GetChief())
	if _, _, err := net.SplitHostPort(rec.Address); err != nil || rec.Incarnation == 0 || rec.Timeline == "" {
		return nil, status.Errorf(codes.InvalidArgument, "a chief is announced with HOST:PORT, incarnation and timeline, got %+v", rec)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch known := r.kept.Chief; {
	case known.Address != "" && known.Timeline != rec.Timeline:
		return nil, status.Errorf(codes.FailedPrecondition, "job %q is on timeline %q and not %q: stop the job before it is started on another checkpoint", r.job, known.Timeline, rec.Timeline)
	case rec.Incarnation < known.Incarnation:
		return nil, status.Errorf(codes.FailedPrecondition, "chief incarnation %d is older than %d, which is known", rec.Incarnation, known.Incarnation)
	case rec.Incarnation == known.Incarnation && rec != known:
		return nil, status.Errorf(codes.FailedPrecondition, "chief incarnation %d is at %s already", rec.Incarnation, known.Address)
	}
	if err := r.keep(rec); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return &rpc.AnnounceResponse{NextMs: announceEvery.Milliseconds()}, nil
}

// keep saves a new chief. Caller holds mu.
func (r *rendezvous) keep(rec rpc.ChiefRecord) error {
	if rec == r.kept.Chief {
		return nil
	}
	next := r.kept
	next.Chief = rec
	if r.store != nil {
		if err := r.store.Put(rendezvousKey, next); err != nil {
			return err
		}
	}
	r.kept = next
	return nil
}

// Alive takes in that a process runs.
func (r *rendezvous) Alive(_ context.Context, req *rpc.AliveRequest) (*rpc.AliveResponse, error) {
	id := backend.ID{Role: req.GetRole(), Rank: int(req.GetRank()), Generation: req.GetGeneration()}
	if err := id.Validate(); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "a process says who it is: %v", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.alive[id]; !known && len(r.alive) >= mostAlive {
		r.forgetOne()
	}
	trouble := []rune(req.GetTrouble())
	r.alive[id] = dialled{req.GetPhase(), string(trouble[:min(len(trouble), tailRunes)]), time.Now()}
	return &rpc.AliveResponse{NextMs: aliveEvery.Milliseconds()}, nil
}

// forgetOne makes room. Caller holds mu.
func (r *rendezvous) forgetOne() {
	var oldest backend.ID
	var at time.Time
	for id, d := range r.alive {
		if at.IsZero() || d.at.Before(at) || d.at.Equal(at) && id.Compare(oldest) < 0 {
			oldest, at = id, d.at
		}
	}
	delete(r.alive, oldest)
}

// heard is what a process last said of itself, if that is not long ago.
func (r *rendezvous) heard(id backend.ID) (dialled, bool) {
	if r == nil {
		return dialled{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	d, ok := r.alive[id]
	return d, ok && time.Since(d.at) < aliveFor
}

// find takes in what the checkpoint folder says of the chief, and gives the record to believe. An error: neither knows.
func (r *rendezvous) find(folder rpc.ChiefRecord, err error) (rpc.ChiefRecord, error) {
	if r == nil || r.address == "" {
		return folder, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := rpc.Prefer(folder, r.kept.Chief)
	if rec.Address == "" {
		return rec, err
	}
	if err := r.keep(rec); err != nil {
		r.lg.Warn("where the chief is cannot be saved", "err", err)
	}
	return rec, nil
}

// forget drops what is known of the chief: the job has stopped, and may start on another checkpoint.
func (r *rendezvous) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.keep(rpc.ChiefRecord{}); err != nil {
		r.lg.Warn("the last chief's address stays in the scheduler's state", "err", err)
	}
	clear(r.alive)
}
