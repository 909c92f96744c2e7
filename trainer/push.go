package trainer

import (
	"context"
	"fmt"
	"time"

	"github.com/kale-sched/kale/core/rpc"
)

// maxRepairs bounds how often one push is repaired after partial overlaps before it is started over as a whole.
const maxRepairs = 8

// pushRequest is one push, addressed to all servers or to some tablets.
type pushRequest struct {
	parts    []*rpc.RangePart
	tablets  []int32 // empty: all
	g        *gradients
	share    float32
	countIDs []uint64 // counting model only
}

// parameters is the worker's view of the parameter servers. Its methods wait for servers that are away, until ctx ends.
type parameters interface {
	// Pull returns the rows of ids, [len(ids),W], and all dense parameters, [P].
	Pull(ctx context.Context, ids []uint64) (rows, dense []float32, err error)
	// Push applies a push to every tablet that it addresses, and returns the tablets that refused it because they have some of its spans.
	Push(ctx context.Context, p *pushRequest) ([]*rpc.Missing, error)
}

// pull fetches the batch's weights. False: ctx has ended, or the servers refuse, which fails the worker.
func (w *worker) pull(ctx context.Context, b *batch) bool {
	rows, dense, err := w.params.Pull(ctx, b.ids)
	if err != nil {
		w.failUnless(ctx, fmt.Errorf("pull %d rows: %w", len(b.ids), err))
		return false
	}
	b.rows, b.params = rows, dense
	return true
}

// push pushes what in delivers, in order, until in is closed or ctx ends.
func (w *worker) push(ctx context.Context, in <-chan stepped) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case s, ok := <-in:
			if !ok {
				return nil
			}
			if !w.anyWanted(s.b) {
				continue // applied by another meanwhile, or of a session that was lost
			}
			if err := w.pushBatch(ctx, s); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
		}
	}
}

// pushBatch pushes a batch until every tablet has all of it, and then moves its spans to pushed. When a server was replaced meanwhile, what
// the one before has acknowledged may be forgotten (rule 10): then it is pushed again, and tablets that have it say so.
func (w *worker) pushBatch(ctx context.Context, s stepped) error {
	for {
		before := w.serverChanges()
		if err := w.pushOnce(ctx, s); err != nil {
			return err
		}
		if w.markPushed(s.b, before) {
			break
		}
		w.lg.Info("a parameter server was replaced during a push; pushing again", "records", s.b.records())
	}
	w.metrics.acknowledged(s.b, time.Now())
	return nil
}

// pushOnce pushes to all tablets, and repairs partial overlaps (rule 7): a tablet that has some of the spans gets the gradient of the
// others, computed anew.
func (w *worker) pushOnce(ctx context.Context, s stepped) error {
	req := &pushRequest{parts: s.b.parts(), g: s.g}
	if s.g != nil {
		req.share = s.g.share
	} else if n := s.b.records(); n > 0 { // counting
		req.share = float32(n) / float32(max(w.batchSize, 1))
		req.countIDs = s.b.hashes(nil)
	}
	todo, err := w.params.Push(ctx, req)
	if err != nil {
		return fmt.Errorf("push %d records: %w", s.b.records(), err)
	}
	for round := 0; len(todo) > 0; round++ {
		if round == maxRepairs {
			return fmt.Errorf("push %d records: tablets still miss different parts of them after %d repairs", s.b.records(), maxRepairs)
		}
		var next []*rpc.Missing
		for _, m := range todo {
			again, err := w.pushMissing(ctx, s, m)
			if err != nil {
				return err
			}
			next = append(next, again...)
		}
		todo = next
	}
	return nil
}

// pushMissing computes the gradient of the records in the missing spans alone, and pushes it to the tablets that miss them.
func (w *worker) pushMissing(ctx context.Context, s stepped, m *rpc.Missing) ([]*rpc.Missing, error) {
	req := &pushRequest{tablets: m.GetTablets()}
	for _, sp := range m.GetSpans() {
		req.parts = append(req.parts, s.b.part(sp.GetPartition(), sp.GetBegin(), sp.GetEnd()))
	}
	only := s.b.indexesIn(m.GetSpans())
	w.lg.Info("some tablets have a part of a batch; computing the rest again", "tablets", len(m.GetTablets()), "records", len(only), "of", s.b.records())
	w.metrics.add(&w.metrics.recomputed, len(only))
	switch {
	case len(only) == 0:
	case w.engine == nil:
		req.share = float32(len(only)) / float32(max(w.batchSize, 1))
		req.countIDs = s.b.hashes(only)
	default:
		g, err := w.engine.compute(s.b, only)
		if err != nil {
			return nil, err
		}
		req.g, req.share = g, g.share
	}
	again, err := w.params.Push(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("push %d records again to %d tablets: %w", len(only), len(m.GetTablets()), err)
	}
	return again, nil
}

// hashes lists the records' hashes: of those at the indexes, or of all.
func (b *batch) hashes(only []int) []uint64 {
	var out []uint64
	if only == nil {
		for _, r := range b.recs {
			out = append(out, r.hash)
		}
		return out
	}
	for _, i := range only {
		out = append(out, b.recs[i].hash)
	}
	return out
}

// anyWanted says whether any span of the batch is still in the ledger.
func (w *worker) anyWanted(b *batch) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range b.chunks {
		if _, ok := w.ledger.state(c.id); ok {
			return true
		}
	}
	return false
}

func (w *worker) serverChanges() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changes
}

// markPushed moves a batch's spans to pushed, unless a server was replaced since before.
func (w *worker) markPushed(b *batch, before uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changes != before {
		return false
	}
	now := time.Now()
	for _, c := range b.chunks {
		w.ledger.push(c.id, now)
		if c.from != nil {
			c.from.tellTrained(c.remote)
		}
	}
	return true
}
