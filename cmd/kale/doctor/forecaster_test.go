package doctor

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/onnx/onnxtest"
	"github.com/kale-sched/kale/forecast/forecasttest"
)

// A model that opens and says nothing of use is told of before it is relied on.
func TestForecastModelIsTriedOnPlainTraffic(t *testing.T) {
	onnxtest.Library(t)
	for what, says := range map[float32]string{1: "can be used", 1e32: "more than 1e+12 cannot be", float32(math.NaN()): "is NaN"} {
		raw, err := forecasttest.Saying(what, 96, 60, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		p := patient(t)
		p.Job.Forecast.Model = filepath.Join(t.TempDir(), "m.onnx")
		if err := os.WriteFile(p.Job.Forecast.Model, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		want := Fail
		if what == 1 {
			want = OK
		}
		if f := p.tryForecaster(t.Context())[0]; f.State != want || !strings.Contains(f.Says, says) {
			t.Errorf("of %v it says %+v, want %s: %s", what, f, want, says)
		}
	}
}

// One that is slower than a decision waits is told of, too: no forecast would be its own.
func TestForecastModelIsSlow(t *testing.T) {
	p := patient(t)
	p.Job.Autoscale.Watch = 5 * time.Second // a quarter of which a decision waits
	found := ok("forecast model", "m.onnx can be used")
	if f := p.paceOf(found, 1250*time.Millisecond); f != found {
		t.Errorf("in time it says %+v", f)
	}
	if f := p.paceOf(found, 1251*time.Millisecond); f.State != Warn || !strings.Contains(f.Says, "can be used, but took 1.251s for one forecast, and a decision waits 1.25s at most") || f.Do == "" {
		t.Errorf("too late it says %+v", f)
	}
}
