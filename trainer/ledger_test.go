package trainer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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
	l.push(a, time.Unix(1, 0))
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

// TestRule10ServerReplacedMeansReadAgain: what was pushed and is not confirmed is read again, together with what waited for that anyway; what is
// still to be trained, here or by a peer, is not.
func TestRule10ServerReplacedMeansReadAgain(t *testing.T) {
	l := newLedger()
	now := time.Unix(100, 0)
	l.push(put(l, 0, 0, 10, queued), now)
	l.push(put(l, 0, 10, 20, queued), now)
	put(l, 0, 20, 30, queued)
	l.want(0, 40, 50)
	l.want(1, 0, 5)
	l.hear(put(l, 0, 30, 40, forwarded), now)
	put(l, 0, 50, 60, forwarded)
	before := showSpans(l.outstanding())
	all := func(*entry) bool { return true }
	if gone := l.readAgain(all); len(gone) != 3 || gone[2].state != forwarded {
		t.Errorf("%d chunks to read again", len(gone))
	}
	var got []string
	for _, e := range l.inState(toRead) {
		got = append(got, fmt.Sprintf("%d:[%d,%d)", e.partition, e.begin, e.end))
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"0:[0,20)", "0:[30,50)", "1:[0,5)"}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, showSpans(l.outstanding())); diff != "" {
		t.Errorf("it answers for something else now: %s", diff)
	}
	if gone := l.readAgain(all); len(gone) != 0 {
		t.Errorf("with nothing pushed, %d chunks to read again", len(gone))
	}
}

// TestPlacedAgainIsNotTrained: the word of a peer that was lost does not count for the next one that gets the chunk.
func TestPlacedAgainIsNotTrained(t *testing.T) {
	l := newLedger()
	id := put(l, 0, 0, 10, forwarded)
	l.hear(id, time.Unix(100, 0))
	l.place(id, forwarded)
	if gone := l.readAgain(func(*entry) bool { return true }); len(gone) != 0 {
		t.Errorf("%v is doubted", gone[0])
	}
}

// TestSpansToReadAreTrimmed: of a span to repair, what has been applied meanwhile is not read.
func TestSpansToReadAreTrimmed(t *testing.T) {
	l := newLedger()
	l.want(1, 100, 200)
	l.want(0, 7, 9)
	l.confirm([]*rpc.OffsetSet{applied(1, 120, 120, 150, 170, 180)})
	es := l.reads(func(p int32) bool { return p == 0 })
	if len(es) != 1 || es[0].begin != 150 || es[0].end != 200 {
		t.Errorf("to read: %+v", es)
	}
	l.want(1, 140, 145)
	if es := l.reads(func(int32) bool { return false }); len(es) != 2 || es[0].partition != 0 || es[1].begin != 140 {
		t.Errorf("to read: %+v", es)
	}
	if !l.covered(1, 170, 180) || l.covered(1, 149, 151) {
		t.Error("covered is wrong")
	}
}
