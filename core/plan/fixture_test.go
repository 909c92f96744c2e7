package plan

import (
	"encoding/json"
	"flag"
	"testing"
	"time"

	"github.com/kale-sched/kale/estimator"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// linear is the reference job's throughput: 16,000 samples/s per worker.
var linear = estimator.Model{Form: estimator.FormAsync, Theta: []float64{1.0 / 16_000, 0, 0}}

// reference is a quiet moment of the reference job at one-minute decisions: 7
// workers carry 100,000 samples/s, and the forecast is flat.
func reference() Observation {
	o := Observation{
		Now: noon, Interval: time.Minute,
		LagKnown: true, Lag: 5 * time.Second, BacklogRecords: 500_000,
		Target: 7, Workers: Workers{Running: 7}, Servers: 2,
		Model:    linear,
		JoinTime: Measured{Value: 4 * time.Minute, Samples: 3},
		Limits:   Limits{Min: 2, Max: 28}, Rho: 1, Tau: 10 * time.Minute,
		CooldownOut: 2 * time.Minute, CooldownIn: 10 * time.Minute,
		MaxLag: 20 * time.Minute,
	}
	o.setRates(100_000)
	o.setForecast(flat(100_000, 60))
	return o
}

// setRates gives the last half hour, one value per minute, all the same.
func (o *Observation) setRates(rate float64) {
	o.Rates = Series{Start: o.Now.Add(-30 * o.Interval), Step: o.Interval, Values: flat(rate, 30)}
}

func (o *Observation) setForecast(mean Values) {
	o.Forecast = Forecast{At: o.Now, Step: o.Interval, Mean: mean, Source: "seasonal", Trusted: true}
}

func flat(v float64, n int) Values {
	out := make(Values, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// stepAt is a flat forecast of n steps that changes to v at step k.
func stepAt(base, v float64, k, n int) Values {
	out := flat(base, n)
	for i := k; i < n; i++ {
		out[i] = v
	}
	return out
}

func policy(t testing.TB, name string) Policy {
	t.Helper()
	p, err := New(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func encode(t testing.TB, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("marshal %T: %v", v, err)
	}
	return string(raw)
}

func estimatorPerWorker(rate float64) estimator.Model {
	return estimator.Model{Form: estimator.FormAsync, Theta: []float64{1 / rate, 0, 0}}
}
