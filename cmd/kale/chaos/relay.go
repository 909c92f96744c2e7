package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// Relay is an HTTP relay in front of one server that can lose the server's answer to a request that was carried out. Where the server cannot be reached it
// ends the connection without an answer. It listens from OpenRelay to Close.
type Relay struct {
	url    string
	server http.Server
	served sync.WaitGroup

	mu       sync.Mutex
	loss     *loss // nil while none is to come
	requests int64
}

// loss is an answer that is to be lost.
type loss struct {
	of   func(*http.Request) bool
	hang time.Duration
}

// errLost stands for an answer that is lost.
var errLost = errors.New("the answer is lost")

// lossKey is what a request whose answer is to be lost has its loss under.
type lossKey struct{}

func lossOf(req *http.Request) *loss {
	l, _ := req.Context().Value(lossKey{}).(*loss)
	return l
}

// OpenRelay listens on a port of loopback and passes all on to the server at target, a URL.
func OpenRelay(target string) (*Relay, error) {
	to, err := url.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("open a relay: %w", err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open a relay: %w", err)
	}
	r := &Relay{url: "http://" + ln.Addr().String()}
	quiet := log.New(io.Discard, "", 0)
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(p *httputil.ProxyRequest) { p.SetURL(to) },
		FlushInterval:  -1, // streams of events
		ErrorLog:       quiet,
		ModifyResponse: r.judge,
		ErrorHandler:   r.failed,
	}
	r.server = http.Server{ErrorLog: quiet, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if l := r.take(req); l != nil {
			req = req.WithContext(context.WithValue(req.Context(), lossKey{}, l))
		}
		proxy.ServeHTTP(w, req)
	})}
	r.served.Go(func() { _ = r.server.Serve(ln) }) // ends with Close
	return r, nil
}

// URL is where it listens.
func (r *Relay) URL() string { return r.url }

// Lose makes it lose the answer to the next request that is such a one and that the server carries out: the connection ends without it, after hang.
func (r *Relay) Lose(of func(*http.Request) bool, hang time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loss = &loss{of, hang}
}

// Losing says whether an answer is still to be lost.
func (r *Relay) Losing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.loss != nil
}

// Requests is how many requests have come.
func (r *Relay) Requests() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests
}

// Close ends it and all connections.
func (r *Relay) Close() {
	_ = r.server.Close() // its listener and connections are gone whatever it says
	r.served.Wait()
}

// take counts the request, and takes the loss if the request is one whose answer is to be lost.
func (r *Relay) take(req *http.Request) *loss {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	l := r.loss
	if l == nil || !l.of(req) {
		return nil
	}
	r.loss = nil
	return l
}

// judge lets an answer through, or not.
func (r *Relay) judge(resp *http.Response) error {
	if l := lossOf(resp.Request); l != nil {
		if resp.StatusCode/100 == 2 {
			return errLost
		}
		r.Lose(l.of, l.hang) // it was refused: the next one
	}
	return nil
}

// failed ends the connection.
func (r *Relay) failed(_ http.ResponseWriter, req *http.Request, err error) {
	if l := lossOf(req); l != nil {
		if errors.Is(err, errLost) {
			select {
			case <-req.Context().Done():
			case <-time.After(l.hang):
			}
		} else {
			r.Lose(l.of, l.hang)
		}
	}
	panic(http.ErrAbortHandler)
}
