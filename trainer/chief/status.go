package chief

import (
	"fmt"
	"slices"
	"time"

	"github.com/kale-sched/kale/core/rpc"
)

// advanceLog is a bounded log of progress: every time that a partition's applied set grew.
type advanceLog struct {
	ring []*rpc.Advance
	next uint64 // sequence number of the next entry; the first is 1
}

const advanceLogSize = 1 << 16

func (l *advanceLog) add(a *rpc.Advance) {
	if l.next == 0 {
		l.next = 1
	}
	a.Seq = l.next
	l.next++
	if len(l.ring) < advanceLogSize {
		l.ring = append(l.ring, a)
		return
	}
	l.ring[int((a.Seq-1)%advanceLogSize)] = a
}

// after returns up to limit entries behind a sequence number, and whether some in between were dropped or belong to a later log.
func (l *advanceLog) after(seq uint64, limit int) (out []*rpc.Advance, truncated bool) {
	if l.next == 0 {
		return nil, seq > 0
	}
	first := uint64(1)
	if n := uint64(len(l.ring)); l.next-1 > n {
		first = l.next - n
	}
	if seq >= l.next {
		seq, truncated = 0, true // the caller counts by another chief's log
	}
	from := seq + 1
	if from < first {
		from, truncated = first, truncated || seq > 0
	}
	for s := from; s < l.next && (limit <= 0 || len(out) < limit); s++ {
		out = append(out, l.ring[int((s-1)%advanceLogSize)])
	}
	return out, truncated
}

// rateWindow measures records per second and the busy share over the last few seconds of cumulative reports.
type rateWindow struct {
	at      []time.Time
	records []uint64
	busy    []float64
}

const rateWindowLength = 3 * time.Second

func (r *rateWindow) observe(now time.Time, records uint64, busy float64) {
	if n := len(r.records); n > 0 && records < r.records[n-1] {
		*r = rateWindow{} // the process started anew
	}
	r.at, r.records, r.busy = append(r.at, now), append(r.records, records), append(r.busy, busy)
	cut := 0
	for cut < len(r.at)-2 && now.Sub(r.at[cut+1]) >= rateWindowLength {
		cut++
	}
	r.at, r.records, r.busy = r.at[cut:], r.records[cut:], r.busy[cut:]
}

func (r *rateWindow) rates() (recordsPerSecond, busyShare float64) {
	n := len(r.at)
	if n < 2 {
		return 0, 0
	}
	dt := r.at[n-1].Sub(r.at[0]).Seconds()
	if dt <= 0 {
		return 0, 0
	}
	return float64(r.records[n-1]-r.records[0]) / dt, (r.busy[n-1] - r.busy[0]) / dt
}

// status renders the chief's view.
func (m *machine) status(now time.Time) *rpc.JobStatus {
	st := &rpc.JobStatus{
		Job: m.opt.Job, Timeline: m.opt.Timeline, Chief: m.opt.Incarnation, MapVersion: m.opt.MapVersion,
		StartedUnixMs: m.started.UnixMilli(), InGrace: m.inGrace(now), Paused: m.paused, TopicId: m.opt.TopicID,
		NowUnixMs: now.UnixMilli(), Totals: m.totals(), Rollbacks: m.rollbackStatus(), Policies: m.opt.Policies, CutOff: m.cutOff(),
	}
	if m.halted != nil {
		st.Problems = append(st.Problems, m.halted)
	}
	for _, w := range m.sortedMembers() {
		st.Members = append(st.Members, m.memberStatus(w))
		if w.live() {
			st.Problems = append(st.Problems, slices.DeleteFunc(slices.Clone(w.problems), m.settled)...)
			if w.cutOff && len(w.leases) == 0 {
				st.Problems = append(st.Problems, &rpc.PartitionProblem{
					Partition: -1, Kind: rpc.PartitionProblem_KIND_UNREACHABLE, Needed: -1, LogStart: -1,
					Detail: fmt.Sprintf("%s: no broker has answered it for %v; others read what it held until one does: look at the network between its node and Kafka", w.name, w.silence.Round(time.Second)),
				})
			}
		}
	}
	first := true
	for i, s := range m.serverInfos() {
		ss := &rpc.ServerStatus{Info: s}
		if sv := m.servers[i]; sv != nil {
			ss.LastBeatUnixMs, ss.Metrics = sv.seen.UnixMilli(), sv.metrics
			if first || sv.metrics.GetTrainedRecords() < st.TrainedRecords {
				st.TrainedRecords, st.DeadRecords, st.LostOffsets = sv.metrics.GetTrainedRecords(), sv.metrics.GetDeadRecords(), sv.metrics.GetLostOffsets()
			}
			first = false
		}
		st.Servers = append(st.Servers, ss)
	}
	for _, p := range m.sorted() {
		st.Partitions = append(st.Partitions, p.status())
		if taken := m.retentionTakes(p); taken || m.retentionNear(p) {
			st.Problems = append(st.Problems, &rpc.PartitionProblem{
				Partition: p.id, Kind: rpc.PartitionProblem_KIND_RETENTION_NEAR, Needed: p.watermark, LogStart: p.logStart, Detail: m.retentionWords(taken),
			})
		}
		if p.lease != nil && len(p.lease.repairs) > 0 {
			st.Repairing = true
		}
	}
	st.Repairing = st.Repairing || !m.progressKnown()
	return st
}

func (p *partition) status() *rpc.PartitionStatus {
	ps := &rpc.PartitionStatus{
		Partition: p.id, Start: p.start, Applied: p.watermark, Frontier: p.frontier, Durable: p.durable, Position: p.position,
		End: p.end, AppliedOffsetsAbove: p.offsets - (p.watermark - p.start),
	}
	if !p.advanced.IsZero() {
		ps.LastAdvanceUnixMs = p.advanced.UnixMilli()
	}
	if p.lease != nil {
		ps.Holder, ps.Position = p.lease.member, p.lease.position
	}
	return ps
}

func (m *machine) memberStatus(w *member) *rpc.MemberStatus {
	rate, busy := w.rate.rates()
	if m.still() {
		rate, busy = 0, 0 // and not what the last seconds were, which had training in them
	}
	ms := &rpc.MemberStatus{
		Member: w.name, Rank: w.rank, Generation: w.generation, State: w.state, Address: w.address, StartedUnixMs: w.startedMS,
		JoinedUnixMs: unixMS(w.joined), ReadyUnixMs: unixMS(w.ready), FirstTrainedUnixMs: unixMS(w.firstTrained),
		DrainedUnixMs: unixMS(w.drained), LastBeatUnixMs: unixMS(w.seen), Metrics: w.metrics, RecordsPerSecond: rate, BusyShare: busy,
	}
	if w.drain && w.state == rpc.MemberState_MEMBER_STATE_READY {
		ms.State = rpc.MemberState_MEMBER_STATE_DRAINING
	}
	for _, p := range m.sorted() {
		if p.lease != nil && p.lease.session == w.session {
			ms.Partitions = append(ms.Partitions, p.id)
		}
	}
	return ms
}

func unixMS(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// totals sums the metrics of every worker process that ever reported to this chief or one before.
func (m *machine) totals() *rpc.WorkerMetrics {
	sum := emptyMetrics()
	addMetrics(sum, m.past.retired)
	seen := map[processKey]bool{}
	for _, w := range m.sortedMembers() {
		seen[w.process()] = true
		addMetrics(sum, w.metrics)
	}
	for _, k := range m.past.order {
		if !seen[k] {
			addMetrics(sum, m.past.metrics[k])
		}
	}
	return sum
}

func addMetrics(sum, a *rpc.WorkerMetrics) {
	sum.Records += a.GetRecords()
	sum.Steps += a.GetSteps()
	sum.BusySeconds += a.GetBusySeconds()
	sum.WallSeconds += a.GetWallSeconds()
	sum.ForwardedRecords += a.GetForwardedRecords()
	sum.ReceivedRecords += a.GetReceivedRecords()
	sum.ReplayedRecords += a.GetReplayedRecords()
	sum.DeadRecords += a.GetDeadRecords()
	sum.RecomputedRecords += a.GetRecomputedRecords()
	sum.FetchWaits += a.GetFetchWaits()
	sum.LossSum += a.GetLossSum()
	sum.DecodedRecords += a.GetDecodedRecords()
	sum.Absent = addCounts(sum.Absent, a.GetAbsent())
	sum.Emulated = sum.Emulated || a.GetEmulated()
	sum.Validation.Positive = addCounts(sum.Validation.Positive, a.GetValidation().GetPositive())
	sum.Validation.Negative = addCounts(sum.Validation.Negative, a.GetValidation().GetNegative())
	sum.LagMs.Counts = addCounts(sum.LagMs.Counts, a.GetLagMs().GetCounts())
}

func addCounts(to, from []uint64) []uint64 {
	for len(to) < len(from) {
		to = append(to, 0)
	}
	for i, v := range from {
		to[i] += v
	}
	return to
}
