package onnx

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// ONNX files are one protobuf message, ModelProto. Few of its fields are needed to write a graph and fewer to read what a model
// wants, so the wire form is written here field by field instead of carrying the generated code of the whole schema. Field
// numbers are those of onnx.proto (ONNX IR version 8).

// Opset is the version of ONNX's default operator set that written models declare. 17 is understood by every ONNX Runtime that
// Kale accepts.
const Opset = 17

const irVersion = 8

// Field numbers, by message.
const (
	modelIRVersion, modelProducer, modelGraph, modelOpset, modelMetadata         = 1, 2, 7, 8, 14
	opsetDomain, opsetVersion                                                    = 1, 2
	entryKey, entryValue                                                         = 1, 2
	graphNode, graphName, graphInitializer, graphInput, graphOutput              = 1, 2, 5, 11, 12
	nodeInput, nodeOutput, nodeName, nodeOp, nodeAttribute                       = 1, 2, 3, 4, 5
	attrName, attrInt, attrInts, attrType                                        = 1, 3, 8, 20
	attrTypeInt, attrTypeInts                                                    = 2, 7 // AttributeProto.AttributeType
	tensorDims, tensorType, tensorName, tensorRaw                                = 1, 2, 8, 9
	valueName, valueType, typeTensor, tensorElem, tensorShape, shapeDim, dimSize = 1, 2, 1, 1, 2, 1, 1
)

// message is a protobuf message being written.
type message []byte

func (m *message) varint(field protowire.Number, v int64) {
	*m = protowire.AppendVarint(protowire.AppendTag(*m, field, protowire.VarintType), uint64(v))
}

func (m *message) bytes(field protowire.Number, b []byte) {
	*m = protowire.AppendBytes(protowire.AppendTag(*m, field, protowire.BytesType), b)
}

func (m *message) text(field protowire.Number, s string) { m.bytes(field, []byte(s)) }

func (m *message) sub(field protowire.Number, write func(*message)) {
	var s message
	write(&s)
	m.bytes(field, s)
}

// Model writes the graph, or reports the mistakes made while building it. Operators and constants that no output needs are left
// out, and so are inputs: the model asks only for what it uses. metadata becomes the model's metadata_props; nil is fine. The same
// graph always gives the same bytes.
func (g *Graph) Model(metadata map[string]string) ([]byte, error) {
	if err := g.Err(); err != nil {
		return nil, fmt.Errorf("onnx: the graph was not built: %w", err)
	}
	if len(g.outputs) == 0 {
		return nil, fmt.Errorf("onnx: the graph has no outputs; name some with Output")
	}
	used := g.used()
	var m message
	m.varint(modelIRVersion, irVersion)
	m.text(modelProducer, "kale")
	m.sub(modelOpset, func(o *message) { o.text(opsetDomain, ""); o.varint(opsetVersion, Opset) })
	m.sub(modelGraph, func(w *message) { g.write(w, used) })
	for _, k := range slices.Sorted(maps.Keys(metadata)) {
		m.sub(modelMetadata, func(e *message) { e.text(entryKey, k); e.text(entryValue, metadata[k]) })
	}
	if len(m) > math.MaxInt32 {
		return nil, fmt.Errorf("onnx: the model would take %d bytes; the format ends at 2 GiB", len(m))
	}
	return m, nil
}

// used is the set of tensors that the outputs need.
func (g *Graph) used() map[*Tensor]bool {
	set := map[*Tensor]bool{}
	for _, t := range g.outputs {
		set[t] = true
	}
	for _, n := range slices.Backward(g.nodes) {
		if set[n.out] {
			for _, in := range n.in {
				set[in] = true
			}
		}
	}
	return set
}

func (g *Graph) write(w *message, used map[*Tensor]bool) {
	for _, n := range g.nodes {
		if used[n.out] {
			w.sub(graphNode, n.write)
		}
	}
	w.text(graphName, "kale")
	for _, t := range g.consts {
		if used[t] {
			w.sub(graphInitializer, t.writeConst)
		}
	}
	for _, t := range g.inputs {
		if used[t] {
			w.sub(graphInput, t.writeInfo)
		}
	}
	for _, t := range g.outputs {
		w.sub(graphOutput, t.writeInfo)
	}
}

func (n *node) write(w *message) {
	for _, in := range n.in {
		w.text(nodeInput, in.name)
	}
	w.text(nodeOutput, n.out.name)
	w.text(nodeName, n.op+" "+n.out.name) // what the runtime's own messages and profiles call it
	w.text(nodeOp, n.op)
	for _, a := range n.attrs {
		w.sub(nodeAttribute, func(w *message) {
			w.text(attrName, a.name)
			if a.list {
				for _, v := range a.ints {
					w.varint(attrInts, v)
				}
				w.varint(attrType, attrTypeInts)
			} else {
				w.varint(attrInt, a.ints[0])
				w.varint(attrType, attrTypeInt)
			}
		})
	}
}

// writeConst writes a TensorProto, elements raw and little-endian.
func (t *Tensor) writeConst(w *message) {
	for _, d := range t.shape {
		w.varint(tensorDims, int64(d))
	}
	w.varint(tensorType, int64(t.dtype))
	w.text(tensorName, t.name)
	raw := make([]byte, 0, 4*len(t.floats)+8*len(t.ints))
	for _, v := range t.floats {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	for _, v := range t.ints {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(v))
	}
	w.bytes(tensorRaw, raw)
}

// writeInfo writes a ValueInfoProto.
func (t *Tensor) writeInfo(w *message) {
	w.text(valueName, t.name)
	w.sub(valueType, func(w *message) {
		w.sub(typeTensor, func(w *message) {
			w.varint(tensorElem, int64(t.dtype))
			w.sub(tensorShape, func(w *message) {
				for _, d := range t.shape {
					w.sub(shapeDim, func(w *message) { w.varint(dimSize, int64(d)) })
				}
			})
		})
	})
}
