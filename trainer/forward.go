package trainer

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/shuffler"
)

// outbox hands messages to the one goroutine that may send on a stream, without ever blocking the caller.
type outbox[T any] struct {
	mu    sync.Mutex
	list  []T
	ready signal
}

func newOutbox[T any]() *outbox[T] { return &outbox[T]{ready: newSignal()} }

func (o *outbox[T]) put(m T) {
	o.mu.Lock()
	o.list = append(o.list, m)
	o.mu.Unlock()
	o.ready.set()
}

func (o *outbox[T]) takeAll() []T {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.list
	o.list = nil
	return out
}

// pump sends what is put until ctx ends or a send fails.
func (o *outbox[T]) pump(ctx context.Context, send func(T) error) error {
	for {
		for _, m := range o.takeAll() {
			if err := send(m); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-o.ready:
		}
	}
}

// ------------------------------------------------------------------------------------------------------- receiving

// inbound is one peer's stream into this worker.
type inbound struct {
	origin string
	box    *outbox[*rpc.ForwardResponse]
	cancel context.CancelFunc
}

func (in *inbound) tell(m *rpc.ForwardResponse) { in.box.put(m) }

func (in *inbound) tellTrained(id uint64) {
	in.tell(&rpc.ForwardResponse{Event: &rpc.ForwardResponse_Trained{Trained: id}})
}

// peerServer serves rpc.PeerServer on behalf of the worker.
type peerServer struct {
	rpc.UnimplementedPeerServer
	w *worker
}

// Forward receives a peer's chunks into the local queue. Each is answered at once: accepted, and then this worker answers for it until the
// chief confirms it; or refused.
func (p *peerServer) Forward(stream rpc.Peer_ForwardServer) error {
	hello, err := stream.Recv()
	if err != nil {
		return err
	}
	if hello.GetOrigin() == "" {
		return status.Error(codes.InvalidArgument, "the first message of a forwarding stream must name its origin")
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	in := &inbound{origin: hello.GetOrigin(), box: newOutbox[*rpc.ForwardResponse](), cancel: cancel}
	p.w.join(in)
	defer p.w.leave(in)
	failed := make(chan error, 1)
	var done sync.WaitGroup
	done.Add(1)
	go func() { // owned by this call; ends with ctx
		defer done.Done()
		failed <- in.box.pump(ctx, stream.Send)
	}()
	defer done.Wait()
	defer cancel()
	chunks := make(chan *rpc.Chunk)
	go func() { // ends when this call returns, as that ends the stream
		defer close(chunks)
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			if c := m.GetChunk(); c != nil {
				select {
				case chunks <- c:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return status.Error(codes.Unavailable, "this worker takes no chunks from that stream any more")
		case err := <-failed:
			return err
		case c, ok := <-chunks:
			if !ok {
				return nil
			}
			p.w.receive(in, c)
		}
	}
}

func (w *worker) join(in *inbound) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inbound[in] = true
	in.tell(&rpc.ForwardResponse{Event: &rpc.ForwardResponse_Accepting{Accepting: w.accepting}})
	w.lg.Info("peer forwards to us", "peer", in.origin)
}

func (w *worker) leave(in *inbound) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.inbound, in)
	w.lg.Info("peer forwards to us no more", "peer", in.origin)
}

// receive takes a peer's chunk, or refuses it.
func (w *worker) receive(in *inbound, m *rpc.Chunk) {
	c := &chunk{
		partition: m.GetSpan().GetPartition(), begin: m.GetSpan().GetBegin(), end: m.GetSpan().GetEnd(),
		replay: m.GetReplay(), from: in, remote: m.GetId(), records: make([]record, 0, len(m.GetRecords())),
	}
	for _, r := range m.GetRecords() {
		c.records = append(c.records, record{offset: r.GetOffset(), timestampMS: r.GetTimestampMs(), value: r.GetValue()})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c.id = w.ledger.newID()
	if c.end <= c.begin || !w.inbound[in] || !w.unit.Receive(shuffler.Chunk[*chunk]{ID: c.id, Records: len(c.records), Body: c}) {
		in.tell(&rpc.ForwardResponse{Event: &rpc.ForwardResponse_Refused{Refused: m.GetId()}})
		return
	}
	w.ledger.add(c, queued)
	w.metrics.add(&w.metrics.received, len(c.records))
	in.tell(&rpc.ForwardResponse{Event: &rpc.ForwardResponse_Accepted{Accepted: m.GetId()}})
	w.spread()
	w.feedWake.set()
}

// spread tells all peers when the readiness to accept has changed (§3.5: as it happens, without a coordinator). Caller holds mu.
func (w *worker) spread() {
	now := w.unit.Accepting() && w.ready
	if now == w.accepting {
		return
	}
	w.accepting = now
	for in := range w.inbound {
		in.tell(&rpc.ForwardResponse{Event: &rpc.ForwardResponse_Accepting{Accepting: now}})
	}
}

// ------------------------------------------------------------------------------------------------------- forwarding

// outbound is this worker's stream to one peer. Guarded by worker.mu, save for the box.
type outbound struct {
	name, address string
	hasPartitions bool
	box           *outbox[*rpc.ForwardRequest]
	cancel        context.CancelFunc
	up            bool
}

// offer places a chunk of our own in the shuffle unit: in the local queue, or with a peer. False: there is no room. Caller holds mu.
func (w *worker) offer(c *chunk) bool {
	d := w.unit.Offer(shuffler.Chunk[*chunk]{ID: c.id, Records: len(c.records), Body: c})
	if d.Verdict == shuffler.Wait {
		return false
	}
	w.ledger.add(c, queued)
	w.carryOut(d)
	return true
}

// carryOut does what the shuffle unit has decided. Caller holds mu.
func (w *worker) carryOut(d shuffler.Decision[*chunk]) {
	id := d.Chunk.ID
	if _, wanted := w.ledger.state(id); !wanted {
		w.unit.Drop(id)
		return
	}
	switch d.Verdict {
	case shuffler.Keep:
		w.ledger.place(id, queued)
		w.feedWake.set()
	case shuffler.Forward:
		w.ledger.place(id, forwarded)
		// Rendered here: the sender runs without the lock.
		w.outbound[d.Peer].box.put(&rpc.ForwardRequest{Chunk: wireChunk(d.Chunk.Body)})
		w.metrics.add(&w.metrics.forwarded, d.Chunk.Records)
	}
	w.spread()
}

// reconcilePeers opens streams to the peers of a directive, and closes those to peers that are gone. Who has not read yet has nothing to forward and opens
// none: of many workers on few partitions, each with all the others, there would be more streams than a machine can hold. Caller holds mu.
func (w *worker) reconcilePeers(ctx context.Context, peers []*rpc.PeerInfo) {
	if w.unitMode == shuffler.None || len(w.leases) == 0 && len(w.outbound) == 0 {
		return
	}
	want := map[string]*rpc.PeerInfo{}
	for _, p := range peers {
		if p.GetMember() != w.name && p.GetAddress() != "" {
			want[p.GetMember()] = p
		}
	}
	for name, o := range w.outbound {
		if p := want[name]; p == nil || p.GetAddress() != o.address {
			o.cancel()
			w.lost(o)
			delete(w.outbound, name)
		}
	}
	for name, p := range want {
		o := w.outbound[name]
		if o == nil {
			octx, cancel := context.WithCancel(ctx)
			o = &outbound{name: name, address: p.GetAddress(), box: newOutbox[*rpc.ForwardRequest](), cancel: cancel}
			w.outbound[name] = o
			w.peersDone.Add(1)
			go func() { // owned by the worker; ends with octx
				defer w.peersDone.Done()
				w.forwardTo(octx, o)
			}()
		}
		o.hasPartitions = p.GetHasPartitions()
		if o.up {
			w.unit.PeerUp(name, o.hasPartitions)
		}
	}
}

// lost takes back everything that a peer has of ours. Caller holds mu.
func (w *worker) lost(o *outbound) {
	if !o.up {
		return
	}
	o.up = false
	o.box.takeAll()
	back := w.unit.PeerGone(o.name)
	if len(back) > 0 {
		w.lg.Info("chunks come back from a peer that was lost", "peer", o.name, "chunks", len(back))
	}
	for _, d := range back {
		d.Chunk.Body.replay = true // the peer may have validated it (rule 22)
		w.carryOut(d)
	}
}

// forwardTo keeps a stream to the peer open until ctx ends.
func (w *worker) forwardTo(ctx context.Context, o *outbound) {
	b := newBackoff(50*time.Millisecond, 2*time.Second)
	for failed := false; ; failed = true {
		began := time.Now()
		err := w.stream(ctx, o)
		w.mu.Lock()
		if w.outbound[o.name] == o {
			w.lost(o)
		}
		w.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > 10*time.Second {
			b = newBackoff(50*time.Millisecond, 2*time.Second)
			failed = false
		}
		if !failed {
			w.lg.Info("stream to a peer broke; opening it again", "peer", o.name, "address", o.address, "err", err)
		}
		if !b.wait(ctx) {
			return
		}
	}
}

// stream is one life of the stream to a peer.
func (w *worker) stream(ctx context.Context, o *outbound) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := dialPeer(o.address, w.spec.GetToken())
	if err != nil {
		return err
	}
	defer conn.Close()
	s, err := rpc.NewPeerClient(conn).Forward(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	session := w.session
	w.mu.Unlock()
	if err := s.Send(&rpc.ForwardRequest{Origin: w.name, Session: session}); err != nil {
		return err
	}
	sender := make(chan error, 1)
	go func() { // ends with ctx, which this call cancels, and awaits
		err := o.box.pump(ctx, s.Send)
		cancel()
		sender <- err
	}()
	defer func() {
		cancel()
		<-sender //nolint:errcheck // only its end matters: what broke the stream is what Recv says
	}()
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		w.heard(o, m)
	}
}

// heard takes in what a peer says.
func (w *worker) heard(o *outbound, m *rpc.ForwardResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.outbound[o.name] != o {
		return // dismissed meanwhile
	}
	switch e := m.GetEvent().(type) {
	case *rpc.ForwardResponse_Accepting:
		if !o.up {
			o.up = true
			w.lg.Info("forwarding to a peer is possible", "peer", o.name, "address", o.address)
		}
		w.unit.PeerUp(o.name, o.hasPartitions)
		w.unit.PeerState(o.name, e.Accepting)
		if e.Accepting {
			w.roomMade()
		}
	case *rpc.ForwardResponse_Accepted:
		if peer, ok := w.unit.Holder(e.Accepted); ok && peer == o.name {
			w.unit.Accepted(e.Accepted)
			w.roomMade()
		}
	case *rpc.ForwardResponse_Refused:
		if d, ok := w.unit.Refused(e.Refused); ok {
			w.carryOut(d)
		}
	case *rpc.ForwardResponse_Trained:
		// The chunk is kept until the chief confirms it; but from now on its receiver does nothing more about it.
		if peer, ok := w.unit.Holder(e.Trained); ok && peer == o.name {
			w.ledger.hear(e.Trained, time.Now())
		}
	}
}

func wireChunk(c *chunk) *rpc.Chunk {
	m := &rpc.Chunk{Id: c.id, Span: c.span(), Replay: c.replay, Records: make([]*rpc.Record, len(c.records))}
	for i, r := range c.records {
		m.Records[i] = &rpc.Record{Offset: r.offset, TimestampMs: r.timestampMS, Value: r.value}
	}
	return m
}
