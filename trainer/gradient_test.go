package trainer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/rpc"
)

func priced(label int, price string) []byte {
	return fmt.Appendf(nil, `{"click":%d,"user":"u1","item":3,"price":%s}`, label, price)
}

// TestRule18HugeValueIsSetAside: a record with a number beyond the bound of dense values does not end workers; it is set aside as one that cannot be decoded.
func TestRule18HugeValueIsSetAside(t *testing.T) {
	needONNX(t)
	for _, price := range []string{"3.4028235e38", "-1e38", "2e13"} {
		t.Run(price, func(t *testing.T) {
			c := broker(t, 1, kfake.SeedTopics(1, "dead"))
			cl := producer(t, c)
			for _, v := range [][]byte{click(0), priced(1, price), click(1), click(2)} {
				if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: testTopic, Value: v}).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			j := startJob(t, jobSpec(t, c, withModel("lr"), func(s *rpc.TrainSpec) { s.Stream.DeadLetter = "dead" }))
			w := j.worker(0, 1)
			j.waitFor("all is applied", func(s *rpc.JobStatus) bool {
				select {
				case <-w.done:
					t.Fatalf("the worker ended: %v", w.err)
				default:
				}
				return j.applied(s, 0) == 4
			})
			j.checkOnce(map[int32][]int64{0: {0, 1, 2, 3}}, map[int32][]int64{0: {1}})
			if r := readDead(t, c, 1)[testTopic+"/0/1"]; r == nil || !strings.Contains(header(r, "kale-reason"), `dense field "price"`) {
				t.Errorf("letter: %v", r)
			}
		})
	}
}

// TestLargestDenseValueTrains: records at the very bound, of either sign and label, leave every gradient finite, also when there are many.
func TestLargestDenseValueTrains(t *testing.T) {
	needONNX(t)
	for _, x := range []struct {
		kind, optimiser string
		rate            float32
	}{{"lr", "sgd", 0.1}, {"lr", "adagrad", 0.05}, {"lr", "adam", 0.001}, {"deepfm", "adagrad", 0.05}, {"deepfm", "adam", 0.001}} {
		t.Run(x.kind+" "+x.optimiser, func(t *testing.T) {
			c := broker(t, 1)
			cl := producer(t, c)
			var rs []*kgo.Record
			for i := range 2000 {
				rs = append(rs, &kgo.Record{Topic: testTopic, Value: priced(i/2%2, []string{"1e13", "-1e13"}[i%2])})
			}
			if err := cl.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
				t.Fatal(err)
			}
			j := startJob(t, jobSpec(t, c, withModel(x.kind), func(s *rpc.TrainSpec) {
				s.Model.Optimiser, s.Model.LearningRate, s.Model.Batch = x.optimiser, x.rate, 16
				s.Model.Hidden = []int32{64, 32}
			}))
			j.worker(0, 1)
			j.waitFor("all is applied", func(s *rpc.JobStatus) bool {
				if ps := s.GetProblems(); len(ps) > 0 {
					t.Fatal(ps)
				}
				return j.applied(s, 0) == 2000
			})
		})
	}
}

// TestRule18AbsurdGradientStopsThePartition: where weights have grown so far that the gradient is not finite, the worker lives, what precedes the record is trained, and the
// problem names the partition and the offset. A dead-letter topic, or doing without records that cannot be decoded, does not come into it. A drain ends.
func TestRule18AbsurdGradientStopsThePartition(t *testing.T) {
	needONNX(t)
	c := broker(t, 1, kfake.SeedTopics(1, "dead"))
	cl := producer(t, c)
	produce(t, cl, 0, 21)
	for i := range 400 { // with SGD, a few records at the bound that contradict one another
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: testTopic, Value: priced(i/2%2, []string{"1e13", "-1e13"}[i%2])}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	j := startJob(t, jobSpec(t, c, withModel("deepfm"), func(s *rpc.TrainSpec) {
		s.Stream.DeadLetter = "dead"
		s.Model.Optimiser, s.Model.LearningRate, s.Model.Batch = "sgd", 0.1, 16
	}))
	var w *process
	stands := func(s *rpc.JobStatus) bool {
		select {
		case <-w.done:
			t.Fatalf("the worker ended: %v", w.err)
		default:
		}
		ps := s.GetProblems()
		return len(ps) == 1 && ps[0].GetKind() == rpc.PartitionProblem_KIND_GRADIENT && ps[0].GetPartition() == 0 && ps[0].GetNeeded() == j.applied(s, 0)
	}
	w = j.worker(0, 1)
	s := j.waitFor("the partition stands still", stands)
	at := j.applied(s, 0)
	if at < 21 || at > 420 {
		t.Errorf("it stands at %d", at)
	}
	if d := s.GetProblems()[0].GetDetail(); !strings.HasPrefix(d, fmt.Sprintf(`topic "clicks": with the record at offset %d, of the batch's offsets `, at)) {
		t.Errorf("the problem is: %s", d)
	}
	if err := w.stop(); err != nil {
		t.Fatalf("the worker does not drain: %v", err)
	}
	for _, tb := range j.sums() { // of what was under way behind the record, some is trained
		if n := int64(tb.GetPartitions()[0].GetN()); n < at || n >= 421 {
			t.Errorf("tablet %d was trained with %d records, and stands at %d", tb.GetTablet(), n, at)
		}
	}
	w = j.worker(0, 2)
	j.waitFor("its successor stands still too", stands)
	if n := j.status().GetDeadRecords(); n != 0 {
		t.Errorf("%d records are set aside", n)
	}
}
