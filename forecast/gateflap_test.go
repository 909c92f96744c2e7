package forecast

import (
	"math/rand/v2"
	"testing"
	"time"
)

// swaying is a forecaster of which it is written down what it says at each moment, in seconds since 1970.
type swaying struct {
	name string
	says map[int64]float64
}

func (s swaying) Name() string { return s.name }

func (s swaying) Forecast(h Series, steps int) (Forecast, error) {
	f := Forecast{At: h.End(), Step: h.Step, Source: s.name}
	for range steps {
		v := s.says[h.End().Unix()]
		f.Mean, f.Lower, f.Upper = append(f.Mean, v), append(f.Lower, v), append(f.Upper, v)
	}
	return f, nil
}

// changesOf are the bins at which a gate changes between two forecasters of 5 bins that are as good as each other, of which the first is worse by a factor from a bin on. What misleads each lasts.
func changesOf(t *testing.T, seed uint64, bins, from int, factor float64) (changes []int) {
	const past, steps, off = 200, 5, 0.05
	rng := rand.New(rand.NewPCG(seed, 1))
	s := Series{Start: time.Unix(1_800_000_000, 0), Step: time.Minute}
	both := lasting(rng, 0.9)
	for range bins {
		s.Values = append(s.Values, 1000*(1+0.03*rng.NormFloat64()+off*both()))
	}
	model, seasonal := swaying{"model", map[int64]float64{}}, swaying{"seasonal", map[int64]float64{}}
	mine, theirs := lasting(rng, 0.9), lasting(rng, 0.9)
	g := newGate(t, model, seasonal)
	for i := past; i < bins; i++ {
		own := off
		if i >= from {
			own *= factor
		}
		now := s.At(i)
		model.says[now.Unix()], seasonal.says[now.Unix()] = 1000*(1+own*mine()), 1000*(1+off*theirs())
		_, v, err := g.Forecast(now, Series{Start: s.At(i - past), Step: s.Step, Values: s.Values[i-past : i]}, steps)
		if err != nil {
			t.Fatal(err)
		}
		if v.Changed {
			changes = append(changes, i)
		}
	}
	return changes
}

// Of two that are as good as each other one is the worse now and then, by chance: they do not take turns all the time. One that becomes bad is left as soon as ever.
func TestGateDoesNotFlapByChance(t *testing.T) {
	t.Parallel()
	const bins = 5000 // three and a half days
	n := 0
	for seed := range uint64(2) {
		n += len(changesOf(t, seed, bins, bins, 1))
	}
	t.Logf("%d changes", n)
	if n > 36 {
		t.Errorf("in a week it changes %d times between two that are equal", n)
	}
	var left []float64
	for seed := range uint64(6) {
		after := 1000.
		for _, i := range changesOf(t, seed+100, 1000, 500, 2) {
			if i >= 500 {
				after = float64(i - 500)
				break
			}
		}
		left = append(left, after)
	}
	t.Logf("one that is off by twice as much is left after %v bins", left)
	if median(left) > 90 {
		t.Errorf("one that is off by twice as much is left after %v bins", left)
	}
}
