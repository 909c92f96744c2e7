package core

import (
	"slices"
	"strings"
	"testing"

	"github.com/kale-sched/kale/core/rpc"
)

// A field that nearly all records lack is a problem that status shows, for as long as it lasts; one that some lack is none.
func TestAbsentFieldsAreAProblem(t *testing.T) {
	r := newRig(t, rigOptions{change: func(text string) string {
		return strings.Replace(text, `sparse = ["user"]`, "sparse = [\"user\", \"usr\"]\n dense = [\"price\"]", 1)
	}})
	r.started(2)
	decoded := func(n uint64, absent ...uint64) {
		t.Helper()
		r.chief.with(func(s *rpc.JobStatus) { s.Totals = &rpc.WorkerMetrics{DecodedRecords: n, Absent: absent} })
		r.beat()
	}
	says := func(what string, fields ...string) {
		t.Helper()
		var got []string
		for _, p := range r.s.View().Problems {
			if name, found := strings.CutPrefix(p, "the field "); found {
				got = append(got, strings.SplitN(name, `"`, 3)[1])
			}
		}
		if !slices.Equal(got, fields) {
			t.Errorf("%s: %q is lacking, want %q", what, got, fields)
		}
	}
	decoded(900, 0, 900, 0)
	says("too few records to tell")
	decoded(2000, 1000, 2000, 0)
	says("all lack usr, half lack user", "usr")
	decoded(2500, 1000, 2500, 500)
	says("until the next window is whole", "usr")
	decoded(5000, 1000, 2500, 2995)
	says("usr came, price has gone", "price")
	decoded(10, 10, 10, 10)
	says("a new chief counts from zero", "price")
	decoded(2010, 10, 10, 10)
	says("all are there")
}
