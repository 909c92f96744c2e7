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

// ErrUnrestorable says that tablets which had snapshots have none that can be used. The error says which, why, and what can be done.
var ErrUnrestorable = errors.New("what was trained cannot be restored")

// Restore makes the server of Options from the newest verified snapshot of each of its tablets, or fresh where there never was one. The
// caller has claimed opt.Incarnation before, so that an older server that still writes can do no harm.
//
// A snapshot that does not verify, or is of another job state, is reported (log, Metrics) and the one before is taken. When a tablet has, or by the
// manifest had, snapshots and none can be read, that is ErrUnrestorable: training it anew would repeat nothing, but lose what it learnt, and only the
// operator may decide that: by an order in the checkpoint folder (checkpoint.Store.AnewPath), which is honoured and reported likewise.
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
	written, damaged, err := opt.Store.Written(opt.Timeline)
	if err != nil {
		return nil, fmt.Errorf("restore server %d: %w", opt.Server, err)
	}
	for _, err := range damaged {
		lg.Warn("a record of which snapshots were written is damaged; an older one is taken", "error", err)
	}
	var bad unrestorable
	fresh := 0
	for id := lo; id < hi; id++ {
		t, err := s.restoreTablet(id, written)
		if bad.add(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("restore server %d: %w", opt.Server, err)
		}
		if t == nil {
			fresh++
			t = opt.freshTablet(id, init)
		}
		s.tablets = append(s.tablets, t)
	}
	if len(bad) > 0 {
		return nil, bad.err(opt.Store, hi-lo)
	}
	if more := len(s.fallbacks) - mostTold; more > 0 {
		s.fallbacks = append(s.fallbacks[:mostTold], fmt.Sprintf("%d more tablets likewise", more))
	}
	for _, text := range s.fallbacks {
		lg.Error("not restored as it was last", "says", text)
	}
	if fresh > 0 && fresh < hi-lo {
		lg.Warn("some tablets have no snapshot and start fresh", "fresh", fresh, "tablets", hi-lo)
	}
	lg.Info("parameter server restored", "tablets", hi-lo, "fresh", fresh)
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

// restoreTablet loads the newest snapshot that verifies and remembers the older ones that do; nil when the tablet never had one, or is to begin anew.
func (s *Server) restoreTablet(id int, written map[int]checkpoint.Written) (*tablet, error) {
	for try := 0; ; try++ {
		t, err := s.tryRestoreTablet(id, written)
		// A server that does not know yet that it is superseded may remove old files between the listing and the reading.
		if !errors.Is(err, fs.ErrNotExist) || try == 10 {
			return t, err
		}
	}
}

func (s *Server) tryRestoreTablet(id int, written map[int]checkpoint.Written) (*tablet, error) {
	all, err := s.opt.Store.Generations(id)
	had, known := written[id]
	if err != nil || len(all) == 0 && !known {
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
		if err != nil && newest != nil {
			s.lg.Warn("an older snapshot is damaged, which is not needed", "tablet", g.Tablet, "file", s.opt.Store.Path(g), "error", err)
			continue
		}
		if err != nil {
			bad = append(bad, err)
			s.lg.Error("snapshot skipped", "tablet", g.Tablet, "file", s.opt.Store.Path(g), "error", err)
			continue
		}
		if newest == nil {
			newest = t
			if err := s.SetStarts(h.Starts); err != nil {
				return nil, err
			}
		}
		if len(kept) < s.opt.Keep {
			kept = append(kept, retained{generation: g, written: s.writtenAt(g), known: len(kept) == 0, ledgers: h.ledgers()})
		}
	}
	anew, err := s.opt.Store.Anew(id)
	switch {
	case err != nil:
		return nil, err
	case newest == nil && anew:
		s.lg.Error("a tablet that cannot be restored begins anew, by order", "tablet", id, "order", s.opt.Store.AnewPath(id))
		s.fallbacks = append(s.fallbacks, anewWords(s.opt.Store, id, had, known))
		return nil, nil
	case newest == nil:
		return nil, tabletLost{id, had, known, bad}
	case anew:
		s.lg.Warn("a tablet is not begun anew as ordered, since it can be restored; the order is dropped", "tablet", id, "order", s.opt.Store.AnewPath(id))
		if err := s.opt.Store.DropAnew(id); err != nil {
			s.lg.Warn("the order stays", "tablet", id, "error", err)
		}
	}
	if g := kept[0].generation; len(bad) > 0 || known && g.Compare(had.Of(id)) < 0 {
		s.fallbacks = append(s.fallbacks, s.fallbackWords(kept[0], had, known, bad))
	}
	if at := kept[0].written; at > 0 && (s.restored == 0 || at < s.restored) {
		s.restored = at
	}
	newest.block = s.opt.Layout.DenseBlock(id)
	newest.retained = kept
	return newest, nil
}

// writtenAt is when a snapshot was written, Unix ms; 0: that is not known.
func (s *Server) writtenAt(g checkpoint.Generation) int64 {
	info, err := os.Stat(s.opt.Store.Path(g))
	if err != nil {
		return 0 // it was read a moment ago; only its age is not known
	}
	return info.ModTime().UnixMilli()
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

// Fallbacks says of each tablet that was not taken up as it was last why not, and what is trained again for it.
func (s *Server) Fallbacks() []string { return s.fallbacks }

// Starts are the pinned start offsets that the server knows, from the chief or from its snapshots.
func (s *Server) Starts() map[int32]int64 { return maps.Clone(*s.starts.Load()) }
