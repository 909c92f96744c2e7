package trainer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/checkpoint"
	"github.com/kale-sched/kale/trainer/ps"
)

// lookAgain is how often a server that cannot start looks whether somebody has mended the checkpoint.
const lookAgain = 2 * time.Second

// errAskedToEnd says that a server was asked to end while it could not start.
var errAskedToEnd = errors.New("asked to end")

// openStore opens the job's store. One that the job has had, and that is gone, only a person can bring back: it is waited for.
func openStore(ctx context.Context, lg *slog.Logger, spec *rpc.TrainSpec, o ServerOptions, meet *rendezvous) (*checkpoint.Store, error) {
	if !o.Begun {
		return checkpoint.Open(spec.GetCheckpointDir(), spec.GetJob())
	}
	for told := false; ; told = true {
		store, err := checkpoint.Reopen(spec.GetCheckpointDir(), spec.GetJob())
		if !errors.Is(err, checkpoint.ErrGone) {
			return store, err
		}
		if !told {
			lg.Error("the parameter server cannot start; waiting until the checkpoint is back", "err", err)
			meet.stuck(err)
		}
		if pause(ctx, lookAgain) != nil {
			lg.Info("parameter server has ended without having started")
			return nil, errAskedToEnd
		}
	}
}

// noteBegun leaves word for who is started again in this process's allocation that the job has its checkpoint. Where that cannot be written, as on a full disk,
// this one trains all the same.
func (p *serverProcess) noteBegun() {
	if p.begunFile == "" {
		return
	}
	if err := os.WriteFile(p.begunFile, nil, 0o600); err != nil {
		p.lg.Warn("no note that the job has its checkpoint: started again in this allocation, the server would make anew one that is gone", "err", err)
	}
}

// takeUp loads the job's state and restores the tablets. What is damaged or lost, belongs to another model, or cannot be read or written, only a person can mend,
// and starting again and again would help nobody (a cluster would even shun the nodes for it): the process stays, says so wherever people look (its log, the
// scheduler, the checkpoint folder), and goes on as soon as the checkpoint is mended. fresh: the job's state was made just now.
func (p *serverProcess) takeUp(ctx context.Context) (fresh bool, err error) {
	for told := ""; ; {
		made, err := p.loadJob(ctx)
		fresh = fresh || made
		if err == nil {
			err = p.restore()
		}
		if err == nil {
			p.noteRestore("", p.tablets.Fallbacks())
			return fresh, nil
		}
		if ctx.Err() != nil {
			return false, p.endsUnstarted()
		}
		if errors.Is(err, errNoStart) || errors.Is(err, checkpoint.ErrSuperseded) {
			return fresh, err
		}
		if text := err.Error(); text != told {
			told = text
			p.lg.Error("the parameter server cannot start; waiting until the checkpoint is mended", "err", err)
			p.meet.stuck(err)
			p.noteRestore(strings.TrimPrefix(text, fmt.Sprintf("parameter server %d: ", p.index)), nil)
		}
		if gone, err := p.store.Superseded(p.index, p.incarnation); err == nil && gone {
			return false, fmt.Errorf("parameter server %d, incarnation %d: %w", p.index, p.incarnation, ErrFenced)
		}
		if pause(ctx, lookAgain) != nil {
			return false, p.endsUnstarted()
		}
	}
}

func (p *serverProcess) endsUnstarted() error {
	p.lg.Info("parameter server has ended without having started")
	return errAskedToEnd
}

// errNoStart says that the brokers did not tell where the stream starts, which time may mend.
var errNoStart = errors.New("where the stream starts is unknown")

// noteRestore writes down for people what was found wrong. That it cannot be written stops nothing.
func (p *serverProcess) noteRestore(trouble string, fallbacks []string) {
	r := rpc.RestoreRecord{Server: p.index, Incarnation: p.incarnation, At: time.Now().UTC().Truncate(time.Second), Error: trouble, Fallbacks: fallbacks}
	if err := p.store.SaveRestore(r); err != nil && !errors.Is(err, checkpoint.ErrSuperseded) {
		p.lg.Warn("how this server was restored cannot be written down", "err", err)
	}
}

func (p *serverProcess) restore() error {
	layout, rowWidth, initRow, initDense, err := stateShape(p.spec)
	if err != nil {
		return err
	}
	m := p.spec.GetModel()
	p.tablets, err = ps.Restore(p.lg, ps.Options{
		Job: p.spec.GetJob(), Fingerprint: p.spec.GetFingerprint(), Topic: p.spec.GetStream().GetTopic(), Server: p.index, Incarnation: p.incarnation, Timeline: p.job.Timeline,
		MapVersion: p.job.MapVersion, Layout: layout, RowWidth: rowWidth, InitRow: initRow, InitDense: initDense,
		Optimiser: ps.Optimiser{Kind: m.GetOptimiser(), LearningRate: m.GetLearningRate()},
		Counting:  m.GetKind() == KindCounting, Keep: int(p.spec.GetSnapshotKeep()), UnsafeNoDedup: p.spec.GetUnsafeNoDedup(), Store: p.store,
	})
	if err != nil {
		return fmt.Errorf("parameter server %d: %w", p.index, err)
	}
	if err := p.tablets.SetStarts(p.job.Starts); err != nil {
		return fmt.Errorf("parameter server %d: %w", p.index, err)
	}
	return nil
}
