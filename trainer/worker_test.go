package trainer

import (
	"slices"
	"testing"

	"github.com/kale-sched/kale/core/rpc"
)

// TestTrainsEveryRecordOnce is the thin end-to-end run, for each kind of model.
func TestTrainsEveryRecordOnce(t *testing.T) {
	for _, kind := range []string{KindCounting, "lr", "deepfm"} {
		t.Run(kind, func(t *testing.T) {
			if kind != KindCounting {
				needONNX(t)
			}
			c := broker(t, 3)
			cl := producer(t, c)
			ends := map[int32]int64{0: 1000, 1: 333, 2: 50}
			for p, n := range ends {
				produce(t, cl, p, int(n))
			}
			j := startJob(t, jobSpec(t, c, withModel(kind), func(s *rpc.TrainSpec) { s.Features.Sparse = append(s.Features.Sparse, "nosuch") }))
			w0, w1 := j.worker(0, 1), j.worker(1, 1)
			j.waitApplied(ends)
			j.checkOnce(readLog(t, c, ends), nil)

			// Both leave in order: nothing is outstanding, and nobody reads any more.
			for _, w := range []*process{w0, w1} {
				if err := w.stop(); err != nil {
					t.Errorf("drain: %v", err)
				}
			}
			s := j.waitFor("both drained", func(s *rpc.JobStatus) bool {
				n := 0
				for _, m := range s.GetMembers() {
					if m.GetState() == rpc.MemberState_MEMBER_STATE_DRAINED {
						n++
					}
				}
				return n == 2
			})
			if kind == KindCounting {
				return // it decodes nothing
			}
			n := s.GetTotals().GetDecodedRecords() // no fewer than there are; some may have been decoded twice
			if got := s.GetTotals().GetAbsent(); n < 1383 || !slices.Equal(got, []uint64{0, 0, n, 0}) {
				t.Errorf("of %d decoded records %v lack user, item, nosuch and price; want all to lack nosuch", n, got)
			}
		})
	}
}
