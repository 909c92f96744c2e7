package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// separableTolerance is the relative difference allowed between a batch's gradient and the sum of its parts': rounding of
// float32 sums in another order.
const separableTolerance = 1e-4

// CheckSeparable runs the step on random records and reports whether its graph is separable by record, which exactly-once training rests on
// (EXACTLY_ONCE.md, rule 7): the gradients and loss of the batch must be the sums of those of two parts of it, and a record of weight 0
// must contribute exactly zero whatever it holds. Params are taken as they are in the step; all other inputs are overwritten. A graph that
// normalises over the batch, or divides by its size, is found out.
func CheckSeparable(s *Step, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 1))
	fillRecords(s, rng)
	if err := s.Run(); err != nil {
		return fmt.Errorf("model: check separability: %w", err)
	}
	whole := snapshot(s)
	weights := slices.Clone(s.Weight)

	half := len(s.Weight) / 2
	var parts [2]result
	for p := range parts {
		for i, w := range weights {
			s.Weight[i] = w
			if i < half == (p == 1) {
				s.Weight[i] = 0
			}
		}
		if err := s.Run(); err != nil {
			return fmt.Errorf("model: check separability: %w", err)
		}
		parts[p] = snapshot(s)
		if err := parts[p].zeroWhereWeightless(s); err != nil {
			return err
		}
	}
	if err := whole.isSumOf(parts[0], parts[1]); err != nil {
		return err
	}
	return checkPadding(s, parts[1], rng)
}

// checkPadding changes everything about the weightless records and asks for the very same bits.
func checkPadding(s *Step, before result, rng *rand.Rand) error {
	n := len(s.Weight)
	for i, w := range s.Weight {
		if w != 0 {
			continue
		}
		s.Label[i] = 1 - s.Label[i]
		for _, in := range [][]float32{s.Emb, s.Dense} {
			row := in[i*len(in)/n : (i+1)*len(in)/n]
			for j := range row {
				row[j] = float32(3 * rng.NormFloat64())
			}
		}
	}
	if err := s.Run(); err != nil {
		return fmt.Errorf("model: check separability: %w", err)
	}
	after := snapshot(s)
	same := func(a, b float32) bool { return a == b }
	if before.loss != after.loss || !slices.EqualFunc(before.emb, after.emb, same) || !slices.EqualFunc(before.params, after.params, same) {
		return fmt.Errorf("model: the graph is not separable by record: what a record of weight 0 holds changes the loss or the gradients; the loss must be Σ weight·loss(record)")
	}
	return nil
}

func fillRecords(s *Step, rng *rand.Rand) {
	for _, in := range [][]float32{s.Emb, s.Dense} {
		for i := range in {
			in[i] = float32(0.5 * rng.NormFloat64())
		}
	}
	for i := range s.Label {
		s.Label[i] = float32(rng.IntN(2))
		s.Weight[i] = 1 / float32(len(s.Weight))
	}
}

// result is what one run gave.
type result struct {
	loss        float32
	emb, params []float32
}

func snapshot(s *Step) result {
	return result{loss: s.Loss, emb: slices.Clone(s.GradEmb), params: slices.Clone(s.GradParams)}
}

func (r result) zeroWhereWeightless(s *Step) error {
	n := len(s.Weight)
	for i, w := range s.Weight {
		for _, d := range r.emb[i*len(r.emb)/n : (i+1)*len(r.emb)/n] {
			if w == 0 && d != 0 {
				return fmt.Errorf("model: the graph is not separable by record: a record of weight 0 has an embedding gradient of %v", d)
			}
		}
	}
	return nil
}

func (r result) isSumOf(a, b result) error {
	compare := func(what string, whole, a, b []float32) error {
		scale := 0.0
		for _, v := range whole {
			scale = max(scale, math.Abs(float64(v)))
		}
		for i := range whole {
			if d := math.Abs(float64(whole[i]) - float64(a[i]) - float64(b[i])); !(d <= separableTolerance*(scale+1e-6)) {
				return fmt.Errorf("model: the graph is not separable by record: element %d of %s is %v for a batch, and %v + %v for its two parts; the loss must be Σ weight·loss(record), without batch norm, means over the batch or in-batch negatives",
					i, what, whole[i], a[i], b[i])
			}
		}
		return nil
	}
	if err := compare("the loss", []float32{r.loss}, []float32{a.loss}, []float32{b.loss}); err != nil {
		return err
	}
	if err := compare(outEmb, r.emb, a.emb, b.emb); err != nil {
		return err
	}
	return compare(outParams, r.params, a.params, b.params)
}
