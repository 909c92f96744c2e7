package profile

import (
	"testing"
	"time"
)

// What comes of a profile of seven numbers of workers with two numbers of servers: every form that needs no global batch fitted, and each point left out once.
func BenchmarkNew(b *testing.B) {
	points := measured(contended, Ladder(64), []int{1, 2}, 0.02)
	at := time.Unix(1767225600, 0)
	for b.Loop() {
		if _, err := New("ctr", at, points, 0, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// The choice of a further point.
func BenchmarkNext(b *testing.B) {
	s := samples(measured(contended, Ladder(64), []int{2}, 0.02))
	for b.Loop() {
		next(s, 0, 256, 2, 5)
	}
}
