package trainer

import (
	"context"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/ps"
)

// tabletClient is parameters over the job's parameter servers.
type tabletClient struct {
	member string
	width  int
	dense  int
	ps     *ps.Client
}

func (t *tabletClient) Pull(ctx context.Context, ids []uint64) (rows, dense []float32, err error) {
	rows, dense = make([]float32, len(ids)*t.width), make([]float32, t.dense)
	if err := t.ps.Pull(ctx, ids, rows, dense); err != nil {
		return nil, nil, err
	}
	return rows, dense, nil
}

func (t *tabletClient) Push(ctx context.Context, p *pushRequest) ([]*rpc.Missing, error) {
	b := &ps.Batch{Member: t.member, Parts: p.parts, Share: p.share, CountIDs: p.countIDs, Tablets: p.tablets}
	if p.g != nil {
		b.IDs, b.Grads, b.Dense = p.g.ids, p.g.rows, p.g.dense
	}
	return t.ps.Push(ctx, b)
}
