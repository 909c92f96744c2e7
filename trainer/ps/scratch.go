package ps

import (
	"fmt"
	"slices"
)

// scratch is what one request needs besides its own bytes; it is reused from request to request.
type scratch struct {
	// order holds the positions of the request's ids, tablet by tablet; ends[i] is where those of tablets[i] end.
	order []int32
	ends  []int32
	where []int32   // tablet index of each position
	row   []float32 // one row
	spans []spanKey
	asked []int // indices of the tablets that a push addresses
}

type spanKey struct {
	partition  int32
	begin, end int64
}

func (s *Server) takeScratch() *scratch {
	if sc, ok := s.scratch.Get().(*scratch); ok {
		return sc
	}
	return &scratch{row: make([]float32, s.opt.RowWidth)}
}

// sort groups the positions of ids by tablet (a counting sort). It is an error when ids are cut off or belong to another server.
func (sc *scratch) sort(s *Server, ids []byte) error {
	if len(ids)%8 != 0 {
		return fmt.Errorf("the ids have %d bytes, which is no multiple of 8", len(ids))
	}
	n := len(ids) / 8
	sc.where = slices.Grow(sc.where[:0], n)[:n]
	sc.order = slices.Grow(sc.order[:0], n)[:n]
	sc.ends = slices.Grow(sc.ends[:0], len(s.tablets))[:len(s.tablets)]
	clear(sc.ends)
	for i := range n {
		id := idAt(ids, i)
		t := s.opt.Layout.TabletOfRow(id) - s.first
		if t < 0 || t >= len(s.tablets) {
			return fmt.Errorf("row %d belongs to tablet %d, which server %d does not serve", id, t+s.first, s.opt.Server)
		}
		sc.where[i] = int32(t)
		sc.ends[t]++
	}
	var at int32
	for t, n := range sc.ends {
		sc.ends[t] = at
		at += n
	}
	for i, t := range sc.where {
		sc.order[sc.ends[t]] = int32(i)
		sc.ends[t]++
	}
	return nil
}

// of lists the positions of the ids of tablets[i].
func (sc *scratch) of(i int) []int32 {
	if i == 0 {
		return sc.order[:sc.ends[0]]
	}
	return sc.order[sc.ends[i-1]:sc.ends[i]]
}
