package core

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/state"
	"github.com/kale-sched/kale/core/traffic"
	"github.com/kale-sched/kale/estimator"
)

// Options are what a scheduler needs beside its job.
type Options struct {
	Job *job.Job
	// StateDir is the job's own folder on this machine: the state file, and what the local backend keeps.
	StateDir string
	// BackendDir is where the local backend keeps it instead, where that is not StateDir: a job beside another one that must not take the same devices.
	BackendDir string
	// Backend runs the job's processes; the caller launches and closes it.
	Backend backend.Backend
	// Trainer is the path of the kale-trainer program on the allocations.
	Trainer string
	// Env is given to trainers.
	Env map[string]string
	// Log may be nil: silent.
	Log *slog.Logger
	// Told says that a person reads the view's problems and notes where the log is read too: what they tell is no warning there, but level Info.
	Told bool
	// Pool is shared with other jobs; nil: the job has what its file and the cluster allow.
	Pool *Pool
	// Stop opens the job only to stop it: Run back-fills and decides nothing, drains, writes a snapshot, releases and returns.
	Stop bool
	// Force makes that a stop by force.
	Force bool
	// AnyOwner lets the cluster take this for the job whoever's its name is: to end what nobody else can end any more.
	AnyOwner bool
	// ShutOut takes the parameter servers' places in the checkpoint store, so that whoever still serves there ends by itself without writing: a stop does that where
	// the cluster does not end them. nil: nobody can.
	ShutOut func(servers int) error
	// Lease is the job's, where the caller has taken it already (TakeLease by force); Open takes it otherwise. An opened scheduler closes it.
	Lease *Lease
	// Wanted is, for a preview beside a scheduler that runs, what that one says; nil: it is read in StateDir.
	Wanted *Wanted
	// Offline says that the brokers do not answer: a preview does not wait for them.
	Offline bool
	// TrainForecast trains a forecast model and measures it, without the caller's help but for ctx: where forecast.retrain asks for it. nil: nothing is trained anew.
	TrainForecast func(ctx context.Context, t ForecastTraining) (ForecastTrained, error)
	// Progress is told of long work, may be nil.
	Progress func(what string, done, total int)
	// Problems are those of the caller, which the view's end with, such as that nobody reads what it prints. It is asked at each look, by one goroutine of each
	// scheduler that shares it, and may be nil.
	Problems func() []string
}

// Scheduler owns one job: see the package comment. Open it, Run it, Close it. View and Do may be called from anywhere.
type Scheduler struct {
	opt Options
	job *job.Job
	lg  *slog.Logger

	store    *state.Store // nil: a preview, which looks once
	lease    *Lease       // nil: it only looks, or stops a job whose checkpoint folder cannot be written
	kafka    *traffic.Client
	arrivals *traffic.Arrivals
	meet     *rendezvous
	chief    *chiefLink
	policy   plan.Policy
	prior    estimator.Model
	online   *estimator.Online
	named    modelFile
	foresee  *foresight
	awaited  time.Time      // since when a job that runs waits for its forecast model; see awaitsModel
	heldOnce bool           // it has waited, or had not to
	training *trainingRun   // of a forecast model; nil: none
	coming   *comer         // the model that was trained and is made ready to be promoted; nil: none
	sparing  sync.WaitGroup // the copies of promoted models that are being made
	loads    *workloads
	progress *progressLog

	// Owned by the goroutine of Run.
	want        *desired
	memory      string          // the newest that the chief had kept beside the checkpoint when it was looked for last
	beginning   map[int32]int64 // where the job goes on, as asked before its chief was up
	trainedUpTo map[int32]int64 // what partitions were trained up to, as a chief said last that had heard from every server
	seen        *seen
	said        *rpc.JobStatus // the chief's last answer, at saidAt
	saidAt      time.Time
	listed      []backend.Status // the last whole list
	listedAt    time.Time
	faults      []string            // what a person has to mend in the cluster, as the backend said when that was last known
	excluded    []backend.Exclusion // nodes that the backend kept the job off when that was last known
	backoff     map[backend.ID]retry
	tickAt      time.Time
	undecided   bool // an order has been taken that no decision could follow yet
	trimmed     time.Time
	started     time.Time
	cutShort    bool // the stop before this run was by force, and had not come to its end
	last        *Record
	lastChange  *Record
	lastRescale *Rescale
	rollbacks   []Rollback // replaced, never changed
	losses      []Loss     // likewise
	arrived     arrived
	lastSample  Sample
	lastHistory History
	troubles    map[backend.ID]*trouble // by role and rank
	silences    map[backend.ID]*silence // by role and rank
	down        []string                // the parameter servers that are down, for people (serversDown); by the last picture
	listened    time.Time               // when it was listened for them last
	queued      map[backend.ID]bool     // whose wait in the queue is measured
	// replacements are those of processes that hung, by role and rank.
	replacements map[backend.ID]replacement
	beside       *bool           // whether the backend holds places for successors; nil: not asked
	standbys     map[int]standby // of servers, by index
	ends         map[int]dueEnd  // likewise
	workerAsk    roomAsk
	serverAsk    roomAsk
	roomEvery    time.Duration // a constant, but in tests
	unplaced     time.Time     // since when a server has had no place, as this scheduler saw it; zero: all have one
	unplacedLate bool          // for so long that it is a problem, and workers make way for it
	madeWay      time.Time     // when a worker left its place to one last
	changing     *change       // what the backend has not answered yet; nil: nothing
	spawn        func(func())  // go, but in tests that want every answer at once
	ensureSaid   string        // what was logged last of one, since one went well
	ensureErr    error         // of the last Ensure as a whole
	releaseErr   error         // of the last Release of what is to leave
	may          int           // workers, by the pool, when it was asked last
	askAgain     time.Duration // after the last decision: what it asked the pool for is firm then, or a tick is over
	stopSince    time.Time     // when this scheduler began to stop the job
	stopLasts    time.Duration // since then, at its last step
	serversTold  time.Time     // when a stop first told the servers to end; zero: not yet
	shutOut      bool          // their places were taken since
	shutOutNext  time.Time     // when that is tried again
	recorded     time.Time     // when the last sample was recorded
	snapshot     askedSnapshot // of a stop
	// snapshotFrom is when each server had written its newest snapshot as that one was asked for, by the server's clock; nil: it was not asked for.
	snapshotFrom map[int32]int64

	serverSnapshot askedSnapshot // before a server is renewed
	snapshotErr    error
	failing        []string // what kept servers from writing snapshots when the chief answered last
	damaged        error    // what is wrong with the file of its state, as it was found
	unsaved        error    // nothing is decided or done until the desired state can be saved again
	kept           bool     // the token and the shape are beside the checkpoint
	modelSeen      bool     // the job's state was seen in the checkpoint folder
	gone           bool     // of a preview: nothing lives of the job, which was not stopped
	steady         steady
	leaseDown      bool
	arrivalsDown   bool
	missed         missed
	outages        outages       // of the brokers
	topicKept      *traffic.Kept // nil: not asked yet
	near           string        // that retention comes near, as it was said last
	topicKeptAt    time.Time
	kafkaDown      bool
	chiefDown      bool
	absence        absence
	lostChief      lostChief
	unleased       string // why the lease is not taken though the job is being stopped, as it was said last
	fell           *fall  // nil: the chief has no less than the one before, or it is told
	backendDown    bool

	commands chan command
	ended    chan struct{} // closed when Run has returned
	endOnce  sync.Once
	view     atomic.Pointer[View]
	diags    hcl.Diagnostics
}

// list asks the backend what it has of the job.
func (o Options) list(ctx context.Context) (list []backend.Status, complete bool, err error) {
	return Processes(ctx, o.Backend, o.Job.Name)
}

// assumedJoin is the join time before one was measured: a container, an image and a graph on a busy machine.
const assumedJoin = 30 * time.Second

// Open prepares a scheduler: it opens the state, configures the backend with the job's block and connects to Kafka lazily. Diagnostics are the backend's
// judgement of its block.
func Open(ctx context.Context, o Options) (*Scheduler, hcl.Diagnostics, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	want, unread := WantedAt(o.StateDir)
	on := unread != nil || want.Runs() // whoever takes it up holds what runs, on nodes that may come back
	if o.Stop {
		if diags := CheckSameBackend(o.Job, o.StateDir); diags.HasErrors() {
			return nil, diags, nil
		}
		o.Job = AsItRuns(o.Job, o.StateDir)
	} else if diags := CheckRunning(o.Job, want); diags.HasErrors() {
		return nil, diags, nil
	}
	owner := jobOwner(o.Job)
	if o.AnyOwner {
		owner = backend.Owner{}
	}
	diags, err := configureAs(ctx, o.Backend, o.Job, cmp.Or(o.BackendDir, o.StateDir), owner)
	if err != nil || diags.HasErrors() {
		return nil, diags, err
	}
	if !o.Stop {
		diags = append(diags, NotTakenUp(ctx, o.list, o.Job, want, nil)...)
	}
	s := &Scheduler{
		opt: o, job: o.Job, lg: o.Log.With("job", o.Job.Name), commands: make(chan command), ended: make(chan struct{}), spawn: func(f func()) { go f() },
		roomEvery: roomEvery, backoff: map[backend.ID]retry{}, troubles: map[backend.ID]*trouble{}, silences: map[backend.ID]*silence{}, replacements: map[backend.ID]replacement{}, queued: map[backend.ID]bool{}, standbys: map[int]standby{}, ends: map[int]dueEnd{},
		started: time.Now(), progress: newProgressLog(10 * time.Minute), diags: diags,
	}
	if !o.Stop {
		diags = append(append(diags, CheckNetwork(o.Job)...), CheckCheckpoint(o.Job)...)
	}
	if !diags.HasErrors() && !o.Stop && !(on && servesStill(ctx, o)) {
		diags = append(diags, CheckModel(o.Job, want)...)
	}
	if !diags.HasErrors() && !on { // one that goes on has its name, and its state says what was changed
		if diags = append(diags, nameTaken(ctx, o)...); !o.Stop && !diags.HasErrors() {
			diags = append(diags, impossible(ctx, o)...)
		}
	}
	if diags.HasErrors() {
		return nil, diags, nil
	}
	if err := s.open(ctx); err != nil {
		return nil, diags, errors.Join(err, s.Close())
	}
	return s, diags, nil
}

func (s *Scheduler) open(ctx context.Context) (err error) {
	if s.store, err = state.Open(s.opt.StateDir); err != nil {
		return err
	}
	if s.damaged = s.store.Check(checkFor); s.damaged != nil {
		s.lg.Warn("the scheduler's state is damaged: end it (Ctrl-C), move the file away, and give the same kale run again", "err", s.damaged)
	}
	known, err := s.loadDesired()
	if err != nil {
		return err
	}
	if err := s.takeLease(s.opt.Stop || s.want.Stopping); err != nil {
		return err
	}
	s.joinPool(s.want.Target > 0 || len(s.want.Servers) > 0)
	if err := s.loadLast(); err != nil {
		return err
	}
	if s.rollbacks, err = RecentRollbacks(s.store, s.started); err != nil {
		return err
	}
	if s.losses, err = Losses(s.store, time.Time{}); err != nil {
		return err
	}
	if err := s.saveJobFile(); err != nil {
		return err
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	if s.opt.Lease != nil {
		s.lease = s.opt.Lease
	}
	if err := s.takeOrder(known); err != nil {
		return err
	}
	if s.opt.Stop {
		s.orderStop(s.opt.Force)
	}
	return nil
}

// takeLease makes this scheduler the job's only one, where it is to change anything: one that observes does so only when it stops the job. While there is no
// checkpoint folder, nothing has trained there, or this machine does not reach it: it is tried again at every step. A job's first scheduler makes it, where the job's
// processes run on this machine. HeldError: the job is another one's.
func (s *Scheduler) takeLease(stops bool) (err error) {
	had := s.hasModel()
	if s.opt.Lease != nil || s.lease != nil || s.job.Autoscale.Mode == job.ModeObserve && !stops || had && modelGone(s.job) {
		return nil
	}
	if !had && s.job.Backend.Name == job.BackendLocal { // elsewhere it may be one that this machine lacks
		err = makeLike(s.job.Checkpoint.Dir)
	}
	if err == nil {
		s.lease, err = TakeLease(s.lg, s.job, s.opt.StateDir, false)
	}
	switch held := new(HeldError); {
	case errors.As(err, &held), err == nil:
		return err
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case stops:
		if said := err.Error(); said != s.unleased { // it is tried at every step
			s.unleased = said
			s.lg.Warn("the job is stopped though its checkpoint folder cannot be told so, where another scheduler of it would show; trying again", "err", err)
		}
		return nil
	}
	return err
}

// dropLease lets go of a lease that is not where it was left, and that nobody has had since: it is taken anew, unless the whole folder is gone, with which it may come back.
func (s *Scheduler) dropLease() {
	if !errors.Is(s.seen.leaseErr, errUnleased) || s.seen.modelGone {
		return
	}
	s.lg.Info("the lease on the job is not in the checkpoint folder any more, and nobody has had the job since; taking it again", "was", s.seen.leaseErr)
	s.lease.Close()
	s.lease, s.opt.Lease, s.seen.leaseErr = nil, nil, nil
}

// connect makes everything but the state: it reads nothing from the network yet.
func (s *Scheduler) connect(ctx context.Context) error {
	j := s.job
	// The token beside the checkpoint is the one that the job's processes know.
	if token, err := readToken(j); err != nil && s.want.Token == "" {
		return err
	} else if err != nil {
		s.lg.Warn("using the token of the scheduler's own state", "err", err)
	} else if token != "" {
		s.want.Token = token
	}
	kopts, err := KafkaOpts(j)
	if err != nil {
		return err
	}
	if s.kafka, err = traffic.NewClient(traffic.ClientOptions{Brokers: j.Stream.Brokers, Topic: j.Stream.Topic, Opts: kopts}); err != nil {
		return err
	}
	s.arrivals = traffic.NewArrivals(traffic.ArrivalsOptions{
		Keep: j.Forecast.Past() + 2*j.Forecast.Horizon, Step: j.Forecast.Interval,
		Fine: max(10*j.Forecast.Interval, 4*j.SLO.MaxLag), MaxGap: max(3*j.Forecast.Interval, 4*j.Autoscale.Watch),
	})
	if s.meet, err = openRendezvous(ctx, s.lg, j, s.want.Token, s.store, s.opt.Stop); err != nil {
		return err
	}
	s.chief = &chiefLink{dir: j.Checkpoint.Dir, job: j.Name, token: s.want.Token, meet: s.meet}
	if s.policy, err = plan.New(j.Autoscale.Policy, policyParams(j)); err != nil {
		return err
	}
	if err := s.openOnline(); err != nil {
		return err
	}
	s.named = modelFileAt(j.Forecast.ModelFile())
	if s.foresee, err = askedForesight(s.lg, j, s.want.Gate, s.asks()); err != nil {
		return err
	}
	if j.Forecast.Retrain > 0 {
		if err := s.keepModel(); err != nil {
			return err
		}
		s.takePromoted()
	} else {
		s.dropModels()
	}
	s.loads, err = newWorkloads(j, s.opt.Trainer, s.want.Token, s.meet.address, s.opt.Env)
	return err
}

// policyParams are the policy's own numbers. A static job without one keeps to workers.max, and not to what the cluster can place.
func policyParams(j *job.Job) plan.Params {
	p := plan.Params{}
	maps.Copy(p, j.Autoscale.Params)
	if _, set := p["workers"]; j.Autoscale.Policy == job.PolicyStatic && !set {
		p["workers"] = float64(j.Workers.Max)
	}
	return p
}

func onlineOptions(j *job.Job) estimator.OnlineOptions {
	return estimator.OnlineOptions{PriorMin: max(1, j.Workers.Min), PriorMax: j.Workers.Max}
}

// loadDesired reads what was wanted last, or starts anew with a token of its own: then it was not known.
func (s *Scheduler) loadDesired() (known bool, err error) {
	s.want = &desired{}
	known, err = s.store.Get(desiredKey, s.want)
	if err != nil {
		return false, err
	}
	if s.want.migrate(); known && s.want.Version != desiredVersion {
		return known, fmt.Errorf("the job's state in %s is of version %d and this program knows %d: use the program that wrote it, or move the folder away to start anew",
			s.opt.StateDir, s.want.Version, desiredVersion)
	}
	if known {
		s.cutShort = s.want.Stopping && s.want.Forced
		s.want.open(s.opt.Stop)
		if was := s.want.checkpoint(); was != "" && !sameFolder(was, s.job.Checkpoint.Dir) {
			s.want.Totals = nil // they are another checkpoint's
		}
		if was := s.want.Checkpoint; was != "" && !sameFolder(was, s.job.Checkpoint.Dir) && !s.opt.Stop {
			return known, fmt.Errorf("run job %q: it runs with its checkpoint in %s, and checkpoint.dir now names %s, where nobody would find its chief: undo the change, "+
				"stop the job with kale stop, and then change it", s.job.Name, was, s.job.Checkpoint.Dir)
		}
		s.want.Checkpoint, s.want.Backend = s.job.Checkpoint.Dir, s.job.Backend.Name
		return true, nil
	}
	var raw [16]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return known, fmt.Errorf("draw a token: %w", err)
	}
	s.want = newDesired(hex.EncodeToString(raw[:]))
	s.want.Checkpoint, s.want.Backend = s.job.Checkpoint.Dir, s.job.Backend.Name
	return false, nil
}

// loadLast reads the last decision, the last change and the last rescale of the schedulers before, for people: decisions are made from the desired state.
func (s *Scheduler) loadLast() (err error) {
	if s.last, s.lastChange, err = lastRecords(s.store); err != nil {
		return err
	}
	rescales, err := state.Last[*Rescale](s.store, state.Rescales, 1)
	if len(rescales) > 0 {
		s.lastRescale = rescales[0]
	}
	return err
}

// saveJobFile keeps a copy of the job file's path beside the state, for the commands that find jobs by name.
func (s *Scheduler) saveJobFile() error {
	abs, err := filepath.Abs(s.job.File)
	if err != nil {
		return fmt.Errorf("find the job file: %w", err)
	}
	path := filepath.Join(s.opt.StateDir, "jobfile")
	if was, err := os.ReadFile(path); s.opt.Stop || err == nil && string(was) == abs+"\n" {
		return nil // a stop needs none, nor room for one on a disk that is full
	}
	if err := backend.WriteFile(path, []byte(abs+"\n")); err != nil {
		return fmt.Errorf("remember the job file of job %q: %w", s.job.Name, err)
	}
	return nil
}

// Close releases what Open took. What runs goes on.
func (s *Scheduler) Close() error {
	if s.opt.Pool != nil {
		s.opt.Pool.leave(s.job.Name)
	}
	s.coming.end()
	<-s.named.looked()
	s.sparing.Wait()
	if s.foresee != nil {
		s.foresee.close()
	}
	if s.chief != nil {
		s.chief.close()
	}
	if s.meet != nil {
		s.meet.close()
	}
	if s.kafka != nil {
		s.kafka.Close()
	}
	if s.lease != nil && s.want != nil {
		s.lease.stopped.Store(s.want.Stopped)
	}
	s.lease.Close() // before the state, so that who finds that free finds this free
	if s.store != nil {
		return s.store.Close()
	}
	return nil
}

// Store gives the job's state for reading.
func (s *Scheduler) Store() *state.Store { return s.store }

// View is the newest picture, nil before the first look.
func (s *Scheduler) View() *View { return s.view.Load() }

// save makes the desired state durable: always before it is acted on.
func (s *Scheduler) save() error {
	err := s.store.Put(desiredKey, s.want)
	if err != nil && s.want.Stopping && s.store.DropBallast() { // a stop may be what frees the disk
		err = s.store.Put(desiredKey, s.want)
	}
	return err
}

// finite is x where JSON can carry it, else 0.
func finite(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}

// sane is a time from another process where JSON can carry it, else none.
func sane(t time.Time) time.Time {
	if y := t.UTC().Year(); y < 1 || y > 9998 { // a zone may move it into the next year
		return time.Time{}
	}
	return t
}

// moment is a time that another process gives in milliseconds.
func moment(unixMs int64) time.Time { return sane(time.UnixMilli(unixMs)) }
