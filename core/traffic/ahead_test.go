package traffic

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// A record dated far ahead of when it was written, now or in the past, and ones dated far behind, make no traffic: the rates around are what arrived, and where
// the record hides what came after it, they are unknown.
func testAhead(t *testing.T, brokers []string) {
	const step, perStep = time.Minute, 20
	for name, tt := range map[string]struct {
		odd    func(at time.Time) map[int]time.Time // records of partition 0 (real Kafka takes none more than an hour ahead) by the minute before now in which they are written, with their dates
		hidden [2]int                               // minutes before now of which nothing is known
		says   int                                  // minutes that the first is ahead of now, 0: none is
	}{
		"now": {func(at time.Time) map[int]time.Time { return map[int]time.Time{30: at.Add(50 * time.Minute)} }, [2]int{30, 0}, 50},
		"one after the other": {func(at time.Time) map[int]time.Time {
			return map[int]time.Time{40: at.Add(20 * time.Minute), 30: at.Add(50 * time.Minute)}
		}, [2]int{40, 0}, 20},
		"in the past": {func(at time.Time) map[int]time.Time { return map[int]time.Time{150: at.Add(-70 * time.Minute)} }, [2]int{150, 70}, 0},
		"twice": {func(at time.Time) map[int]time.Time {
			return map[int]time.Time{150: at.Add(-90 * time.Minute), 120: at.Add(-60 * time.Minute)}
		}, [2]int{150, 60}, 0},
		"behind": {func(at time.Time) map[int]time.Time {
			return map[int]time.Time{100: at.AddDate(-1, 0, 0), 50: at.AddDate(-40, 0, 0)}
		}, [2]int{0, 0}, 0},
		"ahead and behind": {func(at time.Time) map[int]time.Time {
			return map[int]time.Time{31: at.AddDate(-1, 0, 0), 30: at.Add(50 * time.Minute), 29: at.AddDate(-1, 0, 0)}
		}, [2]int{30, 0}, 50},
	} {
		t.Run(name, func(t *testing.T) {
			x := newTopic(t, brokers, "ahead-"+strings.ReplaceAll(name, " ", "-"), 2, nil)
			now := time.Now()
			odd := tt.odd(now)
			for back := 180; back > 0; back-- {
				if at, ok := odd[back]; ok {
					x.write(0, 1, at)
				}
				for p := range int32(2) {
					for i := range perStep {
						x.write(p, 1, now.Add(-time.Duration(back)*step+time.Duration(i)*step/perStep))
					}
				}
			}
			x.flush()
			a := NewArrivals(ArrivalsOptions{Step: step})
			got, err := Backfill(t.Context(), x.watch, a, BackfillOptions{From: now.Add(-4 * time.Hour), To: now})
			if err != nil {
				t.Fatal(err)
			}
			ends, err := x.watch.Ends(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Observe(now.Add(time.Second), ends); err != nil {
				t.Fatal(err)
			}
			from := now.Add(-175 * step)
			for i, rate := range a.Series(step, from, now) {
				back := 175 - i // the bin begins so many minutes before now
				n := rate * step.Seconds()
				hidden := back <= tt.hidden[0]+1 && back >= tt.hidden[1]-1
				if known := !math.IsNaN(n); known && math.Abs(n-2*perStep) > 3 || !known && !hidden {
					t.Errorf("%d minutes before now %.0f records arrive in a minute, want %d", back, n, 2*perStep)
				}
			}
			said := ""
			for _, a := range got.Ahead {
				said += a.String()
			}
			if (tt.says != 0) != strings.Contains(said, "partition 0 is dated") || tt.says != 0 && !strings.Contains(said, fmt.Sprintf("by %dm0s", tt.says)) && !strings.Contains(said, fmt.Sprintf("by %dm5", tt.says-1)) {
				t.Errorf("it says %q of records ahead", said)
			}
			if tt.hidden[1] > 0 && len(got.Disordered) == 0 {
				t.Error("it does not say that records were dated ahead")
			}
			found, err := x.watch.Ahead(t.Context(), 0, time.Minute)
			if err != nil || (len(found) == 1) != (tt.says != 0) {
				t.Errorf("ahead of the clock are %v, %v", found, err)
			}
			for _, a := range found {
				if want := now.Add(50 * time.Minute).Truncate(time.Millisecond); !a.Latest.Equal(want) {
					t.Errorf("the latest date is %v, want %v", a.Latest, want)
				}
			}
		})
	}
}
