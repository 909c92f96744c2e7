package model

import (
	"fmt"
	"strconv"

	"github.com/kale-sched/kale/core/onnx"
)

// Names of the graph's inputs and outputs, which a step binds. B records, F sparse fields, W floats a row, D dense fields, P dense
// parameters. emb and dense are absent where F or D is 0.
const (
	inEmb, inDense, inLabel, inWeight, inParams = "emb", "dense", "label", "weight", "params"
	outPred, outLoss, outEmb, outParams         = "pred", "loss", "grad_emb", "grad_params"
)

// Build makes the model's training graph as an ONNX file. Inputs: emb [B,F,W], dense [B,D], label [B] (0 or 1), weight [B], params [P]. Outputs:
//
//	pred        [B]      the probability of label 1
//	loss        [1]      Σ weight·logloss, without the penalty
//	grad_emb    [B,F,W]  of the objective, Σ weight·(logloss + L2/2·‖params‖²), with respect to emb
//	grad_params [P]      and with respect to params
func Build(s Spec) ([]byte, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	f := newForward(s)
	g := f.g
	label := g.Input(inLabel, onnx.Float32, s.Batch)
	weight := g.Input(inWeight, onnx.Float32, s.Batch)
	// logloss = −y·log p − (1−y)·log(1−p) = softplus(z) − y·z for the logit z, which stays finite where p rounds to 0 or 1.
	logloss := g.Sub(g.Softplus(f.logit), g.Mul(label, f.logit))
	loss := g.ReduceSum(g.Mul(weight, logloss), false)
	g.Output(outPred, g.Sigmoid(f.logit))
	g.Output(outLoss, loss)

	grads := g.Gradients(loss, append(f.rows, f.params...)...)
	if s.SparseFields > 0 {
		g.Output(outEmb, g.Concat(2, grads[:len(f.rows)]...))
	}
	flat := make([]*onnx.Tensor, 0, len(f.params))
	for _, d := range grads[len(f.rows):] {
		flat = append(flat, g.Reshape(d, d.Size()))
	}
	dense := g.Concat(0, flat...)
	if s.L2 > 0 { // the penalty's gradient is known, and is cheaper added than derived
		share := g.Mul(g.ReduceSum(weight, true), g.Scalar(s.L2))
		dense = g.Add(dense, g.Mul(f.vector, share))
	}
	g.Output(outParams, dense)
	return finish(g, s)
}

// BuildPredictor makes the model's forward half alone: inputs emb, dense and params, output pred, as in Build.
func BuildPredictor(s Spec) ([]byte, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	f := newForward(s)
	f.g.Output(outPred, f.g.Sigmoid(f.logit))
	return finish(f.g, s)
}

func finish(g *onnx.Graph, s Spec) ([]byte, error) {
	model, err := g.Model(map[string]string{"kale.model": s.Kind, "kale.batch": strconv.Itoa(s.Batch)})
	if err != nil {
		return nil, fmt.Errorf("model: build %s: %w", s.Kind, err)
	}
	return model, nil
}

// forward is the graph up to the logit, with the pieces that gradients are asked for. They are asked for pieces, not for whole inputs: joining
// pieces costs one copy, where deriving a slice costs a zero-padded whole per slice.
type forward struct {
	g      *onnx.Graph
	vector *onnx.Tensor   // all dense parameters, [P]
	params []*onnx.Tensor // its blocks
	rows   []*onnx.Tensor // emb cut along its last axis
	logit  *onnx.Tensor   // [B]
}

func newForward(s Spec) *forward {
	g := onnx.NewGraph()
	f := &forward{g: g}
	var emb, dense *onnx.Tensor
	if s.SparseFields > 0 {
		emb = g.Input(inEmb, onnx.Float32, s.Batch, s.SparseFields, s.RowWidth())
	}
	if s.DenseFields > 0 {
		dense = g.Input(inDense, onnx.Float32, s.Batch, s.DenseFields)
	}
	f.vector = g.Input(inParams, onnx.Float32, s.DenseSize())
	at := 0
	for _, b := range s.blocks() {
		f.params = append(f.params, g.Reshape(g.Slice(f.vector, 0, at, at+b.size()), b.shape...))
		at += b.size()
	}
	params := f.params
	next := func() *onnx.Tensor { p := params[0]; params = params[1:]; return p }

	f.logit = g.Expand(next(), s.Batch)
	if dense != nil {
		f.add(g.Reshape(g.MatMul(dense, next()), s.Batch))
	}
	if s.Kind == LR {
		if emb != nil {
			f.rows = []*onnx.Tensor{emb}
			f.add(g.ReduceSum(emb, false, 1, 2))
		}
		return f
	}
	first, vectors := g.Slice(emb, 2, 0, 1), g.Slice(emb, 2, 1, s.RowWidth())
	f.rows = []*onnx.Tensor{first, vectors}
	f.add(g.ReduceSum(first, false, 1, 2))
	f.add(f.pairs(vectors))
	f.add(f.network(s, vectors, dense, next))
	return f
}

func (f *forward) add(term *onnx.Tensor) { f.logit = f.g.Add(f.logit, term) }

// pairs is Σ over pairs of fields i<j of ⟨v_i, v_j⟩, as ½·Σ_k((Σ_i v_ik)² − Σ_i v_ik²) (Rendle, ICDM 2010, Lemma 3.1). v is [B,F,K].
func (f *forward) pairs(v *onnx.Tensor) *onnx.Tensor {
	g := f.g
	squareOfSum := g.Square(g.ReduceSum(v, false, 1))
	sumOfSquares := g.ReduceSum(g.Square(v), false, 1)
	return g.Mul(g.ReduceSum(g.Sub(squareOfSum, sumOfSquares), false, 1), g.Scalar(0.5))
}

// network is the multi-layer part over all embeddings of a record and its dense features.
func (f *forward) network(s Spec, v, dense *onnx.Tensor, next func() *onnx.Tensor) *onnx.Tensor {
	g := f.g
	h := g.Reshape(v, s.Batch, s.SparseFields*s.EmbeddingDim)
	if dense != nil {
		h = g.Concat(1, h, dense)
	}
	for range s.Hidden {
		weight, bias := next(), next()
		h = g.Relu(g.Gemm(h, weight, bias, false, false))
	}
	return g.Reshape(g.MatMul(h, next()), s.Batch)
}
