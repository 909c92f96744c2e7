package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/onnx/onnxtest"
)

func specs() map[string]Spec {
	return map[string]Spec{
		"lr":                   {Kind: LR, SparseFields: 3, DenseFields: 2, Batch: 7, Seed: 1},
		"lr with L2":           {Kind: LR, SparseFields: 3, DenseFields: 2, Batch: 7, Seed: 1, L2: 0.3},
		"lr sparse only":       {Kind: LR, SparseFields: 2, Batch: 5},
		"lr dense only":        {Kind: LR, DenseFields: 3, Batch: 5},
		"lr one record":        {Kind: LR, SparseFields: 1, Batch: 1},
		"deepfm":               {Kind: DeepFM, SparseFields: 3, DenseFields: 2, EmbeddingDim: 4, Hidden: []int{6, 5}, Batch: 7, Seed: 2},
		"deepfm with L2":       {Kind: DeepFM, SparseFields: 3, DenseFields: 2, EmbeddingDim: 4, Hidden: []int{6, 5}, Batch: 7, Seed: 2, L2: 0.2},
		"deepfm without dense": {Kind: DeepFM, SparseFields: 4, EmbeddingDim: 3, Hidden: []int{5}, Batch: 6, Seed: 3},
		"deepfm one wide":      {Kind: DeepFM, SparseFields: 2, EmbeddingDim: 1, Hidden: []int{4, 3, 2}, Batch: 4, Seed: 4},
		"deepfm one record":    {Kind: DeepFM, SparseFields: 1, DenseFields: 1, EmbeddingDim: 2, Hidden: []int{1}, Batch: 1, Seed: 5},
	}
}

// newFilledStep is a step with random records, parameters away from their initial zeros, unequal weights and one padding record.
func newFilledStep(t *testing.T, s Spec) *Step {
	t.Helper()
	st, err := NewStep(onnxtest.Library(t), s, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	rng := rand.New(rand.NewPCG(s.Seed, 99))
	fillRecords(st, rng)
	copy(st.Params, s.InitDense())
	for i := range st.Params {
		st.Params[i] += float32(0.2 * rng.NormFloat64())
	}
	for i := range st.Weight {
		st.Weight[i] = float32(0.1 + rng.Float64())
	}
	if len(st.Weight) > 1 {
		st.Weight[1] = 0
	}
	return st
}

func TestStepAgainstReference(t *testing.T) {
	for name, s := range specs() {
		t.Run(name, func(t *testing.T) {
			st := newFilledStep(t, s)
			if err := st.Run(); err != nil {
				t.Fatal(err)
			}
			ref := referenceOf(s, st)
			near(t, "loss", float64(st.Loss), ref.loss())
			for i := range s.Batch {
				near(t, fmt.Sprintf("pred[%d]", i), float64(st.Pred[i]), 1/(1+math.Exp(-ref.logit(i))))
			}
			for i := range ref.emb {
				near(t, fmt.Sprintf("grad_emb[%d]", i), float64(st.GradEmb[i]), ref.slope(&ref.emb[i]))
			}
			for i := range ref.params {
				near(t, fmt.Sprintf("grad_params[%d]", i), float64(st.GradParams[i]), ref.slope(&ref.params[i]))
			}
			if len(ref.emb) != s.Batch*s.SparseFields*s.RowWidth() || len(st.GradEmb) != len(ref.emb) || len(ref.params) != s.DenseSize() {
				t.Errorf("sizes: emb %d, grad_emb %d, params %d; want %d rows of %d, %d parameters", len(ref.emb), len(st.GradEmb), len(ref.params),
					s.Batch*s.SparseFields, s.RowWidth(), s.DenseSize())
			}
		})
	}
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if diff := math.Abs(got - want); !(diff <= 2e-4*(1+math.Abs(want))) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestGraphsAreSeparable(t *testing.T) {
	for name, s := range specs() {
		t.Run(name, func(t *testing.T) {
			if err := CheckSeparable(newFilledStep(t, s), 11); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestBatchIsTheSumOfUnequalParts cuts one batch into three parts as a repair would (EXACTLY_ONCE.md, rule 7): each part alone, under the
// nominal batch's weights, padded at the end.
func TestBatchIsTheSumOfUnequalParts(t *testing.T) {
	s := specs()["deepfm with L2"]
	st := newFilledStep(t, s)
	for i := range st.Weight {
		st.Weight[i] = 1 / float32(s.Batch)
	}
	if err := st.Run(); err != nil {
		t.Fatal(err)
	}
	whole, emb, dense, label := snapshot(st), append([]float32{}, st.Emb...), append([]float32{}, st.Dense...), append([]float32{}, st.Label...)
	sumParams, sumEmb, sumLoss := make([]float64, len(whole.params)), make([]float64, len(whole.emb)), 0.0
	row := s.SparseFields * s.RowWidth()
	for _, part := range [][2]int{{0, 1}, {1, 3}, {3, 7}} {
		n := part[1] - part[0]
		copy(st.Emb, emb[part[0]*row:part[1]*row])
		copy(st.Dense, dense[part[0]*s.DenseFields:part[1]*s.DenseFields])
		copy(st.Label, label[part[0]:part[1]])
		for i := range st.Weight {
			st.Weight[i] = 0
			if i < n {
				st.Weight[i] = 1 / float32(s.Batch)
			}
		}
		if err := st.Run(); err != nil {
			t.Fatal(err)
		}
		sumLoss += float64(st.Loss)
		for i, d := range st.GradParams {
			sumParams[i] += float64(d)
		}
		for i := range n * row {
			sumEmb[part[0]*row+i] = float64(st.GradEmb[i])
		}
	}
	near(t, "loss", sumLoss, float64(whole.loss))
	for i := range sumParams {
		near(t, fmt.Sprintf("grad_params[%d]", i), sumParams[i], float64(whole.params[i]))
	}
	for i := range sumEmb {
		near(t, fmt.Sprintf("grad_emb[%d]", i), sumEmb[i], float64(whole.emb[i]))
	}
}

// TestCheckSeparableFindsOffenders gives it graphs that look like LR and are not separable.
func TestCheckSeparableFindsOffenders(t *testing.T) {
	rt := onnxtest.Library(t)
	s := Spec{Kind: LR, SparseFields: 2, Batch: 6}
	tests := map[string]func(g *onnx.Graph, logit, weight *onnx.Tensor) (newLogit, newWeight *onnx.Tensor){
		"centred over the batch": func(g *onnx.Graph, z, w *onnx.Tensor) (*onnx.Tensor, *onnx.Tensor) {
			return g.Sub(z, g.ReduceMean(z, true)), w
		},
		"weights normalised": func(g *onnx.Graph, z, w *onnx.Tensor) (*onnx.Tensor, *onnx.Tensor) {
			return z, g.Div(w, g.ReduceSum(w, true))
		},
		"weights ignored": func(g *onnx.Graph, z, w *onnx.Tensor) (*onnx.Tensor, *onnx.Tensor) {
			return z, g.Add(g.Mul(w, g.Scalar(0)), g.Scalar(0.1))
		},
		"in-batch softmax": func(g *onnx.Graph, z, w *onnx.Tensor) (*onnx.Tensor, *onnx.Tensor) {
			return g.Softmax(z), w
		},
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			f := newForward(s)
			g := f.g
			label, weight := g.Input(inLabel, onnx.Float32, s.Batch), g.Input(inWeight, onnx.Float32, s.Batch)
			logit, used := spoil(g, f.logit, weight)
			loss := g.ReduceSum(g.Mul(used, g.Sub(g.Softplus(logit), g.Mul(label, logit))), false)
			g.Output(outPred, g.Sigmoid(logit))
			g.Output(outLoss, loss)
			d := g.Gradients(loss, f.rows[0], f.vector)
			g.Output(outEmb, d[0])
			g.Output(outParams, d[1])
			model, err := g.Model(nil)
			if err != nil {
				t.Fatal(err)
			}
			st, err := bindStep(rt, s, model, onnx.SessionOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = st.Close() }()
			if err := CheckSeparable(st, 3); err == nil || !strings.Contains(err.Error(), "not separable by record") {
				t.Errorf("got %v, want it refused as not separable", err)
			}
		})
	}
}

func TestPredictorAgreesWithStep(t *testing.T) {
	for name, s := range specs() {
		t.Run(name, func(t *testing.T) {
			st := newFilledStep(t, s)
			p, err := NewPredictor(onnxtest.Library(t), s, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = p.Close() }()
			copy(p.Emb, st.Emb)
			copy(p.Dense, st.Dense)
			copy(p.Params, st.Params)
			if err := p.Run(); err != nil {
				t.Fatal(err)
			}
			if err := st.Run(); err != nil {
				t.Fatal(err)
			}
			for i := range p.Pred {
				near(t, fmt.Sprintf("pred[%d]", i), float64(p.Pred[i]), float64(st.Pred[i]))
			}
		})
	}
}

// TestExtremeLogitsStayFinite holds the loss to its stable form: a naive log(sigmoid) is infinite here.
func TestExtremeLogitsStayFinite(t *testing.T) {
	s := Spec{Kind: LR, SparseFields: 1, Batch: 4}
	st := newFilledStep(t, s)
	clear(st.Params)
	copy(st.Emb, []float32{200, 200, -200, -200})
	copy(st.Label, []float32{1, 0, 1, 0})
	copy(st.Weight, []float32{1, 1, 1, 1})
	if err := st.Run(); err != nil {
		t.Fatal(err)
	}
	if st.Loss != 400 {
		t.Errorf("loss is %v, want 400: two records are wrong by a logit of 200", st.Loss)
	}
	if diff := cmp.Diff([]float32{0, 1, -1, 0}, st.GradEmb); diff != "" {
		t.Errorf("gradient (-want +got):\n%s", diff)
	}
}

func TestRunAllocatesNothing(t *testing.T) {
	st := newFilledStep(t, specs()["deepfm"])
	if n := testing.AllocsPerRun(100, func() {
		if err := st.Run(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("a step allocates %v times", n)
	}
}

func TestClosedStepAnswers(t *testing.T) {
	st := newFilledStep(t, specs()["lr"])
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if err := st.Run(); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("got %v, want an error that says that it is closed", err)
	}
}

// TestStepOnTheGPU holds every model's step on the first GPU against the same step on the CPU.
func TestStepOnTheGPU(t *testing.T) {
	for name, s := range specs() {
		t.Run(name, func(t *testing.T) {
			cpu := newFilledStep(t, s)
			gpu, err := NewStepOn(onnxtest.Library(t), s, 1, onnx.CUDA)
			if err != nil {
				t.Skipf("needs a GPU and an ONNX Runtime that can use it: %v", err)
			}
			t.Cleanup(func() {
				if err := gpu.Close(); err != nil {
					t.Error(err)
				}
			})
			copy(gpu.Emb, cpu.Emb)
			copy(gpu.Dense, cpu.Dense)
			copy(gpu.Label, cpu.Label)
			copy(gpu.Weight, cpu.Weight)
			copy(gpu.Params, cpu.Params)
			for _, st := range []*Step{cpu, gpu} {
				if err := st.Run(); err != nil {
					t.Fatal(err)
				}
			}
			compareGPU(t, "Pred", gpu.Pred, cpu.Pred)
			compareGPU(t, "Loss", []float32{gpu.Loss}, []float32{cpu.Loss})
			compareGPU(t, "GradEmb", gpu.GradEmb, cpu.GradEmb)
			compareGPU(t, "GradParams", gpu.GradParams, cpu.GradParams)
		})
	}
}

// compareGPU wants the same to within what TF32 keeps of a float32 in a product of matrices: 10 bits.
func compareGPU(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if d := math.Abs(float64(got[i] - want[i])); !(d <= 2e-3*(1+math.Abs(float64(want[i])))) {
			t.Errorf("%s[%d] is %g on the GPU, %g on the CPU", what, i, got[i], want[i])
		}
	}
}
