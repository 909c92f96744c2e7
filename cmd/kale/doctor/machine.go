package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/kale-sched/kale/core/api"
)

// machine tries what the scheduler and local processes need of this machine.
func (p Patient) machine() group {
	return group{trials: []trial{
		{check: "scheduler's socket", limit: networkLimit, needs: []string{"name"}, try: p.socket},
		{check: "ports", limit: networkLimit, try: ports},
		{check: "clock", limit: time.Second, try: func(context.Context) []Finding { return []Finding{clock(time.Now())} }},
	}}
}

// aliveLimit is for how long a scheduler is waited for that has the socket.
const aliveLimit = 2 * time.Second

// socket says whether the scheduler's socket can be made, and whether somebody answers there already.
func (p Patient) socket(ctx context.Context) []Finding {
	const check = "scheduler's socket"
	path, err := api.SocketPath(p.StateDir)
	if err != nil {
		return []Finding{ok(check, "%v", err).but(Fail, "Choose a shorter folder with -state-dir or $KALE_STATE_DIR.")}
	}
	c, err := api.Dial(ctx, path)
	switch {
	case err == nil:
		defer c.Close()
		ctx, enough := context.WithTimeout(ctx, aliveLimit)
		defer enough()
		if errors.Is(c.Alive(ctx), api.ErrSilent) {
			return []Finding{ok(check, "a scheduler of this job has %s, and has not answered within %s", path, aliveLimit).but(Warn, "Is it suspended (kill -CONT lets it go on), or does it hang? kale status names its process, and what helps.")}
		}
		return []Finding{ok(check, "a scheduler of this job answers on %s", path)}
	case !errors.Is(err, api.ErrNoScheduler):
		return []Finding{ok(check, "%v", err).but(Fail, fmt.Sprintf("See who holds %s: another user's scheduler, or one that hangs.", path))}
	}
	if len(CheckState(p.StateDir)) > 0 {
		return nil // that is said of the folder
	}
	return []Finding{ok(check, "%s is free", path)}
}

// scheduled says whether a scheduler of the job runs.
func (p Patient) scheduled(ctx context.Context) bool {
	path, err := api.SocketPath(p.StateDir)
	if err != nil {
		return false
	}
	c, err := api.Dial(ctx, path)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// ports listens on a free port of this machine and speaks with itself: so the job's processes find each other.
func ports(ctx context.Context) []Finding {
	const check = "ports"
	fail := func(err error) []Finding {
		return []Finding{ok(check, "this machine cannot speak with itself over TCP: %v", err).but(Fail, "See that the loopback interface is up, that no firewall closes it, and that files may be opened (ulimit -n).")}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = l.Close() }()
	go func() { // ends with the connection, or when l is closed
		if conn, err := l.Accept(); err == nil {
			_, _ = io.WriteString(conn, "kale") // a failure shows on the other side
			_ = conn.Close()
		}
	}()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
	if err != nil {
		return fail(err)
	}
	defer func() { _ = conn.Close() }()
	if deadline, set := ctx.Deadline(); set {
		if err := conn.SetDeadline(deadline); err != nil {
			return fail(err)
		}
	}
	said, err := io.ReadAll(conn)
	if err == nil && string(said) != "kale" {
		err = fmt.Errorf("what came through is %q", said)
	}
	if err != nil {
		return fail(err)
	}
	return []Finding{ok(check, "a free one was found (%s), and answers", l.Addr())}
}

// builtAfter is a time at which this program did not exist yet.
var builtAfter = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

func clock(now time.Time) Finding {
	const check = "clock"
	says := now.Format("2006-01-02 15:04:05 MST")
	switch synchronised, known := disciplined(); {
	case now.Before(builtAfter):
		return ok(check, "it is %s on this machine", says).but(Fail, "Set the clock: records would seem to come from the future.")
	case known && !synchronised:
		return ok(check, "%s; the kernel says that nobody keeps it right", says).but(Warn, "Run a time service (chrony, systemd-timesyncd): lag in seconds is the difference of this clock and the producers'.")
	case known:
		return ok(check, "%s, kept right by a time service", says)
	}
	return ok(check, "%s", says)
}
