package traffic

import (
	"context"
	"errors"
	"net"
	"time"
)

// redialFor bounds for how long a question is asked again since a broker could not be dialled: several of the waits of redial.
const redialFor = 2 * time.Second

// Unreached says of a question's error that no broker was reached, or that those that were have not answered: their addresses, or the brokers, are what to look at.
func Unreached(err error) bool { return undialled(err) || errors.As(err, new(Silence)) }

// undialled says that a broker was not there to connect to, be it by its name.
func undialled(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" && !errors.Is(err, context.Canceled)
}

// redial asks again, a little later, what failed since a broker could not be dialled while there are others. franz-go goes by turns through the brokers it knows of
// and those of the job file, and does not ask again where the next in turn is the dead one once more, as it often is where many ask at a time, nor where
// what it had to know first, which brokers lead what, failed in that way.
func redial[T any](ctx context.Context, c *Client, ask func(context.Context) (T, error)) (T, error) {
	began := time.Now()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		v, err := ask(ctx)
		if !undialled(err) || !c.several() || time.Since(began)+wait > redialFor {
			return v, err
		}
		select {
		case <-ctx.Done():
			return v, err
		case <-time.After(wait):
		}
	}
}

// several says that more than one address of brokers is known.
func (c *Client) several() bool {
	return len(c.cl.DiscoveredBrokers()) > 1 || c.contact.addresses(c.brokers) > 1
}
