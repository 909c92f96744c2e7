package shuffler_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/kale-sched/kale/shuffler"
)

// A worker with a queue of 200 records reads five chunks of 100 while one peer accepts, until that peer has had enough.
func Example() {
	u, err := shuffler.New[string](shuffler.Options{Mode: shuffler.Advanced, Capacity: 200}, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		panic(err)
	}
	u.PeerUp("worker-1", false)
	u.PeerState("worker-1", true)
	for id := range uint64(5) {
		if id == 4 {
			u.PeerState("worker-1", false)
		}
		d := u.Offer(shuffler.Chunk[string]{ID: id, Records: 100, Body: "records"})
		u.Accepted(id) // says worker-1, if it was sent there
		fmt.Printf("%d %v to %q\n", id, d.Verdict, d.Peer)
	}
	for _, d := range u.PeerGone("worker-1") { // it died with two chunks of ours
		fmt.Println("again", d.Chunk.ID, d.Verdict)
	}
	fmt.Println(u.Queued(), "records to train")
	// Output:
	// 0 keep to ""
	// 1 keep to ""
	// 2 forward to "worker-1"
	// 3 forward to "worker-1"
	// 4 wait to ""
	// again 2 keep
	// again 3 keep
	// 400 records to train
}
