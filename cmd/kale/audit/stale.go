package audit

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/trainer"
	"github.com/kale-sched/kale/trainer/model"
	"github.com/kale-sched/kale/trainer/ps"
)

// evalBatch is how many records are scored at once.
const evalBatch = 1024

// Score counts the predictions of a frozen model, by label, over the records of a log: what AUC that model would have had if it had served and not learnt.
func Score(ctx context.Context, s Stores, frozen *ps.Frozen, from, to map[int32]int64) (*rpc.Validation, error) {
	m, err := trainer.ModelSpec(s.Spec)
	if err != nil {
		return nil, fmt.Errorf("score a frozen model: %w", err)
	}
	m.Batch = evalBatch
	rt, err := onnx.Open(onnx.Options{})
	if err != nil {
		return nil, fmt.Errorf("score a frozen model: %w", err)
	}
	p, err := model.NewPredictor(rt, m, 1)
	if err != nil {
		return nil, fmt.Errorf("score a frozen model: %w", err)
	}
	defer func() { _ = p.Close() }() // it was only run
	dec, err := trainer.NewDecoder(s.Spec.GetFeatures())
	if err != nil {
		return nil, fmt.Errorf("score a frozen model: %w", err)
	}
	if err := frozen.Dense(p.Params); err != nil {
		return nil, fmt.Errorf("score a frozen model: %w", err)
	}
	sc := &scorer{p: p, m: m, frozen: frozen, out: &rpc.Validation{Positive: make([]uint64, scoreBins), Negative: make([]uint64, scoreBins)}}
	err = stream.Scan(ctx, s.Kafka, s.Spec.GetStream().GetTopic(), from, to, func(r *kgo.Record) error {
		var ex trainer.Example
		if err := dec.Decode(r.Value, &ex); err != nil {
			return nil // it is in the dead-letter topic, and no model saw it
		}
		return sc.add(&ex)
	})
	if err == nil {
		err = sc.flush()
	}
	if err != nil {
		return nil, fmt.Errorf("score a frozen model: %w", err)
	}
	return sc.out, nil
}

const scoreBins = 1000

type scorer struct {
	p      *model.Predictor
	m      model.Spec
	frozen *ps.Frozen
	labels []float32
	out    *rpc.Validation
}

func (s *scorer) add(ex *trainer.Example) error {
	i, w := len(s.labels), s.m.RowWidth()
	for f, id := range ex.Sparse {
		row := s.p.Emb[(i*s.m.SparseFields+f)*w : (i*s.m.SparseFields+f+1)*w]
		if v, ok := s.frozen.Row(id); ok {
			copy(row, v)
		} else {
			s.m.InitRow(id, row)
		}
	}
	copy(s.p.Dense[i*s.m.DenseFields:(i+1)*s.m.DenseFields], ex.Dense)
	s.labels = append(s.labels, ex.Label)
	if len(s.labels) == evalBatch {
		return s.flush()
	}
	return nil
}

func (s *scorer) flush() error {
	if len(s.labels) == 0 {
		return nil
	}
	if err := s.p.Run(); err != nil {
		return err
	}
	for i, y := range s.labels {
		bin := min(scoreBins-1, max(0, int(s.p.Pred[i]*scoreBins)))
		if y > 0.5 {
			s.out.Positive[bin]++
		} else {
			s.out.Negative[bin]++
		}
	}
	s.labels = s.labels[:0]
	return nil
}
