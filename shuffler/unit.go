package shuffler

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Mode is one of the paper's three ways to spread chunks (Kale §3.5, table "none, basic, advanced").
type Mode int

const (
	// None trains every chunk where it was read.
	None Mode = iota
	// Basic spreads every chunk evenly over all workers, itself included, whatever the queues look like.
	Basic
	// Advanced forwards only what the local queue has no room for. It is the paper's method.
	Advanced
)

var modeNames = [...]string{None: "none", Basic: "basic", Advanced: "advanced"}

// String returns the name that job files use.
func (m Mode) String() string {
	if m < 0 || int(m) >= len(modeNames) {
		return fmt.Sprintf("Mode(%d)", int(m))
	}
	return modeNames[m]
}

// ParseMode reads "none", "basic" or "advanced"; the empty string means advanced.
func ParseMode(s string) (Mode, error) {
	if s == "" {
		return Advanced, nil
	}
	if i := slices.Index(modeNames[:], s); i >= 0 {
		return Mode(i), nil
	}
	return None, fmt.Errorf("forwarding mode %q is not one of %s", s, strings.Join(modeNames[:], ", "))
}

// Chunk is a contiguous run of one partition's records that is queued, forwarded and trained as one. Body is the caller's.
type Chunk[T any] struct {
	// ID is the origin's number of the chunk, unique among the chunks that one Unit holds.
	ID uint64
	// Records counts what the chunk adds to a queue. A chunk without records (a hole in the stream) is always kept.
	Records int
	Body    T
}

// Verdict says what to do with a chunk.
type Verdict int

const (
	// Wait means that nobody has room: offer the chunk again later, and read no more meanwhile.
	Wait Verdict = iota
	// Keep means that the chunk is now in the local queue.
	Keep
	// Forward means that the chunk is to be sent to Decision.Peer; the Unit keeps it until Settle.
	Forward
)

// String names the verdict for logs and tests.
func (v Verdict) String() string {
	switch v {
	case Wait:
		return "wait"
	case Keep:
		return "keep"
	case Forward:
		return "forward"
	}
	return fmt.Sprintf("Verdict(%d)", int(v))
}

// Decision is the fate of one chunk.
type Decision[T any] struct {
	Verdict Verdict
	// Peer is the receiver when Verdict is Forward.
	Peer  string
	Chunk Chunk[T]
}

// Options are the bounds of a Unit. The zero value of each bound but Capacity means its default.
type Options struct {
	Mode Mode
	// Capacity of the local queue, records.
	Capacity int
	// Upper and Lower bound, as shares of Capacity, between which the readiness to accept forwarded chunks keeps its last value:
	// refuse above Upper, accept again below Lower. Defaults 0.75 and 0.5 [ours: the paper names the bounds without values].
	Upper, Lower float64
	// InFlight is the most records that may be with peers and not settled. Default: 4 × Capacity for each peer, so that the one reader of a hot
	// partition can keep all of them busy: a peer has as much as its upper bound in its queue, a batch or two that it trains, and what is trained and not
	// settled, which takes a few beats.
	InFlight int
	// Unanswered is the most records that may be on their way to one peer, neither accepted nor refused: its word that it accepts is late by the time of a
	// message, and what it refuses comes back beyond the capacity. One chunk may always be. Default: Capacity / 2.
	Unanswered int
}

// Validate reports the first bound that makes no sense.
func (o Options) Validate() error {
	switch {
	case o.Mode < None || o.Mode > Advanced:
		return fmt.Errorf("shuffler: unknown mode %d", int(o.Mode))
	case o.Capacity <= 0:
		return fmt.Errorf("shuffler: queue capacity is %d records, must be at least 1", o.Capacity)
	case o.Upper < 0 || o.Upper > 1 || o.Lower < 0 || o.Lower > 1:
		return fmt.Errorf("shuffler: bounds %g and %g must be shares of the capacity, 0 to 1", o.Lower, o.Upper)
	case o.Upper > 0 && o.Lower > o.Upper:
		return fmt.Errorf("shuffler: lower bound %g is above the upper bound %g", o.Lower, o.Upper)
	case o.InFlight < 0:
		return fmt.Errorf("shuffler: at most %d records in flight makes no sense", o.InFlight)
	case o.Unanswered < 0:
		return fmt.Errorf("shuffler: at most %d records unanswered makes no sense", o.Unanswered)
	}
	return nil
}

// inFlightPerPeer is how many times the capacity of a queue may be away for each peer.
const inFlightPerPeer = 4

func (o Options) withDefaults() Options {
	if o.Upper == 0 {
		o.Upper = 0.75
	}
	if o.Lower == 0 {
		o.Lower = min(0.5, o.Upper)
	}
	if o.Unanswered == 0 {
		o.Unanswered = o.Capacity / 2
	}
	return o
}

// Unit is one worker's shuffle unit: its local queue, what it has forwarded, and what it knows of its peers.
type Unit[T any] struct {
	opts Options
	rng  *rand.Rand

	queue   []Chunk[T] // in the order of their numbers: what came back is where it was
	back    []Chunk[T] // what came back and has found neither room nor another peer yet, in the order of their numbers
	queued  int        // records in queue
	waiting int        // records in back
	refuses bool       // hysteresis state
	closed  bool       // draining: refuses for good

	peers    []peer             // sorted by name, so that no map order decides
	away     map[uint64]sent[T] // forwarded and not settled
	awayRecs int                // records in away
	next     int                // Basic: whose turn it is
}

type peer struct {
	name          string
	accepting     bool
	hasPartitions bool
	unanswered    int // records
}

type sent[T any] struct {
	chunk    Chunk[T]
	peer     string
	answered bool
}

// New returns a Unit with an empty queue and no peers. rng chooses receivers; seed it to make a run repeatable.
func New[T any](opts Options, rng *rand.Rand) (*Unit[T], error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if rng == nil {
		return nil, fmt.Errorf("shuffler: a source of chance is needed to choose receivers")
	}
	return &Unit[T]{opts: opts.withDefaults(), rng: rng, away: make(map[uint64]sent[T])}, nil
}

// Offer places a chunk that this worker has read. On Keep it is in the local queue; on Forward it is to be sent to the named peer and
// is kept until Settle; on Wait nothing has changed. What came back goes first: until it is placed, others wait.
func (u *Unit[T]) Offer(c Chunk[T]) Decision[T] {
	if d, ok := u.place(c, len(u.back) > 0); ok {
		return d
	}
	return Decision[T]{Verdict: Wait, Chunk: c}
}

// Again places a chunk that came back, if that can be done now. Ask until it says false whenever a peer accepts, or has accepted.
func (u *Unit[T]) Again() (Decision[T], bool) {
	if len(u.back) == 0 {
		return Decision[T]{}, false
	}
	c := u.back[0]
	d, ok := u.place(c, false)
	if ok {
		u.back = slices.Delete(u.back, 0, 1)
		u.waiting -= c.Records
	}
	return d, ok
}

// returned places a chunk that came back. It cannot wait at the source: where there is neither room nor another peer it is kept until there
// is. (In front of the queue, beyond its capacity, it would be passed by every chunk that comes back after it, and with peers that refuse
// often the queue would grow, with the oldest chunks at its end.)
func (u *Unit[T]) returned(c Chunk[T]) Decision[T] {
	if d, ok := u.place(c, false); ok {
		return d
	}
	u.back = insert(u.back, c)
	u.waiting += c.Records
	return Decision[T]{Verdict: Keep, Chunk: c}
}

// insert keeps the order of numbers.
func insert[T any](list []Chunk[T], c Chunk[T]) []Chunk[T] {
	i, _ := slices.BinarySearchFunc(list, c.ID, func(o Chunk[T], id uint64) int { return cmp.Compare(o.ID, id) })
	return slices.Insert(list, i, c)
}

// place decides for a chunk of our own. False: nobody has room, or others go first; a chunk without records takes no room.
func (u *Unit[T]) place(c Chunk[T], last bool) (Decision[T], bool) {
	if last && c.Records > 0 {
		return Decision[T]{}, false
	}
	if c.Records > 0 && u.opts.Mode != None && !u.closed && u.awayRecs+c.Records <= u.inFlight() && (u.opts.Mode == Basic || !u.room(c)) {
		if p, ok := u.choose(c); ok {
			return u.send(c, p), true
		}
	}
	if !u.room(c) {
		return Decision[T]{}, false
	}
	u.push(c)
	return Decision[T]{Verdict: Keep, Chunk: c}, true
}

// inFlight is the most records that may be away.
func (u *Unit[T]) inFlight() int {
	if u.opts.InFlight > 0 {
		return u.opts.InFlight
	}
	return inFlightPerPeer * u.opts.Capacity * len(u.peers)
}

// choose names the peer that gets a chunk, if one does.
func (u *Unit[T]) choose(c Chunk[T]) (string, bool) {
	if u.opts.Mode == Basic {
		return u.turn(c)
	}
	return u.receiver(c)
}

// room reports whether the local queue can hold the chunk. An empty queue holds any chunk, so that one that is larger than the
// capacity is not stuck.
func (u *Unit[T]) room(c Chunk[T]) bool {
	return c.Records == 0 || u.queued == 0 || u.queued+c.Records <= u.opts.Capacity
}

func (u *Unit[T]) push(c Chunk[T]) {
	u.queue = insert(u.queue, c)
	u.queued += c.Records
	u.settleState()
}

func (u *Unit[T]) send(c Chunk[T], to string) Decision[T] {
	if _, twice := u.away[c.ID]; twice {
		panic(fmt.Sprintf("shuffler: chunk %d is forwarded while it is already with a peer", c.ID))
	}
	u.away[c.ID] = sent[T]{chunk: c, peer: to}
	u.awayRecs += c.Records
	if i, ok := u.find(to); ok {
		u.peers[i].unanswered += c.Records
	}
	return Decision[T]{Verdict: Forward, Peer: to, Chunk: c}
}

// takes reports whether a peer may be sent a chunk now.
func (u *Unit[T]) takes(p peer, c Chunk[T]) bool {
	return p.accepting && (p.unanswered == 0 || p.unanswered+c.Records <= u.opts.Unanswered)
}

// receiver chooses uniformly among the peers that may be sent a chunk, those without partitions first.
func (u *Unit[T]) receiver(c Chunk[T]) (string, bool) {
	for _, withPartitions := range []bool{false, true} {
		n := 0
		for _, p := range u.peers {
			if u.takes(p, c) && p.hasPartitions == withPartitions {
				n++
			}
		}
		if n == 0 {
			continue
		}
		k := u.rng.IntN(n)
		for _, p := range u.peers {
			if u.takes(p, c) && p.hasPartitions == withPartitions {
				if k == 0 {
					return p.name, true
				}
				k--
			}
		}
	}
	return "", false
}

// turn is Basic's even spread: the members in order, ourselves first; false means that it is our own turn. A peer that may not be sent
// the chunk loses its turn, since nothing may be dropped.
func (u *Unit[T]) turn(c Chunk[T]) (string, bool) {
	for range len(u.peers) + 1 {
		i := u.next % (len(u.peers) + 1)
		u.next = i + 1
		if i == 0 {
			return "", false
		}
		if p := u.peers[i-1]; u.takes(p, c) {
			return p.name, true
		}
	}
	return "", false
}

// Receive takes a chunk that a peer has forwarded into the local queue, or refuses it. It will never be forwarded again: it leaves
// only by Take.
func (u *Unit[T]) Receive(c Chunk[T]) bool {
	if !u.Accepting() {
		return false
	}
	u.push(c)
	return true
}

// Take removes the next chunk from the local queue.
func (u *Unit[T]) Take() (Chunk[T], bool) {
	if len(u.queue) == 0 {
		var none Chunk[T]
		return none, false
	}
	c := u.queue[0]
	u.queue[0] = Chunk[T]{}
	u.queue = u.queue[1:]
	u.queued -= c.Records
	u.refill()
	return c, true
}

// refill moves what came back into the queue as far as there is room.
func (u *Unit[T]) refill() {
	for len(u.back) > 0 && u.room(u.back[0]) {
		c := u.back[0]
		u.back = slices.Delete(u.back, 0, 1)
		u.waiting -= c.Records
		u.queue = insert(u.queue, c)
		u.queued += c.Records
	}
	u.settleState()
}

// settleState applies the hysteresis of §3.5 to the queue as it is now.
func (u *Unit[T]) settleState() {
	fill := float64(u.queued) / float64(u.opts.Capacity)
	switch {
	case fill > u.opts.Upper:
		u.refuses = true
	case fill < u.opts.Lower || u.queued == 0:
		u.refuses = false
	}
}

// Accepting says whether this worker takes chunks from others now. When it changes, tell the peers.
func (u *Unit[T]) Accepting() bool { return !u.closed && !u.refuses }

// Close refuses forwarded chunks for good and forwards nothing any more: the worker drains. What is queued stays, what is away
// still comes back when its receiver is lost.
func (u *Unit[T]) Close() { u.closed = true }

// Queued returns the records in the local queue, and those that came back and wait for room in it.
func (u *Unit[T]) Queued() int { return u.queued + u.waiting }

// Len returns the chunks in the local queue, and those that came back and wait for room in it.
func (u *Unit[T]) Len() int { return len(u.queue) + len(u.back) }

// Away returns the records that are with peers and not settled.
func (u *Unit[T]) Away() int { return u.awayRecs }
