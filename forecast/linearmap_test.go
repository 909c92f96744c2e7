package forecast

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"gonum.org/v1/gonum/mat"
)

// The sums of products are those of the definition, whatever the stretches.
func TestProducts(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	z := make([]float64, 200)
	for i := range z {
		z[i] = rng.NormFloat64()
	}
	const lags = 7
	at := []int{0, 1, 2, 5, 11}
	got := newProducts(lags, at)
	var origins []int
	for _, stretch := range [][2]int{{lags, 30}, {40, 41}, {44, 46}, {50, 180}} {
		got.add(z, stretch[0], stretch[1])
		for o := stretch[0]; o < stretch[1]; o++ {
			origins = append(origins, o)
		}
	}
	for i := range lags {
		for j := i; j < lags; j++ {
			want := 0.0
			for _, o := range origins {
				want += z[o-1-i] * z[o-1-j]
			}
			if d := got.gram[i*lags+j] - want; math.Abs(d) > 1e-9 {
				t.Errorf("lags %d and %d: off by %v of %v", i, j, d, want)
			}
		}
		for k, h := range at {
			want := 0.0
			for _, o := range origins {
				want += z[o-1-i] * z[o+h]
			}
			if d := got.then[k*lags+i] - want; math.Abs(d) > 1e-9 {
				t.Errorf("lag %d and horizon %d: off by %v of %v", i, h, d, want)
			}
		}
	}
}

// The hedge is the mean of maps of all lags, of half of them, and so on, each as it would be learnt alone.
func TestHedgeIsTheMeanOfMapsOfSeveralLengths(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 6))
	z := make([]float64, 900)
	for i := range z {
		z[i] = math.Sin(float64(i)/3) + rng.NormFloat64()
	}
	const lags = 32
	at := []int{0, 3, 9}
	whole := newProducts(lags, at)
	whole.add(z, lags, 880)
	all, hedge := whole.solve()
	want := mat.NewDense(len(at), lags, nil)
	for _, l := range []int{32, 16, 8, 4} {
		alone := newProducts(l, at)
		alone.add(z, lags, 880)
		b := alone.of(l)
		for i := range at {
			for j := range l - 1 {
				want.Set(i, lags-l+j, want.At(i, lags-l+j)+b.At(i, j)/4)
			}
			want.Set(i, lags-1, want.At(i, lags-1)+b.At(i, l-1)/4)
		}
	}
	if !mat.EqualApprox(hedge, want, 1e-9) || mat.EqualApprox(hedge, all, 1e-3) {
		t.Errorf("hedge %v, want %v, of all lags %v", mat.Formatted(hedge), mat.Formatted(want), mat.Formatted(all))
	}
}

// The fewer outcomes there were, the more is hedged, up to a half; the less, the worse the hedge did; and nothing where it has no opinion.
func TestStackHedges(t *testing.T) {
	share := func(trials, h int, worse float64, known bool, bursts int) float64 {
		m := &mixture{probes: []int{h}, y: make([]float64, trials+h)}
		s := &stack{linear: new(linearMap)}
		if known {
			s.linear.hedges[mapParts] = mat.NewDense(1, 1, nil)
		}
		for k := range trials {
			m.trials = append(m.trials, trial{origin: k})
			s.room.actual, s.room.said = append(s.room.actual, 10), append(s.room.said, 9)
			s.room.others[hedged] = append(s.room.others[hedged], 10+worse)
			if k < bursts {
				s.room.actual[k] = 1e6
			}
		}
		for k := range s.weights {
			s.weights[k] = make([]float64, 1)
		}
		s.weights[theMix][0] = 1
		s.hedge(m)
		if sum := s.weights[theMix][0] + s.weights[hedged][0]; math.Abs(sum-1) > 1e-12 {
			t.Errorf("%d trials of %d bins: the weights add up to %v", trials, h, sum)
		}
		return s.weights[hedged][0]
	}
	for _, c := range []struct {
		trials, h int
		worse     float64
		known     bool
		bursts    int
		want      float64
	}{
		{3072, 47, 1, true, 0, 0.5},    // 64 outcomes
		{3072, 95, 1, true, 0, 0.5},    // 32
		{3072, 15, 1, true, 0, 0.25},   // 192
		{3072, 0, 1, true, 0, 0.02041}, // 3072
		{3072, 15, 1.25, true, 0, 0.11111},
		{3072, 15, 1.6, true, 0, 0},
		{3072, 15, 1.6, true, 10, 0}, // a few bursts, that nobody foresaw, do not hide it
		{3072, 95, 1, false, 0, 0},
	} {
		if got := share(c.trials, c.h, c.worse, c.known, c.bursts); math.Abs(got-c.want) > 1e-4 {
			t.Errorf("%d trials, %d bins on, a hedge that is off by %v: a share of %.4f, want %.4f", c.trials, c.h+1, c.worse, got, c.want)
		}
	}
}

// What depends on the last bins by a rule that no season knows is foreseen by that rule, by coefficients that have not seen the origin too, though there were gaps.
func TestLinearMapLearnsARule(t *testing.T) {
	const season, n, steps = 48, 60 * 48, 12
	rng := rand.New(rand.NewPCG(7, 1))
	y := make([]float64, n)
	for i := range y { // a wave of 17 bins, in the fourth root
		r := 5 + math.Sin(2*math.Pi*float64(i)/17) + 0.01*rng.NormFloat64()
		y[i] = r * r * r * r
	}
	for i := range n {
		if i%500 < 100 && i > 1000 {
			y[i] = math.NaN()
		}
	}
	m := new(linearMap)
	m.learn(y, season, probes(nil, steps, season))
	var r rooted
	r.prepare(y, 0, season)
	out := make([]float64, len(m.probes))
	tried := 0
	for o := m.lags; o+steps <= n; o += 41 {
		if r.known[o]-r.known[o-m.lags] < m.lags { // what is filled in from the season knows nothing of the rule
			continue
		}
		for _, part := range []int{m.part(o), mapParts} {
			m.says(out, &r, o, m.coefficients[part], m.rowsOf(nil, m.probes))
			for i, h := range m.probes {
				want := math.Pow(5+math.Sin(2*math.Pi*float64(o+h)/17), 4)
				if tried++; math.Abs(out[i]-want) > 0.1*want {
					t.Errorf("from %d, %d bins on, by part %d: %.0f, want %.0f", o, h, part, out[i], want)
				}
			}
		}
	}
	if tried < 100 {
		t.Errorf("only %d forecasts were tried", tried)
	}
}

// What only the last bins tell is foreseen at every bin of a long horizon, and not just at those that the weights are learnt for: these lie further apart than the wave is long.
func TestLinearMapIsOfEveryBinOfALongHorizon(t *testing.T) {
	t.Parallel()
	const n, steps = 60 * 24, 96
	rng := rand.New(rand.NewPCG(7, 1))
	wave := func(i int) float64 { return math.Pow(5+math.Sin(2*math.Pi*float64(i)/17), 4) }
	s := synthetic(n, time.Hour, func(i int) float64 { return wave(i) * (1 + 0.01*rng.NormFloat64()) })
	f := forecastOf(t, NewSeasonal([]time.Duration{24 * time.Hour}), s, steps)
	wrong, total := 0.0, 0.0
	for h, v := range f.Mean {
		wrong, total = wrong+math.Abs(v-wave(n+h)), total+wave(n+h)
	}
	if wape := wrong / total; wape > 0.1 {
		t.Errorf("a wave of 17 hours is foreseen for four days with a WAPE of %.3f, want 0.1 at most", wape)
	}
}

// A map is learnt for each of the first horizons and, beyond them, for those that weights are learnt for and for no bins that are further apart than a 24th of a season.
func TestMapProbes(t *testing.T) {
	for _, c := range []struct{ season, steps int }{{1440, 120}, {288, 24}, {24, 96}, {96, 720}, {1440, 1000}, {10, 40}, {48, 1}} {
		got := mapProbes(c.season, c.steps)
		reach := max(1, c.season/24)
		for i, h := range got {
			if i > 0 && (h <= got[i-1] || h-got[i-1] > reach) {
				t.Errorf("season %d, %d bins: %d follows %d, want one that is at most %d on", c.season, c.steps, h, got[i-1], reach)
			}
		}
		rows := (&linearMap{probes: got}).rowsOf(nil, probes(nil, c.steps, c.season))
		for i, h := range probes(nil, c.steps, c.season) {
			if got[rows[i]] != h {
				t.Errorf("season %d, %d bins: row %d is of %d, want %d", c.season, c.steps, rows[i], got[rows[i]], h)
			}
		}
	}
	if got := mapProbes(1440, 120); len(got) != 120 { // a job's usual horizons
		t.Errorf("two hours of minutes: %v, want each", got)
	}
	if got := mapProbes(1440, 1440); got[mapEach-1] != mapEach-1 || len(got) > mapEach+24 { // and a day of them costs little more
		t.Errorf("a day of minutes: %v, want the first %d and few more", got, mapEach)
	}
}

// Where there is nothing to learn from there is no opinion: a short history, a silent one, a constant one, and one without a window before an origin.
func TestLinearMapWithoutAnOpinion(t *testing.T) {
	none := func(name string, y []float64, origin int) {
		t.Helper()
		m := new(linearMap)
		m.learn(y, 24, probes(nil, 6, 24))
		var r rooted
		r.prepare(y, 0, 24)
		out := make([]float64, len(m.probes))
		m.says(out, &r, origin, m.coefficients[mapParts], m.rowsOf(nil, m.probes))
		for i, v := range out {
			if v == v {
				t.Errorf("%s: it says %v at %d", name, v, m.probes[i])
			}
		}
	}
	rng := rand.New(rand.NewPCG(2, 9))
	noise := func(n int) []float64 {
		y := make([]float64, n)
		for i := range y {
			y[i] = 100 * rng.Float64()
		}
		return y
	}
	none("five bins", noise(5), 5)
	none("a silent history", make([]float64, 1000), 1000)
	constant := make([]float64, 1000)
	for i := range constant {
		constant[i] = 7
	}
	none("a constant one", constant, 1000)
	none("before there is a window", noise(1000), 100)
	gap := noise(1000)
	for i := 600; i < 1000; i++ {
		gap[i] = math.NaN()
	}
	none("after a long gap", gap, 1000)
}

// A map is learnt once a season, and is the same whether it was kept or not.
func TestLinearMapIsKept(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(4, 4))
	const season, days = 24, 40
	y := make([]float64, days*season)
	for i := range y {
		y[i] = 100 * cycle(float64(i)/season) * (1 + 0.1*rng.NormFloat64())
	}
	whole := Series{Start: epoch, Step: time.Hour, Values: y}
	kept := NewSeasonal([]time.Duration{24 * time.Hour})
	seen := map[*linearMap]bool{}
	for n := len(y) - 2*season; n <= len(y); n++ {
		past := whole.Until(whole.At(n))
		got, err := kept.Forecast(past, 6)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range kept.(*seasonal).maps.all {
			seen[&m.what] = true
		}
		anew, err := NewSeasonal([]time.Duration{24 * time.Hour}).Forecast(past, 6)
		if err != nil {
			t.Fatal(err)
		}
		for h, v := range got.Mean {
			if v != anew.Mean[h] {
				t.Fatalf("of %d bins, %d on: %v, and %v by one that has kept nothing", n, h, v, anew.Mean[h])
			}
		}
	}
	if len(seen) != 3 {
		t.Errorf("%d maps were learnt in two days, want one at each midnight", len(seen))
	}
}
