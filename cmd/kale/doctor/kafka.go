package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/traffic"
)

const (
	// brokerLimit bounds one broker's answer, slowAnswer is what a person should know of.
	brokerLimit = 5 * time.Second
	slowAnswer  = 500 * time.Millisecond
	// aheadLimit is how far records may be ahead of this clock.
	aheadLimit = 5 * time.Second
)

// kafka tries the brokers, each by the address that it tells its clients, then the topics.
func (p Patient) kafka() group {
	var newest atomic.Int64 // of the records' timestamps, Unix nanoseconds; 0: not known
	connection := []string{"stream.brokers", "stream.tls", "stream.sasl"}
	connection = connection[:len(connection):len(connection)] // each append is one of its own
	return group{trials: []trial{
		{check: "brokers", limit: networkLimit, vital: true, needs: connection, try: p.brokers},
		{check: "topic", limit: networkLimit, vital: true, needs: append(connection, "stream.topic"), try: p.topic},
		{check: "records", limit: readLimit, needs: append(connection, "stream.topic", "features", "model.kind"), try: func(ctx context.Context) []Finding { return p.records(ctx, &newest) }},
		{check: "dead-letter topic", limit: networkLimit, needs: append(connection, "stream.dead_letter"), try: p.deadLetter},
		{check: "records' clock", limit: networkLimit, needs: append(connection, "stream.topic", "features", "model.kind"), try: func(ctx context.Context) []Finding { return p.recordsClock(ctx, newest.Load()) }},
	}}
}

// brokers asks every seed for all brokers, and then each of those by the address that it advertises: workers are told to use that one.
func (p Patient) brokers(ctx context.Context) []Finding {
	opts, err := core.KafkaOpts(p.Job)
	if err != nil {
		return []Finding{ok("brokers", "the connection cannot be set up: %v", err).but(Fail, "Correct tls or sasl in the stream block.")}
	}
	out, found := p.seeds(ctx, opts)
	if len(found) == 0 {
		return out
	}
	cl, err := kgo.NewClient(slices.Concat(opts, []kgo.Opt{kgo.SeedBrokers(p.Job.Stream.Brokers...), kgo.RequestRetries(1)})...)
	if err != nil {
		return append(out, ok("brokers", "no client can be made: %v", err).but(Fail, "Correct the stream block."))
	}
	defer cl.Close()
	if _, err := kadm.NewClient(cl).ListBrokers(ctx); err != nil { // so that the client knows their addresses
		return append(out, ok("brokers", "they do not say who they are: %v", err).but(Fail, "Look at the brokers' logs."))
	}
	each := make([]Finding, len(found))
	var wg sync.WaitGroup // each has its own element; they end with ctx
	for i, b := range found {
		wg.Go(func() { each[i] = askBroker(ctx, cl, b) })
	}
	wg.Wait()
	return append(out, each...)
}

// seeds asks each address of the job file for the cluster. One that does not answer is a failure only where none does.
func (p Patient) seeds(ctx context.Context, opts []kgo.Opt) (out []Finding, found kadm.BrokerDetails) {
	type answer struct {
		brokers kadm.BrokerDetails
		err     error
	}
	answers := make([]answer, len(p.Job.Stream.Brokers))
	var wg sync.WaitGroup // each has its own element; they end with their contexts
	for i, addr := range p.Job.Stream.Brokers {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, brokerLimit)
			defer cancel()
			cl, err := kgo.NewClient(slices.Concat(opts, []kgo.Opt{kgo.SeedBrokers(addr), kgo.RetryTimeout(brokerLimit), kgo.DialTimeout(brokerLimit), kgo.RequestTimeoutOverhead(brokerLimit)})...)
			if err == nil {
				defer cl.Close()
				answers[i].brokers, err = kadm.NewClient(cl).ListBrokers(ctx)
			}
			answers[i].err = err
		})
	}
	wg.Wait()
	state := Fail
	for _, a := range answers {
		if a.err == nil && len(a.brokers) > len(found) {
			state, found = Warn, a.brokers
		}
	}
	for i, a := range answers {
		if a.err != nil {
			f := ok("broker address "+p.Job.Stream.Brokers[i], "it does not answer: %s", reason(a.err))
			out = append(out, f.but(state, fmt.Sprintf("Is the address right (%s), does a broker listen there, and do network, tls and sasl let this machine in?", place(p.Job, "stream.brokers"))))
		}
	}
	return out, found
}

// reason is why a broker did not answer, without what the client did about it.
func reason(err error) string {
	var op *net.OpError
	switch {
	case errors.As(err, &op) && !op.Timeout():
		return op.Error()
	case op != nil, errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no answer within %v", brokerLimit)
	}
	return err.Error()
}

// place is where in the job file something stands.
func place(j *job.Job, path string) string {
	return job.Place(j.Range(path))
}

func askBroker(ctx context.Context, cl *kgo.Client, b kadm.BrokerDetail) Finding {
	ctx, cancel := context.WithTimeout(ctx, brokerLimit)
	defer cancel()
	check := fmt.Sprintf("broker %d", b.NodeID)
	addr := net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	req := func() error {
		_, err := cl.Broker(int(b.NodeID)).Request(ctx, kmsg.NewPtrMetadataRequest())
		return err
	}
	err := req() // the first one connects
	began := time.Now()
	if err == nil {
		err = req()
	}
	took := time.Since(began)
	f := ok(check, "%s answers in %s", addr, job.Length(took))
	switch {
	case err != nil:
		return ok(check, "%s, the address that it tells its clients, does not answer: %s", addr, reason(err)).
			but(Fail, "Set the broker's advertised.listeners to an address that this machine and the workers' machines reach, or open the way to this one.")
	case took > slowAnswer:
		return f.but(Warn, "Run the scheduler and the workers nearer to the brokers: every look and every fetch waits that long.")
	}
	return f
}

func (p Patient) topic(ctx context.Context) []Finding {
	j := p.Job
	info, diags, err := askStream(ctx, j)
	if err != nil {
		return []Finding{ok("topic", "%v", err).but(Fail, "")}
	}
	if info.Exists && p.Unread == nil && !p.unsound("name", "checkpoint.dir") {
		diags = append(diags, core.CheckResume(ctx, j, p.Wanted)...)
	}
	settings := ""
	if info.CleanupPolicy != "" {
		settings = ", cleanup.policy " + info.CleanupPolicy
	}
	switch {
	case info.Retention > 0:
		settings += ", keeps records for " + job.FormatDuration(info.Retention)
	case info.Retention < 0:
		settings += ", keeps records for ever"
	}
	return judged("topic", diags, ok("topic", "%s: %s%s", j.Stream.Topic, job.Count(info.Partitions, "partition"), settings))
}

func (p Patient) records(ctx context.Context, newest *atomic.Int64) []Finding {
	found, diags, err := CheckRecords(ctx, p.Job)
	if err != nil {
		return []Finding{ok("records", "%v", err).but(Fail, "")}
	}
	if !found.Newest.IsZero() {
		newest.Store(found.Newest.UnixNano())
	}
	if p.Job.Model.Kind == job.ModelCounting {
		return []Finding{ok("records", "a counting job looks into no record")}
	}
	return judged("records", diags, ok("records", "%s read as committed; all fields of the features are there", job.Count(len(found.Values), "newest record")))
}

// The bit of Kafka's authorised operations that says that a topic may be written (AclOperation WRITE), and the value for not known.
const (
	mayWrite       = 1 << 4
	operationsMute = -1 << 31
)

func (p Patient) deadLetter(ctx context.Context) []Finding {
	const check = "dead-letter topic"
	j := p.Job
	if j.Stream.DeadLetter == "" && j.Stream.OnUndecodable == job.OnLostSkip {
		return []Finding{ok(check, "the job names none, and skips records that cannot be decoded")}
	}
	if j.Stream.DeadLetter == "" {
		return []Finding{ok(check, "the job names none").but(Warn, "A record that cannot be decoded stops its partition: create a topic and name it in stream.dead_letter.")}
	}
	opts, err := core.KafkaOpts(j)
	if err != nil {
		return []Finding{ok(check, "%v", err).but(Fail, "")}
	}
	info := askTopic(ctx, j.Stream.Brokers, j.Stream.DeadLetter, opts)
	fine := ok(check, "%s: %s", j.Stream.DeadLetter, job.Count(info.Partitions, "partition"))
	if diags := j.DeadLetterDiagnostics(info); len(diags) > 0 {
		return judged(check, diags, fine)
	}
	switch operations, err := authorised(ctx, slices.Concat(opts, []kgo.Opt{kgo.SeedBrokers(j.Stream.Brokers...)}), j.Stream.DeadLetter); {
	case err != nil:
		return []Finding{ok(check, "%s: the brokers do not say whether it may be written: %v", j.Stream.DeadLetter, err).but(Warn, "See that the job's user may write it.")}
	case operations == operationsMute:
		fine.Says += "; the brokers do not tell who may write it"
	case operations&mayWrite == 0:
		return []Finding{ok(check, "%s may not be written by this user", j.Stream.DeadLetter).but(Fail, "Allow the user of stream.sasl to WRITE to it: the first record that cannot be decoded would stop its partition.")}
	default:
		fine.Says += ", may be written"
	}
	return []Finding{fine}
}

// authorised is what this user may do with a topic, as the bits of Kafka's AclOperation.
func authorised(ctx context.Context, opts []kgo.Opt, topic string) (int32, error) {
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &topic
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return 0, err
	}
	if len(resp.Topics) != 1 {
		return 0, fmt.Errorf("they answered for %s", job.Count(len(resp.Topics), "topic"))
	}
	return resp.Topics[0].AuthorizedOperations, nil
}

// recordsClock holds the records' timestamps against this machine's clock, of the newest one and of what enters meanwhile.
func (p Patient) recordsClock(ctx context.Context, newest int64) []Finding {
	now := time.Now()
	opts, err := core.KafkaOpts(p.Job)
	if err != nil {
		return datedBy(now, newest, 0, "")
	}
	cl, err := traffic.NewClient(traffic.ClientOptions{Brokers: p.Job.Stream.Brokers, Topic: p.Job.Stream.Topic, Opts: opts})
	if err != nil {
		return datedBy(now, newest, 0, "")
	}
	defer cl.Close()
	info, err := cl.Topic(ctx)
	if err != nil {
		return datedBy(now, newest, 0, "")
	}
	skew, _, err := cl.Skew(ctx)
	if err != nil {
		skew = 0 // the newest record tells what it can
	}
	if last, ok := lastDated(ctx, cl, now); ok {
		newest = last.UnixNano()
	}
	out := datedBy(now, newest, skew, info.TimestampType)
	found, err := cl.Ahead(ctx, skew, traffic.AheadLeast)
	if err != nil || len(found) == 0 {
		return out
	}
	says := "in " + job.Count(len(found), "partition") + " " + found[0].String()
	if len(found) == 1 {
		says = found[0].String()
	}
	return append(out, ok("records' clock", "%s", says).
		but(Warn, "A scheduler that starts before that time lacks the arrivals since it was written: "+traffic.AheadAdvice+"."))
}

// lastDated is the date of the newest of the records with which partitions end, and leaves out those that are dated ahead where not all are: a single one is no sign
// of a wrong clock.
func lastDated(ctx context.Context, cl *traffic.Client, now time.Time) (newest time.Time, ok bool) {
	stamps, _, err := cl.LastStamps(ctx)
	if err != nil {
		return newest, false
	}
	for _, at := range stamps {
		switch ahead, had := at.Sub(now) > aheadLimit, newest.Sub(now) > aheadLimit; {
		case !ok, had && !ahead, had == ahead && at.After(newest):
			newest, ok = at, true
		}
	}
	return newest, ok
}

// datedBy judges by how much records are dated ahead of this machine's clock when they enter (negative: behind), as far as that is known, and the newest record's
// timestamp: lag in seconds is their difference. by is the topic's message.timestamp.type.
func datedBy(now time.Time, unixNano int64, skew time.Duration, by string) []Finding {
	const check = "records' clock"
	whose, why := "", "the producers' clock is behind, or they write that late"
	if by == "LogAppendTime" {
		whose, why = ", by the brokers' clock", "message.timestamp.type is LogAppendTime, so that it is the brokers' clock that is behind"
	}
	if unixNano == 0 && skew > 0 {
		unixNano = now.Add(skew).UnixNano()
	}
	if skew < 0 {
		return []Finding{ok(check, "records are dated %s behind this machine's clock when they enter: %s", job.Length(-skew.Round(time.Second)), why).
			but(Warn, "Set the clocks of this machine, of the brokers and of the producers by the same time server (NTP): the lag in seconds of what waited while no scheduler looked is too long by that much.")}
	}
	if unixNano == 0 {
		return []Finding{{Check: check, State: Skip, Says: "no record was read whose timestamp could be held against this clock"}}
	}
	newest := time.Unix(0, unixNano)
	ahead := newest.Sub(now)
	if newest.UTC().Year() < 1980 { // 0, or seconds taken for milliseconds
		return []Finding{ok(check, "the newest record is dated %s: it has no usable timestamp", newest.UTC().Format(time.RFC3339)).
			but(Warn, "Have its producer set the timestamp, in milliseconds, or set the topic's message.timestamp.type to LogAppendTime: how long such records wait is not known after the scheduler was away.")}
	}
	if ahead > aheadLimit {
		return []Finding{ok(check, "the newest record is of %s, %s ahead of this machine's clock%s", newest.Format(time.RFC3339), job.Length(ahead), whose).
			but(Warn, "Set the clocks of this machine, of the brokers and of the producers by the same time server (NTP): the lag in seconds of what waited while no scheduler looked is too short by that much.")}
	}
	return []Finding{ok(check, "the newest record is %s old%s", job.Length(max(-ahead, 0)), whose)}
}
