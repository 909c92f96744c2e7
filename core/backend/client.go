package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Options says how a plugin is launched and watched. The zero value is usable: WithDefaults fills it.
type Options struct {
	Args []string // arguments of the plugin's program; no secrets, they show in process lists
	Env  []string // "NAME=value", added to this process's environment
	// SocketDir is a folder of this user's in which plugins have their sockets, such as the job's state folder. Where it is not there, or its path is too
	// long for a socket's, they are among temporary files.
	SocketDir string

	StartTimeout    time.Duration // from the start of the process to its handshake; default 30 s
	CallTimeout     time.Duration // of one call whose context has no earlier deadline; default 30 s
	LivenessEvery   time.Duration // between two questions whether it lives; default 2 s
	LivenessTimeout time.Duration // without an answer to one it is hung, and killed; default 10 s
	CloseTimeout    time.Duration // for its own end when asked, before it is killed; default 5 s
	BackoffMin      time.Duration // before the first restart, doubled for each further one; default 100 ms
	BackoffMax      time.Duration // the longest pause, and the life that makes the next one short again; default 30 s
}

// WithDefaults gives o with every zero duration replaced.
func (o Options) WithDefaults() Options {
	set := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	set(&o.StartTimeout, 30*time.Second)
	set(&o.CallTimeout, 30*time.Second)
	set(&o.LivenessEvery, 2*time.Second)
	set(&o.LivenessTimeout, 10*time.Second)
	set(&o.CloseTimeout, 5*time.Second)
	set(&o.BackoffMin, 100*time.Millisecond)
	set(&o.BackoffMax, 30*time.Second)
	return o
}

// Validate checks the durations, defaults applied.
func (o Options) Validate() error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"StartTimeout", o.StartTimeout}, {"CallTimeout", o.CallTimeout}, {"LivenessEvery", o.LivenessEvery},
		{"LivenessTimeout", o.LivenessTimeout}, {"CloseTimeout", o.CloseTimeout}, {"BackoffMin", o.BackoffMin},
		{"BackoffMax", o.BackoffMax},
	} {
		if d.value <= 0 {
			return fmt.Errorf("backend options: %s is %v; it must be positive", d.name, d.value)
		}
	}
	if o.BackoffMin > o.BackoffMax {
		return fmt.Errorf("backend options: BackoffMin %v is above BackoffMax %v", o.BackoffMin, o.BackoffMax)
	}
	return nil
}

// Client is a Backend in a child process. It restarts the process when that dies or hangs, with backoff, and gives it
// its configuration again. A call during such an outage fails at once with Unavailable; a call that is under way when
// the process ends fails with Unavailable, and what it asked for may or may not have happened.
type Client struct {
	lg   *slog.Logger
	path string
	opts Options

	stop    context.CancelFunc // ends supervise
	stopped chan struct{}      // closed when supervise has ended and the process is gone

	mu      sync.Mutex
	cur     *session // nil while there is no process that answers
	down    error    // why cur is nil
	configs []Config // what has been configured, in order of first sight; replayed after a restart
	starts  int      // processes started so far
}

var _ Backend = (*Client)(nil)

// Launch starts the plugin program at path and supervises it until Close. ctx bounds the launch only. The plugin's
// log lines go to lg (nil is silent).
func Launch(ctx context.Context, lg *slog.Logger, path string, opts Options) (*Client, error) {
	opts = opts.WithDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if lg == nil {
		lg = slog.New(slog.DiscardHandler)
	}
	found, err := exec.LookPath(path)
	if err != nil {
		return nil, Errorf(Blocked, "start backend plugin %q: %w; build or install it, or give its path", path, err)
	}
	c := &Client{lg: lg.With("plugin", filepath.Base(path)), path: found, opts: opts, stopped: make(chan struct{})}
	s, err := c.start(ctx)
	if err != nil {
		return nil, fmt.Errorf("start backend plugin %q: %w", path, err)
	}
	c.cur = s
	supervised, stop := context.WithCancel(context.Background()) // Launch's ctx must not end the plugin
	c.stop = stop
	go c.supervise(supervised, s)
	return c, nil
}

// Close ends the plugin's process and its supervision. Workloads go on. It is idempotent and bounded.
func (c *Client) Close() error {
	c.stop()
	<-c.stopped
	return nil
}

// PID gives the plugin's process id, 0 during an outage.
func (c *Client) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cur == nil {
		return 0
	}
	return c.cur.proc.cmd.Process.Pid
}

// Starts gives how often the plugin's process has been started, the first time included.
func (c *Client) Starts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.starts
}

// supervise owns the sessions: it is the only one that ends them and, after the first, the only one that starts them.
// It ends when ctx does, and leaves no process.
func (c *Client) supervise(ctx context.Context, s *session) {
	defer close(c.stopped)
	backoff := c.opts.BackoffMin
	for {
		why := s.watch(ctx, c.opts)
		c.setDown(why)
		if ctx.Err() != nil {
			s.end(why, c.opts.CloseTimeout)
			return
		}
		s.end(why, 0)
		if time.Since(s.started) >= c.opts.BackoffMax {
			backoff = c.opts.BackoffMin
		}
		s = nil
		for s == nil {
			c.lg.Warn("backend plugin is down and will be started again", "why", why, "in", backoff)
			select {
			case <-ctx.Done():
				c.setDown(errClosed)
				return
			case <-time.After(backoff):
			}
			backoff = min(2*backoff, c.opts.BackoffMax)
			if s, why = c.start(ctx); why != nil {
				c.setDown(why)
			}
		}
		c.mu.Lock()
		c.cur, c.down = s, nil
		c.mu.Unlock()
		c.lg.Info("backend plugin runs again", "pid", s.proc.ID())
	}
}

var errClosed = errors.New("it was closed")

func (c *Client) setDown(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cur, c.down = nil, why
}

// start starts a process and configures it as the last one was. On an error there is no process left.
func (c *Client) start(ctx context.Context) (*session, error) {
	c.mu.Lock()
	c.starts++
	configs := slices.Clone(c.configs)
	c.mu.Unlock()
	s, err := startSession(ctx, c.lg, c.path, c.opts)
	if err != nil {
		return nil, err
	}
	for _, cfg := range configs {
		diags, err := configure(ctx, s, c.opts.CallTimeout, cfg)
		if err == nil {
			err = diags.Err()
		}
		if err != nil {
			s.end(err, 0)
			return nil, fmt.Errorf("configure it again for job %q: %w", cfg.Job, err)
		}
	}
	return s, nil
}

// session gives the process that answers now, or why there is none.
func (c *Client) session(doing string) (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cur != nil {
		return c.cur, nil
	}
	if errors.Is(c.down, errClosed) {
		return nil, Errorf(Unavailable, "%s: the plugin was closed", doing)
	}
	return nil, Errorf(Unavailable, "%s: the plugin %s is being restarted: %w", doing, filepath.Base(c.path), c.down)
}
