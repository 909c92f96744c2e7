package stream

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// RecordHash names one record of a log by a number: xxHash64 (seed 0) of the topic's bytes, one zero byte, the
// partition as four bytes big-endian and the offset as eight bytes big-endian. The sum of these over a set of records,
// modulo 2^64, shows a lost or a repeated record that a mere count would miss. Whoever compares such sums must use this
// formula to the bit; hash_test.go holds values to check another implementation against.
func RecordHash(topic string, partition int32, offset int64) uint64 {
	return newHasher(topic).sum(partition, offset)
}

// hasher is RecordHash for many records of one topic, without allocation. Not safe for concurrent use.
type hasher struct {
	buf []byte
	at  int
}

func newHasher(topic string) *hasher {
	buf := make([]byte, len(topic)+1+4+8)
	copy(buf, topic)
	return &hasher{buf: buf, at: len(topic) + 1}
}

func (h *hasher) sum(partition int32, offset int64) uint64 {
	binary.BigEndian.PutUint32(h.buf[h.at:], uint32(partition))
	binary.BigEndian.PutUint64(h.buf[h.at+4:], uint64(offset))
	return xxhash.Sum64(h.buf)
}
