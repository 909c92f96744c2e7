package trainer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/rpc"
)

// repairAgain is how long a partition whose repair cannot be read is left alone.
const repairAgain = 2 * time.Second

// repairer reads finite spans below the position again: those that a grant names (rule 12), and those that a parameter server forgot when it was
// restored (rule 10). It goes before the source, since the watermark waits for it; all partitions are read at once, each from its lowest span on (see track).
type repairer struct {
	w      *worker
	src    *source // for the log's bounds
	cl     *kgo.Client
	tracks tracks
	later  map[int32]time.Time // until when a partition is left alone
}

func newRepairer(w *worker, src *source) (*repairer, error) {
	cl, err := kgo.NewClient(append(src.baseOpts[:len(src.baseOpts):len(src.baseOpts)],
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{w.topic: {}}))...)
	if err != nil {
		return nil, fmt.Errorf("connect to the brokers of topic %q: %w", w.topic, err)
	}
	return &repairer{w: w, src: src, cl: cl, tracks: tracks{w.chunkSize, map[int32]*track{}}, later: map[int32]time.Time{}}, nil
}

// close ends the client, once run has returned.
func (r *repairer) close() { closeConsumer(r.cl, r.w.topic, maps.Keys(r.tracks.by)) }

func (r *repairer) run(ctx context.Context) {
	tick := time.NewTicker(repairAgain / 2)
	defer tick.Stop()
	for ctx.Err() == nil {
		r.aim()
		now := time.Now()
		for _, t := range r.tracks.by {
			t.cut(now)
		}
		wait := len(r.tracks.by) == 0
		if t := r.tracks.ready(); t != nil {
			wait = !r.w.placeRepair(t)
		} else if !r.reportFailed() && !wait {
			r.poll(ctx)
		}
		if !wait {
			continue
		}
		select {
		case <-ctx.Done():
		case <-r.w.repairWake:
		case <-tick.C:
		}
	}
}

// aim makes the client fetch what is to be read now. Everything here runs between polls, so no fetch from before the change can be taken for one from after it.
func (r *repairer) aim() {
	now := time.Now()
	r.w.mu.Lock()
	wanted := r.w.ledger.reads(func(p int32) bool { return now.Before(r.later[p]) })
	seek, drop := r.tracks.aim(wanted)
	if r.w.repairWaits && r.tracks.ready() == nil { // what waited for room is not wanted any more
		r.w.repairWaits = false
		r.w.sourceWake.wake()
	}
	r.w.mu.Unlock()
	if len(seek) > 0 {
		if err := r.w.knowTopic(); err != nil {
			for p := range seek {
				r.tracks.by[p].fail(err)
			}
			clear(seek)
		}
	}
	begin := map[int32]kgo.Offset{}
	for p, at := range seek {
		begin[p] = kgo.NewOffset().At(at)
		drop = append(drop, p)
	}
	if len(drop) > 0 {
		r.cl.RemoveConsumePartitions(map[string][]int32{r.w.topic: drop})
	}
	if len(begin) > 0 {
		r.cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{r.w.topic: begin})
	}
}

// reportFailed reports the partitions that cannot be read, leaves them alone for a while, and says whether there was one.
func (r *repairer) reportFailed() (any bool) {
	for _, t := range r.tracks.by {
		if t.failed == nil {
			continue
		}
		any = true
		r.report(t)
		r.later[t.partition] = time.Now().Add(repairAgain) // which drops it
	}
	return any
}

func (r *repairer) report(t *track) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	e := r.w.ledger.entries[t.entry]
	if e == nil {
		return // it is not wanted any more
	}
	p := r.problem(*e, t.failed)
	if old := r.w.repairProblems[t.partition]; old.GetKind() != p.Kind || old.GetLogStart() != p.LogStart {
		r.w.lg.Error("cannot read records again for repair", "partition", p.Partition, "needed", p.Needed, "log_start", p.LogStart, "detail", p.Detail)
	}
	r.w.repairProblems[t.partition] = p
	r.w.beatNow.set()
}

// lostError says that retention removed what is needed.
type lostError struct{ needed, start int64 }

func (e *lostError) Error() string {
	return fmt.Sprintf("retention removed offsets %d to %d before they were trained", e.needed, e.start-1)
}

func (r *repairer) problem(e entry, err error) *rpc.PartitionProblem {
	p := &rpc.PartitionProblem{Partition: e.partition, Needed: e.begin, LogStart: -1, Detail: err.Error()}
	var lost *lostError
	switch {
	case errors.As(err, &lost):
		p.Kind, p.Needed, p.LogStart = rpc.PartitionProblem_KIND_LOST, lost.needed, lost.start
	case errors.Is(err, errForeign), errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.InconsistentTopicID):
		p.Kind = rpc.PartitionProblem_KIND_RECREATED
	default:
		p.Kind = rpc.PartitionProblem_KIND_UNREACHABLE
	}
	return p
}

// repairPoll bounds one poll: spans that are wanted meanwhile wait for it when nothing arrives.
const repairPoll = 250 * time.Millisecond

// poll hands the tracks all that has arrived, of every partition (see source.poll), and fails those of which nothing more will.
func (r *repairer) poll(ctx context.Context) {
	pctx, cancel := context.WithTimeout(ctx, repairPoll)
	began := time.Now()
	fetches := r.cl.PollFetches(pctx)
	waited := time.Since(began)
	cancel()
	if ctx.Err() != nil {
		return
	}
	for _, fetch := range fetches {
		for _, ft := range fetch.Topics {
			foreign := r.w.foreign(ft)
			for _, f := range ft.Partitions {
				t := r.tracks.by[f.Partition]
				switch {
				case ft.Topic != r.w.topic || f.Partition < 0: // the client's own word: the poll was cut short, or nothing can be reached
					if f.Err != nil && !errors.Is(f.Err, context.DeadlineExceeded) && !errors.Is(f.Err, context.Canceled) {
						r.failAll(f.Err)
					}
				case t == nil || t.failed != nil:
				case foreign != nil:
					t.fail(foreign)
				default:
					r.take(ctx, t, f)
				}
			}
		}
	}
	r.tracks.wait(waited, r.w.contact.quiet(time.Now()) > 0)
}

func (r *repairer) failAll(why error) {
	for _, t := range r.tracks.by {
		if t.failed == nil {
			t.fail(why)
		}
	}
}

// take hands a track what was fetched of its partition.
func (r *repairer) take(ctx context.Context, t *track, f kgo.FetchPartition) {
	failed := f.Err
	if errors.Is(failed, context.DeadlineExceeded) || errors.Is(failed, context.Canceled) {
		failed = nil
	}
	// A gap below the log's start is not a hole but a loss, even when the broker has not said so.
	if needed := t.needed(); failed == nil && len(f.Records) > 0 && f.LogStartOffset > needed && f.Records[0].Offset > needed {
		failed = kerr.OffsetOutOfRange
	}
	if failed == nil {
		rs := make([]fetched, 0, len(f.Records))
		for _, rec := range f.Records {
			rs = append(rs, fetched{record{offset: rec.Offset, timestampMS: rec.Timestamp.UnixMilli(), value: rec.Value}, rec.Attrs.IsControl()})
		}
		t.take(rs)
		return
	}
	if errors.Is(failed, kerr.OffsetOutOfRange) {
		start, _, err := r.src.logBounds(ctx, t.partition)
		switch {
		case err != nil:
			failed = err
		case start > t.needed():
			failed = &lostError{needed: t.needed(), start: min(start, t.end)}
		}
	}
	t.fail(failed)
}

// placeRepair moves the first ready chunk of a track into the shuffle unit. False: there is no room yet.
func (w *worker) placeRepair(t *track) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.repairWaits {
		w.repairWaits = false
		w.sourceWake.wake()
	}
	e, c := w.ledger.entries[t.entry], t.chunk.ready[0]
	if e == nil || e.state != toRead {
		t.chunk.ready = nil // the span is not wanted any more
		return true
	}
	if c.end > e.begin { // else it was applied meanwhile
		if c.id == 0 {
			c.id, c.replay = w.ledger.newID(), true
		}
		if !w.offer(c) {
			w.repairWaits = true
			return false
		}
		w.metrics.add(&w.metrics.replayed, len(c.records))
		delete(w.repairProblems, t.partition) // it is read again
		if e.begin = c.end; e.begin >= e.end {
			w.ledger.remove(e.id)
		}
	}
	t.chunk.ready = t.chunk.ready[1:]
	return true
}
