package ps

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kale-sched/kale/core/rpc"
)

// Batch is a push: the gradients of the records in Parts.
type Batch struct {
	// Member is who pushes, for messages.
	Member string
	// Parts are all spans of the batch, with what was really in the tensor. At least one.
	Parts []*rpc.RangePart
	// IDs are the batch's rows, each once, and Grads their summed gradients: len(IDs)×rowWidth.
	IDs   []uint64
	Grads []float32
	// Dense is the gradient of the full dense vector; nil when no record is in the batch.
	Dense []float32
	// Share is records in the tensor / nominal batch.
	Share float32
	// CountIDs, counting model only: one id per record.
	CountIDs []uint64
	// Tablets, when not empty, are the only ones that the push is for (the repair of a partial overlap): rows of others are left out.
	Tablets []int32
}

// call is what one Pull or Push needs: per server, the request and the positions of its ids. It is reused from call to call.
type call struct {
	servers []serverCall
}

type serverCall struct {
	positions []int32
	pull      rpc.PullRequest
	push      rpc.PushRequest
	answer    *rpc.PushResponse
}

func (c *Client) takeCall() *call {
	if k, ok := c.calls.Get().(*call); ok {
		return k
	}
	return &call{servers: make([]serverCall, c.layout.servers)}
}

// Every call's messages may be large.
var callOptions = []grpc.CallOption{grpc.MaxCallRecvMsgSize(MaxMessage), grpc.MaxCallSendMsgSize(MaxMessage)}

// Pull fills rows (len(ids)×rowWidth) with the rows of ids, which are unique, and dense, when it is not nil, with the full dense vector. All
// servers are asked at once. A server that is fenced or away is asked again, at its newest address, until ctx ends. Nothing in rows and
// dense is to be used after an error.
func (c *Client) Pull(ctx context.Context, ids []uint64, rows, dense []float32) error {
	if len(rows) != len(ids)*c.width {
		return fmt.Errorf("pull: %d rows of %d weights do not fit a buffer of %d", len(ids), c.width, len(rows))
	}
	if dense != nil && len(dense) != c.layout.dense {
		return fmt.Errorf("pull: the dense vector has %d weights, the buffer %d", c.layout.dense, len(dense))
	}
	k := c.takeCall()
	defer c.calls.Put(k)
	for i := range k.servers {
		s := &k.servers[i]
		s.positions, s.pull.Ids, s.pull.Dense = s.positions[:0], s.pull.Ids[:0], dense != nil
	}
	for i, id := range ids {
		s := &k.servers[c.layout.ServerOfRow(id)]
		s.positions = append(s.positions, int32(i))
		s.pull.Ids = appendID(s.pull.Ids, id)
	}
	return c.each(ctx, func(i int) bool { return len(k.servers[i].positions) > 0 || dense != nil }, func(ctx context.Context, i int) error {
		return c.pullFrom(ctx, i, &k.servers[i], rows, dense)
	})
}

// pullFrom pulls one server's part; servers write to disjoint parts of rows and dense.
func (c *Client) pullFrom(ctx context.Context, server int, s *serverCall, rows, dense []float32) error {
	var answer *rpc.PullResponse
	err := c.try(ctx, server, "pull", func(ctx context.Context, w *world, e *endpoint) (err error) {
		s.pull.Fence = w.fence(e)
		answer, err = e.stub.Pull(ctx, &s.pull, callOptions...)
		return err
	})
	if err != nil {
		return err
	}
	lo, hi := c.layout.DensePart(server)
	if dense == nil {
		hi = lo
	}
	if len(answer.Rows) != 4*c.width*len(s.positions) || len(answer.Dense) != 4*(hi-lo) {
		return fmt.Errorf("pull: server %d answered %d bytes of rows and %d of dense weights, want %d and %d: it serves another model", server,
			len(answer.Rows), len(answer.Dense), 4*c.width*len(s.positions), 4*(hi-lo))
	}
	for j, at := range s.positions {
		readFloats(rows[int(at)*c.width:(int(at)+1)*c.width], answer.Rows[4*j*c.width:])
	}
	if dense != nil {
		readFloats(dense[lo:hi], answer.Dense)
	}
	return nil
}

// Push sends a batch to all servers at once (or to those of b.Tablets), again and to newer incarnations until each has taken it or ctx
// ends. It is safe to repeat a push after an error: tablets that have it answer so. The tablets in partial have taken nothing, because
// they have some of the records already: the caller recomputes the missing ones and pushes them to those tablets only.
func (c *Client) Push(ctx context.Context, b *Batch) (partial []*rpc.Missing, err error) {
	if len(b.Grads) != len(b.IDs)*c.width {
		return nil, fmt.Errorf("push: %d rows of %d weights and %d gradients", len(b.IDs), c.width, len(b.Grads))
	}
	if len(b.Dense) != 0 && len(b.Dense) != c.layout.dense {
		return nil, fmt.Errorf("push: the dense vector has %d weights, its gradient %d", c.layout.dense, len(b.Dense))
	}
	for _, t := range b.Tablets {
		if t < 0 || int(t) >= c.layout.tablets {
			return nil, fmt.Errorf("push: there is no tablet %d among %d", t, c.layout.tablets)
		}
	}
	k := c.takeCall()
	defer c.calls.Put(k)
	c.fill(k, b)
	err = c.each(ctx, func(i int) bool { return k.servers[i].push.Parts != nil }, func(ctx context.Context, i int) error {
		s := &k.servers[i]
		return c.try(ctx, i, "push", func(ctx context.Context, w *world, e *endpoint) (err error) {
			s.push.Fence = w.fence(e)
			s.answer, err = e.stub.Push(ctx, &s.push, callOptions...)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	for i := range k.servers {
		if k.servers[i].push.Parts != nil {
			partial = append(partial, k.servers[i].answer.Partial...)
		}
	}
	return partial, nil
}

// fill builds each server's request; a server that is not addressed has no parts.
func (c *Client) fill(k *call, b *Batch) {
	for i := range k.servers {
		s := &k.servers[i]
		r := &s.push
		r.Member, r.Parts, r.Share, r.Tablets = b.Member, b.Parts, b.Share, r.Tablets[:0]
		r.Ids, r.Grads, r.Dense, r.CountIds = r.Ids[:0], r.Grads[:0], r.Dense[:0], r.CountIds[:0]
		if len(b.Tablets) > 0 {
			r.Parts = nil
		}
	}
	for _, t := range b.Tablets {
		r := &k.servers[c.layout.ServerOfTablet(int(t))].push
		r.Parts, r.Tablets = b.Parts, append(r.Tablets, t)
	}
	for i, id := range b.IDs {
		tablet := c.layout.TabletOfRow(id)
		if len(b.Tablets) > 0 && !slices.Contains(b.Tablets, int32(tablet)) {
			continue
		}
		r := &k.servers[c.layout.ServerOfTablet(tablet)].push
		r.Ids = appendID(r.Ids, id)
		r.Grads = appendFloats(r.Grads, b.Grads[i*c.width:(i+1)*c.width])
	}
	for i := range k.servers {
		r := &k.servers[i].push
		if r.Parts == nil {
			continue
		}
		for _, id := range b.CountIDs {
			r.CountIds = appendID(r.CountIds, id)
		}
		if len(b.Dense) > 0 {
			lo, hi := c.layout.DensePart(i)
			r.Dense = appendFloats(r.Dense, b.Dense[lo:hi])
		}
	}
}

// each calls do for the servers that are wanted, all at once when there are several, and waits for all. The first error ends the others.
func (c *Client) each(ctx context.Context, wanted func(int) bool, do func(context.Context, int) error) error {
	only, n := 0, 0
	for i := range c.layout.servers {
		if wanted(i) {
			only = i
			n++
		}
	}
	if n == 1 {
		return do(ctx, only)
	}
	g, ctx := errgroup.WithContext(ctx)
	for i := range c.layout.servers {
		if wanted(i) {
			g.Go(func() error { return do(ctx, i) })
		}
	}
	return g.Wait()
}

// Sums asks every server what its tablets have counted, in tablet order (EXACTLY_ONCE rule 19).
func (c *Client) Sums(ctx context.Context) ([]*rpc.TabletSums, error) {
	answers := make([][]*rpc.TabletSums, c.layout.servers)
	err := c.each(ctx, func(int) bool { return true }, func(ctx context.Context, i int) error {
		return c.try(ctx, i, "sums", func(ctx context.Context, _ *world, e *endpoint) error {
			r, err := e.stub.TabletSums(ctx, &rpc.SumsRequest{}, callOptions...)
			if err != nil {
				return err
			}
			if len(r.Tablets) > 0 && r.Tablets[0].Incarnation != e.incarnation {
				return status.Errorf(codes.FailedPrecondition, "incarnation %d answers", r.Tablets[0].Incarnation)
			}
			answers[i] = r.Tablets
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return slices.Concat(answers...), nil
}
