package forecast

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kale-sched/kale/core/onnx"
)

// ErrNotReady is in the chain of the error of a forecaster that is at work and has no forecast yet, though it will. A [Gate] uses its fallback meanwhile, and takes it
// for no change of what is in use.
var ErrNotReady = errors.New("the forecast is not ready")

// ErrTooSlow is in the chain of the error of a model file of which a single answer takes longer than ONNXOptions.Limit.
var ErrTooSlow = errors.New("it is too slow")

// defaultLimit is how long a model file may take for one answer: a large one takes 20 ms on a quiet core, and has to be run some hundred times before it is of use.
const defaultLimit = time.Minute

// tellFrom is at how many moments a model has to be tried for it to be told: a few take no time.
const tellFrom = 8

// ErrClosed is in the chain of the error of a model file that was closed before it had answered. Nothing is learnt from that.
var ErrClosed = errors.New("it is closed")

// givesUp says that an error is not one of the moment at which a model was asked: it is of no use to ask it at others.
func givesUp(err error) bool { return errors.Is(err, ErrTooSlow) || errors.Is(err, ErrClosed) }

// CloseOn closes a model when ctx ends, which ends what it is asked then at the next operator of the model, and what is asked after that at once. done closes it too, and waits for that: to be
// deferred.
func (m *ONNXModel) CloseOn(ctx context.Context) (done func()) {
	stop := context.AfterFunc(ctx, func() { _ = m.Close() }) // its goroutine ends with Close, which done waits for
	return func() {
		stop()
		_ = m.Close() // it was only read
	}
}

// answer runs the session within the limit. The caller holds mu.
func (m *ONNXModel) answer() error {
	switch {
	case m.closing.Load():
		return ErrClosed
	case m.gaveUp != nil:
		return m.gaveUp
	}
	t := time.AfterFunc(m.limit, m.session.Interrupt)
	err := m.session.Run()
	t.Stop()
	switch {
	case err == nil:
		return nil
	case m.closing.Load():
		return ErrClosed
	case errors.Is(err, onnx.ErrInterrupted):
		err = fmt.Errorf("%w: ONNX Runtime had not answered after %v, and was stopped: train or export a smaller model", ErrTooSlow, length(m.limit))
		if m.asksOnce {
			err = fmt.Errorf("%w. It was not asked again", err)
			m.gaveUp = err
		}
		return err
	}
	return fmt.Errorf("ONNX Runtime gave no answer (%w): where that is so at every moment, the file asks for what it cannot do: train or export it anew", err)
}
