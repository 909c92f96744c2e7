package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
)

// behind is what a look found about where training stands.
type behind struct {
	next    map[int32]int64 // the first offset of each partition that is not trained; nil: not known
	nextErr error
	// stamps are when records entered that the history of arrivals does not tell of, by partition, and stampsErr why some are missing.
	stamps    map[int32]time.Time
	stampsErr error
}

// lag is how far training is behind: in records, and in the age of the oldest that is not trained.
type lag struct {
	records      int64 // at least so many where it is not known
	recordsKnown bool
	age          time.Duration // likewise
	ageKnown     bool
	why          string // what is not known is not
}

// lookBehind finds where training stands, and asks the brokers when the oldest untrained records entered of which the history of arrivals does not tell.
func (s *Scheduler) lookBehind(ctx context.Context, n *seen) {
	if n.endsErr != nil {
		return // nothing can be told without them
	}
	b := &n.behind
	switch {
	case n.chiefErr == nil && len(n.chief.GetPartitions()) > 0 && trainedRecords(n.chief) != nil:
		b.next = n.applied()
		s.trainedUpTo = b.next
	// It has not heard from every server since it started, and knows of nothing that is trained.
	case n.chiefErr == nil && len(n.chief.GetPartitions()) > 0 && s.want.Trained && s.trainedUpTo != nil:
		b.next = s.trainedUpTo
	case n.chiefErr == nil && len(n.chief.GetPartitions()) > 0:
		b.next, b.nextErr = s.begin(ctx, n)
	case n.chiefErr == nil:
		b.nextErr = errors.New("the chief has not seen the topic yet")
	case (s.gone || !s.want.Trained && !s.want.Stopped) && silent(n.chiefErr):
		b.next, b.nextErr = s.begin(ctx, n)
	default:
		b.nextErr = fmt.Errorf("what is trained is unknown: %w", n.chiefErr)
	}
	_, known := s.arrivals.Ends()
	ask := map[int32]int64{}
	for p, next := range b.next {
		if _, ok := s.arrivals.EnteredAt(p, next); ok || next >= n.ends[p] {
			continue
		}
		if was, ok := known[p]; ok && next >= was && s.arrivals.Fresh(n.at) {
			continue // it entered since the last look, which was not long ago
		}
		ask[p] = next
	}
	b.stamps, b.stampsErr = s.kafka.Stamps(ctx, ask)
}

// begin is where a job goes on whose chief does not know it yet: from its snapshots, else from where it was told to start. That may move with the topic, so
// it is asked once. Where nothing of the job runs that is only observed, nothing waits for training.
func (s *Scheduler) begin(ctx context.Context, n *seen) (map[int32]int64, error) {
	if s.beginning != nil {
		return s.beginning, nil
	}
	next, err := restorePoint(ctx, s.job, s.kafka)
	if err == nil && next == nil && s.store != nil && s.onlooks(n) {
		return nil, errors.New("nothing of the job runs, and mode observe starts nothing")
	}
	if err == nil && next == nil {
		next, err = s.start(ctx, time.Now())
	}
	if err != nil {
		return nil, fmt.Errorf("where training begins is unknown: %w", err)
	}
	s.beginning = next
	return next, nil
}

// start is where the job file says that a job without a checkpoint begins.
func (s *Scheduler) start(ctx context.Context, now time.Time) (map[int32]int64, error) {
	start := s.job.Stream.Start
	if at, ok := start.At(now); ok {
		return s.kafka.At(ctx, at)
	}
	if start.Kind == job.StartEarliest {
		return s.kafka.Starts(ctx)
	}
	return s.kafka.Ends(ctx)
}

// aheadLimit is how far records may be dated ahead of this machine's clock: clocks differ.
const aheadLimit = 5 * time.Second

// ahead is how far a record is dated in the future, 0 where that may be no more than a difference between clocks.
func ahead(stamp, now time.Time) time.Duration {
	if d := stamp.Sub(now); d > aheadLimit {
		return d
	}
	return 0
}

// undated says that a record has no date: none (−1), 0, or seconds that were taken for milliseconds, which all are of the 1970s.
func undated(stamp time.Time) bool { return stamp.UTC().Year() < 1980 }

// misdated says what it means that records which wait are dated in the future, or not at all; "" where none is known to be.
func (n *seen) misdated() string {
	var most time.Duration
	var none time.Time
	for _, stamp := range n.behind.stamps {
		if most = max(most, ahead(stamp, n.at)); undated(stamp) {
			none = stamp
		}
	}
	switch {
	case most > 0:
		return fmt.Sprintf("records that wait are dated up to %s ahead of this machine's clock: how long they wait is not known. Set the clock right of who writes them, or the topic's "+
			"message.timestamp.type to LogAppendTime", job.Length(most))
	case !none.IsZero():
		return fmt.Sprintf("records that wait have no usable timestamp (%s): how long they wait is not known. Have their producer set it, in milliseconds, or set the topic's "+
			"message.timestamp.type to LogAppendTime", none.UTC().Format(time.RFC3339))
	}
	return ""
}

// logStart is where the log of a partition began, of which retention has removed untrained offsets, when the chief was told so; 0: it was told of none.
func (n *seen) logStart(partition int32) (start int64) {
	for _, p := range n.chief.GetProblems() {
		if p.GetPartition() == partition && p.GetKind() == rpc.PartitionProblem_KIND_LOST {
			start = max(start, p.GetLogStart())
		}
	}
	return start
}

// lag is how far training was behind when Kafka and the chief had answered, at the look that is over now.
func (s *Scheduler) lag(now time.Time) lag { return s.lagAt(now.Add(-s.seen.since), nil) }

// lagAt is how far training was behind at a moment of the look, but for some partitions.
func (s *Scheduler) lagAt(now time.Time, but map[int32]bool) lag {
	n := s.seen
	switch {
	case n.endsErr != nil: // without the ends of now, all that was seen before may be trained and it would look like no lag
		return lag{why: n.noEnds()}
	case n.behind.nextErr != nil:
		return lag{why: n.behind.nextErr.Error()}
	case recreated(n.chief.GetProblems()): // its offsets say nothing of what is trained
		return lag{why: recreatedWords(n.chief.GetProblems())}
	case len(n.behind.next) == 0:
		return lag{why: "nobody has looked yet"}
	}
	if !s.arrivals.Fresh(now) {
		return lag{why: "nobody has looked at the brokers lately"}
	}
	parts, _ := s.arrivals.Lags(now, n.behind.next)
	l := lag{recordsKnown: len(parts) > 0, ageKnown: len(parts) > 0}
	for _, p := range parts {
		if but[p.Partition] {
			continue
		}
		stamp, stamped := n.behind.stamps[p.Partition]
		age := p.Age
		switch _, ok := n.behind.next[p.Partition]; {
		case !ok:
			l.recordsKnown, l.ageKnown, l.why = false, false, fmt.Sprintf("the chief does not know partition %d yet", p.Partition)
		case p.Known:
		case stamped && undated(stamp):
			l.ageKnown, l.why = false, fmt.Sprintf("the next record of partition %d has no usable timestamp (%s)", p.Partition, stamp.UTC().Format(time.RFC3339))
		case stamped && ahead(stamp, now) == 0:
			age = max(0, now.Sub(stamp))
		case stamped:
			l.ageKnown, l.why = false, fmt.Sprintf("the next record of partition %d is dated %s ahead of this machine's clock", p.Partition, job.Length(ahead(stamp, now)))
		default:
			l.ageKnown = false
			if l.why == "" {
				l.why = fmt.Sprintf("when the next record of partition %d entered has still to be asked of the brokers", p.Partition)
			}
		}
		waits := max(0, p.Records-max(0, n.logStart(p.Partition)-n.behind.next[p.Partition])) // without what retention has removed of it
		l.records, l.age = l.records+waits, max(l.age, age)
	}
	if !l.ageKnown && n.behind.stampsErr != nil {
		l.why = n.behind.stampsErr.Error()
	}
	return l
}
