package trainer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/checkpoint"
	"github.com/kale-sched/kale/trainer/spans"
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
var errReplaced = errors.New("the chief refuses this worker: a newer process has its place")

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
	if !c.waiting {
		c.waiting = true
		c.w.lg.Warn("waiting for the chief", "address", c.at.Address, "incarnation", c.at.Incarnation, "err", err)
	}
}

func (c *conversation) regained() {
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
	if c.conn != nil && !c.waiting {
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
		return fmt.Errorf("join: %w", err)
	}
	c.joined, c.seq = true, 0
	if ms := resp.GetBeatMs(); ms > 0 {
		c.every = millis(ms)
	}
	w.mu.Lock()
	w.session = resp.GetSession()
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
		w.lg.Info("drained", "after", time.Since(w.started).Round(time.Millisecond))
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
	if w.deadProblem != nil {
		req.Problems = append(req.Problems, w.deadProblem)
	}
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

// obey makes the worker's state what the directive desires. req is the report that it answers.
func (w *worker) obey(ctx context.Context, req *rpc.BeatRequest, d *rpc.Directive) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := d.GetFence(); f != nil {
		w.fence = &rpc.Fence{Timeline: f.GetTimeline(), Chief: f.GetChief(), MapVersion: f.GetMapVersion()}
	}
	w.takeServers(d.GetServers())
	w.takeApplied(d.GetApplied())
	if d.GetDrain() && !w.draining {
		w.lg.Info("draining")
		w.drain()
	}
	if w.paused != d.GetPaused() {
		w.paused = d.GetPaused()
		w.lg.Info("fetching is paused or resumed by the chief", "paused", w.paused)
	}
	w.takeGrants(req, d.GetGrants())
	w.takeLost(d.GetLost())
	w.reconcilePeers(ctx, d.GetPeers())
	if w.draining && len(w.leases) == 0 && w.ledger.len() == 0 {
		w.beatNow.set()
	}
	w.sourceWake.wake() // windows, leases or the pause may have changed
}

// takeServers takes in where the parameter servers are. One that was replaced may have been restored from before what it had acknowledged:
// everything that was pushed and is not confirmed is read again (rule 10). Caller holds mu.
func (w *worker) takeServers(servers []*rpc.ServerInfo) {
	changed := false
	for _, s := range servers {
		old := w.incarnations[s.GetIndex()]
		if s.GetIncarnation() > old {
			w.incarnations[s.GetIndex()] = s.GetIncarnation()
			changed = changed || old != 0
		}
	}
	if w.tablets != nil {
		w.tablets.SetServers(w.fence.GetTimeline(), w.fence.GetChief(), w.fence.GetMapVersion(), servers)
	}
	if !changed {
		return
	}
	w.changes++
	n := w.readAgain(func(*entry) bool { return true })
	w.lg.Info("a parameter server was replaced", "chunks_to_read_again", n)
}

// readAgain reads again what is in doubt. Caller holds mu.
func (w *worker) readAgain(doubt func(*entry) bool) int {
	gone := w.ledger.readAgain(doubt)
	for _, e := range gone {
		if e.state == forwarded {
			w.unit.Settle(e.id)
		}
	}
	if len(gone) > 0 {
		w.repairWake.set()
		w.roomMade()
	}
	return len(gone)
}

// takeApplied forgets what is confirmed, and doubts what should have been long ago. Caller holds mu.
//
// A push that was acknowledged is confirmed within a few beats, unless what acknowledged it is gone: a server that was replaced while it was
// stopped, and took pushes once more when it woke; or a peer that heard from a chief of before that its part was applied. Reading such a
// span again does no harm: tablets that have it say so. Not doing so would leave it unread for ever, as the chief relies on whoever
// says that he answers for it.
func (w *worker) takeApplied(applied []*rpc.OffsetSet) {
	for _, e := range w.ledger.confirm(applied) {
		switch e.state {
		case queued, forwarded:
			w.unit.Drop(e.id)
		}
		if e.from != nil && e.state == queued {
			e.from.tellTrained(e.remote)
		}
	}
	known := map[int32]bool{}
	for _, o := range applied {
		known[o.GetPartition()] = true
	}
	late := time.Now().Add(-w.patience())
	if n := w.readAgain(func(e *entry) bool { return known[e.partition] && e.since.Before(late) }); n > 0 {
		w.lg.Warn("chunks that were pushed were not confirmed for long; reading them again", "chunks", n, "patience", w.patience())
	}
	for k := range w.lostTaken {
		if w.ledger.covered(k.partition, k.begin, k.end) {
			delete(w.lostTaken, k)
		}
	}
	for p := range w.repairProblems {
		if w.ledger.nextRead(func(q int32) bool { return q != p }) == nil {
			delete(w.repairProblems, p) // nothing of it is to be read any more
		}
	}
	w.roomMade()
}

// patience is how long a span may wait to be confirmed.
func (w *worker) patience() time.Duration {
	return max(2*millis(w.spec.GetLeaseTimeoutMs()), time.Second)
}

// takeGrants reconciles leases. Caller holds mu.
func (w *worker) takeGrants(req *rpc.BeatRequest, grants []*rpc.Grant) {
	for _, r := range req.GetLeases() { // the chief has taken note of these
		if l := w.leases[r.GetPartition()]; r.GetReleased() && l != nil && l.released {
			delete(w.leases, r.GetPartition())
		}
	}
	wanted := map[int32]bool{}
	for _, g := range grants {
		if w.draining {
			break
		}
		wanted[g.GetPartition()] = true
		l := w.leases[g.GetPartition()]
		if l == nil {
			l = &lease{start: g.GetPosition(), position: g.GetPosition()}
			w.leases[g.GetPartition()] = l
			w.lg.Info("partition granted", "partition", g.GetPartition(), "position", l.position, "epoch", epochText(g.GetEpoch()))
		}
		if l.released {
			continue // the answer crossed the report; the next one settles it
		}
		w.takeRepairs(l, g)
		l.epoch = g.GetEpoch()
	}
	for p, l := range w.leases {
		if !wanted[p] && !l.released {
			l.released = true
			w.lg.Info("partition released", "partition", p, "position", l.position)
			w.beatNow.set()
		}
	}
}

// takeRepairs takes in the spans of a grant that is newer than the last one. Caller holds mu.
func (w *worker) takeRepairs(l *lease, g *rpc.Grant) {
	if g.GetId() <= l.grant && l.epoch.GetChief() == g.GetEpoch().GetChief() {
		return
	}
	l.grant = g.GetId()
	for _, s := range g.GetRepair() {
		w.ledger.want(g.GetPartition(), s.GetBegin(), s.GetEnd())
		w.lg.Info("span to repair", "partition", g.GetPartition(), "begin", s.GetBegin(), "end", s.GetEnd())
	}
	if len(g.GetRepair()) > 0 {
		w.repairWake.set()
	}
}

func epochText(e *rpc.Epoch) string { return fmt.Sprintf("%d.%d", e.GetChief(), e.GetCounter()) }

// takeLost pushes as empty what was given up, and lets partitions that stopped for it go on. Caller holds mu.
func (w *worker) takeLost(lost []*rpc.Span) {
	given := map[int32]*spans.Set{}
	for _, s := range lost {
		k := spanKey{s.GetPartition(), s.GetBegin(), s.GetEnd()}
		if k.end <= k.begin {
			continue
		}
		if !w.lostTaken[k] && !w.ledger.covered(k.partition, k.begin, k.end) {
			c := &chunk{partition: k.partition, begin: k.begin, end: k.end, lost: true, id: w.ledger.newID()}
			if !w.offer(c) {
				continue // no room: the next directive says it again
			}
			w.lostTaken[k] = true
			w.lg.Warn("span was given up; its offsets are counted as lost", "partition", k.partition, "begin", k.begin, "end", k.end)
		}
		if given[k.partition] == nil {
			given[k.partition] = &spans.Set{}
		}
		given[k.partition].Add(k.begin, k.end)
	}
	for p, l := range w.leases {
		if l.stopped && l.problem.GetKind() == rpc.PartitionProblem_KIND_LOST {
			w.resumeAfterLoss(p, l, given[p])
		}
	}
}

// resumeAfterLoss lets a partition go on at the log's start once all offsets below it are applied or given up. Caller holds mu.
func (w *worker) resumeAfterLoss(p int32, l *lease, given *spans.Set) {
	settled := &spans.Set{}
	if o := w.ledger.applied[p]; o != nil {
		settled = offsetSet(o)
	}
	if given != nil {
		settled = spans.Union(settled, given)
	}
	if start := l.problem.GetLogStart(); settled.Covers(l.position, start) {
		w.lg.Warn("partition goes on at the start of its log", "partition", p, "position", start)
		l.position, l.stopped, l.problem = max(l.position, start), false, nil
	}
}

// drain stops fetching for good: first no more chunks are taken from peers, then no more are read; what is queued is finished (rule 12). What was to
// be read again is left to the chief. Caller holds mu.
func (w *worker) drain() {
	if w.draining {
		return
	}
	w.draining = true
	w.unit.Close()
	w.spread()
	for _, l := range w.leases {
		l.released = true
	}
	for _, e := range w.ledger.inState(toRead) {
		w.ledger.remove(e.id)
	}
	w.sourceWake.wake()
	w.beatNow.set()
}

// forget drops everything that the session answered for: the chief has given it to others.
func (w *worker) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for in := range w.inbound {
		in.cancel() // their origins take the chunks back
	}
	for name, o := range w.outbound {
		o.cancel()
		o.box.takeAll()
		o.up = false
		delete(w.outbound, name)
		w.unit.PeerGone(name)
	}
	for {
		if _, ok := w.unit.Take(); !ok {
			break
		}
	}
	last := w.ledger.last
	w.ledger = newLedger()
	w.ledger.last = last // numbers are not used again: batches under way still carry the old ones
	w.leases = map[int32]*lease{}
	clear(w.lostTaken)
	clear(w.repairProblems)
	w.fence, w.session = nil, 0
	w.roomMade()
	w.sourceWake.wake()
}
