package stream

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TopicSpec is a topic that a broker should have.
type TopicSpec struct {
	Name       string
	Partitions int               // 1 or more
	Config     map[string]string // Kafka's topic settings, such as retention.ms; used only when the topic is created
}

// BrokerOptions say where an embedded broker listens and keeps its log.
type BrokerOptions struct {
	Addr    string // host:port, a loopback address as a rule; empty means 127.0.0.1 and a free port
	DataDir string // created when absent; empty keeps the log in memory, where it ends with the process
	Topics  []TopicSpec
	// Clean is how often what is beyond retention.ms or retention.bytes is removed; 0 means never. Logs are not compacted.
	Clean time.Duration
	// Advertise is the host:port that clients are told to connect to, for a broker behind a proxy; empty means where it listens.
	Advertise string
}

// MostPartitions is how many partitions a topic of an embedded broker may have: measured, so many are created in 0.5 s, and 10,000 written down at the end in 3 s.
const MostPartitions = 100_000

const topicPoll = 20 * time.Millisecond

// topicName is what Kafka accepts; kfake accepts more.
var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

// Broker is an embedded Kafka broker: franz-go's kfake in this process, speaking Kafka's protocol on a TCP port.
//
// With a DataDir, every record that a producer was told is written survives kill -9 of this process: it is in the
// page cache of the operating system by then. A power cut may lose the last seconds, as it may with Kafka's defaults.
type Broker struct {
	cluster   *kfake.Cluster
	addr      string
	stopClean func() // ends the cleaner and waits for it
	unlock    func()
	once      sync.Once
}

// OpenBroker starts a broker and creates the topics that it lacks; one that exists with fewer partitions is grown, with
// more it keeps them, with a warning in the log. Topics are created here and never by a client's metadata request, because kfake forgets those
// when it is killed. A data folder serves one broker at a time. ctx bounds the opening only: end with [Broker.Close].
func OpenBroker(ctx context.Context, lg *slog.Logger, o BrokerOptions) (_ *Broker, err error) {
	lg = orSilent(lg)
	host, port, err := o.validate()
	if err != nil {
		return nil, err
	}
	b := &Broker{stopClean: func() {}, unlock: func() {}}
	defer func() {
		if err != nil {
			b.Close()
		}
	}()

	opts := []kfake.Opt{
		kfake.Ports(port),
		kfake.ClusterID("kale-embedded"),
		kfake.WithLogger(kfakeLog{lg}),
		kfake.BrokerConfigs(map[string]string{"log.cleaner.backoff.ms": kfakeClean}),
		kfake.ListenFn(func(network, address string) (net.Listener, error) {
			ln, err := net.Listen(network, net.JoinHostPort(host, strconv.Itoa(port)))
			if err != nil {
				return nil, err
			}
			b.addr = ln.Addr().String()
			if o.Advertise != "" {
				ln = advertised{ln, o.Advertise}
			}
			return ln, nil
		}),
	}
	if o.DataDir != "" {
		unlock, err := claimDataDir(o.DataDir)
		if err != nil {
			return nil, err
		}
		b.unlock = unlock
		opts = append(opts, kfake.DataDir(o.DataDir))
		if err := restoreSequences(lg, o.DataDir); err != nil {
			return nil, fmt.Errorf("open the embedded broker's data folder %s: %w", o.DataDir, err)
		}
	}
	if b.cluster, err = kfake.NewCluster(opts...); err != nil {
		return nil, openError(net.JoinHostPort(host, strconv.Itoa(port)), o.DataDir, err)
	}
	if err := ensureTopics(ctx, lg, b.addr, o.Topics); err != nil {
		return nil, err
	}
	if o.Clean > 0 {
		c, err := newCleaner(lg, b.cluster, b.addr)
		if err != nil {
			return nil, err
		}
		ctx, stop := context.WithCancel(context.Background())
		var done sync.WaitGroup
		done.Go(func() { c.run(ctx, o.Clean) })
		b.stopClean = func() { stop(); done.Wait() }
	}
	lg.Info("embedded broker is up", "addr", b.addr, "data", o.DataDir, "topics", len(o.Topics))
	return b, nil
}

// advertised is a listener that says it is elsewhere: kfake tells clients to connect to where its listener says it is.
type advertised struct {
	net.Listener
	addr string
}

func (a advertised) Addr() net.Addr  { return a }
func (a advertised) Network() string { return "tcp" }
func (a advertised) String() string  { return a.addr }

// Addr is where the broker listens, host:port.
func (b *Broker) Addr() string { return b.addr }

// Brokers is Addr as a client's list of seeds.
func (b *Broker) Brokers() []string { return []string{b.addr} }

// Close stops listening, writes what is left to the data folder and frees it. It may be called more than once.
func (b *Broker) Close() {
	b.once.Do(func() {
		b.stopClean()
		if b.cluster != nil {
			b.cluster.Close()
		}
		b.unlock()
	})
}

func (o BrokerOptions) validate() (host string, port int, err error) {
	addr := o.Addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("embedded broker address %q: want host:port: %w", o.Addr, err)
	}
	port, err = strconv.Atoi(p)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("embedded broker address %q: the port must be a number from 0 to 65535", o.Addr)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return "", 0, fmt.Errorf("embedded broker address %q: name one address, such as 127.0.0.1: clients are told to connect to it", o.Addr)
	}
	if _, _, err := net.SplitHostPort(o.Advertise); o.Advertise != "" && err != nil {
		return "", 0, fmt.Errorf("embedded broker: advertised address %q: want host:port: %w", o.Advertise, err)
	}
	seen := map[string]bool{}
	for _, t := range o.Topics {
		switch {
		case t.Name == "":
			return "", 0, errors.New("embedded broker: a topic without a name")
		case !topicName.MatchString(t.Name) || t.Name == "." || t.Name == "..":
			return "", 0, fmt.Errorf("embedded broker: topic %q: a name has 1 to 249 letters, digits, dots, dashes and underscores", t.Name)
		case t.Partitions < 1:
			return "", 0, fmt.Errorf("embedded broker: topic %q has %d partitions; it needs at least 1", t.Name, t.Partitions)
		case t.Partitions > MostPartitions:
			return "", 0, fmt.Errorf("embedded broker: topic %q has %d partitions; it may have %d at most", t.Name, t.Partitions, MostPartitions)
		case seen[t.Name]:
			return "", 0, fmt.Errorf("embedded broker: topic %q is named twice", t.Name)
		}
		seen[t.Name] = true
	}
	return host, port, nil
}

// claimDataDir creates dir, proves that it can be written and locks it for this process until unlock is called.
func claimDataDir(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create the embedded broker's data folder %s: %w; choose a folder that you may write", dir, err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "broker.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("write in the embedded broker's data folder %s: %w; choose a folder that you may write", dir, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("the embedded broker's data folder %s is used by another broker: stop that one, or choose another folder", dir)
		}
		return nil, fmt.Errorf("lock the embedded broker's data folder %s: %w", dir, err)
	}
	return func() { f.Close() }, nil
}

func openError(addr, dir string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("start the embedded broker: %s is in use: stop what listens there, or choose another port: %w", addr, err)
	case errors.Is(err, syscall.EACCES) || errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("start the embedded broker on %s with its data in %q: not permitted: %w", addr, dir, err)
	}
	return fmt.Errorf("start the embedded broker on %s with its data in %q: %w", addr, dir, err)
}

// EnsureTopics creates the topics that the cluster lacks and grows those that have fewer partitions than asked, and waits
// until they can be used. One with more partitions than asked is an error: Kafka cannot take partitions away. New topics
// get one replica.
func EnsureTopics(ctx context.Context, opts []kgo.Opt, topics []TopicSpec) error {
	return eachTopic(opts, topics, func(adm *kadm.Client, t TopicSpec) error { return ensureTopic(ctx, adm, t) })
}

// eachTopic does something for topics with one client.
func eachTopic(opts []kgo.Opt, topics []TopicSpec, ensure func(*kadm.Client, TopicSpec) error) error {
	// What the client knows of topics must not be older than a look at them: its own 5 s would be waited for after each creation.
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.AlwaysRetryEOF(), kgo.MetadataMinAge(topicPoll)}, opts...)...)
	if err != nil {
		return fmt.Errorf("create topics: %w", err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	for _, t := range topics {
		if err := ensure(adm, t); err != nil {
			return fmt.Errorf("create topic %q with %d partitions: %w", t.Name, t.Partitions, err)
		}
	}
	return nil
}

// ensureTopics is EnsureTopics for an embedded broker, which starts again with topics that a client has grown meanwhile.
func ensureTopics(ctx context.Context, lg *slog.Logger, addr string, topics []TopicSpec) error {
	if len(topics) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return eachTopic([]kgo.Opt{kgo.SeedBrokers(addr)}, topics, func(adm *kadm.Client, t TopicSpec) error {
		err := ensureTopic(ctx, adm, t)
		if more := tooMany(0); errors.As(err, &more) {
			lg.Warn("the topic has more partitions than were asked for, and keeps them: they cannot be made fewer", "topic", t.Name, "has", int(more), "asked", t.Partitions)
			t.Partitions = int(more)
			err = awaitTopic(ctx, adm, t)
		}
		return err
	})
}

// tooMany is how many partitions a topic has of which fewer were asked for.
type tooMany int

func (n tooMany) Error() string {
	return fmt.Sprintf("it exists with %d partitions, which cannot be made fewer: ask for %[1]d, or use another topic", int(n))
}

func ensureTopic(ctx context.Context, adm *kadm.Client, t TopicSpec) error {
	config := make(map[string]*string, len(t.Config))
	for k, v := range t.Config {
		config[k] = &v
	}
	_, err := adm.CreateTopic(ctx, int32(t.Partitions), 1, config, t.Name)
	switch {
	case err == nil:
		return awaitTopic(ctx, adm, t)
	case !errors.Is(err, kerr.TopicAlreadyExists):
		return err
	}
	has, err := adm.ListTopics(ctx, t.Name)
	if err != nil {
		return err
	}
	switch n := len(has[t.Name].Partitions); {
	case n > t.Partitions:
		return tooMany(n)
	case n < t.Partitions:
		r, err := adm.UpdatePartitions(ctx, t.Partitions, t.Name)
		if err != nil {
			return err
		}
		if err := r[t.Name].Err; err != nil {
			return err
		}
	}
	return awaitTopic(ctx, adm, t)
}

// awaitTopic waits until the brokers know the topic with all its partitions, each with a leader: they say that it is
// created a little before.
func awaitTopic(ctx context.Context, adm *kadm.Client, t TopicSpec) error {
	for {
		has, err := adm.ListTopics(ctx, t.Name)
		if err != nil {
			return err
		}
		td := has[t.Name]
		led := 0
		for _, p := range td.Partitions {
			if p.Err == nil && p.Leader >= 0 {
				led++
			}
		}
		if td.Err == nil && led == t.Partitions {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it was created, but %d of %d partitions can be used by now: %w", led, t.Partitions, ctx.Err())
		case <-time.After(topicPoll):
		}
	}
}

// kfakeLog hands kfake's warnings and errors to slog; its other lines are one per request.
type kfakeLog struct{ lg *slog.Logger }

func (k kfakeLog) Logf(level kfake.LogLevel, format string, args ...any) {
	switch level {
	case kfake.LogLevelError:
		k.lg.Error("embedded broker", "said", fmt.Sprintf(format, args...))
	case kfake.LogLevelWarn:
		k.lg.Warn("embedded broker", "said", fmt.Sprintf(format, args...))
	}
}

func orSilent(lg *slog.Logger) *slog.Logger {
	if lg == nil {
		return slog.New(slog.DiscardHandler)
	}
	return lg
}
