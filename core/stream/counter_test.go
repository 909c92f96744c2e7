package stream

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// scraped are the rows of a counter that grows by rates, in bins of a minute, and begins anew before the bins of restarts.
func scraped(rates []float64, restarts ...int) string {
	var b strings.Builder
	b.WriteString("timestamp,value\n")
	sum := 0.0
	for i, r := range rates {
		for _, at := range restarts {
			if i == at {
				sum = 0
			}
		}
		fmt.Fprintf(&b, "%d,%.0f\n", start.Add(time.Duration(i)*time.Minute).Unix(), sum)
		sum += r * 60
	}
	return b.String()
}

// busy is traffic over hours, with its noise.
func busy(n int) []float64 {
	rng := rand.New(rand.NewPCG(3, 3))
	out := make([]float64, n)
	for i := range out {
		out[i] = math.Round(100 * (1 + 0.5*math.Sin(float64(i)/60)) * (1 + 0.1*rng.NormFloat64()))
	}
	return out
}

// A counter is refused, with the line and what helps; asked for, its differences are the rates, and where it begins anew there is a gap.
func TestCounter(t *testing.T) {
	truth := busy(400)
	text := scraped(truth, 150, 300)
	_, _, err := ParseCurve("c.csv", strings.NewReader(text), RatesOnly)
	if !errors.Is(err, ErrCounter) || !strings.HasPrefix(err.Error(), "c.csv:152:1: ") || !strings.Contains(err.Error(), "save 2 that begin anew, the first on line 152") || !strings.Contains(err.Error(), "Give -counter to") {
		t.Errorf("it says %v", err)
	}
	if c, _, err := ParseCurve("c.csv", strings.NewReader(text), Rates); err != nil || c.Rates[1] != truth[0]*60 {
		t.Errorf("taken as rates: %v", err)
	}
	rows := strings.SplitAfter(text, "\n")
	for _, c := range []struct {
		name, text string
		gaps       map[int]bool
	}{
		{"whole", text, map[int]bool{149: true, 299: true}},
		{"with a row missing", strings.Join(append(append([]string{}, rows[:201]...), rows[202:]...), ""), map[int]bool{149: true, 199: true, 200: true, 299: true}},
	} {
		got, notes, err := ParseCurve("c.csv", strings.NewReader(c.text), Counter)
		if err != nil {
			t.Fatal(err)
		}
		if said := strings.Join(notes, "\n"); !strings.Contains(said, "taken as a counter") || !strings.Contains(said, "begins anew 2 times, first on line 152") || len(got.Rates) != 399 || got.Step != time.Minute || !got.Start.Equal(start) {
			t.Errorf("%s: %d bins of %v from %v, %q", c.name, len(got.Rates), got.Step, got.Start, said)
		}
		for i, r := range got.Rates {
			if math.IsNaN(r) != c.gaps[i] || !c.gaps[i] && math.Abs(r-truth[i]) > 1e-9 {
				t.Errorf("%s: bin %d is %v, want %v", c.name, i, r, truth[i])
			}
		}
	}
	// One that never begins anew, and one that its name tells, however it grows.
	steady := make([]float64, 60)
	for i := range steady {
		steady[i] = 5
	}
	for name, text := range map[string]string{"without restarts": scraped(truth), "by name": strings.Replace(scraped(steady), "value", "http_requests_total", 1)} {
		if _, _, err := ParseCurve("c.csv", strings.NewReader(text), RatesOnly); !errors.Is(err, ErrCounter) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Scrapes that are some seconds off are of the time between them.
	jittered := fmt.Sprintf("time,value\n%d.000,0\n", start.Unix())
	at, sum := 0.0, 0.0
	for i := 1; i < 60; i++ {
		next := 60*float64(i) + 5*math.Sin(float64(7*i))
		sum += 100 * (next - at)
		at = next
		jittered += fmt.Sprintf("%.3f,%.4f\n", float64(start.Unix())+at, sum)
	}
	got, _, err := ParseCurve("c.csv", strings.NewReader(jittered), Counter)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range got.Rates {
		if math.Abs(r-100) > 0.01 {
			t.Errorf("jittered: bin %d is %v, want 100", i, r)
		}
	}
}

// A counter that never grows is read, with a warning that nothing arrived; one that grows once has none.
func TestCounterThatStands(t *testing.T) {
	for name, grows := range map[string]bool{"stands": false, "grows once": true} {
		var b strings.Builder
		b.WriteString("timestamp,x_total\n")
		for i := range 60 {
			v := 500
			if grows && i > 30 {
				v = 501
			}
			fmt.Fprintf(&b, "%d,%d\n", start.Add(time.Duration(i)*time.Minute).Unix(), v)
		}
		_, notes, err := ParseCurve("c.csv", strings.NewReader(b.String()), Counter)
		if said := strings.Contains(strings.Join(notes, "\n"), "c.csv: the counter never grows: nothing arrived."); err != nil || said == grows {
			t.Errorf("%s: %v, it says %q", name, err, notes)
		}
	}
}

// What rates there are is no counter: traffic with its noise, and what people write by hand.
func TestRatesAreNoCounter(t *testing.T) {
	shapes := map[string]func(i int) float64{
		"traffic":          func(i int) float64 { return busy(400)[i] },
		"a ramp":           func(i int) float64 { return 100 + 2.5*float64(i) },
		"a rounded ramp":   func(i int) float64 { return math.Round(100 + 2.37*float64(i)) },
		"stairs":           func(i int) float64 { return float64(100 * (1 + i/40)) },
		"a saw":            func(i int) float64 { return float64(10 * (i % 50)) },
		"a rounded saw":    func(i int) float64 { return math.Round(7.3 * float64(i%90)) },
		"an S":             func(i int) float64 { return 1000 / (1 + math.Exp(-float64(i-200)/40)) },
		"a rounded S":      func(i int) float64 { return math.Round(1000 / (1 + math.Exp(-float64(i-200)/40))) },
		"a switch":         func(i int) float64 { return float64(100 * (i / 200)) },
		"zero":             func(int) float64 { return 0 },
		"one restart only": func(i int) float64 { return map[bool]float64{true: 5000, false: 3}[i < 200] },
	}
	for name, shape := range shapes {
		var b strings.Builder
		b.WriteString("timestamp,rate\n")
		for i := range 400 {
			fmt.Fprintf(&b, "%d,%v\n", start.Add(time.Duration(i)*time.Minute).Unix(), shape(i))
		}
		if _, _, err := ParseCurve("r.csv", strings.NewReader(b.String()), RatesOnly); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	text := strings.Replace(scraped(busy(60)), "value", "rate", 1)
	var rates strings.Builder
	for i, r := range busy(60) {
		fmt.Fprintf(&rates, "%d,%v\n", start.Add(time.Duration(i)*time.Minute).Unix(), r)
	}
	if _, _, err := ParseCurve("r.csv", strings.NewReader(rates.String()), Counter); err == nil || !strings.Contains(err.Error(), "these values fall in ") {
		t.Errorf("rates as a counter: %v", err)
	}
	if _, _, err := ParseCurve("r.csv", strings.NewReader(text), Counter); err != nil {
		t.Error(err)
	}
}
