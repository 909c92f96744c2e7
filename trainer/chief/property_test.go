package chief

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/spans"
)

// world drives a machine with stub workers and two servers in a random order of fetches, pushes, deaths, drains and restores. Its servers are the
// reference: what is in both sets is trained. A correct chief lets every offset be trained in the end, whatever happened.
type world struct {
	t       *testing.T
	r       *rand.Rand
	m       *machine
	ms      int
	workers []*stub
	ranks   int
	servers [2]map[int32]*spans.Set
	snaps   [2]map[int32]*spans.Set
	inc     [2]uint64
	end     int64
}

const worldPartitions = 3

func (w *world) server(i int) {
	report(w.t, w.m, at(w.ms), i, w.inc[i], w.servers[i])
}

func (w *world) step(fault bool) {
	w.ms += 1 + w.r.IntN(40)
	if len(w.workers) > 0 {
		s := w.workers[w.r.IntN(len(w.workers))]
		for _, p := range slices.Sorted(maps.Keys(s.leases)) {
			l := s.leases[p]
			if n := min(int64(w.r.IntN(50)), w.end-l.GetPosition()); !l.GetReleased() && n > 0 {
				s.fetch(p, n)
			}
		}
		w.push(s)
	}
	for _, s := range w.workers {
		if d := s.beat(w.m, at(w.ms)); d.GetRejoin() {
			w.t.Fatalf("ms %d: %s, which beats all the time, was expelled", w.ms, s.name)
		}
	}
	w.server(0)
	w.server(1)
	w.m.tick(at(w.ms))
	if fault {
		w.fault()
	}
}

// push trains part of what a worker answers for, now and then in one server only.
func (w *world) push(s *stub) {
	for _, p := range slices.Sorted(maps.Keys(s.outstanding)) {
		for _, sp := range s.outstanding[p].Spans() {
			b := sp.Begin + int64(w.r.IntN(int(sp.End-sp.Begin)))
			which := w.r.IntN(5)
			for i := range w.servers {
				if which < 3 || which == 3+i {
					w.servers[i][p].Add(b, sp.End)
				}
			}
		}
	}
}

func (w *world) fault() {
	switch k := w.r.IntN(40); {
	case k == 0 && len(w.workers) < 5:
		w.workers = append(w.workers, join(w.t, w.m, at(w.ms), w.ranks))
		w.ranks++
	case k == 1 && len(w.workers) > 1: // kill -9
		i := w.r.IntN(len(w.workers))
		w.workers = append(w.workers[:i:i], w.workers[i+1:]...)
	case k == 2: // a server is restored from its snapshot
		i := w.r.IntN(2)
		w.inc[i]++
		for p := range w.servers[i] {
			w.servers[i][p] = w.snaps[i][p].Clone()
		}
	case k < 6: // a snapshot
		i := w.r.IntN(2)
		for p := range w.servers[i] {
			w.snaps[i][p] = w.servers[i][p].Clone()
		}
	case k == 6: // the chief dies with server 0, live workers register again
		w.restartChief()
	case k == 7 && len(w.workers) > 1: // drain begins
		s := w.workers[w.r.IntN(len(w.workers))]
		w.m.drain([]string{s.name})
		s.state = rpc.MemberState_MEMBER_STATE_DRAINING
	}
}

func (w *world) restartChief() {
	w.inc[0]++
	for p := range w.servers[0] {
		w.servers[0][p] = w.snaps[0][p].Clone()
	}
	opt := w.m.opt
	opt.Incarnation, opt.Fresh = w.inc[0], false
	w.m = newMachine(opt, at(w.ms))
	for _, s := range w.workers {
		req := &rpc.JoinRequest{Member: s.name, Generation: 1, Address: "a", Timeline: "T"}
		for _, l := range s.leases {
			req.Leases = append(req.Leases, l)
		}
		for p, o := range s.outstanding {
			for _, sp := range o.Spans() {
				req.Outstanding = append(req.Outstanding, &rpc.Span{Partition: p, Begin: sp.Begin, End: sp.End})
			}
		}
		resp, err := w.m.join(at(w.ms), req)
		if err != nil {
			w.t.Fatal(err)
		}
		s.session, s.seq = resp.GetSession(), 0
	}
}

func TestRule12EveryOffsetIsTrainedWhateverHappens(t *testing.T) {
	for seed := range uint64(150) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			w := &world{t: t, r: rand.New(rand.NewPCG(seed, 1)), m: newTestMachine(worldPartitions, 2), inc: [2]uint64{1, 1}, end: 4000}
			for i := range w.servers {
				w.servers[i], w.snaps[i] = map[int32]*spans.Set{}, map[int32]*spans.Set{}
				for p := range int32(worldPartitions) {
					w.servers[i][p], w.snaps[i][p] = spans.Of(), spans.Of()
				}
			}
			for range 2 {
				w.workers = append(w.workers, join(t, w.m, at(0), w.ranks))
				w.ranks++
			}
			for range 800 {
				w.step(true)
			}
			w.workers = append(w.workers, join(t, w.m, at(w.ms), w.ranks)) // at least one that does not drain
			w.ranks++
			for range 3000 {
				w.step(false)
				if w.done() {
					return
				}
			}
			for p := range int32(worldPartitions) {
				t.Errorf("partition %d of [0,%d): server 0 has %v, server 1 has %v", p, w.end, w.servers[0][p], w.servers[1][p])
			}
		})
	}
}

func (w *world) done() bool {
	for p := range int32(worldPartitions) {
		if !w.servers[0][p].Covers(0, w.end) || !w.servers[1][p].Covers(0, w.end) {
			return false
		}
	}
	return true
}
