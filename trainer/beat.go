package trainer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/checkpoint"
)

// callTimeout bounds one call to the chief: a third of the lease timeout, so that one lost call costs no membership.
func (w *worker) callTimeout() time.Duration {
	return min(max(millis(w.spec.GetLeaseTimeoutMs())/3, 300*time.Millisecond), 3*time.Second)
}

// beats is the worker's conversation with the chief: it joins, reports, and carries out what the directives say, until ctx ends or the chief
// has taken note that the worker is drained. A chief that is lost is waited for; the same process registers with the next one.
func (w *worker) beats(ctx context.Context) error {
	c := &conversation{w: w, every: defaultBeat}
	defer c.hangUp()
	retry := newBackoff(50*time.Millisecond, 2*time.Second)
	for ctx.Err() == nil {
		err := c.turn(ctx)
		switch {
		case err == nil:
			c.regained()
			retry = newBackoff(50*time.Millisecond, 2*time.Second)
			c.pause(ctx)
			continue
		case errors.Is(err, errDrained):
			w.end(errDrained)
			return nil
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errReplaced):
			return err
		}
		c.lost(err)
		retry.wait(ctx)
	}
	return nil
}

// errReplaced says that this process has no place in the job any more.
var errReplaced = fmt.Errorf("the chief refuses this worker: %w", ErrFenced)

// errLeftBehind says that the job of this process was stopped, by somebody who could not reach it.
var errLeftBehind = fmt.Errorf("the job was stopped, and this process was left behind: %w", ErrFenced)

// conversation is the beat loop's own state; no other goroutine touches it.
type conversation struct {
	w      *worker
	conn   *grpc.ClientConn
	chief  rpc.ChiefClient
	at     checkpoint.ChiefInfo
	joined bool
	warm   bool // the dense weights have been pulled once
	seq    uint64
	every  time.Duration
	// waiting: the chief is lost, and that was logged.
	waiting bool
}

func (c *conversation) hangUp() {
	if c.conn != nil {
		_ = c.conn.Close() // every call has returned
		c.conn = nil
	}
}

// lost notes that the chief did not answer as it should: the next turn looks where it is now.
func (c *conversation) lost(err error) {
	c.w.meet.lost(err)
	if !c.waiting {
		c.waiting = true
		level := slog.LevelInfo // at the start nothing is wrong yet: servers and workers are started at the same time
		if c.warm {
			level = slog.LevelWarn
		}
		c.w.lg.Log(context.Background(), level, "waiting for the chief", "address", c.at.Address, "incarnation", c.at.Incarnation, "err", err)
	}
}

func (c *conversation) regained() {
	c.w.meet.at(rpc.Phase_PHASE_JOINED, c.w.address)
	if c.waiting {
		c.waiting = false
		c.w.lg.Info("the chief answers", "address", c.at.Address, "incarnation", c.at.Incarnation)
	}
}

// pause waits for the next beat, or for something notable.
func (c *conversation) pause(ctx context.Context) {
	t := time.NewTimer(c.every)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-c.w.beatNow:
	}
}

// turn is one exchange with the chief: dial and join when that is needed, then a beat.
func (c *conversation) turn(ctx context.Context) error {
	if err := c.find(); err != nil {
		return err
	}
	if !c.joined {
		if err := c.join(ctx); err != nil {
			return err
		}
	}
	return c.beat(ctx)
}

// find looks up the chief when it is not known or seems lost, and dials it.
func (c *conversation) find() error {
	if c.conn != nil && !c.waiting && c.w.newestChief.Load() <= c.at.Incarnation {
		return nil
	}
	at, err := c.w.findChief()
	if err != nil {
		return err
	}
	if c.conn != nil && at == c.at {
		c.conn.ResetConnectBackoff()
		return nil
	}
	c.hangUp()
	conn, err := dialPeer(at.Address, c.w.spec.GetToken())
	if err != nil {
		return err
	}
	c.conn, c.chief, c.at, c.joined = conn, rpc.NewChiefClient(conn), at, false
	return nil
}

// join registers this worker: as a new member, or with everything that it holds from the chief before.
func (c *conversation) join(ctx context.Context) error {
	w := c.w
	w.mu.Lock()
	req := &rpc.JoinRequest{
		Member: w.name, Rank: int32(w.opts.Rank), Generation: w.opts.Generation, Address: w.address,
		StartedUnixMs: w.started.UnixMilli(), Timeline: w.fence.GetTimeline(),
		Leases: w.leaseReports(), Outstanding: w.ledger.outstanding(),
	}
	for _, p := range slices.Sorted(maps.Keys(w.ledger.applied)) {
		req.Applied = append(req.Applied, w.ledger.applied[p])
	}
	w.mu.Unlock()
	cctx, cancel := context.WithTimeout(ctx, w.callTimeout())
	defer cancel()
	resp, err := c.chief.Join(cctx, req)
	if status.Code(err) == codes.FailedPrecondition {
		if at, ferr := w.findChief(); ferr == nil && at != c.at {
			return err // that was an old chief
		}
		if req.Timeline == "" {
			return fmt.Errorf("%w: %s", errReplaced, status.Convert(err).Message())
		}
		w.lg.Warn("the chief does not know this worker's timeline; everything is dropped", "err", err)
		w.forget()
	}
	if err != nil {
		return fmt.Errorf("join at the chief: %w", err)
	}
	c.joined, c.seq = true, 0
	w.joined.Store(resp.GetChief())
	if ms := resp.GetBeatMs(); ms > 0 {
		c.every = millis(ms)
	}
	w.mu.Lock()
	w.session = resp.GetSession()
	if id := resp.GetTopicId(); id != "" && w.findTopic != nil {
		w.topicID = id
	}
	w.fence = &rpc.Fence{Timeline: resp.GetTimeline(), Chief: resp.GetChief(), MapVersion: resp.GetMapVersion()}
	w.takeServers(resp.GetServers())
	w.mu.Unlock()
	w.lg.Info("joined", "chief", c.at.Address, "incarnation", resp.GetChief(), "session", resp.GetSession(),
		"leases", len(req.Leases), "outstanding", len(req.Outstanding))
	if !c.warm {
		c.warm = true
		w.peersDone.Go(func() { w.becomeReady(ctx) })
	}
	return nil
}

// becomeReady pulls the dense weights once, so that the first step finds warm connections, and declares the worker ready. It waits for
// servers that are away; meanwhile the worker beats as joining.
func (w *worker) becomeReady(ctx context.Context) {
	if w.engine != nil {
		if _, _, err := w.params.Pull(ctx, nil); err != nil {
			w.failUnless(ctx, fmt.Errorf("pull the dense weights: %w", err))
			return
		}
	}
	now := time.Now()
	w.metrics.setReady(now)
	w.mu.Lock()
	w.ready = true
	w.spread()
	w.mu.Unlock()
	w.beatNow.set()
	w.lg.Info("ready", "after", now.Sub(w.started).Round(time.Millisecond))
}

// beat reports and takes in the answer.
func (c *conversation) beat(ctx context.Context) error {
	w := c.w
	c.seq++
	w.mu.Lock()
	req, drained := w.beatRequest(c.seq)
	w.mu.Unlock()
	cctx, cancel := context.WithTimeout(ctx, w.callTimeout())
	defer cancel()
	d, err := c.chief.Beat(cctx, req)
	if err != nil {
		if status.Code(err) == codes.FailedPrecondition {
			c.joined = false // fenced: this chief, or another one, wants a registration
		}
		return fmt.Errorf("beat: %w", err)
	}
	if ms := d.GetNextBeatMs(); ms > 0 {
		c.every = millis(ms)
	}
	if d.GetRejoin() {
		if drained {
			return errDrained // the chief has let it go already
		}
		w.lg.Warn("the chief has expelled this session; everything is dropped, and the worker joins again")
		w.forget()
		c.joined = false
		w.beatNow.set()
		return nil
	}
	if drained {
		w.lg.Info("drained: all that it held is trained or handed over", "ran_for", time.Since(w.started).Round(time.Millisecond))
		return errDrained
	}
	w.obey(ctx, req, d)
	return nil
}

// beatRequest renders the worker's state. drained: it holds nothing and says so. Caller holds mu.
func (w *worker) beatRequest(seq uint64) (req *rpc.BeatRequest, drained bool) {
	req = &rpc.BeatRequest{
		Fence: w.fence, Member: w.name, Session: w.session, Seq: seq, State: rpc.MemberState_MEMBER_STATE_JOINING,
		Leases: w.leaseReports(), Outstanding: w.ledger.outstanding(), Interested: w.ledger.partitions(),
		Metrics: w.metrics.report(time.Now(), w.unit.Queued()),
	}
	switch {
	case w.draining && len(w.leases) == 0 && w.ledger.len() == 0:
		req.State, drained = rpc.MemberState_MEMBER_STATE_DRAINED, true
	case w.draining:
		req.State = rpc.MemberState_MEMBER_STATE_DRAINING
	case w.ready:
		req.State = rpc.MemberState_MEMBER_STATE_READY
	}
	quiet := w.contact.quiet(time.Now())
	req.CutOffMs = quiet.Milliseconds()
	for _, p := range slices.Sorted(maps.Keys(w.leases)) {
		l := w.leases[p]
		switch {
		case l.problem != nil:
			req.Problems = append(req.Problems, l.problem)
		case quiet > 0 && !l.released:
			req.Problems = append(req.Problems, &rpc.PartitionProblem{
				Partition: p, Kind: rpc.PartitionProblem_KIND_UNREACHABLE, Needed: l.position, LogStart: -1,
				Detail: fmt.Sprintf("no broker of %v has answered for %v", w.spec.GetStream().GetBrokers(), quiet.Round(time.Second)),
			})
		}
	}
	for _, p := range slices.Sorted(maps.Keys(w.repairProblems)) {
		req.Problems = append(req.Problems, w.repairProblems[p])
	}
	req.Problems = append(req.Problems, w.haltProblems()...)
	return req, drained
}

// leaseReports renders the leases, by partition. Caller holds mu.
func (w *worker) leaseReports() []*rpc.LeaseReport {
	var out []*rpc.LeaseReport
	for _, p := range slices.Sorted(maps.Keys(w.leases)) {
		l := w.leases[p]
		out = append(out, &rpc.LeaseReport{Partition: p, Epoch: l.epoch, Position: l.position, Released: l.released, Grant: l.grant})
	}
	return out
}
