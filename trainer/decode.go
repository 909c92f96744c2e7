package trainer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/kale-sched/kale/core/rpc"
)

// Example is one record as the model sees it.
type Example struct {
	// Label is 0 or 1.
	Label float32
	// Sparse holds one row id per sparse field, Dense one number per dense field, in the order of the job's features.
	Sparse []uint64
	Dense  []float32
	// Seen says which fields the record has, and not as null: the sparse ones, then the dense ones.
	Seen []bool
}

// RowID is the id of the embedding row of a sparse field's value: xxhash64 of the field's index (4 bytes, little-endian) and the
// value's bytes. Stored state depends on it: it must never change.
func RowID(field int, value []byte) uint64 {
	var room [128]byte
	b := binary.LittleEndian.AppendUint32(room[:0], uint32(field))
	return xxhash.Sum64(append(b, value...))
}

// MaxDense bounds a dense value's magnitude. Values enter the model as they are. The gradient of the weight of a dense value x is at most |x| in logistic regression,
// whatever its weights are, since the records of a batch weigh 1 together; in a network it is at most |x| times, of each layer above, its width times its largest
// weight, for which the bound leaves a factor of 100,000 below what parameter servers take (ps.MaxGradient). AdaGrad and Adam move a weight by about
// the learning rate at most, however large a gradient is, so that the factor is not used up; SGD has no such limit. Times in milliseconds since 1970 are within.
const MaxDense = 1e13

// Decoder turns a record's value into an Example. It is safe for concurrent use.
//
// A sparse field holds one string, number or boolean; absent and null are the empty string. A dense field holds a number within ±MaxDense (or a
// boolean, or a string that is such a number); absent and null are 0. The label must be there, and be 0, 1, true or false. Anything else
// is an error, and the record goes to the dead-letter topic.
type Decoder struct {
	label string
	slots map[string]*slot
	nSp   int
	nDe   int
	parse func(d *Decoder, value []byte, ex *Example) error
}

// slot says what a field is used for; −1 means not.
type slot struct {
	name          string
	label         bool
	sparse, dense int
}

// NewDecoder checks the features and returns their decoder.
func NewDecoder(f *rpc.FeatureSpec) (*Decoder, error) {
	d := &Decoder{label: f.GetLabel(), slots: map[string]*slot{}, nSp: len(f.GetSparse()), nDe: len(f.GetDense())}
	switch f.GetFormat() {
	case "json":
		d.parse = (*Decoder).json
	case "tfexample":
		d.parse = (*Decoder).tfExample
	default:
		return nil, fmt.Errorf("record format %q is not one of json, tfexample", f.GetFormat())
	}
	if d.label == "" {
		return nil, errors.New("features name no label")
	}
	d.slot(d.label).label = true
	for i, name := range f.GetSparse() {
		s := d.slot(name)
		if s.sparse >= 0 {
			return nil, fmt.Errorf("sparse field %q is named twice", name)
		}
		s.sparse = i
	}
	for i, name := range f.GetDense() {
		s := d.slot(name)
		if s.dense >= 0 {
			return nil, fmt.Errorf("dense field %q is named twice", name)
		}
		s.dense = i
	}
	return d, nil
}

func (d *Decoder) slot(name string) *slot {
	s := d.slots[name]
	if s == nil {
		s = &slot{name: name, sparse: -1, dense: -1}
		d.slots[name] = s
	}
	return s
}

// Decode reads a record's value into ex, reusing its slices.
func (d *Decoder) Decode(value []byte, ex *Example) error {
	ex.Sparse = slices.Grow(ex.Sparse[:0], d.nSp)[:d.nSp]
	ex.Dense = slices.Grow(ex.Dense[:0], d.nDe)[:d.nDe]
	for i := range ex.Sparse {
		ex.Sparse[i] = RowID(i, nil)
	}
	clear(ex.Dense)
	ex.Seen = slices.Grow(ex.Seen[:0], d.nSp+d.nDe)[:d.nSp+d.nDe]
	clear(ex.Seen)
	ex.Label = float32(math.NaN())
	if err := d.parse(d, value, ex); err != nil {
		return err
	}
	if ex.Label != ex.Label {
		return fmt.Errorf("label field %q is missing", d.label)
	}
	return nil
}

// scalar is a field's value as the formats have it: text is what a row id is made of.
type scalar struct {
	text   []byte
	number float64
	// numeric says that number holds the value.
	numeric bool
}

// set uses a value for everything that its field is used for.
func (d *Decoder) set(s *slot, v scalar, ex *Example) error {
	if s.sparse >= 0 {
		ex.Sparse[s.sparse] = RowID(s.sparse, v.text)
		ex.Seen[s.sparse] = true
	}
	if s.dense < 0 && !s.label {
		return nil
	}
	n := v.number
	if !v.numeric {
		var err error
		if n, err = strconv.ParseFloat(strings.TrimSpace(string(v.text)), 64); err != nil {
			return fmt.Errorf("field %q is %s, not a number", s.name, quoted(v.text))
		}
	}
	if s.dense >= 0 {
		if !(math.Abs(n) <= MaxDense) {
			return fmt.Errorf("dense field %q is %g, not finite or beyond ±%g", s.name, n, MaxDense)
		}
		ex.Dense[s.dense] = float32(n)
		ex.Seen[d.nSp+s.dense] = true
	}
	if s.label {
		if n != 0 && n != 1 {
			return fmt.Errorf("label field %q is %s, not 0 or 1", s.name, quoted(v.text))
		}
		ex.Label = float32(n)
	}
	return nil
}

// quoted shortens a value for a message.
func quoted(b []byte) string {
	if len(b) > 40 {
		return strconv.Quote(string(b[:40])) + "…"
	}
	return strconv.Quote(string(b))
}
