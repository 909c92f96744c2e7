package core

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/rpc"
)

// That retention will overtake what is to be trained is told before it has removed anything, by the topic's configuration as it is now.
func TestRetentionIsForeseen(t *testing.T) {
	old := time.Now().Add(-4 * time.Hour)
	for name, c := range map[string]struct {
		config  map[string]string
		applied int64
		says    string // "": nothing
	}{
		"for long enough":        {map[string]string{"retention.ms": "36000000"}, 20, ""},
		"for ever":               {map[string]string{"retention.ms": "-1"}, 20, ""},
		"half of the time":       {map[string]string{"retention.ms": "25200000"}, 20, "the oldest record that is not trained is 4h old, and brokers may remove what is older than 7h (retention.ms); raise that in the topic's configuration, or give the job more workers"},
		"more than the time":     {map[string]string{"retention.ms": "10800000"}, 20, "the oldest record that is not trained is 4h old, and brokers may remove what is older than 3h (retention.ms); raise that in the topic's configuration, or give the job more workers"},
		"half of the bytes":      {map[string]string{"retention.ms": "-1", "retention.bytes": "100"}, 20, "B wait to be trained, and brokers may remove what is beyond 100B of a partition (retention.bytes)"}, // of whichever has most
		"far from all the bytes": {map[string]string{"retention.ms": "-1", "retention.bytes": "200000"}, 20, ""},
		"all is trained":         {map[string]string{"retention.ms": "10800000", "retention.bytes": "100"}, 50, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			r.fill(50, func(i int) time.Time { return old })
			r.configure(c.config)
			r.started(1)
			r.chief.with(func(s *rpc.JobStatus) {
				for _, p := range s.Partitions {
					p.Applied = c.applied
				}
			})
			r.beat()
			r.s.topicKeptAt = time.Time{} // a minute has passed
			r.beat()
			got := strings.Join(r.s.View().Problems, "\n")
			if c.says == "" && got != "" || !strings.Contains(got, c.says) {
				t.Errorf("problems %q, want %q", got, c.says)
			}
			r.order("pause", 0) // more workers do not help then
			r.beat()
			if got := strings.Join(r.s.View().Problems, "\n"); c.says != "" && (!strings.HasSuffix(got, "; kale resume ctr goes on training; or raise that in the topic's configuration") || strings.Contains(got, "more workers")) {
				t.Errorf("while it is paused: %q", got)
			}
			r.chief.with(func(s *rpc.JobStatus) {
				s.Problems = []*rpc.PartitionProblem{{Partition: 1, Kind: rpc.PartitionProblem_KIND_RETENTION_NEAR, Needed: 20, Detail: "it is near"}}
			})
			r.beat()
			if got := r.s.View().Problems; len(got) != 1 || (c.says != "") == strings.Contains(got[0], "it is near") {
				t.Errorf("where the chief says so: %q", got)
			}
			r.chief.with(func(s *rpc.JobStatus) { s.Problems[0].LogStart = 40 })
			r.beat()
			if got := r.s.View().Problems; len(got) != 1 || got[0] != "partition 1: it is near" {
				t.Errorf("where the chief says that some is removed: %q", got)
			}
		})
	}
}

// What is at the edge of half the retention is one problem, which does not come and go.
func TestRetentionThatIsNearStaysSo(t *testing.T) {
	began := time.Now()
	r := newRig(t, rigOptions{})
	r.fill(50, func(i int) time.Time { return began.Add(time.Duration(i) * time.Minute).Add(-4 * time.Hour) })
	r.configure(map[string]string{"retention.ms": "25200000"})
	r.started(1)
	for _, c := range []struct {
		applied int64
		near    bool
	}{{50, false}, {49, false}, {20, true}, {49, true}, {50, false}, {49, false}} {
		r.chief.with(func(s *rpc.JobStatus) {
			for _, p := range s.Partitions {
				p.Applied = c.applied
			}
		})
		r.s.topicKeptAt = time.Time{}
		r.beats(2)
		if got := strings.Join(r.s.View().Problems, "\n"); strings.Contains(got, "may remove") != c.near {
			t.Errorf("%d applied: %q", c.applied, got)
		}
	}
}

// configure changes the topic's configuration.
func (r *rig) configure(config map[string]string) {
	r.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.broker.Addr()))
	if err != nil {
		r.t.Fatal(err)
	}
	defer cl.Close()
	var changes []kadm.AlterConfig
	for k, v := range config {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: k, Value: &v})
	}
	got, err := kadm.NewClient(cl).AlterTopicConfigs(r.t.Context(), changes, rigTopic)
	if err == nil {
		_, err = got.On(rigTopic, func(a *kadm.AlterConfigsResponse) error { return a.Err })
	}
	if err != nil {
		r.t.Fatal(err)
	}
}
