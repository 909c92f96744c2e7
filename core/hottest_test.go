package core

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/traffic"
)

// The policy is told which partition is furthest behind, how fast it grew and was trained, and what helps; not of one that stands still, nor where it is not known.
func TestHottestPartition(t *testing.T) {
	s := &Scheduler{
		job: parseJob(t, fmt.Sprintf(rigJob, "localhost:9092", rigTopic, job.ModeLive, t.TempDir())), arrivals: traffic.NewArrivals(traffic.ArrivalsOptions{}),
		progress: progressOf([3]int64{1, 0, 0}, [3]int64{2, 0, 0}, [3]int64{2, 6000, 600}, [3]int64{1, 6000, 10}, [3]int64{2, 10_000, 1000}),
	}
	for ms := int64(0); ms <= 10_000; ms += 1000 {
		if err := s.arrivals.Observe(msAt(ms), map[int32]int64{0: 0, 1: ms / 100, 2: ms / 2}); err != nil {
			t.Fatal(err)
		}
	}
	s.seen = &seen{at: msAt(10_000), chief: &rpc.JobStatus{}, behind: behind{next: map[int32]int64{0: 0, 1: 10, 2: 1000}}}
	want := plan.Hottest{Known: true, Partition: 1, Arriving: 10, Trained: 0, Waiting: 90, Window: 4 * time.Second,
		Advice: fmt.Sprintf("one worker reads it all and hands on what it cannot train: spread its keys over more partitions, or raise workers.queue (%d)", s.job.Workers.Queue)}
	if diff := cmp.Diff(want, s.hottest(msAt(10_000), nil)); diff != "" {
		t.Error(diff)
	}
	want.Partition, want.Arriving, want.Trained, want.Waiting = 2, 500, 100, 4000
	if diff := cmp.Diff(want, s.hottest(msAt(10_000), map[int32]bool{1: true})); diff != "" {
		t.Error("beside one that stands still:", diff)
	}
	s.job.Workers.Forward = job.ForwardNone
	if h := s.hottest(msAt(10_000), nil); !strings.Contains(h.Advice, `set "advanced"`) {
		t.Errorf("without forwarding: %s", h.Advice)
	}
	s.seen.chiefErr = errors.New("away")
	if h := s.hottest(msAt(10_000), nil); h.Known {
		t.Errorf("while the chief is away: %+v", h)
	}
}
