package plan

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// jumpy is a row whose logarithm jumps every few values, around a mean.
func jumpy(r *rand.Rand, mean, sigma float64, each, n int) Values {
	out := make(Values, n)
	v := 0.0
	for i := range out {
		if i%each == 0 {
			v = mean * math.Exp(sigma*r.NormFloat64()-sigma*sigma/2)
		}
		out[i] = v
	}
	return out
}

// blind is a quiet moment of the reference job without a forecast, after such arrivals.
func blind(rates Values) (o Observation, past Series) {
	o = reference()
	o.Forecast = Forecast{Reason: "the recent error is 60 %"}
	past = Series{Start: o.Now.Add(-time.Duration(len(rates)) * time.Minute), Step: time.Minute, Values: rates}
	return o, past
}

// Traffic that jumps needs what carries its mean, whatever the last jump was.
func TestCalmIsTheMeanOfWhatJumps(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	for _, each := range []int{1, 3} {
		low, high, off := 0, 0, 0
		const n = 300
		for range n {
			o, past := blind(jumpy(r, 100_000, 0.6, each, 400)) // 7 workers of 16,000
			c := CalmOf(o, past, 4*time.Minute)
			if c.Needs < 1 || c.Most < c.Needs {
				t.Fatalf("%+v", c)
			}
			if c.Needs < 5 {
				low++
			}
			if c.Needs > 9 {
				high++
			}
			if c.Most < 6 {
				off++
			}
		}
		if low > n/50 || high > n/10 || off > n/10 {
			t.Errorf("jumps of %d min: of %d times fewer than 5 workers are needed %d times, more than 9 %d times, and fewer than 6 are enough %d times; 7 carry the mean", each, n, low, high, off)
		}
	}
}

// A level that has changed counts: at once where it is smooth, as soon as it is more than chance where it jumps, and whichever way.
func TestCalmFollowsALevel(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 11))
	for _, c := range []struct {
		sigma float64
		after int // minutes
	}{{0.05, 5}, {0.2, 8}, {0.4, 24}} {
		for _, times := range []float64{2, 0.5} {
			got := 0
			const n = 100
			for range n {
				rates := append(jumpy(r, 100_000, c.sigma, 1, 400), jumpy(r, 100_000*times, c.sigma, 1, c.after)...)
				rates[0], rates[40], rates[80], rates[120], rates[300] = 60_000, 150_000, 60_000, 150_000, 60_000 // it jumps, however little
				rates[380], rates[384], rates[388], rates[392] = 60_000, 150_000, 60_000, 150_000
				o, past := blind(rates)
				calm := CalmOf(o, past, 4*time.Minute)
				if times > 1 && calm.Needs >= 10 || times < 1 && calm.Most <= 5 { // 13, 4
					got++
				}
			}
			if got < 80*n/100 {
				t.Errorf("deviation %g, times %g: after %d min seen %d of %d times", c.sigma, times, c.after, got, n)
			}
		}
	}
}

// Where traffic that jumped is even from a step on, how much it jumped before does not hold the step back: it counts once it has been even for longer than jumps
// are by chance.
func TestCalmSeesAnEvenStepAfterJumps(t *testing.T) {
	for _, c := range []struct {
		each  int
		even  float64 // deviation from the step on
		after int     // minutes, in three of four draws; by all that came before it took 18 and 27
	}{{1, 0, 10}, {1, 0.01, 10}, {3, 0, 18}, {3, 0.01, 18}} {
		for _, sigma := range []float64{0.4, 0.6} {
			got := 0
			const n = 100
			for seed := range uint64(n) {
				r := rand.New(rand.NewPCG(seed, 5))
				o, past := blind(append(jumpy(r, 100_000, sigma, c.each, 400), jumpy(r, 200_000, c.even, 1, c.after)...))
				if calm := CalmOf(o, past, time.Minute); calm.Needs >= 12 && calm.Needs <= 14 { // 13
					got++
				}
			}
			if got < 75*n/100 {
				t.Errorf("jumps of %d min with a deviation of %g, then even but for %g: after %d min seen %d of %d times", c.each, sigma, c.even, c.after, got, n)
			}
		}
	}
}

// Traffic that does not jump, or whose forecast knows its errors, needs what is asked for.
func TestWhatIsNotRead(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 17))
	jumps := jumpy(r, 100_000, 0.6, 1, 100)
	ramp := make(Values, 100)
	for i := range ramp {
		ramp[i] = 50_000 * (1 + float64(i)/50)
	}
	wave := make(Values, 256)
	for i := range wave {
		wave[i] = 100_000 * (1 + 0.8*math.Sin(2*math.Pi*float64(i)/256))
	}
	with := func(rates Values, change func(*Observation, *Series)) Calm {
		o, past := blind(rates)
		if change != nil {
			change(&o, &past)
		}
		return CalmOf(o, past, 4*time.Minute)
	}
	if c := with(jumps, nil); c.Needs == 0 {
		t.Fatal("what jumps is not read")
	}
	if c, d := with(jumps, nil), with(jumps, func(o *Observation, _ *Series) { // as is that of every job older than some seasons, and kale goes by what came all the same
		o.Forecast = Forecast{At: o.Now, Step: time.Minute, Mean: flat(1, 60), Calibrated: true}
	}); c != d {
		t.Errorf("with a forecast that knows its errors and is not trusted: %+v; without any %+v", d, c)
	}
	for name, c := range map[string]Calm{
		"even": with(flat(100_000, 100), nil), "a step": with(append(flat(50_000, 60), flat(100_000, 40)...), nil), "a ramp": with(ramp, nil), "a day": with(wave, nil),
		"a moment":      with(jumps[:7], nil),
		"nothing":       with(nil, nil),
		"unknown":       with(Values{math.NaN(), math.NaN()}, nil),
		"no step":       with(jumps, func(_ *Observation, s *Series) { s.Step = 0 }),
		"trusted":       with(jumps, func(o *Observation, _ *Series) { o.setForecast(flat(100_000, 60)) }),
		"not to decide": with(jumps, func(o *Observation, _ *Series) { o.Model = linear; o.Limits.Max = 0 }),
	} {
		if c != (Calm{}) {
			t.Errorf("%s: %+v", name, c)
		}
	}
	gaps := jumpy(r, 100_000, 0.6, 1, 100)
	for i := 0; i < len(gaps); i += 3 {
		gaps[i] = math.NaN()
	}
	if c := with(gaps, nil); c.Needs < 3 || c.Needs > 14 {
		t.Errorf("with gaps: %+v", c)
	}
	for _, move := range []time.Duration{0, -time.Minute, time.Nanosecond, 1000 * time.Hour} {
		o, past := blind(jumps)
		if c := CalmOf(o, past, move); c.Needs < 1 || c.Needs > 28 || c.Most < c.Needs {
			t.Errorf("a move of %v: %+v", move, c)
		}
	}
}

// A calm reading of as many bins as it takes at the most.
func BenchmarkCalmOf(b *testing.B) {
	o, past := blind(jumpy(rand.New(rand.NewPCG(1, 2)), 100_000, 0.6, 3, 10_000))
	for b.Loop() {
		CalmOf(o, past, 4*time.Minute)
	}
}
