package trainer

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/rpc"
)

// proxy passes TCP connections on to one address, and can let everything vanish: what is open stays open, and nothing comes through it any more.
type proxy struct {
	lis    net.Listener
	target string
	mu     sync.Mutex
	lost   chan struct{} // closed: connections opened before are a hole
	shut   bool          // new ones are too
	conns  []net.Conn
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{lis: lis, target: target, lost: make(chan struct{})}
	t.Cleanup(func() {
		_ = lis.Close() // ends serve
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, c := range p.conns {
			_ = c.Close() // ends the copies
		}
	})
	go p.serve()
	return p
}

func (p *proxy) serve() {
	for {
		in, err := p.lis.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		lost := p.lost
		p.conns = append(p.conns, in)
		if p.shut {
			p.mu.Unlock()
			continue // it is accepted, and nobody reads it
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = in.Close()
			p.mu.Unlock()
			continue
		}
		p.conns = append(p.conns, out)
		p.mu.Unlock()
		go carry(out, in, lost)
		go carry(in, out, lost)
	}
}

// carry copies until the connection is lost; then it swallows what comes, and closes nothing.
func carry(to, from net.Conn, lost <-chan struct{}) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-lost:
			if err != nil {
				return
			}
			continue
		default:
		}
		if err != nil {
			_ = to.Close()
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// close lets nobody in any more; what is open goes on.
func (p *proxy) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut = true
}

// vanish makes a hole of every open connection, and of those to come when all is true.
func (p *proxy) vanish(all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.lost)
	p.lost, p.shut = make(chan struct{}), all
}

// proxied starts server i so that others reach it through a proxy only.
func (j *job) proxied(t *testing.T, i int) *proxy {
	p, o := behindProxy(t, i)
	start(t, func(ctx context.Context) error {
		return RunServer(ctx, testLogger(t, fmt.Sprint("proxied", i)), j.spec, o)
	})
	return p
}

// behindProxy is a server that listens on a port of its own and advertises a proxy's.
func behindProxy(t *testing.T, i int) (*proxy, ServerOptions) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := lis.Addr().String()
	if err := lis.Close(); err != nil { // the port is the server's now
		t.Fatal(err)
	}
	p := newProxy(t, address)
	return p, ServerOptions{Index: i, Listen: address, Advertise: p.lis.Addr().String()}
}

// The way to a server becomes a hole: nothing is refused, nothing is answered, no connection is closed. Progress resumes when the server is replaced, whichever
// it is; and without that, over new connections, when only those that were open have been forgotten on the way.
func TestBlackHole(t *testing.T) {
	for name, c := range map[string]struct {
		server   int
		replaced bool
	}{
		"server 1 is replaced": {1, true}, "server 0 is replaced, and the chief with it": {0, true}, "a firewall has forgotten the connections": {1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := broker(t, 1)
			cl := producer(t, k)
			j := &job{t: t, spec: jobSpec(t, k)}
			p := j.proxied(t, c.server)
			j.server(1 - c.server)
			j.worker(0, 1)
			produce(t, cl, 0, 200)
			j.waitApplied(map[int32]int64{0: 200})
			p.vanish(c.replaced)
			produce(t, cl, 0, 300)
			if c.replaced {
				j.server(c.server)
			}
			ends := map[int32]int64{0: 500}
			within(t, 3*time.Minute, func() bool { // keepalive alone takes a quarter of a minute
				s := j.status()
				return len(s.GetPartitions()) == 1 && s.GetPartitions()[0].GetApplied() >= 500
			}, func() string { return fmt.Sprint("progress resumes; last status: ", j.status()) })
			j.waitFor("two servers", func(s *rpc.JobStatus) bool { return len(s.GetServers()) == 2 })
			j.checkOnce(readLog(t, k, ends), nil)
		})
	}
}
