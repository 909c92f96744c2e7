package ps

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kale-sched/kale/core/rpc"
)

const (
	defaultAttemptTimeout = 10 * time.Second
	firstBackoff          = 10 * time.Millisecond
	lastBackoff           = time.Second
)

// Dial opens a connection to an address; grpc.NewClient with the job's credentials is one.
type Dial func(address string) (*grpc.ClientConn, error)

// Client pulls from and pushes to all parameter servers of a job. Its methods are safe for concurrent use.
type Client struct {
	lg     *slog.Logger
	layout Layout
	width  int
	dial   Dial
	// attemptTimeout ends one RPC to a server that does not answer (stopped, cut off). A push is safe to repeat, so it may be short.
	attemptTimeout time.Duration

	mu     sync.Mutex // serialises SetServers and Close
	closed bool
	world  atomic.Pointer[world]
	calls  sync.Pool // *call
}

// world is what the client believes of the servers. It does not change; SetServers replaces it.
type world struct {
	timeline   string
	chief      uint64
	mapVersion uint64
	servers    []*endpoint // by server number; nil: not known yet
	replaced   chan struct{}
}

// endpoint is one incarnation of one server at one address. It has a connection of its own, also when the address is that of the one
// before: the old connection may lead to a process that is stopped, and closing it makes the calls that hang there give up.
type endpoint struct {
	address     string
	incarnation uint64
	conn        *grpc.ClientConn
	stub        rpc.ParameterServerClient
}

// NewClient makes a client for rows of rowWidth float32. It knows no server until SetServers; Pull and Push wait for that.
func NewClient(lg *slog.Logger, layout Layout, rowWidth int, dial Dial) *Client {
	if lg == nil {
		lg = slog.New(slog.DiscardHandler)
	}
	c := &Client{lg: lg, layout: layout, width: rowWidth, dial: dial, attemptTimeout: defaultAttemptTimeout}
	c.world.Store(&world{servers: make([]*endpoint, layout.servers), replaced: make(chan struct{})})
	return c
}

// SetServers tells the client what the chief says. Calls under way to a server that is not the one they were sent to any more are
// given up and repeated to the new one. Servers without an address or with a number outside the layout are ignored, and so is the word
// of a chief that is older than the one known. Cheap when nothing has changed.
func (c *Client) SetServers(timeline string, chief, mapVersion uint64, servers []*rpc.ServerInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.world.Load()
	if c.closed || chief < old.chief {
		return
	}
	next := &world{timeline, chief, mapVersion, append([]*endpoint(nil), old.servers...), make(chan struct{})}
	changed := timeline != old.timeline || chief != old.chief || mapVersion != old.mapVersion
	var ended []*endpoint
	for _, info := range servers {
		i := int(info.GetIndex())
		if info == nil || i < 0 || i >= len(next.servers) || info.Address == "" || info.Incarnation == 0 {
			continue
		}
		was := next.servers[i]
		if was != nil && (was.incarnation > info.Incarnation || was.incarnation == info.Incarnation && was.address == info.Address) {
			continue
		}
		conn, err := c.dial(info.Address)
		if err != nil {
			c.lg.Error("parameter server cannot be dialled", "server", i, "address", info.Address, "error", err)
			continue
		}
		e := &endpoint{info.Address, info.Incarnation, conn, rpc.NewParameterServerClient(conn)}
		next.servers[i] = e
		changed = true
		if was != nil {
			ended = append(ended, was)
		}
	}
	if !changed {
		return
	}
	c.world.Store(next)
	close(old.replaced)
	for _, e := range ended {
		_ = e.conn.Close() // the error would be that it is closed already
	}
}

// Close gives up all calls and closes the connections.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	var errs []error
	for _, e := range c.world.Load().servers {
		if e != nil {
			errs = append(errs, e.conn.Close())
		}
	}
	return errors.Join(errs...)
}

// fence is what the client believes, addressed to one server.
func (w *world) fence(e *endpoint) *rpc.Fence {
	return &rpc.Fence{Timeline: w.timeline, Chief: w.chief, Server: e.incarnation, MapVersion: w.mapVersion}
}

// try calls one server until a call succeeds, fails for good, or ctx ends. Every attempt goes to the newest incarnation known then.
func (c *Client) try(ctx context.Context, server int, what string, call func(context.Context, *world, *endpoint) error) error {
	backoff := firstBackoff
	var last error
	for attempt := 1; ; attempt++ {
		w := c.world.Load()
		e := w.servers[server]
		if e != nil {
			attemptCtx, cancel := context.WithTimeout(ctx, c.attemptTimeout)
			err := call(attemptCtx, w, e)
			cancel()
			if err == nil {
				return nil
			}
			if ctx.Err() == nil || last == nil {
				last = err
			}
			if !repeatable(err) {
				return fmt.Errorf("%s: server %d at %s: %w", what, server, e.address, err)
			}
			if status.Code(err) == codes.Unavailable {
				e.conn.ResetConnectBackoff() // the waiting is done here
			}
			if attempt&(attempt-1) == 0 && attempt >= 8 { // 8, 16, 32…
				c.lg.Warn("parameter server does not take the call", "call", what, "server", server, "address", e.address, "incarnation", e.incarnation, "attempts", attempt, "error", err)
			}
		}
		wait := time.NewTimer(backoff)
		backoff = min(2*backoff, lastBackoff)
		var elapsed <-chan time.Time
		if e != nil {
			elapsed = wait.C
		}
		select {
		case <-ctx.Done():
		case <-w.replaced:
			backoff = firstBackoff
		case <-elapsed:
		}
		wait.Stop()
		if err := ctx.Err(); err != nil {
			if last == nil {
				last = errors.New("its address is not known")
			}
			return fmt.Errorf("%s: server %d: %w; last: %w", what, server, err, last)
		}
		c.mu.Lock()
		closed := c.closed
		c.mu.Unlock()
		if closed {
			return fmt.Errorf("%s: server %d: the client is closed", what, server)
		}
	}
}

// repeatable says whether the same call may succeed later, or at another incarnation.
func repeatable(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented, codes.OutOfRange, codes.DataLoss:
		return false
	}
	return true
}
