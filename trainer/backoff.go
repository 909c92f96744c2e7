package trainer

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff waits longer after each failure, with jitter so that many workers do not come back at once.
type backoff struct{ next, most time.Duration }

func newBackoff(first, most time.Duration) *backoff { return &backoff{first, most} }

// wait sleeps between half and all of the next delay; false when ctx has ended.
func (b *backoff) wait(ctx context.Context) bool {
	d := b.next/2 + rand.N(b.next/2+1)
	b.next = min(2*b.next, b.most)
	sleep(ctx, d)
	return ctx.Err() == nil
}
