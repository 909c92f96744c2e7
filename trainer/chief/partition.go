package chief

import (
	"sort"
	"time"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/spans"
)

// partition is how far one partition is read and trained, and who reads it.
type partition struct {
	id       int32
	start    int64
	position int64 // reading goes on here when the lease changes hands
	end      int64 // last stable offset as last seen; −1 unknown
	logStart int64 // where the log starts, as last seen; −1 unknown

	applied   *spans.Set // intersection over servers; offsets ≥ start
	offsets   int64      // offsets in applied
	watermark int64
	frontier  int64
	durable   int64
	advanced  time.Time

	lease  *lease
	grants uint64 // last grant id
	lost   *spans.Set
	cutOff *spans.Set // offsets that were read before the log's end was cut off below them
}

// lease says who reads a partition. At most one member holds it; while it is being handed over nobody fetches.
type lease struct {
	member  string
	session uint64
	epoch   *rpc.Epoch
	// grant is the last grant id sent under this lease, acked the last one that the holder has taken in.
	grant, acked uint64
	position     int64
	repairs      []repair
	// revoking: it is no longer in the holder's directive; waiting for it to say released.
	revoking bool
}

type repair struct {
	grant uint64
	span  spans.Span
}

// addPartition makes a partition known with its pinned start. Known ones are left alone.
func (m *machine) addPartition(p int32, start int64) {
	if m.partitions[p] == nil {
		m.partitions[p] = &partition{id: p, applied: spans.Of(), lost: spans.Of(), cutOff: spans.Of(), start: start, position: start, watermark: start, frontier: start, durable: start, end: -1, logStart: -1}
	}
}

// adopt lets a re-registering member keep a partition that it reads. Of two that claim it, the higher epoch wins.
func (m *machine) adopt(w *member, r *rpc.LeaseReport) {
	p := m.partitions[r.GetPartition()]
	if p == nil || r.GetReleased() {
		return
	}
	p.position = max(p.position, r.GetPosition())
	if p.lease != nil && !epochLess(p.lease.epoch, r.GetEpoch()) {
		return
	}
	p.grants = max(p.grants, r.GetGrant()) + 1
	p.lease = &lease{member: w.name, session: w.session, epoch: r.GetEpoch(), grant: p.grants, acked: p.grants, position: r.GetPosition()}
	w.leases[p.id] = r
}

// retentionNear says that a log's start, which has moved, is within a tenth of the backlog of what is still to be trained. Once it is past that, a worker tells what
// is lost: it may have fetched some of it before.
func (m *machine) retentionNear(p *partition) bool {
	return m.progressKnown() && p.logStart > p.start && p.logStart <= p.watermark && p.watermark-p.logStart < (p.end-p.watermark)/10
}

// retentionTakes says that a log's start is past what is still to be read while nobody reads, so that no worker can tell.
func (m *machine) retentionTakes(p *partition) bool {
	read := max(p.watermark, p.position)
	if p.lease != nil {
		read = max(read, p.lease.position)
	}
	return m.paused && m.progressKnown() && p.logStart > read && !m.toldLost(p)
}

func epochLess(a, b *rpc.Epoch) bool {
	if a.GetChief() != b.GetChief() {
		return a.GetChief() < b.GetChief()
	}
	return a.GetCounter() < b.GetCounter()
}

func unacked(rs []repair, acked uint64) []repair {
	out := rs[:0]
	for _, r := range rs {
		if r.grant > acked {
			out = append(out, r)
		}
	}
	return out
}

func (m *machine) freeLeases(session uint64) {
	for _, p := range m.partitions {
		if p.lease != nil && p.lease.session == session {
			p.position = max(p.position, p.lease.position)
			p.lease = nil
		}
	}
}

func (m *machine) setEnds(now time.Time, ends map[int32]int64) {
	m.kafkaSeen = now
	for id, e := range ends {
		if p := m.partitions[id]; p != nil {
			p.end = e
		}
	}
}

// sorted returns the partitions by number: nothing here depends on the order of a map.
func (m *machine) sorted() []*partition {
	out := make([]*partition, 0, len(m.partitions))
	for _, p := range m.partitions {
		out = append(out, p)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].id < out[j].id })
	return out
}
