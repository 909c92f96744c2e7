package onnx

import (
	"fmt"
	"strings"
)

// DType is the type of a tensor's elements, numbered as ONNX numbers them (TensorProto.DataType).
type DType int32

// The element types that graphs are built of. Models of others may use more; [Load] reports them by number.
const (
	Float32 DType = 1
	Int64   DType = 7
)

// dtypeNames names the other types that a model file may mention, for messages (onnx.proto, TensorProto.DataType).
var dtypeNames = map[DType]string{
	0: "undefined", Float32: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", Int64: "int64",
	8: "string", 9: "bool", 10: "float16", 11: "double", 12: "uint32", 13: "uint64", 16: "bfloat16",
}

func (d DType) String() string {
	if s, ok := dtypeNames[d]; ok {
		return s
	}
	return fmt.Sprintf("type %d", int32(d))
}

// TensorInfo says what a model's input or output is.
type TensorInfo struct {
	Name string
	Type DType
	// Shape has one entry per dimension, -1 where the model leaves it open. nil means that the model does not say, which is
	// not the same as a scalar (empty, not nil).
	Shape []int
}

// String writes it as people do: x float32[32,?].
func (t TensorInfo) String() string { return t.Name + " " + t.Type.String() + shapeString(t.Shape) }

// Tensor is a value in a [Graph]: an input, a constant, or what an operator returns. Its shape is fixed.
type Tensor struct {
	g      *Graph
	name   string
	dtype  DType
	shape  []int
	from   *node     // the operator that makes it; nil for inputs and constants
	floats []float32 // a constant's elements, by type
	ints   []int64
	bad    bool // the operator that should have made it failed; the graph holds the error
}

// Name is the tensor's name in the model: the caller's for inputs, the graph's own otherwise.
func (t *Tensor) Name() string { return t.name }

// DType is the type of its elements.
func (t *Tensor) DType() DType { return t.dtype }

// Shape is a copy of its dimensions; a scalar has none.
func (t *Tensor) Shape() []int { return append([]int{}, t.shape...) }

// Rank is the number of its dimensions.
func (t *Tensor) Rank() int { return len(t.shape) }

// Size is the number of its elements.
func (t *Tensor) Size() int { return product(t.shape) }

// String describes it in messages: "x" float32[32,8].
func (t *Tensor) String() string {
	return fmt.Sprintf("%q %s%s", t.name, t.dtype, shapeString(t.shape))
}

func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

func shapeString(shape []int) string {
	if shape == nil {
		return "[of unknown rank]"
	}
	var b strings.Builder
	b.WriteByte('[')
	for i, d := range shape {
		if i > 0 {
			b.WriteByte(',')
		}
		if d < 0 {
			b.WriteByte('?')
		} else {
			fmt.Fprint(&b, d)
		}
	}
	b.WriteByte(']')
	return b.String()
}

// broadcast gives the shape of an element-wise operator over shapes a and b: aligned at the right, a dimension of 1 stretches.
func broadcast(a, b []int) ([]int, bool) {
	if len(a) < len(b) {
		a, b = b, a
	}
	out := append([]int{}, a...)
	for i, d := range b {
		j := i + len(a) - len(b)
		switch {
		case out[j] == d || d == 1:
		case out[j] == 1:
			out[j] = d
		default:
			return nil, false
		}
	}
	return out, true
}
