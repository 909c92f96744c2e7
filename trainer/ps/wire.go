package ps

import (
	"encoding/binary"
	"math"
	"slices"
)

// On the wire and in snapshots, ids are 8 and weights 4 bytes, little-endian.

func idAt(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }

// putFloats writes v into b, which has 4·len(v) bytes.
func putFloats(b []byte, v []float32) {
	b = b[:4*len(v)]
	for i, x := range v {
		binary.LittleEndian.PutUint32(b[4*i:4*i+4], math.Float32bits(x))
	}
}

// readFloats fills v from b, which has 4·len(v) bytes.
func readFloats(v []float32, b []byte) {
	b = b[:4*len(v)]
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i : 4*i+4]))
	}
}

// MaxGradient bounds a gradient's magnitude: beyond it, its square, which optimisers accumulate, is not finite. A push with a larger one is refused.
const MaxGradient = 1e18

// Absurd says whether a gradient is not finite or beyond MaxGradient anywhere.
func Absurd(grad []float32) bool {
	for _, g := range grad {
		if !(g <= MaxGradient && g >= -MaxGradient) {
			return true
		}
	}
	return false
}

// firstAbsurd is the index of the first float32 in b that is NaN, infinite or beyond MaxGradient; −1 when there is none.
func firstAbsurd(b []byte) int {
	limit := math.Float32bits(MaxGradient)
	for i := 0; i+4 <= len(b); i += 4 {
		// Without its sign bit, a float's bits grow with its magnitude, infinities and NaNs on top.
		if binary.LittleEndian.Uint32(b[i:])&0x7fffffff > limit {
			return i / 4
		}
	}
	return -1
}

// allZero says whether every float32 in b is ±0.
func allZero(b []byte) bool {
	for i := 0; i+4 <= len(b); i += 4 {
		if binary.LittleEndian.Uint32(b[i:])&0x7fffffff != 0 {
			return false
		}
	}
	return true
}

func appendID(b []byte, id uint64) []byte { return binary.LittleEndian.AppendUint64(b, id) }

// appendFloats appends v, 4 bytes each.
func appendFloats(b []byte, v []float32) []byte {
	at := len(b)
	b = slices.Grow(b, 4*len(v))[:at+4*len(v)]
	putFloats(b[at:], v)
	return b
}
