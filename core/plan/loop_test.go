package plan

import (
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// loop is a job in small: policies decide, workers come after a while, a backlog
// grows and is worked off. Here observations answer to decisions, as in truth.
type loop struct {
	o        Observation
	load     func(at time.Duration) float64 // samples/s
	outage   time.Duration                  // of pause-and-restart; 0: live
	start    time.Time
	backlog  float64
	running  int
	busyUp   time.Time // when the rescale under way is complete
	foreseen Forecast  // last time, made anew where something else is
}

func newLoop(load func(time.Duration) float64) *loop {
	l := &loop{o: reference(), load: load, outage: 6 * time.Minute, start: noon}
	l.o.Target, l.o.Workers, l.o.BacklogRecords, l.o.Lag = 7, Workers{Running: 7}, 0, 0
	l.o.RescaleCost = Measured{Value: l.outage, Samples: 3}
	l.o.JoinTime = l.o.RescaleCost
	l.o.CooldownIn, l.o.CooldownOut = 0, 0
	l.o.Partitions = 64
	l.running = 7
	return l
}

// observe fills in what the loop shows at its present moment.
func (l *loop) observe() Observation {
	o := l.o
	at := o.Now.Sub(l.start)
	rates, mean, beyond := make(Values, 30), make(Values, 60), make(Values, 24)
	for i := range rates {
		rates[i] = l.load(at - time.Duration(30-i)*time.Minute)
	}
	for i := range mean {
		mean[i] = l.load(at + time.Duration(i)*time.Minute)
	}
	for i := range beyond {
		beyond[i] = l.load(at + time.Duration(i)*15*time.Minute)
	}
	o.Rates = Series{Start: o.Now.Add(-30 * time.Minute), Step: time.Minute, Values: rates}
	if f := &l.foreseen; f.Beyond == nil || !slices.Equal(f.Mean, mean) || !slices.Equal(f.Beyond.Mean, beyond) {
		*f = Forecast{Step: time.Minute, Mean: mean, Source: "seasonal", Trusted: true}
		f.addSpread(8, 0.04)
		f.Beyond = &Forecast{Step: 15 * time.Minute, Mean: beyond, Source: "outlook", Trusted: true}
		f.Beyond.addSpread(8, 0.06)
	}
	o.Forecast = l.foreseen
	further := *l.foreseen.Beyond
	o.Forecast.At, further.At, o.Forecast.Beyond = o.Now, o.Now, &further
	o.BacklogRecords = int64(l.backlog)
	capacity := o.Model.Throughput(l.running, o.Servers)
	o.Lag = time.Duration(l.backlog / max(rates[29], 1) * float64(time.Second))
	busy := math.Min(1, rates[29]/max(capacity, 1))
	if l.backlog > 0 {
		busy = 1
	}
	o.Flow = Flow{Known: true, Trained: math.Min(capacity, rates[29]+l.backlog/60), Busy: busy}
	o.Utilisation, o.UtilKnown = busy, true
	o.Workers = Workers{Running: l.running}
	o.Action = Action{}
	if o.Now.Before(l.busyUp) {
		o.Workers = Workers{Pending: o.Target}
		o.Action = Action{Kind: KindOut, Target: o.Target, Since: l.busyUp.Add(-l.outage)}
	}
	return o
}

// step carries a decision out and lets an interval pass.
func (l *loop) step(d Decision) {
	if d.Target != l.o.Target {
		l.running, l.busyUp = d.Target, l.o.Now.Add(l.outage)
	}
	l.o.Target, l.o.State = d.Target, d.State
	trained := l.o.Model.Throughput(l.running, l.o.Servers)
	if l.o.Now.Before(l.busyUp) {
		trained = 0
	}
	l.backlog = max(0, l.backlog+(l.load(l.o.Now.Sub(l.start))-trained)*l.o.Interval.Seconds())
	l.o.Now = l.o.Now.Add(l.o.Interval)
}

// After a while nothing changes any more under a constant load, whatever the
// policy: where what it observes answers to what it does.
//
// KEDA is left out: it sizes by the backlog, and where capacity suffices there is
// none, so it cannot come to rest. The others that go by utilisation come to rest
// only where a rescale is live, or they go by demand: an outage leaves a backlog, on
// which workers are busy as if there were too few of them.
func TestPoliciesComeToRest(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		for _, rate := range []float64{100_000, 173_000, 300_000} {
			for _, outage := range []time.Duration{0, 6 * time.Minute} {
				if name == "cost" && rate != 173_000 { // it takes its time, and has tests of its own
					continue
				}
				var params Params
				switch name {
				case "keda":
					continue
				case "hpa", "autopilot", "autopilot-short":
					if outage > 0 {
						params = Params{"demand": 1}
					}
				}
				made, err := New(name, params)
				if err != nil {
					t.Fatal(err)
				}
				l, p := newLoop(func(time.Duration) float64 { return rate }), NewSuccession(made)
				l.outage, l.o.RescaleCost.Value = outage, outage
				var changed []int
				for i := range 200 {
					d := p.Decide(l.observe())
					if d.Target != d.Current {
						changed = append(changed, i)
					}
					l.step(d)
				}
				if n := len(changed); n > 0 && changed[n-1] > 140 {
					t.Errorf("%s at %v records/s and an outage of %v still changes: %v", name, rate, outage, changed)
				}
				if f := linear.Throughput(l.running, 2); name != "static" && (f < rate || f > 2.7*rate) {
					t.Errorf("%s rests at %d workers, %v records/s, for %v and an outage of %v", name, l.running, f, rate, outage)
				}
			}
		}
	}
}

// daily is a ramp up, a spike of eight minutes and a ramp down, in 6 hours.
func daily(at time.Duration) float64 {
	h := at.Hours()
	v := 150_000 - 90_000*math.Cos(2*math.Pi*h/6)
	if h > 1.5 && h < 1.5+8./60 {
		v *= 1.6
	}
	return math.Round(v)
}

// A scheduler that is started anew in the middle decides as the other would have:
// all that it remembers is in the state, which goes through JSON.
func TestRestartInMidReplayChangesNothing(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		decisions := 240
		if name == "cost" { // it takes its time
			decisions = 90
		}
		run := func(l *loop, n int, restarts bool) (targets []int) {
			p := policy(t, name)
			for i := range n {
				o := l.observe()
				if restarts && i%10 == 0 { // each time is one more restart
					var back Observation
					if err := json.Unmarshal([]byte(encode(t, o)), &back); err != nil {
						t.Fatal(err)
					}
					o, p = back, policy(t, name)
				}
				d := p.Decide(o)
				if len(d.State) > 64<<10 {
					t.Fatalf("%s: a state of %d bytes", name, len(d.State))
				}
				targets = append(targets, d.Target)
				l.step(d)
			}
			return targets
		}
		l := newLoop(daily)
		run(l, decisions*170/360, false)
		restarted := *l // it shares with l what neither changes
		if a, b := run(l, decisions-decisions*170/360, false), run(&restarted, decisions-decisions*170/360, true); !slices.Equal(a, b) {
			t.Errorf("%s decides otherwise after a restart:\n%v\n%v", name, a, b)
		}
	}
}

// dayScenario is a golden of one policy over the loop's day, one step in ten
// minutes. It shows the policy at work; what it should do is in its own tests.
func dayScenario(t *testing.T, name string, params Params) scenario {
	t.Helper()
	l := newLoop(daily)
	l.o.Interval = 10 * time.Minute
	base := l.observe()
	base.State = nil
	s := scenario{Name: name + " over a day", About: "pause-and-restart of 6 min, decided every 10 min; a ramp, a spike, a ramp down in 6 h", Policy: name, Params: params, Base: json.RawMessage(encode(t, base))}
	p, err := New(name, params)
	if err != nil {
		t.Fatal(err)
	}
	for range 36 {
		o := l.observe()
		// Every tenth value of the forecast is enough, and rounded ones.
		o.Forecast.Step = 10 * time.Minute
		thin := func(v Values) Values {
			var out Values
			for i := 0; i < len(v); i += 10 {
				out = append(out, math.Round(v[i]))
			}
			return out
		}
		o.Forecast.Mean = thin(o.Forecast.Mean)
		for i := range o.Forecast.Quantiles {
			o.Forecast.Quantiles[i] = thin(o.Forecast.Quantiles[i])
		}
		o.Forecast.Scenarios = o.Forecast.Scenarios[:3]
		for i := range o.Forecast.Scenarios {
			o.Forecast.Scenarios[i] = thin(o.Forecast.Scenarios[i])
		}
		o.Forecast.Beyond = nil
		o.Rates = Series{Start: o.Now.Add(-3 * time.Minute), Step: time.Minute, Values: o.Rates.Values[27:]}
		o.Flow.Busy, o.Utilisation = math.Round(100*o.Flow.Busy)/100, math.Round(100*o.Utilisation)/100
		o.Flow.Trained = math.Round(o.Flow.Trained)
		set := map[string]any{
			"now": o.Now, "rates": o.Rates, "forecast": o.Forecast, "backlog_records": o.BacklogRecords, "lag": o.Lag.Round(time.Second),
			"flow": o.Flow, "utilisation": o.Utilisation, "workers": o.Workers, "action": o.Action,
		}
		o.Lag = o.Lag.Round(time.Second)
		s.Steps = append(s.Steps, scenarioStep{Set: json.RawMessage(encode(t, set))})
		d := p.Decide(o)
		l.step(d)
	}
	return s
}

// TestDayScenarios writes the goldens that TestScenarios checks, with -update.
func TestDayScenarios(t *testing.T) {
	type golden struct {
		file, name string
		params     Params
	}
	days := []golden{
		{"hpa_demand", "hpa", Params{"guard": 0, "demand": 1}}, {"autopilot-short_demand", "autopilot-short", Params{"guard": 0, "demand": 1}},
		{"kale_multiple", "kale", Params{"multiple": 2}},
	}
	for _, name := range Names() {
		params := Params{"guard": 0}
		switch name {
		case "kale", "cost", "static":
			params = nil
		case "keda":
			params["lag_threshold"] = 1e6
		}
		days = append(days, golden{name, name, params})
	}
	for _, day := range days {
		name := day.name
		s := dayScenario(t, name, day.params)
		got := s.run(t)
		if *update {
			for i := range s.Steps {
				s.Steps[i].Decision = got[i]
			}
			s.write(t, filepath.Join("testdata", "day_"+day.file+".json"))
		}
		least, most := 1<<20, 0
		for _, d := range got {
			least, most = min(least, d.Target), max(most, d.Target)
		}
		if name != "static" && name != "autopilot" && most-least < 4 {
			t.Errorf("%s kept to %d to %d workers over a day from 60,000 to 240,000 records/s", name, least, most)
		}
	}
}
