package trainer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/shuffler"
	"github.com/kale-sched/kale/trainer/checkpoint"
)

// stillWorker is a worker of which nothing runs: directives are given to it by hand.
func stillWorker(t testing.TB) *worker {
	t.Helper()
	w, err := newWorker(slog.New(slog.DiscardHandler), &rpc.TrainSpec{
		Stream: &rpc.StreamSpec{Topic: testTopic}, Model: &rpc.ModelSpec{Kind: KindCounting, Batch: 32},
		Worker: &rpc.WorkerSpec{Chunk: 16, Queue: 64, LingerMs: 1, Forward: "advanced"}, LeaseTimeoutMs: 1000,
	}, WorkerOptions{}, func() (checkpoint.ChiefInfo, error) { return checkpoint.ChiefInfo{}, checkpoint.ErrNoChief })
	if err != nil {
		t.Fatal(err)
	}
	w.ready = true
	w.spread()
	return w
}

// exchange lets the worker report and obey once, and returns its report.
func exchange(t testing.TB, w *worker, d *rpc.Directive) *rpc.BeatRequest {
	t.Helper()
	w.mu.Lock()
	req, _ := w.beatRequest(1)
	w.mu.Unlock()
	w.obey(t.Context(), req, d)
	return req
}

func grant(p int32, id, counter uint64, position int64, repair ...int64) *rpc.Grant {
	g := &rpc.Grant{Id: id, Partition: p, Epoch: &rpc.Epoch{Chief: 1, Counter: counter}, Position: position}
	for i := 0; i+1 < len(repair); i += 2 {
		g.Repair = append(g.Repair, &rpc.Span{Partition: p, Begin: repair[i], End: repair[i+1]})
	}
	return g
}

func grants(gs ...*rpc.Grant) *rpc.Directive { return &rpc.Directive{Grants: gs} }

func showLeases(w *worker) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := ""
	for _, l := range w.leaseReports() {
		out += fmt.Sprintf("%d@%d grant %d epoch %d released %v\n", l.GetPartition(), l.GetPosition(), l.GetGrant(), l.GetEpoch().GetCounter(), l.GetReleased())
	}
	return out
}

// TestRule12RepairsAreTakenInOnce: the directive repeats what it desires; the spans of a grant are read once, those of a later grant too, and the report says
// up to which.
func TestRule12RepairsAreTakenInOnce(t *testing.T) {
	w := stillWorker(t)
	for range 3 {
		exchange(t, w, grants(grant(0, 5, 1, 100, 10, 20)))
	}
	if got := len(w.ledger.inState(toRead)); got != 1 {
		t.Errorf("%d spans to read, want 1", got)
	}
	exchange(t, w, grants(grant(0, 6, 1, 100, 10, 20, 40, 50)))
	if diff := cmp.Diff("0@100 grant 6 epoch 1 released false\n", showLeases(w)); diff != "" {
		t.Error(diff)
	}
	// A new chief counts from the start.
	g := grant(0, 1, 1, 100, 70, 80)
	g.Epoch.Chief = 2
	exchange(t, w, grants(g))
	req := exchange(t, w, grants(g))
	if diff := cmp.Diff("0:[10,20) 0:[40,50) 0:[70,80)", showSpans(req.GetOutstanding())); diff != "" {
		t.Error(diff)
	}
}

// TestLeaseIsHandedBack: a lease that is not desired any more is reported as released, with its position, until the chief has taken note; a lease that is
// granted later begins where that grant says.
func TestLeaseIsHandedBack(t *testing.T) {
	w := stillWorker(t)
	exchange(t, w, grants(grant(0, 1, 1, 100), grant(1, 1, 2, 7)))
	w.leases[0].position = 160
	exchange(t, w, grants(grant(0, 2, 1, 100), grant(1, 1, 2, 7)))
	if diff := cmp.Diff("0@160 grant 2 epoch 1 released false\n1@7 grant 1 epoch 2 released false\n", showLeases(w)); diff != "" {
		t.Errorf("a grant that is held keeps its own position: %s", diff)
	}
	exchange(t, w, grants(grant(1, 1, 2, 7)))
	if diff := cmp.Diff("0@160 grant 2 epoch 1 released true\n1@7 grant 1 epoch 2 released false\n", showLeases(w)); diff != "" {
		t.Error(diff)
	}
	// The answer to the report takes it away, and may grant it anew at once.
	exchange(t, w, grants(grant(0, 3, 9, 300), grant(1, 1, 2, 7)))
	if diff := cmp.Diff("0@300 grant 3 epoch 9 released false\n1@7 grant 1 epoch 2 released false\n", showLeases(w)); diff != "" {
		t.Error(diff)
	}
}

// TestOnlyReadersForward: a worker opens streams to its peers when it reads its first partition, and keeps them as long as they are there.
func TestOnlyReadersForward(t *testing.T) {
	w := stillWorker(t)
	peers := []*rpc.PeerInfo{{Member: "worker-1", Address: "127.0.0.1:1"}, {Member: "worker-2", Address: "127.0.0.1:2"}}
	for i, step := range []struct {
		grants []*rpc.Grant
		peers  []*rpc.PeerInfo
		want   int
	}{
		{nil, peers, 0},
		{[]*rpc.Grant{grant(0, 1, 1, 100)}, peers, 2},
		{nil, peers, 2},
		{nil, peers, 2},
		{nil, peers[:1], 1},
		{nil, nil, 0},
		{nil, peers, 0},
	} {
		exchange(t, w, &rpc.Directive{Grants: step.grants, Peers: step.peers})
		w.mu.Lock()
		if got := len(w.outbound); got != step.want {
			t.Errorf("after directive %d it has %d streams to peers, want %d", i, got, step.want)
		}
		w.mu.Unlock()
	}
}

// peerStream is a peer's stream into w, and whether w has ended it.
func peerStream(w *worker) (in *inbound, ended func() bool) {
	ctx, cancel := context.WithCancel(context.Background())
	in = &inbound{origin: "worker-9", box: newOutbox[*rpc.ForwardResponse](), cancel: cancel}
	w.join(in)
	return in, func() bool { return ctx.Err() != nil }
}

func said(in *inbound) (out []string) {
	for _, m := range in.box.takeAll() {
		out = append(out, m.String())
	}
	return out
}

func wire(id uint64, begin, end int64) *rpc.Chunk {
	c := &rpc.Chunk{Id: id, Span: &rpc.Span{Begin: begin, End: end}}
	for o := begin; o < end; o++ {
		c.Records = append(c.Records, &rpc.Record{Offset: o})
	}
	return c
}

// TestRule12DrainRefusesForwards: before anything else a draining worker takes no more chunks; what it has accepted it finishes; what it was to read again it
// leaves to the chief.
func TestRule12DrainRefusesForwards(t *testing.T) {
	w := stillWorker(t)
	in, _ := peerStream(w)
	exchange(t, w, grants(grant(0, 1, 1, 100, 10, 20)))
	w.receive(in, wire(1, 200, 216))
	said(in)
	req := exchange(t, w, &rpc.Directive{Drain: true, Grants: []*rpc.Grant{grant(0, 1, 1, 100, 10, 20)}})
	w.receive(in, wire(2, 216, 232))
	if diff := cmp.Diff([]string{"accepting:false", "refused:2"}, said(in)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff("0:[10,20) 0:[200,216)", showSpans(req.GetOutstanding())); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff("0@100 grant 1 epoch 1 released true\n", showLeases(w)); diff != "" {
		t.Error(diff)
	}
	req = exchange(t, w, &rpc.Directive{Drain: true})
	if diff := cmp.Diff("0:[200,216)", showSpans(req.GetOutstanding())); diff != "" {
		t.Error(diff)
	}
	if req.GetState() != rpc.MemberState_MEMBER_STATE_DRAINING {
		t.Errorf("state %v while a chunk is left", req.GetState())
	}
	exchange(t, w, &rpc.Directive{Drain: true, Applied: []*rpc.OffsetSet{applied(0, 0, 200, 216)}})
	w.mu.Lock()
	defer w.mu.Unlock()
	if req, drained := w.beatRequest(9); !drained || req.GetState() != rpc.MemberState_MEMBER_STATE_DRAINED {
		t.Errorf("state %v with nothing left", req.GetState())
	}
}

// TestExpelledLetsGoOfEverything: nothing of the lost session is left, and peers learn from the end of their streams that their chunks are theirs again.
func TestExpelledLetsGoOfEverything(t *testing.T) {
	w := stillWorker(t)
	in, ended := peerStream(w)
	exchange(t, w, grants(grant(0, 1, 1, 100, 10, 20)))
	w.receive(in, wire(1, 200, 216))
	w.forget()
	if !ended() {
		t.Error("the peer's stream goes on, and the peer believes that its chunk is here")
	}
	if w.ledger.len() != 0 || w.unit.Len() != 0 || len(w.leases) != 0 {
		t.Errorf("left: %d spans, %d chunks, %d leases", w.ledger.len(), w.unit.Len(), len(w.leases))
	}
}

// TestConfirmedChunksLeaveTheQueue: what another has trained meanwhile is not trained for nothing, and its origin is told.
func TestConfirmedChunksLeaveTheQueue(t *testing.T) {
	w := stillWorker(t)
	in, _ := peerStream(w)
	w.receive(in, wire(1, 0, 16))
	w.receive(in, wire(2, 16, 32))
	said(in)
	exchange(t, w, &rpc.Directive{Applied: []*rpc.OffsetSet{applied(0, 20)}})
	if w.unit.Len() != 1 || w.ledger.len() != 1 {
		t.Errorf("%d chunks queued, %d spans", w.unit.Len(), w.ledger.len())
	}
	if diff := cmp.Diff([]string{"trained:1"}, said(in)); diff != "" {
		t.Error(diff)
	}
}

// TestPeerThatForgotIsNotTrusted: a peer says that it trained a chunk, and a server that had it is replaced; or the chief's confirmation does not come. The chunk
// is read again, and the peer has it no more.
func TestPeerThatForgotIsNotTrusted(t *testing.T) {
	for _, how := range []string{"server replaced", "no confirmation"} {
		t.Run(how, func(t *testing.T) {
			w := stillWorker(t)
			exchange(t, w, &rpc.Directive{Servers: []*rpc.ServerInfo{{Index: 1, Address: "a", Incarnation: 4}}})
			o := &outbound{name: "worker-9", box: newOutbox[*rpc.ForwardRequest](), up: true, cancel: func() {}}
			w.mu.Lock()
			w.outbound[o.name] = o
			w.unit.PeerUp(o.name, false)
			w.unit.PeerState(o.name, true)
			var last *chunk
			for i := range int64(5) { // four fill the queue
				last = &chunk{id: w.ledger.newID(), begin: 16 * i, end: 16*i + 16, records: make([]record, 16)}
				if !w.offer(last) {
					t.Fatal("no room")
				}
			}
			w.mu.Unlock()
			if _, away := w.unit.Holder(last.id); !away {
				t.Fatal("nothing was forwarded")
			}
			w.heard(o, &rpc.ForwardResponse{Event: &rpc.ForwardResponse_Trained{Trained: last.id}})
			d := &rpc.Directive{Peers: []*rpc.PeerInfo{{Member: o.name}}, Applied: []*rpc.OffsetSet{applied(0, 0)}}
			w.mu.Lock()
			if how == "server replaced" {
				d.Servers = []*rpc.ServerInfo{{Index: 1, Address: "a", Incarnation: 5}}
			} else {
				w.ledger.entries[last.id].since = time.Now().Add(-time.Hour)
			}
			w.mu.Unlock()
			o.address = "" // as in the directive: the stream stays
			w.mu.Lock()
			w.takeServers(d.GetServers())
			w.takeApplied(d.GetApplied())
			w.mu.Unlock()
			again := w.ledger.inState(toRead)
			if len(again) != 1 || again[0].begin != 64 || again[0].end != 80 {
				t.Errorf("to read again: %v", again)
			}
			if _, away := w.unit.Holder(last.id); away || w.unit.Away() != 0 {
				t.Error("the peer still counts as its holder")
			}
		})
	}
}

// TestLostSpansResume: the partition goes on when all between its position and the log's start is given up or applied, in however many pieces.
func TestLostSpansResume(t *testing.T) {
	w := stillWorker(t)
	exchange(t, w, grants(grant(0, 1, 1, 10)))
	w.setProblem(w.leases[0], &rpc.PartitionProblem{Kind: rpc.PartitionProblem_KIND_LOST, Needed: 10, LogStart: 50}, true)
	d := grants(grant(0, 1, 1, 10))
	d.Applied = []*rpc.OffsetSet{applied(0, 10, 20, 30)}
	d.Lost = []*rpc.Span{{Begin: 10, End: 20}}
	exchange(t, w, d)
	if l := w.leases[0]; !l.stopped || l.position != 10 {
		t.Fatalf("it goes on at %d, with [30,50) unsettled", l.position)
	}
	d.Lost = append(d.Lost, &rpc.Span{Begin: 30, End: 50})
	req := exchange(t, w, d)
	if len(req.GetProblems()) != 1 {
		t.Errorf("problems: %v", req.GetProblems())
	}
	if l := w.leases[0]; l.stopped || l.position != 50 || l.problem != nil {
		t.Errorf("stopped %v at %d: %v", l.stopped, l.position, l.problem)
	}
	if diff := cmp.Diff("0:[10,20) 0:[30,50)", showSpans(w.ledger.outstanding())); diff != "" {
		t.Error(diff)
	}
}

// TestABatchHoldsNoOffsetTwice: a span that was read again, or came from a peer, may overlap one that is queued. They go into different batches, since a
// push names each offset once.
func TestABatchHoldsNoOffsetTwice(t *testing.T) {
	w := stillWorker(t)
	w.mu.Lock()
	for _, at := range []int64{0, 8, 16} {
		c := &chunk{id: w.ledger.newID(), begin: at, end: at + 10}
		for o := at; o < at+10; o++ {
			c.records = append(c.records, record{offset: o})
		}
		if !w.offer(c) {
			t.Fatal("no room")
		}
	}
	w.mu.Unlock()
	f := &feeder{w: w, index: map[uint64]int32{}}
	var got []string
	for range 3 {
		b := f.assemble(t.Context())
		got = append(got, show(b.chunks))
		if b.full {
			t.Error("a batch that ends before an overlap is not full")
		}
	}
	if diff := cmp.Diff([]string{"[0,10)×10", "[8,18)×10", "[16,26)×10"}, got); diff != "" {
		t.Error(diff)
	}
}

// replacer is a set of servers of which one is replaced during the first pushes.
type replacer struct {
	parameters
	w      *worker
	before int // pushes during which it happens
	pushes int
}

func (r *replacer) Push(context.Context, *pushRequest) ([]*rpc.Missing, error) {
	if r.pushes++; r.pushes <= r.before {
		r.w.mu.Lock()
		r.w.takeServers([]*rpc.ServerInfo{{Index: 0, Incarnation: uint64(10 + r.pushes)}})
		r.w.mu.Unlock()
	}
	return nil, nil
}

// TestRule10ServerReplacedDuringAPush: what one server acknowledged before the other was reached may be gone. The push is made again, as a whole, until
// no server was replaced meanwhile.
func TestRule10ServerReplacedDuringAPush(t *testing.T) {
	w := stillWorker(t)
	w.takeServers([]*rpc.ServerInfo{{Index: 0, Incarnation: 10}})
	r := &replacer{w: w, before: 2}
	w.params = r
	c := &chunk{id: w.ledger.newID(), begin: 0, end: 4}
	w.ledger.add(c, queued)
	b := &batch{chunks: []*chunk{c}, recs: []trained{{offset: 1, hash: 5}}}
	if err := w.pushBatch(t.Context(), stepped{b: b}); err != nil {
		t.Fatal(err)
	}
	if r.pushes != 3 {
		t.Errorf("%d pushes, want 3", r.pushes)
	}
	if s, _ := w.ledger.state(c.id); s != pushed {
		t.Errorf("the chunk is in state %d", s)
	}
}

// picky is a set of servers of which some tablets have a part of the first push.
type picky struct {
	parameters
	got []*pushRequest
}

func (p *picky) Push(_ context.Context, r *pushRequest) ([]*rpc.Missing, error) {
	p.got = append(p.got, r)
	if len(p.got) == 1 {
		return []*rpc.Missing{{Tablets: []int32{3, 7}, Spans: []*rpc.Span{{Begin: 2, End: 4}}}, {Tablets: []int32{5}, Spans: []*rpc.Span{{Begin: 0, End: 1}}}}, nil
	}
	return nil, nil
}

// TestRule7OnlyWhatIsMissingWhereItIsMissing: the repair goes to the tablets that miss something, with their records and no others.
func TestRule7OnlyWhatIsMissingWhereItIsMissing(t *testing.T) {
	w := stillWorker(t)
	p := &picky{}
	w.params = p
	c := &chunk{id: w.ledger.newID(), begin: 0, end: 4}
	w.ledger.add(c, queued)
	b := &batch{chunks: []*chunk{c}}
	for o := range int64(4) {
		b.recs = append(b.recs, trained{offset: o, hash: 1 << o})
	}
	if err := w.pushBatch(t.Context(), stepped{b: b}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range p.got {
		got = append(got, fmt.Sprint(r.tablets, r.countIDs, r.share, r.parts))
	}
	want := []string{
		fmt.Sprint([]int32(nil), []uint64{1, 2, 4, 8}, float32(4)/32, []*rpc.RangePart{{Span: &rpc.Span{Begin: 0, End: 4}, N: 4, Hash: 15}}),
		fmt.Sprint([]int32{3, 7}, []uint64{4, 8}, float32(2)/32, []*rpc.RangePart{{Span: &rpc.Span{Begin: 2, End: 4}, N: 2, Hash: 12}}),
		fmt.Sprint([]int32{5}, []uint64{1}, float32(1)/32, []*rpc.RangePart{{Span: &rpc.Span{Begin: 0, End: 1}, N: 1, Hash: 1}}),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestUnitModeNone: without forwarding there are no streams to peers.
func TestUnitModeNone(t *testing.T) {
	w := stillWorker(t)
	w.unitMode = shuffler.None
	exchange(t, w, &rpc.Directive{Peers: []*rpc.PeerInfo{{Member: "worker-1", Address: "127.0.0.1:1"}}})
	if len(w.outbound) != 0 {
		t.Errorf("%d streams", len(w.outbound))
	}
}

// TestContact: only silence while something is to be fetched counts, and one that was noticed until an answer comes.
func TestContact(t *testing.T) {
	var c contact
	at := func(s float64) time.Time { return time.Unix(1000, int64(s*1e9)) }
	c.expect(true, at(0))
	c.expect(true, at(2))
	if c.quiet(at(2.9)) != 0 || c.quiet(at(4)) != 4*time.Second {
		t.Errorf("quiet for %v and %v", c.quiet(at(2.9)), c.quiet(at(4)))
	}
	c.expect(false, at(5))
	if c.quiet(at(6)) != 6*time.Second {
		t.Error("a silence that was noticed ends without an answer")
	}
	c.OnBrokerRead(kgo.BrokerMetadata{}, 0, 0, 0, 0, errors.New("no answer"))
	if c.quiet(at(6)) != 6*time.Second {
		t.Error("a silence that was noticed ends with an error")
	}
	c = contact{}
	c.expect(true, at(0))
	c.expect(false, at(2))
	if c.quiet(at(math.MaxInt32)) != 0 {
		t.Error("silence counts though nothing is to be fetched")
	}
	c.expect(false, at(9))
	c.expect(true, at(10))
	if c.quiet(at(12)) != 0 {
		t.Error("it is counted from when something was to be fetched again")
	}
}
