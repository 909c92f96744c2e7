package chief

import (
	"fmt"
	"sort"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/spans"
)

// member is one worker process that has joined; it stays known after it has left.
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
	if m.skipsLost() {
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
