// Package onnx builds ONNX graphs in Go, differentiates them, saves and reads them, and runs them with ONNX Runtime.
//
// A [Graph] is made of operators over float32 and int64 [Tensor]s whose shapes are all known while it is built. [Graph.Gradients]
// adds the reverse pass as ordinary operators, so that one model computes a loss and its gradients, and a trainer needs nothing
// but a runtime that executes graphs. [Graph.Model] writes it in ONNX's protobuf form (operator set
// [Opset]); [Load] reads back what a model wants and gives, from us or from any other tool, without a runtime.
//
// A [Runtime] is ONNX Runtime's shared library, opened once per process ([Open], [Locate]); a [Session] is one model in it, with
// Go slices bound to its inputs and outputs, so that a step allocates nothing.
//
// Mistakes while building do not panic and need no check at each call: an operator that cannot be applied notes an error that
// names it and the shapes it met, its result poisons what is built on it, and Graph.Err or Graph.Model reports the error.
//
// cgo is confined to this package (and NVML). Without cgo it compiles, graphs can be built, written and read, and whatever needs
// the runtime answers [ErrNoCgo].
package onnx
