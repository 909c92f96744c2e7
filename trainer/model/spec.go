// Package model holds the models that a worker trains, as ONNX graphs that compute predictions, the loss and its gradients in one
// run.
//
// A [Spec] describes a model: logistic regression, or DeepFM (Guo et al., IJCAI 2017). Its state is of two kinds. Each id of a sparse
// field has an embedding row of [Spec.RowWidth] floats, kept by the parameter servers and gathered by the worker before a step; all
// else is one dense vector of [Spec.DenseSize] floats, cut up inside the graph. A [Step] is the graph made ready to run, with the
// worker's buffers bound to it.
//
// Graphs are separable by record (EXACTLY_ONCE.md, rule 7): the loss is a weighted sum over records, nothing is computed across
// records, and the penalty scales with the weights' sum. So the gradients of a batch are the sum of those of its parts, a record
// of weight zero adds exactly nothing, and a batch with records left out needs no correction. [CheckSeparable] proves it of a graph.
package model

import (
	"errors"
	"fmt"
)

// Kinds of models.
const (
	// LR is logistic regression: logit = Σ row + w·dense + bias, rows of one float.
	LR = "lr"
	// DeepFM adds to that the inner products of every pair of fields' embeddings, and a network over all embeddings and
	// the dense features. Its rows are the first-order weight followed by the embedding.
	DeepFM = "deepfm"
)

// Spec describes a model and the size of its batches.
type Spec struct {
	Kind string // LR or DeepFM
	// SparseFields is the number of ids per record, DenseFields that of numbers.
	SparseFields, DenseFields int
	// EmbeddingDim is the length of a DeepFM embedding; LR has none and ignores it.
	EmbeddingDim int
	// Hidden are the widths of DeepFM's hidden layers, first to last; LR ignores it.
	Hidden []int
	// Batch is the number of records that a step holds. Shorter batches are padded with records of weight 0.
	Batch int
	// Seed fixes the initial parameters.
	Seed uint64
	// L2 is the weight decay of the dense parameters θ: L2/2·‖θ‖² is added to the loss for each unit of weight in the batch, so a
	// part of a nominal batch decays by its share.
	L2 float32
}

// Bounds that keep a typing error from becoming an allocation. They are far above what ranking models use.
const (
	maxFields = 1 << 14
	maxWidth  = 1 << 16
	maxBatch  = 1 << 20
	maxFloats = 1 << 30 // in one tensor
)

// Validate reports every mistake in the spec at once.
func (s Spec) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("model: "+format, args...))
		}
	}
	within := func(name string, v, lo, hi int) {
		check(v >= lo && v <= hi, "%s is %d; want %d to %d", name, v, lo, hi)
	}
	check(s.Kind == LR || s.Kind == DeepFM, "kind is %q; want %q or %q", s.Kind, LR, DeepFM)
	within("sparse fields", s.SparseFields, 0, maxFields)
	within("dense fields", s.DenseFields, 0, maxFields)
	within("batch", s.Batch, 1, maxBatch)
	check(s.L2 >= 0 && s.L2 < 1, "l2 is %v; want 0 or more, and less than 1", s.L2)
	check(s.SparseFields != 0 || s.DenseFields != 0, "there are no features; name a sparse or a dense field")
	if s.Kind == DeepFM {
		check(s.SparseFields != 0, "deepfm needs a sparse field; use lr for dense features alone")
		within("embedding width", s.EmbeddingDim, 1, maxWidth)
		check(len(s.Hidden) >= 1 && len(s.Hidden) <= 64, "deepfm has %d hidden layers; want 1 to 64", len(s.Hidden))
		for i, h := range s.Hidden {
			within(fmt.Sprintf("hidden layer %d", i+1), h, 1, maxWidth)
		}
	}
	if len(errs) == 0 {
		check(float64(s.Batch)*float64(s.SparseFields)*float64(s.RowWidth()) <= maxFloats,
			"a batch of %d x %d rows of %d floats is too large; the bound is %d floats", s.Batch, s.SparseFields, s.RowWidth(), maxFloats)
		check(s.denseFloats() <= maxFloats, "%.0f dense parameters are too many; the bound is %d", s.denseFloats(), maxFloats)
	}
	return errors.Join(errs...)
}

// RowWidth is the number of floats of an embedding row.
func (s Spec) RowWidth() int {
	if s.Kind == DeepFM {
		return 1 + s.EmbeddingDim
	}
	return 1
}

// block is a dense parameter inside the flattened vector.
type block struct {
	name  string
	shape []int
	fanIn int // of a hidden layer's matrix, which is what is initialised at random; 0 elsewhere
}

func (b block) size() int {
	n := 1
	for _, d := range b.shape {
		n *= d
	}
	return n
}

// blocks lists the dense parameters in the order in which the flattened vector holds them, matrices row by row. The order is part of what
// snapshots mean: it does not change for a kind.
func (s Spec) blocks() []block {
	blocks := []block{{name: "bias", shape: []int{1}}}
	if s.DenseFields > 0 {
		blocks = append(blocks, block{name: "dense", shape: []int{s.DenseFields, 1}})
	}
	if s.Kind != DeepFM {
		return blocks
	}
	width := s.SparseFields*s.EmbeddingDim + s.DenseFields
	for i, h := range s.Hidden {
		blocks = append(blocks,
			block{name: fmt.Sprintf("hidden%d.weight", i+1), shape: []int{width, h}, fanIn: width},
			block{name: fmt.Sprintf("hidden%d.bias", i+1), shape: []int{h}})
		width = h
	}
	return append(blocks, block{name: "out.weight", shape: []int{width, 1}, fanIn: width})
}

// DenseSize is the number of floats of all dense parameters, which form one vector.
func (s Spec) DenseSize() int {
	n := 0
	for _, b := range s.blocks() {
		n += b.size()
	}
	return n
}

// denseFloats is DenseSize without overflow.
func (s Spec) denseFloats() float64 {
	n := 0.0
	for _, b := range s.blocks() {
		size := 1.0
		for _, d := range b.shape {
			size *= float64(d)
		}
		n += size
	}
	return n
}
