package ps

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"time"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/checkpoint"
	"github.com/kale-sched/kale/trainer/spans"
)

// Frozen is a job's model and its proof as they lie in the snapshot files: read without any server, for verification (EXACTLY_ONCE rules
// 19 and 20) and to evaluate a model that does not learn any more. Its tablets may be of different moments.
type Frozen struct {
	layout  Layout
	tablets []*tablet // nil: the tablet has no snapshot
	heads   []*snapshotHeader
	used    []checkpoint.Generation
	skipped []error
}

// ReadCheckpoint reads the newest snapshot that verifies of every tablet. The layout's number of servers does not matter. It is an
// error when tablets have snapshots and none can be read; snapshots that were skipped for an older one are listed by Skipped.
func ReadCheckpoint(store *checkpoint.Store, layout Layout) (*Frozen, error) {
	f := &Frozen{
		layout:  layout,
		tablets: make([]*tablet, layout.tablets), heads: make([]*snapshotHeader, layout.tablets), used: make([]checkpoint.Generation, layout.tablets),
	}
	for id := range f.tablets {
		t, h, g, bad, err := newestReadable(store, id, true, f.fits)
		if err != nil {
			return nil, err
		}
		f.tablets[id], f.heads[id], f.used[id] = t, h, g
		f.skipped = append(f.skipped, bad...)
	}
	return f, nil
}

// newestReadable reads the newest snapshot of a tablet that verifies, nil where it has none, and lists why newer ones could not be taken; with body false,
// only its header is kept. It is an error when there are snapshots and none can be read.
func newestReadable(store *checkpoint.Store, id int, body bool, acceptable func(*snapshotHeader) error) (*tablet, *snapshotHeader, checkpoint.Generation, []error, error) {
	for try := 0; ; try++ {
		all, err := store.Generations(id)
		if err != nil {
			return nil, nil, checkpoint.Generation{}, nil, fmt.Errorf("read checkpoint: %w", err)
		}
		var bad []error
		gone := false // a server that runs has replaced it by a newer one since it was listed
		for _, g := range all {
			t, h, err := readTablet(store, g, body, acceptable)
			if err == nil && !gone {
				return t, h, g, bad, nil
			}
			gone = gone || errors.Is(err, fs.ErrNotExist) && try < 10
			bad = append(bad, err)
		}
		switch {
		case len(all) == 0:
			return nil, nil, checkpoint.Generation{}, nil, nil
		case !gone:
			return nil, nil, checkpoint.Generation{}, nil, fmt.Errorf("read checkpoint: none of the %d snapshots of tablet %d can be read: %w", len(all), id, errors.Join(bad...))
		}
	}
}

// Ledgers is what the newest snapshots of a job's tablets have counted, without the model.
type Ledgers struct {
	// Sums are those of the tablets that have a snapshot, in tablet order.
	Sums []*rpc.TabletSums
	// Starts are the pinned start offsets that the snapshots know.
	Starts map[int32]int64
	// Oldest and Newest are when the first and the last of these snapshots were written.
	Oldest, Newest time.Time
	// Skipped are the newer snapshots that cannot be read.
	Skipped []error
}

// ReadLedgers reads, and verifies, the newest snapshot of each of a job's tablets of a timeline, and keeps only what they have counted. A job may run meanwhile.
func ReadLedgers(store *checkpoint.Store, tablets int, timeline string) (Ledgers, error) {
	out := Ledgers{Starts: map[int32]int64{}}
	fits := func(h *snapshotHeader) error {
		if h.Tablets != tablets || h.Timeline != timeline {
			return fmt.Errorf("the snapshot of tablet %d is of another job state: of %d tablets and timeline %s, not %d and %s", h.Tablet, h.Tablets, h.Timeline, tablets, timeline)
		}
		return nil
	}
	for id := range tablets {
		_, h, g, bad, err := newestReadable(store, id, false, fits)
		if err != nil {
			return Ledgers{}, err
		}
		out.Skipped = append(out.Skipped, bad...)
		if h == nil {
			continue
		}
		maps.Copy(out.Starts, h.Starts)
		out.Sums = append(out.Sums, tabletSums(id, g.Incarnation, h.Steps, h.ledgers(), h.Starts))
		info, err := os.Stat(store.Path(g))
		if err != nil { // replaced since it was read: by one of about now
			continue
		}
		if at := info.ModTime(); out.Oldest.IsZero() || at.Before(out.Oldest) {
			out.Oldest = at
		}
		if at := info.ModTime(); at.After(out.Newest) {
			out.Newest = at
		}
	}
	return out, nil
}

func (f *Frozen) fits(h *snapshotHeader) error {
	if h.Tablets != f.layout.tablets {
		return fmt.Errorf("the job has %d tablets, not %d", h.Tablets, f.layout.tablets)
	}
	if want := f.layout.DenseBlock(h.Tablet).Len(); h.Dense != want {
		return fmt.Errorf("tablet %d has %d dense weights, not %d", h.Tablet, h.Dense, want)
	}
	return nil
}

// Skipped lists the snapshots that could not be used and for which an older one was taken.
func (f *Frozen) Skipped() []error { return f.skipped }

// Tablets lists the tablets that have a snapshot.
func (f *Frozen) Tablets() []int {
	var out []int
	for i, t := range f.tablets {
		if t != nil {
			out = append(out, i)
		}
	}
	return out
}

// Sums lists what each tablet with a snapshot has counted, in tablet order; Incarnation is that of the snapshot.
func (f *Frozen) Sums() []*rpc.TabletSums {
	var out []*rpc.TabletSums
	for i, t := range f.tablets {
		if t != nil {
			out = append(out, tabletSums(i, f.used[i].Incarnation, t.steps, t.ledgers, f.heads[i].Starts))
		}
	}
	return out
}

// Applied is the set that a tablet has trained of a partition; empty when it has no snapshot.
func (f *Frozen) Applied(tablet int, partition int32) *spans.Set {
	t := f.tablet(tablet)
	if t == nil || partition < 0 || int(partition) >= len(t.ledgers) {
		return &spans.Set{}
	}
	return t.ledgers[partition].applied.Clone()
}

func (f *Frozen) tablet(i int) *tablet {
	if i < 0 || i >= len(f.tablets) {
		return nil
	}
	return f.tablets[i]
}

// Starts are the pinned start offsets that the snapshots know.
func (f *Frozen) Starts() map[int32]int64 {
	out := map[int32]int64{}
	for _, h := range f.heads {
		if h != nil {
			maps.Copy(out, h.Starts)
		}
	}
	return out
}

// Row is a trained row's weights, or false when no snapshot has it: it is then as the model's InitRow makes it. The slice is not to be changed.
func (f *Frozen) Row(id uint64) ([]float32, bool) {
	i := f.layout.TabletOfRow(id)
	t := f.tablets[i]
	if t == nil {
		return nil, false
	}
	row := t.rows.read(id)
	if row == nil {
		return nil, false
	}
	return row[:f.heads[i].RowWidth], true
}

// Rows is the number of trained rows.
func (f *Frozen) Rows() int {
	n := 0
	for _, t := range f.tablets {
		if t != nil {
			n += len(t.rows.ids)
		}
	}
	return n
}

// Dense fills the parts of the full dense vector that the snapshots have; the caller has put the model's initial values there.
func (f *Frozen) Dense(full []float32) error {
	if len(full) != f.layout.dense {
		return fmt.Errorf("the dense vector has %d weights, the buffer %d", f.layout.dense, len(full))
	}
	for i, t := range f.tablets {
		if t != nil {
			b := f.layout.DenseBlock(i)
			copy(full[b.Begin:b.End], t.dense.v[:b.Len()])
		}
	}
	return nil
}

// Counts are a tablet's counters of the counting model: per id, and the dense one.
func (f *Frozen) Counts(tablet int) (byID map[uint64]int64, total int64) {
	byID = map[uint64]int64{}
	t := f.tablet(tablet)
	if t == nil {
		return byID, 0
	}
	for _, id := range t.counts.ids {
		byID[id] = t.counts.read(id)[0]
	}
	return byID, t.counted
}
