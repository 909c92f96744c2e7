package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kale-sched/kale/core/backend/backendpb"
)

// call makes one unary call on s with a deadline. It ends early when the session does.
func call[R any](ctx context.Context, s *session, timeout time.Duration, doing string,
	f func(context.Context, backendpb.BackendServiceClient) (R, error),
) (R, error) {
	timeout = patience(ctx, timeout)
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer context.AfterFunc(s.done, cancel)()
	r, err := f(bounded, s.stub)
	if err == nil {
		return r, nil
	}
	var none R
	return none, s.explain(ctx, bounded, timeout, doing, err)
}

// patience is for how long a call is waited for: the time that its caller has, where that is less than a call's own.
func patience(ctx context.Context, timeout time.Duration) time.Duration {
	if at, bounded := ctx.Deadline(); bounded {
		return min(timeout, time.Until(at))
	}
	return timeout
}

// explain turns a failed call into the contract's error. bounded is ctx with the call's own deadline.
func (s *session) explain(ctx, bounded context.Context, timeout time.Duration, doing string, err error) error {
	var e *Error
	if !errors.As(fromWire(ctx, doing, err), &e) {
		panic("backend: fromWire gave no *Error")
	}
	if len(status.Convert(err).Details()) > 0 || ctx.Err() != nil {
		return e
	}
	switch {
	case s.done.Err() != nil:
		e.Message, e.cause = fmt.Sprintf("%s: the plugin ended during the call: %v", doing, context.Cause(s.done)), nil
	case errors.Is(bounded.Err(), context.DeadlineExceeded), status.Code(err) == codes.DeadlineExceeded:
		e.Message = fmt.Sprintf("%s: no answer from the plugin within %v", doing, timeout.Round(100*time.Millisecond))
		e.cause = context.DeadlineExceeded
	}
	return e
}

// on makes a unary call on whatever process answers now.
func on[R any](ctx context.Context, c *Client, doing string,
	f func(context.Context, backendpb.BackendServiceClient) (R, error),
) (R, error) {
	s, err := c.session(doing)
	if err != nil {
		var none R
		return none, err
	}
	return call(ctx, s, c.opts.CallTimeout, doing, f)
}

func configure(ctx context.Context, s *session, timeout time.Duration, cfg Config) (Diagnostics, error) {
	resp, err := call(ctx, s, timeout, fmt.Sprintf("configure backend for job %q", cfg.Job),
		func(ctx context.Context, stub backendpb.BackendServiceClient) (*backendpb.ConfigureResponse, error) {
			return stub.Configure(ctx, configToPB(cfg))
		})
	if err != nil {
		return nil, err
	}
	return each(resp.GetDiagnostics(), diagnosticFromPB), nil
}

// Info implements Backend.
func (c *Client) Info(ctx context.Context) (Info, error) {
	resp, err := on(ctx, c, "ask backend what it is",
		func(ctx context.Context, stub backendpb.BackendServiceClient) (*backendpb.InfoResponse, error) {
			return stub.Info(ctx, &backendpb.InfoRequest{})
		})
	if err != nil {
		return Info{}, err
	}
	return Info{
		Name: resp.GetName(), Version: resp.GetVersion(), Drains: resp.GetDrains(), GPUs: resp.GetGpus(),
		Survives: resp.GetSurvives(), Queues: resp.GetQueues(), Beside: resp.GetBeside(),
	}, nil
}

// Configure implements Backend. The configuration is kept, and given to every later process of the plugin.
func (c *Client) Configure(ctx context.Context, cfg Config) (Diagnostics, error) {
	doing := fmt.Sprintf("configure backend for job %q", cfg.Job)
	s, err := c.session(doing)
	if err != nil {
		return nil, err
	}
	diags, err := configure(ctx, s, c.opts.CallTimeout, cfg)
	if err != nil || diags.HasErrors() {
		return diags, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cur != s { // the next process may have been configured without it already
		return nil, Errorf(Unavailable, "%s: the plugin was restarted meanwhile; ask again", doing)
	}
	for i := range c.configs {
		if c.configs[i].Job == cfg.Job {
			c.configs[i] = cfg
			return diags, nil
		}
	}
	c.configs = append(c.configs, cfg)
	return diags, nil
}

// Plan implements Backend.
func (c *Client) Plan(ctx context.Context, job string, ws []Workload) (Report, error) {
	resp, err := on(ctx, c, fmt.Sprintf("plan %s of job %q", workloads(len(ws)), job),
		func(ctx context.Context, stub backendpb.BackendServiceClient) (*backendpb.PlanResponse, error) {
			return stub.Plan(ctx, &backendpb.PlanRequest{Job: job, Workloads: each(ws, workloadToPB)})
		})
	if err != nil {
		return Report{}, err
	}
	return reportFromPB(resp), nil
}

// Ensure implements Backend.
func (c *Client) Ensure(ctx context.Context, job string, ws []Workload) ([]Status, error) {
	doing := fmt.Sprintf("start %s of job %q", workloads(len(ws)), job)
	resp, err := on(ctx, c, doing,
		func(ctx context.Context, stub backendpb.BackendServiceClient) (*backendpb.EnsureResponse, error) {
			return stub.Ensure(ctx, &backendpb.EnsureRequest{Job: job, Workloads: each(ws, workloadToPB)})
		})
	if err != nil {
		return nil, err
	}
	if len(resp.GetStatuses()) != len(ws) {
		return nil, Errorf(Unavailable, "%s: the plugin answered with %d statuses, which breaks the contract", doing, len(resp.GetStatuses()))
	}
	return each(resp.GetStatuses(), statusFromPB), nil
}

// workloads is "1 workload", "3 workloads".
func workloads(n int) string {
	if n == 1 {
		return "1 workload"
	}
	return fmt.Sprintf("%d workloads", n)
}

// List implements Backend.
func (c *Client) List(ctx context.Context, job string) ([]Status, bool, error) {
	resp, err := on(ctx, c, fmt.Sprintf("list workloads of job %q", job),
		func(ctx context.Context, stub backendpb.BackendServiceClient) (*backendpb.ListResponse, error) {
			return stub.List(ctx, &backendpb.ListRequest{Job: job})
		})
	if err != nil {
		return nil, false, err
	}
	return each(resp.GetStatuses(), statusFromPB), resp.GetComplete(), nil
}

// Release implements Backend.
func (c *Client) Release(ctx context.Context, job string, ids []ID, how How) error {
	_, err := on(ctx, c, fmt.Sprintf("release %s of job %q, %s", workloads(len(ids)), job, how),
		func(ctx context.Context, stub backendpb.BackendServiceClient) (*backendpb.ReleaseResponse, error) {
			return stub.Release(ctx, &backendpb.ReleaseRequest{Job: job, Ids: each(ids, idToPB), How: howToPB(how)})
		})
	return err
}

// Inventory implements Backend.
func (c *Client) Inventory(ctx context.Context) (Inventory, error) {
	resp, err := on(ctx, c, "ask backend for its inventory",
		func(ctx context.Context, stub backendpb.BackendServiceClient) (*backendpb.InventoryResponse, error) {
			return stub.Inventory(ctx, &backendpb.InventoryRequest{})
		})
	if err != nil {
		return Inventory{}, err
	}
	return inventoryFromPB(resp), nil
}

// Forget implements Backend. A plugin that was built before there was such a call is Unsupported.
func (c *Client) Forget(ctx context.Context, job, role string) ([]string, error) {
	resp, err := on(ctx, c, fmt.Sprintf("forget what is kept of job %q", job),
		func(ctx context.Context, stub backendpb.BackendServiceClient) (*backendpb.ForgetResponse, error) {
			return stub.Forget(ctx, &backendpb.ForgetRequest{Job: job, Role: role})
		})
	if err != nil {
		return nil, err
	}
	return resp.GetRemoved(), nil
}

// openStream starts a server stream and waits, with the call's deadline, for the empty message by which the server
// says that it is open. cancel ends the stream; so does the session's end.
func openStream[M any](ctx context.Context, c *Client, doing string,
	open func(context.Context, backendpb.BackendServiceClient) (grpc.ServerStreamingClient[M], error),
) (stream grpc.ServerStreamingClient[M], s *session, cancel func(), err error) {
	if s, err = c.session(doing); err != nil {
		return nil, nil, nil, err
	}
	streamCtx, cancelCtx := context.WithCancel(ctx)
	detach := context.AfterFunc(s.done, cancelCtx)
	cancel = func() { detach(); cancelCtx() }
	limit := patience(ctx, c.opts.CallTimeout)
	deadline := time.AfterFunc(c.opts.CallTimeout, cancelCtx)
	stream, err = open(streamCtx, s.stub)
	if err == nil {
		_, err = stream.Recv()
	}
	inTime := deadline.Stop()
	if err == nil && inTime {
		return stream, s, cancel, nil
	}
	defer cancel()
	if !inTime {
		return nil, nil, nil, Errorf(Unavailable, "%s: no answer from the plugin within %v", doing, c.opts.CallTimeout)
	}
	return nil, nil, nil, s.explain(ctx, ctx, limit, doing, err)
}

// Logs implements Backend. The reader must be closed.
func (c *Client) Logs(ctx context.Context, job string, id ID, opts LogOptions) (io.ReadCloser, error) {
	doing := fmt.Sprintf("read the log of %s of job %q", id, job)
	stream, s, cancel, err := openStream(ctx, c, doing,
		func(ctx context.Context, stub backendpb.BackendServiceClient) (grpc.ServerStreamingClient[backendpb.LogsResponse], error) {
			return stub.Logs(ctx, &backendpb.LogsRequest{Job: job, Id: idToPB(id), Tail: int64(opts.Tail), Follow: opts.Follow})
		})
	if err != nil {
		return nil, err
	}
	return &logReader{
		stream: stream, cancel: cancel,
		explain: func(err error) error { return s.explain(ctx, ctx, c.opts.CallTimeout, doing, err) },
	}, nil
}

// logReader reads a log stream. Close may be called while Read waits.
type logReader struct {
	stream  grpc.ServerStreamingClient[backendpb.LogsResponse]
	cancel  func()
	explain func(error) error
	rest    []byte
}

func (r *logReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		msg, err := r.stream.Recv()
		if errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		if err != nil {
			return 0, r.explain(err)
		}
		r.rest = msg.GetData()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *logReader) Close() error {
	r.cancel()
	return nil
}

// Watch implements Backend. The channel is also closed when the plugin ends: a caller that wants more asks again.
func (c *Client) Watch(ctx context.Context, job string) (<-chan Event, error) {
	stream, _, cancel, err := openStream(ctx, c, fmt.Sprintf("watch job %q", job),
		func(ctx context.Context, stub backendpb.BackendServiceClient) (grpc.ServerStreamingClient[backendpb.WatchResponse], error) {
			return stub.Watch(ctx, &backendpb.WatchRequest{Job: job})
		})
	if err != nil {
		return nil, err
	}
	events := make(chan Event)
	// Ends with ctx or the stream; owns events.
	go func() {
		defer cancel()
		defer close(events)
		for {
			msg, err := stream.Recv()
			if err != nil {
				return // a hint: the reason shows in the caller's next List
			}
			select {
			case events <- Event{ID: idFromPB(msg.GetId()), State: stateFromPB(msg.GetState())}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return events, nil
}
