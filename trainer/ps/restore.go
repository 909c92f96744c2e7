package ps

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"

	"github.com/kale-sched/kale/trainer/checkpoint"
)

// Restore makes the server of Options from the newest verified snapshot of each of its tablets, or fresh where there is none. The
// caller has claimed opt.Incarnation before, so that an older server that still writes can do no harm.
//
// A snapshot that does not verify, or is of another job state, is reported (log, Metrics) and the one before is taken. When a tablet has
// snapshots and none can be read, that is an error: training it anew would repeat nothing, but lose what it learnt, and only the
// operator may decide that.
func Restore(lg *slog.Logger, opt Options) (*Server, error) {
	if lg == nil {
		lg = slog.New(slog.DiscardHandler)
	}
	if err := opt.Validate(); err != nil {
		return nil, fmt.Errorf("restore server %d: %w", opt.Server, err)
	}
	s := &Server{lg: lg, opt: opt}
	s.starts.Store(&map[int32]int64{})
	lo, hi := opt.Layout.TabletsOfServer(opt.Server)
	s.first = lo
	var init []float32
	if opt.InitDense != nil {
		init = opt.InitDense()
		if len(init) != opt.Layout.dense {
			return nil, fmt.Errorf("restore server %d: the model starts from %d dense weights and the layout has %d", opt.Server, len(init), opt.Layout.dense)
		}
	}
	fresh := 0
	for id := lo; id < hi; id++ {
		t, err := s.restoreTablet(id)
		if err != nil {
			return nil, fmt.Errorf("restore server %d: %w", opt.Server, err)
		}
		if t == nil {
			fresh++
			t = opt.freshTablet(id, init)
		}
		s.tablets = append(s.tablets, t)
	}
	if fresh > 0 && fresh < hi-lo {
		lg.Warn("some tablets have no snapshot and start fresh", "server", opt.Server, "fresh", fresh, "tablets", hi-lo)
	}
	lg.Info("parameter server restored", "server", opt.Server, "incarnation", opt.Incarnation, "tablets", hi-lo, "fresh", fresh)
	return s, nil
}

// freshTablet is a tablet that has seen nothing.
func (o *Options) freshTablet(id int, init []float32) *tablet {
	t := &tablet{
		id: id, block: o.Layout.DenseBlock(id),
		rows: newTable[float32](o.RowWidth * (1 + o.Optimiser.slots())), counts: newTable[int64](1),
	}
	t.dense = &slab[float32]{v: make([]float32, t.block.Len()*(1+o.Optimiser.slots()))}
	if init != nil {
		copy(t.dense.v, init[t.block.Begin:t.block.End])
	}
	return t
}

// restoreTablet loads the newest snapshot that verifies and remembers the older ones that do; nil when the tablet has no snapshot.
func (s *Server) restoreTablet(id int) (*tablet, error) {
	for try := 0; ; try++ {
		t, err := s.tryRestoreTablet(id)
		// A server that does not know yet that it is superseded may remove old files between the listing and the reading.
		if !errors.Is(err, fs.ErrNotExist) || try == 10 {
			return t, err
		}
	}
}

func (s *Server) tryRestoreTablet(id int) (*tablet, error) {
	all, err := s.opt.Store.Generations(id)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	var newest *tablet
	var kept []retained
	var bad []error
	for _, g := range all {
		t, h, err := readTablet(s.opt.Store, g, newest == nil, s.opt.matches)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err != nil {
			bad = append(bad, err)
			s.report(g, err)
			continue
		}
		if newest == nil {
			newest = t
			s.noteAge(g)
			if err := s.SetStarts(h.Starts); err != nil {
				return nil, err
			}
		}
		if len(kept) < s.opt.Keep {
			kept = append(kept, retained{generation: g, known: len(kept) == 0, ledgers: h.ledgers()})
		}
	}
	if newest == nil {
		return nil, fmt.Errorf("tablet %d has %d snapshots in %s and none can be used: bring back its files, or move them away to train the tablet anew from the pinned start: %w",
			id, len(all), s.opt.Store.Root(), errors.Join(bad...))
	}
	newest.block = s.opt.Layout.DenseBlock(id)
	newest.retained = kept
	return newest, nil
}

// noteAge keeps the age of the oldest snapshot that is restored: training is rolled back at most so far.
func (s *Server) noteAge(g checkpoint.Generation) {
	info, err := os.Stat(s.opt.Store.Path(g))
	if err != nil {
		return // it was read a moment ago; only its age is not known
	}
	if at := info.ModTime().UnixMilli(); s.restored == 0 || at < s.restored {
		s.restored = at
	}
}

// report makes a skipped snapshot known: it is never silent.
func (s *Server) report(g checkpoint.Generation, err error) {
	s.lg.Error("snapshot skipped", "server", s.opt.Server, "tablet", g.Tablet, "file", s.opt.Store.Path(g), "error", err)
	s.last.Store(&snapshotResult{err: fmt.Sprintf("skipped on restore: %v", err)})
}

// readTablet verifies and reads one snapshot whose header is acceptable; with body false, only its header is kept.
func readTablet(store *checkpoint.Store, g checkpoint.Generation, body bool, acceptable func(*snapshotHeader) error) (*tablet, *snapshotHeader, error) {
	t := &tablet{id: g.Tablet}
	var h snapshotHeader
	err := store.ReadTablet(g, func(r io.Reader) error {
		var err error
		if h, err = readHeader(r); err != nil {
			return err
		}
		if err := acceptable(&h); err != nil {
			return err
		}
		if !body {
			_, err = io.Copy(io.Discard, r)
			return err
		}
		return h.readBody(r, t)
	})
	if err != nil {
		return nil, nil, err
	}
	return t, &h, nil
}

// matches refuses a snapshot of another job, model or timeline.
func (o *Options) matches(h *snapshotHeader) error {
	type fact struct {
		what       string
		have, want any
	}
	for _, f := range []fact{
		{"job", h.Job, o.Job}, {"topic", h.Topic, o.Topic}, {"fingerprint", h.Fingerprint, o.Fingerprint}, {"timeline", h.Timeline, o.Timeline},
		{"number of tablets", h.Tablets, o.Layout.tablets}, {"optimiser", h.Optimiser, o.Optimiser.Kind}, {"row width", h.RowWidth, o.RowWidth},
		{"optimiser slots", h.Slots, o.Optimiser.slots()}, {"dense block", h.Dense, o.Layout.DenseBlock(h.Tablet).Len()}, {"counting", h.Counting, o.Counting},
	} {
		if f.have != f.want {
			return fmt.Errorf("the snapshot of tablet %d is of another job state: its %s is %v, here it is %v", h.Tablet, f.what, f.have, f.want)
		}
	}
	return nil
}

// Starts are the pinned start offsets that the server knows, from the chief or from its snapshots.
func (s *Server) Starts() map[int32]int64 { return maps.Clone(*s.starts.Load()) }
