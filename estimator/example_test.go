package estimator_test

import (
	"fmt"
	"time"

	"github.com/kale-sched/kale/estimator"
)

// The worked example of Kale §3.3: how many A10 workers for 30,000 samples/s?
func ExampleModel_Smallest() {
	m := estimator.Model{Form: estimator.FormSync, Theta: []float64{0.00035, 2.5726, 0.9824, 0.02786}, Batch: 16384}

	w, saturated := m.Smallest(30_000, 1, 28, nil)
	fmt.Printf("30000/s: %d workers train %.1f/s, saturated %v\n", w, m.Throughput(w, w), saturated)

	// More than the job can ever train: the answer is the peak, and says so.
	w, saturated = m.Smallest(40_000, 1, 28, nil)
	fmt.Printf("40000/s: %d workers train %.1f/s, saturated %v\n", w, m.Throughput(w, w), saturated)
	// Output:
	// 30000/s: 10 workers train 30005.5/s, saturated false
	// 40000/s: 10 workers train 30005.5/s, saturated true
}

// Fit learns a curve from saturated intervals.
func ExampleFit() {
	var samples []estimator.Sample
	for _, s := range []struct {
		w    int
		rate float64
	}{{1, 1266}, {2, 2950}, {4, 6430}, {8, 13467}} {
		samples = append(samples, estimator.Sample{Workers: s.w, Servers: s.w, Rate: s.rate, Saturated: true})
	}
	m, err := estimator.Fit(estimator.FormAsync, 0, samples)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("F(16) ≈ %.0f samples/s\n", m.Throughput(16, 16))
	// Output:
	// F(16) ≈ 27582 samples/s
}

// Online starts from a prior and follows what the running job shows.
func ExampleOnline() {
	prior := estimator.Model{Form: estimator.FormAsync, Theta: []float64{1.0 / 16_000, 0, 0}}
	o, err := estimator.NewOnline(prior, estimator.OnlineOptions{PriorMax: 28})
	if err != nil {
		fmt.Println(err)
		return
	}
	at := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	for i := range 5 {
		_, err := o.Observe(estimator.Sample{
			At: at.Add(time.Duration(i) * time.Minute), Workers: 4, Servers: 2, Rate: 56_000, Saturated: true,
		})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Printf("F(10): prior %.0f, now %.0f samples/s\n", prior.Throughput(10, 2), o.Model().Throughput(10, 2))
	// Output:
	// F(10): prior 160000, now 140000 samples/s
}
