package onnx_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/onnx/onnxtest"
)

// written is a small model with everything that Load reads.
func written(t testing.TB) []byte {
	t.Helper()
	g := onnx.NewGraph()
	x, n := g.Input("x", onnx.Float32, 4, 2), g.Input("n", onnx.Int64, 4)
	h := g.Gemm(x, g.Const([]float32{1, 2, 3, 4}, 2, 2), nil, false, true)
	g.Output("y", g.Transpose(g.Add(h, g.Unsqueeze(g.Cast(n, onnx.Float32), 1)), 1, 0))
	g.Output("total", g.ReduceSum(h, false))
	model, err := g.Model(map[string]string{"kale.forecast": "linear", "": "empty key", "unicode": "λ"})
	if err != nil {
		t.Fatal(err)
	}
	return model
}

func TestLoadReadsWhatModelWrote(t *testing.T) {
	m, err := onnx.Load(written(t))
	if err != nil {
		t.Fatal(err)
	}
	want := &onnx.Model{
		Bytes:    written(t),
		Producer: "kale",
		Opset:    onnx.Opset,
		Inputs:   []onnx.TensorInfo{{Name: "x", Type: onnx.Float32, Shape: []int{4, 2}}, {Name: "n", Type: onnx.Int64, Shape: []int{4}}},
		Outputs:  []onnx.TensorInfo{{Name: "y", Type: onnx.Float32, Shape: []int{2, 4}}, {Name: "total", Type: onnx.Float32, Shape: []int{1}}},
		Metadata: map[string]string{"kale.forecast": "linear", "": "empty key", "unicode": "λ"},
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s := onnxtest.Session(t, m.Bytes) // ONNX Runtime reads the same bytes, checks every shape, and agrees
	copy(float32s(t, s, "x"), []float32{1, 0, 0, 1, 1, 1, 2, 0})
	run(t, s)
	if diff := cmp.Diff([]float32{1, 2, 3, 2, 3, 4, 7, 6}, float32s(t, s, "y")); diff != "" {
		t.Errorf("y (-want +got):\n%s", diff)
	}
}

// wire builds models as other tools may write them.
type wire []byte

func (w wire) bytes(field protowire.Number, b []byte) wire {
	return protowire.AppendBytes(protowire.AppendTag(w, field, protowire.BytesType), b)
}

func (w wire) varint(field protowire.Number, v uint64) wire {
	return protowire.AppendVarint(protowire.AppendTag(w, field, protowire.VarintType), v)
}

// value is a ValueInfoProto of the given dimensions (ONNX: name 1, type 2 { tensor_type 1 { elem_type 1, shape 2 { dim 1 } } }).
func value(name string, elem uint64, dims ...wire) wire {
	var shape wire
	for _, d := range dims {
		shape = shape.bytes(1, d)
	}
	return wire(nil).bytes(1, []byte(name)).bytes(2, wire(nil).bytes(1, wire(nil).varint(1, elem).bytes(2, shape)))
}

func file(graph wire) []byte {
	return wire(nil).varint(1, 8).bytes(2, []byte("other")).bytes(8, wire(nil).varint(2, 15)).
		bytes(8, wire(nil).bytes(1, []byte("com.example")).varint(2, 99)).bytes(7, graph)
}

func TestLoadForeignModels(t *testing.T) {
	named, fixed := wire(nil).bytes(2, []byte("batch")), wire(nil).varint(1, 3)
	unranked := wire(nil).bytes(1, []byte("y")).bytes(2, wire(nil).bytes(1, wire(nil).varint(1, 1)))
	graph := wire(nil).
		bytes(11, value("x", 1, named, fixed)).
		bytes(11, value("w", 11)).bytes(5, wire(nil).bytes(8, []byte("w"))). // an initialiser listed as an input, as before IR 4
		bytes(12, unranked).
		varint(2000, 5) // a field that we do not know
	m, err := onnx.Load(file(graph))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]onnx.TensorInfo{{Name: "x", Type: onnx.Float32, Shape: []int{-1, 3}}}, m.Inputs); diff != "" {
		t.Errorf("inputs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]onnx.TensorInfo{{Name: "y", Type: onnx.Float32}}, m.Outputs); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
	if m.Opset != 15 || m.Producer != "other" {
		t.Errorf("opset %d by %q, want 15 by other", m.Opset, m.Producer)
	}
	if got, want := m.Inputs[0].String()+", "+m.Outputs[0].String(), "x float32[?,3], y float32[of unknown rank]"; got != want {
		t.Errorf("written as %q, want %q", got, want)
	}
}

func TestLoadRefuses(t *testing.T) {
	good := written(t)
	y := value("y", 1, wire(nil).varint(1, 1))
	tests := []struct {
		name, want string
		file       []byte
	}{
		{"empty", "the file is empty", nil},
		{"text", "not a usable ONNX file: it is cut short, or of another kind", []byte("hello, this is not a model\n")},
		{"cut short", "not a usable ONNX file: it is cut short, or of another kind", good[:len(good)/2]},
		{"no graph", "it has no graph", wire(nil).varint(1, 8)},
		{"no opset", "operator set", wire(nil).bytes(7, wire(nil).bytes(12, y))},
		{"no outputs", "no outputs", file(wire(nil).bytes(11, y))},
		{"sequence", "not a tensor", file(wire(nil).bytes(12, wire(nil).bytes(1, []byte("s")).bytes(2, wire(nil).bytes(4, nil))))},
		{"negative dimension", `"y": dimension -1 is out of range`, file(wire(nil).bytes(12, value("y", 1, wire(nil).varint(1, 1<<64-1))))},
		{"opset out of range", "operator set version", wire(nil).bytes(8, wire(nil).varint(2, 1<<40)).bytes(7, wire(nil).bytes(12, y))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := onnx.Load(tt.file); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to say %q", err, tt.want)
			}
		})
	}
}

func TestExpect(t *testing.T) {
	m, err := onnx.Load(written(t))
	if err != nil {
		t.Fatal(err)
	}
	x, n := onnx.TensorInfo{Name: "x", Type: onnx.Float32, Shape: []int{-1, 2}}, onnx.TensorInfo{Name: "n", Type: onnx.Int64}
	y := onnx.TensorInfo{Name: "y", Type: onnx.Float32, Shape: []int{2, 4}}
	if err := m.Expect([]onnx.TensorInfo{x, n}, []onnx.TensorInfo{y}); err != nil {
		t.Error(err)
	}
	x.Shape[1], y.Name = 3, "z"
	err = m.Expect([]onnx.TensorInfo{x}, []onnx.TensorInfo{y})
	for _, part := range []string{`input "x": want float32[?,3], got float32[4,2]`, "output z float32[2,4] is missing", "another input, n int64[4]"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("got %v, want it to say %q", err, part)
		}
	}
}

// FuzzLoad feeds Load bytes of any kind: it answers, without a panic, and what it accepts is consistent.
func FuzzLoad(f *testing.F) {
	f.Add(written(f))
	f.Add(file(wire(nil).bytes(12, value("y", 1))))
	f.Add([]byte{0x3a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := onnx.Load(b)
		if (m == nil) == (err == nil) {
			t.Fatalf("model %v with error %v", m, err)
		}
		if err != nil {
			return
		}
		if len(m.Outputs) == 0 || m.Opset == 0 || m.Metadata == nil {
			t.Errorf("accepted without outputs, operator set or metadata: %+v", m)
		}
		if err := m.Expect(m.Inputs, m.Outputs); err != nil && !duplicates(m) {
			t.Errorf("a model does not keep the contract that it states: %v", err)
		}
	})
}

func duplicates(m *onnx.Model) bool {
	seen := map[string]bool{}
	for _, group := range [][]onnx.TensorInfo{m.Inputs, m.Outputs} {
		for _, i := range group {
			if seen[i.Name] {
				return true
			}
			seen[i.Name] = true
		}
	}
	return false
}
