package plan

import (
	"strings"
	"testing"
	"time"
)

// A threshold that is not lag_over itself says how it comes about.
func TestFallbackThresholdIsExplained(t *testing.T) {
	for name, tt := range map[string]struct {
		over, outage, lag time.Duration
		says, not         string
	}{
		"live":                       {10 * time.Minute, 0, 11 * time.Minute, "over the fallback threshold of 10m", "stops training"},
		"a pause":                    {10 * time.Minute, 2 * time.Minute, 13 * time.Minute, "over the fallback threshold of 12m: lag_over (10m) and the 2m that a rescale stops training", "less"},
		"no time for one more":       {10 * time.Minute, 8 * time.Minute, 13 * time.Minute, "over the fallback threshold of 12m: max_lag (20m) less the 8m that a rescale stops training", "lag_over"},
		"lag_over leaves too little": {15 * time.Minute, 8 * time.Minute, 16 * time.Minute, "over the fallback threshold of 15m", "stops training"},
	} {
		o := reference()
		o.Fallback.LagOver, o.RescaleCost.Value, o.Lag, o.BacklogRecords = tt.over, tt.outage, tt.lag, 1_000_000
		if tt.outage > 0 {
			o.JoinTime.Value = tt.outage
		}
		p, err := New("kale", nil)
		if err != nil {
			t.Fatal(err)
		}
		_, line, _ := strings.Cut(p.Decide(o).Explain(), "over the fallback threshold")
		line, _, _ = strings.Cut(line, "\n")
		if line = "over the fallback threshold" + line; o.MaxLag != 20*time.Minute || !strings.HasPrefix(line, tt.says) || strings.Contains(line, tt.not) {
			t.Errorf("%s: %q, want %q", name, line, tt.says)
		}
	}
}
