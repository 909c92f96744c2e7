package doctor

import (
	"math"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Arrivals are those of the last hour, or of the time for which there are any; of less than a minute nothing is told.
func TestArrivals(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "old", "young", "now", "empty"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	now := time.Now().Truncate(time.Second)
	fill := func(topic string, ago, every time.Duration) {
		t.Helper()
		for p := range int32(2) {
			var rs []*kgo.Record
			for at := now.Add(-ago); at.Before(now); at = at.Add(every) {
				rs = append(rs, &kgo.Record{Topic: topic, Partition: p, Timestamp: at, Value: []byte("x")})
			}
			// Each record is a batch of its own: a search by time finds batches in the embedded broker.
			for _, r := range rs {
				if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	fill("old", 2*time.Hour, time.Minute)
	fill("young", 20*time.Minute, 10*time.Second)
	fill("now", 30*time.Second, time.Second)
	for topic, want := range map[string]struct {
		rate float64
		over time.Duration
	}{"old": {2. / 60, time.Hour}, "young": {0.2, 20 * time.Minute}, "now": {}, "empty": {}, "nosuch": {}} {
		rate, over, ok := arrivals(t.Context(), kadm.NewClient(cl), topic, now)
		if ok != (want.rate > 0) || math.Abs(rate-want.rate) > 0.05*want.rate || over != want.over {
			t.Errorf("%s: %g records/s over %v, %v; want %g over %v", topic, rate, over, ok, want.rate, want.over)
		}
	}
}
