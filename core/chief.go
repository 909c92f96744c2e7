package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/kale-sched/kale/core/rpc"
)

// chiefTimeout bounds a question to the chief: later than this, it is unknown.
const chiefTimeout = 2 * time.Second

// chiefLink finds the job's chief, through the checkpoint folder or by what chiefs announce, and keeps a connection to it. It is safe for concurrent use.
type chiefLink struct {
	dir, job, token string
	meet            *rendezvous

	mu   sync.Mutex
	conn *grpc.ClientConn
	at   rpc.ChiefRecord
}

// rpcError is what gRPC says of a call that failed, in words for people. Its code is that of the error inside.
type rpcError struct{ error }

func (e rpcError) Unwrap() error { return e.error }

func (e rpcError) Error() string { return rpc.Words(e.error) }

// call runs f with a client of the current chief. When f fails the connection is dropped, so that the next call looks for the chief again.
func (c *chiefLink) call(ctx context.Context, timeout time.Duration, f func(context.Context, rpc.ChiefClient) error) error {
	conn, err := c.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, rpc.TokenKey, c.token), timeout)
	defer cancel()
	if err := f(ctx, rpc.NewChiefClient(conn)); err != nil {
		c.drop(conn)
		return fmt.Errorf("ask the chief at %s: %w", c.address(), rpcError{err})
	}
	return nil
}

func (c *chiefLink) connect() (*grpc.ClientConn, error) {
	rec, err := c.find()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil && rec == c.at {
		return c.conn, nil
	}
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
	conn, err := dialChief(rec)
	if err != nil {
		return nil, err
	}
	c.conn, c.at = conn, rec
	return conn, nil
}

// find falls back on where the chief was last: in a checkpoint folder that was taken away there is none, and it may live.
func (c *chiefLink) find() (rpc.ChiefRecord, error) {
	rec, err := c.meet.find(rpc.FindChief(c.dir, c.job))
	if errors.Is(err, rpc.ErrNoChief) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.at.Address != "" {
			return c.at, nil
		}
	}
	return rec, err
}

func dialChief(rec rpc.ChiefRecord) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+rec.Address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(256<<20)))
	if err != nil {
		return nil, fmt.Errorf("dial the chief at %s: %w", rec.Address, err)
	}
	return conn, nil
}

func (c *chiefLink) drop(conn *grpc.ClientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == conn {
		c.conn.Close()
		c.conn = nil
	}
}

func (c *chiefLink) address() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at.Address
}

func (c *chiefLink) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

func (c *chiefLink) status(ctx context.Context) (st *rpc.JobStatus, err error) {
	err = c.call(ctx, chiefTimeout, func(ctx context.Context, cl rpc.ChiefClient) error {
		st, err = cl.Status(ctx, &rpc.StatusRequest{})
		return err
	})
	return st, err
}

func (c *chiefLink) drain(ctx context.Context, members []string) (unknown []string, err error) {
	err = c.call(ctx, chiefTimeout, func(ctx context.Context, cl rpc.ChiefClient) error {
		resp, err := cl.Drain(ctx, &rpc.DrainRequest{Members: members})
		unknown = resp.GetUnknown()
		return err
	})
	return unknown, err
}

func (c *chiefLink) pause(ctx context.Context, paused bool) error {
	return c.call(ctx, chiefTimeout, func(ctx context.Context, cl rpc.ChiefClient) error {
		_, err := cl.Pause(ctx, &rpc.PauseRequest{Paused: paused})
		return err
	})
}

func (c *chiefLink) setPolicies(ctx context.Context, p *rpc.Policies) error {
	return c.call(ctx, chiefTimeout, func(ctx context.Context, cl rpc.ChiefClient) error {
		_, err := cl.SetPolicies(ctx, &rpc.SetPoliciesRequest{Policies: p})
		return err
	})
}

// snapshot waits for long, so it has a connection of its own: a question that fails meanwhile drops the common one.
func (c *chiefLink) snapshot(ctx context.Context, timeout time.Duration) error {
	rec, err := c.find()
	if err != nil {
		return err
	}
	conn, err := dialChief(rec)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, rpc.TokenKey, c.token), timeout)
	defer cancel()
	if _, err := rpc.NewChiefClient(conn).Snapshot(ctx, &rpc.SnapshotRequest{}); err != nil {
		return fmt.Errorf("ask the chief at %s for a snapshot: %w", rec.Address, rpcError{err})
	}
	return nil
}

func (c *chiefLink) advances(ctx context.Context, after uint64) (resp *rpc.AdvancesResponse, err error) {
	err = c.call(ctx, chiefTimeout, func(ctx context.Context, cl rpc.ChiefClient) error {
		resp, err = cl.Advances(ctx, &rpc.AdvancesRequest{After: after})
		return err
	})
	return resp, err
}
