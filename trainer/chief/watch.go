package chief

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/kale-sched/kale/core/rpc"
)

// WatchOptions say what to watch in Kafka and where to write what is durable.
type WatchOptions struct {
	Admin *kadm.Client
	Topic string
	// Group gets the durable offsets committed, for the eyes of other tools; nothing here ever reads them back (rule 11). Empty: nothing is committed.
	Group string
	// Every is the time between looks at end offsets. Partitions, topic id and log starts are looked at every ten looks.
	Every time.Duration
	// Pin makes the start of a partition that was added durable before the partition is used (rule 16).
	Pin func(starts map[int32]int64) error
}

// Watch looks at the topic until ctx ends: end offsets (last stable), added partitions, a re-created topic, retention that comes near
// what is still needed; writes down where its end was cut off, as workers tell; and commits durable offsets. Kafka being away is logged once and waited for.
func (c *Chief) Watch(ctx context.Context, o WatchOptions) error {
	if o.Every <= 0 {
		o.Every = 250 * time.Millisecond
	}
	w := &watcher{c: c, o: o, committed: map[int32]int64{}}
	t := time.NewTicker(o.Every)
	defer t.Stop()
	for i := 0; ; i++ {
		err := w.look(ctx, i%10 == 0)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !w.failing:
			w.failing = true
			c.lg.Warn("cannot read the topic's state from Kafka; trying again", "topic", o.Topic, "err", err)
		case err == nil && w.failing:
			w.failing = false
			c.lg.Info("Kafka answers again", "topic", o.Topic)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

type watcher struct {
	c         *Chief
	o         WatchOptions
	failing   bool
	warned    map[int32]bool // of retention
	unkept    bool           // that the log's end was cut off could not be written down
	committed map[int32]int64
}

func (w *watcher) look(ctx context.Context, whole bool) error {
	w.keepCutOff()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if whole {
		if err := w.topic(ctx); err != nil {
			return err
		}
	}
	listed, err := w.o.Admin.ListCommittedOffsets(ctx, w.o.Topic)
	if err != nil {
		return fmt.Errorf("list end offsets of %q: %w", w.o.Topic, err)
	}
	ends := map[int32]int64{}
	listed.Each(func(l kadm.ListedOffset) {
		if l.Err == nil {
			ends[l.Partition] = l.Offset
		}
	})
	w.c.mu.Lock()
	w.c.m.setEnds(time.Now(), ends)
	w.c.mu.Unlock()
	if whole {
		return errors.Join(w.retention(ctx), w.commit(ctx))
	}
	return nil
}

// topic checks the topic's identity and takes in new partitions: they start at offset 0, pinned before they are leased.
func (w *watcher) topic(ctx context.Context) error {
	topics, err := w.o.Admin.ListTopics(ctx, w.o.Topic)
	if err != nil {
		return fmt.Errorf("look up topic %q: %w", w.o.Topic, err)
	}
	t := topics[w.o.Topic]
	w.c.mu.Lock()
	pinned, had := w.c.m.opt.TopicID, w.c.m.halted
	starts := map[int32]int64{}
	for id, p := range w.c.m.partitions {
		starts[id] = p.start
	}
	w.c.mu.Unlock()
	if why := identity(t, pinned); why != "" {
		if had == nil {
			w.c.lg.Error("training is stopped", "topic", w.o.Topic, "reason", why)
		}
		w.halt(&rpc.PartitionProblem{Partition: -1, Kind: rpc.PartitionProblem_KIND_RECREATED, Detail: why})
		return nil
	}
	// Unknown is neither the pinned topic nor another one: a halt stays, and a chief that has not seen the topic yet leases nothing.
	if t.Err != nil || t.Topic == "" {
		return fmt.Errorf("look up topic %q: %w", w.o.Topic, errors.Join(errTopicUnknown, t.Err))
	}
	w.halt(nil)
	fresh := maps.Clone(starts)
	for id := range t.Partitions {
		if _, ok := fresh[id]; !ok {
			fresh[id] = 0
		}
	}
	if len(fresh) > len(starts) {
		if err := w.o.Pin(fresh); err != nil {
			return fmt.Errorf("pin the start of new partitions of %q: %w", w.o.Topic, err)
		}
		w.c.lg.Info("the topic has new partitions", "topic", w.o.Topic, "before", len(starts), "now", len(fresh))
		w.c.mu.Lock()
		for id, start := range fresh {
			w.c.m.addPartition(id, start)
		}
		w.c.mu.Unlock()
	}
	return nil
}

// identity returns why the topic is not the one that the job's state belongs to, or "".
func identity(t kadm.TopicDetail, pinned string) string {
	if t.Topic == "" || t.Err != nil {
		return "" // unknown is not gone: the broker may be starting
	}
	if id := t.ID.String(); pinned != "" && id != pinned {
		return fmt.Sprintf("%v: topic %q has id %s, the job's state belongs to %s; start a new job (another checkpoint.dir) to train on the new topic", errTopicChanged, t.Topic, id, pinned)
	}
	return ""
}

func (w *watcher) halt(p *rpc.PartitionProblem) {
	w.c.mu.Lock()
	w.c.m.halted, w.c.m.verified = p, w.c.m.verified || p == nil
	w.c.mu.Unlock()
}

// retentionWords say what the brokers do, or are about to do, with what is not trained yet, and what helps.
func (m *machine) retentionWords(taken bool) string {
	does := "is about to remove"
	if taken {
		does = "removes"
	}
	helps := "raise the topic's retention.ms or retention.bytes"
	if m.paused {
		helps = fmt.Sprintf("kale resume %s goes on training; or %s", m.opt.Job, helps)
	} else {
		helps += ", or give the job more workers"
	}
	return fmt.Sprintf("retention %s records that are not trained yet; %s", does, helps)
}

// retention takes in where the logs start, and warns of those that come near what is still to be trained.
func (w *watcher) retention(ctx context.Context) error {
	starts, err := w.o.Admin.ListStartOffsets(ctx, w.o.Topic)
	if err != nil {
		return fmt.Errorf("list start offsets of %q: %w", w.o.Topic, err)
	}
	if w.warned == nil {
		w.warned = map[int32]bool{}
	}
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	starts.Each(func(l kadm.ListedOffset) {
		p := w.c.m.partitions[l.Partition]
		if l.Err != nil || p == nil {
			return
		}
		p.logStart = l.Offset
		taken := w.c.m.retentionTakes(p)
		near := taken || w.c.m.retentionNear(p)
		if near && !w.warned[l.Partition] {
			w.c.lg.Warn(w.c.m.retentionWords(taken), "partition", l.Partition, "log_start", l.Offset, "trained_to", p.watermark, "end", p.end)
		}
		w.warned[l.Partition] = near
	})
	return nil
}

// commit writes durable offsets that moved to the job's group.
func (w *watcher) commit(ctx context.Context) error {
	if w.o.Group == "" {
		return nil
	}
	offsets, moved := kadm.Offsets{}, map[int32]int64{}
	w.c.mu.Lock()
	for _, p := range w.c.m.sorted() {
		if p.durable > w.committed[p.id] && w.c.m.progressKnown() {
			offsets.AddOffset(w.o.Topic, p.id, p.durable, -1)
			moved[p.id] = p.durable
		}
	}
	w.c.mu.Unlock()
	if len(moved) == 0 {
		return nil
	}
	if err := w.o.Admin.CommitAllOffsets(ctx, w.o.Group, offsets); err != nil {
		return fmt.Errorf("commit durable offsets to group %q: %w", w.o.Group, err)
	}
	maps.Copy(w.committed, moved)
	return nil
}
