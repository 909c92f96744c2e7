package pool

import (
	"strings"
	"testing"
	"time"
)

// asking is jobs that ask a pool tick by tick, and get what it gives at once.
type asking struct {
	t     *testing.T
	size  int
	now   time.Time
	jobs  []Job
	asked []Asked
}

const move = 5 * time.Second

// tick divides after the jobs asked for so much, and says what each may have.
func (a *asking) tick(asks ...int) (may []int) {
	a.t.Helper()
	a.now = a.now.Add(2 * time.Second)
	worth := make([][]float64, len(a.jobs)) // as it is now
	for i := range a.jobs {
		j := &a.jobs[i]
		j.Ask = asks[i]
		a.asked[i] = a.asked[i].After(j, a.now, move)
		worth[i] = j.Worth
		a.asked[i].Tell(j)
	}
	d := Divide(a.size, a.jobs)
	for i, s := range d.Shares {
		a.jobs[i].Worth = worth[i]
		a.jobs[i].Staying = s.May
		may = append(may, s.May)
	}
	return may
}

// want ticks until all jobs have so much, in n ticks exactly.
func (a *asking) want(n int, want []int, asks ...int) {
	a.t.Helper()
	for k := range n {
		got := a.tick(asks...)
		same := true
		for i := range want {
			same = same && got[i] == want[i]
		}
		if same != (k == n-1) {
			a.t.Fatalf("asking for %v, in tick %d of %d they have %v, and %v is wanted at its end", asks, k+1, n, got, want)
		}
	}
}

// One tick's load of a job of higher priority takes no worker from another; one that lasts for as long as a move takes does. What nobody wants it has at once, and
// what it is guaranteed at any moment.
func TestNobodyDrainsForTheWhimOfAMoment(t *testing.T) {
	a := &asking{t: t, size: 6, now: time.Unix(1_800_000_000, 0), asked: make([]Asked, 2), jobs: []Job{
		{Name: "a", Priority: 10, Guarantee: 1, Limit: 6}, {Name: "b", Guarantee: 2, Limit: 6}}}
	a.want(1, []int{2, 3}, 2, 3) // there is room
	a.want(1, []int{2, 4}, 2, 4)
	a.want(1, []int{2, 4}, 3, 4) // one tick
	a.want(1, []int{2, 4}, 2, 4)
	a.want(1, []int{2, 4}, 3, 4) // and another: the time counts anew
	a.want(1, []int{2, 4}, 2, 4)
	for range 3 {
		if may := a.tick(3, 4); may[0] != 2 || may[1] != 4 {
			t.Fatalf("they have %v before the load has lasted", may)
		}
	}
	if may := a.tick(3, 4); may[1] != 3 { // 6 s
		t.Fatalf("a load that lasts gets nothing: %v", may)
	}
	a.want(1, []int{3, 3}, 3, 4)
	a.want(2, []int{0, 5}, 0, 5)
	if may := a.tick(1, 6); may[0] != 1 { // what it is guaranteed: nobody waits for that
		t.Errorf("the guarantee is not served: %v", may)
	}
}

// What a job was given a moment ago is not taken for another of its priority, whatever that is worth there and however long it was asked for; then it is.
func TestWhatJustCameStays(t *testing.T) {
	a := &asking{t: t, size: 2, now: time.Unix(1_800_000_000, 0), asked: make([]Asked, 2), jobs: []Job{
		{Name: "a", Guarantee: 1, Limit: 3, Worth: []float64{9, 5}}, {Name: "b", Guarantee: 1, Limit: 3, Worth: []float64{9, 1}}}}
	for range 4 {
		a.tick(2, 2) // both are firm of 2
	}
	a.size = 3 // a GPU comes
	a.want(1, []int{2, 1}, 2, 2)
	a.jobs[0].Worth, a.jobs[1].Worth = []float64{9, 1}, []float64{9, 5}
	for k := range 3 { // seen in the first of these ticks of 2 s: a move of 5 s is over in the fourth
		if may := a.tick(2, 2); may[0] != 2 || may[1] != 1 {
			t.Fatalf("%d s after the worker came they have %v", 2*k, may)
		}
	}
	for range 8 { // it is worth five times as much there, and was all the time that a move takes: one gives, and the other has it
		a.tick(2, 2)
	}
	if may := a.tick(2, 2); may[0] != 1 || may[1] != 2 {
		t.Errorf("what is worth more elsewhere for long does not move: %v", may)
	}
}

// A clock that goes back makes nothing firm, and nothing stay for ever.
func TestAskedAndTheClock(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	a := Asked{}.After(&Job{Ask: 1, Staying: 0}, now, move).After(&Job{Ask: 1, Staying: 1}, now.Add(move), move)
	back := now.Add(-time.Hour)
	a = a.After(&Job{Ask: 3, Staying: 1}, back, move)
	j := Job{Ask: 3, Staying: 1}
	if a.Tell(&j); j.Fresh != 2 || j.Settling != 0 {
		t.Errorf("an hour back: %+v", j)
	}
	a = a.After(&Job{Ask: 3, Staying: 1}, back.Add(move), move)
	if a.Tell(&j); j.Fresh != 0 {
		t.Errorf("a move later: %+v", j)
	}
}

// Of what a job asked for while a move takes, the least is firm.
func TestTheLeastIsFirm(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	a := Asked{}.After(&Job{Ask: 2, Staying: 2}, now, move).After(&Job{Ask: 2, Staying: 2}, now.Add(move), move)
	for k, ask := range []int{5, 3, 5} { // 1, 3 and 6 s later
		a = a.After(&Job{Ask: ask, Staying: 2}, now.Add(move+[]time.Duration{1, 3, 6}[k]*time.Second), move)
	}
	j := Job{Ask: 5, Staying: 2}
	if a.Tell(&j); j.Fresh != 2 {
		t.Errorf("%d of 5 are not firm, want 2: 3 were asked for all the time", j.Fresh)
	}
}

// What a worker is worth in one moment moves none.
func TestTheWorthOfAMomentMovesNothing(t *testing.T) {
	calm, other := []float64{9, 3}, []float64{9, 2}
	a := &asking{t: t, size: 3, now: time.Unix(1_800_000_000, 0), asked: make([]Asked, 2), jobs: []Job{
		{Name: "a", Guarantee: 1, Limit: 3, Staying: 2}, {Name: "b", Guarantee: 1, Limit: 3, Staying: 1}}}
	for k := range 20 {
		a.jobs[0].Worth, a.jobs[1].Worth = calm, other
		if k%4 == 2 {
			a.jobs[1].Worth = []float64{9, 14}
		}
		if may := a.tick(2, 2); may[0] != 2 || may[1] != 1 {
			t.Fatalf("after %d ticks they have %v", k+1, may)
		}
	}
}

// What a job keeps for want of a forecast it lends once it has not needed it for as long as it takes to move a worker there and back, and says so.
func TestNobodyLendsInAQuietMoment(t *testing.T) {
	a := &asking{t: t, size: 3, now: time.Unix(1_800_000_000, 0), asked: make([]Asked, 2), jobs: []Job{
		{Name: "a", Priority: 10, Guarantee: 1, Limit: 3, Staying: 2}, {Name: "b", Guarantee: 1, Limit: 3, Staying: 1}}}
	for k := range 20 { // 8 s of quiet at most
		if a.jobs[0].Kept = 1; k%5 == 0 {
			a.jobs[0].Kept = 0
		}
		if may := a.tick(2, 2); may[0] != 2 {
			t.Fatalf("after %d ticks it has %d", k+1, may[0])
		}
	}
	if d := Divide(a.size, a.jobs); !strings.Contains(d.Words(0), "; 1 that it needed a moment ago it lends to nobody yet") {
		t.Errorf("its share: %s", d.Words(0))
	}
	gave := 0
	for ; gave < 8 && a.jobs[0].Staying == 2; gave++ {
		a.jobs[0].Kept = 1
		a.tick(2, 2)
	}
	if gave < 1 || gave == 8 {
		t.Errorf("what it has not needed for long it lends after %d ticks", gave)
	}
}
