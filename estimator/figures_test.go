package estimator

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// eq2 is training as Kale §3.3 takes it apart, Eq. 2 and 3: m samples of each worker in a step, p servers whose network w workers share.
type eq2 struct {
	forward, backward    float64 // seconds for a sample, and for a step
	dense, sparse        float64 // bytes of the dense part, and of a sample's embeddings
	network              float64 // bytes/s of one machine
	update               float64 // seconds to apply one sample's updates
	perServer, perWorker float64 // λ and λ': seconds of overhead in a step
	batch                float64 // of all workers (sync) or of each (async)
	synchronous          bool
}

func (e eq2) rate(w, p int) float64 {
	W, P := float64(w), float64(p)
	m := e.batch
	if e.synchronous {
		m /= W
	}
	bandwidth := min(e.network/W, e.network/P)
	step := m*e.forward + e.backward + (2*m*e.sparse+e.dense)/(bandwidth*P) + m/P*e.update + e.perServer*P + e.perWorker*W
	if e.synchronous {
		return e.batch / step
	}
	return W * m / step
}

// shape is a job whose throughput is to be learnt.
type shape struct {
	name    string
	rate    func(w, p int) float64
	servers []int // that go with each number of workers; none: one for each
	batch   float64
	ours    []Form
	rivals  []Form
}

var (
	triedCounts = []int{1, 2, 3, 4, 6, 8, 12, 16, 20}
	heldCounts  = []int{5, 7, 10, 14, 18, 24, 28}
)

func shapes() []shape {
	async := eq2{forward: 1.6e-4, backward: 4e-3, dense: 2e6, sparse: 1e3, network: 1.2e9, update: 6e-6, perServer: 3e-4, perWorker: 1.2e-3, batch: 1024}
	// By Eq. 6, θ1, θ2 and θ3 of the published fit for A10: 2.57, 0.98 and 0.028.
	sync := eq2{forward: 1.55e-4, backward: 4e-4, dense: 2e6, sparse: 1e4, network: 1.2e9, update: 4.3e-5, perServer: 8e-3, perWorker: 2e-2, batch: 16384, synchronous: true}
	free := async
	free.perServer, free.perWorker = 1e-4, 1e-4
	fixed := []Form{FormAsync, FormSync, FormErnest, FormUSL, FormMixed}
	apart := []Form{FormAsync, FormSync, FormErnest, FormUSL, FormMixed, FormAsyncWP, FormSyncWP, FormOptimusAsync, FormOptimusSync}
	return []shape{
		{name: "async, one server for each worker", rate: async.rate, ours: fixed, rivals: []Form{FormOptimusAsync, FormErnest}, batch: 1024},
		{name: "async, no contention to speak of", rate: free.rate, ours: fixed, rivals: []Form{FormOptimusAsync, FormErnest}, batch: 1024},
		{name: "sync, one server for each worker", rate: sync.rate, ours: fixed, rivals: []Form{FormOptimusSync, FormErnest}, batch: 16384},
		{name: "async, 2 or 4 servers", rate: async.rate, servers: []int{2, 4}, ours: apart, rivals: []Form{FormOptimusAsync, FormErnest}, batch: 1024},
		{name: "sync, 2 or 4 servers", rate: sync.rate, servers: []int{2, 4}, ours: apart, rivals: []Form{FormOptimusSync, FormErnest}, batch: 16384},
		// Gunther: contention σ, coherency κ. Its 1/f is in 1/w, 1 and w, which Ernest's and the sync form's terms hold: none can be better.
		{name: "universal scalability law", rate: func(w, _ int) float64 {
			n := float64(w)
			return 5000 * n / (1 + 0.03*(n-1) + 0.0008*n*(n-1))
		}, ours: fixed, rivals: []Form{FormOptimusAsync, FormErnest}, batch: 1024},
		{name: "barrier: the slowest of all in each step", rate: func(w, _ int) float64 { return 5000 * float64(w) / (1 + 0.12*math.Log(float64(w))) }, // the expected maximum grows with ln w
			ours: fixed, rivals: []Form{FormOptimusAsync, FormErnest}, batch: 1024},
	}
}

func (s shape) samples(counts []int, repeats int, noise float64, rng *rand.Rand) []Sample {
	var out []Sample
	for _, w := range counts {
		servers := s.servers
		if servers == nil {
			servers = []int{w}
		}
		for _, p := range servers {
			for range repeats {
				out = append(out, Sample{Workers: w, Servers: p, Rate: s.rate(w, p) * (1 + noise*rng.NormFloat64()), Saturated: true})
			}
		}
	}
	return out
}

// The table of how far each model is off at worker counts that it was not shown, between and beyond those that it was.
func TestHeldOutError(t *testing.T) {
	// Seeds from 1000 on were not looked at while the rule of [Select] was chosen.
	const repeats, noise, first, seeds = 5, 0.02, 1000, 40
	// choosing is what it may cost, in points of a percent, to find a form among others beside having been given it: where a rival's form is the truth
	// itself, none can be better, and now and then another is taken that noise favours.
	const choosing = 0.05
	var table strings.Builder
	fmt.Fprintf(&table, "MAPE %% at w = %v after %d intervals each, %v %% noise, at w = %v; %d seeds\n", heldCounts, repeats, 100*noise, triedCounts, seeds)
	for _, s := range shapes() {
		ours, rivals := 0.0, make([]float64, len(s.rivals))
		chosen := map[Form]int{}
		for seed := range uint64(seeds) {
			rng := rand.New(rand.NewPCG(first+seed, 23))
			tried, held := s.samples(triedCounts, repeats, noise, rng), s.samples(heldCounts, 1, 0, rng)
			best, _, err := Select(s.ours, s.batch, tried)
			if err != nil {
				t.Fatal(err)
			}
			e, _ := best.MAPE(held)
			ours += e / seeds
			chosen[best.Form]++
			for i, form := range s.rivals {
				m, err := Fit(form, s.batch, tried)
				if err != nil {
					t.Fatal(err)
				}
				e, _ := m.MAPE(held)
				rivals[i] += e / seeds
			}
		}
		fmt.Fprintf(&table, "%-42s kale %5.2f", s.name, ours)
		for i, form := range s.rivals {
			fmt.Fprintf(&table, "   %s %5.2f (x%.1f)", form, rivals[i], rivals[i]/ours)
			if ours > rivals[i]+choosing {
				t.Errorf("%s: %.3f %%, and %s %.3f %%", s.name, ours, form, rivals[i])
			}
		}
		fmt.Fprintf(&table, "   %v\n", chosen)
		if ours > max(2, 1.5*100*noise) {
			t.Errorf("%s: %.2f %% off, with a noise of %v %%", s.name, ours, 100*noise)
		}
	}
	t.Log(table.String())
}
