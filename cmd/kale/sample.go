package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/core/traffic"
)

const (
	// sampleTimeout bounds the reading of samples: of a slow broker's, those that came will do.
	sampleTimeout = 20 * time.Second
	// sampleBytes bounds what is read of them, where records are large.
	sampleBytes = 32 << 20
	// sampleRecords is how many records of a topic a job file is held against.
	sampleRecords = 1000
)

// sampled are the newest records of a topic, as many from each partition.
type sampled struct {
	values [][]byte
	newest time.Time // of their timestamps; zero without records
}

var errEnough = errors.New("enough records were read")

// newestRecords reads up to n of them. A topic that is empty gives none, and no error.
func newestRecords(ctx context.Context, cl *traffic.Client, topic string, opts []kgo.Opt, n int) (sampled, error) {
	var s sampled
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
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
		s.values = append(s.values, r.Value)
		if r.Timestamp.After(s.newest) {
			s.newest = r.Timestamp
		}
		if size += len(r.Value); size > sampleBytes {
			return errEnough
		}
		return nil
	})
	if err != nil && len(s.values) == 0 {
		return s, fmt.Errorf("read records of topic %q: %w", topic, err)
	}
	return s, nil
}
