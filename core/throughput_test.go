package core

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"
)

// A theta by which the workers cannot train what arrives is warned of at its line, with the figures and with how many workers would do.
func TestCheckThroughput(t *testing.T) {
	for _, c := range []struct {
		name, theta string
		rate        float64
		says        []string // nil: nothing
	}{
		{"enough", "[0.001, 0, 0]", 7900, nil},
		{"too few workers", "[0.001, 0, 0]", 12345, []string{`Topic "clicks" had 12,345 records/s on average over the last 1h, and 8 workers (workers.max) train 8,000 records/s`, "(by this theta it takes 13)"}},
		{"saturated", "[0.001, 0, 0.001]", 5000, []string{"by this theta no number of workers trains that much"}},
		{"seconds taken for milliseconds", "[1, 0, 0]", 9.5, []string{"had 9.5 records/s", "train 8.0 records/s", "in seconds per record"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(rigJob, "theta = [0.001, 0, 0]", "theta = "+c.theta, 1)
			text = fmt.Sprintf(text, "localhost:9092", "clicks", "live", t.TempDir())
			j := parseJob(t, text)
			diags := CheckThroughput(j, c.rate, time.Hour)
			if c.says == nil {
				if len(diags) > 0 {
					t.Errorf("it says %v", diags)
				}
				return
			}
			if len(diags) != 1 || diags[0].Severity != hcl.DiagWarning || diags[0].Subject == nil || !strings.Contains(strings.Split(text, "\n")[diags[0].Subject.Start.Line-1], "theta") {
				t.Fatalf("%+v; want one warning at theta", diags)
			}
			for _, want := range c.says {
				if !strings.Contains(diags[0].Detail, want) {
					t.Errorf("%q does not say %q", diags[0].Detail, want)
				}
			}
		})
	}
}

// A theta by which workers train more each the more there are is warned of at its line; one by which they train less, or a little more, is not.
func TestCheckSuperlinear(t *testing.T) {
	for _, c := range []struct{ theta, says string }{
		{"[0.001, 0, 0]", ""}, {"[0.001, 0.00005, 0]", ""}, {"[0.001, 0, 0.0005]", ""},
		{"[0, 0.0025, 0]", "one worker trains 400 records/s, and 8 train 25,600: 8.0 times as much each"},
	} {
		text := strings.Replace(rigJob, "theta = [0.001, 0, 0]", "theta = "+c.theta, 1)
		text = fmt.Sprintf(text, "localhost:9092", "clicks", "live", t.TempDir())
		diags := CheckSuperlinear(parseJob(t, text))
		if c.says == "" {
			if len(diags) > 0 {
				t.Errorf("%s: it says %v", c.theta, diags)
			}
			continue
		}
		if len(diags) != 1 || diags[0].Severity != hcl.DiagWarning || !strings.Contains(diags[0].Detail, c.says) || !strings.Contains(strings.Split(text, "\n")[diags[0].Subject.Start.Line-1], "theta") {
			t.Errorf("%s: %v; want %q at theta", c.theta, diags, c.says)
		}
	}
}

// A theta by which fewer workers train more than workers.max is warned of at that line, with how many train most.
func TestCheckPeak(t *testing.T) {
	for _, c := range []struct{ form, theta, says string }{
		{"async", "[0.001, 0, 0]", ""}, {"async", "[0.001, 0, 0.0005]", ""}, {"usl", "[0.001, 0.00001, 0.00001]", ""},
		{"usl", "[0.001, 0, 0.01]", "By throughput.theta the most is trained by 1 worker, 91 records/s, and 8 (workers.max) train 12. Lower workers.max to 1, or"},
		{"usl", "[0.001, 0, 0.0001]", "By throughput.theta the most is trained by 3 workers"},
	} {
		text := strings.Replace(rigJob, "theta = [0.001, 0, 0]", "form = \""+c.form+"\"\n    theta = "+c.theta, 1)
		text = fmt.Sprintf(text, "localhost:9092", "clicks", "live", t.TempDir())
		diags := CheckPeak(parseJob(t, text))
		if c.says == "" {
			if len(diags) > 0 {
				t.Errorf("%s %s: it says %v", c.form, c.theta, diags)
			}
			continue
		}
		if len(diags) != 1 || diags[0].Severity != hcl.DiagWarning || !strings.Contains(diags[0].Detail, c.says) || !strings.Contains(strings.Split(text, "\n")[diags[0].Subject.Start.Line-1], "max") {
			t.Errorf("%s %s: %v; want %q at workers.max", c.form, c.theta, diags, c.says)
		}
	}
}

// A rate that no int64 holds is not turned into another.
func TestWholeRate(t *testing.T) {
	for rate, want := range map[float64]string{0.25: "0.2", 9.96: "10.0", 12345.6: "12,346", 1e14: "100,000,000,000,000", 1e15: "1e+15", 1e300: "1e+300", math.Inf(1): "+Inf", math.NaN(): "NaN"} {
		if got := wholeRate(rate); got != want {
			t.Errorf("%v is %q, want %q", rate, got, want)
		}
	}
}

// A theta that promises more than the emulated accelerator lets a worker train is warned of at that accelerator's line; one that is rounded is not.
func TestCheckEmulated(t *testing.T) {
	for _, c := range []struct {
		name, theta, step string
		says              []string // nil: nothing
	}{
		{"no emulation", "[0.0001, 0, 0]", "0s", nil},
		{"slower by theta", "[0.01, 0, 0]", "1s", nil},
		{"rounded", "[0.00097, 0, 0]", "1s", nil},
		{"too fast", "[0.0001, 0, 0]", "1s", []string{"A step of up to 1024 records takes at least 1s, so that a worker trains 1,024 records/s at most", "throughput.theta promises 10,000 (at workers.min = 1), and too few would be planned", "[0.0009766, 0, 0]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.NewReplacer("theta = [0.001, 0, 0]", "theta = "+c.theta, "gpus = 1", "gpus = 1\n    emulate_step = \""+c.step+"\"").Replace(rigJob)
			text = fmt.Sprintf(text, "localhost:9092", "clicks", "live", t.TempDir())
			diags := CheckEmulated(parseJob(t, text))
			if c.says == nil {
				if len(diags) > 0 {
					t.Errorf("it says %v", diags)
				}
				return
			}
			if len(diags) != 1 || diags[0].Severity != hcl.DiagWarning || diags[0].Subject == nil || !strings.Contains(strings.Split(text, "\n")[diags[0].Subject.Start.Line-1], "emulate_step") {
				t.Fatalf("%+v; want one warning at emulate_step", diags)
			}
			for _, want := range c.says {
				if !strings.Contains(diags[0].Detail, want) {
					t.Errorf("%q does not say %q", diags[0].Detail, want)
				}
			}
		})
	}
}
