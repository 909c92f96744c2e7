package trainer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/grpc"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/shuffler"
	"github.com/kale-sched/kale/trainer/auth"
	"github.com/kale-sched/kale/trainer/checkpoint"
	"github.com/kale-sched/kale/trainer/ps"
)

// WorkerOptions say which worker of the job a process is.
type WorkerOptions struct {
	Rank int
	// Generation tells this process from an earlier one of the same rank: the chief expels the lower.
	Generation uint64
	// Listen is the address of the Peer service, ":0" for any port, "" for what the specification's network says; Advertise is the HOST or HOST:PORT under
	// which others reach it. An empty Advertise means what Listen says, or this machine's name.
	Listen    string
	Advertise string
	// Interface, a name or a network in CIDR form, is used in place of the specification's.
	Interface string
}

// Defaults of what a TrainSpec may leave open.
const (
	defaultChunk  = 256
	defaultLinger = 20 * time.Millisecond
	defaultBeat   = 100 * time.Millisecond
	defaultGrace  = 15 * time.Second
)

// RunWorker joins the job and trains until it is drained. It ends with nil after a drain that the chief has taken note of. When ctx ends,
// it asks itself to drain, and leaves after the job's grace time at the latest: what it then still answers for, the chief gives to
// others. A session that the chief has expelled is given up, and the worker joins again with a new one.
//
// Errors: a specification that makes no sense; no ONNX Runtime; a port that is taken; a newer generation of this worker in the job; a refusal
// by a parameter server that repeating cannot mend. A chief, server or broker that is away is not an error: it is waited for.
func RunWorker(ctx context.Context, lg *slog.Logger, spec *rpc.TrainSpec, opts WorkerOptions) error {
	if lg == nil {
		lg = slog.New(slog.DiscardHandler)
	}
	lg = lg.With("worker", opts.Rank)
	store := checkpoint.Attach(spec.GetCheckpointDir(), spec.GetJob())
	meet := newRendezvous(lg, spec, roleWorker, opts.Rank, opts.Generation, store.Chief)
	defer meet.start()()
	findChief := store.Chief
	if meet != nil {
		findChief = meet.find
	}
	w, err := newWorker(lg, spec, opts, findChief)
	if err != nil {
		return fmt.Errorf("worker %d: %w", opts.Rank, err)
	}
	w.meet, w.stopped = meet, store.Stopped
	w.findTopic = func() (string, error) {
		job, err := store.LoadJob()
		return job.TopicID, err
	}
	if err := w.run(ctx); err != nil {
		return fmt.Errorf("worker %d: %w", opts.Rank, err)
	}
	return nil
}

// worker is one life of one worker process.
type worker struct {
	lg      *slog.Logger
	spec    *rpc.TrainSpec
	opts    WorkerOptions
	name    string
	topic   string
	started time.Time
	// findChief says where the chief is now.
	findChief func() (checkpoint.ChiefInfo, error)
	// meet tells the scheduler how this worker gets on; nil: there is none to tell.
	meet *rendezvous
	// findTopic says which topic, by its id, the job's state belongs to, unless the chief does; nil: that is not to be checked.
	findTopic func() (string, error)

	batchSize, queueCap int
	chunkSize, window   int64
	linger, emulate     time.Duration
	unitMode            shuffler.Mode

	decoder *Decoder // nil: counting
	engine  *engine  // nil: counting
	params  parameters
	tablets *ps.Client
	dead    *deadLetters
	metrics *metrics
	address string // of the Peer service

	feedWake, repairWake, beatNow signal
	sourceWake                    interrupter
	contact                       contact // with the brokers
	peersDone                     sync.WaitGroup
	// stopped says whether the job was stopped since a chief's incarnation was given out; nil: never.
	stopped     func(chief uint64) (bool, error)
	joined      atomic.Uint64 // the incarnation of the chief that it joined last
	newestChief atomic.Uint64 // highest incarnation of a chief that was seen in the store
	// end ends everything with a cause, errDrained after a drain.
	end context.CancelCauseFunc
	// onStart, when set, is called once end works: tests end workers without a drain.
	onStart func()
	// streamOpts are further options of the Kafka clients: tests cut a worker off with them.
	streamOpts []kgo.Opt

	mu       sync.Mutex // guards what follows
	ledger   *ledger
	leases   map[int32]*lease
	unit     *shuffler.Unit[*chunk]
	inbound  map[*inbound]bool
	outbound map[string]*outbound
	// accepting is what peers were told last.
	accepting bool
	// sourceFull and repairWaits: the source, or the repair reader, waits for room in the unit.
	sourceFull, repairWaits bool
	ready, draining, paused bool
	topicID                 string // "" until the chief has told it or findTopic was asked
	session                 uint64
	fence                   *rpc.Fence
	incarnations            map[int32]uint64 // of the parameter servers
	changes                 uint64           // how often one of them has been replaced
	lostTaken               map[spanKey]bool // spans given up that are being pushed as empty
	repairProblems          map[int32]*rpc.PartitionProblem
	halts                   bool // something stood still in this worker's life
	skips                   bool // records that cannot be decoded and have no topic to go to
}

type spanKey struct {
	partition  int32
	begin, end int64
}

func newWorker(lg *slog.Logger, spec *rpc.TrainSpec, opts WorkerOptions, findChief func() (checkpoint.ChiefInfo, error)) (*worker, error) {
	ws, m := spec.GetWorker(), spec.GetModel()
	mode, err := shuffler.ParseMode(ws.GetForward())
	if err != nil {
		return nil, err
	}
	if m.GetBatch() < 1 {
		return nil, fmt.Errorf("the model's batch is %d records; want at least 1", m.GetBatch())
	}
	w := &worker{
		lg: lg, spec: spec, opts: opts, findChief: findChief,
		name: fmt.Sprintf("worker-%d", opts.Rank), topic: spec.GetStream().GetTopic(), started: time.Now(),
		batchSize: int(m.GetBatch()), window: ws.GetWindow(), unitMode: mode,
		skips:  spec.GetStream().GetOnUndecodable() == skipPolicy,
		linger: defaultLinger, emulate: millis(ws.GetEmulateStepMs()),
		metrics:  &metrics{emulated: ws.GetEmulateStepMs() > 0},
		feedWake: newSignal(), repairWake: newSignal(), beatNow: newSignal(),
		end:    func(error) {},
		ledger: newLedger(), leases: map[int32]*lease{}, inbound: map[*inbound]bool{}, outbound: map[string]*outbound{},
		incarnations: map[int32]uint64{}, lostTaken: map[spanKey]bool{}, repairProblems: map[int32]*rpc.PartitionProblem{},
	}
	if ws.GetLingerMs() > 0 {
		w.linger = millis(ws.GetLingerMs())
	}
	w.chunkSize = int64(ws.GetChunk())
	if w.chunkSize < 1 {
		w.chunkSize = defaultChunk
	}
	w.chunkSize = min(w.chunkSize, int64(w.batchSize)) // a batch holds whole chunks
	if w.queueCap = int(ws.GetQueue()); w.queueCap < 1 {
		w.queueCap = 4 * w.batchSize
	}
	w.unit, err = shuffler.New[*chunk](shuffler.Options{Mode: mode, Capacity: w.queueCap},
		rand.New(rand.NewPCG(uint64(opts.Rank), opts.Generation)))
	if err != nil {
		return nil, err
	}
	if m.GetKind() != KindCounting {
		if w.decoder, err = NewDecoder(spec.GetFeatures()); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// run is the worker's life. Teardown is in the reverse order of what it starts.
func (w *worker) run(ctx context.Context) error {
	if err := w.warmUp(); err != nil {
		return err
	}
	defer w.coolDown()
	// The work outlives ctx: when that ends, the worker drains.
	work, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	w.end = end
	if w.onStart != nil {
		w.onStart()
	}
	src, err := newSource(w)
	if err != nil {
		return err
	}
	defer src.close()
	rep, err := newRepairer(w, src)
	if err != nil {
		return err
	}
	defer rep.close()
	if w.dead, err = newDeadLetters(w); err != nil {
		return err
	}
	defer w.dead.close()
	srv, err := w.servePeers()
	if err != nil {
		return err
	}
	var tasks sync.WaitGroup
	batches, done := make(chan *batch), make(chan stepped, 1)
	tasks.Go(func() { src.run(work) })
	tasks.Go(func() { rep.run(work) })
	tasks.Go(func() { w.dead.run(work) })
	tasks.Go(func() { (&feeder{w: w, index: map[uint64]int32{}}).run(work, batches) })
	tasks.Go(func() { w.failUnless(work, w.step(work, batches, done)) })
	tasks.Go(func() { w.failUnless(work, w.push(work, done)) })
	tasks.Go(func() { w.failUnless(work, w.beats(work)) })
	tasks.Go(func() { w.failUnless(work, w.watchChief(work)) })
	w.await(ctx, work)
	tasks.Wait()
	w.peersDone.Wait()
	srv.Stop()
	if cause := context.Cause(work); !errors.Is(cause, errDrained) {
		return cause
	}
	return nil
}

// errDrained is the cause with which a worker that may leave ends.
var errDrained = errors.New("drained")

// await returns when the work has ended. When ctx ends it starts a drain, and ends the work after the grace time.
func (w *worker) await(ctx, work context.Context) {
	select {
	case <-work.Done():
		return
	case <-ctx.Done():
	}
	grace := defaultGrace
	if ms := w.spec.GetGraceMs(); ms > 0 {
		grace = millis(ms)
	}
	w.lg.Info("asked to end; draining", "grace", grace)
	w.mu.Lock()
	w.drain()
	idle := w.session == 0
	w.mu.Unlock()
	if idle { // no chief knows of us
		w.end(errDrained)
		return
	}
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-work.Done():
	case <-t.C:
		w.mu.Lock()
		left := w.ledger.len()
		w.mu.Unlock()
		w.lg.Warn("not drained in time; leaving, the chief gives what is left to others", "spans", left)
		w.end(errDrained)
	}
}

// failUnless ends the work with err, unless err is nil or only says that ctx has ended.
func (w *worker) failUnless(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		w.lg.Error("worker fails", "err", err)
		w.end(err)
	}
}

// warmUp makes everything ready that needs no chief.
func (w *worker) warmUp() error {
	layout, width, _, _, err := stateShape(w.spec)
	if err != nil {
		return err
	}
	if w.spec.GetModel().GetKind() != KindCounting && w.engine == nil {
		if w.engine, err = newEngine(w.lg, w.spec); err != nil {
			return err
		}
	}
	if w.params == nil {
		w.tablets = ps.NewClient(w.lg, layout, width, func(addr string) (*grpc.ClientConn, error) { return dialPeer(addr, w.spec.GetToken()) })
		w.params = &tabletClient{member: w.name, width: width, dense: layout.DenseSize(), ps: w.tablets}
	}
	if w.emulate > 0 {
		w.lg.Info("the accelerator is emulated: a step takes at least this long", "step", w.emulate)
	}
	return nil
}

func (w *worker) coolDown() {
	if w.tablets != nil {
		_ = w.tablets.Close() // nothing is under way any more
	}
	if w.engine != nil {
		w.engine.close()
	}
}

// servePeers starts the Peer service, and notes its address.
func (w *worker) servePeers() (*grpc.Server, error) {
	lis, err := listen(context.Background(), w.spec, w.opts.Listen, w.opts.Interface)
	if err != nil {
		return nil, fmt.Errorf("listen for peers: %w", err)
	}
	if w.address, err = advertised(w.opts.Advertise, lis.Addr()); err != nil {
		_ = lis.Close() // err says what is wrong
		return nil, err
	}
	w.meet.at(rpc.Phase_PHASE_DIALLING, w.address)
	token := w.spec.GetToken()
	srv := grpc.NewServer(grpc.UnaryInterceptor(auth.UnaryServer(token)), grpc.StreamInterceptor(auth.StreamServer(token)),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage), acceptKeepalive())
	rpc.RegisterPeerServer(srv, &peerServer{w: w})
	go func() { // ends with srv.Stop in run
		if err := srv.Serve(lis); err != nil {
			w.end(fmt.Errorf("serve peers: %w", err))
		}
	}()
	return srv, nil
}

// roomMade places what came back from peers, and wakes whoever waits for room in the shuffle unit. Caller holds mu.
func (w *worker) roomMade() {
	for d, ok := w.unit.Again(); ok; d, ok = w.unit.Again() {
		w.carryOut(d)
	}
	w.spread()
	if w.repairWaits {
		w.repairWake.set()
	}
	if w.sourceFull {
		w.sourceWake.wake()
	}
}
