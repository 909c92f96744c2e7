package trainer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/checkpoint"
)

// memoryEvery is how often the chief's memory is saved when it has changed. Of a worker that ends together with the chief, the metrics of so long are lost;
// they are for people, and nothing is decided by them.
const memoryEvery = 10 * time.Second

// saveJob changes the job's state durably; what could not be saved is not changed.
func (p *serverProcess) saveJob(change func(*checkpoint.JobState)) error {
	p.jobMu.Lock()
	defer p.jobMu.Unlock()
	next := p.job
	change(&next)
	if err := p.store.SaveJob(next, p.incarnation); err != nil {
		return err
	}
	p.job.Starts, p.job.Lost, p.job.CutOff = next.Starts, next.Lost, next.CutOff // the rest is read without the lock
	return nil
}

// keepLost makes durable that a span was given up.
func (p *serverProcess) keepLost(sp *rpc.Span) error {
	lost := checkpoint.LostSpan{Partition: sp.GetPartition(), Begin: sp.GetBegin(), End: sp.GetEnd()}
	return p.saveJob(func(job *checkpoint.JobState) {
		if !slices.Contains(job.Lost, lost) {
			job.Lost = append(slices.Clone(job.Lost), lost)
		}
	})
}

func lostSpans(lost []checkpoint.LostSpan) []*rpc.Span {
	var out []*rpc.Span
	for _, l := range lost {
		out = append(out, &rpc.Span{Partition: l.Partition, Begin: l.Begin, End: l.End})
	}
	return out
}

// keepCutOff makes durable that the end of the log was cut off.
func (p *serverProcess) keepCutOff(found []*rpc.Span) error {
	return p.saveJob(func(job *checkpoint.JobState) {
		job.CutOff = slices.Clone(job.CutOff)
		for _, sp := range found {
			job.CutOff = append(job.CutOff, checkpoint.CutOff{Partition: sp.GetPartition(), At: sp.GetBegin(), ReadTo: sp.GetEnd(), Seen: time.Now().UTC()})
		}
	})
}

func cutOffSpans(cuts []checkpoint.CutOff) []*rpc.Span {
	var out []*rpc.Span
	for _, c := range cuts {
		out = append(out, &rpc.Span{Partition: c.Partition, Begin: c.At, End: c.ReadTo})
	}
	return out
}

// loadMemory reads what the chief before kept. Without it only totals for people begin anew, so what cannot be read stops nothing.
func (p *serverProcess) loadMemory() *rpc.ChiefMemory {
	raw, err := p.store.Memory()
	if err == nil && raw == nil {
		return nil
	}
	m := &rpc.ChiefMemory{}
	if err == nil {
		err = proto.Unmarshal(raw, m)
	}
	if err != nil {
		p.lg.Warn("the metrics of workers that have left cannot be read; their totals begin anew", "err", err)
		return nil
	}
	return m
}

// keepMemory saves the chief's memory until ctx ends, and once more then.
func (p *serverProcess) keepMemory(ctx context.Context) error {
	var last []byte
	failing := false
	save := func() error {
		raw, err := p.chief.Memory()
		if err != nil {
			return fmt.Errorf("encode the chief's memory: %w", err)
		}
		if bytes.Equal(raw, last) {
			return nil
		}
		err = p.store.SaveMemory(raw, p.incarnation)
		switch {
		case errors.Is(err, checkpoint.ErrSuperseded):
			return err
		case err != nil && !failing:
			p.lg.Warn("the metrics of workers cannot be kept for the next chief; trying again", "err", err)
		case err == nil:
			last = raw
		}
		failing = err != nil
		return nil
	}
	for {
		ended := pause(ctx, memoryEvery) != nil
		if err := save(); err != nil || ended {
			return err
		}
	}
}
