package chief

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/kale-sched/kale/core/rpc"
)

// Rule 17: what a worker says of a log whose end was cut off is news once; an end that the chief saw lower is nearer to the cut; and a worker that meets the same
// cut later, when the log has grown, tells nothing new.
func TestRule17WhereTheLogWasCutOff(t *testing.T) {
	m := newTestMachine(2, 1)
	w := join(t, m, t0, 0).name
	tell := func(partition int32, end, read int64) {
		m.members[w].problems = []*rpc.PartitionProblem{{Partition: partition, Kind: rpc.PartitionProblem_KIND_TRUNCATED, LogStart: end, Needed: read}}
	}
	want := func(when string, is []*rpc.Span, want ...*rpc.Span) {
		t.Helper()
		if d := cmp.Diff(want, is, protocmp.Transform()); d != "" {
			t.Errorf("%s (-want +got):\n%s", when, d)
		}
	}
	want("nothing is told", m.newlyCutOff())
	tell(0, 35, 50)
	m.setEnds(t0, map[int32]int64{0: 30})
	first := &rpc.Span{Partition: 0, Begin: 30, End: 50}
	want("a first cut", m.newlyCutOff(), first)
	want("before it is durable", m.cutOff())
	m.keepCutOff(m.newlyCutOff())
	want("the same", m.newlyCutOff())
	m.setEnds(t0, map[int32]int64{0: 45})
	tell(0, 45, 50)
	want("the same, later", m.newlyCutOff())
	tell(0, -1, 50)
	want("where it ends is not known", m.newlyCutOff())
	m.setEnds(t0, map[int32]int64{0: 70})
	tell(0, 70, 80)
	second := &rpc.Span{Partition: 0, Begin: 70, End: 80}
	want("a second cut", m.newlyCutOff(), second)
	m.keepCutOff(m.newlyCutOff())
	tell(1, 3, 9)
	m.keepCutOff(m.newlyCutOff())
	want("all", m.cutOff(), first, second, &rpc.Span{Partition: 1, Begin: 3, End: 9})
	next := newTestMachine(2, 1)
	next.keepCutOff(m.cutOff())
	want("of the next chief", next.cutOff(), m.cutOff()...)
}
