package backend

import (
	"sync"
	"time"
)

// Starts knows which workloads this process of a backend is starting: what is on record and not with the cluster yet has not ended. The zero value is ready, and
// all methods may be called at once.
type Starts struct {
	mu sync.Mutex
	of map[startKey]start
}

type startKey struct {
	job string
	id  ID
}

type start struct {
	calls int       // under way
	over  time.Time // when the last one was
}

// startsKept is for how long it is remembered that a start was under way: longer than any look takes.
const startsKept = 5 * time.Minute

// Begin notes that the workloads are being started, until end is called.
func (s *Starts) Begin(job string, ws []Workload) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[startKey]start{}
	}
	for k, st := range s.of {
		if st.calls == 0 && time.Since(st.over) > startsKept {
			delete(s.of, k)
		}
	}
	note := func(by int) {
		for _, w := range ws {
			k := startKey{job, w.ID}
			s.of[k] = start{s.of[k].calls + by, time.Now()}
		}
	}
	note(1)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		note(-1)
	}
}

// Since says that a workload was being started at a time or later: a look that began then may have seen a part of that.
func (s *Starts) Since(at time.Time, job string, id ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, known := s.of[startKey{job, id}]
	return known && (st.calls > 0 || !st.over.Before(at))
}
