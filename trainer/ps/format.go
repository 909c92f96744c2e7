package ps

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/kale-sched/kale/trainer/spans"
)

// A tablet's snapshot, inside the frame that package checkpoint gives it (identity, length, checksum):
//
//	uint32 version, uint32 length of the header, the header as JSON, then, little-endian and without gaps,
//	Rows ids (8 bytes), Rows×RowWidth×(1+Slots) float32, Dense×(1+Slots) float32, Counts ids (8 bytes), Counts int64.
const formatVersion = 1

// snapshotHeader says what a snapshot is of and what follows it. It is JSON so that a person can read it with `strings`.
type snapshotHeader struct {
	Job         string          `json:"job"`
	Topic       string          `json:"topic"`
	Fingerprint string          `json:"fingerprint"`
	Timeline    string          `json:"timeline"`
	Tablet      int             `json:"tablet"`
	Tablets     int             `json:"tablets"`
	Starts      map[int32]int64 `json:"starts"`
	Optimiser   string          `json:"optimiser"`
	Slots       int             `json:"slots"`
	RowWidth    int             `json:"row_width"`
	Rows        int             `json:"rows"`
	Dense       int             `json:"dense"`
	Steps       int64           `json:"steps"`
	Counting    bool            `json:"counting,omitempty"`
	Counts      int             `json:"counts,omitempty"`
	Counted     int64           `json:"counted,omitempty"`
	Partitions  []partitionHead `json:"partitions"`
}

type partitionHead struct {
	Partition int32     `json:"partition"`
	Applied   spans.Set `json:"applied"`
	sums
}

// header describes a view as the server's options would have it.
func (o *Options) header(v *tabletView, starts map[int32]int64) snapshotHeader {
	h := snapshotHeader{
		Job: o.Job, Topic: o.Topic, Fingerprint: o.Fingerprint, Timeline: o.Timeline,
		Tablet: v.tablet, Tablets: o.Layout.tablets, Starts: starts,
		Optimiser: o.Optimiser.Kind, Slots: o.Optimiser.slots(), RowWidth: o.RowWidth,
		Rows: len(v.rows.ids), Dense: o.Layout.DenseBlock(v.tablet).Len(), Steps: v.steps,
		Counting: o.Counting, Counts: len(v.counts.ids), Counted: v.counted,
	}
	for p := range v.ledgers {
		if l := &v.ledgers[p]; !l.applied.Empty() {
			h.Partitions = append(h.Partitions, partitionHead{int32(p), l.applied, l.sums})
		}
	}
	return h
}

// writeSnapshot writes a view as a snapshot's body.
func writeSnapshot(w io.Writer, h snapshotHeader, v *tabletView) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	head := binary.LittleEndian.AppendUint32(nil, formatVersion)
	head = binary.LittleEndian.AppendUint32(head, uint32(len(text)))
	if _, err := w.Write(append(head, text...)); err != nil {
		return err
	}
	out := numberWriter{w: w, buf: make([]byte, 0, 64<<10)}
	out.ids(v.rows.ids)
	for i := range v.rows.slabs {
		out.floats(v.rows.used(i))
	}
	out.floats(v.dense)
	out.ids(v.counts.ids)
	for i := range v.counts.slabs {
		for _, n := range v.counts.used(i) {
			out.word(uint64(n))
		}
	}
	return out.flush()
}

// numberWriter writes numbers through a buffer; the first error stays.
type numberWriter struct {
	w   io.Writer
	buf []byte
	err error
}

func (o *numberWriter) flush() error {
	if o.err == nil && len(o.buf) > 0 {
		_, o.err = o.w.Write(o.buf)
	}
	o.buf = o.buf[:0]
	return o.err
}

func (o *numberWriter) word(x uint64) {
	if len(o.buf)+8 > cap(o.buf) {
		_ = o.flush() // kept in err
	}
	o.buf = binary.LittleEndian.AppendUint64(o.buf, x)
}

func (o *numberWriter) ids(ids []uint64) {
	for _, id := range ids {
		o.word(id)
	}
}

func (o *numberWriter) floats(v []float32) {
	for len(v) > 0 {
		room := (cap(o.buf) - len(o.buf)) / 4
		if room == 0 {
			_ = o.flush() // kept in err
			continue
		}
		n := min(room, len(v))
		at := len(o.buf)
		o.buf = o.buf[:at+4*n]
		putFloats(o.buf[at:], v[:n])
		v = v[n:]
	}
}

// readHeader reads the head of a snapshot's body.
func readHeader(r io.Reader) (snapshotHeader, error) {
	var h snapshotHeader
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return h, fmt.Errorf("read its head: %w", err)
	}
	if v := binary.LittleEndian.Uint32(head[:]); v != formatVersion {
		return h, fmt.Errorf("it has format %d and this program reads %d: use the kale-trainer that wrote it", v, formatVersion)
	}
	size := binary.LittleEndian.Uint32(head[4:])
	text, err := io.ReadAll(io.LimitReader(r, int64(size)))
	if err != nil {
		return h, fmt.Errorf("read its header: %w", err)
	}
	if len(text) != int(size) {
		return h, fmt.Errorf("read its header: %w", io.ErrUnexpectedEOF)
	}
	if err := json.Unmarshal(text, &h); err != nil {
		return h, fmt.Errorf("read its header: %w", err)
	}
	return h, h.check()
}

// check refuses a header that does not make sense in itself.
func (h *snapshotHeader) check() error {
	if h.Rows < 0 || h.Dense < 0 || h.Counts < 0 || h.Slots < 0 || h.Slots > 2 || h.RowWidth < 0 || h.RowWidth > 1<<16 || h.Rows > math.MaxUint32 || h.Dense > math.MaxInt32 {
		return errors.New("its header has impossible sizes")
	}
	for _, p := range h.Partitions {
		if p.Partition < 0 || p.Partition >= maxPartition {
			return fmt.Errorf("its header has an impossible partition %d", p.Partition)
		}
	}
	return nil
}

// ledgers are the header's partitions as a tablet holds them. Each call gives sets of its own.
func (h *snapshotHeader) ledgers() []ledger {
	var out []ledger
	for _, p := range h.Partitions {
		for int(p.Partition) >= len(out) {
			out = append(out, ledger{})
		}
		out[p.Partition] = ledger{*p.Applied.Clone(), p.sums}
	}
	return out
}

// readBody fills an empty tablet from what follows the header.
func (h *snapshotHeader) readBody(r io.Reader, t *tablet) error {
	in := numberReader{r: r, buf: make([]byte, 64<<10)}
	t.steps, t.counted, t.ledgers = h.Steps, h.Counted, h.ledgers()
	t.rows = newTable[float32](h.RowWidth * (1 + h.Slots))
	rows := in.ids(h.Rows)
	for i := 0; i < len(rows) && in.err == nil; i++ {
		row, created := t.rows.write(rows[i], 0, 0)
		if !created {
			return fmt.Errorf("row %d is there twice", rows[i])
		}
		in.floats(row)
	}
	t.dense = &slab[float32]{v: make([]float32, h.Dense*(1+h.Slots))}
	in.floats(t.dense.v)
	t.counts = newTable[int64](1)
	for _, id := range in.ids(h.Counts) {
		row, created := t.counts.write(id, 0, 0)
		if !created {
			return fmt.Errorf("counter %d is there twice", id)
		}
		row[0] = int64(in.word())
	}
	return in.err
}

// numberReader is the inverse of numberWriter; the first error stays, and what is read after it is zero.
type numberReader struct {
	r   io.Reader
	buf []byte
	err error
}

func (in *numberReader) take(n int) []byte {
	b := in.buf[:n]
	if in.err == nil {
		_, in.err = io.ReadFull(in.r, b)
	}
	if in.err != nil {
		clear(b)
	}
	return b
}

func (in *numberReader) word() uint64 { return binary.LittleEndian.Uint64(in.take(8)) }

func (in *numberReader) ids(n int) []uint64 {
	var out []uint64
	for len(out) < n && in.err == nil {
		b := in.take(8 * min(n-len(out), len(in.buf)/8))
		for i := range len(b) / 8 {
			out = append(out, idAt(b, i))
		}
	}
	return out
}

func (in *numberReader) floats(v []float32) {
	for len(v) > 0 && in.err == nil {
		n := min(len(v), len(in.buf)/4)
		readFloats(v[:n], in.take(4*n))
		v = v[n:]
	}
}
