package core

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/traffic"
)

const (
	// keptEvery is how often the brokers are asked how they keep the topic, and for how long: somebody may change that.
	keptEvery = 30 * time.Second
	// retentionShare is the share of what is kept that may wait to be trained before it is said that retention comes near. Until then as much time is left again
	// as has passed.
	retentionShare = 0.5
	// retentionCalm is the part of that share below which it is said no longer: what is just at it does not come and go.
	retentionCalm = 0.8
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
		kept = traffic.Kept{Info: traffic.Info{CleanupPolicy: kept.CleanupPolicy, Retention: -1, RetentionBytes: -1}}
	}
	s.topicKept = &kept
}

// retentionNear foresees, by the topic's configuration, that retention will remove what is not trained yet, before it has removed anything; "": it will not. What has
// been removed the chief says, and what was given up, losing.
func (s *Scheduler) retentionNear(now time.Time) string {
	removed := func(p *rpc.PartitionProblem) bool {
		switch p.GetKind() {
		case rpc.PartitionProblem_KIND_LOST, rpc.PartitionProblem_KIND_RECREATED, rpc.PartitionProblem_KIND_TRUNCATED:
			return true
		case rpc.PartitionProblem_KIND_RETENTION_NEAR:
			return p.GetLogStart() > p.GetNeeded()
		}
		return false
	}
	loses := func(l Loss) bool { return l.Kind == LossRetention && l.Open }
	if s.topicKept == nil || s.want.Stopping || slices.ContainsFunc(s.seen.chief.GetProblems(), removed) || slices.ContainsFunc(s.losses, loses) {
		s.near = ""
		return ""
	}
	share := retentionShare
	if s.near != "" {
		share *= retentionCalm
	}
	l, keeps := s.lagAt(now, nil), s.topicKept.Retention
	p, waits := s.mostBytes()
	most := s.topicKept.RetentionBytes
	switch {
	case keeps > 0 && l.ageKnown && float64(l.age) > share*float64(keeps):
		s.near = fmt.Sprintf("the oldest record that is not trained is %s old, and brokers may remove what is older than %s (retention.ms); %s",
			coarse(l.age), job.FormatDuration(keeps), s.trainSooner("raise that in the topic's configuration"))
	case most > 0 && waits > share*float64(most):
		s.near = fmt.Sprintf("partition %d: about %s wait to be trained, and brokers may remove what is beyond %s of a partition (retention.bytes); %s",
			p, job.FormatSize(int64(waits)), job.FormatSize(most), s.trainSooner("raise that in the topic's configuration"))
	case keeps < 0 || l.ageKnown: // what is not known now is as it was
		s.near = ""
	}
	return s.near
}

// trainSooner is what a person can do for a job that is behind, beside keeping the topic for longer.
func (s *Scheduler) trainSooner(keep string) string {
	if s.want.Manual.Paused {
		return fmt.Sprintf("kale resume %s goes on training; or %s", s.job.Name, keep)
	}
	return keep + ", or give the job more workers"
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
