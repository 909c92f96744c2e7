package traffic

import (
	"math"
	"sync"
	"testing"
	"time"
)

// Records of producers whose clock is minutes ahead or behind: how much is seen in what arrives, and the history has neither the flood nor the lull at its end that their
// dates alone would tell of. What is dated as it happens to be is no clock.
func testSkew(t *testing.T, brokers []string) {
	const step, perStep = 10 * time.Second, 20
	for name, tt := range map[string]struct {
		dated func(now time.Time, n int) time.Time
		skew  time.Duration
		known bool
	}{
		"right":  {func(now time.Time, _ int) time.Time { return now }, 0, true},
		"ahead":  {func(now time.Time, _ int) time.Time { return now.Add(3 * time.Minute) }, 3 * time.Minute, true},
		"behind": {func(now time.Time, _ int) time.Time { return now.Add(-3 * time.Minute) }, -3 * time.Minute, true},
		"events": {func(now time.Time, n int) time.Time { return now.Add(-time.Duration(1+n%7) * time.Minute) }, 0, false},
		"copied": {func(now time.Time, _ int) time.Time { return now.AddDate(0, 0, -3) }, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			x := newTopic(t, brokers, "skew-"+name, 2, nil)
			began := time.Now()
			for back := 60; back > 0; back-- {
				for p := range int32(2) {
					x.write(p, perStep, tt.dated(began.Add(-time.Duration(back)*step+step/2), back))
				}
			}
			x.flush()
			over := make(chan struct{})
			var writes sync.WaitGroup
			writes.Go(func() { // ends when the test does
				for n := 0; ; n++ {
					select {
					case <-over:
						return
					case <-time.After(20 * time.Millisecond):
						x.write(int32(n%2), 1, tt.dated(time.Now(), n/2))
					}
				}
			})
			defer func() { close(over); writes.Wait(); x.flush() }()
			eventually(t, "the clocks' difference", func() bool {
				skew, known, err := x.watch.Skew(t.Context())
				return err == nil && known == tt.known && (skew-tt.skew).Abs() < SkewLeast
			})
			if !tt.known {
				return
			}
			eventually(t, "an even history", func() bool {
				a := NewArrivals(ArrivalsOptions{Step: step})
				if _, err := Backfill(t.Context(), x.watch, a, BackfillOptions{From: began.Add(-5 * time.Minute), To: began}); err != nil {
					t.Fatal(err)
				}
				for _, rate := range a.Series(step, began.Add(-4*time.Minute), began.Add(-step)) {
					if math.Abs(rate*step.Seconds()-2*perStep) > 1 {
						return false
					}
				}
				total := int64(0)
				for _, end := range a.samples[len(a.samples)-1].ends {
					total += end
				}
				return total >= 2*59*perStep // the rest would come as a flood with the first look
			})
		})
	}
}

// A topic that is empty, or in which nothing arrives, tells nothing of clocks.
func TestSkewOfNothing(t *testing.T) {
	x := newTopic(t, fake(t), "clicks", 2, nil)
	if skew, known, err := x.watch.Skew(t.Context()); err != nil || known || skew != 0 {
		t.Errorf("of an empty topic: %v, %v, %v", skew, known, err)
	}
	x.write(0, 5, time.Now().Add(-10*time.Minute))
	x.flush()
	if skew, known, err := x.watch.Skew(t.Context()); err != nil || known || skew != 0 {
		t.Errorf("of a topic at rest: %v, %v, %v", skew, known, err)
	}
}
