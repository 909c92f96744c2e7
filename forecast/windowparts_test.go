package forecast

import (
	"testing"
	"time"
)

// Learning a map tells its parts in order, all of them.
func TestTrainWindowTellsItsParts(t *testing.T) {
	s := synthetic(1200, time.Second, func(i int) float64 { return cycle(float64(i)/120) + float64(i*7919%61) })
	for _, kind := range windowKinds {
		last, calls, of := 0, 0, 0
		_, err := TrainWindow(s, WindowOptions{Kind: kind, Horizon: 10, Input: 120, Season: 2 * time.Minute, Progress: func(done, total int) {
			if done <= last || done > total {
				t.Errorf("%s: %d of %d after %d", kind, done, total, last)
			}
			last, of = done, total
			calls++
		}})
		if err != nil || last != of || calls < len(windowRidges)+3 {
			t.Errorf("%s: it ends with %d of %d, told %d times: %v", kind, last, of, calls, err)
		}
	}
}
