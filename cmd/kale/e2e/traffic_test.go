package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/core/stream/kafkatest"
)

// traffic is a curve of clicks that is being played.
type traffic struct {
	stop context.CancelFunc
	done chan struct{} // closed when it has ended; out and err are valid then
	out  stream.Produced
	err  error
}

func (p *traffic) halt() {
	p.stop()
	<-p.done
}

// play plays a curve into the topic until it has been played for d or halt is called.
func (r *rig) play(o stream.ProduceOptions) *traffic {
	r.t.Helper()
	o.Client, o.Topic, o.Seed = r.kafka.Client(), r.topic, 1
	ctx, cancel := context.WithCancel(context.Background())
	p := &traffic{stop: cancel, done: make(chan struct{})}
	go func() { // ends with halt, which cleanUp calls
		defer close(p.done)
		p.out, p.err = stream.Produce(ctx, nil, o)
	}()
	r.played = append(r.played, p)
	return p
}

// steadyTraffic plays a constant rate, records/s, until endTraffic.
func (r *rig) steadyTraffic(rate float64) *traffic {
	r.t.Helper()
	return r.play(stream.ProduceOptions{Curve: stream.Curve{Step: time.Second, Rates: []float64{rate}}, Duration: time.Hour})
}

// endTraffic ends playing, and fails the test when the broker did not take everything.
func (r *rig) endTraffic(p *traffic) {
	r.t.Helper()
	p.halt()
	if p.out.Unsettled > 0 {
		r.fatalf("%d records were sent and neither acknowledged nor refused", p.out.Unsettled)
	}
	r.t.Logf("%d records were produced", p.out.Total)
}

// training is a job of two workers on an embedded broker, in the middle of its work on steady traffic.
func training(t *testing.T) (*rig, *traffic) {
	t.Helper()
	r := newRig(t, kafkatest.Embedded(t), options{})
	r.run()
	p := r.steadyTraffic(300)
	r.awaitSteady("two workers train", 2)
	r.awaitMore(300)
	return r, p
}

// finish ends traffic and, when everything is trained, the job: nothing of it is left, and each record was trained once, at least so many; extra are those that were
// produced beside the traffic, by partition.
func (r *rig) finish(p *traffic, extra map[int32]int64, least int64) {
	r.t.Helper()
	r.endTraffic(p)
	r.awaitTrained("everything is trained")
	r.stop()
	r.gone()
	r.logsAreClear()
	r.produced(extra)
	r.exact(least)
}

// acknowledged are the records that the broker has taken of all traffic, by partition. All of it must have ended.
func (r *rig) acknowledged() map[int32]int64 {
	out := map[int32]int64{}
	for _, p := range r.played {
		<-p.done
		for id, n := range p.out.Acked {
			out[id] += n
		}
	}
	return out
}

// put writes n records to one partition, as value makes them, and returns their offsets. A topic that was just created may be unknown to the broker's log
// for a moment, and a partition that was just added to the producer: what is refused for that is written again.
func (r *rig) put(name string, partition int32, n int, value func(i int) []byte) (offsets []int64) {
	r.t.Helper()
	var todo []*kgo.Record
	for i := range n {
		todo = append(todo, &kgo.Record{Topic: name, Partition: partition, Value: value(i)})
	}
	r.await(fmt.Sprintf("%d records are in %s, partition %d", n, name, partition), func() string {
		var again []*kgo.Record
		var why error
		for _, res := range r.produce(todo) {
			switch {
			case res.Err == nil:
				offsets = append(offsets, res.Record.Offset)
			case errors.Is(res.Err, kerr.UnknownTopicID), errors.Is(res.Err, kerr.UnknownTopicOrPartition),
				strings.Contains(res.Err.Error(), "invalid record partitioning choice"): // franz-go has no name for it
				again, why = append(again, &kgo.Record{Topic: name, Partition: partition, Value: res.Record.Value}), res.Err
			default:
				r.fatalf("write to %s, partition %d: %v", name, partition, res.Err)
			}
		}
		if todo = again; len(todo) > 0 {
			return why.Error()
		}
		return ""
	})
	return offsets
}

// produce writes records to the partitions that they name.
func (r *rig) produce(recs []*kgo.Record) kgo.ProduceResults {
	r.t.Helper()
	cl, err := kgo.NewClient(append(r.kafka.Client(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.MetadataMinAge(50*time.Millisecond), kgo.UnknownTopicRetries(100))...)
	if err != nil {
		r.t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	return cl.ProduceSync(ctx, recs...)
}

// click is a good record.
func click(i int) []byte {
	return []byte(`{"click":` + strconv.Itoa(i%2) + `,"user":"u` + strconv.Itoa(i%97) + `","item":"i` + strconv.Itoa(i%31) + `","category":"c1","slot":"s2","price":0.5,"age":0.1}`)
}

// read reads all committed records of a topic.
func (r *rig) read(name string) []*kgo.Record {
	r.t.Helper()
	var out []*kgo.Record
	err := stream.Scan(r.t.Context(), r.kafka.Client(), name, nil, nil, func(rec *kgo.Record) error { out = append(out, rec); return nil })
	if err != nil {
		r.fatalf("read %s: %v", name, err)
	}
	return out
}

// logSums are the topic's records, by partition.
func (r *rig) logSums(to map[int32]int64) map[int32]stream.PartitionSum {
	r.t.Helper()
	var from map[int32]int64
	if to != nil {
		from = map[int32]int64{}
		for p := range to {
			from[p] = 0
		}
	}
	sums, err := stream.LogSum(r.t.Context(), r.kafka.Client(), r.topic, from, to)
	if err != nil {
		r.fatalf("%v", err)
	}
	return sums
}

// produced checks that the broker has kept what it acknowledged, once.
func (r *rig) produced(extra map[int32]int64) {
	r.t.Helper()
	want := r.acknowledged()
	for p, n := range extra {
		want[p] += n
	}
	have := map[int32]int64{}
	for p, s := range r.logSums(nil) {
		if s.N > 0 {
			have[p] = s.N
		}
	}
	if !maps.Equal(want, have) {
		r.fatalf("the log has %v records, the broker had acknowledged %v", have, want)
	}
}

// key is how dead letters are keyed.
func (r *rig) key(partition int32, offset int64) string {
	return fmt.Sprintf("%s/%d/%d", r.topic, partition, offset)
}

// transaction writes n records to one partition in a transaction, which it commits or aborts. It returns commit.
func (r *rig) transaction(partition int32, n int, commit bool) bool {
	r.t.Helper()
	cl, err := kgo.NewClient(append(r.kafka.Client(), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.TransactionalID(fmt.Sprintf("%s-%d-%v", r.topic, partition, commit)), kgo.DefaultProduceTopic(r.topic))...)
	if err != nil {
		r.t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	if err := cl.BeginTransaction(); err != nil {
		r.fatalf("begin a transaction: %v", err)
	}
	for i := range n {
		cl.Produce(ctx, &kgo.Record{Partition: partition, Value: click(i)}, nil)
	}
	if err := cl.Flush(ctx); err != nil {
		r.fatalf("write in a transaction: %v", err)
	}
	if err := cl.EndTransaction(ctx, kgo.TransactionEndTry(commit)); err != nil {
		r.fatalf("end a transaction: %v", err)
	}
	return commit
}
