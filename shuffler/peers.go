package shuffler

import (
	"cmp"
	"slices"
)

func (u *Unit[T]) find(name string) (int, bool) {
	return slices.BinarySearchFunc(u.peers, name, func(p peer, name string) int { return cmp.Compare(p.name, name) })
}

// PeerUp registers a peer, or updates whether it holds partitions. A new peer accepts nothing until PeerState says so.
func (u *Unit[T]) PeerUp(name string, hasPartitions bool) {
	i, ok := u.find(name)
	if !ok {
		u.peers = slices.Insert(u.peers, i, peer{name: name})
	}
	u.peers[i].hasPartitions = hasPartitions
}

// PeerState records what a peer says of itself. Unknown peers are ignored.
func (u *Unit[T]) PeerState(name string, accepting bool) {
	if i, ok := u.find(name); ok {
		u.peers[i].accepting = accepting
	}
}

// PeerGone forgets a peer and places everything again that it had of ours, oldest chunk first: in the local queue, before what is younger,
// or with another peer, as the decisions say. What finds no room anywhere waits for it here.
func (u *Unit[T]) PeerGone(name string) []Decision[T] {
	if i, ok := u.find(name); ok {
		u.peers = slices.Delete(u.peers, i, i+1)
	}
	var back []Chunk[T]
	for _, s := range u.away {
		if s.peer == name {
			back = append(back, s.chunk)
		}
	}
	slices.SortFunc(back, func(a, b Chunk[T]) int { return cmp.Compare(a.ID, b.ID) })
	out := make([]Decision[T], 0, len(back))
	for _, c := range back {
		u.forget(c.ID)
		out = append(out, u.returned(c))
	}
	return out
}

// Accepted notes that a peer has taken a forwarded chunk: more may be sent to it.
func (u *Unit[T]) Accepted(id uint64) {
	if s, ok := u.away[id]; ok && !s.answered {
		u.answered(s)
		s.answered = true
		u.away[id] = s
	}
}

func (u *Unit[T]) answered(s sent[T]) {
	if i, ok := u.find(s.peer); ok && !s.answered {
		u.peers[i].unanswered -= s.chunk.Records
	}
}

// Refused places a chunk again that its receiver did not take, and marks that receiver as not accepting. False: no peer had it.
func (u *Unit[T]) Refused(id uint64) (Decision[T], bool) {
	s, ok := u.away[id]
	if !ok {
		return Decision[T]{}, false
	}
	u.PeerState(s.peer, false)
	u.forget(id)
	return u.returned(s.chunk), true
}

// Settle forgets a forwarded chunk: its training is confirmed. False: no peer had it.
func (u *Unit[T]) Settle(id uint64) bool {
	if _, ok := u.away[id]; !ok {
		return false
	}
	u.forget(id)
	return true
}

// Holder returns the peer that a forwarded chunk is with.
func (u *Unit[T]) Holder(id uint64) (string, bool) {
	s, ok := u.away[id]
	return s.peer, ok
}

func (u *Unit[T]) forget(id uint64) {
	s := u.away[id]
	u.awayRecs -= s.chunk.Records
	u.answered(s)
	delete(u.away, id)
}

// Peers returns the names of all known peers, sorted.
func (u *Unit[T]) Peers() []string {
	names := make([]string, len(u.peers))
	for i, p := range u.peers {
		names[i] = p.name
	}
	return names
}

// Drop removes a chunk wherever it is, in the local queue or with a peer. It is for work that has become void: applied by another, or
// belonging to an expelled session.
func (u *Unit[T]) Drop(id uint64) bool {
	if u.Settle(id) {
		return true
	}
	for i, c := range u.queue {
		if c.ID == id {
			u.queue = slices.Delete(u.queue, i, i+1)
			u.queued -= c.Records
			u.refill()
			return true
		}
	}
	for i, c := range u.back {
		if c.ID == id {
			u.back = slices.Delete(u.back, i, i+1)
			u.waiting -= c.Records
			return true
		}
	}
	return false
}
