package stream

import (
	"encoding/binary"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// Golden values, for whoever implements the formula elsewhere (the trainer does). They were computed by a second
// implementation of xxHash64, written from its specification, over the bytes that RecordHash's comment names.
func TestRecordHashGolden(t *testing.T) {
	for _, tt := range []struct {
		topic     string
		partition int32
		offset    int64
		want      uint64
	}{
		{"clicks", 0, 0, 0xd84a51ae89b8619a},
		{"clicks", 0, 1, 0x60d2509ef3519370},
		{"clicks", 1, 0, 0xc9f1ef3cc1f62dda},
		{"clicks", 7, 123456789012, 0xfc63b7642276ab00},
		{"", 0, 0, 0xa0537b08c36938b4},
		{"ctr.events-v2", 2147483647, 9223372036854775807, 0x48000d56d02850f4},
	} {
		if got := RecordHash(tt.topic, tt.partition, tt.offset); got != tt.want {
			t.Errorf("RecordHash(%q, %d, %d) = %#x, want %#x", tt.topic, tt.partition, tt.offset, got, tt.want)
		}
	}
}

func TestRecordHashFormula(t *testing.T) {
	h := newHasher("clicks")
	for i := range int64(1000) {
		b := append([]byte("clicks"), 0)
		b = binary.BigEndian.AppendUint32(b, uint32(i%17))
		b = binary.BigEndian.AppendUint64(b, uint64(i*i))
		want := xxhash.Sum64(b)
		if got := RecordHash("clicks", int32(i%17), i*i); got != want {
			t.Fatalf("RecordHash(clicks, %d, %d) = %#x, want %#x", i%17, i*i, got, want)
		}
		if got := h.sum(int32(i%17), i*i); got != want {
			t.Fatalf("a hasher that is used again gives %#x for (%d, %d), want %#x", got, i%17, i*i, want)
		}
	}
}

func BenchmarkRecordHash(b *testing.B) {
	h := newHasher("clicks")
	for i := range b.N {
		h.sum(3, int64(i))
	}
}

func TestHasSpan(t *testing.T) {
	sum := WholeSum("clicks", 1, 7, 10)
	for name, c := range map[string]struct {
		partition   int32
		from, to, n int64
		want        bool
	}{
		"within":         {1, 0, 20, 3, true},
		"at the start":   {1, 7, 20, 3, true},
		"at the end":     {1, 0, 10, 3, true},
		"all":            {1, 7, 10, 3, true},
		"cut off":        {1, 0, 9, 3, false},
		"too short":      {1, 7, 9, 3, false},
		"of other size":  {1, 0, 20, 2, false},
		"of another one": {0, 0, 20, 3, false},
	} {
		if got := HasSpan("clicks", c.partition, c.from, c.to, c.n, sum); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
