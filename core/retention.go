package core

import (
	"context"
	"fmt"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/traffic"
)

const (
	// keptEvery is how often the brokers are asked how long they keep the topic: somebody may change that.
	keptEvery = time.Minute
	// retentionShare is the share of what is kept that may wait to be trained before it is said that retention comes near. Until then as much time is left again
	// as has passed.
	retentionShare = 0.5
)

// lookKept asks now and then how long the topic is kept. Where the brokers do not say, nothing is foreseen: the chief still tells of a log whose start has moved.
func (s *Scheduler) lookKept(ctx context.Context, n *seen) {
	if n.endsErr != nil || n.at.Sub(s.topicKeptAt) < keptEvery {
		return
	}
	s.topicKeptAt = n.at
	kept, err := s.kafka.Kept(ctx)
	if err != nil {
		s.lg.Debug("how long the topic is kept is not known", "err", err)
		kept = traffic.Kept{Info: traffic.Info{Retention: -1, RetentionBytes: -1}}
	}
	s.topicKept = &kept
}

// retentionNear foresees, by the topic's configuration, that retention will remove what is not trained yet, before it has removed anything. Where the chief
// says so already it does not.
func (s *Scheduler) retentionNear(now time.Time) []string {
	for _, p := range s.seen.chief.GetProblems() {
		switch p.GetKind() {
		case rpc.PartitionProblem_KIND_RETENTION_NEAR, rpc.PartitionProblem_KIND_LOST, rpc.PartitionProblem_KIND_RECREATED:
			return nil
		}
	}
	if s.topicKept == nil || s.want.Stopping {
		return nil
	}
	advice := "; raise it in the topic's configuration, or " + s.trainSooner()
	if l, keeps := s.lag(now), s.topicKept.Retention; keeps > 0 && l.ageKnown && float64(l.age) > retentionShare*float64(keeps) {
		if l.age > keeps {
			return []string{fmt.Sprintf("the oldest record that is not trained is %s old, and the topic is kept for %s (retention.ms): the brokers may remove it at any moment%s",
				coarse(l.age), job.FormatDuration(keeps), advice)}
		}
		return []string{fmt.Sprintf("the oldest record that is not trained is %s old, and the topic is kept for %s (retention.ms): when it is that old, the brokers may remove it%s",
			coarse(l.age), job.FormatDuration(keeps), advice)}
	}
	if p, waits := s.mostBytes(); s.topicKept.RetentionBytes > 0 && waits > retentionShare*float64(s.topicKept.RetentionBytes) {
		return []string{fmt.Sprintf("partition %d: about %s wait to be trained, and each partition is kept up to %s (retention.bytes): beyond that the brokers remove them%s",
			p, job.FormatSize(int64(waits)), job.FormatSize(s.topicKept.RetentionBytes), advice)}
	}
	return nil
}

// trainSooner is what a person can do for a job that is behind.
func (s *Scheduler) trainSooner() string {
	if s.want.Manual.Paused {
		return "let it train: kale resume " + s.job.Name
	}
	return "give the job more workers"
}

// mostBytes is the partition of which most waits to be trained, and about how many bytes that are, by the mean size of its records.
func (s *Scheduler) mostBytes() (partition int32, bytes float64) {
	if s.seen.endsErr != nil || s.seen.behind.nextErr != nil {
		return 0, 0
	}
	for p, next := range s.seen.behind.next {
		offsets := s.topicKept.Offsets[p]
		if offsets <= 0 {
			continue
		}
		if waits := float64(s.seen.ends[p]-next) * float64(s.topicKept.Bytes[p]) / float64(offsets); waits > bytes || waits == bytes && p < partition {
			partition, bytes = p, waits
		}
	}
	return partition, bytes
}

// coarse is a length of time in its largest unit, so that it seldom changes.
func coarse(d time.Duration) string {
	for _, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		if d >= 2*unit {
			return job.Length(d.Truncate(unit))
		}
	}
	return job.Length(d)
}
