package trainer

import (
	"context"
	"fmt"
	"time"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/spans"
)

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
	if d.GetGiveBack() {
		w.giveBack()
	}
	w.takeLost(d.GetLost())
	w.takePolicy(d.GetOnUndecodable())
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
		clear(w.lostTaken) // what was given up cannot be read again: it is pushed as empty again when the chief offers it
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
	w.unhalt()
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
		if len(w.ledger.reads(func(q int32) bool { return q != p })) == 0 {
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

// giveBack leaves to the chief what is still to be read: no broker answers this worker, and others can read it. Caller holds mu.
func (w *worker) giveBack() {
	unread := w.ledger.inState(toRead)
	for _, e := range unread {
		w.ledger.remove(e.id)
	}
	if len(unread) > 0 {
		w.lg.Warn("no broker answers; what was to be read again is given back", "spans", len(unread))
		w.beatNow.set()
	}
}

// drain stops fetching for good: first no more chunks are taken from peers, then no more are read; what is queued is finished (rule 12). What was to
// be read again, or stands still, is left to the chief. Caller holds mu.
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
	for _, e := range w.ledger.inState(toRead, halted) {
		w.ledger.remove(e.id)
	}
	w.sourceWake.wake()
	w.feedWake.set()
	w.beatNow.set()
}

// drains says whether the worker finishes what it holds, and takes no more.
func (w *worker) drains() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.draining
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
