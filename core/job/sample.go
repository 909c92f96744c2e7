package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
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
	binary   int             // of them, those with 0 or 1 (or a truth value)
	values   map[string]bool // distinct values, up to mostValues
}

const mostValues = 1000

func (f *fieldStats) number(v float64) {
	if v == math.Trunc(v) {
		f.integers++
	}
	if v == 0 || v == 1 {
		f.binary++
	}
	f.value(fmt.Sprint(v))
}

func (f *fieldStats) text(s string) {
	f.texts++
	f.value(s)
}

func (f *fieldStats) value(s string) {
	if len(f.values) < mostValues {
		f.values[s] = true
	}
}

// survey is what samples show about a stream: its format and its fields, in the order of their names.
type survey struct {
	format  string
	samples int
	fields  []*fieldStats
}

// look reads samples, all as JSON objects or all as tf.train.Example. Fields that hold neither a text nor a number are
// left out.
func look(samples [][]byte) (survey, error) {
	if len(samples) == 0 {
		return survey{}, errors.New("no records to look at: is anything written to the topic?")
	}
	s, jsonErr := surveyWith(samples, FormatJSON, readJSON)
	if jsonErr == nil {
		return s, nil
	}
	s, exampleErr := surveyWith(samples, FormatTFExample, readExample)
	if exampleErr == nil {
		return s, nil
	}
	return survey{}, fmt.Errorf("records are neither JSON objects (%w) nor tf.train.Example (%w)", jsonErr, exampleErr)
}

type collector map[string]*fieldStats

func (c collector) field(name string) *fieldStats {
	f := c[name]
	if f == nil {
		f = &fieldStats{name: name, values: map[string]bool{}}
		c[name] = f
	}
	f.seen++
	return f
}

func surveyWith(samples [][]byte, format string, read func([]byte, collector) error) (survey, error) {
	fields := collector{}
	for i, sample := range samples {
		if err := read(sample, fields); err != nil {
			return survey{}, fmt.Errorf("record %d of %d: %w", i+1, len(samples), err)
		}
	}
	s := survey{format: format, samples: len(samples)}
	for _, f := range fields {
		s.fields = append(s.fields, f)
	}
	slices.SortFunc(s.fields, func(a, b *fieldStats) int { return strings.Compare(a.name, b.name) })
	if len(s.fields) == 0 {
		return survey{}, errors.New("no record has a field with a text or a number")
	}
	return s, nil
}

func readJSON(record []byte, fields collector) error {
	var object map[string]any
	if err := json.Unmarshal(record, &object); err != nil {
		return err
	}
	for name, value := range object {
		switch v := value.(type) {
		case string:
			fields.field(name).text(v)
		case float64:
			fields.field(name).number(v)
		case bool:
			n := 0.0
			if v {
				n = 1
			}
			fields.field(name).number(n)
		}
	}
	return nil
}

// readExample reads a tf.train.Example: Example{1: Features{1: map<string, Feature>}}, where a Feature holds one of
// bytes_list (1), float_list (2) and int64_list (3), and each list its values in field 1.
func readExample(record []byte, fields collector) error {
	found := 0
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
			return readFeature(name, feature, fields)
		})
	})
	if err == nil && found == 0 {
		return errors.New("no features")
	}
	return err
}

func readFeature(name string, feature []byte, fields collector) error {
	readers := []func([]byte) int{
		func(b []byte) int {
			v, n := protowire.ConsumeBytes(b)
			if n > 0 {
				fields.field(name).text(string(v))
			}
			return n
		},
		func(b []byte) int {
			v, n := protowire.ConsumeFixed32(b)
			if n > 0 {
				fields.field(name).number(float64(math.Float32frombits(v)))
			}
			return n
		},
		func(b []byte) int {
			v, n := protowire.ConsumeVarint(b)
			if n > 0 {
				fields.field(name).number(float64(int64(v)))
			}
			return n
		},
	}
	for i, read := range readers {
		numeric := i > 0 // Numbers may be packed into one field.
		err := messages(feature, protowire.Number(i+1), func(list []byte) error { return first(list, numeric, read) })
		if err != nil {
			return err
		}
	}
	return nil
}

// first hands the first value of field 1 of a list to read, which returns how much it took, negative for an error.
func first(list []byte, numeric bool, read func([]byte) int) error {
	if len(list) == 0 {
		return nil
	}
	number, kind, n := protowire.ConsumeTag(list)
	if n < 0 || number != 1 {
		return errors.New("not a list of feature values")
	}
	values := list[n:]
	if numeric && kind == protowire.BytesType {
		packed, n := protowire.ConsumeBytes(values)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if len(packed) == 0 {
			return nil
		}
		values = packed
	}
	if n = read(values); n < 0 {
		return protowire.ParseError(n)
	}
	return nil
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
