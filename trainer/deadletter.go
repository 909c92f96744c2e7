package trainer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/trainer/kafka"
)

// deadLetters sets records aside that cannot be decoded (rule 18): a copy is in the dead-letter topic, acknowledged by all replicas,
// before the record's offset may be applied. The copy is there at least once, under the key topic/partition/offset.
//
// When the topic does not take a letter, the partition of its record stands still (see halt), and so does each partition in which another such record
// turns up: run tries that letter again until the topic takes it, and then lets all go on.
type deadLetters struct {
	w     *worker
	topic string      // "": none; such records stop their partition or, where the job skips them, are counted and logged
	cl    *kgo.Client // nil without a topic
	// refused wakes run: there is a letter in waiting.
	refused signal
	// sample limits the log to one line in sampleEvery.
	lastLog time.Time
	silent  int
	// named is how many skipped records the log has named, each by its offset.
	named int

	// Guarded by worker.mu:
	waiting *letter // which the topic did not take; nil: as far as is known, it takes them
	written *letter // the last that waited, until its record is decoded again
	trouble string  // why waiting waits
}

// letter is a record on its way to the dead-letter topic.
type letter struct {
	partition int32
	record    record
	reason    error
}

const (
	sampleEvery = 10 * time.Second
	// mostNamed bounds the skipped records that the log names one by one.
	mostNamed = 10_000
	// letterTimeout bounds one attempt to write a letter, also at a broker that hangs: batches wait meanwhile.
	letterTimeout = 10 * time.Second
)

func newDeadLetters(w *worker) (*deadLetters, error) {
	d := &deadLetters{w: w, topic: w.spec.GetStream().GetDeadLetter(), refused: newSignal()}
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
		kgo.AllowIdempotentProduceCancellation(), // letterTimeout holds; a letter may be there twice
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

// shut says that a record which cannot be decoded has no place to go to now. Caller holds mu.
func (d *deadLetters) shut() bool {
	if d.topic == "" {
		return !d.w.skips
	}
	return d.waiting != nil
}

// put sets a record aside: it returns when the record's letter is acknowledged or, without a topic, when the record is skipped. With an error
// it is not, and its partition must stand still, unless ctx has ended.
func (d *deadLetters) put(ctx context.Context, c *chunk, r record, reason error) error {
	l := &letter{c.partition, r, reason}
	d.w.mu.Lock()
	shut := d.shut()
	written := d.written.of(l)
	if written {
		d.written = nil
	}
	d.w.mu.Unlock()
	switch {
	case shut:
		return errNoPlace
	case d.cl != nil && !written:
		if err := d.write(ctx, l); err != nil {
			if ctx.Err() == nil {
				d.wait(l, err)
			}
			return errNoPlace
		}
	}
	d.log(l)
	d.w.metrics.add(&d.w.metrics.dead, 1)
	return nil
}

// errNoPlace says that a record can neither be decoded nor set aside.
var errNoPlace = errors.New("no place to set the record aside")

// of says whether two letters are of one record.
func (l *letter) of(o *letter) bool {
	return l != nil && l.partition == o.partition && l.record.offset == o.record.offset
}

// wait has run try a letter again that the topic did not take.
func (d *deadLetters) wait(l *letter, err error) {
	d.w.lg.Error("the dead-letter topic does not take a record; trying again", "topic", d.topic, "partition", l.partition, "offset", l.record.offset, "err", err)
	d.w.mu.Lock()
	d.waiting, d.trouble = l, d.words(err)
	d.w.mu.Unlock()
	d.refused.set()
}

// words say what is wrong with the dead-letter topic.
func (d *deadLetters) words(err error) string {
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return fmt.Sprintf("the dead-letter topic %q, where it belongs, does not exist", d.topic)
	}
	return fmt.Sprintf("the dead-letter topic %q, where it belongs, does not take it: %v", d.topic, err)
}

// run tries the letter in waiting until the topic takes it, and lets partitions go on, until ctx ends.
func (d *deadLetters) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.refused:
		}
		d.w.mu.Lock()
		l := d.waiting
		d.w.mu.Unlock()
		for again := newBackoff(100*time.Millisecond, 5*time.Second); ; {
			if !again.wait(ctx) {
				return
			}
			err := d.write(ctx, l)
			d.w.mu.Lock()
			if err == nil {
				d.waiting, d.written = nil, l
				d.w.release()
				d.w.mu.Unlock()
				break
			}
			d.trouble = d.words(err)
			d.w.mu.Unlock()
		}
		d.w.lg.Info("the dead-letter topic takes records again", "topic", d.topic)
		d.w.beatNow.set()
	}
}

// write tries once to write a letter: all of it or, where that is too large for the topic, where its record is.
func (d *deadLetters) write(ctx context.Context, l *letter) error {
	ctx, cancel := context.WithTimeout(ctx, letterTimeout)
	defer cancel()
	err := d.cl.ProduceSync(ctx, d.message(l)).FirstErr()
	if errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge) {
		err = d.cl.ProduceSync(ctx, d.pointer(l)).FirstErr()
	}
	if errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID) {
		d.cl.PurgeTopicsFromProducing(d.topic) // one that was created again has another id, and the client keeps to the first
	}
	return err
}

func (d *deadLetters) message(l *letter) *kgo.Record {
	return &kgo.Record{
		Topic: d.topic,
		Key:   fmt.Appendf(nil, "%s/%d/%d", d.w.topic, l.partition, l.record.offset),
		Value: append([]byte{}, l.record.value...),
		Headers: []kgo.RecordHeader{
			{Key: "kale-reason", Value: []byte(l.reason.Error())},
			{Key: "kale-topic", Value: []byte(d.w.topic)},
			{Key: "kale-partition", Value: strconv.AppendInt(nil, int64(l.partition), 10)},
			{Key: "kale-offset", Value: strconv.AppendInt(nil, l.record.offset, 10)},
			{Key: "kale-job", Value: []byte(d.w.spec.GetJob())},
		},
	}
}

// pointer is the message for a record that is too large to be copied: where it is, and how large.
func (d *deadLetters) pointer(l *letter) *kgo.Record {
	m := d.message(l)
	m.Value = nil
	m.Headers = append(m.Headers, kgo.RecordHeader{Key: "kale-omitted-bytes", Value: strconv.AppendInt(nil, int64(len(l.record.value)), 10)})
	return m
}

func (d *deadLetters) log(l *letter) {
	if d.topic == "" {
		if d.named++; d.named <= mostNamed {
			d.w.lg.Warn("record cannot be decoded; it is skipped (stream.on_undecodable)", "topic", d.w.topic, "partition", l.partition, "offset", l.record.offset,
				"bytes", len(l.record.value), "reason", l.reason)
			return
		}
	}
	now := time.Now()
	if now.Sub(d.lastLog) < sampleEvery {
		d.silent++
		return
	}
	d.w.lg.Warn("record cannot be decoded", "partition", l.partition, "offset", l.record.offset, "bytes", len(l.record.value), "reason", l.reason,
		"dead_letter", d.topic, "skipped_so_far", d.named, "since_last_line", d.silent)
	d.lastLog, d.silent = now, 0
}
