package trainer

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// tfExample reads a tf.train.Example from its protobuf wire format:
//
//	Example { Features features = 1 }  Features { map<string, Feature> feature = 1 }
//	Feature { BytesList bytes_list = 1 | FloatList float_list = 2 | Int64List int64_list = 3 }, each with `repeated value = 1`
//
// Source: tensorflow/core/example/{example,feature}.proto. A named field must hold at most one value. Of a field that occurs
// twice, the last one counts, as protobuf has it for maps.
func (d *Decoder) tfExample(value []byte, ex *Example) error {
	return eachField(value, func(num protowire.Number, typ protowire.Type, features []byte, _ uint64) error {
		if num != 1 || typ != protowire.BytesType {
			return nil
		}
		return eachField(features, func(num protowire.Number, typ protowire.Type, entry []byte, _ uint64) error {
			if num != 1 || typ != protowire.BytesType {
				return nil
			}
			return d.tfEntry(entry, ex)
		})
	})
}

// tfEntry reads one entry of the map of features.
func (d *Decoder) tfEntry(entry []byte, ex *Example) error {
	var key, feature []byte
	err := eachField(entry, func(num protowire.Number, typ protowire.Type, b []byte, _ uint64) error {
		switch {
		case num == 1 && typ == protowire.BytesType:
			key = b
		case num == 2 && typ == protowire.BytesType:
			feature = b
		}
		return nil
	})
	if err != nil {
		return err
	}
	sl, ok := d.slots[string(key)]
	if !ok {
		return nil
	}
	v, n, err := tfFeature(feature)
	switch {
	case err != nil:
		return fmt.Errorf("field %q: %w", sl.name, err)
	case n == 0:
		return nil
	case n > 1:
		return fmt.Errorf("field %q has %d values; want one", sl.name, n)
	}
	return d.set(sl, v, ex)
}

// tfFeature returns the last value of a feature and how many it has.
func tfFeature(feature []byte) (v scalar, n int, err error) {
	err = eachField(feature, func(kind protowire.Number, typ protowire.Type, list []byte, _ uint64) error {
		if kind < 1 || kind > 3 || typ != protowire.BytesType {
			return nil
		}
		n = 0 // a oneof: the last list counts
		return eachField(list, func(num protowire.Number, typ protowire.Type, b []byte, bits uint64) error {
			if num != 1 {
				return nil
			}
			switch kind {
			case 1:
				return tfBytes(typ, b, &v, &n)
			case 2:
				return tfFloats(typ, b, bits, &v, &n)
			}
			return tfInts(typ, b, bits, &v, &n)
		})
	})
	return v, n, err
}

var errWireType = errors.New("a value has the wrong wire type")

func tfBytes(typ protowire.Type, b []byte, v *scalar, n *int) error {
	if typ != protowire.BytesType {
		return errWireType
	}
	*v = scalar{text: b}
	*n++
	return nil
}

func tfFloats(typ protowire.Type, b []byte, bits uint64, v *scalar, n *int) error {
	one := func(bits uint32) {
		f := math.Float32frombits(bits)
		*v = scalar{text: strconv.AppendFloat(nil, float64(f), 'g', -1, 32), number: float64(f), numeric: true}
		*n++
	}
	switch typ {
	case protowire.Fixed32Type:
		one(uint32(bits))
	case protowire.BytesType: // packed
		for len(b) > 0 {
			x, k := protowire.ConsumeFixed32(b)
			if k < 0 {
				return protowire.ParseError(k)
			}
			one(x)
			b = b[k:]
		}
	default:
		return errWireType
	}
	return nil
}

func tfInts(typ protowire.Type, b []byte, bits uint64, v *scalar, n *int) error {
	one := func(bits uint64) {
		*v = scalar{text: strconv.AppendInt(nil, int64(bits), 10), number: float64(int64(bits)), numeric: true}
		*n++
	}
	switch typ {
	case protowire.VarintType:
		one(bits)
	case protowire.BytesType: // packed
		for len(b) > 0 {
			x, k := protowire.ConsumeVarint(b)
			if k < 0 {
				return protowire.ParseError(k)
			}
			one(x)
			b = b[k:]
		}
	default:
		return errWireType
	}
	return nil
}

// eachField calls f with every field of a message: bytes for length-delimited fields, bits for the others. Groups are skipped.
func eachField(b []byte, f func(num protowire.Number, typ protowire.Type, bytes []byte, bits uint64) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		var bytes []byte
		var bits uint64
		switch typ {
		case protowire.VarintType:
			bits, n = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			var x uint32
			x, n = protowire.ConsumeFixed32(b)
			bits = uint64(x)
		case protowire.Fixed64Type:
			bits, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if err := f(num, typ, bytes, bits); err != nil {
			return err
		}
	}
	return nil
}
