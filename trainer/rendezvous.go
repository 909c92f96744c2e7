package trainer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/checkpoint"
)

// Roles of a job's processes, as the scheduler names them.
const (
	roleServer = "ps"
	roleWorker = "worker"
)

const (
	// While a process looks for its chief it asks the scheduler that often, and less and less often while that one does not answer.
	askFirst, askMost = 250 * time.Millisecond, 5 * time.Second
	// meetTimeout bounds one call to the scheduler.
	meetTimeout = 2 * time.Second
	// restMost bounds how long the scheduler can ask to be left alone.
	restMost = time.Minute
)

// rendezvous is a process's line to the scheduler (rpc.Rendezvous): it says that it lives, announces the chief when it is one, and asks for the chief while
// it has none. Calls are made by one goroutine of its own, so that a scheduler that is away, slow or gone holds nobody up. The methods of a nil
// rendezvous do nothing: then the checkpoint folder is the only source. All are safe for concurrent use.
type rendezvous struct {
	lg      *slog.Logger
	address string
	token   string
	folder  func() (checkpoint.ChiefInfo, error)
	wake    signal

	began       time.Time
	heard       atomic.Int64  // when the scheduler answered last, Unix ns; 0: never
	behindAfter time.Duration // see deserted

	mu   sync.Mutex
	self *rpc.AliveRequest
	// read is what the folder said last, told what the scheduler did: whoever knew a chief keeps it while nobody answers.
	read, told rpc.ChiefRecord
	chief      *rpc.ChiefPlace // to be announced; nil: nothing
	unread     bool            // the folder could not be read, and that was logged
}

// newRendezvous is nil where the job has no rendezvous. folder reads the chief's record in the checkpoint folder.
func newRendezvous(lg *slog.Logger, spec *rpc.TrainSpec, role string, rank int, generation uint64, folder func() (checkpoint.ChiefInfo, error)) *rendezvous {
	address := spec.GetNetwork().GetRendezvous()
	if address == "" {
		return nil
	}
	return &rendezvous{
		began: time.Now(), behindAfter: behindAfter,
		lg: lg, address: address, token: spec.GetToken(), folder: folder, wake: newSignal(),
		self: &rpc.AliveRequest{Job: spec.GetJob(), Role: role, Rank: int32(rank), Generation: max(1, generation), Phase: rpc.Phase_PHASE_STARTING},
	}
}

// deserted says that the scheduler has not answered for so long that nobody runs the job. Where the job has no rendezvous, that is not known.
func (r *rendezvous) deserted() bool {
	return r != nil && time.Since(time.Unix(0, max(r.began.UnixNano(), r.heard.Load()))) >= r.behindAfter
}

// runs says that a scheduler has answered, and not too long ago.
func (r *rendezvous) runs() bool { return r.heard.Load() > 0 && !r.deserted() }

// start begins the conversation; the function that it returns ends it and waits for that.
func (r *rendezvous) start() (stop func()) {
	if r == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { r.run(ctx) })
	return func() {
		cancel()
		done.Wait()
	}
}

// at notes how far the process has come, and the address that it listens on.
func (r *rendezvous) at(phase rpc.Phase, address string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.self.Phase == phase && r.self.Address == address && r.self.Trouble == "" {
		return
	}
	r.self.Phase, r.self.Address, r.self.Trouble = phase, address, ""
	r.wake.set()
}

// lost notes why the chief does not answer.
func (r *rendezvous) lost(err error) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.self.Phase != rpc.Phase_PHASE_DIALLING {
		r.wake.set()
	}
	r.self.Phase, r.self.Trouble = rpc.Phase_PHASE_DIALLING, rpc.Words(err)
}

// stuck notes why the process cannot start.
func (r *rendezvous) stuck(err error) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.self.Trouble = rpc.Words(err)
	r.wake.set()
}

// announce makes the scheduler know a chief, again and again.
func (r *rendezvous) announce(info checkpoint.ChiefInfo) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.chief = rpc.ChiefRecord(info).Place()
	r.wake.set()
}

// find says where the chief is: by the checkpoint folder, by the scheduler, or, while neither answers, where it was last.
func (r *rendezvous) find() (checkpoint.ChiefInfo, error) {
	info, err := r.folder()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && !errors.Is(err, checkpoint.ErrNoChief) && !r.unread {
		r.unread = true
		r.lg.Info("the checkpoint folder does not say where the chief is; asking the scheduler", "scheduler", r.address, "err", err)
	}
	if err == nil {
		r.read = newer(r.read, rpc.ChiefRecord(info))
	}
	if best := rpc.Prefer(r.read, r.told); best.Address != "" {
		return checkpoint.ChiefInfo(best), nil
	}
	return checkpoint.ChiefInfo{}, err
}

// newer is what one source says now, unless it has said of the same timeline that there is a newer chief.
func newer(before, now rpc.ChiefRecord) rpc.ChiefRecord {
	if before.Timeline == now.Timeline && before.Incarnation > now.Incarnation {
		return before
	}
	return now
}

// run is the conversation.
func (r *rendezvous) run(ctx context.Context) {
	var conn *grpc.ClientConn
	hangUp := func() {
		if conn != nil {
			_ = conn.Close() // every call has returned
			conn = nil
		}
	}
	defer hangUp()
	away := false
	retry := newBackoff(askFirst, askMost)
	for ctx.Err() == nil {
		rest, err := askFirst, error(nil)
		if conn == nil {
			conn, err = dialPeer(r.address, r.token)
		}
		if err == nil {
			rest, err = r.talk(ctx, rpc.NewRendezvousClient(conn))
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !away {
				r.lg.Info("the scheduler does not answer; trying again, meanwhile nothing depends on it but finding a chief that moved", "scheduler", r.address, "err", err)
			}
			away = true
			hangUp() // a connection into a hole would stay for minutes
			retry.wait(ctx)
			continue
		case away:
			r.lg.Info("the scheduler answers", "scheduler", r.address)
		}
		away = false
		retry = newBackoff(askFirst, askMost)
		t := time.NewTimer(rest)
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-r.wake:
		}
		t.Stop()
	}
}

// talk says everything once, and returns after how long to do so again.
func (r *rendezvous) talk(ctx context.Context, c rpc.RendezvousClient) (rest time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, meetTimeout)
	defer cancel()
	r.mu.Lock()
	self := &rpc.AliveRequest{
		Job: r.self.Job, Role: r.self.Role, Rank: r.self.Rank, Generation: r.self.Generation, Phase: r.self.Phase, Address: r.self.Address, Trouble: r.self.Trouble,
	}
	chief := r.chief
	r.mu.Unlock()
	alive, err := c.Alive(ctx, self)
	if err != nil {
		return 0, err
	}
	r.heard.Store(time.Now().UnixNano())
	rest = millis(alive.GetNextMs())
	if chief != nil {
		next, err := r.sayChief(ctx, c, chief)
		if err != nil {
			return 0, err
		}
		rest = min(rest, next)
	} else if self.Phase == rpc.Phase_PHASE_DIALLING {
		if err := r.ask(ctx, c); err != nil {
			return 0, err
		}
		rest = min(rest, 4*askFirst)
	}
	return min(max(rest, askFirst), restMost), nil
}

// sayChief announces the chief. That another one is known is not this loop's to judge: the checkpoint store tells a chief that it has been replaced.
func (r *rendezvous) sayChief(ctx context.Context, c rpc.RendezvousClient, chief *rpc.ChiefPlace) (next time.Duration, err error) {
	resp, err := c.Announce(ctx, &rpc.AnnounceRequest{Job: r.self.Job, Chief: chief})
	if status.Code(err) == codes.FailedPrecondition {
		r.lg.Warn("the scheduler knows another chief", "err", err)
		return restMost, nil
	}
	return millis(resp.GetNextMs()), err
}

// ask takes in what the scheduler knows of the chief.
func (r *rendezvous) ask(ctx context.Context, c rpc.RendezvousClient) error {
	place, err := c.FindChief(ctx, &rpc.FindChiefRequest{Job: r.self.Job})
	if status.Code(err) == codes.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = newer(r.told, rpc.ChiefRecordOf(place))
	return nil
}
