package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// fieldStats is what samples show about one field.
type fieldStats struct {
	name     string
	seen     int             // samples that have it
	texts    int             // of them, those with text
	integers int             // of them, those with a whole number
	beyond   int             // of them, those with a number that no numeric field may have
	binary   int             // of them, those with 0 or 1 (or a truth value)
	values   map[string]bool // distinct values, up to mostValues
	early    int             // how many distinct values the first mostValues samples have
}

const mostValues = 1000

func (f *fieldStats) add(v value) {
	f.seen++
	text := v.text
	if v.numeric {
		text = fmt.Sprint(v.number)
		if v.number == math.Trunc(v.number) {
			f.integers++
		}
		if math.Abs(v.number) > MaxDense {
			f.beyond++
		}
		if v.number == 0 || v.number == 1 {
			f.binary++
		}
	} else {
		f.texts++
	}
	if len(f.values) < mostValues {
		f.values[text] = true
	}
	if f.seen <= mostValues {
		f.early = len(f.values)
	}
}

// fewestForUnique is how many records must be looked at before their being all different means something.
const fewestForUnique = 100

// unique says that nearly every record has a value of its own.
func (f *fieldStats) unique() bool {
	return f.seen >= fewestForUnique && 20*f.early >= 19*min(f.seen, mostValues)
}

// survey is what samples show about a stream: its format and its fields, in the order of their names.
type survey struct {
	format  string
	samples int // that could be read
	fields  []*fieldStats
	nested  []string // fields that hold a list or an object wherever they are
	bad     int      // samples that could not be read
	why     error    // of the first of these
}

// fewBad is one in how many samples may be unreadable in a stream that is worth training on.
const fewBad = 10

// few says that so many of all are few enough to do without.
func few(n, all int) bool { return n*fewBad <= all }

// look reads samples, all as JSON objects or all as tf.train.Example. Fields that hold neither a text nor a number are
// left out.
func look(samples [][]byte) (survey, error) {
	if len(samples) == 0 {
		return survey{}, errors.New("no records to look at: is anything written to the topic?")
	}
	s, jsonErr := surveyWith(samples, FormatJSON)
	if jsonErr == nil {
		return s, nil
	}
	s, exampleErr := surveyWith(samples, FormatTFExample)
	if exampleErr == nil {
		return s, nil
	}
	return survey{}, fmt.Errorf("records are neither JSON objects (%w) nor tf.train.Example (%w)", jsonErr, exampleErr)
}

// value is what a record has in one field: a text or a number.
type value struct {
	text    string
	number  float64
	numeric bool // it is number, not text
	// several says that it is a list or an object, of which text or number is the first value, if anything.
	several, nothing bool
}

// takeApart takes a record of one format apart. Fields that are absent or null are not in it.
type takeApart func(record []byte) (map[string]value, error)

// readers are those of the formats, by name.
var readers = map[string]takeApart{FormatJSON: readJSON, FormatTFExample: readExample}

func surveyWith(samples [][]byte, format string) (survey, error) {
	s := survey{format: format}
	fields, nested := map[string]*fieldStats{}, map[string]bool{}
	for i, sample := range samples {
		record, err := readers[format](sample)
		if err != nil {
			if s.bad++; s.bad == 1 {
				s.why = fmt.Errorf("record %d of %d: %w", i+1, len(samples), err)
			}
			if !few(s.bad, len(samples)) {
				return survey{}, s.why
			}
			continue
		}
		for name, v := range record {
			if v.nothing {
				nested[name] = nested[name] || v.several
				continue
			}
			f := fields[name]
			if f == nil {
				f = &fieldStats{name: name, values: map[string]bool{}}
				fields[name] = f
			}
			f.add(v)
		}
	}
	s.samples = len(samples) - s.bad
	for _, f := range fields {
		s.fields = append(s.fields, f)
	}
	for _, name := range slices.Sorted(maps.Keys(nested)) {
		if fields[name] == nil && nested[name] {
			s.nested = append(s.nested, name)
		}
	}
	slices.SortFunc(s.fields, func(a, b *fieldStats) int { return strings.Compare(a.name, b.name) })
	if len(s.fields) == 0 {
		return survey{}, errors.New("no record has a field with a text or a number" + s.unseen())
	}
	return s, nil
}

// unseen says which fields were not looked into, as the end of a sentence.
func (s survey) unseen() string {
	if len(s.nested) == 0 {
		return ""
	}
	return fmt.Sprintf("; lists and objects are not looked into (%s): a feature or a label is a field of its own, at the top of the record", strings.Join(s.nested, ", "))
}

func readJSON(record []byte) (map[string]value, error) {
	var object map[string]any
	if err := json.Unmarshal(record, &object); err != nil {
		if other := new(json.UnmarshalTypeError); errors.As(err, &other) {
			if other.Type.Kind() != reflect.Map { // somewhere in it
				return nil, fmt.Errorf("the %s in it is too large", other.Value)
			}
			return nil, fmt.Errorf("it is a JSON %s and no object", other.Value)
		}
		return nil, err
	}
	if object == nil {
		return nil, errors.New("null is no object")
	}
	fields := make(map[string]value, len(object))
	for name, v := range object {
		switch v := v.(type) {
		case string:
			fields[name] = value{text: v}
		case float64:
			fields[name] = value{number: v, numeric: true}
		case bool:
			n := value{numeric: true}
			if v {
				n.number = 1
			}
			fields[name] = n
		case nil:
		default:
			fields[name] = value{several: true, nothing: true}
		}
	}
	return fields, nil
}

// readExample reads a tf.train.Example: Example{1: Features{1: map<string, Feature>}}, where a Feature holds one of
// bytes_list (1), float_list (2) and int64_list (3), and each list its values in field 1.
func readExample(record []byte) (map[string]value, error) {
	found := 0
	fields := map[string]value{}
	err := messages(record, 1, func(features []byte) error {
		return messages(features, 1, func(entry []byte) error {
			found++
			var name string
			var feature []byte
			if err := messages(entry, 1, func(key []byte) error { name = string(key); return nil }); err != nil {
				return err
			}
			if err := messages(entry, 2, func(value []byte) error { feature = value; return nil }); err != nil {
				return err
			}
			return readFeature(feature, func(v value) { fields[name] = v })
		})
	})
	if err == nil && found == 0 {
		return nil, errors.New("no features")
	}
	return fields, err
}

func readFeature(feature []byte, found func(value)) error {
	readers := []func([]byte) (value, int){
		func(b []byte) (value, int) {
			v, n := protowire.ConsumeBytes(b)
			return value{text: string(v)}, n
		},
		func(b []byte) (value, int) {
			v, n := protowire.ConsumeFixed32(b)
			return value{number: float64(math.Float32frombits(v)), numeric: true}, n
		},
		func(b []byte) (value, int) {
			v, n := protowire.ConsumeVarint(b)
			return value{number: float64(int64(v)), numeric: true}, n
		},
	}
	for i, read := range readers {
		packable := i > 0 // Numbers may be packed into one field.
		err := messages(feature, protowire.Number(i+1), func(list []byte) error {
			if len(list) == 0 {
				return nil
			}
			v, err := first(list, packable, read)
			if err == nil {
				found(v)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// first reads the first value of field 1 of a list, and sees whether there are more. read returns how much it took, negative for an error.
func first(list []byte, packable bool, read func([]byte) (value, int)) (value, error) {
	number, kind, n := protowire.ConsumeTag(list)
	if n < 0 || number != 1 {
		return value{}, errors.New("not a list of feature values")
	}
	values, more := list[n:], 0
	if packable && kind == protowire.BytesType {
		packed, n := protowire.ConsumeBytes(values)
		if n < 0 {
			return value{}, protowire.ParseError(n)
		}
		if len(packed) == 0 {
			return value{nothing: true}, nil
		}
		values, more = packed, len(values)-n
	}
	v, n := read(values)
	if n < 0 {
		return value{}, protowire.ParseError(n)
	}
	v.several = len(values) > n || more > 0
	return v, nil
}

// messages hands every length-delimited field with this number to read, and passes over the others.
func messages(b []byte, number protowire.Number, read func([]byte) error) error {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if field != number || kind != protowire.BytesType {
			n = protowire.ConsumeFieldValue(field, kind, b)
			if n < 0 {
				return protowire.ParseError(n)
			}
			b = b[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := read(value); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
