package main

import (
	"slices"
	"testing"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/plan"
)

// kale explain shows as many decisions as -n says, the newest among them.
func TestPickCountsTheNewest(t *testing.T) {
	at := time.Date(2026, 1, 31, 6, 0, 0, 0, time.UTC)
	changes := []int{0, 3, 5} // of decisions 0 to 7, by minutes
	read := func(last int) reader {
		return func(n int, onlyChanges bool) ([]core.Record, error) {
			var out []core.Record
			for i := range last + 1 {
				if !onlyChanges || slices.Contains(changes, i) {
					out = append(out, core.Record{Decision: plan.Decision{At: at.Add(time.Duration(i) * time.Minute)}})
				}
			}
			return out[max(0, len(out)-n):], nil
		}
	}
	for _, c := range []struct {
		last int
		f    explainFlags
		want []int
	}{
		{7, explainFlags{n: 1}, []int{7}},
		{7, explainFlags{n: 2}, []int{5, 7}},
		{7, explainFlags{n: 5}, []int{0, 3, 5, 7}},
		{5, explainFlags{n: 2}, []int{3, 5}}, // the newest is a change
		{7, explainFlags{n: 2, all: true}, []int{6, 7}},
	} {
		records, err := pick(c.f, read(c.last))
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, r := range records {
			got = append(got, int(r.Decision.At.Sub(at).Minutes()))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v of 0 to %d: %v, want %v", c.f, c.last, got, c.want)
		}
	}
}
