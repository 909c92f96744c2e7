package pool_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/pool"
)

// start is when the tests' clock begins.
var start = time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)

// goals are the goals by job, as "a 3 b 1".
func goals(d pool.Division) string {
	s := ""
	for _, sh := range d.Shares {
		s += fmt.Sprintf("%s %d ", sh.Name, sh.Goal)
	}
	return s[:max(len(s)-1, 0)]
}

func mays(d pool.Division) string {
	s := ""
	for _, sh := range d.Shares {
		s += fmt.Sprintf("%s %d ", sh.Name, sh.May)
	}
	return s[:max(len(s)-1, 0)]
}

func TestRules(t *testing.T) {
	for _, c := range []struct {
		name  string
		size  int
		jobs  []pool.Job
		goals string
		mays  string
	}{
		{"room for all", 8, []pool.Job{{Name: "a", Ask: 3, Limit: 4}, {Name: "b", Ask: 4, Limit: 4}}, "a 3 b 4", "a 3 b 4"},
		{"the limit binds", 8, []pool.Job{{Name: "a", Ask: 9, Limit: 2}}, "a 2", "a 2"},
		{"priority takes what it asks for, beyond the guarantee", 4, []pool.Job{
			{Name: "a", Ask: 3, Limit: 4, Priority: 10, Guarantee: 1, Staying: 1},
			{Name: "b", Ask: 3, Limit: 4, Guarantee: 1, Staying: 3},
		}, "a 3 b 1", "a 1 b 1"},
		{"what drains is still held", 4, []pool.Job{
			{Name: "a", Ask: 3, Limit: 4, Priority: 10, Guarantee: 1, Staying: 1},
			{Name: "b", Ask: 3, Limit: 4, Guarantee: 1, Staying: 1, Leaving: 1},
		}, "a 3 b 1", "a 2 b 1"},
		{"a guarantee that is not asked for is lent", 4, []pool.Job{
			{Name: "a", Ask: 1, Limit: 4, Guarantee: 3, Staying: 1}, {Name: "b", Ask: 3, Limit: 4, Staying: 3},
		}, "a 1 b 3", "a 1 b 3"},
		{"and returned, whatever the other's priority", 4, []pool.Job{
			{Name: "a", Ask: 3, Limit: 4, Guarantee: 3, Staying: 1}, {Name: "b", Ask: 3, Limit: 4, Priority: 9, Staying: 3},
		}, "a 3 b 1", "a 1 b 1"},
		{"worth decides among equals", 4, []pool.Job{
			{Name: "a", Ask: 4, Limit: 4, Worth: []float64{9, 5, 1, 0}}, {Name: "b", Ask: 4, Limit: 4, Worth: []float64{9, 8, 7, 0}},
		}, "a 1 b 3", "a 1 b 3"},
		{"by GPU, where workers differ", 4, []pool.Job{
			{Name: "a", Ask: 1, Limit: 1, GPUs: 4, Worth: []float64{8}}, {Name: "b", Ask: 4, Limit: 4, Worth: []float64{3, 3, 3, 3}},
		}, "a 0 b 4", "a 0 b 4"},
		{"workers that are only worth something together", 4, []pool.Job{
			{Name: "a", Ask: 3, Limit: 4, Worth: []float64{0, 0, 9}}, {Name: "b", Ask: 4, Limit: 4, Worth: []float64{2, 2, 2, 2}},
		}, "a 3 b 1", "a 3 b 1"},
		{"a worker does not change hands for less than it costs", 2, []pool.Job{
			{Name: "a", Ask: 2, Limit: 2, Staying: 2, Worth: []float64{5, 1}, Move: 1}, {Name: "b", Ask: 1, Limit: 2, Worth: []float64{1.5}},
		}, "a 2 b 0", "a 2 b 0"},
		{"but for more", 2, []pool.Job{
			{Name: "a", Ask: 2, Limit: 2, Staying: 2, Worth: []float64{5, 1}, Move: 1}, {Name: "b", Ask: 1, Limit: 2, Worth: []float64{3.5}},
		}, "a 1 b 1", "a 1 b 0"},
		{"all equal: in turn", 5, []pool.Job{{Name: "a", Ask: 4, Limit: 4}, {Name: "b", Ask: 4, Limit: 4}}, "a 3 b 2", "a 3 b 2"},
		{"what is left of a GPU-hungry job's turn", 7, []pool.Job{
			{Name: "a", Ask: 3, Limit: 3, GPUs: 4, Priority: 1}, {Name: "b", Ask: 5, Limit: 5},
		}, "a 1 b 3", "a 1 b 3"},
		{"a pool that is too small for the guarantees", 2, []pool.Job{
			{Name: "a", Ask: 2, Limit: 2, Guarantee: 2}, {Name: "b", Ask: 2, Limit: 2, Guarantee: 2, Priority: 1},
		}, "a 0 b 2", "a 0 b 2"},
		{"more is held than there is", 2, []pool.Job{
			{Name: "a", Ask: 3, Limit: 3, Staying: 3}, {Name: "b", Ask: 1, Limit: 3, Guarantee: 1},
		}, "a 1 b 1", "a 1 b 0"},
		{"below its guarantee comes first", 4, []pool.Job{
			{Name: "a", Ask: 3, Limit: 3, Priority: 1, Staying: 1, Guarantee: 1}, {Name: "b", Ask: 1, Limit: 3, Guarantee: 1}, {Name: "c", Ask: 0, Limit: 3, Staying: 2},
		}, "a 3 b 1 c 0", "a 1 b 1 c 0"},
		{"unknown counts as its limit", 8, []pool.Job{{Name: "a", Ask: 4, Limit: 4, Staying: 1}, {Name: "b", Ask: 1, Limit: 5, Unknown: true}}, "a 3 b 0", "a 3 b 0"},
		{"unknown, and no room beside it: all stays", 4, []pool.Job{{Name: "a", Ask: 1, Limit: 4, Staying: 3}, {Name: "b", Ask: 1, Limit: 4, Unknown: true}}, "a 3 b 0", "a 3 b 0"},
		{"a worker of a job of weight 2 is worth twice as much", 4, []pool.Job{
			{Name: "a", Ask: 4, Limit: 4, Worth: []float64{9, 5, 2, 0}}, {Name: "b", Ask: 4, Limit: 4, Weight: 2, Worth: []float64{5, 4, 3, 0}},
		}, "a 1 b 3", "a 1 b 3"},
		{"weights divide what nobody knows the worth of, beyond the guarantees, whoever holds it", 11, []pool.Job{
			{Name: "a", Ask: 9, Limit: 9, Guarantee: 2, Staying: 9, Move: 1}, {Name: "b", Ask: 9, Limit: 9, Weight: 2, Staying: 2, Move: 1},
		}, "a 5 b 6", "a 5 b 2"},
		{"but not where the other is no better to have it", 5, []pool.Job{
			{Name: "a", Ask: 4, Limit: 4, Staying: 2, Move: 1}, {Name: "b", Ask: 4, Limit: 4, Staying: 3, Move: 1},
		}, "a 2 b 3", "a 2 b 3"},
		{"weight is nothing beside priority", 4, []pool.Job{
			{Name: "a", Ask: 4, Limit: 4, Priority: 1}, {Name: "b", Ask: 4, Limit: 4, Weight: 1000, Worth: []float64{9, 9}},
		}, "a 4 b 0", "a 4 b 0"},
		{"a turn is one worker, of who waited longest", 6, []pool.Job{
			{Name: "a", Ask: 6, Limit: 6, Priority: 1, Staying: 4}, {Name: "b", Ask: 4, Limit: 4, Guarantee: 1, Staying: 1, Since: start.Add(time.Second), Due: true},
			{Name: "c", Ask: 4, Limit: 4, Guarantee: 1, Staying: 1, Since: start, Due: true},
		}, "a 3 b 1 c 2", "a 3 b 1 c 1"},
		{"and who has a turn keeps it", 6, []pool.Job{
			{Name: "a", Ask: 6, Limit: 6, Priority: 1, Staying: 3}, {Name: "b", Ask: 4, Limit: 4, Guarantee: 1, Staying: 2, Since: start.Add(time.Second), Turn: start.Add(time.Hour)},
			{Name: "c", Ask: 4, Limit: 4, Guarantee: 1, Staying: 1, Since: start, Due: true},
		}, "a 3 b 2 c 1", "a 3 b 2 c 1"},
		{"a turn takes nothing of a guarantee", 2, []pool.Job{
			{Name: "a", Ask: 6, Limit: 6, Guarantee: 1, Staying: 1}, {Name: "b", Ask: 4, Limit: 4, Guarantee: 1, Staying: 1, Since: start, Due: true},
		}, "a 1 b 1", "a 1 b 1"},
		{"no pool", 0, []pool.Job{{Name: "a", Ask: 1, Limit: 4}}, "a 0", "a 0"},
		{"nonsense", 3, []pool.Job{{Name: "a", Ask: -1, Limit: -4, Staying: -2}, {Name: "b", Ask: 2, Limit: 2, Worth: []float64{math.NaN(), math.Inf(1)}, Move: math.NaN()}}, "a 0 b 2", "a 0 b 2"},
	} {
		d := pool.Divide(c.size, c.jobs)
		if g, m := goals(d), mays(d); g != c.goals || m != c.mays {
			t.Errorf("%s: goals %q, now %q; want %q, %q", c.name, g, m, c.goals, c.mays)
		}
	}
}

// draw is a set of jobs as they might be, or might not.
func draw(r *rand.Rand) (size int, jobs []pool.Job) {
	size = r.IntN(30)
	for i := range r.IntN(7) {
		j := pool.Job{
			Name: string(rune('a' + i)), Priority: r.IntN(3), Limit: r.IntN(8), Ask: r.IntN(9), Staying: r.IntN(5), Leaving: r.IntN(2), GPUs: 1 + r.IntN(3)*r.IntN(2),
			Move: float64(r.IntN(3)), Unknown: r.IntN(12) == 0, Weight: r.IntN(4),
		}
		if r.IntN(3) == 0 {
			j.Kept = r.IntN(4)
			j.Since, j.Due = start.Add(time.Duration(r.IntN(3))*time.Minute), r.IntN(2) == 0
		}
		if r.IntN(12) == 0 {
			j.Turn = start.Add(time.Hour)
		}
		j.Guarantee = r.IntN(j.Limit + 1)
		for range r.IntN(j.Limit + 2) {
			j.Worth = append(j.Worth, float64(r.IntN(6)))
		}
		jobs = append(jobs, j)
	}
	return size, jobs
}

// needs is what a job asks for without what it only keeps, or is owed.
func needs(j pool.Job) int {
	return max(min(j.Ask-j.Kept, j.Ask, j.Limit), min(j.Guarantee, j.Ask, j.Limit))
}

// simple divides among jobs that are all known, in the simplest way: each GPU by a look at all jobs.
func simple(size int, jobs []pool.Job) map[string]int {
	goal := map[string]int{}
	names := []string{}
	by := map[string]pool.Job{}
	for _, j := range jobs {
		names, by[j.Name] = append(names, j.Name), j
	}
	slices.Sort(names)
	asks := func(j pool.Job) int { return min(j.Ask, j.Limit) }
	most := asks
	// The greatest mean worth of the workers after the n-th, as far as one asks: what the next one is worth in company.
	next := func(j pool.Job, n int) float64 {
		at := func(i int) float64 {
			if i < len(j.Worth) {
				return j.Worth[i]
			}
			return 0
		}
		// The concave hull of the sums, from below: the slope of the segment over n.
		from := 0
		for from <= n {
			best, to, sum := -1.0, from, 0.0
			for k := from; k < most(j); k++ {
				sum += at(k)
				if mean := sum / float64(k-from+1); mean >= best {
					best, to = mean, k
				}
			}
			if to >= n {
				return best
			}
			from = to + 1
		}
		return 0
	}
	for p := 9; p >= 0; p-- {
		for _, n := range names {
			for j := by[n]; j.Priority == p && goal[n] < min(j.Guarantee, most(j)) && j.GPUs <= size; {
				goal[n]++
				size -= j.GPUs
			}
		}
	}
	if n := simpleTurn(size, jobs, goal); n != "" {
		goal[n]++
		size -= by[n].GPUs
	}
	for round := range 20 {
		p := 9 - round%10
		if most = asks; round < 10 { // first without what is only kept
			most = needs
		}
		valued := false
		for _, j := range jobs {
			valued = valued || j.Priority == p && goal[j.Name] < most(j) && next(j, goal[j.Name]) > 0
		}
		for {
			best := ""
			var even float64
			var offer float64
			for _, n := range names {
				j := by[n]
				if j.Priority != p || goal[n] >= most(j) || j.GPUs > size {
					continue
				}
				weight := float64(max(j.Weight, 1))
				v, e := next(j, goal[n])*weight, (float64(goal[n]-j.Guarantee)+0.5)*float64(j.GPUs)/weight
				if valued && goal[n] < j.Staying {
					v += v*j.Move/float64(j.GPUs) + j.Move
				}
				v /= float64(j.GPUs)
				near := math.Abs(v-offer) <= 1e-9
				keeps := goal[n] < j.Staying && goal[best] >= by[best].Staying
				if best == "" || v > offer && !near || near && (e < even-1e-9 || e < even+1e-9 && keeps) {
					best, offer, even = n, v, e
				}
			}
			if best == "" {
				break
			}
			goal[best]++
			size -= by[best].GPUs
		}
	}
	return goal
}

// simpleTurn is whose turn it is: in the order of who has a turn, since when, and the name, the first who can have one.
func simpleTurn(room int, jobs []pool.Job, goal map[string]int) string {
	jobs = slices.Clone(jobs)
	slices.SortFunc(jobs, func(a, b pool.Job) int {
		if a.Turn.IsZero() != b.Turn.IsZero() {
			return b.Turn.Compare(a.Turn)
		}
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Name, b.Name))
	})
	for _, j := range jobs {
		if (j.Due || !j.Turn.IsZero()) && min(j.Ask, j.Limit) > j.Guarantee && goal[j.Name] == j.Guarantee && j.GPUs <= room {
			return j.Name
		}
	}
	return ""
}

func TestProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 7))
	for range 4_000 {
		size, jobs := draw(r)
		check(t, size, jobs)
		if t.Failed() {
			t.Fatalf("size %d, jobs %+v", size, jobs)
		}
	}
}

func check(t *testing.T, size int, jobs []pool.Job) {
	t.Helper()
	d := pool.Divide(size, jobs)
	total, now, known := 0, 0, len(d.Frozen) == 0
	for _, s := range d.Shares {
		known = known && !s.Unknown
		total += s.Goal * s.GPUs
		now += (max(s.May, s.Staying) + s.Leaving) * s.GPUs
		if s.May > max(s.Goal, s.Staying) || s.May < min(s.Goal, s.Staying) {
			t.Errorf("job %s may have %d now: it has %d and shall have %d", s.Name, s.May, s.Staying, s.Goal)
		}
		if s.Unknown && s.May != s.Staying {
			t.Errorf("job %s is not known, and has to change from %d to %d", s.Name, s.Staying, s.May)
		}
	}
	if now > max(size, d.Held) {
		t.Errorf("%d GPUs would be held, of a pool of %d of which %d are", now, size, d.Held)
	}
	if len(d.Frozen) > 0 {
		for _, s := range d.Shares {
			if s.May != s.Staying {
				t.Errorf("not all is known, and job %s has to change from %d to %d", s.Name, s.Staying, s.May)
			}
		}
		return
	}
	if total > size {
		t.Errorf("the goals are %d GPUs of a pool of %d", total, size)
	}
	shuffled := slices.Clone(jobs)
	slices.Reverse(shuffled)
	again := pool.Divide(size, shuffled)
	slices.Reverse(again.Shares)
	if diff := gocmp.Diff(d.Shares, again.Shares); diff != "" {
		t.Errorf("the order of the jobs matters (-want +got):\n%s", diff)
	}
	if !known {
		return
	}
	owed := 0
	for _, s := range d.Shares {
		owed += min(s.Guarantee, s.Ask, s.Limit) * s.GPUs
	}
	for _, s := range d.Shares {
		if owed <= size && s.Goal < min(s.Guarantee, s.Ask, s.Limit) {
			t.Errorf("job %s gets %d, and its guarantee is %d", s.Name, s.Goal, s.Guarantee)
		}
		if s.Short() > 0 && s.GPUs <= size-total {
			t.Errorf("job %s is short of %d, and %d GPUs lie idle", s.Name, s.Short(), size-total)
		}
		for _, o := range d.Shares { // no worker of lower priority beyond the guarantee, where it would do for a higher one
			beyond := o.Goal - min(o.Guarantee, o.Ask, o.Limit)
			if o.OnTurn {
				beyond--
			}
			if o.Priority < s.Priority && s.Goal < needs(s.Job) && beyond > 0 && o.GPUs >= s.GPUs {
				t.Errorf("job %s of priority %d is short, and job %s of priority %d has more than its guarantee", s.Name, s.Priority, o.Name, o.Priority)
			}
		}
	}
	if n := len(slices.DeleteFunc(slices.Clone(d.Shares), func(s pool.Share) bool { return !s.OnTurn })); n > 1 {
		t.Errorf("%d jobs have a turn at a time", n)
	}
	want := simple(size, jobs)
	for _, s := range d.Shares {
		if s.Goal != want[s.Name] {
			t.Errorf("job %s gets %d, and %d by the simple way", s.Name, s.Goal, want[s.Name])
		}
	}
}

// A job that needs fewer than it holds, and lets nobody go for want of a forecast, keeps the others while nobody else needs them, whatever its priority; for
// one moment's wish they stay, and so does what is guaranteed.
func TestKeptIsForWhoNeedsIt(t *testing.T) {
	for name, tt := range map[string]struct {
		ask, fresh, guarantee int
		want                  string
	}{
		"nobody needs them":      {1, 0, 1, "3 1"},
		"another needs them":     {3, 0, 1, "1 3"},
		"one of them":            {2, 0, 1, "2 2"},
		"it asks only now":       {3, 2, 1, "3 1"},
		"all three are its own":  {3, 0, 3, "3 1"},
		"another needs far more": {9, 0, 1, "1 3"},
	} {
		d := pool.Divide(4, []pool.Job{
			{Name: "a", Priority: 10, Guarantee: tt.guarantee, Limit: 6, Ask: 3, Kept: 2, Staying: 3, Worth: []float64{50, 40, 40}},
			{Name: "b", Guarantee: 1, Limit: 6, Ask: tt.ask, Fresh: tt.fresh, Staying: 1},
		})
		if got := fmt.Sprintf("%d %d", d.Shares[0].Goal, d.Shares[1].Goal); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
		if words := d.Words(0); strings.Contains(words, "for want of a forecast alone") != (d.Shares[0].Goal < 3) {
			t.Errorf("%s: %s", name, words)
		}
	}
}

// A larger pool takes nothing from anybody, and what a job asks for, is guaranteed, or is put before others gives it no less. (With workers of several GPUs
// each, what is left over may go to one or the other, and only the second holds.)
func TestMonotone(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 13))
	for range 1_000 {
		size, jobs := draw(r)
		for i := range jobs {
			jobs[i].GPUs, jobs[i].Unknown = 1, false
		}
		if len(jobs) == 0 {
			continue
		}
		before, larger := pool.Divide(size, jobs), pool.Divide(size+1, jobs)
		for i, s := range larger.Shares {
			if s.Goal < before.Shares[i].Goal {
				t.Fatalf("size %d to %d: job %s gets %d instead of %d: %+v", size, size+1, s.Name, s.Goal, before.Shares[i].Goal, jobs)
			}
		}
		i := r.IntN(len(jobs))
		for what, change := range map[string]func(*pool.Job){
			"priority": func(j *pool.Job) { j.Priority++ }, "guarantee": func(j *pool.Job) { j.Guarantee++ }, "weight": func(j *pool.Job) { j.Weight = max(j.Weight, 1) + 1 },
		} {
			more := slices.Clone(jobs)
			change(&more[i])
			owed := 0
			for _, j := range more {
				owed += min(j.Guarantee, j.Ask, j.Limit)
			}
			if after := pool.Divide(size, more); owed <= size && after.Shares[i].Goal < before.Shares[i].Goal {
				t.Fatalf("with more %s job %s gets %d instead of %d: size %d, %+v", what, jobs[i].Name, after.Shares[i].Goal, before.Shares[i].Goal, size, jobs)
			}
		}
	}
}

// Jobs that do as they are told get to their goals, never hold more than there is, and then nothing moves any more: what a job holds may weigh in its
// favour only in a way that comes to rest.
func TestComesToRest(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 19))
	for range 1_000 {
		size, jobs := draw(r)
		held := 0
		for i := range jobs {
			jobs[i].Unknown, jobs[i].Staying, jobs[i].Leaving = false, 0, 0
			if room := (size - held) / jobs[i].GPUs; room > 0 {
				jobs[i].Staying = r.IntN(min(room, 8) + 1)
				held += jobs[i].Staying * jobs[i].GPUs
			}
		}
		for round := 0; ; round++ {
			d := pool.Divide(size, jobs)
			moved := false
			held := 0
			for i, s := range d.Shares {
				moved = moved || s.Staying != s.May || s.Leaving > 0
				jobs[i].Leaving = max(s.Staying-s.May, 0)
				jobs[i].Staying = s.May
				held += (s.May + jobs[i].Leaving) * s.GPUs
			}
			if held > size {
				t.Fatalf("round %d: %d GPUs are held of %d: %+v", round, held, size, jobs)
			}
			if !moved {
				for _, s := range d.Shares {
					if s.Staying != s.Goal {
						t.Fatalf("nothing moves, and job %s has %d of %d: size %d, %+v", s.Name, s.Staying, s.Goal, size, jobs)
					}
				}
				break
			}
			if round > 20 {
				t.Fatalf("no rest: size %d, %+v", size, jobs)
			}
		}
	}
}

// Among jobs of one priority, with workers of one GPU whose worth falls, no other division is worth more.
func TestWorthIsGreatest(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 29))
	for range 500 {
		jobs := make([]pool.Job, 3)
		for i := range jobs {
			jobs[i] = pool.Job{Name: string(rune('a' + i)), Limit: 4, Ask: r.IntN(5)}
			for range 4 {
				jobs[i].Worth = append(jobs[i].Worth, float64(r.IntN(20)))
			}
			slices.SortFunc(jobs[i].Worth, func(a, b float64) int { return int(b - a) })
		}
		size := r.IntN(8)
		value := func(goal ...int) (sum float64, ok bool) {
			n := 0
			for i, g := range goal {
				if n += g; g > jobs[i].Ask {
					return 0, false
				}
				for _, v := range jobs[i].Worth[:g] {
					sum += v
				}
			}
			return sum, n <= size
		}
		d := pool.Divide(size, jobs)
		got, _ := value(d.Shares[0].Goal, d.Shares[1].Goal, d.Shares[2].Goal)
		for k := range 125 {
			if v, ok := value(k%5, k/5%5, k/25); ok && v > got {
				t.Fatalf("%s is worth %v, and %v was to be had: size %d, %+v", goals(d), got, v, size, jobs)
			}
		}
	}
}

func FuzzDivide(f *testing.F) {
	f.Add(uint64(1), uint64(2), 1.0)
	f.Fuzz(func(t *testing.T, a, b uint64, move float64) {
		r := rand.New(rand.NewPCG(a, b))
		size, jobs := draw(r)
		check(t, size, jobs)
		for i := range jobs { // and nonsense, which must only not be taken for room
			if r.IntN(3) == 0 {
				jobs[i].Ask, jobs[i].Staying, jobs[i].GPUs, jobs[i].Move = int(a%100)-50, int(b%7)-3, r.IntN(5)-2, move
				jobs[i].Worth = []float64{move, math.NaN(), math.Inf(1), -move}
			}
		}
		d := pool.Divide(size, jobs)
		now := 0
		for i, s := range d.Shares {
			now += (max(s.May, s.Staying) + s.Leaving) * s.GPUs
			if d.Words(i) == "" || s.Goal < 0 || s.May < 0 {
				t.Errorf("job %s: %+v", s.Name, s)
			}
		}
		if now > max(size, d.Held) {
			t.Errorf("%d of %d GPUs, and %d are held: %+v", now, size, d.Held, jobs)
		}
	})
}

func TestWords(t *testing.T) {
	jobs := []pool.Job{
		{Name: "a", Ask: 3, Limit: 4, Priority: 10, Guarantee: 1, Staying: 1},
		{Name: "b", Ask: 3, Limit: 4, Guarantee: 1, Staying: 3},
	}
	d := pool.Divide(4, jobs)
	for i, want := range []string{
		"asks for 3, is guaranteed 1, holds 1; gets 3; waits for 2 until b has given back",
		"asks for 3, is guaranteed 1, holds 3; gets 1 of the pool's 4, beside a of higher priority; gives 2 back for a (priority 10)",
	} {
		if got := d.Words(i); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	if got, want := pool.Divide(4, []pool.Job{{Name: "a", Ask: 1, Limit: 4, Staying: 3}}).Words(0), "asks for 1, is guaranteed 0, holds 3; gets 1; lets 2 go"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	jobs[1].Unknown = true
	if got, want := pool.Divide(4, jobs).Words(0), "asks for 3, is guaranteed 1, holds 1; all stays as it is until it is known what b holds"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func BenchmarkDivide(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("jobs=%d", n), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, uint64(n)))
			jobs := make([]pool.Job, n)
			for i := range jobs {
				j := pool.Job{Name: fmt.Sprintf("job-%05d", i), Priority: r.IntN(3), Guarantee: 2, Limit: 28, Ask: 2 + r.IntN(26), Staying: r.IntN(14), GPUs: 1, Move: 0.05}
				for w := range j.Limit {
					j.Worth = append(j.Worth, 60*r.Float64()/float64(1+w))
				}
				jobs[i] = j
			}
			for b.Loop() {
				pool.Divide(8*n, jobs)
			}
		})
	}
}

// What prevents next to nothing is worth nothing: a live stream always has some records that wait, and weights divide all the same, whoever holds what.
func TestNextToNothingIsNothing(t *testing.T) {
	jobs := func(worth float64) []pool.Job {
		return []pool.Job{
			{Name: "feed", Weight: 2, Guarantee: 1, Limit: 5, Ask: 5, Staying: 4, GPUs: 1, Worth: []float64{18, worth, worth, worth, worth}, Move: 1.3},
			{Name: "log", Guarantee: 1, Limit: 5, Ask: 5, Staying: 1, GPUs: 1, Worth: []float64{18, worth / 2, worth / 2, worth / 2, worth / 2}, Move: 1.3},
		}
	}
	for worth, want := range map[float64][2]int{0: {3, 2}, 0.02: {3, 2}, 0.0499: {3, 2}, 0.05: {4, 1}, 0.5: {4, 1}} {
		d := pool.Divide(5, jobs(worth))
		if got := [2]int{d.Shares[0].Goal, d.Shares[1].Goal}; got != want {
			t.Errorf("with workers that are worth %g, feed and log get %v, not %v", worth, got, want)
		}
	}
}
