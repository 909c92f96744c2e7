package job

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
)

// TopicInfo is what the brokers say about a topic.
type TopicInfo struct {
	Exists        bool
	Partitions    int
	CleanupPolicy string // the broker's cleanup.policy: "delete", "compact" or "compact,delete"; empty: not known
	// Retention is how long records stay; negative: for ever; 0: not known.
	Retention time.Duration
	Err       error    // the brokers could not be asked
	Others    []string // the topics that do exist
}

// TopicDiagnostics holds the job against what the brokers say about its topic. Every diagnostic points at the line of
// the job file that has to change.
func (j *Job) TopicDiagnostics(info TopicInfo) hcl.Diagnostics {
	if info.Err == nil && info.Exists && info.Partitions > 0 {
		return slices.Concat(j.cleanupDiagnostics(info), j.partitionDiagnostics(info), j.retentionDiagnostics(info))
	}
	return j.absentTopic("stream.topic", j.Stream.Topic, info)
}

// StartDiagnostics says that a job which begins now begins at a moment that has not come: Kafka would give it the end of the log, as "latest" does.
func (j *Job) StartDiagnostics(now time.Time) hcl.Diagnostics {
	at, ok := j.Stream.Start.At(now)
	if !ok || !at.After(now) {
		return nil
	}
	return hcl.Diagnostics{j.ErrorAt("stream.start", "Start lies in the future",
		fmt.Sprintf("It is %s now. To train what arrives from now on, write \"latest\"; to begin in the past, an earlier time, or \"-10m\".", now.UTC().Format(time.RFC3339)))}
}

// DeadLetterDiagnostics holds the job against what the brokers say about its dead-letter topic. It returns nothing for
// a job that has none.
func (j *Job) DeadLetterDiagnostics(info TopicInfo) hcl.Diagnostics {
	if j.Stream.DeadLetter == "" || (info.Err == nil && info.Exists && info.Partitions > 0) {
		return nil
	}
	return j.absentTopic("stream.dead_letter", j.Stream.DeadLetter, info)
}

func (j *Job) absentTopic(path, topic string, info TopicInfo) hcl.Diagnostics {
	switch {
	case info.Err != nil:
		return hcl.Diagnostics{j.ErrorAt("stream.brokers", fmt.Sprintf("Cannot ask the brokers about topic %q", topic),
			fmt.Sprintf("%s. Are the addresses right, and can they be reached from here (network, tls, sasl)?", strings.TrimRight(info.Err.Error(), ".")))}
	case !info.Exists:
		return hcl.Diagnostics{j.ErrorAt(path, fmt.Sprintf("Topic %q does not exist", topic), DidYouMean(topic, info.Others)+topicList(info.Others))}
	}
	return hcl.Diagnostics{j.ErrorAt(path, fmt.Sprintf("Topic %q has no partitions", topic), "The brokers know its name but no partition: is it being deleted?")}
}

func topicList(topics []string) string {
	if len(topics) == 0 {
		return "The brokers have no topic that this job may see. Create it, or check the permissions."
	}
	shown := slices.Sorted(slices.Values(topics))
	if len(shown) > 8 {
		return fmt.Sprintf("The brokers have %d topics, among them %s.", len(topics), strings.Join(shown[:8], ", "))
	}
	return fmt.Sprintf("The brokers have: %s.", strings.Join(shown, ", "))
}

// Compacted says that the brokers remove records from the topic's middle.
func (info TopicInfo) Compacted() bool {
	return slices.ContainsFunc(strings.Split(info.CleanupPolicy, ","), func(policy string) bool { return strings.TrimSpace(policy) == "compact" })
}

// Compacted is the summary of the diagnostic which says that a topic is.
func Compacted(topic string) string { return fmt.Sprintf("Topic %q is compacted", topic) }

func (j *Job) cleanupDiagnostics(info TopicInfo) hcl.Diagnostics {
	if !info.Compacted() {
		return nil
	}
	return hcl.Diagnostics{j.ErrorAt("stream.topic", Compacted(j.Stream.Topic),
		"Compaction removes records from the middle of the log, so that they could not be trained exactly once. Use a topic with cleanup.policy=delete, or set that of this one back to it.")}
}

// retentionDiagnostics holds the times of the job against how long records stay.
func (j *Job) retentionDiagnostics(info TopicInfo) hcl.Diagnostics {
	if info.Retention <= 0 {
		return nil
	}
	var diags hcl.Diagnostics
	keeps := fmt.Sprintf("Topic %q keeps records for %s (retention.ms). ", j.Stream.Topic, FormatDuration(info.Retention))
	if info.Retention < 2*j.SLO.MaxLag {
		diags = append(diags, j.WarningAt("slo.max_lag", "Records are deleted soon after they may be trained",
			keeps+fmt.Sprintf("Training may lag by %s: an outage that is not much longer loses records. Keep them for longer.", FormatDuration(j.SLO.MaxLag))))
	}
	if len(j.Forecast.Season) == 0 || j.Autoscale.Policy != PolicyKale && j.Autoscale.Policy != PolicyCost {
		return diags
	}
	if season := j.Forecast.Season[0]; info.Retention < season+j.Forecast.Horizon {
		diags = append(diags, j.WarningAt("forecast.season", "The topic does not keep a season",
			keeps+fmt.Sprintf("A forecast from a season of %s needs at least %s: after each start of the scheduler workers would be added as traffic demands, and none let go, until it has seen that much itself. "+
				"Keep records for longer, or use a shorter season.", FormatDuration(season), FormatDuration(season+j.Forecast.Horizon))))
	}
	return diags
}

func (j *Job) partitionDiagnostics(info TopicInfo) hcl.Diagnostics {
	if j.Workers.Forward != ForwardNone || j.Workers.Max <= info.Partitions {
		return nil
	}
	if j.Workers.Min > info.Partitions {
		return hcl.Diagnostics{j.ErrorAt("workers.min", "More workers than partitions",
			fmt.Sprintf(`Topic %q has %s and workers.min is %d: without forwarding the others have nothing to do. Use forward = "advanced", or fewer workers.`, j.Stream.Topic, Count(info.Partitions, "partition"), j.Workers.Min))}
	}
	return hcl.Diagnostics{j.WarningAt("workers.max", "More workers than partitions",
		fmt.Sprintf(`Topic %q has %s: without forwarding, workers beyond that have nothing to do. Use forward = "advanced", or max = %d.`, j.Stream.Topic, Count(info.Partitions, "partition"), info.Partitions))}
}
