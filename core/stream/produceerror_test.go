package stream_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kale-sched/kale/core/stream"
)

// A broker that cannot write, as on a full disk, may not say why: who produces is told where to look. What a broker does say stands for itself.
func TestProduceSaysWhereToLookWhenTheBrokerCannotWrite(t *testing.T) {
	for answer, looks := range map[*kerr.Error]bool{kerr.UnknownServerError: true, kerr.TopicAuthorizationFailed: false} {
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "clicks"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: answer, Count: -1})
		_, err = stream.Produce(t.Context(), nil, stream.ProduceOptions{
			Client: []kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...)}, Topic: "clicks", Curve: flat(10, 2), Duration: time.Second, Until: time.Now(),
		})
		if !errors.Is(err, answer) || strings.Contains(err.Error(), "the broker's own log says why; is its disk full?") != looks {
			t.Errorf("after %v: %v", answer, err)
		}
	}
}

// Everything was sent, and the broker went away before it had acknowledged it: it is waited for, and no longer than somebody wants.
func TestProduceEndsThoughItsBrokerIsGone(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "clicks"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		time.AfterFunc(time.Second, cancel) // by then all is sent: this is the first batch of a past that is written as fast as can be
		return nil, errors.New("the broker is gone"), true
	})
	made, err := stream.Produce(ctx, nil, stream.ProduceOptions{
		Client: []kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...)}, Topic: "clicks", Curve: flat(10, 2), Duration: time.Second, Until: time.Now(),
	})
	if !errors.Is(err, context.Canceled) || made.Total != 0 || made.Unsettled != 10 {
		t.Errorf("Produce = %+v, %v; want ten records that are not settled, and that it was ended", made, err)
	}
}
