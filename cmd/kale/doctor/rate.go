package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
)

const (
	// rateOver is how far back arrivals are looked at; less than rateLeast tells nothing of a rate that lasts.
	rateOver, rateLeast = time.Hour, time.Minute
	// rateTimeout bounds the question.
	rateTimeout = 10 * time.Second
)

// CheckThroughput holds what the job's workers can train against what has arrived in its topic lately. Brokers that do not say forbid nothing.
func CheckThroughput(ctx context.Context, j *job.Job, now time.Time) (hcl.Diagnostics, error) {
	opts, err := core.KafkaOpts(j)
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(j.Stream.Brokers...)}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("ask the brokers how much arrives in topic %q: %w", j.Stream.Topic, err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, rateTimeout)
	defer cancel()
	rate, over, ok := arrivals(ctx, kadm.NewClient(cl), j.Stream.Topic, now)
	if !ok {
		return nil, nil
	}
	return core.CheckThroughput(j, rate, over), nil
}

// arrivals is the mean rate of the last hour, records/s, or of the time since the topic's first record that is kept where that is shorter.
func arrivals(ctx context.Context, adm *kadm.Client, topic string, now time.Time) (perSecond float64, over time.Duration, ok bool) {
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err != nil || ends.Error() != nil {
		return 0, 0, false
	}
	then, err := adm.ListOffsetsAfterMilli(ctx, now.Add(-rateOver).UnixMilli(), topic)
	if err != nil || then.Error() != nil {
		return 0, 0, false
	}
	records, first := int64(0), now.UnixMilli()
	then.Each(func(l kadm.ListedOffset) {
		if end, found := ends.Lookup(topic, l.Partition); found {
			records += max(0, end.Offset-l.Offset)
			if l.Timestamp > 0 {
				first = min(first, l.Timestamp)
			}
		}
	})
	over = now.Sub(time.UnixMilli(first))
	if records == 0 || over < rateLeast {
		return 0, 0, false
	}
	return float64(records) / over.Seconds(), over.Round(time.Minute), true
}
