package chief

import (
	"fmt"
	"time"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/spans"
)

// Options are what a chief must know when it starts. Zero durations get the defaults named beside them.
type Options struct {
	Job         string
	Timeline    string
	TopicID     string
	Incarnation uint64
	MapVersion  uint64
	Servers     int
	// Starts are the pinned start offsets by partition.
	Starts map[int32]int64
	// Fresh says that no member can be left from a chief before: no grace period is needed.
	Fresh        bool
	LeaseTimeout time.Duration // 10 s
	Beat         time.Duration // 100 ms
	Grace        time.Duration // LeaseTimeout
	// Policies are those of the specification; SetPolicies replaces them.
	Policies *rpc.Policies
	// Lost are spans that were given up before; KeepLost makes another one durable, nil: it is not.
	Lost     []*rpc.Span
	KeepLost func(*rpc.Span) error
	// CutOff are offsets that were read before the end of the log was cut off below them; KeepCutOff makes others durable, nil: they are not.
	CutOff     []*rpc.Span
	KeepCutOff func([]*rpc.Span) error
	// Memory is what the chief before kept, nil when there is nothing.
	Memory *rpc.ChiefMemory
}

func (o Options) withDefaults() Options {
	if o.LeaseTimeout <= 0 {
		o.LeaseTimeout = 10 * time.Second
	}
	if o.Beat <= 0 {
		o.Beat = 100 * time.Millisecond
	}
	if o.Grace <= 0 {
		o.Grace = o.LeaseTimeout
	}
	return o
}

// machine is the chief's state and all its decisions. It is not safe for concurrent use; now is always passed in.
type machine struct {
	opt     Options
	started time.Time

	members    map[string]*member
	past       past // metrics of processes that left
	partitions map[int32]*partition
	servers    []*server

	session     uint64 // last session handed out
	epochs      uint64 // last lease epoch counter
	paused      bool
	halted      *rpc.PartitionProblem // the topic was re-created: nothing is leased
	verified    bool                  // the topic has been seen to be the pinned one; before that nothing is leased either
	snapshotReq uint64

	log       advanceLog
	rollbacks []*rollback
	kafkaSeen time.Time // when the brokers answered this chief last
	// before is what was applied everywhere before a server was replaced: as this chief saw it, as the one before kept it, and as workers were told.
	before map[int32]*spans.Set
}

func newMachine(o Options, now time.Time) *machine {
	o = o.withDefaults()
	m := &machine{
		opt: o, started: now,
		members:    map[string]*member{},
		past:       past{metrics: map[processKey]*rpc.WorkerMetrics{}, retired: emptyMetrics()},
		partitions: map[int32]*partition{},
		servers:    make([]*server, o.Servers),
		session:    uint64(now.UnixNano()),
		before:     map[int32]*spans.Set{},
	}
	for p, start := range o.Starts {
		m.addPartition(p, start)
	}
	for _, sp := range o.Lost {
		m.keepLost(sp.GetPartition(), sp.GetBegin(), sp.GetEnd())
	}
	m.keepCutOff(o.CutOff)
	m.remember(o.Memory)
	return m
}

func (m *machine) inGrace(now time.Time) bool {
	return !m.opt.Fresh && now.Sub(m.started) < m.opt.Grace
}

func (m *machine) fence() *rpc.Fence {
	return &rpc.Fence{Timeline: m.opt.Timeline, Chief: m.opt.Incarnation, MapVersion: m.opt.MapVersion}
}

// fenced returns the reason for which a message of another world is refused, or "".
func (m *machine) fenced(f *rpc.Fence) string {
	switch {
	case f.GetTimeline() != m.opt.Timeline:
		return fmt.Sprintf("timeline %q is not this job's %q", f.GetTimeline(), m.opt.Timeline)
	case f.GetChief() > m.opt.Incarnation:
		return fmt.Sprintf("chief incarnation %d is newer than this chief's %d: this chief has been replaced", f.GetChief(), m.opt.Incarnation)
	case f.GetChief() < m.opt.Incarnation:
		return fmt.Sprintf("chief incarnation %d is older than this chief's %d: register again", f.GetChief(), m.opt.Incarnation)
	}
	return ""
}
