package replay

import (
	"bytes"
	"strings"
	"testing"
)

// Of a job whose workers cannot train what arrives the report says so, and nothing that is true only of one whose can.
func TestOverload(t *testing.T) {
	rates := append(append(flat(90_000, 12*60), flat(120_000, 9*60)...), flat(167_000, 3*60)...) // a day: half of it at most 96k/s
	for _, tt := range []struct {
		name     string
		min, max int
		theta    []float64
		beyond   float64
		atMin    float64
		says     []string
		not      []string
	}{
		{"six", 6, 6, nil, 0.5, 0.5,
			[]string{
				"For 50 % of the time even workers.max (6 workers, 96k/s) does not train what arrives (peak 167k/s), and the lag grows: raise workers.max.",
				"For 50 % of the time 6 workers are enough.",
				"(the smallest sufficient number of workers at every moment, and those that train most where none is, rescales free and instant)",
			}, nil},
		{"few", 1, 3, nil, 1, 0,
			[]string{
				"For 100 % of the time even workers.max (3 workers, 48k/s) does not train what arrives (peak 167k/s), and the lag grows: raise workers.max.",
				"; no number of workers up to workers.max trains more than 48k of the 167k records/s at the peak",
			}, []string{"enough"}},
		{"saturated", 1, 20, []float64{0, 0, 0.00001}, 0.5, 0.5,
			[]string{"(1, 100k/s) does not train what arrives (peak 167k/s), and the lag grows: more workers do not help, as their throughput is modelled; make each faster."}, []string{"raise"}},
		{"enough", 6, 20, nil, 0, 0.5, []string{"For 50 % of the time 6 workers are enough.", "at every moment, rescales free"}, []string{"even ", "lag grows"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := reference(t)
			j.Workers.Min, j.Workers.Max = tt.min, tt.max
			if tt.theta != nil {
				j.Throughput.Theta = tt.theta
			}
			c := compare(t, j, minutely(rates...), CourseOptions{}, Options{World: LiveRescale(), Seeds: 1, Policies: []string{"static", "kale"}, Forecaster: PerfectForecast})
			r, err := c.Run(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			if !near(r.ShareBeyondMax, tt.beyond, 1e-9) || !near(r.ShareAtMin, tt.atMin, 1e-9) {
				t.Errorf("%v of the time lies beyond workers.max, and at workers.min %v; want %v and %v", r.ShareBeyondMax, r.ShareAtMin, tt.beyond, tt.atMin)
			}
			var page bytes.Buffer
			if err := WriteHTML(&page, r, "v0"); err != nil {
				t.Fatal(err)
			}
			text := r.Headline() + "\n" + strings.Join(r.remarks(), "\n")
			for _, want := range tt.says {
				if !strings.Contains(text, want) {
					t.Errorf("it lacks %q:\n%s", want, text)
				}
			}
			for _, not := range tt.not {
				if strings.Contains(text, not) {
					t.Errorf("it says %q:\n%s", not, text)
				}
			}
			if says := strings.Contains(page.String(), "even "); says != (tt.beyond > 0) {
				t.Errorf("the page says %v that workers.max does not do", says)
			}
		})
	}
}

// Where all numbers of workers train equally much but for rounding, the fewest are the best.
func TestFlatCapacity(t *testing.T) {
	j := reference(t)
	j.Workers.Min, j.Workers.Max, j.Throughput.Theta = 1, 28, []float64{0, 0, 0.001}
	capacity := make([]float64, 29)
	for w := range capacity {
		capacity[w] = RateOf(j, float64(w))
	}
	if got := sufficient(capacity, 1e9, 1, 28); got != 1 {
		t.Errorf("%d workers are the best, of which each number trains %v", got, capacity[1])
	}
	if got := smallest(capacity, 1e9, 1, 28); got != 1 {
		t.Errorf("%d workers are the best, of which each number trains %v", got, capacity[1])
	}
}

// What workers.max train and the peak are told apart by their digits, or not at all; a peak that was scaled to what they train is not beyond them.
func TestThePeakIsToldApartFromWhatIsTrained(t *testing.T) {
	for _, tt := range []struct {
		a, b    float64
		differs bool
		x, y    string
	}{{48e3, 167e3, true, "48k", "167k"}, {447_950, 448_010, true, "447,950", "448,010"}, {448_000, 448_000.2, false, "448,000", "448,000"}} {
		if x, y, differ := apart(tt.a, tt.b); x != tt.x || y != tt.y || differ != tt.differs {
			t.Errorf("%v and %v: %s, %s, %v", tt.a, tt.b, x, y, differ)
		}
	}
	r := &Report{MaxLag: 1200, Max: 28, Peak: 448_000.0002, ShareBeyondMax: 0.01, best: 28, gpus: 1, course: &Course{}, model: func(int) float64 { return 448_000 }}
	r.Policies = []Row{{Name: "kale", Setting: LabelPaper, Metrics: Metrics{GPUHours: 300, ViolationPct: 1}}}
	if text := r.Headline(); strings.Contains(text, "no number of workers") {
		t.Error(text)
	}
	if r.Peak = 448_300; !strings.Contains(r.Headline(), "trains more than 448,000 of the 448,300 records/s at the peak") {
		t.Error(r.Headline())
	}
	j := reference(t)
	c := compare(t, j, minutely(append(flat(1000, 720), flat(RateOf(j, 28)*(1+1e-12), 720)...)...), CourseOptions{}, Options{World: LiveRescale(), Forecaster: PerfectForecast})
	if _, _, beyond := c.fluid(); beyond != 0 {
		t.Errorf("%v of the time lies beyond workers.max for a peak that they train", beyond)
	}
}
