package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

const (
	produceTick     = 20 * time.Millisecond // half of it is added to the age of a record, each tick costs broker and readers a round
	progressEvery   = time.Second
	maxUnacked      = 200_000          // records handed to the client and not acknowledged, after which generation waits
	flushGrace      = 10 * time.Second // for what is under way when the producer is told to stop
	historyBatch    = 64 << 10         // bytes: small batches keep the broker's look-ups by timestamp quick
	unackedPollWait = time.Millisecond
)

// ProduceOptions say what [Produce] plays, and where.
type ProduceOptions struct {
	Client []kgo.Opt // brokers, TLS, SASL
	Topic  string    // must exist

	Curve    Curve         // records/s as they are to arrive: scale it first
	Speedup  float64       // seconds of the curve per second of playing; 0 means 1. 720 plays a day in two minutes
	From     time.Duration // where in the curve playing starts; the curve repeats at both ends, so this may be negative
	Duration time.Duration // of playing; 0 means once through the curve

	// Until makes it history: all records are written at once, as fast as they can be, with timestamps that end here
	// and begin Duration before. The zero time plays live, with the present as timestamp.
	Until time.Time

	Skew          float64 // share of the records that go to hot partitions beyond their even share, 0 to 1
	HotPartitions int     // how many are hot; 0 means one in eight, at least one
	Seed          uint64
	Drift         float64 // turns per day of the curve, see DefaultDrift; 0 means preferences stay
	Format        Format  // empty means JSON

	Progress func(ProduceProgress) // may be nil; called about once a second and at the end, never concurrently
}

// ProduceProgress is how far playing has come.
type ProduceProgress struct {
	Elapsed time.Duration // since playing began
	At      time.Duration // offset in the curve
	Done    float64       // share of the whole, 0 to 1
	Rate    float64       // the curve's rate there, records/s; for history, records/s written so far
	Sent    int64
	Acked   int64
}

// Produced is what became of the records.
type Produced struct {
	Acked     map[int32]int64 // per partition: the broker said that it has them
	Total     int64           // sum of Acked
	Unsettled int64           // given to the client but not acknowledged when it was stopped: written, or not
	Elapsed   time.Duration
}

// mostProduced is the highest rate, records/s, that is played: some ten times of what one process can write (300,000 to 600,000 records/s on one machine), so that one
// that is a mistake does not run for ever.
const mostProduced = 1e7

// Validate says what is wrong with the options, or nothing.
func (o ProduceOptions) Validate() error {
	switch {
	case o.Topic == "":
		return errors.New("produce: no topic")
	case o.Speedup < 0 || math.IsNaN(o.Speedup) || math.IsInf(o.Speedup, 0):
		return fmt.Errorf("produce to %q: a speed-up of %v; it must be above 0", o.Topic, o.Speedup)
	case o.Duration < 0:
		return fmt.Errorf("produce to %q: a duration of %v; it must not be negative", o.Topic, o.Duration)
	case !(o.Skew >= 0 && o.Skew <= 1):
		return fmt.Errorf("produce to %q: a skew of %v; it is a share, from 0 to 1", o.Topic, o.Skew)
	case o.HotPartitions < 0:
		return fmt.Errorf("produce to %q: %d hot partitions", o.Topic, o.HotPartitions)
	case !(o.Drift >= 0) || math.IsInf(o.Drift, 0):
		return fmt.Errorf("produce to %q: a drift of %v turns a day: it must not be negative", o.Topic, o.Drift)
	case o.Curve.Peak() > mostProduced:
		return fmt.Errorf("produce to %q: a rate of %g records/s: want at most %g", o.Topic, o.Curve.Peak(), mostProduced)
	}
	if _, err := ParseFormat(string(o.Format)); err != nil {
		return fmt.Errorf("produce to %q: %w", o.Topic, err)
	}
	if err := o.Curve.Validate(); err != nil {
		return fmt.Errorf("produce to %q: %w", o.Topic, err)
	}
	return nil
}

// Produce plays a curve of click records into a topic, keyed by user, and returns how many of them the broker
// acknowledged in each partition: acks=all and idempotent, so that each of these is in the log once, through retries and
// restarts of the broker.
//
// Record k is due when the integral of the rate reaches k: the number of records depends on the curve alone, and each
// record on its number, the seed and its place in the curve. After a stall, of the broker or of this process, what is
// overdue is sent at once, as by the upstream services that the curve stands for. Gaps in the curve are bridged, see
// [Curve.Fill].
//
// When ctx ends, what is under way is settled within ten seconds; the result is then valid beside ctx's error. The first
// error that retrying cannot cure ends playing likewise.
func Produce(ctx context.Context, lg *slog.Logger, o ProduceOptions) (Produced, error) {
	if err := o.Validate(); err != nil {
		return Produced{}, err
	}
	p := newProducer(orSilent(lg), o)
	if n := o.Curve.Gaps(); n > 0 {
		p.lg.Warn("the curve has gaps; they are bridged by straight lines", "bins", n, "of", len(o.Curve.Rates))
	}
	cl, err := kgo.NewClient(p.clientOptions()...)
	if err != nil {
		return Produced{}, fmt.Errorf("produce to %q: %w", o.Topic, err)
	}
	defer cl.Close()
	if err := topicExists(ctx, cl, o.Topic); err != nil {
		return Produced{}, fmt.Errorf("produce to %q: %w", o.Topic, err)
	}
	p.cl = cl
	p.started = time.Now()
	p.reported = p.started
	play := p.playLive
	if !o.Until.IsZero() {
		play = p.playHistory
	}
	err = play(ctx)
	return p.settle(ctx, err)
}

// producer is one playing of a curve. Its fields belong to the goroutine of Produce, save those under mu, which the
// client's goroutine that runs promises writes.
type producer struct {
	lg       *slog.Logger
	o        ProduceOptions
	cl       *kgo.Client
	clicks   *Clicks
	walk     *walker
	end      time.Duration // offset in the curve where playing ends
	numbers  uint64        // what distinguishes this playing's record numbers from another's
	sent     int64
	started  time.Time
	reported time.Time
	pool     sync.Pool // of *kgo.Record with the capacity of a value

	mu    sync.Mutex
	acked map[int32]int64
	total int64
	lost  int64 // failed or aborted
	err   error // the first
}

func newProducer(lg *slog.Logger, o ProduceOptions) *producer {
	if o.Speedup == 0 {
		o.Speedup = 1
	}
	if o.Duration == 0 {
		o.Duration = time.Duration(float64(o.Curve.Duration()) / o.Speedup)
	}
	if o.Format == "" {
		o.Format = FormatJSON
	}
	return &producer{
		lg: lg, o: o,
		clicks:  NewClicks(o.Seed, o.Drift),
		walk:    newWalker(o.Curve.Fill(), o.From, 1/o.Speedup),
		end:     o.From + time.Duration(float64(o.Duration)*o.Speedup),
		numbers: mix(uint64(o.From)),
		acked:   map[int32]int64{},
		pool:    sync.Pool{New: func() any { return &kgo.Record{Value: make([]byte, 0, 256)} }},
	}
}

func (p *producer) clientOptions() []kgo.Opt {
	s := &spread{weights: p.clicks.userWeights, skew: p.o.Skew, hot: p.o.HotPartitions}
	oneAtATime := kversion.Stable()
	oneAtATime.SetMaxKeyVersion(int16(kmsg.Produce), 3) // above it franz-go has five requests under way
	opts := append([]kgo.Opt{}, p.o.Client...)
	opts = append(opts,
		// A broker that is killed remembers each producer's last batch alone: of two that were written and not acknowledged, the first would be written again.
		kgo.MaxVersions(oneAtATime),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.AlwaysRetryEOF(), // a broker that is killed looks like one that wants SASL, which is not retried otherwise
		kgo.RecordPartitioner(kgo.BasicConsistentPartitioner(func(string) func(*kgo.Record, int) int {
			return func(r *kgo.Record, n int) int {
				user, _ := strconv.Atoi(string(r.Key[1:])) // keys are ours: u and a number
				return int(s.of(user, n))
			}
		})),
		kgo.MaxBufferedRecords(2*maxUnacked),
		kgo.MetadataMinAge(250*time.Millisecond),
		kgo.MetadataMaxAge(2*time.Second), // so that added partitions get records soon
		kgo.ProducerLinger(5*time.Millisecond),
		kgo.RetryBackoffFn(func(tries int) time.Duration {
			return min(50*time.Millisecond<<min(tries, 4), 500*time.Millisecond)
		}),
	)
	if !p.o.Until.IsZero() {
		opts = append(opts, kgo.ProducerBatchMaxBytes(historyBatch))
	}
	return opts
}

func topicExists(ctx context.Context, cl *kgo.Client, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	td, err := kadm.NewClient(cl).ListTopics(ctx, topic)
	if err != nil {
		return fmt.Errorf("ask the broker for the topic: %w", err)
	}
	if t := td[topic]; t.Err != nil {
		return fmt.Errorf("the broker says %w; create the topic first, or check its name", t.Err)
	}
	return nil
}

// playLive emits what is due, tick by tick.
func (p *producer) playLive(ctx context.Context) error {
	tick := time.NewTicker(produceTick)
	defer tick.Stop()
	for {
		elapsed := time.Since(p.started)
		limit := p.end
		if elapsed < p.o.Duration {
			limit = min(p.end, p.o.From+time.Duration(float64(elapsed)*p.o.Speedup))
		}
		if err := p.emitUntil(ctx, limit, func(time.Duration) time.Time { return time.Now() }); err != nil {
			return err
		}
		if limit == p.end {
			return nil
		}
		p.report(false)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// playHistory emits everything, with timestamps that end at Until.
func (p *producer) playHistory(ctx context.Context) error {
	return p.emitUntil(ctx, p.end, func(at time.Duration) time.Time {
		return p.o.Until.Add(-time.Duration(float64(p.end-at) / p.o.Speedup))
	})
}

// emitUntil hands the client every record that is due before limit, an offset in the curve.
func (p *producer) emitUntil(ctx context.Context, limit time.Duration, stamp func(at time.Duration) time.Time) error {
	for p.walk.reach(float64(p.sent+1)-1e-6, limit) {
		at := p.walk.at
		k := p.clicks.Draw(p.numbers+uint64(p.sent), at)
		r := p.pool.Get().(*kgo.Record)
		*r = kgo.Record{Topic: p.o.Topic, Key: p.clicks.Key(k), Value: p.clicks.Append(r.Value[:0], p.o.Format, k), Timestamp: stamp(at)}
		p.cl.Produce(context.Background(), r, p.settled) // ctx would fail records that may be written already
		p.sent++
		if p.sent%1024 == 0 {
			if err := p.pause(ctx); err != nil {
				return err
			}
		}
	}
	return p.pause(ctx)
}

// pause reports, and waits while too much is unacknowledged; it returns the first error of a record.
func (p *producer) pause(ctx context.Context) error {
	for {
		p.report(false)
		p.mu.Lock()
		err := p.err
		p.mu.Unlock()
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if p.cl.BufferedProduceRecords() < maxUnacked {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(unackedPollWait):
		}
	}
}

// settled is the promise of every record; the client calls it from one goroutine at a time.
func (p *producer) settled(r *kgo.Record, err error) {
	p.mu.Lock()
	if err == nil {
		p.acked[r.Partition]++
		p.total++
	} else {
		p.lost++
		if p.err == nil {
			p.err = fmt.Errorf("write a record to partition %d: %w", r.Partition, err)
			if errors.Is(err, kerr.UnknownServerError) { // so answers a broker, the embedded one too, that cannot write to its disk
				p.err = fmt.Errorf("%w; the broker's own log says why; is its disk full?", p.err)
			}
		}
	}
	p.mu.Unlock()
	p.pool.Put(r)
}

// flush waits until everything is acknowledged or has failed: for flushGrace, and where patient that long after the end of ctx.
func (p *producer) flush(ctx context.Context, patient bool) error {
	bounded, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	grace := func() { time.AfterFunc(flushGrace, cancel) } // may fire after the end of flush, which changes nothing
	if patient {
		defer context.AfterFunc(ctx, grace)()
	} else {
		grace()
	}
	for {
		once, cancel := context.WithTimeout(bounded, flushGrace)
		err := p.cl.Flush(once)
		cancel()
		if err == nil || bounded.Err() != nil {
			return err
		}
		p.lg.Warn("the broker has not acknowledged all records; waiting for it", "records", p.cl.BufferedProduceRecords())
	}
}

// settle waits for what is under way and makes the result. cause is why playing ended, nil at its end: then a broker that is away is waited for until ctx ends.
func (p *producer) settle(ctx context.Context, cause error) (Produced, error) {
	if err := p.flush(ctx, cause == nil); err != nil {
		if cause == nil {
			cause = ctx.Err()
		}
		abort, cancel := context.WithTimeout(context.Background(), flushGrace)
		defer cancel()
		if err := p.cl.AbortBufferedRecords(abort); err != nil {
			p.lg.Warn("some records are neither written nor given up", "error", err)
		}
	}
	p.mu.Lock()
	out := Produced{Acked: p.acked, Total: p.total, Unsettled: p.sent - p.total, Elapsed: time.Since(p.started)}
	if cause == nil {
		cause = p.err
	}
	p.acked = map[int32]int64{}
	for part, n := range out.Acked {
		p.acked[part] = n
	}
	p.mu.Unlock()
	p.report(true)
	if cause != nil {
		return out, fmt.Errorf("produce to %q: after %d records: %w", p.o.Topic, out.Total, cause)
	}
	return out, nil
}

func (p *producer) report(last bool) {
	now := time.Now()
	if p.o.Progress == nil || !last && now.Sub(p.reported) < progressEvery {
		return
	}
	p.reported = now
	p.mu.Lock()
	acked := p.total
	p.mu.Unlock()
	pr := ProduceProgress{Elapsed: now.Sub(p.started), At: p.walk.at, Sent: p.sent, Acked: acked}
	if span := p.end - p.o.From; span > 0 {
		pr.Done = float64(p.walk.at-p.o.From) / float64(span)
	}
	pr.Rate = float64(acked) / max(pr.Elapsed.Seconds(), 1e-9)
	if p.o.Until.IsZero() {
		pr.Rate, _ = p.walk.c.At(p.walk.at)
	}
	p.o.Progress(pr)
}
