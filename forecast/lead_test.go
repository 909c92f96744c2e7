package forecast

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// lasting is noise of which so much lasts from one value to the next.
func lasting(rng *rand.Rand, share float64) func() float64 {
	v := rng.NormFloat64()
	return func() float64 {
		v = share*v + math.Sqrt(1-share*share)*rng.NormFloat64()
		return v
	}
}

// sureShare is how often the first of two forecasters, whose errors are so large and last so much, leads at all and surely, over so many origins.
func sureShare(origins int, own, other, share float64) (leads, sure float64) {
	const times, steps = 2000, 10
	rng := rand.New(rand.NewPCG(5, 5))
	for range times {
		var d duel
		mine, theirs, both := lasting(rng, share), lasting(rng, share), lasting(rng, share)
		for range origins {
			d.begin()
			a, b, c := mine(), theirs(), both() // what misleads both, and each
			for range steps {
				d.add(100, 100+c+own*(a+rng.NormFloat64()), 100+c+other*(b+rng.NormFloat64()))
			}
		}
		l := d.lead(0)
		if l.By > 0 {
			leads += 1. / times
		}
		if l.Sure() {
			sure += 1. / times
		}
	}
	return leads, sure
}

// Of two that are as good as each other one leads every second time, and surely seldom; one that is better by a quarter of its error leads surely as soon as there are enough forecasts.
func TestLeadIsMoreThanChance(t *testing.T) {
	t.Parallel()
	for _, origins := range []int{18, 60, 120} {
		for _, share := range []float64{0, 0.5} {
			leads, sure := sureShare(origins, 2, 2, share)
			t.Logf("%d origins of which %.1f lasts: leads %.3f, surely %.3f", origins, share, leads, sure)
			if leads < 0.4 || sure > 0.06 {
				t.Errorf("%d origins of which %.1f lasts: of two that are equal one leads %.1f %% of the times, and surely %.1f %%", origins, share, 100*leads, 100*sure)
			}
		}
		if _, sure := sureShare(origins, 2, 3, 0.5); origins >= 60 && sure < 0.8 {
			t.Errorf("%d origins: what is better leads surely in %.1f %% only", origins, 100*sure)
		}
	}
	var few, same duel
	for i := range 30 {
		for _, d := range []*duel{&few, &same} {
			if d == &same || i < leastUnseen-1 {
				d.begin()
			}
		}
		few.add(100, 99, 90)
		same.add(100, 98, 102)
		same.add(math.NaN(), 1, 2)
	}
	if l := few.lead(0); l.Sure() || !math.IsNaN(l.SE) {
		t.Errorf("of %d origins it says %+v", leastUnseen-1, l)
	}
	if l := same.lead(0); l.Sure() || l.By != 0 {
		t.Errorf("of two that are off by the same it says %+v", l)
	}
	if l := same.lead(29); !math.IsNaN(l.SE) {
		t.Errorf("of horizons that all overlap it says %+v", l)
	}
	if (Lead{}).Sure() || (Lead{By: 1, SE: math.NaN()}).Sure() || !(Lead{By: 0.03, SE: 0.01}).Sure() || (Lead{By: 0.02, SE: 0.01}).Sure() {
		t.Error("what is sure is not")
	}
}

// A training reports the model's lead, which is the difference of the errors where both forecast every bin.
func TestTrainingReportsItsLead(t *testing.T) {
	s := Series{Start: time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC), Step: time.Hour}
	rng := rand.New(rand.NewPCG(9, 9))
	for i := range 28 * 24 {
		s.Values = append(s.Values, 1000*(1.5+math.Sin(float64(i)/24*2*math.Pi))*(1+0.05*rng.NormFloat64()))
	}
	_, r, err := TrainLinear(s, LinearOptions{Horizon: 4, Seasons: []time.Duration{24 * time.Hour}, holdout: 20, Against: NewNaive(24 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		lead  Lead
		other Errors
	}{"seasonal": {r.OverSeasonal, r.Seasonal}, "against": {r.OverAgainst, r.Against}, "naive": {r.OverNaive, r.Naive}} {
		if want := c.other.WAPE - r.Model.WAPE; math.Abs(c.lead.By-want) > 1e-9 || !(c.lead.SE > 0) {
			t.Errorf("over %s it leads by %+v, want %v", name, c.lead, want)
		}
	}
	if !r.OverAgainst.Sure() {
		t.Errorf("over naive, which is off by half as much again, its lead is %+v", r.OverAgainst)
	}
}

func TestOverlapping(t *testing.T) {
	for want, origins := range map[int][]int{0: {0, 10, 20}, 2: {0, 4, 8, 20}, 9: {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}} {
		if got := overlapping(origins, 10); got != want {
			t.Errorf("of %v %d are within ten bins, want %d", origins, got, want)
		}
	}
}

// mute is a forecaster that never answers.
type mute struct {
	Forecaster
	err error
}

func (m mute) Forecast(Series, int) (Forecast, error) { return Forecast{}, m.err }

// A model that gives no answer is told as that where others are held against it, unless all that it lacks is history.
func TestTrainingAgainstWhatNeverAnswers(t *testing.T) {
	t.Parallel()
	s := synthetic(28*24, time.Hour, func(i int) float64 { return cycle(float64(i)/24) + float64(i*7%11) })
	for name, c := range map[string]struct {
		err  error
		told bool
	}{
		"too slow": {fmt.Errorf("m: %w", ErrTooSlow), true}, "broken": {errors.New("it is broken"), true}, "short": {fmt.Errorf("m: %w", ErrShortHistory), false},
	} {
		_, r, err := TrainLinear(s, LinearOptions{Horizon: 4, Seasons: []time.Duration{24 * time.Hour}, holdout: 20, Against: mute{NewNaive(24 * time.Hour), c.err}})
		if err != nil {
			t.Fatal(err)
		}
		if c.told != errors.Is(r.Silent(), c.err) || !math.IsNaN(r.Against.WAPE) || !(r.OverNaive.SE > 0) {
			t.Errorf("%s: it tells %v, error %v, lead over naive %+v", name, r.Silent(), r.Against.WAPE, r.OverNaive)
		}
	}
}
