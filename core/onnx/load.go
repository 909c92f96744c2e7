package onnx

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Model is what a model file says about itself, without running it.
type Model struct {
	// Bytes is the model as it was given to Load; it is not copied.
	Bytes []byte
	// Producer names the tool that wrote it ("kale", "pytorch").
	Producer string
	// Opset is the version of the default operator set that it asks for.
	Opset int
	// Inputs that a caller must provide, and Outputs, in the model's order.
	Inputs, Outputs []TensorInfo
	// Metadata is its metadata_props; never nil.
	Metadata map[string]string
}

// Load reads an ONNX model's description. It checks what it reads and no more: that the operators are known and fit is found
// by [Runtime.NewSession].
func Load(model []byte) (*Model, error) {
	m := &Model{Bytes: model, Metadata: map[string]string{}}
	if len(model) == 0 {
		return nil, errors.New("onnx: load model: the file is empty")
	}
	var graph []byte
	err := fields(model, map[protowire.Number]func([]byte, uint64) error{
		modelProducer: func(b []byte, _ uint64) error { m.Producer = string(b); return nil },
		modelGraph:    func(b []byte, _ uint64) error { graph = append(graph, b...); return nil },
		modelOpset:    func(b []byte, _ uint64) error { return m.readOpset(b) },
		modelMetadata: func(b []byte, _ uint64) error { return m.readMetadata(b) },
	})
	if errors.Is(err, errNoFields) {
		return nil, errors.New("onnx: load model: not a usable ONNX file: it is cut short, or of another kind")
	}
	if err == nil && graph == nil {
		err = errors.New("it has no graph")
	}
	if err == nil && m.Opset == 0 {
		err = errors.New("it does not say which operator set it uses")
	}
	if err == nil {
		err = m.readGraph(graph)
	}
	if err != nil {
		return nil, fmt.Errorf("onnx: load model: not a usable ONNX file: %w", err)
	}
	return m, nil
}

// Expect compares the model with the contract of whoever will run it: every tensor of inputs and outputs must be there with its type
// and shape (-1 in either accepts any length), and the model must not want other inputs. The error lists every difference.
func (m *Model) Expect(inputs, outputs []TensorInfo) error {
	var wrong []string
	compare := func(kind string, want, have []TensorInfo) {
		for _, w := range want {
			i := slices.IndexFunc(have, func(h TensorInfo) bool { return h.Name == w.Name })
			if i < 0 {
				wrong = append(wrong, fmt.Sprintf("%s %s is missing", kind, w))
			} else if !have[i].accepts(w) {
				wrong = append(wrong, fmt.Sprintf("%s %q: want %s%s, got %s%s", kind, w.Name,
					w.Type, shapeString(w.Shape), have[i].Type, shapeString(have[i].Shape)))
			}
		}
	}
	compare("input", inputs, m.Inputs)
	compare("output", outputs, m.Outputs)
	for _, h := range m.Inputs {
		if !slices.ContainsFunc(inputs, func(w TensorInfo) bool { return w.Name == h.Name }) {
			wrong = append(wrong, fmt.Sprintf("it wants another input, %s", h))
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("onnx: the model does not keep the contract: %s", strings.Join(wrong, "; "))
	}
	return nil
}

// accepts reports whether two descriptions can be the same tensor.
func (t TensorInfo) accepts(o TensorInfo) bool {
	if t.Type != o.Type {
		return false
	}
	if t.Shape == nil || o.Shape == nil {
		return true
	}
	return slices.EqualFunc(t.Shape, o.Shape, func(a, b int) bool { return a == b || a < 0 || b < 0 })
}

func (m *Model) readOpset(b []byte) error {
	domain, version := "", uint64(0)
	err := fields(b, map[protowire.Number]func([]byte, uint64) error{
		opsetDomain:  func(b []byte, _ uint64) error { domain = string(b); return nil },
		opsetVersion: func(_ []byte, v uint64) error { version = v; return nil },
	})
	if domain == "" || domain == "ai.onnx" {
		if version > math.MaxInt32 {
			return fmt.Errorf("operator set version %d is out of range", version)
		}
		m.Opset = int(version)
	}
	return err
}

func (m *Model) readMetadata(b []byte) error {
	key, value := "", ""
	err := fields(b, map[protowire.Number]func([]byte, uint64) error{
		entryKey:   func(b []byte, _ uint64) error { key = string(b); return nil },
		entryValue: func(b []byte, _ uint64) error { value = string(b); return nil },
	})
	m.Metadata[key] = value
	return err
}

func (m *Model) readGraph(b []byte) error {
	constant := map[string]bool{} // IR versions before 4 list initialisers among the inputs
	err := fields(b, map[protowire.Number]func([]byte, uint64) error{
		graphInitializer: func(b []byte, _ uint64) error {
			return fields(b, map[protowire.Number]func([]byte, uint64) error{
				tensorName: func(b []byte, _ uint64) error { constant[string(b)] = true; return nil },
			})
		},
		graphInput:  func(b []byte, _ uint64) error { return readInfo(b, &m.Inputs) },
		graphOutput: func(b []byte, _ uint64) error { return readInfo(b, &m.Outputs) },
	})
	if err != nil {
		return err
	}
	m.Inputs = slices.DeleteFunc(m.Inputs, func(t TensorInfo) bool { return constant[t.Name] })
	if len(m.Outputs) == 0 {
		return errors.New("its graph has no outputs")
	}
	return nil
}

// readInfo reads a ValueInfoProto and appends it. Anything but a tensor is refused.
func readInfo(b []byte, to *[]TensorInfo) error {
	var t TensorInfo
	var tensor []byte
	err := fields(b, map[protowire.Number]func([]byte, uint64) error{
		valueName: func(b []byte, _ uint64) error { t.Name = string(b); return nil },
		valueType: func(b []byte, _ uint64) error {
			return fields(b, map[protowire.Number]func([]byte, uint64) error{
				typeTensor: func(b []byte, _ uint64) error { tensor = append([]byte{}, b...); return nil },
			})
		},
	})
	if err == nil && tensor == nil {
		err = errors.New("it is not a tensor")
	}
	if err == nil {
		err = fields(tensor, map[protowire.Number]func([]byte, uint64) error{
			tensorElem:  func(_ []byte, v uint64) error { t.Type = DType(int32(v)); return nil },
			tensorShape: func(b []byte, _ uint64) error { t.Shape = []int{}; return readShape(b, &t.Shape) },
		})
	}
	if err != nil {
		return fmt.Errorf("input or output %q: %w", t.Name, err)
	}
	*to = append(*to, t)
	return nil
}

// readShape reads a TensorShapeProto; a dimension without a number is open.
func readShape(b []byte, shape *[]int) error {
	return fields(b, map[protowire.Number]func([]byte, uint64) error{
		shapeDim: func(b []byte, _ uint64) error {
			size := -1
			err := fields(b, map[protowire.Number]func([]byte, uint64) error{
				dimSize: func(_ []byte, v uint64) error {
					if v > maxElements {
						return fmt.Errorf("dimension %d is out of range", int64(v))
					}
					size = int(v)
					return nil
				},
			})
			*shape = append(*shape, size)
			return err
		},
	})
}

// errNoFields: the bytes are no fields of a message.
var errNoFields = errors.New("its bytes are cut short, or of no ONNX file")

// fields walks a message and calls visit for the fields that it names, with the bytes of a length-delimited field or the
// number of a varint. Other fields are skipped; broken bytes are an error.
func fields(b []byte, visit map[protowire.Number]func([]byte, uint64) error) error {
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errNoFields
		}
		b = b[n:]
		var body []byte
		var number uint64
		switch kind {
		case protowire.BytesType:
			body, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(b)
		default:
			n = protowire.ConsumeFieldValue(num, kind, b)
		}
		if n < 0 {
			return errNoFields
		}
		b = b[n:]
		f := visit[num]
		if f == nil || kind != protowire.BytesType && kind != protowire.VarintType {
			continue
		}
		if err := f(body, number); err != nil {
			return err
		}
	}
	return nil
}
