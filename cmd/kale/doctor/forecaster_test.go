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
