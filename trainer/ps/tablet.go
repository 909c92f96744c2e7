package ps

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/checkpoint"
	"github.com/kale-sched/kale/trainer/spans"
)

// tablet is the unit of state (EXACTLY_ONCE rule 1): rows, a block of the dense vector, the optimiser's state for both, and the ledgers
// of what they have been trained with. All of it changes together, under mu, so that any moment between two pushes is a consistent state.
type tablet struct {
	id    int
	block Block

	mu sync.RWMutex

	rows  table[float32] // per row: weights, then the optimiser's slots
	dense *slab[float32] // the block: weights, then the optimiser's slots
	steps int64          // optimiser steps: pushes with at least one record

	counts  table[int64] // the counting model
	counted int64

	ledgers []ledger // by partition
	changes uint64   // pushes applied by this process: tells whether a new snapshot would differ

	// While a snapshot is being written, slabs of an epoch below frozen are shared with it.
	epoch, frozen uint64

	// retained are the verified snapshots on disk, newest first. Guarded by mu as well.
	retained []retained
}

// ledger is what a tablet has trained of one partition.
type ledger struct {
	applied spans.Set
	sums
}

// sums are kept under the claim's lock from the records that were really in the tensor (rule 19).
type sums struct {
	N        uint64 `json:"n"`
	Hash     uint64 `json:"hash"`
	DeadN    uint64 `json:"dead_n"`
	DeadHash uint64 `json:"dead_hash"`
	Lost     uint64 `json:"lost"`
}

// retained is a snapshot that has verified, with what it says of progress.
type retained struct {
	generation checkpoint.Generation
	written    int64    // Unix ms
	changes    uint64   // tablet.changes at its cut
	known      bool     // changes is of this process
	ledgers    []ledger // by partition
}

// watermark is up to where it has all of a partition from its pinned start on.
func (r *retained) watermark(partition int32, start int64) int64 {
	if int(partition) >= len(r.ledgers) {
		return start
	}
	return r.ledgers[partition].applied.Watermark(start)
}

// records is how many records it holds the training of.
func (r *retained) records() (n uint64) {
	for i := range r.ledgers {
		n += r.ledgers[i].N + r.ledgers[i].DeadN
	}
	return n
}

func (t *tablet) ledger(partition int32) *ledger {
	for int(partition) >= len(t.ledgers) {
		t.ledgers = append(t.ledgers, ledger{})
	}
	return &t.ledgers[partition]
}

// claimState is how a push's spans relate to what a tablet has applied.
type claimState int

const (
	claimNew     claimState = iota // none of it is applied
	claimDone                      // all of it is applied
	claimPartial                   // some of it is
)

// look compares the parts with the ledgers. The caller holds mu.
func (t *tablet) look(parts []*rpc.RangePart) claimState {
	some, all := false, true
	for _, p := range parts {
		sp := p.Span
		set := &t.ledger(sp.Partition).applied
		if set.Covers(sp.Begin, sp.End) {
			some = true
			continue
		}
		all = false
		some = some || set.Overlaps(sp.Begin, sp.End)
	}
	switch {
	case all:
		return claimDone
	case some:
		return claimPartial
	}
	return claimNew
}

// missing lists what of the parts is not applied. The caller holds mu.
func (t *tablet) missing(parts []*rpc.RangePart) []*rpc.Span {
	var out []*rpc.Span
	for _, p := range parts {
		for _, sp := range t.ledger(p.Span.Partition).applied.Missing(p.Span.Begin, p.Span.End) {
			out = append(out, &rpc.Span{Partition: p.Span.Partition, Begin: sp.Begin, End: sp.End})
		}
	}
	return out
}

var errTooManySpans = errors.New("too many disjoint spans")

// roomFor refuses parts that would let a ledger grow beyond limit spans (rule 13). Parts that close gaps are always welcome. The caller holds mu.
func (t *tablet) roomFor(parts []*rpc.RangePart, limit int) error {
	for _, p := range parts {
		set := &t.ledger(p.Span.Partition).applied
		if set.Count() < limit || set.Overlaps(p.Span.Begin-1, p.Span.End+1) {
			continue
		}
		return fmt.Errorf("tablet %d, partition %d: %w: %d lie above the watermark: the records below must be trained first", t.id, p.Span.Partition, errTooManySpans, set.Count())
	}
	return nil
}

// claim marks the parts as applied and counts them. The caller holds mu, and applies their gradients before it lets go.
func (t *tablet) claim(parts []*rpc.RangePart) {
	t.changes++
	for _, p := range parts {
		l := t.ledger(p.Span.Partition)
		l.applied.Add(p.Span.Begin, p.Span.End)
		l.N += p.N
		l.Hash += p.Hash
		l.DeadN += p.DeadN
		l.DeadHash += p.DeadHash
		l.Lost += p.LostOffsets
	}
}

// cloneLedgers is a copy that shares nothing. The caller holds mu.
func (t *tablet) cloneLedgers() []ledger {
	out := slices.Clone(t.ledgers)
	for i := range out {
		out[i].applied = *t.ledgers[i].applied.Clone()
	}
	return out
}

// denseForWrite is the dense block, no longer shared with a snapshot. The caller holds mu.
func (t *tablet) denseForWrite() []float32 {
	t.dense = t.dense.own(t.epoch, t.frozen)
	return t.dense.v
}

// cut freezes the tablet's state as of now into a view that later pushes leave alone: they copy what they are about to change. It
// holds the lock for the time of copying one pointer per slab and the ledgers. The caller must call thaw when it is done with the
// view, and not cut again before.
func (t *tablet) cut() *tabletView {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.epoch++
	t.frozen = t.epoch
	v := &tabletView{
		tablet:  t.id,
		rows:    t.rows.view(),
		dense:   t.dense.v,
		counts:  t.counts.view(),
		counted: t.counted,
		steps:   t.steps,
		ledgers: t.cloneLedgers(),
		changes: t.changes,
	}
	return v
}

// thaw ends the sharing that cut began.
func (t *tablet) thaw() {
	t.mu.Lock()
	t.frozen = 0
	t.mu.Unlock()
}

// tabletView is a tablet at one moment.
type tabletView struct {
	tablet  int
	rows    tableView[float32]
	dense   []float32
	counts  tableView[int64]
	counted int64
	steps   int64
	ledgers []ledger // by partition
	changes uint64
}
