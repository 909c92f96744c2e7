package trainer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/rpc"
)

func showSpans(list []*rpc.Span) string {
	var out []string
	for _, s := range list {
		out = append(out, fmt.Sprintf("%d:[%d,%d)", s.GetPartition(), s.GetBegin(), s.GetEnd()))
	}
	return strings.Join(out, " ")
}

func applied(p int32, watermark int64, above ...int64) *rpc.OffsetSet {
	o := &rpc.OffsetSet{Partition: p, Watermark: watermark}
	for i := 0; i+1 < len(above); i += 2 {
		o.Above = append(o.Above, &rpc.Span{Partition: p, Begin: above[i], End: above[i+1]})
	}
	return o
}

func put(l *ledger, p int32, begin, end int64, s spanState) uint64 {
	c := &chunk{id: l.newID(), partition: p, begin: begin, end: end}
	l.add(c, s)
	return c.id
}

// TestRule10OnlyTheChiefConfirms: a span stays in the report, whatever the servers have acknowledged, until the applied set covers it.
func TestRule10OnlyTheChiefConfirms(t *testing.T) {
	l := newLedger()
	a := put(l, 0, 0, 10, queued)
	put(l, 0, 10, 20, forwarded)
	put(l, 0, 30, 40, queued)
	put(l, 2, 0, 5, queued)
	l.set(a, pushed)
	if diff := cmp.Diff("0:[0,20) 0:[30,40) 2:[0,5)", showSpans(l.outstanding())); diff != "" {
		t.Error(diff)
	}
	if done := l.confirm([]*rpc.OffsetSet{applied(0, 9, 30, 40)}); len(done) != 1 || done[0].begin != 30 {
		t.Errorf("confirmed %v", done)
	}
	if diff := cmp.Diff("0:[0,20) 2:[0,5)", showSpans(l.outstanding())); diff != "" {
		t.Error(diff)
	}
	l.confirm([]*rpc.OffsetSet{applied(0, 10)})
	if diff := cmp.Diff("0:[10,20) 2:[0,5)", showSpans(l.outstanding())); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int32{0, 2}, l.partitions()); diff != "" {
		t.Error(diff)
	}
	if l.watermark(0, 7) != 10 || l.watermark(5, 7) != 7 {
		t.Errorf("watermarks %d and %d", l.watermark(0, 7), l.watermark(5, 7))
	}
}

// TestRule10ServerReplacedMeansReadAgain: what was pushed and is not confirmed is read again, together with what waited for that anyway.
func TestRule10ServerReplacedMeansReadAgain(t *testing.T) {
	l := newLedger()
	put(l, 0, 0, 10, pushed)
	put(l, 0, 10, 20, pushed)
	put(l, 0, 20, 30, queued)
	l.want(0, 40, 50)
	put(l, 0, 30, 40, pushed)
	before := showSpans(l.outstanding())
	if n := l.readAgain(); n != 2 {
		t.Errorf("%d spans to read", n)
	}
	var got []string
	for _, e := range l.inState(toRead) {
		got = append(got, fmt.Sprintf("[%d,%d)", e.begin, e.end))
	}
	if diff := cmp.Diff([]string{"[0,20)", "[30,50)"}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, showSpans(l.outstanding())); diff != "" {
		t.Errorf("it answers for something else now: %s", diff)
	}
	if n := l.readAgain(); n != 0 {
		t.Errorf("with nothing pushed, %d spans to read", n)
	}
}

// TestSpansToReadAreTrimmed: of a span to repair, what has been applied meanwhile is not read.
func TestSpansToReadAreTrimmed(t *testing.T) {
	l := newLedger()
	l.want(1, 100, 200)
	l.want(0, 7, 9)
	l.confirm([]*rpc.OffsetSet{applied(1, 120, 120, 150, 170, 180)})
	e := l.nextRead(func(p int32) bool { return p == 0 })
	if e == nil || e.begin != 150 || e.end != 200 {
		t.Errorf("next to read: %+v", e)
	}
	if e := l.nextRead(func(int32) bool { return false }); e.partition != 0 {
		t.Errorf("next to read: %+v", e)
	}
	if !l.covered(1, 170, 180) || l.covered(1, 149, 151) {
		t.Error("covered is wrong")
	}
}
