package core

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

func TestRenewalStarts(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	one := func(rank, deadline int) term {
		return term{place: worker(rank, 0), deadline: at(deadline), lead: 10 * time.Second, drain: 5 * time.Second}
	}
	ps := func(rank, deadline, lead int) term {
		return term{place: server(rank, 0), deadline: at(deadline), lead: time.Duration(lead) * time.Second}
	}
	for name, c := range map[string]struct {
		terms  []term
		atOnce int
		want   map[string]int // seconds, by place
	}{
		"none":                           {nil, 1, map[string]int{}},
		"one, as late as it can be":      {[]term{one(0, 100)}, 1, map[string]int{"worker-0": 85}},
		"one deadline, one at a time":    {[]term{one(0, 100), one(1, 100), one(2, 100)}, 1, map[string]int{"worker-2": 85, "worker-1": 75, "worker-0": 65}},
		"one deadline, two at a time":    {[]term{one(0, 100), one(1, 100), one(2, 100)}, 2, map[string]int{"worker-2": 85, "worker-1": 85, "worker-0": 75}},
		"far apart, each on its own":     {[]term{one(0, 100), one(1, 200)}, 1, map[string]int{"worker-0": 85, "worker-1": 185}},
		"close, the first one is pushed": {[]term{one(0, 100), one(1, 103)}, 1, map[string]int{"worker-0": 78, "worker-1": 88}},
		"none at once counts as one":     {[]term{one(0, 100), one(1, 100)}, 0, map[string]int{"worker-1": 85, "worker-0": 75}},
		"servers, one after the other":   {[]term{ps(0, 100, 20), ps(1, 100, 8)}, 3, map[string]int{"ps-1": 92, "ps-0": 72}},
		"workers have left before a server": {
			[]term{one(0, 100), one(1, 100), one(2, 100), ps(0, 100, 20)}, 2, map[string]int{"ps-0": 80, "worker-2": 65, "worker-1": 65, "worker-0": 55},
		},
		"a server between workers": {
			[]term{one(0, 100), one(1, 150), ps(0, 130, 20)}, 2, map[string]int{"worker-1": 135, "ps-0": 110, "worker-0": 85},
		},
		"a server before workers that are due": {
			[]term{one(0, 102), one(1, 102), ps(0, 100, 20)}, 1, map[string]int{"ps-0": 80, "worker-0": 55, "worker-1": 65},
		},
		"a server whose time is up first": {[]term{one(0, 120), ps(0, 100, 20)}, 1, map[string]int{"worker-0": 105, "ps-0": 80}},
	} {
		got := map[string]int{}
		for place, start := range renewalStarts(c.terms, c.atOnce) {
			got[fmt.Sprintf("%s-%d", place.Role, place.Rank)] = int(start.Unix())
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Whatever the walltimes, never more renewals of workers than allowed overlap, none overlaps that of a server, its drain included, and each is done before its
// process must leave.
func TestRenewalStartsProperty(t *testing.T) {
	for seed := range 400 {
		var terms []term
		for rank := range 1 + seed%9 {
			terms = append(terms, term{
				place: worker(rank, 0), deadline: time.Unix(int64(1000+(rank*rank*37+seed*101)%97), 0),
				lead: time.Duration(1+(rank*seed)%7) * time.Second, drain: time.Duration(seed%4) * time.Second,
			})
		}
		for rank := range seed % 3 {
			terms = append(terms, term{place: server(rank, 0), deadline: time.Unix(int64(1000+(rank*53+seed*29)%83), 0), lead: time.Duration(3+seed%5) * time.Second})
		}
		atOnce := 1 + seed%3
		starts := renewalStarts(terms, atOnce)
		if len(starts) != len(terms) {
			t.Fatalf("seed %d: %d of %d begin", seed, len(starts), len(terms))
		}
		for _, a := range terms {
			begin, end := starts[a.place], starts[a.place].Add(a.lead)
			if end.After(a.last()) {
				t.Errorf("seed %d: %v is renewed too late", seed, a.place)
			}
			workers := 0
			for _, b := range terms { // under way when a begins
				underWay := !starts[b.place].After(begin) && begin.Before(starts[b.place].Add(b.lead))
				if underWay && !b.alone() {
					workers++
				}
				if a.alone() && a.place != b.place && starts[b.place].Before(end) && begin.Before(starts[b.place].Add(b.lead+b.drain)) {
					t.Errorf("seed %d: %v is renewed while %v is", seed, b.place, a.place)
				}
			}
			if workers > atOnce {
				t.Errorf("seed %d: %d workers at once, want at most %d", seed, workers, atOnce)
			}
		}
	}
}

// What renewals need beyond three eighths of a walltime is taken from those that need the most.
func TestFit(t *testing.T) {
	sec := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	for name, c := range map[string]struct {
		whole  float64
		leads  map[backend.ID]float64
		atOnce int
		want   map[backend.ID]float64
	}{
		"there is time":           {1000, map[backend.ID]float64{worker(0, 0): 10, worker(1, 0): 10, server(0, 0): 60}, 1, map[backend.ID]float64{worker(0, 0): 10, worker(1, 0): 10, server(0, 0): 60}},
		"workers alone":           {80, map[backend.ID]float64{worker(0, 0): 20, worker(1, 0): 20}, 1, map[backend.ID]float64{worker(0, 0): 15, worker(1, 0): 15}},
		"a server needs the most": {80, map[backend.ID]float64{worker(0, 0): 4, worker(1, 0): 4, server(0, 0): 60}, 1, map[backend.ID]float64{worker(0, 0): 4, worker(1, 0): 4, server(0, 0): 22}},
		"two at once":             {80, map[backend.ID]float64{worker(0, 0): 40, worker(1, 0): 40}, 2, map[backend.ID]float64{worker(0, 0): 30, worker(1, 0): 30}},
	} {
		var terms []term
		for id, lead := range c.leads {
			terms = append(terms, term{place: id, whole: sec(c.whole), lead: sec(lead), drain: time.Hour})
		}
		fit(terms, c.atOnce)
		for _, got := range terms {
			if got.lead != sec(c.want[got.place]) || got.drain != sec(c.whole/4) {
				t.Errorf("%s: %v has a lead of %v and a drain of %v, want %v s and a quarter", name, got.place, got.lead, got.drain, c.want[got.place])
			}
		}
	}
}

// After server 0 has been replaced it is not known for a while which workers are ready with the new chief: that is part of what it takes.
func TestServerWithTheChiefTakesLonger(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.serverIs(0, true, 5)
	r.serverIs(1, true, 6)
	r.expire(time.Hour, server(0, 1), server(1, 1))
	terms, _ := r.s.walltimes(r.now)
	if len(terms) != 2 || terms[0].lead-terms[1].lead != leaseTimeout {
		t.Errorf("they are %+v; want server 0 to take %v longer", terms, leaseTimeout)
	}
}
