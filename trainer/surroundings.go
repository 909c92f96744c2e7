package trainer

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/kafka"
)

// brokerTimeout bounds one question to a broker of ReachBrokers.
const brokerTimeout = 5 * time.Second

// Listen opens a port as a process of the job does on this machine: on the address that the specification's network gives here. via, a name or a network
// in CIDR form, is used in place of the specification's interface.
func Listen(ctx context.Context, spec *rpc.TrainSpec, via string) (net.Listener, error) {
	return listen(ctx, spec, "", via)
}

// Reached is a broker, and why it could not be reached; nil: it answers.
type Reached struct {
	Address string
	Err     error
}

// ReachBrokers asks every broker of the job's stream, by the address that it tells its clients, as a worker on this machine would. The error: none of
// those that the job names answers.
func ReachBrokers(ctx context.Context, spec *rpc.TrainSpec) ([]Reached, error) {
	opts, err := kafka.Opts(spec.GetStream())
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(append(opts, kgo.ClientID("kale-probe"), kgo.RequestRetries(1), kgo.DialTimeout(brokerTimeout))...)
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka at %v: %w", spec.GetStream().GetBrokers(), err)
	}
	defer cl.Close()
	bounded, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	ask := kmsg.NewPtrMetadataRequest()
	ask.Topics = []kmsg.MetadataRequestTopic{} // none: nil asks for all
	meta, err := ask.RequestWith(bounded, cl)
	if err != nil {
		return nil, fmt.Errorf("ask the brokers %v: %w", spec.GetStream().GetBrokers(), err)
	}
	out := make([]Reached, len(meta.Brokers))
	var asking sync.WaitGroup // each has its own element of out, and ends by brokerTimeout
	for i, b := range meta.Brokers {
		asking.Go(func() {
			bounded, cancel := context.WithTimeout(ctx, brokerTimeout)
			defer cancel()
			_, err := cl.Broker(int(b.NodeID)).Request(bounded, kmsg.NewPtrApiVersionsRequest())
			out[i] = Reached{Address: net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))), Err: err}
		})
	}
	asking.Wait()
	return out, nil
}
