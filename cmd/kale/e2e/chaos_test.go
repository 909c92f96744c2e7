package e2e_test

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/cmd/kale/chaos"
	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/core/stream/kafkatest"
)

// Flags and the variable of TestChaos.
var (
	chaosSeed   = flag.Uint64("seed", 0, "the seed of TestChaos's faults; 0 is that of "+seedEnv+", or a new one")
	chaosFaults = flag.Int("faults", everyDay, "the number of faults that TestChaos applies; above the default it goes to every site that this machine has")
	chaosKinds  = flag.String("kinds", "", "the kinds of TestChaos's faults, with commas between them; all when empty")
	chaosLog    = flag.String("chaos-log", "", "a folder for the journals of TestChaos's faults")
)

const (
	seedEnv  = "KALE_CHAOS_SEED"
	everyDay = 20
	// stormWorkers are more than the topic's six partitions: two have none, and live on what others hand them.
	stormWorkers = 8
	stormRate    = 600 // records/s, most of them in one partition, whose reader cannot train them all
	// mostStopped is how long training may stand still where no fault acts: a lease (5 s), a chief's grace (5 s), the pause of a supervisor whose process has
	// ended again and again while it could not live (5 s), and what a busy machine adds.
	mostStopped = 25 * time.Second
)

// sites are where TestChaos goes: one line for each backend that can run on this machine.
var sites = []*site{here, example, onNomad, onSlurm}

// Faults that a seed draws strike a job under traffic, several at a time and without waiting for anything to settle. When all is healed, every record has
// been trained once, no worker ever ran twice, nothing is left over, and training has stood still for no longer than mostStopped but while a fault acted.
func TestChaos(t *testing.T) {
	t.Parallel()
	for _, s := range sites {
		t.Run(s.backend, func(t *testing.T) {
			t.Parallel()
			if !s.always && *chaosFaults <= everyDay {
				t.Skip("make chaos goes here too")
			}
			t.Run("embedded", func(t *testing.T) {
				t.Parallel()
				weather(t, s, func(proxy string) *kafkatest.Cluster { return kafkatest.EmbeddedBehind(t, proxy) })
			})
			t.Run("kafka", func(t *testing.T) {
				t.Parallel()
				if s != here {
					t.Skip("real Kafka is gone through on this machine's own backend")
				}
				weather(t, s, func(proxy string) *kafkatest.Cluster { return kafkatest.Start(t, kafkatest.Options{Proxy: proxy}) })
			})
		})
	}
}

// seed gives the run's seed, and says in a failure how to have it again.
func seed(t *testing.T) uint64 {
	t.Helper()
	n := *chaosSeed
	if v := os.Getenv(seedEnv); n == 0 && v != "" {
		var err error
		if n, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedEnv, err)
		}
	}
	if n == 0 {
		n = uint64(time.Now().UnixNano())
	}
	t.Cleanup(func() {
		if t.Failed() {
			kinds := ""
			if *chaosKinds != "" {
				kinds = " -kinds " + *chaosKinds
			}
			t.Logf("the same faults again: %s=%d go test ./cmd/kale/e2e -run '^%s$' -faults %d%s", seedEnv, n, t.Name(), *chaosFaults, kinds)
		}
	})
	return n
}

// weather runs a job at a site, through a storm, to its end.
func weather(t *testing.T, s *site, broker func(proxy string) *kafkatest.Cluster) {
	n := seed(t)
	proxy, err := chaos.OpenProxy("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	kafka := broker(proxy.Addr())
	proxy.Lead(kafka.Listens())
	r := newRig(t, kafka, options{
		site: s, min: 2, max: stormWorkers, step: 100 * time.Millisecond, every: time.Second, disk: true, proxied: true,
	})
	schedule := chaos.Schedule(n, *chaosFaults, deck(t, s))
	journal := openJournal(t, n)

	r.run()
	p := r.play(stream.ProduceOptions{
		Curve: stream.Curve{Step: time.Second, Rates: []float64{stormRate}}, Duration: 10 * time.Hour, Skew: 0.7, HotPartitions: 1,
	})
	r.awaitSteady("the job trains", stormWorkers)
	o := observe(r)
	c := &storm{rig: r, broker: proxy, journal: journal, busy: map[string]bool{}}
	began := time.Now()
	c.rage(schedule)
	c.calm()
	o.end(journal, began, time.Now())
	c.nobodyElse()

	if st, err := r.chief(); err != nil || st.GetTotals().GetForwardedRecords() == 0 {
		r.fatalf("no record was forwarded between workers (%v)", err)
	}
	r.finish(p, nil, int64(len(schedule))*stormRate/4)
}

// deck gives the cards of a site, or those of them that are asked for.
func deck(t *testing.T, s *site) []chaos.Share {
	t.Helper()
	all := append(chaos.Everywhere(), s.shares...)
	if *chaosKinds == "" {
		return all
	}
	var out []chaos.Share
	for _, kind := range strings.Split(*chaosKinds, ",") {
		i := slices.IndexFunc(all, func(c chaos.Share) bool { return string(c.Kind) == kind })
		if i < 0 {
			t.Skipf("site %s has no faults of kind %q", s.backend, kind)
		}
		out = append(out, all[i])
	}
	return out
}

// openJournal writes the journal of faults to the test's output and, where a folder is named for it, to a file.
func openJournal(t *testing.T, seed uint64) *chaos.Journal {
	t.Helper()
	var out io.Writer = t.Output()
	if *chaosLog != "" {
		name := string(bytes.ReplaceAll([]byte(t.Name()), []byte("/"), []byte("-")))
		f, err := os.Create(filepath.Join(*chaosLog, fmt.Sprintf("%s-%d.log", name, seed)))
		if err != nil {
			t.Fatalf("open the journal of faults: %v", err)
		}
		t.Cleanup(func() { f.Close() })
		out = io.MultiWriter(out, f)
	}
	return chaos.NewJournal(out, seed, *chaosFaults, time.Now())
}
