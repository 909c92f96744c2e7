package trainer

import (
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// silence is how long brokers may not answer, while something is to be fetched, before that is reported.
const silence = 3 * time.Second

// contact knows when a broker was last heard of. Since idle fetches are answered after fetchWait, silence means that something is wrong. Safe
// for concurrent use; its methods beside OnBrokerRead take the time, which OnBrokerRead cannot.
type contact struct {
	mu sync.Mutex
	// since is when waiting for an answer began, or the last one came; zero when none is expected.
	since time.Time
}

var _ kgo.HookBrokerRead = (*contact)(nil)

// OnBrokerRead is called by the client for every answer of a broker.
func (c *contact) OnBrokerRead(_ kgo.BrokerMetadata, _ int16, _ int, _, _ time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && !c.since.IsZero() {
		c.since = time.Now()
	}
}

// expect says whether something is to be fetched. Who has noticed a silence and fetches nothing must ask for something, or never hears its end.
func (c *contact) expect(fetching bool, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !fetching && (c.since.IsZero() || now.Sub(c.since) <= silence):
		c.since = time.Time{} // but a silence that has been noticed ends only with an answer
	case c.since.IsZero():
		c.since = now
	}
}

// quiet is for how long an answer has been missing, 0 when that is no reason for concern.
func (c *contact) quiet(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := now.Sub(c.since); !c.since.IsZero() && d > silence {
		return d
	}
	return 0
}
