package chief

import (
	"fmt"
	"sort"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/spans"
)

// Options are what a chief must know when it starts. Zero durations get the defaults named beside them.
type Options struct {
	Job         string
	Timeline    string
	TopicID     string
	Incarnation uint64
	MapVersion  uint64
	Servers     int
	// Starts are the pinned start offsets by partition.
	Starts map[int32]int64
	// Fresh says that no member can be left from a chief before: no grace period is needed.
	Fresh        bool
	LeaseTimeout time.Duration // 10 s
	Beat         time.Duration // 100 ms
	Grace        time.Duration // LeaseTimeout
	// SkipLost marks spans that retention has removed as lost without asking (on_lost = "skip").
	SkipLost bool
	// Lost are spans that were given up before; KeepLost makes another one durable, nil: it is not.
	Lost     []*rpc.Span
	KeepLost func(*rpc.Span) error
	// Memory is what the chief before kept, nil when there is nothing.
	Memory *rpc.ChiefMemory
}

func (o Options) withDefaults() Options {
	if o.LeaseTimeout <= 0 {
		o.LeaseTimeout = 10 * time.Second
	}
	if o.Beat <= 0 {
		o.Beat = 100 * time.Millisecond
	}
	if o.Grace <= 0 {
		o.Grace = o.LeaseTimeout
	}
	return o
}

// machine is the chief's state and all its decisions. It is not safe for concurrent use; now is always passed in.
type machine struct {
	opt     Options
	started time.Time

	members    map[string]*member
	past       past // metrics of processes that left
	partitions map[int32]*partition
	servers    []*server

	session     uint64 // last session handed out
	epochs      uint64 // last lease epoch counter
	paused      bool
	halted      *rpc.PartitionProblem // the topic was re-created: nothing is leased
	verified    bool                  // the topic has been seen to be the pinned one; before that nothing is leased either
	snapshotReq uint64

	log       advanceLog
	rollbacks []*rollback
	kafkaSeen time.Time // when the brokers answered this chief last
	// before is what workers say that a chief before had confirmed to them.
	before map[int32]*spans.Set
}

type member struct {
	name       string
	rank       int32
	generation uint64
	session    uint64
	address    string
	state      rpc.MemberState
	drain      bool
	seq        uint64

	startedMS                                  int64
	joined, ready, firstTrained, drained, seen time.Time

	leases      map[int32]*rpc.LeaseReport // as it last reported them, released ones left out
	outstanding map[int32]*spans.Set
	metrics     *rpc.WorkerMetrics
	rate        rateWindow
	problems    []*rpc.PartitionProblem
	silence     time.Duration // for how long no broker has answered it
	cutOff      bool          // for so long that others shall read what it held
}

func (m *member) live() bool {
	switch m.state {
	case rpc.MemberState_MEMBER_STATE_JOINING, rpc.MemberState_MEMBER_STATE_READY, rpc.MemberState_MEMBER_STATE_DRAINING:
		return true
	}
	return false
}

func (m *member) eligible() bool {
	return m.state == rpc.MemberState_MEMBER_STATE_READY && !m.drain && !m.cutOff
}

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

type server struct {
	info    *rpc.ServerInfo
	seen    time.Time
	seq     uint64
	applied map[int32]*spans.Set
	touched map[int32]int64 // highest touched end
	durable map[int32]int64
	metrics *rpc.ServerMetrics
	snap    uint64
}

func newMachine(o Options, now time.Time) *machine {
	o = o.withDefaults()
	m := &machine{
		opt: o, started: now,
		members:    map[string]*member{},
		past:       past{metrics: map[processKey]*rpc.WorkerMetrics{}, retired: emptyMetrics()},
		partitions: map[int32]*partition{},
		servers:    make([]*server, o.Servers),
		session:    uint64(now.UnixNano()),
		before:     map[int32]*spans.Set{},
	}
	for p, start := range o.Starts {
		m.addPartition(p, start)
	}
	for _, sp := range o.Lost {
		m.keepLost(sp.GetPartition(), sp.GetBegin(), sp.GetEnd())
	}
	m.remember(o.Memory)
	return m
}

// addPartition makes a partition known with its pinned start. Known ones are left alone.
func (m *machine) addPartition(p int32, start int64) {
	if m.partitions[p] == nil {
		m.partitions[p] = &partition{id: p, applied: spans.Of(), lost: spans.Of(), start: start, position: start, watermark: start, frontier: start, durable: start, end: -1, logStart: -1}
	}
}

func (m *machine) inGrace(now time.Time) bool {
	return !m.opt.Fresh && now.Sub(m.started) < m.opt.Grace
}

// progressKnown says whether every server has reported to this chief: before that nothing is confirmed and nothing is granted.
func (m *machine) progressKnown() bool {
	for _, s := range m.servers {
		if s == nil {
			return false
		}
	}
	return len(m.servers) > 0
}

func (m *machine) fence() *rpc.Fence {
	return &rpc.Fence{Timeline: m.opt.Timeline, Chief: m.opt.Incarnation, MapVersion: m.opt.MapVersion}
}

// fenced returns the reason for which a message of another world is refused, or "".
func (m *machine) fenced(f *rpc.Fence) string {
	switch {
	case f.GetTimeline() != m.opt.Timeline:
		return fmt.Sprintf("timeline %q is not this job's %q", f.GetTimeline(), m.opt.Timeline)
	case f.GetChief() > m.opt.Incarnation:
		return fmt.Sprintf("chief incarnation %d is newer than this chief's %d: this chief has been replaced", f.GetChief(), m.opt.Incarnation)
	case f.GetChief() < m.opt.Incarnation:
		return fmt.Sprintf("chief incarnation %d is older than this chief's %d: register again", f.GetChief(), m.opt.Incarnation)
	}
	return ""
}

// join registers a worker and returns its session. What it still holds from a chief before is adopted when nobody else holds it.
func (m *machine) join(now time.Time, req *rpc.JoinRequest) (*rpc.JoinResponse, error) {
	if req.GetMember() == "" || req.GetAddress() == "" {
		return nil, fmt.Errorf("join: member and address must be given, got %q and %q", req.GetMember(), req.GetAddress())
	}
	if t := req.GetTimeline(); t != "" && t != m.opt.Timeline {
		return nil, fmt.Errorf("join %s: timeline %q is not this job's %q", req.GetMember(), t, m.opt.Timeline)
	}
	if old := m.members[req.GetMember()]; old != nil {
		if old.live() && old.generation > req.GetGeneration() {
			return nil, fmt.Errorf("join %s: generation %d is already a member, %d is older", req.GetMember(), old.generation, req.GetGeneration())
		}
		// Two processes of one generation: a backend that had lost sight of the first started a second. If each could expel the other, neither
		// would ever train; the one that started later stays.
		if old.live() && old.generation == req.GetGeneration() && req.GetStartedUnixMs() < old.startedMS {
			return nil, fmt.Errorf("join %s: another process of generation %d, started later, is a member", req.GetMember(), req.GetGeneration())
		}
		m.expel(old)
	}
	m.session++
	w := &member{
		name: req.GetMember(), rank: req.GetRank(), generation: req.GetGeneration(), session: m.session, address: req.GetAddress(),
		state: rpc.MemberState_MEMBER_STATE_JOINING, startedMS: req.GetStartedUnixMs(), joined: now, seen: now,
		leases: map[int32]*rpc.LeaseReport{}, outstanding: bySpans(req.GetOutstanding()), metrics: &rpc.WorkerMetrics{},
	}
	if known := m.past.metrics[w.process()]; known != nil {
		w.metrics = known // until it reports again
	}
	m.members[w.name] = w
	for _, r := range req.GetLeases() {
		m.adopt(w, r)
	}
	if req.GetTimeline() != "" {
		for p, set := range confirmed(req.GetApplied()) {
			m.before[p] = spans.Union(orEmpty(m.before[p]), set)
		}
		m.recall(now, m.before)
	}
	return &rpc.JoinResponse{
		Session: w.session, Timeline: m.opt.Timeline, Chief: m.opt.Incarnation, MapVersion: m.opt.MapVersion,
		Servers: m.serverInfos(), BeatMs: m.opt.Beat.Milliseconds(), LeaseTimeoutMs: m.opt.LeaseTimeout.Milliseconds(),
		TopicId: m.opt.TopicID,
	}, nil
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

func epochLess(a, b *rpc.Epoch) bool {
	if a.GetChief() != b.GetChief() {
		return a.GetChief() < b.GetChief()
	}
	return a.GetCounter() < b.GetCounter()
}

// beat takes in a worker's report and answers with its desired state.
func (m *machine) beat(now time.Time, req *rpc.BeatRequest) *rpc.Directive {
	w := m.members[req.GetMember()]
	if w == nil || w.session != req.GetSession() || w.state == rpc.MemberState_MEMBER_STATE_EXPELLED {
		return &rpc.Directive{Fence: m.fence(), Rejoin: true, NextBeatMs: m.opt.Beat.Milliseconds()}
	}
	w.seen = now
	if req.GetSeq() > w.seq {
		w.seq = req.GetSeq()
		m.takeIn(now, w, req)
	}
	m.assign(now)
	return m.directive(now, w, req.GetInterested())
}

func (m *machine) takeIn(now time.Time, w *member, req *rpc.BeatRequest) {
	w.outstanding = bySpans(req.GetOutstanding())
	w.problems = req.GetProblems()
	w.silence = time.Duration(req.GetCutOffMs()) * time.Millisecond
	w.cutOff = w.silence >= m.patience()
	if req.GetMetrics() != nil {
		w.metrics = req.GetMetrics()
		w.rate.observe(now, w.metrics.GetRecords(), w.metrics.GetBusySeconds())
		if w.firstTrained.IsZero() && w.metrics.GetSteps() > 0 {
			w.firstTrained = now
		}
	}
	clear(w.leases)
	mentioned := map[int32]bool{}
	for _, r := range req.GetLeases() {
		p := m.partitions[r.GetPartition()]
		if p == nil {
			continue
		}
		mentioned[p.id] = true
		p.position = max(p.position, r.GetPosition())
		mine := p.lease != nil && p.lease.session == w.session
		switch {
		case r.GetReleased():
			// An old report must not end a newer lease of the same member.
			if mine && proto.Equal(p.lease.epoch, r.GetEpoch()) {
				p.lease = nil
			}
		default:
			w.leases[p.id] = r
			if mine {
				p.lease.position = max(p.lease.position, r.GetPosition())
				p.lease.acked = max(p.lease.acked, min(r.GetGrant(), p.lease.grant))
				p.lease.repairs = unacked(p.lease.repairs, p.lease.acked)
			}
		}
	}
	for _, p := range m.partitions {
		// A lease that was taken back before its holder ever heard of it: there is nothing to hand over.
		if p.lease != nil && p.lease.session == w.session && p.lease.revoking && !mentioned[p.id] {
			p.lease = nil
		}
	}
	if m.opt.SkipLost {
		for _, pr := range w.problems {
			if p := m.partitions[pr.GetPartition()]; p != nil && pr.GetKind() == rpc.PartitionProblem_KIND_LOST && pr.GetLogStart() > pr.GetNeeded() {
				p.lost.Add(pr.GetNeeded(), pr.GetLogStart())
			}
		}
	}
	m.moveState(now, w, req.GetState())
}

func (m *machine) moveState(now time.Time, w *member, to rpc.MemberState) {
	switch to {
	case rpc.MemberState_MEMBER_STATE_READY:
		if w.state == rpc.MemberState_MEMBER_STATE_JOINING {
			w.state, w.ready = to, now
		}
	case rpc.MemberState_MEMBER_STATE_DRAINING:
		w.state, w.drain = to, true
	case rpc.MemberState_MEMBER_STATE_DRAINED:
		w.drain = true
		if len(w.leases) == 0 && len(w.outstanding) == 0 {
			w.state, w.drained = to, now
			m.freeLeases(w.session)
			m.keepMetrics(w)
		}
	}
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

// serverBeat takes in a server's progress. A report of an older incarnation than the known one is fenced.
func (m *machine) serverBeat(now time.Time, req *rpc.ServerBeatRequest) (*rpc.ServerDirective, error) {
	i := int(req.GetIndex())
	if i < 0 || i >= len(m.servers) {
		return nil, fmt.Errorf("server beat: index %d, the job has servers 0 to %d", i, len(m.servers)-1)
	}
	inc := req.GetFence().GetServer()
	s := m.servers[i]
	if s != nil && inc < s.info.GetIncarnation() {
		return &rpc.ServerDirective{Fence: m.fence(), Fenced: true}, nil
	}
	before := map[int32]*spans.Set(nil)
	if s == nil || inc > s.info.GetIncarnation() {
		before = m.before
		if s != nil {
			before = m.owed(i, s)
		}
		s = &server{}
		m.servers[i] = s
	}
	if req.GetSeq() >= s.seq {
		s.seq, s.seen = req.GetSeq(), now
		s.info = &rpc.ServerInfo{Index: req.GetIndex(), Address: req.GetAddress(), Incarnation: inc, Up: true}
		s.metrics, s.snap = req.GetMetrics(), req.GetSnapshotDone()
		s.applied = map[int32]*spans.Set{}
		for _, o := range req.GetApplied() {
			s.applied[o.GetPartition()] = setOf(o, m.startOf(o.GetPartition()))
		}
		s.touched = map[int32]int64{}
		for _, o := range req.GetTouched() {
			end := o.GetWatermark()
			for _, sp := range o.GetAbove() {
				end = max(end, sp.GetEnd())
			}
			s.touched[o.GetPartition()] = end
		}
		s.durable = map[int32]int64{}
		for _, o := range req.GetDurable() {
			s.durable[o.GetPartition()] = o.GetWatermark()
		}
		m.holdAgainst(now, i, before)
		m.settleRollbacks(now)
		m.updateProgress(now)
	}
	d := &rpc.ServerDirective{Fence: m.fence(), SnapshotRequest: m.snapshotReq, NextBeatMs: m.opt.Beat.Milliseconds() / 2}
	for _, p := range m.sorted() {
		d.Starts = append(d.Starts, &rpc.OffsetSet{Partition: p.id, Watermark: p.start})
	}
	return d, nil
}

func (m *machine) startOf(p int32) int64 {
	if q := m.partitions[p]; q != nil {
		return q.start
	}
	return 0
}

// updateProgress recomputes each partition's applied set as the intersection over servers and logs what advanced.
func (m *machine) updateProgress(now time.Time) {
	if !m.progressKnown() {
		return
	}
	for _, p := range m.sorted() {
		applied := orEmpty(m.servers[0].applied[p.id]).Clone()
		durable, frontier := int64(-1), p.start
		for i, s := range m.servers {
			if i > 0 {
				applied = spans.Intersect(applied, orEmpty(s.applied[p.id]))
			}
			d, ok := s.durable[p.id]
			if !ok {
				d = p.start
			}
			if durable < 0 || d < durable {
				durable = d
			}
			frontier = max(frontier, s.touched[p.id])
		}
		offsets := applied.Size()
		if offsets != p.offsets {
			p.advanced = now
		}
		p.applied, p.watermark = applied, applied.Watermark(p.start)
		p.durable, p.frontier = durable, frontier
		p.position = max(p.position, frontier)
		if offsets > p.offsets {
			m.log.add(&rpc.Advance{UnixMs: now.UnixMilli(), Partition: p.id, Watermark: p.watermark, AppliedOffsets: offsets, End: p.end})
		}
		p.offsets = offsets
	}
}

// tick expels members that have not been heard of and assigns what is free.
func (m *machine) tick(now time.Time) {
	for _, w := range m.sortedMembers() {
		if w.live() && now.Sub(w.seen) > m.opt.LeaseTimeout {
			m.expel(w)
		}
	}
	for _, s := range m.servers {
		if s != nil && now.Sub(s.seen) > m.opt.LeaseTimeout {
			s.info.Up = false
		}
	}
	m.assign(now)
}

func (m *machine) expel(w *member) {
	if w.state == rpc.MemberState_MEMBER_STATE_DRAINED || w.state == rpc.MemberState_MEMBER_STATE_EXPELLED {
		return
	}
	w.state = rpc.MemberState_MEMBER_STATE_EXPELLED
	clear(w.outstanding)
	clear(w.leases)
	m.freeLeases(w.session)
	m.keepMetrics(w)
}

func (m *machine) freeLeases(session uint64) {
	for _, p := range m.partitions {
		if p.lease != nil && p.lease.session == session {
			p.position = max(p.position, p.lease.position)
			p.lease = nil
		}
	}
}

func (m *machine) keepMetrics(w *member) {
	m.past.keep(w.process(), w.metrics)
}

// drain asks members to leave; it returns the names that it does not know.
func (m *machine) drain(names []string) (unknown []string) {
	for _, n := range names {
		w := m.members[n]
		if w == nil || w.state == rpc.MemberState_MEMBER_STATE_EXPELLED {
			unknown = append(unknown, n)
			continue
		}
		w.drain = true
	}
	return unknown
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

func (m *machine) sortedMembers() []*member {
	out := make([]*member, 0, len(m.members))
	for _, w := range m.members {
		out = append(out, w)
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].rank != out[j].rank {
			return out[i].rank < out[j].rank
		}
		return out[i].name < out[j].name
	})
	return out
}

func (m *machine) serverInfos() []*rpc.ServerInfo {
	out := make([]*rpc.ServerInfo, 0, len(m.servers))
	for i, s := range m.servers {
		if s == nil {
			out = append(out, &rpc.ServerInfo{Index: int32(i)})
			continue
		}
		out = append(out, &rpc.ServerInfo{Index: s.info.Index, Address: s.info.Address, Incarnation: s.info.Incarnation, Up: s.info.Up})
	}
	return out
}

func bySpans(in []*rpc.Span) map[int32]*spans.Set {
	out := map[int32]*spans.Set{}
	for _, sp := range in {
		if sp.GetEnd() <= sp.GetBegin() {
			continue
		}
		s := out[sp.GetPartition()]
		if s == nil {
			s = spans.Of()
			out[sp.GetPartition()] = s
		}
		s.Add(sp.GetBegin(), sp.GetEnd())
	}
	return out
}

// setOf turns a wire set into a span set with its floor: [start, watermark) and the spans above.
func setOf(o *rpc.OffsetSet, start int64) *spans.Set {
	s := spans.Of()
	if o.GetWatermark() > start {
		s.Add(start, o.GetWatermark())
	}
	for _, sp := range o.GetAbove() {
		if sp.GetEnd() > sp.GetBegin() {
			s.Add(sp.GetBegin(), sp.GetEnd())
		}
	}
	return s
}

func orEmpty(s *spans.Set) *spans.Set {
	if s == nil {
		return spans.Of()
	}
	return s
}
