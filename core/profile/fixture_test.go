package profile

import (
	"context"
	"fmt"
	"time"
)

// fakeBench is a bench that trains by a curve, on a clock of a test. Its workers join joinTime after they were asked for.
type fakeBench struct {
	rate    func(w, p int) float64 // records/s of all workers
	records float64                // that there are from its beginning on
	batch   int

	joinTime time.Duration
	hungry   func(at time.Time) bool // whether somebody waits for records then; nil: nobody ever
	startErr error
	lookErr  error

	running          bool
	generation       int
	servers, workers int
	asked            time.Time
	at               time.Time // of the last look
	left             float64
	trained          map[int]float64 // by rank
	since            map[int]time.Time
	calls            []string
}

func (b *fakeBench) call(format string, args ...any) {
	b.calls = append(b.calls, fmt.Sprintf(format, args...))
}

func (b *fakeBench) Start(_ context.Context, servers, workers int) error {
	b.call("start %d workers, %d servers", workers, servers)
	b.running = true
	b.generation++
	b.servers, b.workers, b.asked, b.at, b.left = servers, workers, time.Now(), time.Now(), b.records
	b.trained, b.since = map[int]float64{}, map[int]time.Time{}
	return b.startErr
}

func (b *fakeBench) Scale(_ context.Context, workers int) error {
	b.call("scale to %d", workers)
	b.advance()
	for rank := workers; rank < b.workers; rank++ {
		delete(b.since, rank)
		delete(b.trained, rank)
	}
	b.workers, b.asked = workers, time.Now()
	return nil
}

// advance trains until now.
func (b *fakeBench) advance() {
	now := time.Now()
	if n := len(b.since); n > 0 {
		each := b.rate(n, b.servers) / float64(n) * now.Sub(b.at).Seconds()
		for rank := range b.since {
			does := min(each, b.left/float64(n))
			b.trained[rank] += does
		}
		b.left = max(0, b.left-each*float64(n))
	}
	b.at = now
	if now.Sub(b.asked) >= b.joinTime {
		for rank := range b.workers {
			if _, ok := b.since[rank]; !ok {
				b.since[rank] = now
			}
		}
	}
}

func (b *fakeBench) Look(context.Context) (Look, error) {
	if b.lookErr != nil {
		return Look{}, b.lookErr
	}
	b.advance()
	now := time.Now()
	l := Look{At: now, Backlog: int64(b.left), Settled: true}
	for rank := range b.workers {
		m := Member{ID: fmt.Sprintf("%d.%d", b.generation, rank)}
		if since, ok := b.since[rank]; ok {
			steps := uint64(b.trained[rank]) / uint64(b.batch)
			m.Ready, m.Steps, m.Records, m.Seconds = true, steps, steps*uint64(b.batch), now.Sub(since).Seconds()
			m.Saturated = b.left > 0 && (b.hungry == nil || !b.hungry(now))
		}
		l.Members = append(l.Members, m)
	}
	return l, nil
}

func (b *fakeBench) End(ctx context.Context) error {
	b.call("end")
	b.running = false
	return ctx.Err() // it must be possible after an interrupt
}

func fakeOptions() Options {
	return Options{
		Workers: []int{1, 2, 4}, Servers: []int{2}, Most: 4, Intervals: 4, Interval: 5 * time.Second, Batch: 10, Records: 1_000_000,
		Every: 250 * time.Millisecond, Start: 10 * time.Second, Join: 3 * time.Second, Patience: time.Minute,
	}
}
