package forecast

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// shifting is a daily course with noise, in bins of five minutes, whose level is multiplied from one bin on until another.
func shifting(seed uint64, days int, times float64, from, to int) Series {
	rng := rand.New(rand.NewPCG(seed, 40))
	return synthetic(days*noisyDay, 5*time.Minute, func(i int) float64 {
		v := 1000 * (1 + 0.6*math.Sin(2*math.Pi*float64(i)/noisyDay)) * (1 + 0.05*rng.NormFloat64())
		if i >= from && i < to {
			v *= times
		}
		return v
	})
}

var dayAndWeek = []time.Duration{24 * time.Hour, 7 * 24 * time.Hour}

// Over the days about a new level the band of 90 % holds what it holds on others, or 90 %, save what nobody can know: what comes within the horizon of the shift, and in the three quarters of an hour
// until it is told from chance.
func TestBandsHoldOverAShift(t *testing.T) {
	t.Parallel()
	const days, every, at = 14, 3, 14*noisyDay*3/4 + 37
	told := every * 3 // bins: three blocks
	for _, c := range []struct {
		f     Forecaster
		times []float64
	}{{NewSeasonal(dayAndWeek), []float64{0.4, 1.4, 2.5}}, {NewSeasonalEnsemble(dayAndWeek), []float64{2.5}}} {
		measured := func(times float64) []Errors {
			r, err := Backtest(c.f, shifting(1, days, times, at, math.MaxInt), BacktestOptions{Steps: 24, Every: every, Whole: true})
			if err != nil {
				t.Fatal(err)
			}
			return r.PerHorizon
		}
		usual := measured(1)
		for _, times := range c.times {
			got := measured(times)
			for _, h := range []int{3, 12, 24} {
				e, u := got[h-1], usual[h-1]
				least := min(u.Coverage90, 0.9) - float64(h+told)/every/float64(e.Bins)
				t.Logf("%s, %v times, %d bins ahead: %.3f of %d are in the band, pinball loss %.2f; without a shift %.3f and %.2f", c.f.Name(), times, h, e.Coverage90, e.Bins, e.Pinball, u.Coverage90, u.Pinball)
				if e.Coverage90 < least-0.001 || e.Coverage90 > 0.95 {
					t.Errorf("%s, %v times, %d bins ahead: %.3f of what came lay in the 90 %% band, want %.3f or more", c.f.Name(), times, h, e.Coverage90, least)
				}
			}
		}
	}
}

// What lay before a shift that lasts is brought to the new level, as soon as that is told from chance; what comes again, what is over soon, and what days of the week do is left as it came.
func TestLevelled(t *testing.T) {
	t.Parallel()
	const at = 11*noisyDay + 100
	week := synthetic(28*noisyDay, 5*time.Minute, func(i int) float64 {
		v := cycle(float64(i) / noisyDay)
		if i/noisyDay%7 >= 5 {
			v /= 2
		}
		return v
	})
	bursts := shifting(3, 14, 1, 0, 0)
	for i := range bursts.Values {
		if i/noisyDay%2 == 1 && i%noisyDay/24 == i/noisyDay%12 {
			bursts.Values[i] *= 2
		}
	}
	bursts.raiseFrom(at, 2)
	for _, c := range []struct {
		name   string
		s      Series
		before float64 // by what what came before is multiplied
	}{
		{"as ever", shifting(1, 14, 1, 0, 0), 1},
		{"a shift up", shifting(1, 14, 2.5, at, math.MaxInt), 2.5},
		{"a shift down", shifting(1, 14, 0.4, at, math.MaxInt), 0.4},
		{"three blocks old", shifting(1, 14, 2.5, at, math.MaxInt).Until(epoch.Add((at + 12) * 5 * time.Minute)), 2.5},
		{"a bin old", shifting(1, 14, 2.5, at, math.MaxInt).Until(epoch.Add((at + 1) * 5 * time.Minute)), 1},
		{"too small", shifting(1, 14, 1.1, at, math.MaxInt), 1},
		{"a spell", shifting(1, 14, 2.5, at, at+noisyDay/3), 1},
		{"days of the week", week, 1},
		{"one of many bursts", bursts, 1},
		{"of a day and a half", shifting(1, 2, 2.5, 3*noisyDay/2, math.MaxInt), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.s.levelled(dayAndWeek[:1])
			for i, v := range got.Values {
				want := c.s.Values[i]
				if i < at {
					want *= c.before
				}
				if math.Abs(v-want) > 0.04*want || c.before == 1 && v != want {
					t.Fatalf("bin %d is %v, want %v", i, v, want)
				}
			}
		})
	}
}

// So it is in the first week, as soon as it is known how much the level moves in a day.
func TestLevelledInTheFirstWeek(t *testing.T) {
	s := shifting(1, 5, 2.5, 4*noisyDay, math.MaxInt)
	got := s.levelled(dayAndWeek)
	if r := got.Values[0] / s.Values[0]; math.Abs(r/2.5-1) > 0.04 {
		t.Errorf("what came before is multiplied by %.3f, want 2.5", r)
	}
}

// raiseFrom multiplies the level from a bin on.
func (s Series) raiseFrom(from int, times float64) {
	for i := from; i < len(s.Values); i++ {
		s.Values[i] *= times
	}
}

// Two shifts days apart are both undone.
func TestLevelledTwice(t *testing.T) {
	s := shifting(2, 21, 2, 11*noisyDay, math.MaxInt)
	s.raiseFrom(15*noisyDay+50, 0.6)
	got := s.levelled(dayAndWeek)
	for _, c := range []struct {
		bin   int
		times float64
	}{{5 * noisyDay, 1.2}, {13 * noisyDay, 0.6}, {18 * noisyDay, 1}} {
		if r := got.Values[c.bin] / s.Values[c.bin]; math.Abs(r/c.times-1) > 0.02 {
			t.Errorf("bin %d is multiplied by %.3f, want %v", c.bin, r, c.times)
		}
	}
}

// A surge of most of an hour that no past told is followed within two blocks, and not taken for a shift for hours after it has gone; in the first week too.
func TestASpellIsNoShift(t *testing.T) {
	const day, lasts = 1440, 60
	for _, days := range []int{2, 5, 10} {
		begin := days*day + 700
		r := rand.New(rand.NewPCG(1, 2))
		s := Series{Start: time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC), Step: time.Minute, Values: make([]float64, begin+200)}
		for i := range s.Values {
			s.Values[i] = (120_000 - 90_000*math.Cos(2*math.Pi*float64(i)/day)) * (1 + 0.03*r.NormFloat64())
			if i >= begin && i < begin+lasts {
				s.Values[i] *= 2
			}
		}
		f := NewSeasonal([]time.Duration{24 * time.Hour})
		off := func(after int) float64 {
			at := begin + after
			got := forecastOf(t, f, s.Until(s.At(at)), 15).Mean
			worst := 0.0
			for h, v := range got {
				worst = max(worst, math.Abs(v/s.Values[at+h]-1))
			}
			return worst
		}
		if worst := off(30); worst > 0.2 { // as before, and in the first week before it was looked for there: half
			t.Errorf("after %d days, half an hour after the surge has begun, what follows is off by %.0f %% at the most", days, 100*worst)
		}
		if worst := off(lasts + 2*15 + 15); worst > 0.3 { // where it was taken for a shift until a quarter of a day had come: 80 %
			t.Errorf("after %d days, three quarters of an hour after it has ended, what follows is off by %.0f %% at the most", days, 100*worst)
		}
	}
}

// While days of the week are not known yet, days that differ by as much as they do, or nearly, are no shift.
func TestNoShiftInTheFirstWeekOfAStreamThatMoves(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 40))
	s := synthetic(6*noisyDay, 5*time.Minute, func(i int) float64 {
		hour, level := i%noisyDay/12, 1.0
		if day := i / noisyDay; hour < 6 {
			level = []float64{1, 1.3, 1, 1.3, 1.6, 2.4}[day] // nights move as the week goes on
		}
		return 1000 * level * (1 + 0.5*math.Sin(2*math.Pi*float64(i)/noisyDay)) * (1 + 0.05*rng.NormFloat64())
	})
	if got := s.levelled(dayAndWeek); &got.Values[0] != &s.Values[0] {
		t.Errorf("the night of a Saturday is a shift: %.2f times before", got.Values[0]/s.Values[0])
	}
}

// In minutes a lasting shift is followed ten minutes after it, not half an hour.
func TestShiftIsFollowedWithinMinutes(t *testing.T) {
	t.Parallel()
	const day, at, after = 1440, 12*1440 + 600, 10
	for _, factor := range []float64{0.4, 1.4, 2.5} {
		rng := rand.New(rand.NewPCG(43, 2))
		s := synthetic(at+after, time.Minute, func(i int) float64 {
			v := cycle(float64(i)/day) * (1 + 0.05*rng.NormFloat64())
			if i >= at {
				v *= factor
			}
			return v
		})
		said := forecastOf(t, NewSeasonal([]time.Duration{24 * time.Hour, 7 * 24 * time.Hour}), s, 15)
		for h, v := range said.Mean {
			if want := factor * cycle(float64(at+after+h)/day); math.Abs(v/want-1) > 0.15 {
				t.Errorf("%v times, %d bins ahead: %.0f, want %.0f", factor, h+1, v, want)
			}
		}
	}
}
