package plan

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/estimator"
)

// randomObservation draws an observation; most are sensible, some are not.
func randomObservation(rng *rand.Rand) Observation {
	chance := func(p float64) bool { return rng.Float64() < p }
	dur := func(d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d) + 1)) }
	interval := []time.Duration{time.Second, 5 * time.Second, time.Minute}[rng.IntN(3)]
	o := Observation{
		Now: noon.Add(dur(24 * time.Hour)), Interval: interval,
		Lag: dur(20 * interval), LagKnown: chance(0.85), BacklogRecords: rng.Int64N(100_000_000),
		Servers: 1 + rng.IntN(3), Model: linear,
		RescaleCost: Measured{Value: dur(5 * interval)}, JoinTime: Measured{Value: dur(6 * interval), Samples: rng.IntN(3)},
		Limits: Limits{Min: rng.IntN(5), Max: 5 + rng.IntN(25)},
		Rho:    rng.IntN(4), Tau: dur(12 * interval), CooldownOut: dur(4 * interval), CooldownIn: dur(12 * interval),
		Headroom: rng.Float64() * 0.3, MaxLag: interval + dur(20*interval),
		Utilisation: rng.Float64(), UtilKnown: chance(0.5),
	}
	if chance(0.3) {
		o.Model = estimator.Model{Form: estimator.FormSync, Theta: []float64{0.00035, 0.5, 0.2, 0.003}, Batch: 16384}
	}
	o.Target = rng.IntN(33)
	o.Workers = Workers{Running: rng.IntN(o.Target + 1), Pending: rng.IntN(3), Draining: rng.IntN(2)}
	if chance(0.1) {
		o.Workers.Unknown = 1
	}
	if chance(0.1) {
		o.Hold = Hold{Unknown: true, Reason: "status failed"}
	}
	if chance(0.15) {
		o.Action = Action{Kind: []Kind{KindOut, KindIn}[rng.IntN(2)], Target: o.Target, Since: o.Now.Add(-dur(10 * interval)), CanGrow: chance(0.5), CanTurn: chance(0.5)}
	}
	o.Manual = Manual{Paused: chance(0.05), Pinned: chance(0.1), Target: rng.IntN(60) - 10}
	if chance(0.5) {
		o.Fallback = Fallback{LagOver: dur(o.MaxLag), CatchUp: dur(o.MaxLag), UtilisationOver: rng.Float64(), UtilisationUnder: rng.Float64()}
	}
	level := rng.Float64() * 500_000
	wave := func(n int) Values {
		v := make(Values, n)
		for i := range v {
			v[i] = level * (1 + 0.5*math.Sin(float64(i)/5+rng.Float64()))
			if chance(0.02) {
				v[i] = []float64{math.NaN(), math.Inf(1), -5, 0}[rng.IntN(4)]
			}
		}
		return v
	}
	o.Flow = Flow{Known: chance(0.7), Trained: rng.Float64() * 500_000, Busy: rng.Float64()}
	o.Partitions = rng.IntN(40)
	n := rng.IntN(40)
	o.Rates = Series{Start: o.Now.Add(-time.Duration(n) * interval), Step: interval, Values: wave(n)}
	o.Forecast = Forecast{At: o.Now.Add(-dur(5 * interval)), Step: interval, Mean: wave(rng.IntN(60)), Source: "seasonal", Trusted: chance(0.8), Calibrated: chance(0.5)}
	if chance(0.6) {
		o.Forecast.addSpread(rng.IntN(12), 0.05+0.2*rng.Float64())
	}
	if chance(0.4) {
		n := rng.IntN(20)
		o.Forecast.Beyond = &Forecast{At: o.Forecast.At, Step: 15 * interval, Mean: wave(n), Source: "outlook", Trusted: true}
		o.Forecast.Beyond.addSpread(rng.IntN(12), 0.1)
	}
	if chance(0.8) {
		st := state{Version: 1, LastOut: o.Now.Add(-dur(10 * interval)), LastIn: o.Now.Add(-dur(10 * interval)), LagOver: chance(0.3), Lag: dur(o.MaxLag), Cap: rng.IntN(8)}
		if chance(0.7) {
			st.Memory = randomMemory(rng, o.Now, interval)
		}
		o.State = st.encode()
	}
	if chance(0.3) {
		o.ModelError = estimator.Doubts{{Workers: 1, Error: 0.02}, {Workers: 8, Error: []float64{0.1, 0.4, 1, 7, -1}[rng.IntN(5)]}}
	}
	if rng.Uint64()%8 == 0 {
		o.Budget = Budget{Limited: true, Left: rng.IntN(3), Next: dur(10 * interval), Every: 10 * interval}
	}
	return o
}

// randomMemory is what some policy may have noted in the time before now.
func randomMemory(rng *rand.Rand, now time.Time, interval time.Duration) *memory {
	m := &memory{Owner: Names()[rng.IntN(len(Names()))], Since: now.Add(-time.Duration(rng.IntN(60)) * interval), Want: rng.IntN(30)}
	m.Planned = now.Add(-time.Duration(rng.IntN(100)) * interval)
	for k := 40; k > 0; k-- {
		at := now.Add(-time.Duration(k) * interval)
		m.Metrics.note(at, 100*interval, 0, rng.Float64()*20, rng.Float64(), rng.Float64()*1e6)
		m.Wishes.note(at, 100*interval, 0, float64(rng.IntN(30)))
	}
	return m
}

// addSpread gives the forecast quantiles, share wide at its end and less before, and
// n scenarios through them.
func (f *Forecast) addSpread(n int, share float64) {
	f.Levels = []float64{0.1, 0.5, 0.9, 0.99}
	f.Quantiles, f.Scenarios = nil, nil
	for k := range f.Levels {
		row := slices.Clone(f.Mean)
		for i := range row {
			row[i] *= 1 + share*float64(k-1)*math.Sqrt(float64(i+1)/float64(len(row)))
		}
		f.Quantiles = append(f.Quantiles, row)
	}
	for k, row := range f.scenarios() {
		if k < n {
			f.Scenarios = append(f.Scenarios, row)
		}
	}
}

func scaled(v Values, factor float64) Values {
	out := make(Values, len(v))
	for i, x := range v {
		out[i] = x * factor
	}
	return out
}

// scaled is the forecast of factor times the load.
func (f Forecast) scaled(factor float64) Forecast {
	f.Mean = scaled(f.Mean, factor)
	f.Quantiles, f.Scenarios = slices.Clone(f.Quantiles), slices.Clone(f.Scenarios)
	for _, rows := range [][]Values{f.Quantiles, f.Scenarios} {
		for i := range rows {
			rows[i] = scaled(rows[i], factor)
		}
	}
	if f.Beyond != nil {
		beyond := f.Beyond.scaled(factor)
		f.Beyond = &beyond
	}
	return f
}

// foresees tells which policies act on the forecast.
func foresees(name string) bool {
	return slices.Contains([]string{"kale", "madu", "quantile", "cost"}, name)
}

// checkLaws verifies what must hold for every policy and every observation. before and note are its state as it was read; whole: the policy reads it itself too,
// which costs some of them most of a decision's time.
func checkLaws(t *testing.T, p Policy, o Observation, before state, note string, whole bool) Decision {
	t.Helper()
	decide := func() Decision { return p.(guarded).decideFrom(o, before, note) }
	d := decide()
	if whole {
		decide = func() Decision { return p.Decide(o) }
	}
	fail := func(law string) {
		t.Helper()
		raw, _ := json.Marshal(o)
		t.Fatalf("%s: %s\n%s\nobservation: %s", p.Name(), law, d.Explain(), raw)
	}
	if encode(t, decide()) != encode(t, d) {
		fail("the same observation gave two decisions")
	}
	if d.Current != o.current() && o.current() >= 0 {
		fail("the decision starts from another number of workers")
	}
	switch {
	case d.Target > d.Current != (d.Kind == KindOut), d.Target < d.Current != (d.Kind == KindIn):
		fail("kind and target disagree")
	case d.Kind == KindHold && len(d.Hold) == 0, d.Kind == KindNone && len(d.Hold) > 0:
		fail("a hold has no cause, or a cause no hold")
	case d.Reason == "" || len(d.State) == 0:
		fail("no reason or no state")
	}
	if o.problem() != "" {
		if d.Target != d.Current || d.Kind != KindHold {
			fail("acted on an observation that makes no sense")
		}
		return d
	}
	still := o.Hold.Unknown || o.Workers.Unknown > 0 || o.Manual.Paused
	acting := o.Action.Kind == KindOut || o.Action.Kind == KindIn
	inLimits := o.Limits.Clamp(d.Current) == d.Current
	if still && d.Target != d.Current {
		fail("moved while state is unknown or scaling is paused")
	}
	if o.Budget.Limited && o.Budget.Left == 0 && inLimits && !o.Manual.Pinned && d.Target != d.Current {
		fail("changed with no change left in the budget")
	}
	ordered := o.Manual.Pinned && (!acting || o.Action.CanTurn)
	if acting && !ordered && d.Target < d.Current {
		fail("scaled in while an action is under way")
	}
	if !still && !acting && o.Limits.Clamp(d.Target) != d.Target {
		fail("target outside the limits")
	}
	if o.Limits.Clamp(d.Target) != d.Target && d.Target != d.Current {
		fail("moved to outside the limits")
	}
	if ordered && !still && d.Target != o.Limits.Clamp(o.Manual.Target) {
		fail("the pin was not followed")
	}
	if d.Kind == KindIn && !o.Manual.Pinned && inLimits {
		switch {
		case !o.lagKnown(), o.Lag > o.MaxLag, o.Lag > o.lagOver():
			fail("scaled in with lag unknown or over the threshold")
		case foresees(p.Name()) && !o.Forecast.Trusted && !(p.Name() == "cost" && o.Forecast.Calibrated):
			fail("scaled in on a forecast that is not trusted")
		case o.Now.Sub(before.LastOut) < o.CooldownIn, o.Now.Sub(before.LastIn) < o.CooldownIn:
			fail("scaled in within the cooldown")
		}
	}
	if d.Kind == KindOut && !o.Manual.Pinned && inLimits && o.Now.Sub(before.LastOut) < o.CooldownOut {
		fail("scaled out within the cooldown")
	}
	if p.Name() == "kale" && d.Kind == KindIn && d.Source == "forecast" && !o.Manual.Pinned && inLimits {
		reach := int((o.Now.Sub(d.Plan.Start)+max(o.Tau, o.lead()))/d.Plan.Step) + 1
		for i := range min(reach, len(d.Plan.Workers)) {
			if s := d.Plan.Start.Add(time.Duration(i) * d.Plan.Step).Sub(o.Now); s < min(o.Tau, reachOf(o)) && d.Plan.Workers[i] > d.Target {
				fail("let a worker go that the plan needs again within τ")
			}
		}
	}
	return d
}

// reachOf is the time that the forecast covers beyond the lead.
func reachOf(o Observation) time.Duration {
	return o.Forecast.At.Add(time.Duration(len(o.Forecast.Mean))*o.Forecast.Step).Sub(o.Now) - o.lead()
}

func TestLaws(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	kinds := map[string]int{}
	for i := range 1000 {
		o := randomObservation(rng)
		if i%3 > 0 { // a rescale is live
			o.RescaleCost = Measured{}
		}
		before, note := readState(o.State, o.Now)
		for _, name := range Names() {
			if name == "cost" && i%4 > 0 { // it takes its time
				continue
			}
			d := checkLaws(t, policy(t, name), o, before, note, i%4 == 0)
			kinds[name+" "+string(d.Kind)+" "+d.Source]++
		}
	}
	// The laws were put to the test only if everything happened.
	for _, k := range []string{
		"kale out forecast", "kale in forecast", "kale out reactive", "kale out lag", "kale out utilisation", "kale in utilisation",
		"kale hold ", "kale in manual", "kale out manual", "kale in limits", "kale none forecast", "follow in rate", "static out static",
		"hpa out utilisation", "hpa in utilisation", "keda out lag", "keda in lag", "autopilot out utilisation", "autopilot in utilisation",
		"madu out forecast", "madu in forecast", "quantile out forecast", "quantile in forecast", "flink out utilisation",
		"cost out cost", "cost in cost", "cost none cost", "cost out reactive", "cost out lag",
	} {
		if kinds[k] < 2 {
			t.Errorf("only %d times %q in the draw", kinds[k], k)
		}
	}
}

// More load never means fewer workers (with F rising and nothing else changed).
func TestMonotoneInLoad(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		o := randomObservation(rng)
		o.Model, o.UtilKnown = linear, false
		more := o
		factor := 1 + rng.Float64()
		more.Forecast, more.Rates.Values = o.Forecast.scaled(factor), scaled(o.Rates.Values, factor)
		more.Flow.Known, o.Flow.Known = false, false
		// Algorithm 1 is not monotone (a run that becomes shorter may be cut), so
		// kale is compared with τ = 0; negative loads are not a load.
		o.Tau, more.Tau = 0, 0
		before, note := readState(o.State, o.Now)
		for _, name := range Names() {
			if name == "cost" { // it may wait with a load that it cannot carry anyway: TestCostRestsHigherUnderMoreLoad
				continue
			}
			p := policy(t, name).(guarded)
			a, b := p.decideFrom(o, before, note), p.decideFrom(more, before, note)
			if b.Target < a.Target {
				t.Fatalf("%s: %.2f times the load takes the target from %d to %d\n%s\n%s", name, factor, a.Target, b.Target, a.Explain(), b.Explain())
			}
		}
	}
}

// A constant load leads to at most one change, whatever the policy.
func TestNoOscillationOnConstantLoad(t *testing.T) {
	for _, name := range Names() {
		p := NewSuccession(policy(t, name))
		o := reference() // what it observes does not answer to what it does
		n, decisions := 0, 500
		if name == "cost" { // it takes its time
			decisions = 60
		}
		for range decisions {
			o.setRates(173_000)
			o.setForecast(flat(173_000, 60))
			d := p.Decide(o)
			if d.Target != o.Target {
				n++
			}
			o.Target, o.Workers.Running = d.Target, d.Target
			o.Now = o.Now.Add(o.Interval)
		}
		if n > 1 {
			t.Errorf("%s: %d changes under constant load", name, n)
		}
	}
}

// Observations and decisions go through JSON unchanged, NaN included, and the
// observation that comes back gives the same decision.
func TestJSONRoundTrip(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 8))
	sameValues := cmp.Comparer(func(a, b Values) bool {
		return slices.EqualFunc(a, b, func(x, y float64) bool { return x == y || !finite(x) && !finite(y) })
	})
	sameNumbers := cmp.Comparer(func(a, b Number) bool { return a == b || !finite(float64(a)) && !finite(float64(b)) })
	for range 80 {
		o := randomObservation(rng)
		var back Observation
		if err := json.Unmarshal([]byte(encode(t, o)), &back); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(o, back) { // which is quicker; and where it is not so, they may be the same all the same
			if diff := cmp.Diff(o, back, sameValues); diff != "" {
				t.Fatalf("observation (-sent +back):\n%s", diff)
			}
		}
		for _, name := range Names() {
			p := policy(t, name)
			d := p.Decide(o)
			if a, b := encode(t, d), encode(t, p.Decide(back)); a != b {
				t.Fatalf("%s decides otherwise after JSON:\n%s\n%s", name, a, b)
			}
			var again Decision
			if err := json.Unmarshal([]byte(encode(t, d)), &again); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(d, again) {
				if diff := cmp.Diff(d, again, sameNumbers); diff != "" {
					t.Fatalf("decision (-sent +back):\n%s", diff)
				}
			}
		}
	}
}

// FuzzDecide feeds arbitrary JSON observations to every policy, and each once more
// after a jump of the clock, ahead or back, with the state that the decision left:
// no panic, no law broken, and the decision can be written down.
func FuzzDecide(f *testing.F) {
	rng := rand.New(rand.NewPCG(9, 10))
	for _, jump := range []time.Duration{0, time.Minute, -time.Hour, 400 * 24 * time.Hour, math.MinInt64, math.MaxInt64} {
		for range 4 {
			f.Add([]byte(encode(f, randomObservation(rng))), int64(jump))
		}
		f.Add([]byte(encode(f, reference())), int64(jump))
	}
	f.Add([]byte(`{"now":"2026-03-02T12:00:00Z","interval":1,"max_lag":1,"limits":{"min":0,"max":65536},"tau":9223372036854775807,"join_time":{"value":9223372036854775807},"model":{"form":"async","theta":[1e-300,0,0]},"forecast":{"at":"0001-01-01T00:00:00Z","step":1,"mean":[1,null,1e308],"trusted":true}}`), int64(0))
	f.Fuzz(func(t *testing.T, raw []byte, jump int64) {
		var first Observation
		if json.Unmarshal(raw, &first) != nil {
			t.Skip()
		}
		for _, name := range Names() {
			o := first
			for range 2 {
				before, note := readState(o.State, o.Now)
				d := checkLaws(t, policy(t, name), o, before, note, true)
				if d.Explain() == "" {
					t.Fatal("nothing explained")
				}
				o.State, o.Target, o.Now = d.State, d.Target, o.Now.Add(time.Duration(jump))
			}
		}
	})
}

// A decision of each forecasting policy at a horizon of 2 h and six hours beyond it,
// and of cost where a rescale is live, ten minutes at least before each scale-in.
func BenchmarkDecide(b *testing.B) {
	for _, c := range []struct {
		name string
		live bool
	}{{"kale", false}, {"quantile", false}, {"cost", false}, {"cost", true}} {
		for _, most := range []int{28, 256} {
			name := fmt.Sprintf("%s/%d", c.name, most)
			if c.live {
				name = fmt.Sprintf("%s-live/%d", c.name, most)
			}
			b.Run(name, func(b *testing.B) {
				o := busyMoment(float64(most) / 28)
				o.Limits.Max = most
				if c.live {
					o.RescaleCost.Value, o.JoinTime.Value, o.CooldownIn = 0, 40*time.Second, 10*time.Minute
				}
				p := policy(b, c.name)
				b.ReportAllocs()
				for b.Loop() {
					p.Decide(o)
				}
			})
		}
	}
}

// busyMoment is the reference job with a forecast of 2 h in minutes, with
// scenarios, and 6 h beyond it.
func busyMoment(factor float64) Observation {
	o := reference()
	o.Target = int(7 * factor)
	o.Workers.Running = o.Target
	o.RescaleCost = Measured{Value: 6 * time.Minute, Samples: 3}
	o.JoinTime = o.RescaleCost
	wave := func(n int, step float64) Values {
		m := make(Values, n)
		for i := range m {
			m[i] = factor * (150_000 + 100_000*math.Sin(step*float64(i)/20))
		}
		return m
	}
	o.setForecast(wave(120, 1))
	o.Forecast.addSpread(32, 0.06)
	o.Forecast.Beyond = &Forecast{At: o.Now, Step: 15 * time.Minute, Mean: wave(24, 15), Trusted: true}
	o.Forecast.Beyond.addSpread(32, 0.08)
	return o
}

// A load that no policy can know is not 0, and a true 0 is known.
func TestLoadIsKnownOrNot(t *testing.T) {
	blind := reference()
	blind.Rates, blind.Forecast, blind.LagKnown = Series{}, Forecast{}, false
	quiet := reference()
	quiet.setRates(0)
	quiet.setForecast(flat(0, 60))
	for _, name := range Names() {
		p, err := New(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if d := p.Decide(blind); d.LoadKnown || d.Load != 0 {
			t.Errorf("%s: nothing is known, and the load is %v (known: %v)", name, d.Load, d.LoadKnown)
		}
		d := p.Decide(quiet)
		if idle := len(d.Hold) > 0 && slices.Contains([]string{"flink", "autopilot", "autopilot-short", "hpa"}, name); d.Load != 0 || !d.LoadKnown && !idle {
			t.Errorf("%s: nothing arrives, and the load is %v (known: %v): %s", name, d.Load, d.LoadKnown, d.Reason)
		}
	}
}
