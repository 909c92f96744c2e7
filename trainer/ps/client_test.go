package ps

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/kale-sched/kale/core/rpc"
)

// network lets servers listen under names and clients dial them, in memory.
type network struct {
	mu        sync.Mutex
	listeners map[string]*bufconn.Listener
}

// serve puts a service at an address, in the place of what was there. stop ends it as a crash would.
func (n *network) serve(address string, register func(grpc.ServiceRegistrar)) (stop func()) {
	l := bufconn.Listen(1 << 20)
	n.mu.Lock()
	if n.listeners == nil {
		n.listeners = map[string]*bufconn.Listener{}
	}
	n.listeners[address] = l
	n.mu.Unlock()
	srv := grpc.NewServer(grpc.MaxRecvMsgSize(MaxMessage))
	register(srv)
	go srv.Serve(l) //nolint:errcheck // ends with Stop
	return srv.Stop
}

func (n *network) dial(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			n.mu.Lock()
			l := n.listeners[address]
			n.mu.Unlock()
			if l == nil {
				return nil, errors.New("nobody listens")
			}
			return l.DialContext(ctx)
		}))
}

// cluster is a rig with servers on a network and a client that knows them.
type cluster struct {
	*rig
	network
	client  *Client
	servers []*Server
	stops   []func()
}

func newCluster(t *testing.T, tablets, servers, dense, width int) *cluster {
	t.Helper()
	c := &cluster{rig: newRig(t, tablets, servers, dense, width)}
	c.client = NewClient(nil, c.opt.Layout, width, c.dial)
	t.Cleanup(func() { _ = c.client.Close() })
	for i := range servers {
		s := c.start(i)
		c.servers = append(c.servers, s)
		c.stops = append(c.stops, c.serve(address(i), s.Register))
		t.Cleanup(func() { c.stops[i]() })
	}
	c.tell(1)
	return c
}

func address(server int) string { return "server-" + string(rune('0'+server)) }

// tell tells the client what the servers are.
func (c *cluster) tell(chief uint64) {
	var infos []*rpc.ServerInfo
	for i, s := range c.servers {
		infos = append(infos, &rpc.ServerInfo{Index: int32(i), Address: address(i), Incarnation: s.opt.Incarnation, Up: true})
	}
	c.client.SetServers("t1", chief, 1, infos)
}

// replace lets a new process serve in the place of a server.
func (c *cluster) replace(server int) {
	c.stops[server]()
	s := c.start(server)
	c.servers[server] = s
	c.stops[server] = c.serve(address(server), s.Register)
}

// batch adds one to every weight of rows 0 to n−1 and of the dense vector.
func (c *cluster) batch(n int, parts ...*rpc.RangePart) *Batch {
	b := &Batch{Member: "worker-3", Parts: parts, Share: 1, Grads: ones(n * c.opt.RowWidth), Dense: ones(c.opt.Layout.dense)}
	for id := range uint64(n) {
		b.IDs = append(b.IDs, id)
	}
	return b
}

// all demands that rows 0 to n−1 and all dense weights have the value want.
func (c *cluster) all(n int, want float32) {
	c.t.Helper()
	ids := c.batch(n).IDs
	rows, dense := make([]float32, n*c.opt.RowWidth), make([]float32, c.opt.Layout.dense)
	if err := c.client.Pull(c.t.Context(), ids, rows, dense); err != nil {
		c.t.Fatal(err)
	}
	for i, w := range append(rows, dense...) {
		if w != want {
			c.t.Fatalf("weight %d of %d rows and the dense vector is %v, want %v", i, n, w, want)
		}
	}
}

func TestClientSpreadsAndGathers(t *testing.T) {
	c := newCluster(t, 7, 3, 50, 4)
	for i := range int64(3) {
		partial, err := c.client.Push(t.Context(), c.batch(200, part(0, 10*i, 10*i+10)))
		if err != nil || partial != nil {
			t.Fatal(partial, err)
		}
	}
	c.all(200, 3)
	sums, err := c.client.Sums(t.Context())
	if err != nil || len(sums) != 7 {
		t.Fatal(sums, err)
	}
	for i, ts := range sums {
		if int(ts.Tablet) != i || ts.Partitions[0].N != 30 {
			t.Errorf("sums %d: %v", i, ts)
		}
	}
	// Values and not only ones arrive where they belong: each row and dense weight its own.
	b := c.batch(100, part(0, 100, 110))
	for i := range b.Grads {
		b.Grads[i] = -float32(i)
	}
	for i := range b.Dense {
		b.Dense[i] = -float32(i)
	}
	if _, err := c.client.Push(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	rows, dense := make([]float32, 400), make([]float32, 50)
	if err := c.client.Pull(t.Context(), b.IDs, rows, dense); err != nil {
		t.Fatal(err)
	}
	for i, w := range rows {
		if w != float32(3+i) {
			t.Fatalf("weight %d of the rows is %v, want %d", i, w, 3+i)
		}
	}
	for i, w := range dense {
		if w != float32(3+i) {
			t.Fatalf("dense weight %d is %v, want %d", i, w, 3+i)
		}
	}
	// Without rows, or without the dense vector.
	if err := c.client.Pull(t.Context(), nil, nil, dense); err != nil {
		t.Error(err)
	}
	if err := c.client.Pull(t.Context(), b.IDs, rows, nil); err != nil {
		t.Error(err)
	}
}

// Rule 7: the partial overlaps of all servers come back, and the repair reaches only the tablets that it names.
func TestRule7ClientReturnsPartialOverlapsAndRepairs(t *testing.T) {
	c := newCluster(t, 4, 2, 8, 1)
	lead := c.batch(50, part(0, 0, 10))
	lead.Tablets = []int32{1, 3}
	if partial, err := c.client.Push(t.Context(), lead); err != nil || partial != nil {
		t.Fatal(partial, err)
	}
	partial, err := c.client.Push(t.Context(), c.batch(50, part(0, 0, 30)))
	if err != nil {
		t.Fatal(err)
	}
	missing := []*rpc.Span{{Begin: 10, End: 30}}
	want := []*rpc.Missing{{Tablets: []int32{1}, Spans: missing}, {Tablets: []int32{3}, Spans: missing}}
	if diff := cmp.Diff(want, partial, protocmp.Transform()); diff != "" {
		t.Fatal(diff)
	}
	repair := c.batch(50, part(0, 10, 30))
	repair.Tablets = []int32{1, 3}
	for range 2 {
		if partial, err := c.client.Push(t.Context(), repair); err != nil || partial != nil {
			t.Fatal(partial, err)
		}
	}
	for _, s := range c.servers {
		for _, ts := range s.Sums() {
			if got := ts.Partitions[0]; got.N != 30 || got.Applied.Watermark != 30 {
				t.Errorf("tablet %d: %v", ts.Tablet, got)
			}
		}
	}
	if _, err := c.client.Push(t.Context(), &Batch{Parts: repair.Parts, Tablets: []int32{4}}); err == nil {
		t.Error("a tablet that does not exist was pushed to")
	}
}

// Rule 2: a server dies and comes back as another incarnation, restored to an older moment; a push that meets the dead one is repeated to the new one.
func TestRule2PushGoesOnAtTheNewIncarnation(t *testing.T) {
	c := newCluster(t, 4, 2, 8, 1)
	push := func(begin, end int64) error {
		_, err := c.client.Push(t.Context(), c.batch(50, part(0, begin, end)))
		return err
	}
	if err := push(0, 10); err != nil {
		t.Fatal(err)
	}
	c.snapshot(c.servers[1])
	if err := push(10, 20); err != nil {
		t.Fatal(err)
	}
	c.replace(1) // it has lost [10,20), and answers under the same address
	done := make(chan error, 1)
	go func() { done <- push(20, 30) }()
	for len(done) == 0 && c.servers[0].pushes.Load() < 3 {
		time.Sleep(time.Millisecond) // until server 0 has it
	}
	c.tell(2)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// The worker repeats what the chief leases again: [10,20) is a duplicate at server 0 and new at server 1.
	if err := push(10, 20); err != nil {
		t.Fatal(err)
	}
	c.all(50, 3)
}

// A server that is stopped answers nothing; a push that hangs there is given up as soon as another incarnation is known, not after a timeout.
func TestClientGivesUpAStoppedServerWhenReplaced(t *testing.T) {
	c := newCluster(t, 2, 1, 2, 1)
	old := c.servers[0]
	c.client.attemptTimeout = time.Hour
	held, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	old.beforeTablet = func(int) {
		once.Do(func() { close(held) })
		<-release
	}
	defer close(release)
	done := make(chan error, 1)
	go func() {
		_, err := c.client.Push(context.Background(), c.batch(10, part(0, 0, 10)))
		done <- err
	}()
	<-held
	// Its successor has the same address (as behind a virtual one); the connection to the old one still stands.
	next := c.start(0)
	stop := c.serve(address(0), next.Register)
	defer stop()
	c.client.SetServers("t1", 2, 1, []*rpc.ServerInfo{{Index: 0, Address: address(0), Incarnation: next.opt.Incarnation}})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if applied, _, _ := watermarks(next); applied != 10 {
		t.Errorf("the successor's watermark is %d, want 10", applied)
	}
	// Late word of an older chief, or of an older incarnation, changes nothing.
	c.client.SetServers("t1", 1, 1, []*rpc.ServerInfo{{Index: 0, Address: "elsewhere", Incarnation: 99}})
	c.client.SetServers("t1", 2, 1, []*rpc.ServerInfo{{Index: 0, Address: address(0), Incarnation: old.opt.Incarnation}, {Index: 7}, nil})
	c.all(10, 1)
}

func TestClientWaitsForServersAndSaysWhatItWaitsFor(t *testing.T) {
	c := newCluster(t, 2, 1, 2, 1)
	client := NewClient(nil, c.opt.Layout, 1, c.dial)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := client.Pull(ctx, []uint64{1}, make([]float32, 1), nil)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "address is not known") {
		t.Errorf("%v", err)
	}
	done := make(chan error, 1)
	go func() { done <- client.Pull(t.Context(), []uint64{1}, make([]float32, 1), nil) }()
	client.SetServers("t1", 1, 1, []*rpc.ServerInfo{{Index: 0, Address: address(0), Incarnation: c.servers[0].opt.Incarnation}})
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := errors.Join(client.Close(), client.Close()); err != nil {
		t.Error(err)
	}
	if err := client.Pull(t.Context(), []uint64{1}, make([]float32, 1), nil); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("a closed client: %v", err)
	}
}

// What cannot be right whenever it is repeated comes back at once, with the server's own words.
func TestClientDoesNotRepeatWhatIsRefusedForGood(t *testing.T) {
	c := newCluster(t, 2, 1, 2, 1)
	b := c.batch(3, part(0, 0, 10))
	b.Share = -1
	_, err := c.client.Push(context.Background(), b)
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), `worker-3`) {
		t.Errorf("%v", err)
	}
	for _, b := range []*Batch{{Grads: make([]float32, 1)}, {Dense: make([]float32, 1)}} {
		if _, err := c.client.Push(t.Context(), b); err == nil {
			t.Errorf("%v was sent", b)
		}
	}
	if c.client.Pull(t.Context(), []uint64{1}, nil, nil) == nil || c.client.Pull(t.Context(), nil, nil, make([]float32, 1)) == nil {
		t.Error("buffers that do not fit were taken")
	}
}

// Many workers at once, with snapshots going on: each record once, everywhere.
func TestConcurrentWorkers(t *testing.T) {
	c := newCluster(t, 8, 2, 16, 2)
	var wg sync.WaitGroup
	const workers, each = 4, 15
	for w := range int64(workers) {
		wg.Go(func() {
			rows, dense := make([]float32, 40), make([]float32, 16)
			for i := range int64(each) {
				// Every chunk is pushed by two workers: who comes second has a duplicate.
				chunk := (w/2)*each + i
				b := c.batch(20, part(0, 10*chunk, 10*chunk+10))
				if err := c.client.Pull(t.Context(), b.IDs, rows, dense); err != nil {
					t.Error(err)
				}
				if _, err := c.client.Push(t.Context(), b); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 3 {
		for _, s := range c.servers {
			c.snapshot(s)
			s.Progress()
			s.Metrics()
		}
	}
	wg.Wait()
	c.all(20, workers/2*each)
}
