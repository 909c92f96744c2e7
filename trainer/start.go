package trainer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/model"
	"github.com/kale-sched/kale/trainer/ps"
)

// KindCounting is the model kind of the exactly-once tests (EXACTLY_ONCE rule 20).
const KindCounting = "counting"

// resolveStarts turns the job's start ("latest", "earliest", "-10m" or a time) into an offset for each partition of the topic.
func resolveStarts(ctx context.Context, adm *kadm.Client, s *rpc.StreamSpec, now time.Time) (topicID string, starts map[int32]int64, err error) {
	topics, err := adm.ListTopics(ctx, s.GetTopic())
	if err != nil {
		return "", nil, fmt.Errorf("look up topic %q at %v: %w", s.GetTopic(), s.GetBrokers(), err)
	}
	t := topics[s.GetTopic()]
	if t.Err != nil {
		return "", nil, fmt.Errorf("topic %q at %v: %w", s.GetTopic(), s.GetBrokers(), t.Err)
	}
	listed, err := listStarts(ctx, adm, s, now)
	if err != nil {
		return "", nil, fmt.Errorf("find the start %q of topic %q: %w", s.GetStart(), s.GetTopic(), err)
	}
	starts = map[int32]int64{}
	for id := range t.Partitions {
		l, ok := listed.Lookup(s.GetTopic(), id)
		if !ok {
			return "", nil, fmt.Errorf("find the start of topic %q: the broker gave no offset for partition %d", s.GetTopic(), id)
		}
		if l.Err != nil {
			return "", nil, fmt.Errorf("find the start of topic %q, partition %d: %w", s.GetTopic(), id, l.Err)
		}
		starts[id] = l.Offset
	}
	return t.ID.String(), starts, nil
}

func listStarts(ctx context.Context, adm *kadm.Client, s *rpc.StreamSpec, now time.Time) (kadm.ListedOffsets, error) {
	switch start := s.GetStart(); {
	case start == "" || start == "latest":
		return adm.ListCommittedOffsets(ctx, s.GetTopic())
	case start == "earliest":
		return adm.ListStartOffsets(ctx, s.GetTopic())
	case strings.HasPrefix(start, "-"):
		d, err := time.ParseDuration(start[1:])
		if err != nil {
			return nil, fmt.Errorf("%q is neither latest, earliest, a duration such as -10m, nor an RFC 3339 time", start)
		}
		return adm.ListOffsetsAfterMilli(ctx, now.Add(-d).UnixMilli(), s.GetTopic())
	default:
		at, err := time.Parse(time.RFC3339, start)
		if err != nil {
			return nil, fmt.Errorf("%q is neither latest, earliest, a duration such as -10m, nor an RFC 3339 time", start)
		}
		return adm.ListOffsetsAfterMilli(ctx, at.UnixMilli(), s.GetTopic())
	}
}

// modelSpec is the model of a job as package model knows it. Counting jobs have none.
func modelSpec(spec *rpc.TrainSpec) (model.Spec, error) {
	m, f := spec.GetModel(), spec.GetFeatures()
	s := model.Spec{
		Kind: m.GetKind(), SparseFields: len(f.GetSparse()), DenseFields: len(f.GetDense()), EmbeddingDim: int(m.GetEmbeddingDim()),
		Batch: int(m.GetBatch()), Seed: m.GetSeed(), L2: m.GetL2(),
	}
	for _, h := range m.GetHidden() {
		s.Hidden = append(s.Hidden, int(h))
	}
	if err := s.Validate(); err != nil {
		return model.Spec{}, err
	}
	return s, nil
}

// StateLayout is how a job's state is cut into tablets, for those who read its checkpoint.
func StateLayout(spec *rpc.TrainSpec) (ps.Layout, error) {
	layout, _, _, _, err := stateShape(spec)
	return layout, err
}

// ModelSpec is the model of a job as package model knows it; counting jobs have none.
func ModelSpec(spec *rpc.TrainSpec) (model.Spec, error) { return modelSpec(spec) }

// stateShape gives the shape of a job's parameters, alike for servers and workers: tablets, floats per embedding row, initial values.
func stateShape(spec *rpc.TrainSpec) (layout ps.Layout, rowWidth int, initRow func(uint64, []float32), initDense func() []float32, err error) {
	if spec.GetTablets() <= 0 || spec.GetServers() <= 0 {
		return layout, 0, nil, nil, errors.New("the job's specification has no tablets or no servers")
	}
	dense := 0
	if spec.GetModel().GetKind() == KindCounting { // it has counters, and neither rows nor a dense vector
		initRow, initDense = func(uint64, []float32) {}, func() []float32 { return nil }
	} else {
		m, err := modelSpec(spec)
		if err != nil {
			return layout, 0, nil, nil, err
		}
		dense, rowWidth, initRow, initDense = m.DenseSize(), m.RowWidth(), m.InitRow, m.InitDense
	}
	layout, err = ps.NewLayout(int(spec.GetTablets()), int(spec.GetServers()), dense)
	return layout, rowWidth, initRow, initDense, err
}

// pause waits for d, or returns ctx's error when it ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
