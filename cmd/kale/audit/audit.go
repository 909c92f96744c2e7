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
	"github.com/kale-sched/kale/core/stream"
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
}

// Counts is the result of an audit, over the records from the job's pinned start to the end of the log.
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

// Check reads the newest snapshots of all tablets and the log, and compares them.
func Check(ctx context.Context, s Stores) (Counts, error) {
	frozen, job, err := Frozen(s)
	if err != nil {
		return Counts{}, err
	}
	if bad := frozen.Skipped(); len(bad) > 0 {
		return Counts{}, fmt.Errorf("audit job %q: snapshots do not verify: %w", s.Spec.GetJob(), errors.Join(bad...))
	}
	sums, err := stream.LogSum(ctx, s.Kafka, s.Spec.GetStream().GetTopic(), job.Starts, nil)
	if err != nil {
		return Counts{}, fmt.Errorf("audit job %q: %w", s.Spec.GetJob(), err)
	}
	return compare(sums, frozen.Sums(), job.Tablets), nil
}

// Frozen opens the newest snapshots of a job as they stand.
func Frozen(s Stores) (*ps.Frozen, checkpoint.JobState, error) {
	store, err := checkpoint.Open(s.Spec.GetCheckpointDir(), s.Spec.GetJob())
	if err != nil {
		return nil, checkpoint.JobState{}, err
	}
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

// compare holds each tablet's sums against the log's. Where the numbers agree and the hashes do not, one record at least is missing and
// another one doubled.
func compare(log map[int32]stream.PartitionSum, tablets []*rpc.TabletSums, want int) Counts {
	c := Counts{Tablets: len(tablets), Trained: -1}
	for _, p := range log {
		c.Produced += p.N
	}
	if len(tablets) != want {
		c.Mismatch = fmt.Sprintf("%d of %d tablets have a snapshot", len(tablets), want)
		c.Lost = c.Produced
	}
	for _, t := range tablets {
		var trained, dead, lostOffsets, lost, repeated int64
		seen := map[int32]bool{}
		for _, p := range t.GetPartitions() {
			seen[p.GetPartition()] = true
			l := log[p.GetPartition()]
			n, all := int64(p.GetN()), int64(p.GetN()+p.GetDeadN())
			trained, dead, lostOffsets = trained+n, dead+int64(p.GetDeadN()), lostOffsets+int64(p.GetLostOffsets())
			miss, over := max(0, l.N-all), max(0, all-l.N)
			if miss == 0 && over == 0 && p.GetHash()+p.GetDeadHash() != l.Sum {
				miss, over = 1, 1
			}
			lost, repeated = lost+miss, repeated+over
			if miss+over > 0 && c.Mismatch == "" {
				c.Mismatch = fmt.Sprintf("tablet %d, partition %d: %d records with hash sum %016x, the log has %d with %016x", t.GetTablet(), p.GetPartition(), all, p.GetHash()+p.GetDeadHash(), l.N, l.Sum)
			}
		}
		for id, l := range log {
			if !seen[id] && l.N > 0 {
				lost += l.N
				if c.Mismatch == "" {
					c.Mismatch = fmt.Sprintf("tablet %d knows nothing of partition %d, the log has %d records", t.GetTablet(), id, l.N)
				}
			}
		}
		if c.Trained < 0 || trained < c.Trained {
			c.Trained, c.Dead, c.LostOffsets = trained, dead, lostOffsets
		}
		c.Lost, c.Repeated = max(c.Lost, lost), max(c.Repeated, repeated)
	}
	c.Trained = max(c.Trained, 0)
	return c
}
