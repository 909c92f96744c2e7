package chaos

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Proxy is a TCP relay in front of one address that a test can make slow, cut or refuse. It listens from OpenProxy to Close.
type Proxy struct {
	addr string
	tend sync.WaitGroup

	mu      sync.Mutex
	target  string
	ln      net.Listener // nil while it refuses
	delay   time.Duration
	open    chan struct{} // closed while bytes may pass
	conns   map[net.Conn]bool
	closed  bool
	passing bool // open is closed
}

// OpenProxy listens on addr. Where it leads may be said later.
func OpenProxy(addr string) (*Proxy, error) {
	p := &Proxy{addr: addr, open: make(chan struct{}), passing: true, conns: map[net.Conn]bool{}}
	close(p.open)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.listen(); err != nil {
		return nil, err
	}
	return p, nil
}

// Addr is where it listens.
func (p *Proxy) Addr() string { return p.addr }

// Lead says to which address new connections are led.
func (p *Proxy) Lead(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Slow makes every piece of data wait that long, each way; 0 is as fast as can be.
func (p *Proxy) Slow(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = by
}

// Cut holds back all data, and connects to nothing, until it is undone. No connection ends by it: this is what a partition looks like.
func (p *Proxy) Cut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut(cut)
}

func (p *Proxy) cut(cut bool) {
	switch {
	case cut && p.passing:
		p.open, p.passing = make(chan struct{}), false
	case !cut && !p.passing:
		close(p.open)
		p.passing = true
	}
}

// Refuse resets all connections and refuses new ones until it is undone.
func (p *Proxy) Refuse(refuse bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if refuse {
		p.drop()
		return nil
	}
	if p.ln != nil || p.closed {
		return nil
	}
	return p.listen()
}

// Close ends it and all connections, and waits for its goroutines.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.drop()
	p.cut(false) // who waits for data to pass finds its connections closed
	p.mu.Unlock()
	p.tend.Wait()
}

// listen opens the port. p.mu is held.
func (p *Proxy) listen() error {
	ln, err := net.Listen("tcp", p.addr)
	if err != nil {
		return fmt.Errorf("open a proxy: %w", err)
	}
	p.ln, p.addr = ln, ln.Addr().String()
	p.tend.Go(func() { // ends with the listener
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			p.tend.Go(func() { p.relay(conn) }) // ends with either connection, or the proxy
		}
	})
	return nil
}

// drop closes the port and all connections. p.mu is held.
func (p *Proxy) drop() {
	if p.ln != nil {
		_ = p.ln.Close() // it was never closed before
		p.ln = nil
	}
	for c := range p.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset and no orderly end; it may be over anyway
		}
		c.Close()
	}
}

// keep says whether a connection may live, and from then on it is dropped with the others.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.ln == nil {
		c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *Proxy) forget(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	c.Close()
}

// await waits until data may pass, and gives how long each piece has to wait besides, and where to.
func (p *Proxy) await() (delay time.Duration, target string) {
	for {
		p.mu.Lock()
		open, passing := p.open, p.passing
		delay, target = p.delay, p.target
		p.mu.Unlock()
		if passing {
			return delay, target
		}
		<-open
	}
}

// relay leads one connection to the target.
func (p *Proxy) relay(near net.Conn) {
	if !p.keep(near) {
		return
	}
	defer p.forget(near)
	_, target := p.await()
	far, err := net.DialTimeout("tcp", target, 10*time.Second)
	if err != nil || !p.keep(far) {
		return // the near side ends too
	}
	defer p.forget(far)
	var both sync.WaitGroup
	both.Go(func() { p.pump(far, near) })
	both.Go(func() { p.pump(near, far) })
	both.Wait()
}

// pump moves data one way until one side ends, and then ends the other's input, as the sender did.
func (p *Proxy) pump(to, from net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if delay, _ := p.await(); delay > 0 {
				time.Sleep(delay)
			}
			if _, werr := to.Write(buf[:n]); werr != nil {
				from.Close()
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				to.Close()
				return
			}
			p.await() // its end is data, too
			if half, ok := to.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite() // it may be over
			}
			return
		}
	}
}
