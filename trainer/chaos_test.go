package trainer

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/rpc"
)

// TestRule19TheCheckCanFail: the same run as TestRule10ServerForgets, on tablets that apply every push, duplicates included: the sums must show it.
func TestRule19TheCheckCanFail(t *testing.T) {
	c := broker(t, 1)
	cl := producer(t, c)
	j := startJob(t, jobSpec(t, c, func(s *rpc.TrainSpec) { s.UnsafeNoDedup = true }))
	j.worker(0, 1)
	produce(t, cl, 0, 300)
	j.waitApplied(map[int32]int64{0: 300})
	j.crash(1) // its tablets have nothing any more; those of server 0 get everything a second time
	ends := map[int32]int64{0: 300}
	j.waitFor("server 1 has everything again", func(s *rpc.JobStatus) bool {
		return s.GetPartitions()[0].GetApplied() >= 300 && len(s.GetServers()) == 2 && s.GetServers()[1].GetInfo().GetIncarnation() == j.servers[1].inc
	})
	if d := j.differences(readLog(t, c, ends), nil); len(d) == 0 {
		t.Error("records were applied twice, and the sums do not show it")
	}
}

// TestChaosTrainsEachRecordOnce: workers die, are replaced, drain and lose their sessions, servers die with and without a snapshot, the chief among them,
// while records arrive, plainly and in transactions of which some are aborted. In the end every tablet has each record once.
func TestChaosTrainsEachRecordOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	seeds := uint64(4)
	if n, err := strconv.ParseUint(os.Getenv("KALE_CHAOS_SEEDS"), 10, 64); err == nil {
		seeds = n // a longer soak
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { chaos(t, seed) })
	}
}

// troublemaker is the state of one chaotic run.
type troublemaker struct {
	*job
	rng         *rand.Rand
	cl, tx      *kgo.Client
	kill        map[int]func() // running workers by rank
	generations uint64
	generation  [3]uint64 // of each rank's last process
	worked      map[string]int
	workers     [3]*worker
}

func chaos(t *testing.T, seed uint64) {
	const partitions = 3
	c := broker(t, partitions)
	j := startJob(t, jobSpec(t, c, func(s *rpc.TrainSpec) {
		s.Worker.Queue, s.Worker.Window, s.Worker.EmulateStepMs = 96, 1024, 3
		s.LeaseTimeoutMs, s.GraceMs = 700, 700
	}))
	m := &troublemaker{
		job: j, rng: rand.New(rand.NewPCG(seed, 77)), kill: map[int]func(){}, worked: map[string]int{},
		cl: producer(t, c), tx: producer(t, c, kgo.TransactionalID("tx")),
	}
	for rank := range 3 {
		m.spawn(rank)
	}
	for range 40 {
		m.records(partitions)
		m.trouble()
		if m.rng.IntN(3) == 0 {
			m.letItTrain()
		}
	}
	for rank := range 3 {
		if m.kill[rank] == nil {
			m.spawn(rank)
		}
	}
	ends := lastStable(t, m.cl)
	j.waitApplied(ends)
	log := readLog(t, c, ends)
	n := 0
	for _, l := range log {
		n += len(l)
	}
	t.Logf("%d records, %v", n, m.worked)
	j.checkOnce(log, nil)
}

func (m *troublemaker) spawn(rank int) {
	m.generations++
	m.generation[rank] = m.generations
	m.kill[rank], m.workers[rank] = m.killableWorker(rank, m.generations)
}

// records writes some, to one partition.
func (m *troublemaker) records(partitions int) {
	p, n := int32(m.rng.IntN(partitions)), 20+m.rng.IntN(200)
	if m.rng.IntN(3) > 0 {
		produce(m.t, m.cl, p, n)
		return
	}
	if err := m.tx.BeginTransaction(); err != nil {
		m.t.Fatal(err)
	}
	produce(m.t, m.tx, p, n)
	if err := m.tx.EndTransaction(m.t.Context(), kgo.TransactionEndTry(m.rng.IntN(2) == 0)); err != nil {
		m.t.Fatal(err)
	}
}

// trouble does one thing that must not matter.
func (m *troublemaker) trouble() {
	rank, server := m.rng.IntN(3), m.rng.IntN(2)
	what := m.rng.IntN(10)
	switch {
	case what < 3 && m.kill[rank] != nil:
		m.worked["killed"]++
		m.kill[rank]()
		delete(m.kill, rank)
	case what < 5 && m.kill[rank] == nil:
		m.worked["started"]++
		m.spawn(rank)
	case what == 5:
		m.worked["snapshots"]++
		m.servers[server].snapshot()
	case what == 6:
		m.worked[fmt.Sprint("server ", server)]++
		m.crash(server)
	case what == 7 && m.kill[rank] != nil:
		m.worked["expelled"]++
		m.ask(func(c rpc.ChiefClient) error {
			_, err := c.Join(m.t.Context(), &rpc.JoinRequest{Member: fmt.Sprint("worker-", rank), Generation: m.generation[rank], Address: "127.0.0.1:1",
				StartedUnixMs: m.workers[rank].started.UnixMilli()})
			return err
		})
	case what == 8 && len(m.kill) > 1:
		m.worked["drained"]++
		m.ask(func(c rpc.ChiefClient) error {
			_, err := c.Drain(m.t.Context(), &rpc.DrainRequest{Members: []string{fmt.Sprint("worker-", rank)}})
			return err
		})
		delete(m.kill, rank)
	default:
		m.letItTrain()
	}
}

// letItTrain waits for some progress, or for the end of the log, so that the next trouble meets another state.
func (m *troublemaker) letItTrain() {
	if len(m.kill) == 0 {
		return
	}
	m.worked["let it train"]++
	ends := lastStable(m.t, m.cl)
	left := func() (offsets int64) {
		s := m.status()
		if s == nil {
			return -1
		}
		for _, p := range s.GetPartitions() {
			offsets += max(0, ends[p.GetPartition()]-p.GetApplied())
		}
		return offsets
	}
	goal := int64(0)
	if now := left(); now > 0 {
		goal = m.rng.Int64N(now)
	}
	eventually(m.t, func() bool { now := left(); return now >= 0 && now <= goal }, func() string {
		b, _ := json.MarshalIndent(m.status(), "", " ")
		why := fmt.Sprintf("training to come within %d offsets of the ends %v\nlast status: %s", goal, ends, b)
		for _, w := range m.workers {
			why += "\n" + w.dump()
		}
		return why
	})
}

// ask speaks to the chief; one that is just not there is no failure of the test.
func (m *troublemaker) ask(f func(rpc.ChiefClient) error) {
	c, done, err := m.chief()
	if err != nil {
		return
	}
	defer done()
	if err := f(c); err != nil {
		m.t.Logf("asked in vain: %v", err)
	}
}
