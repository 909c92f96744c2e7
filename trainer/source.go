package trainer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/kafka"
)

// What one broker may send with one fetch, compressed. All of it is taken into the chunkers at once, from where partitions are served in turn, and the next
// fetch is under way meanwhile: a worker holds up to twice as much for each broker.
const (
	fetchBytes          = 25 << 20
	fetchPartitionBytes = 512 << 10
)

// fetchWait is how long a broker may hold a fetch that has nothing to answer. It bounds how late a partition that is added to the client
// joins a fetch that is under way, so it is short: a hand-over waits for it.
const fetchWait = 100 * time.Millisecond

// lease is one partition that this worker reads, or has just let go. Guarded by worker.mu.
type lease struct {
	epoch *rpc.Epoch
	// grant is the highest grant that was taken in.
	grant uint64
	// start is where this worker began, position the end of the last chunk that it placed.
	start, position int64
	// released: nothing is fetched any more; the chief has not taken note yet.
	released bool
	// stopped: a problem keeps it from being read (see problem).
	stopped bool
	problem *rpc.PartitionProblem
	// halted: it is stopped at a record that cannot be decoded; the ledger has it.
	halted bool
}

// reader is the source's side of a lease: what was fetched and is not placed.
type reader struct {
	lease *lease
	chunk *chunker
	// held says that its next chunk waits for the window.
	held bool
	// ample says that it has chunks for longer than a fetch takes, while the unit is full and other partitions have none: it fetches nothing, so that these can.
	ample bool
	// ending is why nothing more is fetched; it is reported when what was fetched is placed.
	ending *rpc.PartitionProblem
	// ended says that it was reported, and the client consumes the partition no more. Where it may be read on before anybody has looked at the lease, it takes a new reader.
	ended bool
}

// source reads the leased partitions in order, cuts them into chunks, and places these in the shuffle unit. All its fields belong to its one
// goroutine; other goroutines speak to it through leases and wake.
type source struct {
	w  *worker
	cl *kgo.Client
	// baseOpts reach the brokers; repairs use them too.
	baseOpts []kgo.Opt
	readers  map[int32]*reader
	order    []int32 // of readers, sorted
	turn     int     // whose chunk is placed first
	full     bool    // the shuffle unit had no room
	hungry   bool    // the unit is full, and there is a partition of which nothing waits for room
	paused   map[int32]bool
	failing  bool          // the last poll failed, and that was logged
	pinged   chan struct{} // closed when no ping is under way
}

func newSource(w *worker) (*source, error) {
	opts, err := kafka.Opts(w.spec.GetStream())
	if err != nil {
		return nil, fmt.Errorf("stream: %w", err)
	}
	opts = append(opts, w.streamOpts...)
	opts = append(opts, kgo.ClientID(w.name), kgo.FetchMaxWait(fetchWait), kgo.FetchMaxBytes(fetchBytes), kgo.FetchMaxPartitionBytes(fetchPartitionBytes),
		kgo.MetadataMaxAge(10*time.Second))
	cl, err := kgo.NewClient(append(opts[:len(opts):len(opts)],
		kgo.WithHooks(&w.contact),
		// An empty set of partitions makes a direct consumer whose connections are warm before the first grant.
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{w.topic: {}}))...)
	if err != nil {
		return nil, fmt.Errorf("connect to the brokers of topic %q: %w", w.topic, err)
	}
	none := make(chan struct{})
	close(none)
	return &source{w: w, cl: cl, baseOpts: opts, readers: map[int32]*reader{}, paused: map[int32]bool{}, pinged: none}, nil
}

// close ends the client, once run has returned.
func (s *source) close() {
	closeConsumer(s.cl, s.w.topic, maps.Keys(s.readers))
	<-s.pinged
}

// closeConsumer ends a client that consumes partitions of a topic. It is told to consume nothing first: of a partition that was added just before, it might
// otherwise begin a fetch while it closes, which is a data race in franz-go 1.22 (found by TestChaosTrainsEachRecordOnce, in readers and in repairers).
func closeConsumer(cl *kgo.Client, topic string, partitions iter.Seq[int32]) {
	if all := slices.Sorted(partitions); len(all) > 0 {
		cl.RemoveConsumePartitions(map[string][]int32{topic: all})
	}
	cl.Close()
}

// run reads until ctx ends.
func (s *source) run(ctx context.Context) {
	for ctx.Err() == nil {
		s.reconcile()
		wait := s.place()
		s.findHungry()
		s.pause()
		fetching := (!s.full || s.hungry) && len(s.readers) > len(s.paused)
		s.w.contact.expect(fetching, time.Now())
		if !fetching && s.w.contact.quiet(time.Now()) > 0 {
			s.ping()
		}
		armed, done := s.w.sourceWake.arm(ctx, wait)
		if s.full && !s.hungry {
			<-armed.Done() // what is fetched has no place to go: fetch no more
		} else {
			s.poll(ctx, armed)
		}
		done()
	}
}

// ping asks a broker for a sign of life when there is nothing to fetch: its answer is what ends a silence. franz-go may wait for a connection that is being
// made longer than a context allows, so nobody waits for the answer but close.
func (s *source) ping() {
	select {
	case <-s.pinged:
	default:
		return // one is under way
	}
	s.pinged = make(chan struct{})
	// Ends with the answer, or with the client; touches neither.
	go func(done chan<- struct{}) {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = s.cl.Ping(ctx) // an answer is heard by contact; none is no news
	}(s.pinged)
}

// reconcile makes the client consume exactly the leases that are to be read.
func (s *source) reconcile() {
	add := map[int32]kgo.Offset{}
	var remove []int32
	s.w.mu.Lock()
	for p, r := range s.readers {
		if l := s.w.leases[p]; l != r.lease || l.released || l.stopped || r.ended {
			remove = append(remove, p)
			delete(s.readers, p)
		}
	}
	for p, l := range s.w.leases {
		if !l.released && !l.stopped && s.readers[p] == nil {
			s.readers[p] = &reader{lease: l, chunk: newChunker(p, s.w.chunkSize, l.position)}
			add[p] = kgo.NewOffset().At(l.position)
		}
	}
	s.w.mu.Unlock()
	if len(remove) == 0 && len(add) == 0 {
		return
	}
	if len(add) > 0 {
		if err := s.w.knowTopic(); err != nil { // tried again with the next round, in a second at most
			s.logFailure(err)
			for p := range add {
				delete(s.readers, p)
			}
			clear(add)
		}
	}
	s.order = slices.Sorted(maps.Keys(s.readers))
	// Everything here runs between polls, so no fetch from before the change can be taken for one from after it.
	if len(remove) > 0 {
		s.cl.RemoveConsumePartitions(map[string][]int32{s.w.topic: remove})
		s.resume(remove)
	}
	if len(add) > 0 {
		s.cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{s.w.topic: add})
	}
}

// place puts ready chunks into the shuffle unit, one partition after the other, until nothing fits. It returns how long a poll may
// take before a tail is due.
func (s *source) place() time.Duration {
	now := time.Now()
	wait := time.Second
	tail := s.w.linger / 2
	for _, r := range s.readers {
		r.held = false
		if r.chunk.since.IsZero() {
			continue
		}
		if len(r.chunk.ready) > 0 { // what is ready holds the tail back, and more may be fetched until its turn comes
			r.chunk.since = now
		}
		if left := tail - now.Sub(r.chunk.since); left > 0 {
			wait = min(wait, left)
		} else {
			r.chunk.cutTail()
		}
	}
	wasFull := s.full
	s.full = false
	for s.placeRound() {
	}
	s.endReaders()
	if s.full && !wasFull {
		s.w.metrics.add(&s.w.metrics.fetchWaits, 1)
	}
	if s.full {
		wait = time.Second
	}
	return wait
}

// endReaders stops the partitions that cannot be read on, once everything that was fetched of them is placed.
func (s *source) endReaders() {
	for p, r := range s.readers {
		if r.ending == nil || len(r.chunk.ready) > 0 {
			continue
		}
		r.ending.Needed = r.chunk.next
		s.w.lg.Error("partition stops", "partition", p, "problem", r.ending.Kind.String(), "needed", r.ending.Needed, "log_start", r.ending.LogStart, "detail", r.ending.Detail)
		s.w.setProblem(r.lease, r.ending, true)
		s.w.sourceWake.wake()
		r.ending, r.ended = nil, true
	}
}

// placeRound offers one chunk of each partition, and says whether any was placed.
func (s *source) placeRound() (any bool) {
	for i := range s.order {
		p := s.order[(i+s.turn)%len(s.order)]
		r := s.readers[p]
		if len(r.chunk.ready) == 0 || r.held {
			continue
		}
		placed, full := s.w.placeOwn(r)
		if full {
			// The same partition goes first next time.
			s.full, s.turn = true, (i+s.turn)%len(s.order)
			return false
		}
		any = any || placed
	}
	s.turn++
	return any
}

// placeOwn moves the reader's next chunk into the shuffle unit and the lease's position past it, in one step. full: the unit has no
// room. Neither placed nor full: the window holds it back, or the lease was let go.
func (w *worker) placeOwn(r *reader) (placed, full bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, l := r.chunk.ready[0], r.lease
	if l.released || l.stopped || w.paused {
		r.held = true
		return false, false
	}
	// Rule 13. A partition of which nothing is outstanding may always place one chunk, however small the window.
	mark := w.ledger.watermark(c.partition, l.start)
	if w.window > 0 && c.end-mark > w.window && c.begin > mark {
		if !r.held {
			w.metrics.add(&w.metrics.fetchWaits, 1)
		}
		r.held = true
		return false, false
	}
	if c.id == 0 {
		c.id = w.ledger.newID()
	}
	if w.repairWaits || !w.offer(c) {
		w.sourceFull = true
		return false, true
	}
	w.sourceFull = false
	l.position = c.end
	r.chunk.ready = r.chunk.ready[1:]
	return true, false
}

// findHungry sees, while the unit is full, whether a partition has nothing that waits for room. Its records are fetched all the same, to have their turn: what
// was fetched of a partition with a long backlog may last for minutes. Those that have more than the unit holds fetch nothing meanwhile, and until they have less.
func (s *source) findHungry() {
	s.hungry = s.full && slices.ContainsFunc(s.order, func(p int32) bool {
		r := s.readers[p]
		return len(r.chunk.ready) == 0 && !r.ended
	})
	enough := max(s.w.queueCap/int(s.w.chunkSize), 1)
	for _, r := range s.readers {
		r.ample = len(r.chunk.ready) > enough && (s.hungry || r.ample)
	}
}

// pause stops fetching partitions whose chunks the window holds back, or that have plenty of them, so that others go on.
func (s *source) pause() {
	var pause, resume []int32
	for p, r := range s.readers {
		switch wanted := r.held || r.ample; {
		case wanted && !s.paused[p]:
			pause = append(pause, p)
			s.paused[p] = true
		case !wanted && s.paused[p]:
			resume = append(resume, p)
		}
	}
	if len(pause) > 0 {
		s.cl.PauseFetchPartitions(map[string][]int32{s.w.topic: pause})
	}
	s.resume(resume)
}

func (s *source) resume(ps []int32) {
	ps = slices.DeleteFunc(ps, func(p int32) bool { return !s.paused[p] })
	if len(ps) == 0 {
		return
	}
	for _, p := range ps {
		delete(s.paused, p)
	}
	s.cl.ResumeFetchPartitions(map[string][]int32{s.w.topic: ps})
}

// poll takes all that was fetched into the chunkers. (A poll of so many records at most would be given those of one partition, up to the end of what was
// fetched of it, before the first of the next: with a long backlog the last partition would wait for minutes.)
func (s *source) poll(ctx, armed context.Context) {
	fetches := s.cl.PollFetches(armed)
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	var failed error
	for _, fetch := range fetches {
		for _, ft := range fetch.Topics {
			foreign := s.w.foreign(ft)
			for _, f := range ft.Partitions {
				var err error
				switch {
				case ft.Topic != s.w.topic || f.Partition < 0: // the client's own word: the poll was cut short, or nothing can be reached
					if f.Err != nil && !errors.Is(f.Err, context.Canceled) && !errors.Is(f.Err, context.DeadlineExceeded) {
						err = f.Err
					}
				case foreign != nil: // its records are not ours
					err = s.take(ctx, kgo.FetchPartition{Partition: f.Partition, Err: foreign}, now)
				default:
					err = s.take(ctx, f, now)
				}
				if err != nil {
					failed = err
				}
			}
		}
	}
	s.logFailure(failed)
}

// take puts what was fetched of one partition into its chunker. Its error is one that time may mend.
func (s *source) take(ctx context.Context, f kgo.FetchPartition, now time.Time) (failed error) {
	r := s.readers[f.Partition]
	if r == nil || r.ending != nil {
		return nil
	}
	if f.Err != nil {
		failed = s.trouble(ctx, f.Partition, r, f.Err)
	}
	// A gap below the log's start is not a hole but a loss, even when the broker has not said so.
	if len(f.Records) > 0 && f.LogStartOffset > r.chunk.seen && f.Records[0].Offset > r.chunk.seen {
		failed = s.trouble(ctx, f.Partition, r, kerr.OffsetOutOfRange)
	}
	if r.ending != nil || !r.lease.readable(s.w, f.Err == nil) {
		return failed
	}
	for _, rec := range f.Records {
		r.chunk.add(record{offset: rec.Offset, timestampMS: rec.Timestamp.UnixMilli(), value: rec.Value}, rec.Attrs.IsControl(), now)
	}
	return failed
}

// readable says whether what was fetched still counts; well clears a passing problem.
func (l *lease) readable(w *worker, well bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if well && !l.stopped {
		l.problem = nil
	}
	return !l.stopped && !l.released
}

func (s *source) logFailure(err error) {
	switch {
	case err != nil && !s.failing:
		s.failing = true
		s.w.lg.Warn("fetching fails; trying again", "topic", s.w.topic, "err", err)
	case err == nil && s.failing:
		s.failing = false
		s.w.lg.Info("fetching works again", "topic", s.w.topic)
	}
}

// trouble sorts out a partition's fetch error: what the client retries is reported as unreachable; what it cannot mend stops the partition.
func (s *source) trouble(ctx context.Context, p int32, r *reader, err error) error {
	problem := &rpc.PartitionProblem{Partition: p, Needed: r.chunk.seen, LogStart: -1, Detail: err.Error()}
	var loss *kgo.ErrDataLoss
	switch {
	case errors.Is(err, kerr.OffsetOutOfRange):
		start, end, lerr := s.logBounds(ctx, p)
		switch {
		case lerr != nil:
			return lerr // asked again with the next fetch, which fails in the same way
		case start > r.chunk.seen:
			problem.Kind, problem.LogStart = rpc.PartitionProblem_KIND_LOST, start
			problem.Detail = fmt.Sprintf("retention removed offsets %d to %d before they were trained", r.chunk.seen, start-1)
		case end < r.chunk.seen:
			problem.Kind, problem.LogStart = rpc.PartitionProblem_KIND_TRUNCATED, end
			problem.Detail = fmt.Sprintf("the log ends at %d, below offset %d to which it was read: its end was cut off", end, r.chunk.seen)
		default:
			return nil // back in range
		}
	case errors.Is(err, errForeign):
		problem.Kind = rpc.PartitionProblem_KIND_RECREATED
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.InconsistentTopicID):
		problem.Kind = rpc.PartitionProblem_KIND_RECREATED
		problem.Detail = fmt.Sprintf("topic %q was deleted or created again, and what was not trained of it is gone: kale stop ends the job and keeps its model; a topic in its place is another one, "+
			"for a job with another checkpoint.dir", s.w.topic)
	case errors.As(err, &loss):
		problem.Kind, problem.LogStart = rpc.PartitionProblem_KIND_TRUNCATED, max(loss.ResetTo, -1)
		problem.Detail = fmt.Sprintf("the broker lost records that had been read: %v", err)
	default:
		problem.Kind = rpc.PartitionProblem_KIND_UNREACHABLE
		s.w.setProblem(r.lease, problem, false)
		return err
	}
	s.cl.RemoveConsumePartitions(map[string][]int32{s.w.topic: {p}})
	r.chunk.cutTail() // what was fetched is gone from the broker: it counts all the more
	r.ending = problem
	return nil
}

// logBounds asks the broker for a partition's log start and last stable offset.
func (s *source) logBounds(ctx context.Context, p int32) (start, end int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	adm := kadm.NewClient(s.cl)
	starts, err := adm.ListStartOffsets(ctx, s.w.topic)
	if err != nil {
		return 0, 0, fmt.Errorf("list the start offsets of %q: %w", s.w.topic, err)
	}
	ends, err := adm.ListCommittedOffsets(ctx, s.w.topic)
	if err != nil {
		return 0, 0, fmt.Errorf("list the end offsets of %q: %w", s.w.topic, err)
	}
	first, ok1 := starts.Lookup(s.w.topic, p)
	last, ok2 := ends.Lookup(s.w.topic, p)
	if err := errors.Join(first.Err, last.Err); err != nil || !ok1 || !ok2 {
		return 0, 0, fmt.Errorf("list the offsets of %q, partition %d: %w", s.w.topic, p, err)
	}
	return first.Offset, last.Offset, nil
}

// setProblem reports a problem with the next beat, and stops the partition if that is asked for.
func (w *worker) setProblem(l *lease, p *rpc.PartitionProblem, stop bool) {
	w.mu.Lock()
	l.problem, l.stopped = p, l.stopped || stop
	w.mu.Unlock()
	w.beatNow.set()
}
