// Package audit holds a job's trained state against the broker's log, from the stores alone: no process of the job is asked.
//
// In: the topic and the checkpoint folder. Out: how many records were trained, lost and repeated, from every tablet's own count and
// sum of hashes (EXACTLY_ONCE rule 19), never from sets of ranges, which cannot show a double; how old records were when they were
// trained; and how good a model frozen at some moment would have been.
package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer"
	"github.com/kale-sched/kale/trainer/checkpoint"
	"github.com/kale-sched/kale/trainer/ps"
)

// Stores say where a job's log and state are.
type Stores struct {
	// Kafka reaches the brokers: seeds, TLS, SASL.
	Kafka []kgo.Opt
	// Spec is the job as its trainers know it: topic, checkpoint folder, shape of the model.
	Spec *rpc.TrainSpec
	// Compacted: the log may lack records in its middle, which compaction removed.
	Compacted bool
}

// Counts is the result of a check, over the records from the job's pinned start to the end of the log.
type Counts struct {
	Produced    int64  `json:"produced"`
	Trained     int64  `json:"trained"`  // least over all tablets
	Lost        int64  `json:"lost"`     // most over all tablets
	Repeated    int64  `json:"repeated"` // most over all tablets
	Dead        int64  `json:"dead"`     // went to the dead-letter topic; part of Trained's complement, not of Lost
	LostOffsets int64  `json:"lost_offsets"`
	Tablets     int    `json:"tablets"`
	Mismatch    string `json:"mismatch,omitempty"` // the first tablet that does not agree with the log
}

// Exact says that every tablet has exactly the log's records.
func (c Counts) Exact() bool { return c.Lost == 0 && c.Repeated == 0 && c.Mismatch == "" }

// Check reads the newest snapshots of all tablets and the log, and compares them: all of the log is to be trained.
func Check(ctx context.Context, s Stores) (Counts, error) {
	c, err := compared(ctx, s, nil)
	if err == nil && len(c.ledgers.Skipped) > 0 {
		err = fmt.Errorf("snapshots do not verify: %w", errors.Join(c.ledgers.Skipped...))
	}
	if err != nil {
		return Counts{}, fmt.Errorf("audit job %q: %w", s.Spec.GetJob(), err)
	}
	return c.counts(), nil
}

// Frozen opens the newest snapshots of a job as they stand.
func Frozen(s Stores) (*ps.Frozen, checkpoint.JobState, error) {
	store := checkpoint.Attach(s.Spec.GetCheckpointDir(), s.Spec.GetJob())
	job, err := store.LoadJob()
	if err != nil {
		return nil, checkpoint.JobState{}, err
	}
	layout, err := trainer.StateLayout(s.Spec)
	if err != nil {
		return nil, checkpoint.JobState{}, err
	}
	frozen, err := ps.ReadCheckpoint(store, layout)
	if err != nil {
		return nil, checkpoint.JobState{}, err
	}
	return frozen, job, nil
}
