package ps

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kale-sched/kale/trainer/checkpoint"
)

// snapshotWriters is how many tablets are written at a time: enough to overlap the waiting for the disk, few enough that what pushes copy
// meanwhile stays a small part of the model.
const snapshotWriters = 4

// Snapshot writes a new generation of every tablet that has changed, a few at a time and without a barrier: each tablet's state is
// frozen for the time of copying some pointers (tablet.cut) and written while pushes go on. Only what is on disk, synced and read back
// counts, and moves the durable watermark.
//
// It returns checkpoint.ErrSuperseded when another incarnation has taken this server's tablets: the process must exit. One that ctx ends is given up, and nothing
// is wrong. After any other error (a full disk, say) the older generations stand, the error is in Metrics, and serving goes on; the other tablets are
// written all the same. Concurrent calls take turns.
func (s *Server) Snapshot(ctx context.Context) error {
	s.snapshotting.Lock()
	defer s.snapshotting.Unlock()
	s.generation++
	began := time.Now()
	failed := s.snapshotAll(ctx)
	noteErr := s.note()
	result := snapshotResult{seconds: time.Since(began).Seconds()}
	if old := s.last.Load(); old != nil {
		result.doneUnixMs = old.doneUnixMs
	}
	if len(failed) == 0 && noteErr == nil {
		result.doneUnixMs = time.Now().UnixMilli()
		s.last.Store(&result)
		return nil
	}
	if len(failed) == 0 {
		result.err = noteErr.Error()
		s.last.Store(&result)
		return fmt.Errorf("snapshot of server %d: %w", s.opt.Server, noteErr)
	}
	first := failed[0]
	if i := slices.IndexFunc(failed, func(err error) bool { return errors.Is(err, checkpoint.ErrSuperseded) }); i >= 0 {
		first = failed[i]
	}
	err := fmt.Errorf("%d of %d tablets not written; the first: %w", len(failed), len(s.tablets), first)
	if !slices.ContainsFunc(failed, func(err error) bool {
		return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
	}) {
		s.lg.Info("a snapshot was given up", "generation", s.generation, "tablets_not_written", len(failed), "tablets", len(s.tablets), "why", context.Cause(ctx))
		return fmt.Errorf("snapshot of server %d: %w", s.opt.Server, err)
	}
	result.err = err.Error()
	s.last.Store(&result)
	s.lg.Error("snapshot failed", "generation", s.generation,
		"tablets_failed", len(failed), "tablets", len(s.tablets), "error", first)
	return fmt.Errorf("snapshot of server %d: %w", s.opt.Server, err)
}

// snapshotAll writes all tablets and lists the errors. No new tablet is begun when ctx has ended or the server is superseded. The caller holds s.snapshotting.
func (s *Server) snapshotAll(ctx context.Context) []error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex // guards failed
	var failed []error
	var g errgroup.Group
	g.SetLimit(snapshotWriters)
	for _, t := range s.tablets {
		g.Go(func() error {
			err := ctx.Err()
			if err == nil {
				err = s.snapshotTablet(t)
			}
			if err == nil {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			failed = append(failed, err)
			if errors.Is(err, checkpoint.ErrSuperseded) {
				cancel()
			}
			return nil
		})
	}
	_ = g.Wait() // the errors are in failed
	return failed
}

// snapshotTablet writes one tablet. The caller holds s.snapshotting.
func (s *Server) snapshotTablet(t *tablet) error {
	if s.settled(t) {
		// Even a server that has nothing to write must learn that it was superseded.
		gone, err := s.opt.Store.Superseded(s.opt.Server, s.opt.Incarnation)
		if gone {
			err = checkpoint.ErrSuperseded
		}
		return err
	}
	v := t.cut()
	defer t.thaw()
	// The starts are read after the cut: whatever the view has trained, its floor is known.
	h := s.opt.header(v, *s.starts.Load())
	err := s.opt.Store.WriteTablet(t.id, s.opt.Server, s.opt.Incarnation, s.generation, func(w io.Writer) error {
		return writeSnapshot(w, h, v)
	})
	if err != nil {
		return err
	}
	kept := retained{
		generation: checkpoint.Generation{Tablet: t.id, Incarnation: s.opt.Incarnation, Number: s.generation}, written: time.Now().UnixMilli(),
		changes: v.changes, known: true, ledgers: v.ledgers,
	}
	// Old files go first, the durable watermark moves after: it must never be above what is on disk.
	if err := s.opt.Store.Prune(t.id, s.opt.Incarnation, s.opt.Keep); err != nil {
		s.lg.Warn("old snapshots stay", "tablet", t.id, "error", err)
	}
	t.mu.Lock()
	t.retained = append([]retained{kept}, t.retained[:min(len(t.retained), s.opt.Keep-1)]...)
	t.mu.Unlock()
	return nil
}

// note saves which snapshots there are now, unless that is what was saved last, and then drops the orders that they fulfil. The caller holds s.snapshotting.
func (s *Server) note() error {
	now, applied, starts := map[int]checkpoint.Written{}, map[int32]int64{}, *s.starts.Load()
	for i, t := range s.tablets {
		t.mu.RLock()
		for p, start := range starts {
			o := start
			if len(t.retained) > 0 {
				o = t.retained[0].watermark(p, start)
			}
			if i == 0 || o < applied[p] {
				applied[p] = o
			}
		}
		if len(t.retained) > 0 {
			r := &t.retained[0]
			now[t.id] = checkpoint.Written{Incarnation: r.generation.Incarnation, Number: r.generation.Number, UnixMs: r.written, Records: r.records()}
		}
		t.mu.RUnlock()
	}
	if maps.Equal(now, s.noted) {
		return nil
	}
	if err := s.opt.Store.SaveManifest(checkpoint.Manifest{Timeline: s.opt.Timeline, Tablets: now, Applied: applied}, s.opt.Server, s.opt.Incarnation); err != nil {
		return err
	}
	for id := range now {
		if _, before := s.noted[id]; before {
			continue // it was looked at then
		}
		if err := s.opt.Store.DropAnew(id); err != nil {
			s.lg.Warn("an order that is fulfilled stays", "tablet", id, "error", err)
		}
	}
	s.noted = now
	return nil
}

// settled says that another snapshot of the tablet would change nothing: all retained generations, as many as are to be kept, are of its present state.
func (s *Server) settled(t *tablet) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, r := range t.retained {
		if !r.known || r.changes != t.changes {
			return false
		}
	}
	return len(t.retained) == s.opt.Keep
}
