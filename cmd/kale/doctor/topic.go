package doctor

import (
	"context"
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/traffic"
)

// CheckTopics asks the brokers about the job's topics and holds the job against the answer. Where they do not answer about one of them, the info's Err says so.
func CheckTopics(ctx context.Context, j *job.Job) (job.TopicInfo, hcl.Diagnostics, error) {
	info, diags, err := askStream(ctx, j)
	if err != nil || info.Err != nil || j.Stream.DeadLetter == "" {
		return info, diags, err
	}
	opts, err := core.KafkaOpts(j)
	if err != nil {
		return info, nil, err
	}
	dead := askTopic(ctx, j.Stream.Brokers, j.Stream.DeadLetter, opts)
	if ctx.Err() != nil {
		return info, nil, fmt.Errorf("ask the brokers about topic %q: interrupted", j.Stream.DeadLetter)
	}
	info.Err = dead.Err
	return info, append(diags, j.DeadLetterDiagnostics(dead)...), nil
}

// askStream is CheckTopics for the topic that is trained on.
func askStream(ctx context.Context, j *job.Job) (job.TopicInfo, hcl.Diagnostics, error) {
	opts, err := core.KafkaOpts(j)
	if err != nil {
		return job.TopicInfo{}, nil, err
	}
	info := askTopic(ctx, j.Stream.Brokers, j.Stream.Topic, opts)
	if ctx.Err() != nil {
		return info, nil, fmt.Errorf("ask the brokers about topic %q: interrupted", j.Stream.Topic)
	}
	return info, j.TopicDiagnostics(info), nil
}

// askTopic is what the brokers say about a topic, and which others there are when it does not exist.
func askTopic(ctx context.Context, brokers []string, topic string, opts []kgo.Opt) job.TopicInfo {
	cl, err := traffic.NewClient(traffic.ClientOptions{Brokers: brokers, Topic: topic, Opts: opts})
	if err != nil {
		return job.TopicInfo{Err: err}
	}
	defer cl.Close()
	t, err := cl.Topic(ctx)
	info := job.TopicInfo{Exists: t.Exists, Partitions: t.Partitions, CleanupPolicy: t.CleanupPolicy, Retention: t.Retention, Err: err}
	if err == nil && !t.Exists {
		info.Others = TopicNames(ctx, brokers, opts)
	}
	return info
}

// TopicNames lists the topics that the brokers show, for "did you mean"; nil when they do not say.
func TopicNames(ctx context.Context, brokers []string, opts []kgo.Opt) []string {
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(brokers...)}, opts...)...)
	if err != nil {
		return nil
	}
	defer cl.Close()
	topics, err := kadm.NewClient(cl).ListTopics(ctx)
	if err != nil {
		return nil
	}
	return topics.Names()
}
