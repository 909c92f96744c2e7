package ps

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Optimiser turns gradients into updates. Its state lies beside the weights and belongs to the tablet, its step counter too.
type Optimiser struct {
	// Kind is "sgd", "adagrad" or "adam".
	Kind string
	// LearningRate is the step size η > 0.
	LearningRate float32
	// L2 adds share·L2·w to the gradient of every weight that a push touches, share being the push's part of the nominal batch: a batch
	// that is trained in parts decays as much as one that is trained whole (EXACTLY_ONCE rule 7). 0: none, or it is in the graph.
	L2 float32
}

// Constants of the optimisers.
const (
	adagradEpsilon = 1e-10 // Duchi, Hazan and Singer, 2011, with PyTorch's ε and its initial accumulator of 0
	adamBeta1      = 0.9   // Kingma and Ba, 2015, §2: suggested defaults
	adamBeta2      = 0.999
	adamEpsilon    = 1e-8
)

// Validate names what is wrong with the optimiser.
func (o Optimiser) Validate() error {
	switch o.Kind {
	case "sgd", "adagrad", "adam":
	default:
		return fmt.Errorf("optimiser %q is none of sgd, adagrad, adam", o.Kind)
	}
	if !(o.LearningRate > 0) || math.IsInf(float64(o.LearningRate), 0) {
		return fmt.Errorf("optimiser %s: the learning rate %v is not a positive number", o.Kind, o.LearningRate)
	}
	if !(o.L2 >= 0) || math.IsInf(float64(o.L2), 0) {
		return fmt.Errorf("optimiser %s: l2 of %v is not a number ≥ 0", o.Kind, o.L2)
	}
	return nil
}

// slots is how many float32 of state each weight has.
func (o Optimiser) slots() int {
	switch o.Kind {
	case "adagrad":
		return 1
	case "adam":
		return 2
	}
	return 0
}

// update is one push's step on one tablet: the optimiser with what is common to all its weights worked out.
type update struct {
	kind  string
	rate  float32 // η, for Adam with the bias correction √(1−β₂ᵗ)/(1−β₁ᵗ) of the tablet's step t
	decay float32 // share·L2
	eps   float32
}

func (o Optimiser) update(step int64, share float32) update {
	u := update{kind: o.Kind, rate: o.LearningRate, decay: share * o.L2}
	if o.Kind == "adam" {
		t := float64(step)
		c2 := math.Sqrt(1 - math.Pow(adamBeta2, t))
		u.rate = float32(float64(o.LearningRate) * c2 / (1 - math.Pow(adamBeta1, t)))
		u.eps = float32(adamEpsilon * c2)
	}
	return u
}

// apply updates n weights: v holds the weights and then the optimiser's slots, each of length n; grad holds n float32, little-endian.
func (u update) apply(v []float32, n int, grad []byte) {
	w := v[:n]
	grad = grad[:4*n]
	switch u.kind {
	case "sgd":
		for i := range w {
			g := floatAt(grad, i) + u.decay*w[i]
			w[i] -= u.rate * g
		}
	case "adagrad":
		acc := v[n : 2*n]
		for i := range w {
			g := floatAt(grad, i) + u.decay*w[i]
			if g == 0 {
				continue // 0/√0
			}
			acc[i] += g * g
			w[i] -= u.rate * g / (float32(math.Sqrt(float64(acc[i]))) + adagradEpsilon)
		}
	case "adam":
		m, s := v[n:2*n], v[2*n:3*n]
		for i := range w {
			g := floatAt(grad, i) + u.decay*w[i]
			m[i] = adamBeta1*m[i] + (1-adamBeta1)*g
			s[i] = adamBeta2*s[i] + (1-adamBeta2)*g*g
			w[i] -= u.rate * m[i] / (float32(math.Sqrt(float64(s[i]))) + u.eps)
		}
	}
}

func floatAt(b []byte, i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
}
