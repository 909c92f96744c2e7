package forecast

import (
	"math"
	"testing"
	"time"
)

func TestSeriesQuiet(t *testing.T) {
	nan := math.NaN()
	for _, tt := range []struct {
		name        string
		values      []float64
		quiet       bool
		mean, usual float64
	}{
		{"as always", []float64{100, 100, 100, 100}, false, 100, 100},
		{"half", []float64{150, 150, 50, 50}, false, 50, 100},
		{"1 %", []float64{199, 199, 1, 1}, false, 1, 100},
		{"less than 1 %", []float64{199.2, 199.2, 0.8, 0.8}, true, 0.8, 100},
		{"silence", []float64{200, 200, 0, 0}, true, 0, 100},
		{"silence and holes", []float64{200, nan, nan, 0}, true, 0, 100},
		{"always silent", []float64{0, 0, 0, 0}, true, 0, 0},
		{"not known", []float64{100, 100, nan, nan}, false, nan, 100},
		{"nothing known", []float64{nan, nan, nan, nan}, false, nan, nan},
	} {
		s := Series{Start: time.Unix(1_800_000_000, 0), Step: time.Second, Values: tt.values}
		quiet, mean, usual := s.Quiet(s.At(2))
		if same := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 || math.IsNaN(a) && math.IsNaN(b) }; quiet != tt.quiet || !same(mean, tt.mean) || !same(usual, tt.usual) {
			t.Errorf("%s: quiet %v, %v of %v; want %v, %v of %v", tt.name, quiet, mean, usual, tt.quiet, tt.mean, tt.usual)
		}
	}
}
