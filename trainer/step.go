package trainer

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/model"
)

// engine runs the model's graph over a batch. Safe for concurrent use: one computation at a time.
type engine struct {
	mu    sync.Mutex
	spec  model.Spec
	step  *model.Step
	width int // floats per row
}

// newEngine builds the graph and runs it once, so that the first real step is as fast as the others.
func newEngine(lg *slog.Logger, t *rpc.TrainSpec) (*engine, error) {
	spec, err := modelSpec(t)
	if err != nil {
		return nil, err
	}
	rt, err := onnx.Open(onnx.Options{})
	if err != nil {
		return nil, fmt.Errorf("load ONNX Runtime: %w", err)
	}
	device := onnx.CPU
	if t.GetWorker().GetDevice() == "cuda" {
		device = onnx.CUDA
	}
	began := time.Now()
	step, err := model.NewStepOn(rt, spec, max(1, int(t.GetWorker().GetThreads())), device)
	if err != nil {
		return nil, err
	}
	if err := step.Run(); err != nil {
		_ = step.Close() // the failure to run is what matters
		return nil, fmt.Errorf("run the model's graph for the first time: %w", err)
	}
	lg.Info("graph is ready", "model", spec.Kind, "rows", spec.RowWidth(), "dense_parameters", spec.DenseSize(), "device", device, "took", time.Since(began).Round(time.Millisecond))
	return &engine{spec: spec, step: step, width: spec.RowWidth()}, nil
}

func (e *engine) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = e.step.Close() // nothing is left to lose
}

// gradients are what one computation adds to a push.
type gradients struct {
	ids   []uint64
	rows  []float32 // [len(ids),W], summed over the records
	dense []float32 // [P]
	share float32   // records with weight / nominal batch
	pred  []float32 // [n] predictions before the update, of all records
}

// compute runs forward and backward over the batch with the weights that it has pulled. only names the records that count, by index; nil
// means all. The rest have weight 0 and add exactly nothing (rule 7).
func (e *engine) compute(b *batch, only []int) (*gradients, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, n := e.step, b.records()
	if n > e.spec.Batch {
		return nil, fmt.Errorf("a batch of %d records is larger than the model's %d", n, e.spec.Batch)
	}
	copy(s.Params, b.params)
	copy(s.Label, b.label)
	copy(s.Dense, b.dense)
	weight := 1 / float32(e.spec.Batch)
	clear(s.Weight)
	// What padding has from an earlier batch may be beyond what these weights bear, and 0·∞ spreads.
	clear(s.Dense[min(len(b.dense), len(s.Dense)):])
	clear(s.Emb[min(len(b.slots)*e.width, len(s.Emb)):])
	counted := n
	if only == nil {
		for i := range n {
			s.Weight[i] = weight
		}
	} else {
		counted = len(only)
		for _, i := range only {
			s.Weight[i] = weight
		}
	}
	e.gather(b)
	if err := s.Run(); err != nil {
		return nil, fmt.Errorf("run the model's graph over %d records: %w", n, err)
	}
	g := &gradients{ids: b.ids, share: float32(counted) * weight, rows: make([]float32, len(b.ids)*e.width)}
	g.dense = append(g.dense, s.GradParams...)
	g.pred = append(g.pred, s.Pred[:n]...)
	for k, slot := range b.slots {
		row := g.rows[int(slot)*e.width:][:e.width]
		for j, v := range s.GradEmb[k*e.width:][:e.width] {
			row[j] += v
		}
	}
	if only != nil {
		g.keep(b, only, e.width)
	}
	return g, nil
}

// keep drops the rows of records that are not in only: under an optimiser with momentum even a gradient of zero would move them.
func (g *gradients) keep(b *batch, only []int, width int) {
	fields := len(b.slots) / max(b.records(), 1)
	used := make([]bool, len(g.ids))
	for _, i := range only {
		for _, slot := range b.slots[i*fields : (i+1)*fields] {
			used[slot] = true
		}
	}
	var ids []uint64
	rows := g.rows[:0]
	for slot, id := range g.ids {
		if used[slot] {
			ids = append(ids, id)
			rows = append(rows, g.rows[slot*width:(slot+1)*width]...)
		}
	}
	g.ids, g.rows = ids, rows
}

// gather copies each record's rows to their places.
func (e *engine) gather(b *batch) {
	for k, slot := range b.slots {
		copy(e.step.Emb[k*e.width:][:e.width], b.rows[int(slot)*e.width:])
	}
}

// stepped is a batch with its gradients, ready to be pushed. g is nil when no record is in the tensor, and for the counting model.
type stepped struct {
	b *batch
	g *gradients
}

// step runs one batch after the other on the accelerator until in is closed or ctx ends, then closes out.
func (w *worker) step(ctx context.Context, in <-chan *batch, out chan<- stepped) error {
	defer close(out)
	free := time.Now() // since when the accelerator has been free
	for {
		var b *batch
		var ok bool
		select {
		case b, ok = <-in:
		case <-ctx.Done():
			return nil
		}
		if !ok {
			return nil
		}
		g, err := w.runStep(ctx, b, b.full && !b.filled.After(free))
		if err != nil {
			return err
		}
		free = time.Now()
		select {
		case out <- stepped{b, g}:
		case <-ctx.Done():
			return nil
		}
	}
}

// runStep occupies the accelerator with one batch: for as long as the computation takes or, when it is emulated, at least for the
// stated time. What of the batch has no gradient that could be pushed is not in it afterwards (see gradients).
func (w *worker) runStep(ctx context.Context, b *batch, saturated bool) (*gradients, error) {
	if b.records() == 0 {
		return nil, nil
	}
	began := time.Now()
	w.metrics.stepBegins(began, saturated)
	var g *gradients
	if w.engine != nil {
		var err error
		if g, err = w.gradients(b); err != nil {
			return nil, err
		}
	}
	if rest := w.emulate - time.Since(began); rest > 0 {
		sleep(ctx, rest)
	}
	if w.metrics.stepEnds(b, g, time.Since(began)) {
		w.beatNow.set() // the join time ends now
	}
	return g, nil
}

// sleep waits, or returns early when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// logLoss is −log of the probability given to what happened, for a prediction p and label y; p is kept off 0 and 1 by what a
// float32 can tell apart from them.
func logLoss(p, y float32) float64 {
	q := min(max(float64(p), 1e-7), 1-1e-7)
	if y == 1 {
		return -math.Log(q)
	}
	return -math.Log(1 - q)
}
