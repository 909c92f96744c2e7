package ps

import (
	"fmt"
	"math/bits"
)

// Layout says which tablet a row and a dense weight belong to, and which server serves a tablet. Server and client compute it alike from
// three numbers that never change while a job's state lives, so no map of rows is ever exchanged.
//
// Rows go to tablets by a hash of their id. The dense vector is cut into one contiguous block per tablet, of equal size but for the
// remainder; tablets go to servers in contiguous ranges, so a server's dense blocks, in tablet order, are one contiguous part of the vector.
type Layout struct {
	tablets, servers, dense int
}

// NewLayout checks the numbers: at least one tablet per server, at most 65,536 tablets, and a dense vector of denseSize ≥ 0 float32.
func NewLayout(tablets, servers, denseSize int) (Layout, error) {
	switch {
	case servers < 1:
		return Layout{}, fmt.Errorf("layout: %d parameter servers: at least one is needed", servers)
	case tablets < servers:
		return Layout{}, fmt.Errorf("layout: %d tablets cannot be shared out over %d parameter servers: raise tablets or lower servers", tablets, servers)
	case tablets > 1<<16:
		return Layout{}, fmt.Errorf("layout: %d tablets: at most %d", tablets, 1<<16)
	case denseSize < 0:
		return Layout{}, fmt.Errorf("layout: a dense vector of %d weights", denseSize)
	}
	return Layout{tablets, servers, denseSize}, nil
}

// Tablets is the number of tablets of the job.
func (l Layout) Tablets() int { return l.tablets }

// Servers is the number of parameter servers of the job.
func (l Layout) Servers() int { return l.servers }

// DenseSize is the length of the full dense vector, in float32.
func (l Layout) DenseSize() int { return l.dense }

// TabletOfRow is the tablet of a row. Stored state depends on it: it must never change (TestTabletOfRowIsForEver).
func (l Layout) TabletOfRow(id uint64) int {
	hi, _ := bits.Mul64(mix(id), uint64(l.tablets))
	return int(hi)
}

// mix is the finaliser of SplitMix64 (Steele, Lea and Flood, 2014): ids that differ in one bit land far apart.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// ServerOfTablet is the server of a tablet: server s has the tablets t with ⌊t·servers/tablets⌋ = s.
func (l Layout) ServerOfTablet(t int) int { return t * l.servers / l.tablets }

// ServerOfRow is the server of the row's tablet.
func (l Layout) ServerOfRow(id uint64) int { return l.ServerOfTablet(l.TabletOfRow(id)) }

// TabletsOfServer is the range [lo, hi) of the server's tablets.
func (l Layout) TabletsOfServer(server int) (lo, hi int) {
	first := func(s int) int { return (s*l.tablets + l.servers - 1) / l.servers }
	return first(server), first(server + 1)
}

// Block is a tablet's part [Begin, End) of the dense vector.
type Block struct {
	Tablet     int
	Begin, End int
}

// Len is the number of weights in the block.
func (b Block) Len() int { return b.End - b.Begin }

// DenseBlock is the tablet's block; it is empty when there are more tablets than weights.
func (l Layout) DenseBlock(tablet int) Block {
	return Block{tablet, tablet * l.dense / l.tablets, (tablet + 1) * l.dense / l.tablets}
}

// DenseBlocks lists the blocks of a server in the order in which PullResponse.dense and PushRequest.dense concatenate them.
func (l Layout) DenseBlocks(server int) []Block {
	lo, hi := l.TabletsOfServer(server)
	out := make([]Block, 0, hi-lo)
	for t := lo; t < hi; t++ {
		out = append(out, l.DenseBlock(t))
	}
	return out
}

// DensePart is the range of the dense vector that a server's concatenated blocks make up.
func (l Layout) DensePart(server int) (begin, end int) {
	lo, hi := l.TabletsOfServer(server)
	return l.DenseBlock(lo).Begin, l.DenseBlock(hi - 1).End
}

// Gather copies a server's blocks out of the full vector into part, which has their total length.
func (l Layout) Gather(server int, full, part []float32) {
	lo, hi := l.DensePart(server)
	copy(part[:hi-lo], full[lo:hi])
}

// Scatter is the inverse of Gather: it copies a server's concatenated blocks into their places in the full vector.
func (l Layout) Scatter(server int, part, full []float32) {
	lo, hi := l.DensePart(server)
	copy(full[lo:hi], part[:hi-lo])
}
