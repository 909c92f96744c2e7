package trainer

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kale-sched/kale/core/rpc"
)

func newTestDecoder(t testing.TB, format string) *Decoder {
	t.Helper()
	d, err := NewDecoder(&rpc.FeatureSpec{Format: format, Label: "click", Sparse: []string{"user", "item"}, Dense: []string{"price", "age"}})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func ids(user, item string) []uint64 { return []uint64{RowID(0, []byte(user)), RowID(1, []byte(item))} }

// TestRowIDIsForEver pins the hash: rows in checkpoints are found by it. Expected values are those of the XXH64 reference, seed 0, over
// the field's index (4 bytes, little-endian) and the value.
func TestRowIDIsForEver(t *testing.T) {
	for _, c := range []struct {
		field int
		value string
		want  uint64
	}{{0, "u1", 0xbf7395883891a708}, {1, "u1", 0xb5e2bcb04845350f}, {3, "", 0xb96bf0ae1e7fb2bf}} {
		if got := RowID(c.field, []byte(c.value)); got != c.want {
			t.Errorf("RowID(%d, %q) = %#x, want %#x", c.field, c.value, got, c.want)
		}
	}
}

func TestDecodeJSON(t *testing.T) {
	d := newTestDecoder(t, "json")
	for _, c := range []struct {
		name, in string
		want     Example
	}{
		{"plain", `{"click":1,"user":"u1","item":"i2","price":1.5,"age":30}`, Example{1, ids("u1", "i2"), []float32{1.5, 30}, []bool{true, true, true, true}}},
		{"numbers and booleans are values too", `{"click":false,"user":17,"item":true,"price":"2.5","age":true}`, Example{0, ids("17", "true"), []float32{2.5, 1}, []bool{true, true, true, true}}},
		{"absent and null", `{"click":0,"user":null,"age":null}`, Example{0, ids("", ""), []float32{0, 0}, []bool{false, false, false, false}}},
		{"space, nesting, other fields", " {\n\"x\" : [ 1 , {\"click\":9,\"y\":[]} , {} ] , \"click\"\t: true , \"z\":-0.5e+3 } \r\n", Example{1, ids("", ""), []float32{0, 0}, []bool{false, false, false, false}}},
		{"escapes in names and values", `{"\u0063lick":1,"user":"a\"b\\\u00e9\n","item":"é"}`, Example{1, ids("a\"b\\é\n", "é"), []float32{0, 0}, []bool{true, true, false, false}}},
		{"the last of two counts", `{"click":0,"click":1,"user":"a","user":"b"}`, Example{1, ids("b", ""), []float32{0, 0}, []bool{true, false, false, false}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ex Example
			if err := d.Decode([]byte(c.in), &ex); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, ex); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDecodeJSONErrors(t *testing.T) {
	d := newTestDecoder(t, "json")
	for _, c := range []struct{ in, want string }{
		{"", "must be a JSON object"},
		{"[]", "must be a JSON object"},
		{"null", "must be a JSON object"},
		{`{}`, `label field "click" is missing`},
		{`{"click":null}`, "is missing"},
		{`{"click":2}`, "not 0 or 1"},
		{`{"click":"yes"}`, "not a number"},
		{`{"click":1,"user":["a"]}`, `field "user" is a list`},
		{`{"click":1,"price":1e39}`, "finite"},
		{`{"click":1,"price":-1.0001e13}`, "beyond ±1e+13"},
		{`{"click":1,"price":1e999}`, "out of range"},
		{`{"click":1,"price":"NaN"}`, "finite"},
		{`{"click":1,"price":""}`, "not a number"},
		{`{"click":1} x`, "nothing after"},
		{`{"click":1,}`, "want a string"},
		{`{"click":01}`, "want ','"},
		{`{"click":1.}`, "digit after"},
		{`{"click":1e}`, "exponent"},
		{`{"click":-}`, "digit"},
		{`{"click":1,"user":"a`, "ends too early"},
		{`{"click":1,"user":"a\`, "ends too early"},
		{`{"click":1,"user":"\x"}`, "escape"},
		{"{\"click\":1,\"user\":\"a\nb\"}", "control character"},
		{`{"click":tru}`, "want a value"},
		{`{"x":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `,"click":1}`, "too deeply"},
	} {
		var ex Example
		err := d.Decode([]byte(c.in), &ex)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60s: error %v, want something about %q", c.in, err, c.want)
		}
	}
}

// tf builds a tf.train.Example field by field.
type tf []byte

func (b *tf) feature(name string, kind protowire.Number, list []byte) {
	feature := protowire.AppendBytes(protowire.AppendTag(nil, kind, protowire.BytesType), list)
	entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
	entry = protowire.AppendBytes(protowire.AppendTag(entry, 2, protowire.BytesType), feature)
	*b = protowire.AppendBytes(protowire.AppendTag(*b, 1, protowire.BytesType), entry)
}

func (b *tf) text(name string, values ...string) {
	var list []byte
	for _, v := range values {
		list = protowire.AppendString(protowire.AppendTag(list, 1, protowire.BytesType), v)
	}
	b.feature(name, 1, list)
}

func (b *tf) floats(name string, packed bool, values ...float32) {
	var list, pack []byte
	for _, v := range values {
		pack = protowire.AppendFixed32(pack, math.Float32bits(v))
		list = protowire.AppendFixed32(protowire.AppendTag(list, 1, protowire.Fixed32Type), math.Float32bits(v))
	}
	if packed {
		list = protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), pack)
	}
	b.feature(name, 2, list)
}

func (b *tf) ints(name string, packed bool, values ...int64) {
	var list, pack []byte
	for _, v := range values {
		pack = protowire.AppendVarint(pack, uint64(v))
		list = protowire.AppendVarint(protowire.AppendTag(list, 1, protowire.VarintType), uint64(v))
	}
	if packed {
		list = protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), pack)
	}
	b.feature(name, 3, list)
}

func (b tf) example() []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), b)
}

func TestDecodeTFExample(t *testing.T) {
	d := newTestDecoder(t, "tfexample")
	for _, packed := range []bool{true, false} {
		var b tf
		b.ints("click", packed, 1)
		b.text("user", "u1")
		b.ints("item", packed, -7)
		b.floats("price", packed, 1.5)
		b.ints("age", packed, 30)
		b.text("other", "a", "b")
		var ex Example
		if err := d.Decode(b.example(), &ex); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(Example{1, ids("u1", "-7"), []float32{1.5, 30}, []bool{true, true, true, true}}, ex); diff != "" {
			t.Errorf("packed %v: %s", packed, diff)
		}
	}
	// JSON and tf.train.Example of the same integer are the same row.
	var js, pb Example
	var b tf
	b.ints("click", true, 1)
	b.ints("user", true, 42)
	if err := d.Decode(b.example(), &pb); err != nil {
		t.Fatal(err)
	}
	if err := newTestDecoder(t, "json").Decode([]byte(`{"click":1,"user":42}`), &js); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(js, pb); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeTFExampleErrors(t *testing.T) {
	d := newTestDecoder(t, "tfexample")
	var two, empty, float, wrong tf
	two.ints("click", true, 1)
	two.text("user", "a", "b")
	empty.ints("click", true)
	float.ints("click", true, 1)
	float.floats("price", true, float32(math.Inf(1)))
	wrong.feature("click", 3, protowire.AppendFixed32(protowire.AppendTag(nil, 1, protowire.Fixed32Type), 1))
	var good tf
	good.ints("click", true, 1)
	for _, c := range []struct {
		name string
		in   []byte
		want string
	}{
		{"nothing", nil, "is missing"},
		{"two values", two.example(), "has 2 values"},
		{"an empty list", empty.example(), "is missing"},
		{"infinite", float.example(), "finite"},
		{"wire type", wrong.example(), "wire type"},
		{"cut off", good.example()[:8], "EOF"},
		{"not protobuf", []byte("{\"click\":1}"), ""},
	} {
		var ex Example
		err := d.Decode(c.in, &ex)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want something about %q", c.name, err, c.want)
		}
	}
}

func TestNewDecoderErrors(t *testing.T) {
	for _, c := range []struct {
		f    *rpc.FeatureSpec
		want string
	}{
		{&rpc.FeatureSpec{Format: "csv", Label: "l"}, "csv"},
		{&rpc.FeatureSpec{Format: "json"}, "label"},
		{&rpc.FeatureSpec{Format: "json", Label: "l", Sparse: []string{"a", "a"}}, "twice"},
		{&rpc.FeatureSpec{Format: "json", Label: "l", Dense: []string{"a", "a"}}, "twice"},
	} {
		if _, err := NewDecoder(c.f); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want something about %q", c.f, err, c.want)
		}
	}
	// One field may be sparse and dense at once, and even the label may be a feature: that is the user's business.
	d, err := NewDecoder(&rpc.FeatureSpec{Format: "json", Label: "l", Sparse: []string{"a"}, Dense: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	var ex Example
	if err := d.Decode([]byte(`{"l":1,"a":7}`), &ex); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Example{1, []uint64{RowID(0, []byte("7"))}, []float32{7}, []bool{true, true}}, ex); diff != "" {
		t.Error(diff)
	}
}

// FuzzDecodeJSON compares the hand-written scanner with encoding/json: it accepts no text that is not a JSON object, and of the label it sees the same.
func FuzzDecodeJSON(f *testing.F) {
	for _, s := range []string{`{"click":1,"user":"u","price":0.5,"x":[{},[],null,-1e5]}`, `{"\u0063lick":1}`, `{"click":1}{`, "{\"click\":1,\"user\":\"\xff\"}"} {
		f.Add([]byte(s))
	}
	d := newTestDecoder(f, "json")
	f.Fuzz(func(t *testing.T, in []byte) {
		var ex Example
		if err := d.Decode(in, &ex); err != nil {
			return
		}
		if len(ex.Sparse) != 2 || len(ex.Dense) != 2 || ex.Label != 0 && ex.Label != 1 {
			t.Fatalf("%q gives %+v", in, ex)
		}
		for _, v := range ex.Dense {
			if v-v != 0 {
				t.Fatalf("%q gives %+v", in, ex)
			}
		}
		var tree map[string]any
		if err := json.Unmarshal(in, &tree); err != nil {
			t.Fatalf("%q was decoded, and encoding/json says: %v", in, err)
		}
	})
}

// FuzzDecodeTFExample: no input makes the parser fail otherwise than by an error, and what it accepts is finite and whole.
func FuzzDecodeTFExample(f *testing.F) {
	var b tf
	b.ints("click", true, 1)
	b.text("user", "u")
	b.floats("price", false, 1)
	f.Add(b.example())
	d := newTestDecoder(f, "tfexample")
	f.Fuzz(func(t *testing.T, in []byte) {
		var ex Example
		if err := d.Decode(in, &ex); err != nil {
			return
		}
		if len(ex.Sparse) != 2 || len(ex.Dense) != 2 || ex.Label != 0 && ex.Label != 1 || ex.Dense[0]-ex.Dense[0] != 0 {
			t.Fatalf("%x gives %+v", in, ex)
		}
	})
}

func BenchmarkDecodeJSON(b *testing.B) {
	d := newTestDecoder(b, "json")
	in := []byte(`{"ts":1732155000123,"click":1,"user":"u8234","item":"i77","site":"s4","device":"mobile","price":0.731,"age":34.5,"ctx":{"a":[1,2,3]}}`)
	var ex Example
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Decode(in, &ex); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeTFExample(b *testing.B) {
	d := newTestDecoder(b, "tfexample")
	var e tf
	e.ints("click", true, 1)
	e.text("user", "u8234")
	e.text("item", "i77")
	e.floats("price", true, 0.731)
	e.floats("age", true, 34.5)
	in := e.example()
	var ex Example
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Decode(in, &ex); err != nil {
			b.Fatal(err)
		}
	}
}
