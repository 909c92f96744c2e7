package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/kale-sched/kale/core/backend/backendpb"
)

// session is one life of the plugin's process.
type session struct {
	proc    *process
	plug    *plugin.Client
	conn    *grpc.ClientConn
	stub    backendpb.BackendServiceClient
	started time.Time
	// socketDir is ours, and removed at the end.
	socketDir  string
	socketHost *os.File        // locked as long as it is needed; nil: it cannot be
	done       context.Context // ends, with the reason as its cause, when the session must not be used any more
	cancel     context.CancelCauseFunc
}

// startSession starts the process and shakes hands with it.
func startSession(ctx context.Context, lg *slog.Logger, path string, opts Options) (*session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := tryTemporary(); err != nil {
		return nil, err
	}
	s := &session{started: time.Now()}
	var launched atomic.Bool
	givenUp := func() bool { return ctx.Err() != nil && !launched.Load() }
	s.done, s.cancel = context.WithCancelCause(context.Background())
	s.plug = plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  handshake,
		VersionedPlugins: pluginVersions(nil),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS:         true,
		StartTimeout:     opts.StartTimeout,
		Logger:           newHostLogger(lg, givenUp),
		RunnerFunc: func(_ hclog.Logger, prepared *exec.Cmd, dir string) (runner.Runner, error) {
			_ = os.Remove(dir) // go-plugin's, among temporary files, by a name that does not tell whose it is
			own, host, err := makeSocketFolder(opts.SocketDir, s.started)
			if err != nil {
				return nil, fmt.Errorf("make a folder for its socket: %w", err)
			}
			s.socketDir, s.socketHost = own, host
			p, err := newProcess(ctx, path, opts.Args, slices.Concat(prepared.Env, []string{plugin.EnvUnixSocketDir + "=" + own}, opts.Env))
			s.proc = p
			return p, err
		},
	})
	protocol, err := s.plug.Client() // bounded by StartTimeout, and by ctx through the process
	if err == nil && !s.proc.settled() || ctx.Err() != nil {
		err = fmt.Errorf("it said nothing before the launch was given up: %w", context.Cause(ctx))
	}
	if err != nil {
		if why := s.fell(); why != nil {
			err = why
		}
		err = oneLine{err}
		s.end(err, 0)
		return nil, err
	}
	gc, ok := protocol.(*plugin.GRPCClient)
	if !ok {
		err := fmt.Errorf("it speaks %T and not gRPC", protocol)
		s.end(err, 0)
		return nil, err
	}
	launched.Store(true)
	s.conn, s.stub = gc.Conn, backendpb.NewBackendServiceClient(gc.Conn)
	return s, nil
}

// watch asks again and again whether the process lives, and returns why the session is over: the process ended, it
// does not answer, or ctx is done.
func (s *session) watch(ctx context.Context, opts Options) error {
	health := grpc_health_v1.NewHealthClient(s.conn)
	tick := time.NewTicker(opts.LivenessEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return errClosed
		case <-s.proc.exited:
			return s.exitReason()
		case <-tick.C:
		}
		asked, cancel := context.WithTimeout(ctx, opts.LivenessTimeout)
		stopAsking := context.AfterFunc(s.done, cancel)
		_, err := health.Check(asked, &grpc_health_v1.HealthCheckRequest{Service: plugin.GRPCServiceName})
		timedOut := errors.Is(asked.Err(), context.DeadlineExceeded)
		stopAsking()
		cancel()
		switch {
		case err == nil, ctx.Err() != nil:
		case timedOut:
			return fmt.Errorf("it hangs: no answer within %v", opts.LivenessTimeout)
		default:
			select {
			case <-s.proc.exited:
				return s.exitReason()
			default:
				return fmt.Errorf("it does not answer: %w", err)
			}
		}
	}
}

// fell says which signal ended the process while it started; nil: none, or this side did.
func (s *session) fell() error {
	if s.proc == nil {
		return nil
	}
	select {
	case <-s.proc.exited:
	default: // it runs, or was never started
		return nil
	}
	if s.proc.fell == 0 {
		return nil
	}
	text := EndWords(128+int(s.proc.fell)) + " ended it while it started"
	if s.proc.fell == syscall.SIGKILL {
		text += "; see (dmesg) whether this machine has run out of memory"
	}
	return errors.New(text)
}

func (s *session) exitReason() error {
	if s.proc.waitErr != nil {
		return fmt.Errorf("its process ended: %w", s.proc.waitErr)
	}
	return errors.New("its process ended")
}

// end fails the calls under way and ends the process: at once when grace is 0, else by asking it first. It returns
// when the process is gone.
func (s *session) end(why error, grace time.Duration) {
	s.cancel(why)
	defer func() {
		_ = os.RemoveAll(s.socketDir) // one that stays is swept
		_ = s.socketHost.Close()      // of nil, an error
	}()
	if s.proc == nil {
		return
	}
	// go-plugin's Kill asks without a deadline and would wait for ever on a stopped process, so the signal comes
	// from here.
	if grace == 0 {
		s.proc.kill()
	} else {
		defer time.AfterFunc(grace, s.proc.kill).Stop()
	}
	s.plug.Kill()
}

// oneLine gives an error of go-plugin, which has several lines, as one.
type oneLine struct{ error }

func (e oneLine) Error() string {
	return strings.Join(strings.FieldsFunc(e.error.Error(), func(r rune) bool { return r == '\n' }), "; ")
}
func (e oneLine) Unwrap() error { return e.error }
