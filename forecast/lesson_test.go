package forecast

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A forecast is the same whatever the forecaster was asked before, and between two milestones nothing is learnt anew.
func TestLessonIsOnlyKept(t *testing.T) {
	t.Parallel()
	const season, n, steps, every = 960, 4080, 12, 960 / lessonShare
	rng := rand.New(rand.NewPCG(2, 8))
	s := synthetic(n, time.Second, func(i int) float64 {
		if i%97 == 0 {
			return math.NaN()
		}
		return cycle(float64(i)/season) * math.Exp(0.1*rng.NormFloat64())
	})
	seasons := []time.Duration{season * time.Second}
	kept := NewSeasonal(seasons).(*seasonal)
	learnt := map[*lesson]bool{}
	for k := 0; k < 3*every; k += 5 {
		past := Series{Start: s.At(k), Step: s.Step, Values: s.Values[k : n-3*every+k]} // it slides, as a scheduler's does
		if diff := cmp.Diff(forecastOf(t, NewSeasonal(seasons), past, steps), forecastOf(t, kept, past, steps)); diff != "" {
			t.Fatalf("bin %d: a forecaster that was asked before (+) and one that was not (-):\n%s", k, diff)
		}
		for _, l := range kept.lessons.all {
			learnt[&l.what] = true
		}
	}
	if len(learnt) > 4 { // both ends of the history pass three milestones, and together
		t.Errorf("%d lessons were learnt for %d forecasts", len(learnt), 3*every)
	}
	if len(kept.lessons.all) > lessonsKept {
		t.Errorf("%d lessons are kept, want %d at most", len(kept.lessons.all), lessonsKept)
	}
	changed := Series{Start: s.Start, Step: s.Step, Values: append([]float64(nil), s.Values[:n-every]...)}
	before := forecastOf(t, kept, changed, steps)
	changed.Values[n/2] *= 1000
	if diff := cmp.Diff(forecastOf(t, NewSeasonal(seasons), changed, steps), forecastOf(t, kept, changed, steps)); diff != "" {
		t.Errorf("a history of which a bin was corrected:\n%s", diff)
	}
	if cmp.Equal(before, forecastOf(t, kept, changed, steps)) {
		t.Error("a bin of a thousand times the rate changes nothing")
	}
}
