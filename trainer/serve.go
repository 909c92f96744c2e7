package trainer

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/auth"
	"github.com/kale-sched/kale/trainer/checkpoint"
	"github.com/kale-sched/kale/trainer/chief"
	"github.com/kale-sched/kale/trainer/kafka"
	"github.com/kale-sched/kale/trainer/ps"
)

// ErrFenced says that another incarnation of this process serves its tablets: it must exit and not be restarted.
var ErrFenced = errors.New("fenced: a newer process has taken this one's place")

// ServerOptions say which parameter server a process is.
type ServerOptions struct {
	Index int
	// Generation tells this process from an earlier one of the same index, for the scheduler's eyes; 0 counts as 1.
	Generation uint64
	// Begun says that the job has had its checkpoint: one that is gone is waited for and not made anew. BegunFile, where it is not empty, is a file of this process's
	// allocation that says so too, to those who are started again in it.
	Begun     bool
	BegunFile string
	// Listen is the address to listen on, "127.0.0.1:0" for any port, "" for what the specification's network says; Advertise what others dial, with port 0
	// replaced by the real one.
	Listen    string
	Advertise string
	// Interface, a name or a network in CIDR form, is used in place of the specification's.
	Interface string
}

// RunServer runs parameter server o.Index until ctx ends (then it snapshots and returns nil) or it is fenced (ErrFenced). Server 0 also runs the chief,
// and makes the job's state when there is none: timeline, topic id and the pinned start offsets (rules 3 and 16).
func RunServer(ctx context.Context, lg *slog.Logger, spec *rpc.TrainSpec, o ServerOptions) error {
	if o.Index < 0 || o.Index >= int(spec.GetServers()) {
		return fmt.Errorf("parameter server %d: the job has servers 0 to %d", o.Index, spec.GetServers()-1)
	}
	lg = lg.With("server", o.Index)
	if _, err := os.Stat(o.BegunFile); err == nil {
		o.Begun = true
	}
	meet := newRendezvous(lg, spec, roleServer, o.Index, o.Generation, checkpoint.Attach(spec.GetCheckpointDir(), spec.GetJob()).Chief)
	defer meet.start()()
	store, err := openStore(ctx, lg, spec, o, meet)
	if err == nil {
		err = awaitRun(ctx, lg, o.Index, store, meet)
	}
	if errors.Is(err, errAskedToEnd) {
		return nil
	}
	if err != nil {
		return err
	}
	incarnation, err := store.ClaimIncarnation(o.Index)
	if err != nil {
		return fmt.Errorf("parameter server %d: claim an incarnation: %w", o.Index, err)
	}
	lis, err := listen(ctx, spec, o.Listen, o.Interface)
	if err != nil {
		return fmt.Errorf("parameter server %d: %w", o.Index, err)
	}
	address, err := advertised(o.Advertise, lis.Addr())
	if err != nil {
		return err
	}
	meet.at(rpc.Phase_PHASE_STARTING, address)
	p := &serverProcess{
		meet: meet, lg: lg.With("incarnation", incarnation), spec: spec, index: o.Index, begun: o.Begun, begunFile: o.BegunFile,
		store: store, incarnation: incarnation, address: address, lis: lis,
	}
	return p.run(ctx)
}

// serverProcess is one life of one parameter server.
type serverProcess struct {
	lg          *slog.Logger
	spec        *rpc.TrainSpec
	index       int
	begun       bool // the job's state was there before
	begunFile   string
	store       *checkpoint.Store
	incarnation uint64
	address     string
	lis         net.Listener
	meet        *rendezvous

	job     checkpoint.JobState
	tablets *ps.Server
	chief   *chief.Chief // server 0 only

	// verified is when this incarnation was last seen to be its server's newest, Unix ns; newestChief the highest chief that has published itself.
	verified    atomic.Int64
	newestChief atomic.Uint64

	jobMu sync.Mutex // guards job.Starts, job.Lost and job.CutOff once tasks run

	mu       sync.Mutex
	snapDone uint64
	snapWant uint64
	snapNow  chan struct{}
}

func (p *serverProcess) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	fresh, err := p.takeUp(ctx)
	if errors.Is(err, errAskedToEnd) {
		return nil // nothing was begun
	}
	if err != nil {
		return err
	}
	p.noteBegun()
	p.snapNow = make(chan struct{}, 1)
	srv := grpc.NewServer(grpc.ChainUnaryInterceptor(auth.UnaryServer(p.spec.GetToken()), p.steppedDown), grpc.StreamInterceptor(auth.StreamServer(p.spec.GetToken())),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage), acceptKeepalive())
	p.tablets.Register(srv)
	var tasks sync.WaitGroup
	// Every task ends with ctx; one that fails ends all of them with its error as the cause.
	start := func(f func(context.Context) error) {
		tasks.Go(func() {
			if err := f(ctx); err != nil {
				cancel(err)
			}
		})
	}
	if p.index == 0 {
		if err := p.startChief(ctx, srv, fresh, start); err != nil {
			return err
		}
	}
	start(func(context.Context) error { return p.serve(srv) })
	p.verified.Store(time.Now().UnixNano())
	start(p.trust)
	start(p.beats)
	start(p.snapshots)
	if p.index == 0 {
		if err := p.store.PublishChief(p.chiefInfo()); err != nil {
			cancel(err)
		}
		p.meet.announce(p.chiefInfo())
	}
	start(p.verify) // which looks for what was published
	p.meet.at(rpc.Phase_PHASE_DIALLING, p.address)
	p.lg.Info("parameter server is up", "address", p.address, "chief", p.index == 0)
	<-ctx.Done()
	cause := context.Cause(ctx)
	stopServer(srv)
	tasks.Wait()
	return p.finish(cause)
}

// finish writes the last snapshot of a server that was asked to end; one that was fenced writes nothing more.
func (p *serverProcess) finish(cause error) error {
	if errors.Is(cause, checkpoint.ErrSuperseded) || errors.Is(cause, ErrFenced) {
		return fmt.Errorf("parameter server %d, incarnation %d: %w", p.index, p.incarnation, ErrFenced)
	}
	if !errors.Is(cause, context.Canceled) {
		return fmt.Errorf("parameter server %d: %w", p.index, cause)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := p.tablets.Snapshot(ctx); err != nil {
		return fmt.Errorf("parameter server %d: last snapshot: %w", p.index, err)
	}
	p.lg.Info("parameter server has ended; its state is in the checkpoint store")
	return nil
}

const maxMessage = 1 << 30

func (p *serverProcess) serve(srv *grpc.Server) error {
	if err := srv.Serve(p.lis); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve on %s: %w", p.address, err)
	}
	return nil
}

// stopServer ends the RPCs under way within a second, then by force.
func stopServer(srv *grpc.Server) {
	done := make(chan struct{})
	go func() { // ends with GracefulStop, which Stop cuts short
		srv.GracefulStop()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Second):
		srv.Stop()
		<-done
	}
}

// loadJob reads the job's state. Server 0 makes it when there never was one; the others wait for it.
func (p *serverProcess) loadJob(ctx context.Context) (fresh bool, err error) {
	for waited := false; ; {
		remains := rpc.Remains(p.store.Root()) // before the state is looked for, which comes first where it is made
		p.job, err = p.store.LoadJob()
		if err == nil && p.established() {
			if p.index == 0 {
				p.mendJob(false)
			}
			return fresh, p.checkJob()
		}
		if err != nil && !errors.Is(err, checkpoint.ErrNoJob) {
			return false, err
		}
		if p.index == 0 {
			switch { // one that is made now would win over the lost one even when that is back
			case err != nil && len(remains) > 0:
				return false, p.jobLost(remains)
			case err != nil && p.begun:
				return false, fmt.Errorf("parameter server %d: %w", p.index, p.store.Gone())
			}
			if err := p.makeJob(ctx); err != nil {
				return false, err
			}
			fresh = true
			continue
		}
		if !waited {
			p.lg.Info("waiting for server 0 to make the job's state", "store", p.store.Root())
			waited = true
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return false, err
		}
	}
}

// mendJob sees to it that there are two copies of the job's state. Where none of them can be used any more, a chief that runs has it, and saves it again; where no file is
// left, it does that only in a folder that has its own record as the chief: another one is not the job's, such as one that a file system was mounted on.
func (p *serverProcess) mendJob(ours bool) {
	p.jobMu.Lock()
	was, err := p.store.MendJob()
	p.jobMu.Unlock()
	switch {
	case p.chief == nil:
	case errors.Is(err, checkpoint.ErrDamaged):
		was, err = err, p.saveJob(func(*checkpoint.JobState) {})
	case errors.Is(err, fs.ErrNotExist) && ours:
		if err = p.store.MakeJobFolder(); err == nil {
			was, err = errors.New("no file of it was left"), p.saveJob(func(*checkpoint.JobState) {})
		}
	}
	switch {
	case err != nil && !errors.Is(err, checkpoint.ErrNoJob) && !errors.Is(err, fs.ErrNotExist): // what is missing is told elsewhere
		p.lg.Warn("there is only one copy of the job's state, and no other can be made; trying again", "err", err)
	case err == nil && was != nil:
		p.lg.Warn("a file of the job's state was damaged or lost, and is written anew, from the other copy of it or from the chief's memory: is the disk sound?", "was", was)
	}
}

// jobLost says what the loss of the job's state means.
func (p *serverProcess) jobLost(remains []string) error {
	return fmt.Errorf("parameter server %d: %w: the job's state is missing from %s, and without it what is left of the checkpoint (%s) cannot be used. Bring its file back from a backup, "+
		"which is taken up within seconds; or give the model up: kale stop -force %[5]s, remove %[6]s, and kale forget %[5]s; the next run begins a new one", p.index, ps.ErrUnrestorable,
		filepath.Join(p.store.Root(), rpc.JobStateFolder), strings.Join(remains, ", "), p.spec.GetJob(), p.store.Root())
}

// established says whether the job's state is the one that counts. Of two starts of server 0 on an empty folder, the one that loses may leave its state
// there for a moment; it never publishes itself as chief, so the others wait for a chief of the same timeline.
func (p *serverProcess) established() bool {
	if p.index == 0 {
		return true
	}
	info, err := p.store.Chief()
	return err == nil && info.Timeline == p.job.Timeline
}

func (p *serverProcess) checkJob() error {
	switch {
	case p.job.Fingerprint != p.spec.GetFingerprint():
		return fmt.Errorf("the checkpoint in %s belongs to another model, set of features or topic (fingerprint %s, the job file gives %s): "+
			"undo the change, or set checkpoint.dir to an empty folder to start anew", p.store.Root(), p.job.Fingerprint, p.spec.GetFingerprint())
	case p.job.Tablets != int(p.spec.GetTablets()) || p.job.Servers != int(p.spec.GetServers()):
		return fmt.Errorf("the checkpoint in %s was made with %d tablets on %d servers, the job file says %d on %d: changing them is not possible yet; undo the change, "+
			"or set checkpoint.dir to an empty folder", p.store.Root(), p.job.Tablets, p.job.Servers, p.spec.GetTablets(), p.spec.GetServers())
	}
	return nil
}

// makeJob resolves where the stream starts and pins it, before the first record is read (rule 16).
func (p *serverProcess) makeJob(ctx context.Context) error {
	adm, err := p.admin()
	if err != nil {
		return fmt.Errorf("%w: %w", errNoStart, err)
	}
	defer adm.Close()
	topicID, starts, err := resolveStarts(ctx, adm, p.spec.GetStream(), time.Now())
	if err != nil {
		return fmt.Errorf("start job %q: %w: %w", p.spec.GetJob(), errNoStart, err)
	}
	var raw [8]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return fmt.Errorf("draw a timeline: %w", err)
	}
	return p.store.SaveJob(checkpoint.JobState{
		Job: p.spec.GetJob(), Timeline: hex.EncodeToString(raw[:]), Fingerprint: p.spec.GetFingerprint(),
		Topic: p.spec.GetStream().GetTopic(), TopicID: topicID, Tablets: int(p.spec.GetTablets()), Servers: int(p.spec.GetServers()),
		MapVersion: 1, Starts: starts, CreatedAt: time.Now().UTC(),
	}, p.incarnation)
}

func (p *serverProcess) admin() (*kadm.Client, error) {
	opts, err := kafka.Opts(p.spec.GetStream())
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka at %v: %w", p.spec.GetStream().GetBrokers(), err)
	}
	return kadm.NewClient(cl), nil
}

func (p *serverProcess) startChief(ctx context.Context, srv *grpc.Server, fresh bool, start func(func(context.Context) error)) error {
	p.chief = chief.New(p.lg, chief.Options{
		Job: p.spec.GetJob(), Timeline: p.job.Timeline, TopicID: p.job.TopicID, Incarnation: p.incarnation, MapVersion: p.job.MapVersion,
		Servers: p.job.Servers, Starts: p.job.Starts, Fresh: fresh, LeaseTimeout: millis(p.spec.GetLeaseTimeoutMs()),
		Beat: millis(p.spec.GetBeatMs()), Grace: millis(p.spec.GetGraceMs()), Policies: policies(p.spec.GetStream()),
		Lost: lostSpans(p.job.Lost), KeepLost: p.keepLost, CutOff: cutOffSpans(p.job.CutOff), KeepCutOff: p.keepCutOff, Memory: p.loadMemory(),
	}, p.dial)
	rpc.RegisterChiefServer(srv, p.chief)
	adm, err := p.admin()
	if err != nil {
		return err
	}
	group := rpc.Group(p.spec.GetJob())
	if p.spec.GetStream().GetNoCommit() {
		group = ""
	}
	start(p.chief.Run)
	start(func(ctx context.Context) error {
		defer adm.Close()
		return p.chief.Watch(ctx, chief.WatchOptions{
			Admin: adm, Topic: p.spec.GetStream().GetTopic(), Group: group,
			Pin: func(starts map[int32]int64) error {
				return p.saveJob(func(job *checkpoint.JobState) { job.Starts = starts })
			},
		})
	})
	start(p.keepMemory)
	return nil
}

func policies(s *rpc.StreamSpec) *rpc.Policies {
	return &rpc.Policies{OnLost: s.GetOnLost(), OnUndecodable: s.GetOnUndecodable()}
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

func (p *serverProcess) dial(addr string) (*grpc.ClientConn, error) {
	return dialPeer(addr, p.spec.GetToken())
}

// keepaliveEvery is how often a connection on which nothing is heard is asked whether it lives. Without it a connection into a hole in the network (a
// host that vanished, a firewall that forgot) is given up only by the kernel, after a quarter of an hour.
const keepaliveEvery = 10 * time.Second

// acceptKeepalive lets clients ask as often as they do.
func acceptKeepalive() grpc.ServerOption {
	return grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveEvery / 2, PermitWithoutStream: true})
}

// dialPeer connects to another process of the job.
func dialPeer(addr, token string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithPerRPCCredentials(auth.Client(token)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveEvery, Timeout: keepaliveEvery / 2, PermitWithoutStream: true}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)))
}

// beats reports progress to the chief, wherever it is, until ctx ends or this server is fenced.
func (p *serverProcess) beats(ctx context.Context) error {
	var (
		conn  *grpc.ClientConn
		at    checkpoint.ChiefInfo
		seq   uint64
		known uint64
		quiet bool
	)
	defer func() {
		if conn != nil {
			conn.Close()
		}
	}()
	next := millis(p.spec.GetBeatMs()) / 2
	for {
		if conn != nil && p.newestChief.Load() > at.Incarnation {
			conn.Close() // it may answer for ever, and lead nobody
			conn = nil
		}
		if conn == nil {
			info, err := p.store.Chief()
			if err == nil && info.Incarnation >= at.Incarnation {
				if conn, err = p.dial(info.Address); err == nil {
					at = info
				}
			}
		}
		if conn != nil {
			seq++
			d, err := p.beat(ctx, conn, at, known, seq)
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil:
				p.meet.lost(err)
				conn.Close()
				conn = nil
				if !quiet {
					p.lg.Info("the chief does not answer; looking for it again", "address", at.Address, "err", err)
					quiet = true
				}
			case d.GetFenced():
				return ErrFenced
			default:
				p.meet.at(rpc.Phase_PHASE_JOINED, p.address)
				quiet = false
				known = d.GetFence().GetChief()
				p.obey(d)
				if d.GetNextBeatMs() > 0 {
					next = millis(d.GetNextBeatMs())
				}
			}
		}
		if pause(ctx, max(next, 5*time.Millisecond)) != nil {
			return nil
		}
	}
}

func (p *serverProcess) beat(ctx context.Context, conn *grpc.ClientConn, at checkpoint.ChiefInfo, known, seq uint64) (*rpc.ServerDirective, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	p.mu.Lock()
	done := p.snapDone
	p.mu.Unlock()
	applied, touched, durable := p.tablets.Progress()
	return rpc.NewChiefClient(conn).ServerBeat(ctx, &rpc.ServerBeatRequest{
		Fence: &rpc.Fence{Timeline: p.job.Timeline, Chief: max(known, at.Incarnation), Server: p.incarnation, MapVersion: p.job.MapVersion},
		Index: int32(p.index), Address: p.address, Applied: applied, Touched: touched, Durable: durable,
		Metrics: p.tablets.Metrics(), SnapshotDone: done, Seq: seq,
	})
}

func (p *serverProcess) obey(d *rpc.ServerDirective) {
	starts := map[int32]int64{}
	for _, o := range d.GetStarts() {
		starts[o.GetPartition()] = o.GetWatermark()
	}
	if err := p.tablets.SetStarts(starts); err != nil {
		p.lg.Error("the chief's start offsets are refused", "err", err)
	}
	p.tablets.SetChief(d.GetFence().GetChief())
	p.mu.Lock()
	defer p.mu.Unlock()
	if d.GetSnapshotRequest() > p.snapWant {
		p.snapWant = d.GetSnapshotRequest()
		select {
		case p.snapNow <- struct{}{}:
		default:
		}
	}
}

// firstSnapshot is when a server that has just started writes its first snapshot, if the job's own interval is not shorter still: what is trained
// before it is trained again when the server dies.
const firstSnapshot = 15 * time.Second

// nextSnapshot is the time from one snapshot to the next: twice that to the one before, up to the job's interval. The first follows last = 0.
func nextSnapshot(last, every time.Duration) time.Duration {
	return min(every, max(firstSnapshot, 2*last))
}

// snapshots writes snapshots by the clock and on request. A failed one is reported in the metrics and tried again; serving goes on.
func (p *serverProcess) snapshots(ctx context.Context) error {
	every := millis(p.spec.GetSnapshotEveryMs())
	if every <= 0 {
		every = 10 * time.Minute
	}
	wait := nextSnapshot(0, every)
	t := time.NewTimer(wait)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			wait = nextSnapshot(wait, every)
			t.Reset(wait)
		case <-p.snapNow:
		}
		p.mu.Lock()
		want := p.snapWant
		p.mu.Unlock()
		err := p.tablets.Snapshot(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, checkpoint.ErrSuperseded):
			return err
		case err != nil:
			p.lg.Error("snapshot failed; training goes on, the durable offsets stay where they are", "err", err)
			if want > p.done() { // asked for: try again soon
				if pause(ctx, time.Second) != nil {
					return nil
				}
				p.kick()
			}
			continue
		}
		p.mu.Lock()
		p.snapDone = max(p.snapDone, want)
		p.mu.Unlock()
	}
}

func (p *serverProcess) done() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.snapDone
}

func (p *serverProcess) kick() {
	select {
	case p.snapNow <- struct{}{}:
	default:
	}
}

// advertised gives the address that others dial: the port is that of the listener when it was 0, the host is this machine's when none was named.
func advertised(want string, got net.Addr) (string, error) {
	gotHost, port, err := net.SplitHostPort(got.String())
	if err != nil {
		return "", fmt.Errorf("advertise %s: %w", got, err)
	}
	host := gotHost
	if want != "" {
		h, pt, err := net.SplitHostPort(want)
		if err != nil {
			return "", fmt.Errorf("advertise %q: want HOST:PORT: %w", want, err)
		}
		host = h
		if pt != "0" && pt != "" {
			port = pt
		}
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		if host, err = os.Hostname(); err != nil {
			return "", fmt.Errorf("advertise an address: %w: name one with -advertise", err)
		}
	}
	return net.JoinHostPort(host, port), nil
}
