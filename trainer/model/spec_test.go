package model

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestValidate(t *testing.T) {
	good := Spec{Kind: DeepFM, SparseFields: 2, EmbeddingDim: 4, Hidden: []int{8}, Batch: 16}
	tests := []struct {
		name   string
		change func(*Spec)
		want   []string // parts of the error; none means valid
	}{
		{"good", func(*Spec) {}, nil},
		{"lr needs no width", func(s *Spec) { s.Kind, s.EmbeddingDim, s.Hidden = LR, 0, nil }, nil},
		{"kind", func(s *Spec) { s.Kind = "mmoe" }, []string{`kind is "mmoe"; want "lr" or "deepfm"`}},
		{"no features", func(s *Spec) { s.Kind, s.SparseFields = LR, 0 }, []string{"there are no features"}},
		{"dense deepfm", func(s *Spec) { s.SparseFields, s.DenseFields = 0, 3 }, []string{"deepfm needs a sparse field"}},
		{"negative", func(s *Spec) { s.DenseFields = -1 }, []string{"dense fields is -1; want 0 to"}},
		{"batch", func(s *Spec) { s.Batch = 0 }, []string{"batch is 0; want 1 to"}},
		{"width", func(s *Spec) { s.EmbeddingDim = 0 }, []string{"embedding width is 0"}},
		{"no hidden", func(s *Spec) { s.Hidden = nil }, []string{"deepfm has 0 hidden layers"}},
		{"hidden", func(s *Spec) { s.Hidden = []int{8, 0} }, []string{"hidden layer 2 is 0"}},
		{"l2", func(s *Spec) { s.L2 = float32(math.NaN()) }, []string{"l2 is NaN"}},
		{"several", func(s *Spec) { s.Batch, s.EmbeddingDim = -1, 0 }, []string{"batch is -1", "embedding width is 0"}},
		{"too many records", func(s *Spec) { s.Batch, s.SparseFields = maxBatch, maxFields }, []string{"is too large"}},
		{"too many parameters", func(s *Spec) { s.Hidden = []int{maxWidth, maxWidth} }, []string{"dense parameters are too many"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := good
			tt.change(&s)
			err := s.Validate()
			if len(tt.want) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			for _, part := range tt.want {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("got %v, want it to say %q", err, part)
				}
			}
			if _, err := Build(s); err == nil {
				t.Error("Build took it")
			}
		})
	}
}

func TestSizes(t *testing.T) {
	s := Spec{Kind: DeepFM, SparseFields: 8, DenseFields: 3, EmbeddingDim: 8, Hidden: []int{64, 32}, Batch: 1}
	if got, want := s.RowWidth(), 9; got != want {
		t.Errorf("row width %d, want %d", got, want)
	}
	if got, want := s.DenseSize(), 1+3+(8*8+3)*64+64+64*32+32+32; got != want {
		t.Errorf("dense size %d, want %d", got, want)
	}
	s.Kind = LR
	if s.RowWidth() != 1 || s.DenseSize() != 4 {
		t.Errorf("lr: row width %d, dense size %d; want 1 and 4", s.RowWidth(), s.DenseSize())
	}
}

func TestInitialStateIsDeterministic(t *testing.T) {
	s := Spec{Kind: DeepFM, SparseFields: 2, EmbeddingDim: 4, Hidden: []int{8}, Batch: 16, Seed: 5}
	if diff := cmp.Diff(s.InitDense(), s.InitDense()); diff != "" {
		t.Error("InitDense differs between calls:\n", diff)
	}
	other := s
	other.Seed++
	if cmp.Equal(s.InitDense(), other.InitDense()) {
		t.Error("InitDense does not depend on the seed")
	}
	row := func(s Spec, id uint64) []float32 {
		r := []float32{9, 9, 9, 9, 9} // what was there must not matter
		s.InitRow(id, r)
		return r
	}
	if diff := cmp.Diff(row(s, 7), row(s, 7)); diff != "" {
		t.Error("InitRow differs between calls:\n", diff)
	}
	if diff := cmp.Diff([]float32{0, 0, 0, 0, 0}, row(Spec{Kind: LR}, 7)); diff != "" {
		t.Error("lr row:\n", diff)
	}
	if cmp.Equal(row(s, 7), row(s, 8)) || cmp.Equal(row(s, 7), row(other, 7)) {
		t.Error("rows of different ids or seeds are equal")
	}
	if n := testing.AllocsPerRun(10, func() { s.InitRow(1, make([]float32, 0, 5)[:5]) }); n != 0 {
		t.Errorf("InitRow allocates %v times", n)
	}
}

// TestInitialRowsLookUniform checks mean and variance over many rows: uniform in ±a has variance a²/3.
func TestInitialRowsLookUniform(t *testing.T) {
	s := Spec{Kind: DeepFM, EmbeddingDim: 8, Seed: 1}
	row := make([]float32, s.RowWidth())
	var n, sum, squares float64
	for id := range uint64(20000) {
		s.InitRow(id, row)
		if row[0] != 0 {
			t.Fatalf("first-order weight of id %d is %v, want 0", id, row[0])
		}
		for _, v := range row[1:] {
			if math.Abs(float64(v)) > rowScale {
				t.Fatalf("id %d: %v is outside ±%v", id, v, rowScale)
			}
			n, sum, squares = n+1, sum+float64(v), squares+float64(v)*float64(v)
		}
	}
	if mean, bound := sum/n, 5*rowScale/math.Sqrt(3*n); math.Abs(mean) > bound {
		t.Errorf("mean %v is beyond five standard errors (%v)", mean, bound)
	}
	if got, want := squares/n, rowScale*rowScale/3; math.Abs(got/want-1) > 0.02 {
		t.Errorf("variance %v, want %v", got, want)
	}
}

// TestInitialStateIsFixed pins the numbers: servers make rows anew instead of storing them, so a change would alter models that are
// restored from snapshots of an older program. The values are those of the first version.
func TestInitialStateIsFixed(t *testing.T) {
	s := Spec{Kind: DeepFM, SparseFields: 1, EmbeddingDim: 3, Hidden: []int{2}, Batch: 1, Seed: 5}
	row := make([]float32, 4)
	s.InitRow(7, row)
	if diff := cmp.Diff([]float32{0, -0.0021759633, -0.022911273, -0.011000312}, row); diff != "" {
		t.Errorf("row (-want +got):\n%s", diff)
	}
	want := []float32{0, -0.3335464, -1.9968601, 0.31512362, 0.116314135, -0.81432045, -0.07391118, 0, 0, -0.29898667, 1.2483182}
	if diff := cmp.Diff(want, s.InitDense()); diff != "" {
		t.Errorf("dense (-want +got):\n%s", diff)
	}
}
