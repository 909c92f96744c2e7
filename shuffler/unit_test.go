package shuffler_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/shuffler"
)

type chunk = shuffler.Chunk[string]

func newUnit(t testing.TB, o shuffler.Options) *shuffler.Unit[string] {
	t.Helper()
	u, err := shuffler.New[string](o, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func accept(u *shuffler.Unit[string], hasPartitions bool, names ...string) {
	for _, n := range names {
		u.PeerUp(n, hasPartitions)
		u.PeerState(n, true)
	}
}

// Kale §3.5: "samples go to its local queue; when that is full, follow-ups" are forwarded.
func TestSection35OverflowIsForwarded(t *testing.T) {
	u := newUnit(t, shuffler.Options{Mode: shuffler.Advanced, Capacity: 100})
	accept(u, true, "b")
	var got []string
	for id := range uint64(8) {
		d := u.Offer(chunk{ID: id, Records: 30})
		u.Accepted(id)
		got = append(got, d.Verdict.String()+d.Peer)
	}
	want := []string{"keep", "keep", "keep", "forwardb", "forwardb", "forwardb", "forwardb", "forwardb"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if u.Queued() != 90 || u.Away() != 150 {
		t.Errorf("%d records queued and %d away, want 90 and 150", u.Queued(), u.Away())
	}
}

// Kale §3.5, baseline "none": nothing is ever forwarded, however full the queue is.
func TestSection35NoneNeverForwards(t *testing.T) {
	u := newUnit(t, shuffler.Options{Mode: shuffler.None, Capacity: 10})
	accept(u, false, "b")
	if d := u.Offer(chunk{ID: 1, Records: 10}); d.Verdict != shuffler.Keep {
		t.Errorf("first chunk: %v", d.Verdict)
	}
	if d := u.Offer(chunk{ID: 2, Records: 1}); d.Verdict != shuffler.Wait {
		t.Errorf("a full queue without forwarding: %v, want wait", d.Verdict)
	}
}

// Kale §3.5, baseline "basic": every worker spreads everything evenly, itself included, even while its own queue is empty.
func TestSection35BasicSpreadsEvenly(t *testing.T) {
	u := newUnit(t, shuffler.Options{Mode: shuffler.Basic, Capacity: 1e6})
	accept(u, true, "b", "c", "d")
	got := map[string]int{}
	for id := range uint64(400) {
		got[u.Offer(chunk{ID: id, Records: 1}).Peer]++
	}
	if diff := cmp.Diff(map[string]int{"": 100, "b": 100, "c": 100, "d": 100}, got); diff != "" {
		t.Error(diff)
	}
	u.PeerState("c", false)
	for id := range uint64(90) {
		if d := u.Offer(chunk{ID: 1000 + id, Records: 1}); d.Peer == "c" {
			t.Fatal("a peer that refuses was given a chunk")
		}
	}
}

// Kale §3.5: the receiver is "one available worker, chosen uniformly at random".
func TestSection35ReceiverIsUniform(t *testing.T) {
	u := newUnit(t, shuffler.Options{Mode: shuffler.Advanced, Capacity: 1, InFlight: 1e6, Unanswered: 1e6})
	accept(u, true, "b", "c", "d", "e", "f")
	u.PeerState("d", false)
	u.Offer(chunk{ID: 0, Records: 1})
	const n = 40000
	got := map[string]int{}
	for id := range uint64(n) {
		got[u.Offer(chunk{ID: 1 + id, Records: 1}).Peer]++
	}
	if got["d"] != 0 {
		t.Errorf("the peer that refuses got %d chunks", got["d"])
	}
	// Each count is binomial with p = 1/4; five standard deviations are 433.
	for _, p := range []string{"b", "c", "e", "f"} {
		if dev := math.Abs(float64(got[p]) - n/4); dev > 433 {
			t.Errorf("%s got %d of %d chunks", p, got[p], n)
		}
	}
}

// Ours: members without partitions have nothing else to do and are preferred, as long as one of them accepts.
func TestReceiversWithoutPartitionsArePreferred(t *testing.T) {
	u := newUnit(t, shuffler.Options{Mode: shuffler.Advanced, Capacity: 1, InFlight: 1e6, Unanswered: 1e6})
	accept(u, true, "b", "c")
	accept(u, false, "x", "y")
	u.Offer(chunk{ID: 0, Records: 1})
	got := map[string]bool{}
	for id := range uint64(100) {
		got[u.Offer(chunk{ID: 1 + id, Records: 1}).Peer] = true
	}
	if diff := cmp.Diff(map[string]bool{"x": true, "y": true}, got); diff != "" {
		t.Error(diff)
	}
	u.PeerState("x", false)
	u.PeerState("y", false)
	if d := u.Offer(chunk{ID: 500, Records: 1}); d.Peer != "b" && d.Peer != "c" {
		t.Errorf("with the preferred ones full, the chunk goes to %q", d.Peer)
	}
	u.PeerUp("b", false) // it has given its partitions away, and still accepts
	for id := range uint64(20) {
		if d := u.Offer(chunk{ID: 600 + id, Records: 1}); d.Peer != "b" {
			t.Errorf("the chunk goes to %q, want b", d.Peer)
		}
	}
}

// Kale §3.5: a chunk goes "into that worker's local queue (never forwarded again)".
func TestSection35ReceivedIsNeverForwardedAgain(t *testing.T) {
	u := newUnit(t, shuffler.Options{Mode: shuffler.Advanced, Capacity: 100, Upper: 1})
	accept(u, false, "b")
	for id := range uint64(10) {
		if !u.Receive(chunk{ID: id, Records: 10}) {
			t.Fatalf("chunk %d is refused below the upper bound", id)
		}
	}
	for id := range uint64(10) {
		c, ok := u.Take()
		if !ok || c.ID != id {
			t.Fatalf("took %v %v, want chunk %d", c, ok, id)
		}
	}
	if u.Away() != 0 {
		t.Errorf("%d received records were forwarded", u.Away())
	}
}

// Kale §3.5: "a worker whose queue passes an upper bound refuses, and accepts again below a lower bound": between them it keeps its mind.
func TestSection35Hysteresis(t *testing.T) {
	u := newUnit(t, shuffler.Options{Mode: shuffler.Advanced, Capacity: 100, Upper: 0.8, Lower: 0.4})
	var trace []string
	note := func() { trace = append(trace, fmt.Sprintf("%d:%v", u.Queued(), u.Accepting())) }
	for id := range uint64(10) {
		u.Offer(chunk{ID: id, Records: 10})
		note()
	}
	for range 10 {
		u.Take()
		note()
	}
	want := "10:true 20:true 30:true 40:true 50:true 60:true 70:true 80:true 90:false 100:false " +
		"90:false 80:false 70:false 60:false 50:false 40:false 30:true 20:true 10:true 0:true"
	if diff := cmp.Diff(want, strings.Join(trace, " ")); diff != "" {
		t.Error(diff)
	}
	for id := range uint64(9) {
		u.Offer(chunk{ID: 100 + id, Records: 10})
	}
	if u.Receive(chunk{ID: 200, Records: 1}) {
		t.Error("a chunk was received above the upper bound")
	}
}

// Nothing may be dropped: with no room anywhere the chunk stays with the source, and is placed when room appears.
func TestFullEverywhereWaits(t *testing.T) {
	u := newUnit(t, shuffler.Options{Mode: shuffler.Advanced, Capacity: 10, InFlight: 10})
	accept(u, true, "b")
	verdicts := func(ids ...uint64) (out []string) {
		for _, id := range ids {
			out = append(out, u.Offer(chunk{ID: id, Records: 10}).Verdict.String())
		}
		return out
	}
	if diff := cmp.Diff([]string{"keep", "forward", "wait"}, verdicts(1, 2, 3)); diff != "" {
		t.Error(diff)
	}
	u.Settle(2) // confirmed: there is room in flight again
	if diff := cmp.Diff([]string{"forward"}, verdicts(3)); diff != "" {
		t.Error(diff)
	}
	u.Take()
	if diff := cmp.Diff([]string{"keep", "wait"}, verdicts(4, 5)); diff != "" {
		t.Error(diff)
	}
	if d := u.Offer(chunk{ID: 6}); d.Verdict != shuffler.Keep {
		t.Errorf("a chunk without records: %v, want keep", d.Verdict)
	}
}

// What may be with peers and not settled grows with their number: the one reader of a hot partition keeps as many busy as there are.
func TestMorePeersHaveMoreInFlight(t *testing.T) {
	for _, peers := range []int{1, 3, 20} {
		u := newUnit(t, shuffler.Options{Mode: shuffler.Advanced, Capacity: 10})
		for i := range peers {
			accept(u, true, fmt.Sprintf("p%02d", i))
		}
		forwarded := 0
		for id := uint64(1); ; id++ {
			d := u.Offer(chunk{ID: id, Records: 10})
			if d.Verdict == shuffler.Wait {
				break
			}
			if d.Verdict == shuffler.Forward {
				forwarded++
				u.Accepted(id)
			}
		}
		if forwarded != 4*peers {
			t.Errorf("%d peers have %d chunks of a queue's capacity, want %d", peers, forwarded, 4*peers)
		}
	}
}

// If a receiver dies, the origin queues its chunks again, oldest first and before anything newer.
func TestReceiverDiesChunksComeBack(t *testing.T) {
	u := newUnit(t, shuffler.Options{Mode: shuffler.Advanced, Capacity: 10})
	accept(u, true, "b")
	for id := range uint64(4) {
		u.Offer(chunk{ID: id, Records: 10})
		u.Accepted(id)
	}
	if peer, ok := u.Holder(2); !ok || peer != "b" {
		t.Fatalf("chunk 2 is with %q", peer)
	}
	back := u.PeerGone("b")
	if len(back) != 3 {
		t.Fatalf("%d chunks came back, want 3", len(back))
	}
	var order []uint64
	for {
		c, ok := u.Take()
		if !ok {
			break
		}
		order = append(order, c.ID)
	}
	if diff := cmp.Diff([]uint64{0, 1, 2, 3}, order); diff != "" {
		t.Error(diff)
	}
	if u.Away() != 0 || u.Queued() != 0 {
		t.Errorf("%d away, %d queued", u.Away(), u.Queued())
	}
}

// A receiver that refuses is not asked again until it says that it accepts; the chunk goes to another, or stays here.
func TestRefusedGoesElsewhere(t *testing.T) {
	u := newUnit(t, shuffler.Options{Mode: shuffler.Advanced, Capacity: 10})
	accept(u, true, "b", "c")
	u.Offer(chunk{ID: 0, Records: 10})
	first := u.Offer(chunk{ID: 1, Records: 10})
	second, ok := u.Refused(1)
	if !ok || second.Verdict != shuffler.Forward || second.Peer == first.Peer {
		t.Fatalf("after %s refused: %v %q", first.Peer, second.Verdict, second.Peer)
	}
	third, ok := u.Refused(1)
	if !ok || third.Verdict != shuffler.Keep {
		t.Fatalf("after both refused: %v", third.Verdict)
	}
	if _, ok := u.Refused(1); ok {
		t.Error("a chunk that nobody has was refused")
	}
	if u.Queued() != 20 { // beyond the capacity, but not lost
		t.Errorf("%d records queued, want 20", u.Queued())
	}
}

// A peer's word that it accepts is late: only so much is sent to it before it has answered, and what it then refuses is trained in the order in which it was
// read, before anything that was read later.
func TestRefusedKeepsItsPlace(t *testing.T) {
	u := newUnit(t, shuffler.Options{Mode: shuffler.Advanced, Capacity: 40, Unanswered: 30})
	accept(u, true, "b")
	var got []string
	offer := func(id uint64) {
		d := u.Offer(chunk{ID: id, Records: 10})
		got = append(got, fmt.Sprint(id, d.Verdict))
	}
	for id := range uint64(8) {
		offer(1 + id)
	}
	u.Accepted(5)
	offer(8) // as much as was answered
	offer(9)
	for _, id := range []uint64{6, 7, 8} {
		d, ok := u.Refused(id)
		got = append(got, fmt.Sprint(d.Chunk.ID, d.Verdict, ok))
	}
	offer(9) // others came before it
	take := func() {
		c, _ := u.Take()
		got = append(got, fmt.Sprint("take", c.ID))
	}
	take()
	offer(9)
	u.PeerState("b", true)
	for {
		d, ok := u.Again()
		if !ok {
			break
		}
		got = append(got, fmt.Sprint("again", d.Chunk.ID, d.Verdict))
	}
	if u.Queued() != 40 || u.Len() != 4 || u.Away() != 30 {
		t.Errorf("%d records in %d chunks are queued, %d away", u.Queued(), u.Len(), u.Away())
	}
	offer(9)
	for range 4 {
		take()
	}
	want := []string{"1 keep", "2 keep", "3 keep", "4 keep", "5 forward", "6 forward", "7 forward", "8 wait", "8 forward", "9 wait",
		"6 keep true", "7 keep true", "8 keep true", "9 wait", "take1", "9 wait", "again7 forward", "again8 forward", "9 forward", "take2", "take3", "take4", "take6"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// EXACTLY_ONCE rule 12: a worker that drains first refuses forwards. It also forwards nothing more, since it wants to be done with what is away.
func TestRule12CloseRefuses(t *testing.T) {
	u := newUnit(t, shuffler.Options{Mode: shuffler.Advanced, Capacity: 10})
	accept(u, false, "b")
	u.Offer(chunk{ID: 0, Records: 10})
	u.Offer(chunk{ID: 1, Records: 10})
	u.Close()
	if u.Accepting() || u.Receive(chunk{ID: 9, Records: 1}) {
		t.Error("a closed unit accepts")
	}
	accept(u, false, "c")
	for _, d := range u.PeerGone("b") {
		if d.Verdict != shuffler.Keep {
			t.Errorf("a closed unit forwards: %v to %s", d.Verdict, d.Peer)
		}
	}
	if u.Queued() != 20 {
		t.Errorf("%d records queued, want 20", u.Queued())
	}
}

func TestDropRemovesWhereverItIs(t *testing.T) {
	u := newUnit(t, shuffler.Options{Mode: shuffler.Advanced, Capacity: 10})
	accept(u, false, "b")
	u.Offer(chunk{ID: 0, Records: 10})
	u.Offer(chunk{ID: 1, Records: 10})
	if !u.Drop(0) || !u.Drop(1) || u.Drop(1) {
		t.Error("a chunk is dropped once, in the queue and away")
	}
	if u.Queued() != 0 || u.Away() != 0 || u.Len() != 0 {
		t.Errorf("%d queued, %d away, %d chunks", u.Queued(), u.Away(), u.Len())
	}
}

func TestAChunkLargerThanTheQueueIsNotStuck(t *testing.T) {
	u := newUnit(t, shuffler.Options{Mode: shuffler.None, Capacity: 10})
	if d := u.Offer(chunk{ID: 0, Records: 25}); d.Verdict != shuffler.Keep {
		t.Errorf("an empty queue answers %v", d.Verdict)
	}
	if d := u.Offer(chunk{ID: 1, Records: 1}); d.Verdict != shuffler.Wait {
		t.Errorf("an overfull queue answers %v", d.Verdict)
	}
}

func TestOptionsValidate(t *testing.T) {
	for _, c := range []struct {
		o    shuffler.Options
		want string
	}{
		{shuffler.Options{}, "capacity"},
		{shuffler.Options{Capacity: 1, Mode: 9}, "mode"},
		{shuffler.Options{Capacity: 1, Upper: 1.5}, "shares"},
		{shuffler.Options{Capacity: 1, Upper: 0.2, Lower: 0.3}, "above the upper"},
		{shuffler.Options{Capacity: 1, InFlight: -1}, "flight"},
	} {
		if err := c.o.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want something about %q", c.o, err, c.want)
		}
	}
	if _, err := shuffler.New[string](shuffler.Options{Capacity: 1}, nil); err == nil {
		t.Error("a unit without a source of chance was made")
	}
	for _, name := range []string{"none", "basic", "advanced", ""} {
		if m, err := shuffler.ParseMode(name); err != nil || name != "" && m.String() != name {
			t.Errorf("ParseMode(%q) = %v, %v", name, m, err)
		}
	}
	if _, err := shuffler.ParseMode("wild"); err == nil {
		t.Error("an unknown mode was read")
	}
}

// TestNoChunkIsLostOrDoubled drives a unit with random events and compares it with a ledger that only knows where each chunk must be.
func TestNoChunkIsLostOrDoubled(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 7))
		u, err := shuffler.New[string](shuffler.Options{
			Mode: shuffler.Mode(rng.IntN(3)), Capacity: 1 + rng.IntN(50), InFlight: rng.IntN(100), Unanswered: rng.IntN(30),
		}, rand.New(rand.NewPCG(seed, 8)))
		if err != nil {
			t.Fatal(err)
		}
		where := map[uint64]string{} // "" is the local queue
		records := map[uint64]int{}
		var next uint64
		follow := func(d shuffler.Decision[string]) {
			switch d.Verdict {
			case shuffler.Keep:
				where[d.Chunk.ID] = ""
			case shuffler.Forward:
				where[d.Chunk.ID] = d.Peer
			}
		}
		away := func() (ids []uint64) {
			for id, p := range where {
				if p != "" {
					ids = append(ids, id)
				}
			}
			slices.Sort(ids)
			return ids
		}
		for range 400 {
			peer := string(rune('b' + rng.IntN(4)))
			switch rng.IntN(11) {
			case 0, 1, 2:
				next++
				records[next] = rng.IntN(12)
				follow(u.Offer(chunk{ID: next, Records: records[next]}))
			case 3:
				next++
				records[next] = rng.IntN(12)
				if u.Receive(chunk{ID: next, Records: records[next]}) {
					where[next] = ""
				}
			case 4:
				if c, ok := u.Take(); ok {
					if at, known := where[c.ID]; !known || at != "" {
						t.Fatalf("seed %d: chunk %d was taken, and it is at %q (%v)", seed, c.ID, at, known)
					}
					delete(where, c.ID)
				}
			case 5:
				u.PeerUp(peer, rng.IntN(2) == 0)
				u.PeerState(peer, rng.IntN(3) > 0)
			case 6:
				held := 0
				for _, id := range away() {
					if where[id] == peer {
						held++
					}
				}
				back := u.PeerGone(peer)
				if len(back) != held {
					t.Fatalf("seed %d: %d chunks came back from %s, which had %d", seed, len(back), peer, held)
				}
				for _, d := range back {
					follow(d)
				}
			case 7:
				if ids := away(); len(ids) > 0 {
					d, ok := u.Refused(ids[rng.IntN(len(ids))])
					if !ok {
						t.Fatalf("seed %d: a chunk that is away cannot be refused", seed)
					}
					follow(d)
				}
			case 8:
				if ids := away(); len(ids) > 0 {
					id := ids[rng.IntN(len(ids))]
					if !u.Settle(id) {
						t.Fatalf("seed %d: chunk %d cannot be settled", seed, id)
					}
					delete(where, id)
				}
			case 9:
				if ids := away(); len(ids) > 0 {
					u.Accepted(ids[rng.IntN(len(ids))])
				}
			case 10:
				if d, ok := u.Again(); ok {
					follow(d)
				}
			}
			queued, out := 0, 0
			for id, p := range where {
				if p == "" {
					queued += records[id]
				} else {
					out += records[id]
				}
			}
			if u.Queued() != queued || u.Away() != out {
				t.Fatalf("seed %d: %d queued and %d away, want %d and %d", seed, u.Queued(), u.Away(), queued, out)
			}
		}
		for {
			c, ok := u.Take()
			if !ok {
				break
			}
			if at, known := where[c.ID]; !known || at != "" {
				t.Fatalf("seed %d: chunk %d comes out of the queue twice, or from nowhere", seed, c.ID)
			}
			delete(where, c.ID)
		}
		for id, p := range where {
			if p == "" {
				t.Fatalf("seed %d: chunk %d was lost", seed, id)
			}
		}
	}
}
