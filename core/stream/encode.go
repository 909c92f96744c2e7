package stream

import (
	"fmt"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// Format is how click records are written.
type Format string

const (
	// FormatJSON is {"click":0,"user":"u123","item":"i45","category":"c7","slot":"s3","price":0.37,"age":0.12}.
	FormatJSON Format = "json"
	// FormatExample is a tf.train.Example with the same features: click as int64_list, the four names as bytes_list,
	// price and age as float_list, each of one value.
	FormatExample Format = "example"
)

// ParseFormat reads a format's name; empty means JSON.
func ParseFormat(s string) (Format, error) {
	switch f := Format(s); f {
	case "":
		return FormatJSON, nil
	case FormatJSON, FormatExample:
		return f, nil
	}
	return "", fmt.Errorf("record format %q: want %q or %q", s, FormatJSON, FormatExample)
}

// Append appends the record's value in format f to dst.
func (c *Clicks) Append(dst []byte, f Format, k Click) []byte {
	if f == FormatExample {
		return c.appendExample(dst, k)
	}
	return c.appendJSON(dst, k)
}

func (c *Clicks) appendJSON(dst []byte, k Click) []byte {
	if k.Clicked {
		dst = append(dst, `{"click":1`...)
	} else {
		dst = append(dst, `{"click":0`...)
	}
	dst = append(dst, c.jsonUser[k.User]...)
	dst = append(dst, c.jsonItem[k.Item]...)
	dst = strconv.AppendInt(dst, int64(k.Slot), 10)
	dst = append(dst, `","price":`...)
	dst = appendHundredths(dst, k.Price)
	dst = append(dst, `,"age":`...)
	dst = appendHundredths(dst, k.Age)
	return append(dst, '}')
}

// appendHundredths writes a number from 0 to 1 with two decimals.
func appendHundredths(dst []byte, x float64) []byte {
	n := int(x*100 + 0.5)
	return append(dst, byte('0'+n/100), '.', byte('0'+n/10%10), byte('0'+n%10))
}

// Field numbers of tf.train.Example (TensorFlow's core/example protos): Example.features = 1, Features.feature = 1 (a
// map: key 1, value 2), Feature.bytes_list = 1, float_list = 2, int64_list = 3, and in each list value = 1.
const (
	listBytes = 1
	listFloat = 2
	listInt64 = 3
)

// exampleStrings holds the entries of an Example's feature map that do not change from record to record.
type exampleStrings struct {
	user, item, category, slot [][]byte
	click                      [2][]byte
}

func newExampleStrings() exampleStrings {
	names := func(feature, prefix string, n int) [][]byte {
		out := make([][]byte, n)
		for i := range out {
			value := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte(prefix+strconv.Itoa(i)))
			out[i] = exampleFeature(feature, listBytes, value)
		}
		return out
	}
	s := exampleStrings{
		user:     names("user", "u", ClickUsers),
		item:     names("item", "i", ClickItems),
		category: names("category", "c", ClickCategories),
		slot:     names("slot", "s", ClickSlots),
	}
	for v := range uint64(2) {
		packed := protowire.AppendVarint(nil, v)
		s.click[v] = exampleFeature("click", listInt64, protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), packed))
	}
	return s
}

// exampleFeature is one entry of the map Features.feature, with its tag.
func exampleFeature(name string, list protowire.Number, values []byte) []byte {
	feature := protowire.AppendBytes(protowire.AppendTag(nil, list, protowire.BytesType), values)
	entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
	entry = protowire.AppendBytes(protowire.AppendTag(entry, 2, protowire.BytesType), feature)
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), entry)
}

func (c *Clicks) appendExample(dst []byte, k Click) []byte {
	s := &c.exampleStrings
	click := s.click[0]
	if k.Clicked {
		click = s.click[1]
	}
	price := exampleFeature("price", listFloat, packedFloat(k.Price))
	age := exampleFeature("age", listFloat, packedFloat(k.Age))
	parts := [...][]byte{click, s.user[k.User], s.item[k.Item], s.category[k.Category], s.slot[k.Slot], price, age}
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(size))
	for _, p := range parts {
		dst = append(dst, p...)
	}
	return dst
}

func packedFloat(x float64) []byte {
	packed := protowire.AppendFixed32(nil, math.Float32bits(float32(x)))
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), packed)
}
