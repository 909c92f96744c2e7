package demo

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/cmd/kale/audit"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/stream"
)

// The rate goes from 100 to 900 records/s five seconds after the decision. Who trained before that was ahead; a scale-out whose load never comes is neither
// ahead nor late.
func TestAheadOfTheLoad(t *testing.T) {
	b, err := stream.OpenBroker(t.Context(), nil, stream.BrokerOptions{Topics: []stream.TopicSpec{{Name: "clicks", Partitions: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	client := []kgo.Opt{kgo.SeedBrokers(b.Addr())}
	until := time.Now().Truncate(time.Second)
	decided := until.Add(-10 * time.Second)
	curve := stream.Curve{Start: decided, Step: time.Second, Rates: []float64{100, 100, 100, 100, 100, 900, 900, 900, 900, 900}}
	if _, err := stream.Produce(t.Context(), nil, stream.ProduceOptions{Client: client, Topic: "clicks", Curve: curve, Until: until, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	entries, err := audit.ReadEntries(t.Context(), client, "clicks", map[int32]int64{0: 0, 1: 0})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		capacity      float64
		trained       time.Duration // after the decision; 0: never
		horizon       time.Duration
		needed, ahead bool
	}{
		"in time":             {500, 4 * time.Second, 10 * time.Second, true, true},
		"too late":            {500, 7 * time.Second, 10 * time.Second, true, false},
		"never trained":       {500, 0, 10 * time.Second, true, false},
		"the load never came": {1000, 4 * time.Second, 10 * time.Second, false, false},
		"not in the horizon":  {500, 4 * time.Second, 4 * time.Second, false, false},
	} {
		r := core.Rescale{Decided: decided, ConfiguredCapacity: c.capacity}
		if c.trained > 0 {
			r.FirstTrained = decided.Add(c.trained)
		}
		if needed, ahead := Ahead(r, entries, c.horizon); needed != c.needed || ahead != c.ahead {
			t.Errorf("%s: needed %v, ahead %v; want %v, %v", name, needed, ahead, c.needed, c.ahead)
		}
	}
}
