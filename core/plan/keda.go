package plan

import (
	"fmt"
	"math"
)

// keda is KEDA's Apache Kafka scaler [code: kedacore/keda,
// pkg/scalers/apache_kafka_scaler.go]: the whole backlog over lagThreshold, no
// more than the topic has partitions unless idle consumers are allowed, fed to the
// HPA as an external metric with an average value, and so through its tolerance
// and machinery.
//
// cooldownPeriod concerns the scale to zero only, which a job here never does.
// excludePersistentLag looks at single partitions, which an observation does not
// have.
type keda struct {
	threshold float64
	allowIdle bool
	behaviour
}

func (p keda) propose(s *sheet) proposal {
	o := s.o
	if !o.lagKnown() || o.BacklogRecords < 0 {
		return s.idle("lag", "the backlog is not known")
	}
	backlog := float64(o.BacklogRecords)
	s.note("backlog", backlog, "records", "")
	desired := s.current
	if ratio := backlog / p.threshold / float64(max(s.current, 1)); math.Abs(1-ratio) > p.tolerance {
		desired = ceilCount(backlog / p.threshold)
	}
	idle := ""
	if !p.allowIdle && o.Partitions > 0 && desired > o.Partitions {
		idle = workers(desired) + ", no more than the partitions: "
		s.note("backlog's share", float64(desired), "workers", fmt.Sprintf("⌈backlog / %g⌉", p.threshold))
		desired = o.Partitions
		s.note("partitions", float64(desired), "", "no more workers than these")
	}
	want := p.behave(s, "keda", desired)
	load := s.lastLoad()
	return proposal{want: want, load: load, source: "lag",
		reason: fmt.Sprintf("a backlog of %s records at %s for each worker: %s%s", formatNumber(backlog), formatNumber(p.threshold), idle, s.cut(desired, want))}
}
