package traffic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Silence says that brokers have not answered a question within RequestTimeout, or its context's time: they are likely to leave the next one unanswered too.
type Silence struct {
	text  string
	cause error // nil: they accept connections, and do not answer
}

func (s Silence) Error() string { return s.text }

func (s Silence) Unwrap() error { return s.cause }

// contact knows whether brokers take what is sent to them, and whether they answer. Safe for concurrent use.
type contact struct {
	mu    sync.Mutex
	mute  map[string]bool // by address: the last that was sent has not been answered
	heard bool            // one has answered
}

var (
	_ kgo.HookBrokerWrite = (*contact)(nil)
	_ kgo.HookBrokerRead  = (*contact)(nil)
)

// OnBrokerWrite is called by the client for everything that it has sent.
func (c *contact) OnBrokerWrite(b kgo.BrokerMetadata, _ int16, _ int, _, _ time.Duration, err error) {
	if err == nil {
		c.note(b, true)
	}
}

// OnBrokerRead is called by the client for every answer, and for each that it has given up.
func (c *contact) OnBrokerRead(b kgo.BrokerMetadata, _ int16, _ int, _, _ time.Duration, err error) {
	if err == nil {
		c.note(b, false)
	}
}

func (c *contact) note(b kgo.BrokerMetadata, mute bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mute == nil {
		c.mute = map[string]bool{}
	}
	c.mute[fmt.Sprintf("%s:%d", b.Host, b.Port)] = mute
	c.heard = c.heard || !mute
}

// silent says that no broker that was spoken to has answered what it was sent last.
func (c *contact) silent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, mute := range c.mute {
		if !mute {
			return false
		}
	}
	return len(c.mute) > 0
}

// answered says that a broker ever has.
func (c *contact) answered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard
}

// addresses is how many there are of brokers that were ever spoken to and of seeds.
func (c *contact) addresses(seeds []string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := maps.Clone(c.mute)
	if all == nil {
		all = map[string]bool{}
	}
	for _, s := range seeds {
		all[s] = true
	}
	return len(all)
}

// within asks, again where a broker was not there to connect to (redial), and gives up after RequestTimeout, or when ctx ends: franz-go waits for a connection that is being made for longer than a context allows. A question that was given up
// ends with franz-go's own patience, or with the client, and touches nothing but what it returns.
func within[T any](ctx context.Context, c *Client, ask func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	type reply struct {
		v   T
		err error
	}
	got := make(chan reply, 1)
	go func() {
		v, err := redial(ctx, c, ask)
		got <- reply{v, err}
	}()
	select {
	case r := <-got:
		return r.v, c.silence(r.err)
	case <-ctx.Done():
		var none T
		return none, c.silence(ctx.Err())
	}
}

// silence says in words that nobody answered in time, or that connections are closed without an answer, where that is what happened.
func (c *Client) silence(err error) error {
	// franz-go advises to look for TLS or SASL, which is no help once there has been an answer: a broker is being started, or what stands before it has none.
	if closed := new(kgo.ErrFirstReadEOF); errors.As(err, &closed) && c.contact.answered() {
		return fmt.Errorf("the brokers at %s accept connections and close them at once", strings.Join(c.brokers, ", "))
	}
	var timed net.Error // also where franz-go's own patience ended first
	if !errors.Is(err, context.DeadlineExceeded) && !(errors.As(err, &timed) && timed.Timeout()) {
		return err
	}
	brokers := strings.Join(c.brokers, ", ")
	if c.contact.silent() {
		return Silence{text: fmt.Sprintf("the brokers at %s accept connections and do not answer", brokers)}
	}
	return Silence{fmt.Sprintf("the brokers at %s have not answered in time: %v", brokers, err), err}
}
