package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/core/traffic"
)

const (
	// SampleTimeout bounds the reading of samples: of a slow broker's, those that came will do.
	SampleTimeout = 20 * time.Second
	// sampleBytes bounds what is read of them, where records are large.
	sampleBytes = 32 << 20
	// sampleRecords is how many records of a topic a job file is held against.
	sampleRecords = 1000
)

// Sampled are the newest records of a topic, as many from each partition.
type Sampled struct {
	Values [][]byte
	Newest time.Time // of their timestamps; zero without records
}

var errEnough = errors.New("enough records were read")

// NewestRecords reads up to n of a topic's newest records. A topic that is empty gives none, and no error.
func NewestRecords(ctx context.Context, cl *traffic.Client, topic string, opts []kgo.Opt, n int) (Sampled, error) {
	var s Sampled
	ctx, cancel := context.WithTimeout(ctx, SampleTimeout)
	defer cancel()
	starts, err := cl.Starts(ctx)
	if err != nil {
		return s, fmt.Errorf("find the records of topic %q: %w", topic, err)
	}
	ends, err := cl.Ends(ctx)
	if err != nil {
		return s, fmt.Errorf("find the records of topic %q: %w", topic, err)
	}
	each := int64(max(1, n/max(1, len(ends))))
	from, there := map[int32]int64{}, int64(0)
	for p, end := range ends {
		from[p] = max(starts[p], end-each)
		there += end - from[p]
	}
	if there == 0 {
		return s, nil
	}
	size := 0
	err = stream.Scan(ctx, opts, topic, from, ends, func(r *kgo.Record) error {
		s.Values = append(s.Values, r.Value)
		if r.Timestamp.After(s.Newest) {
			s.Newest = r.Timestamp
		}
		if size += len(r.Value); size > sampleBytes {
			return errEnough
		}
		return nil
	})
	if err != nil && len(s.Values) == 0 {
		return s, fmt.Errorf("read records of topic %q: %w", topic, err)
	}
	return s, nil
}

// CheckRecords holds the job's features against the newest records of its topic.
func CheckRecords(ctx context.Context, j *job.Job) (Sampled, hcl.Diagnostics, error) {
	if j.Model.Kind == job.ModelCounting {
		return Sampled{}, nil, nil
	}
	opts, err := core.KafkaOpts(j)
	if err != nil {
		return Sampled{}, nil, err
	}
	cl, err := traffic.NewClient(traffic.ClientOptions{Brokers: j.Stream.Brokers, Topic: j.Stream.Topic, Opts: opts})
	if err != nil {
		return Sampled{}, nil, err
	}
	defer cl.Close()
	found, err := NewestRecords(ctx, cl, j.Stream.Topic, append(opts, kgo.SeedBrokers(j.Stream.Brokers...)), sampleRecords)
	switch {
	case ctx.Err() != nil:
		return Sampled{}, nil, fmt.Errorf("read records of topic %q: interrupted", j.Stream.Topic)
	case err != nil:
		return found, hcl.Diagnostics{j.WarningAt("features", "The features could not be checked", fmt.Sprintf("%v. May this user read the topic?", err))}, nil
	}
	return found, j.RecordDiagnostics(found.Values), nil
}
