package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/stream"
)

func brokerCommand(a *app) *cobra.Command {
	var (
		o      stream.BrokerOptions
		topics []string
	)
	c := &cobra.Command{
		Use: "broker [-topic NAME:PARTITIONS]...", Short: "Run an embedded Kafka broker",
		Long: `Runs a Kafka broker in this process until Ctrl-C. It is meant for trying things out and for tests, not for production.

With -data its log survives, kill -9 included; without, it ends with the process. What is beyond a topic's retention.ms or retention.bytes
is removed from the front of the log every 10 s. A topic with cleanup.policy=compact is not compacted. It knows max.message.bytes and
message.timestamp.type too, and refuses other settings, which it would not honour.

Started again on the same -data with a larger number, a topic gets more partitions; with a smaller one it keeps what it has, which is
warned of. While it runs, Kafka's own tools change
and delete topics: kafka-topics.sh, kafka-configs.sh, or any client.`,
		Example: "  kale broker -data broker -topic clicks:8 -topic clicks-dead:1:retention.ms=604800000",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, t := range topics {
				spec, err := parseTopic(t)
				if err != nil {
					return usageError{err}
				}
				o.Topics = append(o.Topics, spec)
			}
			o.Clean = 10 * time.Second
			ctx := cmd.Context()
			b, err := stream.OpenBroker(ctx, a.logger("warn"), o)
			if err != nil {
				return err
			}
			defer b.Close()
			if err := a.announceBroker(b, o); err != nil {
				return err
			}
			<-ctx.Done()
			fmt.Fprintln(a.err, "the broker ends")
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&o.DataDir, "data", "", "folder for the log (default: in memory)")
	f.StringVar(&o.Addr, "listen", "127.0.0.1:9092", "host:port to listen on; port 0 takes a free one")
	f.StringArrayVar(&topics, "topic", nil, "topic to have, as NAME:PARTITIONS[:KEY=VALUE]...; may be repeated")
	a.jsonFlag(c, "print the address as JSON once it is ready")
	return c
}

func (a *app) announceBroker(b *stream.Broker, o stream.BrokerOptions) error {
	if a.asJSON {
		return json.NewEncoder(a.out).Encode(map[string]any{"addr": b.Addr(), "data": o.DataDir})
	}
	fmt.Fprintf(a.out, "%s\n", b.Addr())
	where := "in memory"
	if o.DataDir != "" {
		where = "in " + o.DataDir
	}
	fmt.Fprintf(a.err, "the broker listens on %s, its log is %s; Ctrl-C ends it\n", b.Addr(), where)
	return nil
}

// parseTopic reads NAME:PARTITIONS[:KEY=VALUE]....
func parseTopic(s string) (stream.TopicSpec, error) {
	parts := strings.Split(s, ":")
	if len(parts) < 2 || parts[0] == "" {
		return stream.TopicSpec{}, fmt.Errorf("topic %q: want NAME:PARTITIONS, such as clicks:8", s)
	}
	if why := job.CheckTopic(parts[0]); why != "" {
		return stream.TopicSpec{}, fmt.Errorf("topic %q: %s", parts[0], why)
	}
	n, err := strconv.Atoi(parts[1])
	if err != nil || n < 1 {
		return stream.TopicSpec{}, fmt.Errorf("topic %q: %q is not a number of partitions, 1 or more", s, parts[1])
	}
	if n > stream.MostPartitions {
		return stream.TopicSpec{}, fmt.Errorf("topic %q: %s partitions are more than this broker can have, %s", s, plan.Thousands(n), plan.Thousands(stream.MostPartitions))
	}
	t := stream.TopicSpec{Name: parts[0], Partitions: n, Config: map[string]string{}}
	for _, kv := range parts[2:] {
		key, value, ok := strings.Cut(kv, "=")
		if !ok || key == "" {
			return stream.TopicSpec{}, fmt.Errorf("topic %q: %q is not a setting; want KEY=VALUE, such as retention.ms=3600000", s, kv)
		}
		if err := stream.CheckSetting(key, value); err != nil {
			return stream.TopicSpec{}, fmt.Errorf("topic %q: %w", parts[0], err)
		}
		t.Config[key] = value
	}
	return t, nil
}
