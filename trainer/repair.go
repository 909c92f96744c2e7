package trainer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/rpc"
)

// repairAgain is how long a partition whose repair cannot be read is left alone.
const repairAgain = 2 * time.Second

// repairer reads finite spans below the position again: those that a grant names (rule 12), and those that a parameter server forgot when it was
// restored (rule 10). One span at a time; it goes before the source, since the watermark waits for it.
type repairer struct {
	w     *worker
	src   *source // for the log's bounds
	cl    *kgo.Client
	later map[int32]time.Time
}

func newRepairer(w *worker, src *source) (*repairer, error) {
	cl, err := kgo.NewClient(append(src.baseOpts[:len(src.baseOpts):len(src.baseOpts)],
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{w.topic: {}}))...)
	if err != nil {
		return nil, fmt.Errorf("connect to the brokers of topic %q: %w", w.topic, err)
	}
	return &repairer{w: w, src: src, cl: cl, later: map[int32]time.Time{}}, nil
}

func (r *repairer) run(ctx context.Context) {
	tick := time.NewTicker(repairAgain / 2)
	defer tick.Stop()
	for {
		for ctx.Err() == nil && r.readNext(ctx) {
		}
		select {
		case <-ctx.Done():
			return
		case <-r.w.repairWake:
		case <-tick.C:
		}
	}
}

// readNext reads the lowest span that waits, as far as it can, and says whether there was one.
func (r *repairer) readNext(ctx context.Context) bool {
	now := time.Now()
	r.w.mu.Lock()
	e := r.w.ledger.nextRead(func(p int32) bool { return now.Before(r.later[p]) })
	var todo entry
	if e != nil {
		todo = *e
	}
	r.w.mu.Unlock()
	if e == nil {
		return false
	}
	err := r.read(ctx, todo)
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if err == nil || ctx.Err() != nil {
		delete(r.w.repairProblems, todo.partition)
		return true
	}
	r.later[todo.partition] = time.Now().Add(repairAgain)
	p := r.problem(todo, err)
	if old := r.w.repairProblems[todo.partition]; old.GetKind() != p.Kind || old.GetLogStart() != p.LogStart {
		r.w.lg.Error("cannot read records again for repair", "partition", p.Partition, "needed", p.Needed, "log_start", p.LogStart, "detail", p.Detail)
	}
	r.w.repairProblems[todo.partition] = p
	r.w.beatNow.set()
	return true
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

// read fetches [e.begin, e.end) and places it chunk by chunk.
func (r *repairer) read(ctx context.Context, e entry) error {
	if err := r.w.knowTopic(); err != nil {
		return err
	}
	r.cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{r.w.topic: {e.partition: kgo.NewOffset().At(e.begin)}})
	// Between reads nothing is consumed, so nothing that one has fetched can be taken for another's.
	defer r.cl.RemoveConsumePartitions(map[string][]int32{r.w.topic: {e.partition}})
	k := newChunker(e.partition, r.w.chunkSize, e.begin)
	quiet := time.Now()
	for k.next < e.end {
		failed := r.poll(ctx, e, k, &quiet)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if failed != nil {
			k.cutTail() // what was read before it counts
		} else if time.Since(quiet) > 3*repairAgain {
			failed = fmt.Errorf("no record at or above offset %d arrives, though the span to repair ends at %d", k.seen, e.end)
		}
		err := r.placeAll(ctx, e.id, k)
		switch {
		case errors.Is(err, errForgotten):
			return nil
		case err != nil:
			return err
		case failed != nil:
			return failed
		}
	}
	return nil
}

// poll takes what arrives into the chunker. Its error says why nothing more will come.
func (r *repairer) poll(ctx context.Context, e entry, k *chunker, quiet *time.Time) error {
	pctx, cancel := context.WithTimeout(ctx, repairAgain)
	fetches := r.cl.PollRecords(pctx, r.w.queueCap)
	cancel()
	var failed error
	for _, fetch := range fetches {
		for _, ft := range fetch.Topics {
			foreign := r.w.foreign(ft)
			for _, f := range ft.Partitions {
				switch {
				case foreign != nil:
					failed = foreign
				case f.Err != nil && !errors.Is(f.Err, context.DeadlineExceeded) && !errors.Is(f.Err, context.Canceled):
					failed = f.Err
				case len(f.Records) > 0 && f.LogStartOffset > k.seen && f.Records[0].Offset > k.seen:
					failed = kerr.OffsetOutOfRange
				}
				if failed != nil {
					continue
				}
				for _, rec := range f.Records {
					*quiet = time.Now()
					k.addUpTo(record{offset: rec.Offset, timestampMS: rec.Timestamp.UnixMilli(), value: rec.Value}, rec.Attrs.IsControl(), e.end, *quiet)
				}
			}
		}
	}
	if !errors.Is(failed, kerr.OffsetOutOfRange) {
		return failed
	}
	start, _, err := r.src.logBounds(ctx, e.partition)
	if err != nil {
		return err
	}
	if start > k.seen {
		return &lostError{needed: k.seen, start: min(start, e.end)}
	}
	return failed
}

// addUpTo is add for a finite span: it ends the last chunk at end exactly.
func (k *chunker) addUpTo(r record, control bool, end int64, now time.Time) {
	if k.next >= end {
		return
	}
	if r.offset < end {
		k.add(r, control, now)
	}
	if (r.offset >= end || k.seen >= end) && k.next < end {
		k.cut(end) // holes may reach up to it, over an edge or two
	}
}

var errForgotten = errors.New("the span is not wanted any more")

// placeAll puts the chunks that are ready into the shuffle unit, waiting for room.
func (r *repairer) placeAll(ctx context.Context, id uint64, k *chunker) error {
	for len(k.ready) > 0 {
		c := k.ready[0]
		c.replay = true
		placed, err := r.w.placeRepair(id, c)
		if err != nil {
			return err
		}
		if placed {
			k.ready = k.ready[1:]
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.w.repairWake:
		}
	}
	return nil
}

// placeRepair moves the first part of a span to read into the shuffle unit. False: there is no room yet.
func (w *worker) placeRepair(id uint64, c *chunk) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.repairWaits {
		w.repairWaits = false
		w.sourceWake.wake()
	}
	e := w.ledger.entries[id]
	if e == nil || e.state != toRead {
		return false, errForgotten
	}
	if c.end <= e.begin {
		return true, nil // applied meanwhile
	}
	if c.id == 0 {
		c.id = w.ledger.newID()
	}
	if !w.offer(c) {
		w.repairWaits = true
		return false, nil
	}
	w.metrics.add(&w.metrics.replayed, len(c.records))
	if e.begin = c.end; e.begin >= e.end {
		w.ledger.remove(id)
	}
	return true, nil
}
