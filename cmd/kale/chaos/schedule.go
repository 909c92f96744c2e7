package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Kind is a kind of fault.
type Kind string

// What can be done to a job on any site. Kill is SIGKILL; stop is SIGSTOP, with SIGCONT after Fault.For.
const (
	KillWorker    Kind = "kill-worker"
	KillServer    Kind = "kill-server" // a parameter server without the chief
	KillChief     Kind = "kill-chief"  // server 0
	KillScheduler Kind = "kill-scheduler"
	KillPlugin    Kind = "kill-plugin"
	KillBroker    Kind = "kill-broker"
	StopWorker    Kind = "stop-worker"
	StopServer    Kind = "stop-server" // any, the chief's too
	StopScheduler Kind = "stop-scheduler"
	StopBroker    Kind = "stop-broker"
	SlowBroker    Kind = "slow-broker"   // every byte to and from it comes late
	CutBroker     Kind = "cut-broker"    // a partition: nothing gets through, no connection ends
	RefuseBroker  Kind = "refuse-broker" // connections are reset, and new ones refused
	SlowServer    Kind = "slow-server"
	CutServer     Kind = "cut-server"
	FillDisk      Kind = "fill-disk" // the checkpoint folder takes no more
	Rescale       Kind = "rescale"   // no fault, but an order that faults then hit
)

// What else can be done where it can be; a site that can bring them about has them among its kinds.
const (
	KillSupervisor Kind = "kill-supervisor" // what starts a process again on its own machine
	KillController Kind = "kill-controller" // slurmctld, a Nomad server
	KillAgent      Kind = "kill-agent"      // what runs the cluster's work on one node, slurmd or a Nomad client: its work lives on
	LoseNode       Kind = "lose-node"       // it goes down with all that runs on it, and comes back
	DrainNode      Kind = "drain-node"      // its administrator takes it out of use, and gives it back
	LateSubmit     Kind = "late-submit"     // a submission is accepted, and its answer is lost
	CancelWork     Kind = "cancel-work"     // somebody else ends one of the job's allocations
	Preempt        Kind = "preempt"         // work of a higher priority takes all places of a node
	FillCluster    Kind = "fill-cluster"    // others take every free place, and wait for those that come free
	EndWalltime    Kind = "end-walltime"    // what runs ends in 60 s, by its time limit
)

// Everywhere are the kinds that need no more than processes, a proxy and a folder, with how many of them a deck has.
func Everywhere() []Share {
	return []Share{
		{KillWorker, 3}, {KillServer, 2}, {KillChief, 2}, {KillScheduler, 1}, {KillPlugin, 1}, {KillBroker, 1},
		{StopWorker, 2}, {StopServer, 2}, {StopScheduler, 1}, {StopBroker, 1},
		{SlowBroker, 1}, {CutBroker, 1}, {RefuseBroker, 1}, {SlowServer, 1}, {CutServer, 1},
		{FillDisk, 1}, {Rescale, 2},
	}
}

// Share is a kind and its number in each deck that is drawn from.
type Share struct {
	Kind   Kind
	Number int
}

// Fault is one entry of a schedule.
type Fault struct {
	Number int           // from 1
	After  time.Duration // since the fault before: they overlap
	Kind   Kind
	For    time.Duration // until it is healed, where it does not pass by itself
	Pick   uint64        // which of those that there are is hit: Pick modulo their number
}

// String is the fault for a journal.
func (f Fault) String() string {
	return fmt.Sprintf("%3d  %-15s pick %d, for %v", f.Number, f.Kind, f.Pick%1000, f.For)
}

// Of gives one of n by the fault's own choice; n must be above 0.
func (f Fault) Of(n int) int { return int(f.Pick % uint64(n)) }

const (
	maxAfter = 2500 * time.Millisecond
	// Lease is how long a trainer may be silent before the chief gives its work to others (core's own setting). Half of the faults with a length last
	// less than it, the others more.
	Lease    = 5 * time.Second
	maxShort = 3 * time.Second
	maxLong  = 4 * time.Second // beyond Lease
)

// Schedule draws n faults. It is a function of its arguments alone, and the first faults of a longer schedule are those of a shorter one. Kinds are drawn as
// from a deck of cards, so that each has its share and none is missing in a run as long as a deck.
func Schedule(seed uint64, n int, shares []Share) []Fault {
	rng := rand.New(rand.NewPCG(seed, uint64(len(shares))))
	var deck []Kind
	for _, s := range shares {
		deck = append(deck, slices.Repeat([]Kind{s.Kind}, s.Number)...)
	}
	if len(deck) == 0 {
		panic("chaos: a schedule of no kinds")
	}
	var out []Fault
	for i := range n {
		at := i % len(deck)
		if at == 0 {
			rng.Shuffle(len(deck), func(a, b int) { deck[a], deck[b] = deck[b], deck[a] })
		}
		f := Fault{Number: i + 1, Kind: deck[at], After: time.Duration(rng.Int64N(int64(maxAfter))).Round(time.Millisecond), Pick: rng.Uint64()}
		if rng.IntN(2) == 0 {
			f.For = time.Duration(rng.Int64N(int64(maxShort)))
		} else {
			f.For = Lease + time.Duration(rng.Int64N(int64(maxLong)))
		}
		f.For = f.For.Round(time.Millisecond)
		out = append(out, f)
	}
	return out
}
