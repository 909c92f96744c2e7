package chief

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/spans"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newTestMachine(partitions, servers int) *machine {
	starts := map[int32]int64{}
	for p := range partitions {
		starts[int32(p)] = 0
	}
	return newMachine(Options{
		Job: "ctr", Timeline: "T", Incarnation: 1, Servers: servers, Starts: starts, Fresh: true,
		LeaseTimeout: time.Second, Beat: 100 * time.Millisecond,
	}, t0)
}

// report is a server's beat in which every partition has the same applied set.
func report(t *testing.T, m *machine, now time.Time, index int, inc uint64, applied map[int32]*spans.Set) *rpc.ServerDirective {
	t.Helper()
	req := &rpc.ServerBeatRequest{Fence: &rpc.Fence{Timeline: "T", Server: inc}, Index: int32(index), Address: fmt.Sprint("ps", index), Seq: uint64(now.UnixNano())}
	for p, s := range applied {
		w := s.Watermark(0)
		o := offsetSet(p, w, s)
		req.Applied = append(req.Applied, o)
		req.Touched = append(req.Touched, o)
		req.Durable = append(req.Durable, &rpc.OffsetSet{Partition: p})
	}
	d, err := m.serverBeat(now, req)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// stub is a worker reduced to what it says to the chief.
type stub struct {
	name        string
	session     uint64
	seq         uint64
	state       rpc.MemberState
	leases      map[int32]*rpc.LeaseReport
	outstanding map[int32]*spans.Set
	metrics     *rpc.WorkerMetrics
	silence     time.Duration // for how long no broker has answered it
	giveBack    bool          // the last directive's
}

func join(t *testing.T, m *machine, now time.Time, rank int) *stub {
	t.Helper()
	s := &stub{name: fmt.Sprint("worker-", rank), leases: map[int32]*rpc.LeaseReport{}, outstanding: map[int32]*spans.Set{}, state: rpc.MemberState_MEMBER_STATE_READY}
	resp, err := m.join(now, &rpc.JoinRequest{Member: s.name, Rank: int32(rank), Generation: 1, Address: "a"})
	if err != nil {
		t.Fatal(err)
	}
	s.session = resp.GetSession()
	return s
}

// beat reports and reconciles, as the protocol asks of a worker.
func (s *stub) beat(m *machine, now time.Time) *rpc.Directive {
	s.seq++
	req := &rpc.BeatRequest{Fence: &rpc.Fence{Timeline: "T", Chief: m.opt.Incarnation}, Member: s.name, Session: s.session, Seq: s.seq, State: s.state, Metrics: s.metrics, CutOffMs: s.silence.Milliseconds()}
	for _, l := range s.leases {
		req.Leases = append(req.Leases, l)
	}
	for p, o := range s.outstanding {
		for _, sp := range o.Spans() {
			req.Outstanding = append(req.Outstanding, &rpc.Span{Partition: p, Begin: sp.Begin, End: sp.End})
		}
	}
	d := m.beat(now, req)
	s.giveBack = d.GetGiveBack()
	for p, l := range s.leases {
		if l.GetReleased() {
			delete(s.leases, p)
		}
	}
	granted := map[int32]bool{}
	for _, g := range d.GetGrants() {
		granted[g.GetPartition()] = true
		l := s.leases[g.GetPartition()]
		if l == nil {
			l = &rpc.LeaseReport{Partition: g.GetPartition(), Position: g.GetPosition()}
			s.leases[g.GetPartition()] = l
		}
		l.Epoch = g.GetEpoch()
		if g.GetId() > l.GetGrant() {
			for _, r := range g.GetRepair() {
				s.hold(g.GetPartition(), r.GetBegin(), r.GetEnd())
			}
			l.Grant = g.GetId()
		}
	}
	for p, l := range s.leases {
		if !granted[p] {
			l.Released = true
		}
	}
	for _, a := range d.GetApplied() {
		if o := s.outstanding[a.GetPartition()]; o != nil {
			s.outstanding[a.GetPartition()] = spans.Subtract(o, setOf(a, 0))
		}
	}
	return d
}

func (s *stub) hold(p int32, b, e int64) {
	if s.outstanding[p] == nil {
		s.outstanding[p] = spans.Of()
	}
	s.outstanding[p].Add(b, e)
}

// fetch reads n offsets of a partition that it holds.
func (s *stub) fetch(p int32, n int64) {
	l := s.leases[p]
	s.hold(p, l.GetPosition(), l.GetPosition()+n)
	l.Position += n
}

func set(b, e int64) *spans.Set { return spans.Of(spans.Span{Begin: b, End: e}) }

func at(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }

func TestNothingIsGrantedBeforeEveryServerHasReported(t *testing.T) {
	m := newTestMachine(2, 2)
	w := join(t, m, at(0), 0)
	report(t, m, at(1), 0, 1, nil)
	if d := w.beat(m, at(2)); len(d.GetGrants()) != 0 || len(d.GetApplied()) != 0 {
		t.Fatalf("granted %v, confirmed %v with one of two servers known", d.GetGrants(), d.GetApplied())
	}
	report(t, m, at(3), 1, 1, nil)
	if d := w.beat(m, at(4)); len(d.GetGrants()) != 2 {
		t.Fatalf("granted %d partitions, want 2", len(d.GetGrants()))
	}
}

func TestPartitionsAreSharedEvenlyAndHandedOverInOrder(t *testing.T) {
	m := newTestMachine(8, 1)
	report(t, m, at(0), 0, 1, nil)
	a := join(t, m, at(0), 0)
	a.beat(m, at(1))
	a.beat(m, at(2))
	for p := range int32(8) {
		a.fetch(p, 100)
	}
	b := join(t, m, at(3), 1)
	for i := range 40 {
		a.beat(m, at(10+i))
		b.beat(m, at(10+i))
		for p := range int32(8) {
			if la, lb := a.leases[p], b.leases[p]; la != nil && lb != nil && !la.GetReleased() && !lb.GetReleased() {
				t.Fatalf("step %d: both hold partition %d", i, p)
			}
		}
	}
	if len(a.leases) != 4 || len(b.leases) != 4 {
		t.Fatalf("shares %d and %d, want 4 and 4", len(a.leases), len(b.leases))
	}
	for p, l := range b.leases {
		if l.GetPosition() != 100 {
			t.Errorf("partition %d goes on at %d, want 100: what is below is still the old holder's", p, l.GetPosition())
		}
		if o := b.outstanding[p]; o != nil && !o.Empty() {
			t.Errorf("partition %d: the new holder was given %v, which the old one answers for", p, o)
		}
	}
}

// Rule 10: a server acknowledges to 5,000, dies, restores at 2,000; live workers are past it.
func TestRule10RestoredServerRewindsLeases(t *testing.T) {
	m := newTestMachine(1, 2)
	report(t, m, at(0), 0, 1, nil)
	report(t, m, at(0), 1, 1, nil)
	w := join(t, m, at(0), 0)
	w.beat(m, at(1))
	w.beat(m, at(2))
	w.fetch(0, 5000)
	report(t, m, at(3), 0, 1, map[int32]*spans.Set{0: set(0, 5000)})
	report(t, m, at(3), 1, 1, map[int32]*spans.Set{0: set(0, 5000)})
	w.beat(m, at(4))
	w.beat(m, at(5))
	if o := w.outstanding[0]; !o.Empty() {
		t.Fatalf("outstanding %v after everything was applied", o)
	}
	report(t, m, at(6), 1, 2, map[int32]*spans.Set{0: set(0, 2000)})
	w.beat(m, at(7))
	if diff := cmp.Diff([]spans.Span{{Begin: 2000, End: 5000}}, w.outstanding[0].Spans()); diff != "" {
		t.Fatalf("leased again (-want +got):\n%s", diff)
	}
	if got := w.leases[0].GetPosition(); got != 5000 {
		t.Errorf("reading goes on at %d, want 5000", got)
	}
	w.beat(m, at(8))
	if d := w.beat(m, at(9)); len(d.GetGrants()[0].GetRepair()) != 0 {
		t.Errorf("granted the same repair twice: %v", d.GetGrants()[0].GetRepair())
	}
}

// Rule 2: a report of a lower incarnation is refused.
func TestRule2OldServerIncarnationIsFenced(t *testing.T) {
	m := newTestMachine(1, 1)
	report(t, m, at(0), 0, 7, map[int32]*spans.Set{0: set(0, 10)})
	if d := report(t, m, at(1), 0, 6, map[int32]*spans.Set{0: set(0, 99)}); !d.GetFenced() {
		t.Fatal("a lower incarnation was not fenced")
	}
	if got := m.partitions[0].watermark; got != 10 {
		t.Fatalf("watermark %d, want 10: the fenced report must change nothing", got)
	}
}

// Rule 12: the holder dies with chunks that only it had; they are leased again, once.
func TestRule12DeadMembersChunksAreLeasedAgain(t *testing.T) {
	m := newTestMachine(1, 1)
	report(t, m, at(0), 0, 1, nil)
	a, b := join(t, m, at(0), 0), join(t, m, at(0), 1)
	a.beat(m, at(1))
	b.beat(m, at(1))
	holder, other := a, b
	if len(b.leases) == 1 {
		holder, other = b, a
	}
	holder.fetch(0, 300)
	holder.beat(m, at(2))
	report(t, m, at(3), 0, 1, map[int32]*spans.Set{0: set(100, 200)})
	for ms := 100; ms <= 1300; ms += 100 { // the holder is silent
		report(t, m, at(ms), 0, 1, map[int32]*spans.Set{0: set(100, 200)})
		other.beat(m, at(ms))
		m.tick(at(ms))
	}
	want := []spans.Span{{Begin: 0, End: 100}, {Begin: 200, End: 300}}
	if diff := cmp.Diff(want, orEmpty(other.outstanding[0]).Spans()); diff != "" {
		t.Fatalf("leased again (-want +got):\n%s", diff)
	}
	if d := holder.beat(m, at(1400)); !d.GetRejoin() {
		t.Fatal("the expelled member was not told to join again")
	}
}

// Rule 12: a draining member keeps what it has fetched until that is confirmed, and is drained only then.
func TestRule12DrainHandsOverPositionAndKeepsOutstanding(t *testing.T) {
	m := newTestMachine(1, 1)
	report(t, m, at(0), 0, 1, nil)
	a := join(t, m, at(0), 0)
	a.beat(m, at(1))
	a.beat(m, at(2))
	a.fetch(0, 64)
	b := join(t, m, at(3), 1)
	b.beat(m, at(3))
	if unknown := m.drain([]string{"worker-0", "worker-9"}); len(unknown) != 1 || unknown[0] != "worker-9" {
		t.Fatalf("unknown %v, want worker-9", unknown)
	}
	if d := a.beat(m, at(4)); !d.GetDrain() {
		t.Fatal("the member was not told to drain")
	}
	a.state = rpc.MemberState_MEMBER_STATE_DRAINING
	a.beat(m, at(5))
	b.beat(m, at(6))
	if l := b.leases[0]; l == nil || l.GetPosition() != 64 {
		t.Fatalf("the partition was not handed over at 64: %v", l)
	}
	a.state = rpc.MemberState_MEMBER_STATE_DRAINED
	a.beat(m, at(7))
	if s := m.members["worker-0"].state; s == rpc.MemberState_MEMBER_STATE_DRAINED {
		t.Fatal("drained although [0,64) is not applied")
	}
	report(t, m, at(8), 0, 1, map[int32]*spans.Set{0: set(0, 64)})
	a.beat(m, at(9))
	a.beat(m, at(10))
	if s := m.members["worker-0"].state; s != rpc.MemberState_MEMBER_STATE_DRAINED {
		t.Fatalf("state %v, want drained", s)
	}
}

// Rule 3: a new chief lets members register again within the grace period, keeps their leases, and grants nothing over their heads.
func TestRule3NewChiefAdoptsMembersWithinGrace(t *testing.T) {
	m := newMachine(Options{
		Job: "ctr", Timeline: "T", Incarnation: 2, Servers: 1, Starts: map[int32]int64{0: 0, 1: 0},
		LeaseTimeout: time.Second, Grace: time.Second, Beat: 100 * time.Millisecond,
	}, t0)
	report(t, m, at(1), 0, 2, map[int32]*spans.Set{0: set(0, 50), 1: set(0, 50)})
	early := join(t, m, at(2), 1)
	if d := early.beat(m, at(3)); len(d.GetGrants()) != 0 {
		t.Fatalf("granted %v during the grace period", d.GetGrants())
	}
	resp, err := m.join(at(500), &rpc.JoinRequest{
		Member: "worker-0", Rank: 0, Generation: 1, Address: "a", Timeline: "T",
		Leases:      []*rpc.LeaseReport{{Partition: 0, Epoch: &rpc.Epoch{Chief: 1, Counter: 8}, Position: 90, Grant: 3}},
		Outstanding: []*rpc.Span{{Partition: 0, Begin: 50, End: 90}},
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &stub{
		name: "worker-0", session: resp.GetSession(), state: rpc.MemberState_MEMBER_STATE_READY,
		leases:      map[int32]*rpc.LeaseReport{0: {Partition: 0, Epoch: &rpc.Epoch{Chief: 1, Counter: 8}, Position: 90, Grant: 3}},
		outstanding: map[int32]*spans.Set{0: set(50, 90)},
	}
	d := w.beat(m, at(510))
	if len(d.GetGrants()) != 1 || len(d.GetGrants()[0].GetRepair()) != 0 {
		t.Fatalf("grants %v, want its own partition and nothing to repair", d.GetGrants())
	}
	for ms := 600; ms < 1300; ms += 50 {
		report(t, m, at(ms), 0, 2, map[int32]*spans.Set{0: set(0, 50), 1: set(0, 50)})
		early.beat(m, at(ms))
		w.beat(m, at(ms))
		m.tick(at(ms))
	}
	l := early.leases[1]
	if l == nil || l.GetPosition() != 50 {
		t.Fatalf("after the grace period partition 1 should be read from 50 on by worker-1: %v", l)
	}
	if l.GetEpoch().GetChief() != 2 {
		t.Errorf("epoch %v: a new chief's epochs carry its incarnation", l.GetEpoch())
	}
}

// Rule 16: the policy "skip" gives up what retention removed, and only that.
func TestRule16LostSpanIsPushedAsEmptyOnlyWhenAllowed(t *testing.T) {
	for _, skip := range []bool{false, true} {
		m := newTestMachine(1, 1)
		if skip {
			m.opt.Policies = &rpc.Policies{OnLost: "skip"}
		}
		report(t, m, at(0), 0, 1, map[int32]*spans.Set{0: set(0, 10)})
		w := join(t, m, at(0), 0)
		w.beat(m, at(1))
		m.beat(at(2), &rpc.BeatRequest{
			Fence: m.fence(), Member: w.name, Session: w.session, Seq: 99, State: w.state,
			Leases:   []*rpc.LeaseReport{w.leases[0]},
			Problems: []*rpc.PartitionProblem{{Partition: 0, Kind: rpc.PartitionProblem_KIND_LOST, Needed: 10, LogStart: 40}},
		})
		d := m.directive(t0, m.members[w.name], nil)
		if !skip && len(d.GetLost()) != 0 {
			t.Errorf("gave up %v without being asked to", d.GetLost())
		}
		if skip && (len(d.GetLost()) != 1 || d.GetLost()[0].GetBegin() != 10 || d.GetLost()[0].GetEnd() != 40) {
			t.Errorf("lost %v, want [10,40)", d.GetLost())
		}
		if got := m.status(at(3)).GetProblems(); skip == (len(got) == 1) {
			t.Errorf("problems with skip %v: %v; what is given up waits for nobody", skip, got)
		}
	}
}

func TestAdvanceLogTellsWhatItDropped(t *testing.T) {
	var l advanceLog
	for i := range advanceLogSize + 10 {
		l.add(&rpc.Advance{Watermark: int64(i)})
	}
	out, truncated := l.after(0, 5)
	if len(out) != 5 || out[0].GetSeq() != 11 || truncated {
		t.Errorf("from the start: %d entries from %d, truncated %v", len(out), out[0].GetSeq(), truncated)
	}
	if _, truncated = l.after(3, 5); !truncated {
		t.Error("entries 4 to 10 are gone, and nothing says so")
	}
	if out, truncated = l.after(uint64(advanceLogSize+9), 5); len(out) != 1 || truncated {
		t.Errorf("tail: %d entries, truncated %v", len(out), truncated)
	}
	if out, truncated = l.after(1<<40, 5); len(out) != 5 || !truncated {
		t.Errorf("another chief's number: %d entries, truncated %v", len(out), truncated)
	}
}

// Rules 3 and 23: a backend that lost sight of a worker may start it a second time. Of two processes of one generation the one that started later stays; if each could
// expel the other, neither would ever train.
func TestRule23TwoProcessesOfOneWorkerSettle(t *testing.T) {
	m := newTestMachine(1, 1)
	join := func(startedMS int64) error {
		_, err := m.join(at(0), &rpc.JoinRequest{Member: "worker-0", Generation: 1, Address: "a", StartedUnixMs: startedMS})
		return err
	}
	if err := join(1000); err != nil {
		t.Fatal(err)
	}
	if err := join(2000); err != nil {
		t.Fatalf("the later process was refused: %v", err)
	}
	if err := join(1000); err == nil {
		t.Fatal("the earlier process expelled the later one")
	}
	if err := join(2000); err != nil {
		t.Fatalf("the process that stays may join again: %v", err)
	}
}

// Rule 17: what is not known of the topic neither lifts a halt nor lets a new chief lease.
func TestRule17NothingIsLeasedBeforeTheTopicIsVerified(t *testing.T) {
	m := newTestMachine(1, 1)
	m.opt.TopicID = "id"
	report(t, m, at(0), 0, 1, nil)
	w := join(t, m, at(0), 0)
	w.beat(m, at(1))
	if d := w.beat(m, at(2)); len(d.GetGrants()) != 0 {
		t.Fatalf("granted %v of a topic that nobody has looked at", d.GetGrants())
	}
	m.verified = true
	if d := w.beat(m, at(3)); len(d.GetGrants()) != 1 {
		t.Fatalf("granted %d partitions of the verified topic, want 1", len(d.GetGrants()))
	}
}

// Rule 16: only what retention is known to have removed can be given up.
func TestRule16OnlyWhatIsGoneCanBeGivenUp(t *testing.T) {
	m := newTestMachine(1, 1)
	sp := &rpc.Span{Partition: 0, Begin: 10, End: 40}
	if err := m.mayLose(sp); err == nil {
		t.Fatal("gave up records that nobody knows to be gone")
	}
	m.partitions[0].logStart = 39
	if err := m.mayLose(sp); err == nil {
		t.Fatal("gave up a record that is still there")
	}
	m.partitions[0].logStart = 40
	if err := m.mayLose(sp); err != nil {
		t.Fatal(err)
	}
}

// Who reads, joins or drains beats as often as can be; the others seldom, when they are many, but many times within a lease.
func TestIdleMembersBeatSeldom(t *testing.T) {
	for _, tt := range []struct {
		members int
		lease   time.Duration
		want    time.Duration
	}{
		{2, 5 * time.Second, 50 * time.Millisecond},
		{25, 5 * time.Second, 50 * time.Millisecond},
		{100, 5 * time.Second, 200 * time.Millisecond},
		{300, 5 * time.Second, 500 * time.Millisecond},
		{300, time.Second, 100 * time.Millisecond},
	} {
		m := newMachine(Options{
			Job: "ctr", Timeline: "T", Incarnation: 1, Servers: 1, Starts: map[int32]int64{0: 0}, Fresh: true, LeaseTimeout: tt.lease, Beat: 50 * time.Millisecond,
		}, t0)
		m.verified = true
		report(t, m, t0, 0, 1, nil)
		var all []*stub
		for rank := range tt.members {
			all = append(all, join(t, m, t0, rank))
			if got := m.pace(m.members[all[rank].name]); got != 50*time.Millisecond {
				t.Errorf("one that joins beats every %v", got)
			}
		}
		paces := map[time.Duration]int{}
		for round := range 3 {
			for _, s := range all {
				if d := s.beat(m, t0); round == 2 {
					paces[time.Duration(d.GetNextBeatMs())*time.Millisecond]++
				}
			}
			m.tick(t0)
		}
		want := map[time.Duration]int{50 * time.Millisecond: 1, tt.want: tt.members - 1}
		if tt.want == 50*time.Millisecond {
			want = map[time.Duration]int{tt.want: tt.members}
		}
		if diff := cmp.Diff(want, paces); diff != "" {
			t.Errorf("%d members, lease %v: how often they beat (-want +got):\n%s", tt.members, tt.lease, diff)
		}
		last := all[len(all)-1]
		m.drain([]string{last.name})
		if got := time.Duration(last.beat(m, t0).GetNextBeatMs()) * time.Millisecond; got != 50*time.Millisecond {
			t.Errorf("one that drains beats every %v", got)
		}
	}
}

// A job that is paused trains nothing from then on, whatever it trained in the seconds before.
func TestPausedMembersTrainNothing(t *testing.T) {
	m := newTestMachine(1, 1)
	report(t, m, at(0), 0, 1, nil)
	w := join(t, m, at(0), 0)
	for i := range 4 {
		w.metrics = &rpc.WorkerMetrics{Records: uint64(100 * i), BusySeconds: 0.08 * float64(i)}
		w.beat(m, at(100*i))
	}
	rates := func(ms int) [2]float64 {
		s := m.status(at(ms)).GetMembers()[0]
		return [2]float64{s.GetRecordsPerSecond(), s.GetBusyShare()}
	}
	if got := rates(300); math.Abs(got[0]-1000) > 1 || math.Abs(got[1]-0.8) > 0.001 {
		t.Errorf("while it trains: %v", got)
	}
	m.paused = true
	if got := rates(300); got != [2]float64{} {
		t.Errorf("as soon as it is paused: %v", got)
	}
	if !w.beat(m, at(400)).GetPaused() {
		t.Error("the worker is not told")
	}
}
