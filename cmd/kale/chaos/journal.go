package chaos

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Journal is what was done in a run, and when, one line each. It is safe for concurrent use.
type Journal struct {
	began time.Time
	mu    sync.Mutex
	out   io.Writer
	open  map[int]time.Time // faults that act now, by number
	past  []Window
}

// NewJournal begins a journal. What cannot be written to out is left out: the run itself says what went wrong.
func NewJournal(out io.Writer, seed uint64, faults int, now time.Time) *Journal {
	j := &Journal{began: now, out: out, open: map[int]time.Time{}}
	fmt.Fprintf(out, "seed %d, %d faults, began %s\n", seed, faults, now.Format(time.RFC3339Nano))
	return j
}

// Note writes a line.
func (j *Journal) Note(now time.Time, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.note(now, format, args...)
}

func (j *Journal) note(now time.Time, format string, args ...any) {
	fmt.Fprintf(j.out, "%9.3fs  %s\n", now.Sub(j.began).Seconds(), fmt.Sprintf(format, args...))
}

// Strike notes that a fault begins to act on something.
func (j *Journal) Strike(now time.Time, f Fault, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.open[f.Number] = now
	j.note(now, "strike %v: %s", f, fmt.Sprintf(format, args...))
}

// Heal notes that it acts no more.
func (j *Journal) Heal(now time.Time, f Fault) {
	j.mu.Lock()
	defer j.mu.Unlock()
	from, open := j.open[f.Number]
	if !open {
		return
	}
	delete(j.open, f.Number)
	j.past = append(j.past, Window{From: from, To: now})
	j.note(now, "heal   %3d  %s after %v", f.Number, f.Kind, now.Sub(from).Round(time.Millisecond))
}

// Windows are the times in which faults acted; one that still does has acted until now.
func (j *Journal) Windows(now time.Time) []Window {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := append([]Window(nil), j.past...)
	for _, from := range j.open {
		out = append(out, Window{From: from, To: now})
	}
	return out
}
