package plan

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/estimator"
)

// Reference: Kale §3.4, Eq. 10, with the sync A10 fit of §3.3: the smallest w
// with F(w) > L(t), and the peak where none suffices.
func TestEq10_Kale_3_4(t *testing.T) {
	a10 := estimator.Model{Form: estimator.FormSync, Theta: []float64{0.00035, 2.5726, 0.9824, 0.02786}, Batch: 16384}
	workers, saturated := Eq10([]float64{0, 10_000, 30_000, 30_006, math.NaN()}, a10, Limits{Min: 1, Max: 28}, 1)
	if d := cmp.Diff([]int{1, 2, 10, 10, 10}, workers); d != "" {
		t.Errorf("workers (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]bool{false, false, false, true, true}, saturated); d != "" {
		t.Errorf("saturated (-want +got):\n%s", d)
	}
	// Strictly greater: 2 workers train exactly 32,000.
	if w, _ := Eq10([]float64{32_000, 31_999}, linear, Limits{Min: 1, Max: 28}, 1); w[0] != 3 || w[1] != 2 {
		t.Errorf("Eq. 10 at F(2) and just below = %v, want [3 2]", w)
	}
	// Where servers are apart from workers, they count.
	wp := estimator.Model{Form: estimator.FormAsyncWP, Theta: []float64{0.0001, 0.001, 0, 0}}
	few, _ := Eq10([]float64{5_000}, wp, Limits{Min: 1, Max: 28}, 1)
	many, _ := Eq10([]float64{5_000}, wp, Limits{Min: 1, Max: 28}, 10)
	if few[0] != 6 || many[0] != 2 {
		t.Errorf("workers for 5,000/s with 1 and 10 servers = %d and %d, want 6 and 2", few[0], many[0])
	}
}

// decideCase is one change to the reference moment and what kale answers.
type decideCase struct {
	name   string
	change func(*Observation)
	target int
	kind   Kind
	source string
	says   string // in the reason or a hold
}

func checkDecisions(t *testing.T, name string, cases []decideCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := reference()
			c.change(&o)
			d := policy(t, name).Decide(o)
			if d.Target != c.target || d.Kind != c.kind || c.source != "" && d.Source != c.source {
				t.Errorf("%s to %d by %q, want %s to %d by %q\n%s", d.Kind, d.Target, d.Source, c.kind, c.target, c.source, d.Explain())
			}
			if d.Source == "limits" && len(d.Hold) > 0 {
				t.Errorf("what the limits change is held:\n%s", d.Explain())
			}
			if all := d.Reason + "\n" + strings.Join(d.Hold, "\n"); !strings.Contains(all, c.says) {
				t.Errorf("the decision does not say %q:\n%s", c.says, d.Explain())
			}
		})
	}
}

// Reference: Kale §3.4.1: the plan follows the forecast; our reading shifts it
// earlier by the join time, here 4 min + 1 min of interval.
func TestKalePlan_Kale_3_4(t *testing.T) {
	checkDecisions(t, "kale", []decideCase{
		{"enough: nothing to do", func(*Observation) {}, 7, KindNone, "forecast", "needs 7 workers"},
		{"a ramp beyond the lead can wait", func(o *Observation) { o.setForecast(stepAt(100_000, 200_000, 7, 60)) }, 7, KindNone, "forecast", ""},
		{"a ramp within the lead is answered before it comes", func(o *Observation) { o.setForecast(stepAt(100_000, 200_000, 5, 60)) }, 13, KindOut, "forecast", "needs 13 workers within 5m"},
		{"a longer join looks further", func(o *Observation) {
			o.JoinTime.Value = 8 * time.Minute
			o.setForecast(stepAt(100_000, 200_000, 8, 60))
		}, 13, KindOut, "forecast", ""},
		{"headroom counts", func(o *Observation) { o.Headroom = 0.2 }, 8, KindOut, "forecast", "120,000"},
		{"a forecast made earlier is read at now", func(o *Observation) {
			o.setForecast(stepAt(100_000, 200_000, 20, 60))
			o.Forecast.At = o.Now.Add(-15*time.Minute - 20*time.Second)
		}, 13, KindOut, "forecast", ""},
		{"a fall that lasts is a scale-in", func(o *Observation) { o.setForecast(flat(50_000, 60)) }, 4, KindIn, "forecast", "needs 4 workers"},
		{"a dip shorter than τ is not", func(o *Observation) { o.setForecast(stepAt(50_000, 100_000, 8, 60)) }, 7, KindNone, "forecast", ""},
		{"a fall to what τ needs again, no lower", func(o *Observation) {
			m := stepAt(50_000, 70_000, 10, 60)
			o.setForecast(m)
		}, 5, KindIn, "forecast", ""},
		{"a spike shorter than τ is cut, as published", func(o *Observation) {
			m := flat(100_000, 60)
			for i := 2; i < 8; i++ {
				m[i] = 300_000
			}
			o.setForecast(m)
		}, 7, KindNone, "forecast", ""},
		{"more than max can train: max, saturated", func(o *Observation) { o.setForecast(flat(900_000, 60)) }, 28, KindOut, "forecast", "saturated"},
		{"no traffic: the lower limit", func(o *Observation) { o.setForecast(flat(0, 60)) }, 2, KindIn, "forecast", ""},
		{"a horizon shorter than τ still scales out", func(o *Observation) { o.setForecast(flat(200_000, 6)) }, 13, KindOut, "forecast", ""},
		{"the first decision starts from what runs", func(o *Observation) { o.Target = 0; o.Workers = Workers{} }, 7, KindOut, "forecast", ""},
	})
}

// Reference: Kale §3.3, §4.4: workers and servers keep their ratio, rounded up, and the plotted day has even numbers of workers only.
func TestKaleMultiple_Kale_4_4(t *testing.T) {
	p, err := New("kale", Params{"multiple": 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(*Observation)
		target int
	}{
		{"rounded up", func(*Observation) {}, 8},
		{"in the plan too", func(o *Observation) { o.setForecast(stepAt(100_000, 200_000, 5, 60)) }, 14},
		{"a fall", func(o *Observation) { o.setForecast(flat(40_000, 60)) }, 4},
		{"a lag to catch up", func(o *Observation) { o.Lag, o.BacklogRecords = 15*time.Minute, 90_000_000 }, 12},
		{"no forecast", func(o *Observation) { o.Forecast.Trusted = false; o.setRates(200_000) }, 14},
		{"no more than the limit", func(o *Observation) { o.Limits.Max = 27; o.setForecast(flat(900_000, 60)) }, 27},
		{"what is over the limit comes down to it", func(o *Observation) { o.Target, o.Limits.Max = 30, 27; o.setForecast(flat(900_000, 60)) }, 27},
	} {
		o := reference()
		c.change(&o)
		if d := p.Decide(o); d.Target != c.target {
			t.Errorf("%s: %d workers, want %d\n%s", c.name, d.Target, c.target, d.Explain())
		}
	}
}

// Reference: Kale §3.4.3, fallback; and README: it never scales in blind.
func TestKaleFallback_Kale_3_4_3(t *testing.T) {
	checkDecisions(t, "kale", []decideCase{
		{"lag over the threshold adds what catches up", func(o *Observation) {
			o.Lag, o.BacklogRecords = 12*time.Minute, 60_000_000 // + 50,000/s for 20 min
		}, 10, KindOut, "lag", "60,000,000 records within 20m"},
		{"its own threshold and catch-up", func(o *Observation) {
			o.Lag, o.BacklogRecords = 2*time.Minute, 6_000_000
			o.Fallback = Fallback{LagOver: time.Minute, CatchUp: time.Minute}
		}, 13, KindOut, "lag", "within 1m"},
		{"lag under the threshold does not", func(o *Observation) { o.Lag, o.BacklogRecords = 9*time.Minute, 60_000_000 }, 7, KindNone, "forecast", ""},
		{"lag over the threshold forbids a scale-in", func(o *Observation) {
			o.Lag, o.BacklogRecords = 12*time.Minute, 100
			o.setForecast(flat(40_000, 60))
			o.setRates(40_000)
		}, 7, KindHold, "lag", "no worker is let go"},
		{"lag unknown forbids a scale-in", func(o *Observation) { o.LagKnown = false; o.setForecast(flat(40_000, 60)) }, 7, KindHold, "", "lag is unknown"},
		{"a negative lag is unknown", func(o *Observation) { o.Lag = -time.Hour; o.setForecast(flat(40_000, 60)) }, 7, KindHold, "", "lag is unknown"},
		{"lag unknown does not forbid a scale-out", func(o *Observation) { o.LagKnown = false; o.setForecast(flat(200_000, 60)) }, 13, KindOut, "forecast", ""},
		{"not trusted: reactive upwards", func(o *Observation) {
			o.Forecast.Trusted, o.Forecast.Reason = false, "error of 40 % yesterday"
			o.Rates.Values[25] = 150_000
		}, 10, KindOut, "reactive", "error of 40 % yesterday; the recent rate of 150,000 records/s needs 10 workers"},
		{"not trusted: older than τ does not count", func(o *Observation) {
			o.Forecast.Trusted = false
			o.Rates.Values[15] = 150_000
		}, 7, KindNone, "reactive", ""},
		{"not trusted: never downwards", func(o *Observation) { o.Forecast.Trusted = false; o.setRates(30_000) }, 7, KindHold, "reactive", "not trusted"},
		{"a forecast that has ended is not trusted", func(o *Observation) { o.Forecast.At = o.Now.Add(-2 * time.Hour); o.setRates(30_000) }, 7, KindHold, "reactive", "the forecast ended at 2026-03-02T11:00:00Z"},
		{"nor one with a hole", func(o *Observation) { o.Forecast.Mean[40] = math.NaN(); o.setRates(30_000) }, 7, KindHold, "reactive", "not finite"},
		{"nor one of the future", func(o *Observation) { o.Forecast.At = o.Now.Add(time.Hour) }, 7, KindNone, "reactive", "starts only at"},
		{"no forecast and no rates: stay", func(o *Observation) { o.Forecast = Forecast{}; o.Rates = Series{} }, 7, KindHold, "reactive", "no rate was measured"},
		{"missing rates are skipped, not zero", func(o *Observation) {
			o.Forecast.Trusted = false
			o.Rates.Values[29] = math.NaN()
			o.Rates.Values[28] = 130_000
		}, 9, KindOut, "reactive", ""},
		{"lag and no trust: the larger of both", func(o *Observation) {
			o.Forecast.Trusted = false
			o.Lag, o.BacklogRecords = 12*time.Minute, 60_000_000
		}, 10, KindOut, "lag", ""},
		{"lag that does not fall though F suffices: one more", func(o *Observation) {
			o.Lag, o.BacklogRecords = 12*time.Minute, 1_000_000
			o.State = state{Version: 1, LagOver: true, Lag: 11 * time.Minute}.encode()
		}, 8, KindOut, "lag", "does not fall, though F says that 7 workers suffice"},
		{"of one worker too", func(o *Observation) {
			o.Target, o.Workers, o.Limits.Min = 1, Workers{Running: 1}, 1
			o.setForecast(flat(1000, 60))
			o.setRates(1000)
			o.Lag, o.BacklogRecords = 12*time.Minute, 1000
			o.State = state{Version: 1, LagOver: true, Lag: 11 * time.Minute}.encode()
		}, 2, KindOut, "lag", "does not fall, though F says that 1 worker suffices"},
		{"lag that was not known before the last decision: wait", func(o *Observation) {
			o.Lag, o.BacklogRecords = 12*time.Minute, 1_000_000
			o.State = state{Version: 1, LagOver: true, Lag: 11 * time.Minute, LagNew: true}.encode()
		}, 7, KindNone, "forecast", ""},
		{"lag that falls: wait", func(o *Observation) {
			o.Lag, o.BacklogRecords = 12*time.Minute, 1_000_000
			o.State = state{Version: 1, LagOver: true, Lag: 13 * time.Minute}.encode()
		}, 7, KindNone, "forecast", ""},
	})
}

// Whether a lag falls is not judged before it has been seen twice since it was last unknown: while Kafka is away it grows, and nobody could train.
func TestLagIsNotJudgedRightAfterAnOutage(t *testing.T) {
	p := policy(t, "kale")
	o := reference()
	decide := func(lag time.Duration, known bool) Decision {
		o.Now = o.Now.Add(o.Interval)
		o.Lag, o.LagKnown, o.BacklogRecords, o.Hold.Unknown = lag, known, 1_000_000, !known
		d := p.Decide(o)
		o.State = d.State
		return d
	}
	decide(11*time.Minute, true)
	decide(0, false)
	for i, tt := range []struct {
		lag  time.Duration
		want string
	}{{12 * time.Minute, "forecast"}, {12 * time.Minute, "forecast"}, {12 * time.Minute, "lag"}} {
		if d := decide(tt.lag, true); d.Source != tt.want {
			t.Errorf("look %d after the outage: %s: %s", i+1, d.Source, d.Reason)
		}
	}
}

// Reference: Kale §3.4.3: threshold scaling on GPU utilisation.
func TestKaleUtilisation_Kale_3_4_3(t *testing.T) {
	util := func(u float64) func(*Observation) {
		return func(o *Observation) {
			o.Utilisation, o.UtilKnown = u, true
			o.Fallback.UtilisationOver, o.Fallback.UtilisationUnder = 0.9, 0.3
		}
	}
	with := func(u float64, more func(*Observation)) func(*Observation) {
		return func(o *Observation) { util(u)(o); more(o) }
	}
	checkDecisions(t, "kale", []decideCase{
		{"too busy: one more", util(0.96), 8, KindOut, "utilisation", "96 % busy"},
		{"within the band: the plan rules", util(0.6), 7, KindNone, "forecast", ""},
		{"not known: the plan rules", with(0.96, func(o *Observation) { o.UtilKnown = false }), 7, KindNone, "forecast", ""},
		{"impossible: the plan rules", util(7), 7, KindNone, "forecast", ""},
		{"a scale-in may not make it too busy", with(0.7, func(o *Observation) { o.setForecast(flat(40_000, 60)) }), 6, KindIn, "utilisation", "over 90 % busy"},
		{"idle: one fewer than planned", util(0.25), 6, KindIn, "utilisation", "only 25 % busy"},
		{"idle, but the ramp is near", with(0.25, func(o *Observation) { o.setForecast(stepAt(100_000, 400_000, 4, 60)) }), 26, KindOut, "forecast", ""},
		{"idle, but lag is over the threshold", with(0.25, func(o *Observation) { o.Lag = 12 * time.Minute }), 7, KindNone, "", ""},
		{"idle, but the forecast is not trusted", with(0.25, func(o *Observation) { o.Forecast.Trusted = false }), 7, KindNone, "reactive", ""},
	})
}

// Where a rescale stops training it leaves a backlog, on which the workers are busy and which is as old as the
// outage was. Neither is a sign that the forecast is wrong or an accelerator slow, which is what the fallback is for:
// answered by another rescale, they would be there again after it.
func TestKaleFallbackIsNotForWhatARescaleLeaves_Kale_3_4_3(t *testing.T) {
	for _, tt := range []struct {
		name   string
		outage time.Duration
		lag    time.Duration
		util   float64
		rate   float64
		want   int
		source string
	}{
		{"busy with the backlog of a rescale", 6 * time.Minute, 6 * time.Minute, 1, 100_000, 7, "forecast"},
		{"the same where a rescale is live", 0, 6 * time.Minute, 1, 100_000, 8, "utilisation"},
		{"busy as what was trained explains", 6 * time.Minute, 5 * time.Second, 0.93, 103_000, 7, "forecast"},
		{"busier than what was trained explains", 6 * time.Minute, 5 * time.Second, 0.98, 100_000, 8, "utilisation"},
		{"a lag of two outages", 6 * time.Minute, 13 * time.Minute, 1, 100_000, 7, "forecast"},
		{"the same where a rescale is live", 0, 13 * time.Minute, 1, 100_000, 11, "lag"},
		{"a lag that leaves just time for a rescale", 6 * time.Minute, 14*time.Minute + time.Second, 1, 100_000, 11, "lag"},
	} {
		o := reference()
		o.RescaleCost = Measured{Value: tt.outage, Samples: 3}
		o.Lag, o.BacklogRecords = tt.lag, int64(tt.lag.Seconds()*100_000)
		o.Utilisation, o.UtilKnown = tt.util, true
		o.Fallback.UtilisationOver, o.Fallback.UtilisationUnder = 0.9, 0.3
		o.setRates(tt.rate)
		d := policy(t, "kale").Decide(o)
		if d.Target != tt.want || d.Source != tt.source {
			t.Errorf("%s: %d by %s, want %d by %s: %s", tt.name, d.Target, d.Source, tt.want, tt.source, d.Reason)
		}
	}
}

// A constant load must not make the utilisation fallback oscillate: the cap that
// idle accelerators set is kept, and one that proved wrong is not tried again soon.
func TestUtilisationDoesNotOscillate(t *testing.T) {
	p := policy(t, "kale")
	for name, truePerWorker := range map[string]float64{"GPUs faster than the model": 80_000, "as modelled": 16_000, "slower": 14_500} {
		o := reference()
		o.Fallback.UtilisationOver, o.Fallback.UtilisationUnder = 0.97, 0.3
		o.UtilKnown = true
		kinds := map[Kind]int{}
		for range 24 * 60 {
			o.setRates(100_000)
			o.setForecast(flat(100_000, 60))
			o.Utilisation = math.Min(1, 100_000/(truePerWorker*float64(o.Target)))
			d := p.Decide(o)
			kinds[d.Kind]++
			o.Target, o.Workers.Running, o.State = d.Target, d.Target, d.State
			o.Now = o.Now.Add(o.Interval)
		}
		if changes := kinds[KindOut] + kinds[KindIn]; changes > 6 || kinds[KindOut] > 0 && kinds[KindIn] > 0 {
			t.Errorf("%s: %d outs and %d ins in a day of constant load", name, kinds[KindOut], kinds[KindIn])
		}
		if d := 100_000 / truePerWorker; float64(o.Target) < d {
			t.Errorf("%s: ends at %d workers, %.1f are needed", name, o.Target, d)
		}
	}
}

// Workers that wait on the network look idle at any count. The cap on them proves
// wrong when lag grows, and must not be tried again before ten cooldowns.
func TestIdleCapThatProvesWrong(t *testing.T) {
	p := policy(t, "kale")
	o := reference()
	o.CooldownIn = 5 * time.Minute
	o.Fallback = Fallback{LagOver: 3 * time.Minute, UtilisationOver: 0.9, UtilisationUnder: 0.3}
	o.UtilKnown, o.Utilisation = true, 0.25
	backlog := 0.0
	var caps []time.Time
	for range 24 * 60 {
		backlog = math.Max(0, backlog+60*(100_000-linear.Throughput(o.Target, 1)))
		o.BacklogRecords, o.Lag = int64(backlog), time.Duration(backlog/100_000*float64(time.Second))
		o.setRates(100_000)
		o.setForecast(flat(100_000, 60))
		d := p.Decide(o)
		if _, capped := d.Term("idle cap"); capped && d.Kind == KindIn {
			caps = append(caps, o.Now)
		}
		o.Target, o.Workers.Running, o.State = d.Target, d.Target, d.State
		o.Now = o.Now.Add(o.Interval)
	}
	if len(caps) < 2 {
		t.Fatalf("the cap was tried %d times; the test needs it twice", len(caps))
	}
	for i := 1; i < len(caps); i++ {
		if gap := caps[i].Sub(caps[i-1]); gap < 100*time.Minute {
			t.Errorf("the cap was tried again %v after it had been tried", gap)
		}
	}
}

// wants is a planner that always wants the same, however blind.
type wants proposal

func (w wants) propose(*sheet) proposal { return proposal(w) }

// The rules bind every planner, also one that wants to scale in blind.
func TestGuardBindsAnyPlanner(t *testing.T) {
	for name, c := range map[string]struct {
		p      proposal
		change func(*Observation)
		target int
		says   string
	}{
		"free to go":          {proposal{want: 3}, func(*Observation) {}, 3, ""},
		"its own reason":      {proposal{want: 3, noIn: []string{"the forecast is not trusted"}}, func(*Observation) {}, 7, "not trusted"},
		"fallback threshold":  {proposal{want: 3}, func(o *Observation) { o.Lag = 11 * time.Minute }, 7, "fallback threshold"},
		"below min":           {proposal{want: -4}, func(*Observation) {}, 2, ""},
		"above max":           {proposal{want: 1 << 40}, func(*Observation) {}, 28, ""},
		"noIn binds in only":  {proposal{want: 9, noIn: []string{"x"}}, func(*Observation) {}, 9, ""},
		"unknown lag":         {proposal{want: 3}, func(o *Observation) { o.LagKnown = false }, 7, "lag is unknown"},
		"held by the planner": {proposal{want: 7, hold: []string{"because"}}, func(*Observation) {}, 7, "because"},
	} {
		o := reference()
		c.change(&o)
		d := guarded{name: "wants", planner: wants(c.p)}.Decide(o)
		if d.Target != c.target || !strings.Contains(strings.Join(d.Hold, ";"), c.says) {
			t.Errorf("%s: target %d, held by %q; want %d, held by %q", name, d.Target, d.Hold, c.target, c.says)
		}
	}
}

func TestGuards(t *testing.T) {
	in := func(o *Observation) { o.setForecast(flat(40_000, 60)) }
	out := func(o *Observation) { o.setForecast(flat(200_000, 60)) }
	lastOut := func(ago time.Duration) []byte { return state{Version: 1, LastOut: noon.Add(-ago)}.encode() }
	checkDecisions(t, "kale", []decideCase{
		{"unknown status holds a scale-in", func(o *Observation) { in(o); o.Hold = Hold{Unknown: true, Reason: "the backend does not answer"} }, 7, KindHold, "", "the backend does not answer"},
		{"and a scale-out", func(o *Observation) { out(o); o.Hold.Unknown = true }, 7, KindHold, "", "not fully known"},
		{"and a pin", func(o *Observation) { o.Hold.Unknown = true; o.Manual = Manual{Pinned: true, Target: 3} }, 7, KindHold, "", ""},
		{"what workers do not mend holds them", func(o *Observation) { out(o); o.Hold.Reason = "parameter server 1 is down" }, 7, KindHold, "", "parameter server 1 is down"},
		{"and an order does not wait for it", func(o *Observation) {
			o.Hold.Reason, o.Manual = "parameter server 1 is down", Manual{Pinned: true, Target: 3}
		}, 3, KindIn, "manual", ""},
		{"one unknown worker too", func(o *Observation) { in(o); o.Workers.Unknown = 1 }, 7, KindHold, "", "1 worker is unknown"},
		{"paused", func(o *Observation) { out(o); o.Manual.Paused = true }, 7, KindHold, "", "paused by hand"},
		{"pinned", func(o *Observation) { o.Manual = Manual{Pinned: true, Target: 3} }, 3, KindIn, "manual", "pinned to 3 workers by hand"},
		{"pinned beyond the limits", func(o *Observation) { o.Manual = Manual{Pinned: true, Target: 99} }, 28, KindOut, "manual", "make 28"},
		{"pinned while lag is over: a person may", func(o *Observation) { o.Lag = time.Hour; o.Manual = Manual{Pinned: true, Target: 3} }, 3, KindIn, "manual", ""},
		{"paused wins over pinned", func(o *Observation) { o.Manual = Manual{Paused: true, Pinned: true, Target: 3} }, 7, KindHold, "", "paused"},
		{"an action under way", func(o *Observation) {
			in(o)
			o.Action = Action{Kind: KindOut, Target: 7, Since: o.Now.Add(-90 * time.Second)}
		}, 7, KindHold, "", "rescale (out) to 7 workers has been under way for 1m30s"},
		{"a live scale-out may grow", func(o *Observation) {
			out(o)
			o.Action = Action{Kind: KindOut, Target: 7, Since: o.Now.Add(-90 * time.Second), CanGrow: true}
		}, 13, KindOut, "forecast", ""},
		{"but not shrink", func(o *Observation) { in(o); o.Action = Action{Kind: KindOut, Target: 7, CanGrow: true, Since: o.Now} }, 7, KindHold, "", "under way"},
		{"a drain under way does not turn into a scale-out", func(o *Observation) { out(o); o.Action = Action{Kind: KindIn, Target: 7, CanGrow: true, Since: o.Now} }, 7, KindHold, "", "under way"},
		{"but an order turns a scale-out", func(o *Observation) {
			o.Action, o.Manual = Action{Kind: KindOut, Target: 7, CanTurn: true, Since: o.Now}, Manual{Pinned: true, Target: 3}
		}, 3, KindIn, "manual", ""},
		{"and a scale-in", func(o *Observation) {
			o.Action, o.Manual = Action{Kind: KindIn, Target: 7, CanTurn: true, Since: o.Now}, Manual{Pinned: true, Target: 9}
		}, 9, KindOut, "manual", ""},
		{"not where everybody is pausing for it", func(o *Observation) {
			o.Action, o.Manual = Action{Kind: KindIn, Target: 7, Since: o.Now}, Manual{Pinned: true, Target: 9}
		}, 7, KindHold, "", "under way"},
		{"cooldown after a scale-out: no further one", func(o *Observation) { out(o); o.State = lastOut(time.Minute) }, 7, KindHold, "forecast", "1m to wait"},
		{"over: go on", func(o *Observation) { out(o); o.State = lastOut(2 * time.Minute) }, 13, KindOut, "forecast", ""},
		{"cooldown after a scale-out: no scale-in", func(o *Observation) { in(o); o.State = lastOut(9 * time.Minute) }, 7, KindHold, "forecast", "1m to wait"},
		{"cooldown after a scale-in: no scale-in", func(o *Observation) {
			in(o)
			o.State = state{Version: 1, LastIn: noon.Add(-time.Minute)}.encode()
		}, 7, KindHold, "forecast", "9m to wait"},
		{"but a scale-out, at once", func(o *Observation) {
			out(o)
			o.State = state{Version: 1, LastIn: noon.Add(-time.Second)}.encode()
		}, 13, KindOut, "forecast", ""},
		{"a clock set back prolongs no cooldown", func(o *Observation) { out(o); o.State = lastOut(-5 * time.Hour) }, 7, KindHold, "forecast", "too recent, 2m to wait"},
		{"max was lowered: at once, in lag and in cooldown too", func(o *Observation) {
			o.Limits.Max, o.Lag, o.State = 5, time.Hour, lastOut(time.Second)
		}, 5, KindIn, "limits", "the limits are 2 to 5 workers and 7 are in force"},
		{"min was raised: at once", func(o *Observation) { o.Limits.Min, o.State = 9, lastOut(time.Second) }, 9, KindOut, "limits", ""},
		{"lag over the objective", func(o *Observation) {
			in(o)
			o.setRates(40_000)
			o.Lag, o.Fallback.LagOver = 21*time.Minute, time.Hour
		}, 7, KindHold, "forecast", "over the objective of 20m"},
		{"impossible limits", func(o *Observation) { o.Limits = Limits{Min: 9, Max: 3} }, 7, KindHold, "", "above the upper limit"},
		{"no limits", func(o *Observation) { o.Limits = Limits{} }, 7, KindHold, "", "upper limit is 0"},
		{"an invalid model", func(o *Observation) { o.Model.Theta = nil }, 7, KindHold, "", "theta has 0 values"},
		{"no time", func(o *Observation) { o.Now = time.Time{} }, 7, KindHold, "", "time of the observation"},
		{"NaN headroom", func(o *Observation) { o.Headroom = math.NaN() }, 7, KindHold, "", "headroom"},
		{"no interval", func(o *Observation) { o.Interval = 0 }, 7, KindHold, "", "interval"},
		{"a state of the future", func(o *Observation) { o.State = []byte(`{"v":7,"last_out":{"odd":1}}`); out(o) }, 13, KindOut, "forecast", "saved state has version 7 and this program knows 1, so it starts afresh"},
		{"a broken state", func(o *Observation) { o.State = []byte(`{"v":`); out(o) }, 13, KindOut, "forecast", "could not be read"},
	})
}

// A pin is in the arithmetic, after what the policy wants.
func TestPinIsInTheArithmetic(t *testing.T) {
	p, err := New("kale", nil)
	if err != nil {
		t.Fatal(err)
	}
	o := reference()
	o.Manual = Manual{Pinned: true, Target: 99}
	d := p.Decide(o)
	lines := strings.Split(strings.TrimSpace(d.Explain()), "\n")
	if i := slices.IndexFunc(lines, func(l string) bool {
		return strings.Contains(l, "pinned  ") && strings.Contains(l, "99 workers  by hand, whatever the policy wants; the limits of 2 to 28 make it 28")
	}); i < 0 || i <= slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "  wanted  ") }) {
		t.Errorf("it explains:\n%s", d.Explain())
	}
	if term, ok := d.Term("pinned"); !ok || term.Value != 99 {
		t.Errorf("the term is %+v", term)
	}
}

func TestStaticAndFollow(t *testing.T) {
	checkDecisions(t, "static", []decideCase{
		{"always the maximum", func(*Observation) {}, 28, KindOut, "static", "always the maximum, 28 workers"},
		{"and stays there", func(o *Observation) { o.Target = 28 }, 28, KindNone, "static", ""},
	})
	checkDecisions(t, "follow", []decideCase{
		{"the last rate plus 3 %", func(o *Observation) { o.setRates(109_000) }, 8, KindOut, "rate", "109,000"},
		{"down too, without a forecast", func(o *Observation) { o.setRates(40_000); o.Forecast = Forecast{} }, 3, KindIn, "rate", ""},
		{"no rate: stay", func(o *Observation) { o.Rates = Series{} }, 7, KindHold, "rate", "no rate was measured lately"},
	})
	p, err := New("static", Params{"workers": 9})
	if err != nil {
		t.Fatal(err)
	}
	if d := p.Decide(reference()); d.Target != 9 {
		t.Errorf("static with workers = 9 wants %d", d.Target)
	}
}

func TestNewListsWhatExists(t *testing.T) {
	for _, c := range []struct {
		name   string
		params Params
		says   []string
	}{
		{"kahle", nil, []string{`unknown policy "kahle"`, `did you mean "kale"?`, "kale, cost, static, follow"}},
		{"zzz", nil, []string{"the policies are kale, cost, static, follow"}},
		{"follow", Params{"magrin": 1}, []string{`no parameter "magrin"`, `did you mean "margin"?`}},
		{"kale", Params{"x": 1}, []string{"it has multiple, guard"}},
		{"follow", Params{"margin": -1}, []string{"margin = -1", "0 to 10"}},
		{"follow", Params{"margin": math.NaN()}, []string{"NaN"}},
	} {
		p, err := New(c.name, c.params)
		if err == nil {
			t.Errorf("New(%q, %v) = %v, want an error", c.name, c.params, p)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("New(%q, %v): %q does not say %q", c.name, c.params, err, s)
			}
		}
	}
	for _, n := range Names() {
		if p := policy(t, n); p.Name() != n {
			t.Errorf("policy %q calls itself %q", n, p.Name())
		}
	}
}

// The same code runs sped up: everything scaled by 1/60 gives the same targets.
func TestNoMinutesInside(t *testing.T) {
	slow, fast := reference(), reference()
	scale := func(d *time.Duration) { *d /= 60 }
	for _, d := range []*time.Duration{&fast.Interval, &fast.Lag, &fast.JoinTime.Value, &fast.Tau, &fast.CooldownOut, &fast.CooldownIn, &fast.MaxLag} {
		scale(d)
	}
	p := policy(t, "kale")
	for i := range 400 {
		mean := make(Values, 60)
		for k := range mean {
			mean[k] = 150_000 + 100_000*math.Sin(float64(i+k)/30)
		}
		for _, o := range []*Observation{&slow, &fast} {
			o.setRates(mean[0])
			o.setForecast(mean)
			d := p.Decide(*o)
			o.Target, o.Workers.Running, o.State = d.Target, d.Target, d.State
			o.Now = o.Now.Add(o.Interval)
		}
		if slow.Target != fast.Target {
			t.Fatalf("step %d: %d workers at one decision a minute, %d at one a second", i, slow.Target, fast.Target)
		}
	}
}

// A switch is 0 or 1, and a count is whole.
func TestWholeParams(t *testing.T) {
	for _, c := range []struct {
		policy, param string
		value         float64
	}{{"kale", "guard", 0.5}, {"kale", "multiple", 1.5}, {"static", "workers", 2.5}, {"hpa", "demand", 0.1}, {"keda", "allow_idle", 0.9}} {
		if _, err := New(c.policy, Params{c.param: c.value}); err == nil || !strings.Contains(err.Error(), "whole number") {
			t.Errorf("%s with %s = %g: %v", c.policy, c.param, c.value, err)
		}
	}
}
