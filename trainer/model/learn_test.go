package model

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/onnx/onnxtest"
)

// clicks is a synthetic click problem: each id of each field has a weight and a hidden vector, and the odds of a click are the sum of
// the weights, a dense feature, and the inner products of the first two fields' vectors, which logistic regression cannot express.
type clicks struct {
	spec   Spec
	vocab  int
	rng    *rand.Rand
	weight [][]float64
	vector [][][]float64
}

func newClicks(s Spec, vocab int) *clicks {
	c := &clicks{spec: s, vocab: vocab, rng: rand.New(rand.NewPCG(17, 4))}
	for range s.SparseFields {
		var weights []float64
		var vectors [][]float64
		for range vocab {
			weights = append(weights, 0.5*c.rng.NormFloat64())
			vectors = append(vectors, []float64{1.2 * c.rng.NormFloat64(), 1.2 * c.rng.NormFloat64()})
		}
		c.weight, c.vector = append(c.weight, weights), append(c.vector, vectors)
	}
	return c
}

// next draws a record: its row number per field, dense features and label.
func (c *clicks) next(ids []uint64, dense []float32) (label float32) {
	z := 0.0
	for f := range ids {
		id := c.rng.IntN(c.vocab)
		z += c.weight[f][id]
		ids[f] = uint64(f*c.vocab + id)
	}
	a, b := c.vector[0][ids[0]], c.vector[1][int(ids[1])-c.vocab]
	z += a[0]*b[0] + a[1]*b[1]
	for d := range dense {
		dense[d] = float32(c.rng.NormFloat64())
	}
	z += 0.8 * float64(dense[0])
	if c.rng.Float64() < 1/(1+math.Exp(-z)) {
		return 1
	}
	return 0
}

// adagrad is the optimiser of the test: x −= rate·g/√(Σg²).
type adagrad struct{ x, sum []float32 }

func (a adagrad) step(grad []float32, rate float32) {
	for i, g := range grad {
		a.sum[i] += g * g
		a.x[i] -= rate * g / float32(math.Sqrt(float64(a.sum[i]))+1e-7)
	}
}

// learner is a worker and a parameter server in one, at their simplest.
type learner struct {
	step  *Step
	dense adagrad
	rows  map[uint64]adagrad
	spec  Spec
}

// train runs one batch of c and returns what the model said before it learned from it.
func (l *learner) train(t *testing.T, c *clicks, learn bool) (pred, label []float32) {
	t.Helper()
	s, st, width := l.spec, l.step, l.spec.RowWidth()
	ids := make([]uint64, s.Batch*s.SparseFields)
	for i := range s.Batch {
		st.Label[i] = c.next(ids[i*s.SparseFields:(i+1)*s.SparseFields], st.Dense[i*s.DenseFields:(i+1)*s.DenseFields])
		st.Weight[i] = 1 / float32(s.Batch)
	}
	for i, id := range ids {
		if _, ok := l.rows[id]; !ok {
			row := adagrad{make([]float32, width), make([]float32, width)}
			s.InitRow(id, row.x)
			l.rows[id] = row
		}
		copy(st.Emb[i*width:(i+1)*width], l.rows[id].x)
	}
	copy(st.Params, l.dense.x)
	if err := st.Run(); err != nil {
		t.Fatal(err)
	}
	if learn {
		for i, id := range ids {
			l.rows[id].step(st.GradEmb[i*width:(i+1)*width], 0.1)
		}
		l.dense.step(st.GradParams, 0.03)
	}
	return slices.Clone(st.Pred), slices.Clone(st.Label)
}

// auc is the share of (positive, negative) pairs that the predictions order correctly; ties count half.
func auc(pred, label []float32) float64 {
	order := make([]int, len(pred))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		if pred[a] < pred[b] {
			return -1
		}
		if pred[a] > pred[b] {
			return 1
		}
		return 0
	})
	var below, ordered, positives, negatives float64
	for at := 0; at < len(order); {
		var pos, neg float64
		value := pred[order[at]]
		for ; at < len(order) && pred[order[at]] == value; at++ {
			if label[order[at]] == 1 {
				pos++
			} else {
				neg++
			}
		}
		ordered += pos * (below + neg/2)
		below, positives, negatives = below+neg, positives+pos, negatives+neg
	}
	return ordered / (positives * negatives)
}

func TestModelsLearnClicks(t *testing.T) {
	base := Spec{SparseFields: 3, DenseFields: 2, EmbeddingDim: 4, Hidden: []int{16, 8}, Batch: 64, Seed: 1}
	scores := map[string]float64{}
	for _, kind := range []string{LR, DeepFM} {
		s := base
		s.Kind = kind
		st, err := NewStep(onnxtest.Library(t), s, 1)
		if err != nil {
			t.Fatal(err)
		}
		l := &learner{st, adagrad{s.InitDense(), make([]float32, s.DenseSize())}, map[uint64]adagrad{}, s}
		c := newClicks(s, 20)
		evaluate := func() float64 {
			var pred, label []float32
			for range 60 {
				p, y := l.train(t, c, false)
				pred, label = append(pred, p...), append(label, y...)
			}
			return auc(pred, label)
		}
		before := evaluate()
		for range 1200 {
			l.train(t, c, true)
		}
		after := evaluate()
		t.Logf("%s: AUC %.3f untrained, %.3f trained", kind, before, after)
		if after < before+0.1 {
			t.Errorf("%s: AUC %.3f after training, %.3f before; want at least 0.1 more", kind, after, before)
		}
		scores[kind] = after
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
	if scores[DeepFM] < scores[LR]+0.03 {
		t.Errorf("AUC: deepfm %.3f, lr %.3f; deepfm must find the products that lr cannot", scores[DeepFM], scores[LR])
	}
}

// BenchmarkStep is one gradient step of a small DeepFM: 8 fields of width 8, layers 64 and 32, batch 256, one thread.
func BenchmarkStep(b *testing.B) {
	s := Spec{Kind: DeepFM, SparseFields: 8, EmbeddingDim: 8, Hidden: []int{64, 32}, Batch: 256, Seed: 1}
	st, err := NewStep(onnxtest.Library(b), s, 1)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	fillRecords(st, rand.New(rand.NewPCG(1, 1)))
	copy(st.Params, s.InitDense())
	b.ReportAllocs()
	for b.Loop() {
		if err := st.Run(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(s.Batch)*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
}

// BenchmarkStepOn is one gradient step of a wide DeepFM (26 fields of width 64, layers 1024, 512 and 256, batch 4,096) on one CPU
// thread, on all, and on a GPU where there is one.
func BenchmarkStepOn(b *testing.B) {
	s := Spec{Kind: DeepFM, SparseFields: 26, DenseFields: 13, EmbeddingDim: 64, Hidden: []int{1024, 512, 256}, Batch: 4096, Seed: 1}
	for _, on := range []struct {
		name    string
		threads int
		device  string
	}{{"cpu-1", 1, onnx.CPU}, {"cpu-all", runtime.NumCPU(), onnx.CPU}, {"cuda", 1, onnx.CUDA}} {
		b.Run(on.name, func(b *testing.B) {
			st, err := NewStepOn(onnxtest.Library(b), s, on.threads, on.device)
			if err != nil {
				b.Skip(err)
			}
			defer func() { _ = st.Close() }()
			fillRecords(st, rand.New(rand.NewPCG(1, 1)))
			copy(st.Params, s.InitDense())
			for b.Loop() {
				if err := st.Run(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(s.Batch)*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
		})
	}
}

func BenchmarkInitRow(b *testing.B) {
	s := Spec{Kind: DeepFM, SparseFields: 8, EmbeddingDim: 8, Seed: 1}
	row := make([]float32, s.RowWidth())
	for id := uint64(0); b.Loop(); id++ {
		s.InitRow(id, row)
	}
}
