package trainer

import (
	"context"
	"sync"
	"time"
)

// signal wakes one waiting goroutine; wakes while nobody waits are kept, once.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) set() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// interrupter ends a blocking call early: the call runs under the context of arm, which wake cancels. A wake between two calls ends the
// next one at once.
type interrupter struct {
	mu     sync.Mutex
	woken  bool
	cancel context.CancelFunc
}

func (i *interrupter) wake() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.woken = true
	if i.cancel != nil {
		i.cancel()
	}
}

// arm returns a context that ends with ctx, after the time limit, or at the next wake. Call done when the blocking call has returned.
func (i *interrupter) arm(ctx context.Context, limit time.Duration) (armed context.Context, done func()) {
	armed, cancel := context.WithTimeout(ctx, limit)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.woken {
		i.woken = false
		cancel()
		return armed, cancel
	}
	i.cancel = cancel
	return armed, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.cancel, i.woken = nil, false
		cancel()
	}
}
