package model

import (
	"math"
	"math/rand/v2"
)

// rowScale bounds an embedding's initial elements: uniform in ±rowScale. Small enough that the first predictions stay near the
// bias, large enough that the products of two fields have a gradient.
const rowScale = 0.05

// InitDense gives the dense parameters before the first step, the same for the same spec. Hidden matrices are normal with
// variance 2/fan-in (He et al., ICCV 2015); all else is zero.
func (s Spec) InitDense() []float32 {
	rng := rand.New(rand.NewPCG(s.Seed, 0x6b616c65)) // the second word only keeps this sequence apart from others of the seed
	out := make([]float32, s.DenseSize())
	at := 0
	for _, b := range s.blocks() {
		if b.fanIn > 0 {
			scale := math.Sqrt(2 / float64(b.fanIn))
			for i := range b.size() {
				out[at+i] = float32(rng.NormFloat64() * scale)
			}
		}
		at += b.size()
	}
	return out
}

// InitRow fills an embedding row as it is before its first step: it depends on Seed and id alone, so that any server makes the same row
// for an id at any time. First-order weights are zero, embeddings uniform in ±0.05. It allocates nothing.
func (s Spec) InitRow(id uint64, row []float32) {
	clear(row)
	if s.Kind != DeepFM || len(row) == 0 {
		return
	}
	state := mix(s.Seed) ^ mix(id+0x9e3779b97f4a7c15)
	for i := range row[1:] {
		state += 0x9e3779b97f4a7c15
		unit := float64(mix(state)>>11) / (1 << 53) // uniform in [0,1)
		row[1+i] = float32((2*unit - 1) * rowScale)
	}
}

// mix is the finaliser of SplitMix64 (Steele, Lea & Flood, OOPSLA 2014): a bijection whose outputs look random.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
