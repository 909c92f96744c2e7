package onnx

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// minVersion is the oldest ONNX Runtime that has the C API version which the binding, onnxruntime_go v1.27.0, asks for (24).
const minVersion = "1.24"

// Devices on which a session may run.
const (
	CPU  = "cpu"
	CUDA = "cuda"
)

// Options say how to open the runtime.
type Options struct {
	// Library is ONNX Runtime's library file; empty means what Locate finds.
	Library string
}

// SessionOptions say how a model is to run. The zero value is one thread on the CPU.
type SessionOptions struct {
	// Threads that one Run may use inside its operators; 0 means 1. They wait by sleeping and never spin: on a busy machine
	// two spinning threads were slower than one.
	Threads int
	// Device is CPU or CUDA; empty means CPU. On CUDA inputs and outputs are still Go slices, copied at each Run.
	Device string
	// Shapes gives, by name, the full shape of inputs and outputs whose shape the model leaves open. Where the model does
	// fix a dimension, it must agree.
	Shapes map[string][]int
	// Lean allocates what operators give one by one, rather than as a block with room for all that a Run will need, which the runtime takes beside what it has
	// already: training FEDformer on bins of a minute takes 563 MB so, and 969 with the block, in the same time (46.3 and 45.0 s of CPU).
	Lean bool
}

// validate checks what can be checked without the model.
func (o SessionOptions) validate() error {
	if o.Threads < 0 || o.Threads > 1024 {
		return fmt.Errorf("threads is %d; want 1 to 1024, or 0 for 1", o.Threads)
	}
	if o.Device != "" && o.Device != CPU && o.Device != CUDA {
		return fmt.Errorf("device is %q; want %q or %q", o.Device, CPU, CUDA)
	}
	return nil
}

// resolve fixes every shape of the model's inputs and outputs, so that slices can be bound to them.
func (o SessionOptions) resolve(m *Model) (in, out []TensorInfo, err error) {
	if len(m.Inputs) == 0 {
		return nil, nil, errors.New("the model has no inputs")
	}
	known := map[string]bool{}
	fix := func(kind string, infos []TensorInfo) ([]TensorInfo, error) {
		fixed := make([]TensorInfo, len(infos))
		for i, t := range infos {
			if known[t.Name] {
				return nil, fmt.Errorf("the model names %q twice among its inputs and outputs", t.Name)
			}
			known[t.Name] = true
			if fixed[i], err = o.fix(kind, t); err != nil {
				return nil, err
			}
		}
		return fixed, nil
	}
	if in, err = fix("input", m.Inputs); err != nil {
		return nil, nil, err
	}
	if out, err = fix("output", m.Outputs); err != nil {
		return nil, nil, err
	}
	for name := range o.Shapes {
		if !known[name] {
			return nil, nil, fmt.Errorf("a shape is given for %q, which the model does not have; it has %s", name, list(m.Inputs, m.Outputs))
		}
	}
	return in, out, nil
}

func (o SessionOptions) fix(kind string, t TensorInfo) (TensorInfo, error) {
	if t.Type != Float32 && t.Type != Int64 {
		return t, fmt.Errorf("%s %q has elements of type %s; only float32 and int64 can be bound", kind, t.Name, t.Type)
	}
	if given, ok := o.Shapes[t.Name]; ok {
		if want := (TensorInfo{Type: t.Type, Shape: given}); !t.accepts(want) {
			return t, fmt.Errorf("%s %q: want %s%s, got shape %s", kind, t.Name, t.Type, shapeString(t.Shape), shapeString(given))
		}
		t.Shape = slices.Clone(given)
	}
	switch {
	case t.Shape == nil || slices.Min(append([]int{0}, t.Shape...)) < 0:
		return t, fmt.Errorf("%s %s leaves its shape open; give it in Shapes", kind, t)
	case len(t.Shape) == 0:
		return t, fmt.Errorf("%s %q is a scalar, which cannot be bound; let the model use shape [1]", kind, t.Name)
	case !sized(t.Shape):
		return t, fmt.Errorf("%s %s: dimensions must be positive and the size at most %d elements", kind, t, maxElements)
	}
	return t, nil
}

// list names tensors for a message.
func list(groups ...[]TensorInfo) string {
	var names []string
	for _, g := range groups {
		for _, t := range g {
			names = append(names, t.String())
		}
	}
	return strings.Join(names, ", ")
}

// find looks a bound tensor up by name and checks its type.
func find(name string, want DType, groups ...[]TensorInfo) (TensorInfo, error) {
	for _, g := range groups {
		for _, t := range g {
			if t.Name != name {
				continue
			}
			if t.Type != want {
				return t, fmt.Errorf("onnx: %s, used as %s", t, want)
			}
			return t, nil
		}
	}
	return TensorInfo{}, fmt.Errorf("onnx: the session has no tensor %q; it has %s", name, list(groups...))
}
