package trainer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/kafka"
)

// deadLetters sets records aside that cannot be decoded (rule 18): a copy is in the dead-letter topic, acknowledged by all replicas,
// before the record's offset may be applied. The copy is there at least once, under the key topic/partition/offset.
type deadLetters struct {
	w     *worker
	topic string      // "": none; such records stop their partition or, where the job skips them, are counted and logged
	cl    *kgo.Client // nil without a topic
	// sample limits the log to one line in sampleEvery.
	lastLog time.Time
	silent  int
	// named is how many skipped records the log has named, each by its offset.
	named int
}

const (
	sampleEvery = 10 * time.Second
	// mostNamed bounds the skipped records that the log names one by one.
	mostNamed = 10_000
)

// stops says whether a record that cannot be decoded stops its partition.
func (d *deadLetters) stops() bool {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	return d.topic == "" && !d.w.skips
}

func newDeadLetters(w *worker) (*deadLetters, error) {
	d := &deadLetters{w: w, topic: w.spec.GetStream().GetDeadLetter()}
	if d.topic == "" {
		return d, nil
	}
	opts, err := kafka.Opts(w.spec.GetStream())
	if err != nil {
		return nil, fmt.Errorf("dead-letter topic: %w", err)
	}
	d.cl, err = kgo.NewClient(append(opts,
		kgo.ClientID(w.name+"-dead"),
		kgo.DefaultProduceTopic(d.topic),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordRetries(3),
		kgo.RecordDeliveryTimeout(5*time.Second),
	)...)
	if err != nil {
		return nil, fmt.Errorf("connect to the brokers of the dead-letter topic %q: %w", d.topic, err)
	}
	return d, nil
}

func (d *deadLetters) close() {
	if d.cl != nil {
		d.cl.Close()
	}
}

// put writes a record to the dead-letter topic and returns when that is acknowledged. It tries for as long as it takes, reporting the
// problem meanwhile: the error is only ever that of ctx.
func (d *deadLetters) put(ctx context.Context, c *chunk, r record, reason error) error {
	d.log(c, r, reason)
	d.w.metrics.add(&d.w.metrics.dead, 1)
	if d.cl == nil {
		return nil
	}
	msg := d.message(c, r, reason)
	backoff := newBackoff(100*time.Millisecond, 5*time.Second)
	for failures := 0; ; failures++ {
		err := d.cl.ProduceSync(ctx, msg).FirstErr()
		switch {
		case err == nil:
			if failures > 0 {
				d.w.setDeadLetterProblem(nil)
				d.w.lg.Info("the dead-letter topic takes records again", "topic", d.topic)
			}
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge):
			if msg.Value != nil {
				msg = d.pointer(msg)
				continue
			}
		}
		if failures == 0 {
			d.w.lg.Error("a record can neither be decoded nor set aside; waiting for the dead-letter topic",
				"topic", d.topic, "partition", c.partition, "offset", r.offset, "err", err)
		}
		d.w.setDeadLetterProblem(&rpc.PartitionProblem{
			Partition: c.partition, Kind: rpc.PartitionProblem_KIND_DEAD_LETTER, Needed: r.offset, LogStart: -1,
			Detail: fmt.Sprintf("cannot be decoded (%v) nor written to the dead-letter topic %q: %v", reason, d.topic, err),
		})
		if !backoff.wait(ctx) {
			return ctx.Err()
		}
		msg = d.message(c, r, reason) // the client has finished with the other
	}
}

func (d *deadLetters) message(c *chunk, r record, reason error) *kgo.Record {
	return &kgo.Record{
		Topic: d.topic,
		Key:   fmt.Appendf(nil, "%s/%d/%d", d.w.topic, c.partition, r.offset),
		Value: append([]byte{}, r.value...),
		Headers: []kgo.RecordHeader{
			{Key: "kale-reason", Value: []byte(reason.Error())},
			{Key: "kale-topic", Value: []byte(d.w.topic)},
			{Key: "kale-partition", Value: strconv.AppendInt(nil, int64(c.partition), 10)},
			{Key: "kale-offset", Value: strconv.AppendInt(nil, r.offset, 10)},
			{Key: "kale-job", Value: []byte(d.w.spec.GetJob())},
		},
	}
}

// pointer is the message for a record that is too large to be copied: where it is, and how large.
func (d *deadLetters) pointer(m *kgo.Record) *kgo.Record {
	return &kgo.Record{
		Topic: m.Topic, Key: m.Key,
		Headers: append(m.Headers, kgo.RecordHeader{Key: "kale-omitted-bytes", Value: strconv.AppendInt(nil, int64(len(m.Value)), 10)}),
	}
}

func (d *deadLetters) log(c *chunk, r record, reason error) {
	if d.topic == "" {
		if d.named++; d.named <= mostNamed {
			d.w.lg.Warn("record cannot be decoded; it is skipped (stream.on_undecodable)", "topic", d.w.topic, "partition", c.partition, "offset", r.offset,
				"bytes", len(r.value), "reason", reason)
			return
		}
	}
	now := time.Now()
	if now.Sub(d.lastLog) < sampleEvery {
		d.silent++
		return
	}
	d.w.lg.Warn("record cannot be decoded", "partition", c.partition, "offset", r.offset, "bytes", len(r.value), "reason", reason,
		"dead_letter", d.topic, "skipped_so_far", d.named, "since_last_line", d.silent)
	d.lastLog, d.silent = now, 0
}

// setDeadLetterProblem reports, or with nil withdraws, that records cannot be set aside.
func (w *worker) setDeadLetterProblem(p *rpc.PartitionProblem) {
	w.mu.Lock()
	w.deadProblem = p
	w.mu.Unlock()
	w.beatNow.set()
}
