package pool

import (
	"cmp"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

// asking is jobs that ask a pool tick by tick, and get what it gives at once.
type asking struct {
	t     *testing.T
	size  int
	now   time.Time
	every time.Duration // a tick; 0: 2 s
	jobs  []Job
	asked []Asked
}

const move = 5 * time.Second

// tick divides after the jobs asked for so much, and says what each may have.
func (a *asking) tick(asks ...int) (may []int) {
	a.t.Helper()
	a.now = a.now.Add(cmp.Or(a.every, 2*time.Second))
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
	for _, every := range []time.Duration{2 * time.Second, 3 * move} { // decisions may be further apart than a move takes
		calm, other := []float64{9, 3}, []float64{9, 2}
		a := &asking{t: t, size: 3, now: time.Unix(1_800_000_000, 0), every: every, asked: make([]Asked, 2), jobs: []Job{
			{Name: "a", Guarantee: 1, Limit: 3, Staying: 2}, {Name: "b", Guarantee: 1, Limit: 3, Staying: 1}}}
		for k := range 20 {
			a.jobs[0].Worth, a.jobs[1].Worth = calm, other
			if k%4 == 2 {
				a.jobs[1].Worth = []float64{9, 14}
			}
			if may := a.tick(2, 2); may[0] != 2 || may[1] != 1 {
				t.Fatalf("after %d ticks of %v they have %v", k+1, every, may)
			}
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

// A job whose traffic jumps takes no worker from another for a jump, however long that lasts, and lends what its traffic on the whole does not need, whatever its priority; one that this leaves over its
// objective takes them.
func TestNobodyDrainsForAJump(t *testing.T) {
	a := &asking{t: t, size: 7, now: time.Unix(1_800_000_000, 0), asked: make([]Asked, 2), jobs: []Job{
		{Name: "a", Priority: 10, Guarantee: 1, Limit: 7, Staying: 3, Calm: 3, CalmMost: 3}, {Name: "b", Guarantee: 1, Limit: 7, Staying: 4}}}
	for range 20 {
		if may := a.tick(6, 4); may[0] != 3 || may[1] != 4 {
			t.Fatalf("for a jump they have %v", may)
		}
	}
	if d := Divide(a.size, a.jobs); !strings.Contains(d.Words(0), "; for 3 that it asks for in a jump of its traffic, which needs 3 on the whole, nobody drains") {
		t.Errorf("its share: %s", d.Words(0))
	}
	a.want(2, []int{6, 1}, 6, 1) // nobody else wants them
	for k := range 20 {
		a.jobs[0].Kept = 0
		if may := a.tick(6, 4); may[0] == 3 && may[1] == 4 {
			break
		} else if k == 19 {
			t.Fatalf("it keeps what it had in the jump: %v", may)
		}
	}
	a.jobs[0].Late = true
	for k := range 20 {
		if may := a.tick(6, 4); may[0] == 6 && may[1] == 1 {
			if k < 2 {
				t.Errorf("it takes %v after %d ticks of lateness", may, k+1)
			}
			return
		}
	}
	t.Error("who is over its objective for long gets nothing")
}

// Where a worker moves sooner than a jump is worked off, a job is late for long once it has been for as long as its objective is.
func TestLateForLongIsOfTheObjectiveToo(t *testing.T) {
	j, now, a := Job{Ask: 3, Calm: 1, CalmMost: 1, Late: true, Objective: 4 * move}, time.Unix(1_800_000_000, 0), Asked{}
	for k := range 6 {
		a = a.After(&j, now.Add(time.Duration(k)*move), move)
		if want := k >= 4; a.Long != want {
			t.Errorf("after %d moves of lateness, of an objective of 4: %v", k, a.Long)
		}
	}
}

// Each change of what a job holds that undoes the one before doubles for how long it must ask and what another change costs, and quiet times make it less.
func TestReversalsMakeAMoveDearer(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	var a Asked
	j := Job{Ask: 2, Staying: 2, Move: 1, Limit: 9}
	step := func(staying int, after time.Duration) int {
		now = now.Add(after)
		j.Staying = staying
		a = a.After(&j, now, move)
		a.Tell(&j)
		return j.Back
	}
	for k, want := range []int{0, 1, 2, 3, 4, 4} {
		if got := step(3-k%2, move); got != want {
			t.Errorf("after change %d: %d, want %d", k, got, want)
		}
	}
	if got := j.sane().Move; got != 16 {
		t.Errorf("a move costs %v times as much, want 16", got)
	}
	asks := 0
	for j.Ask = 5; asks < 40 && j.Fresh != 0 || asks == 0; asks++ {
		step(2, move)
	}
	if asks != quietMoves {
		t.Errorf("what it asks for is firm after %d moves, want %d", asks, quietMoves)
	}
	for _, want := range []int{1, 0, 0} { // one such time has passed
		if got := step(2, quietMoves*move); got != want {
			t.Errorf("after a quiet time: %d, want %d", got, want)
		}
	}
	if got := step(1, move); got != 0 {
		t.Errorf("a change long after the last undoes nothing: %d", got)
	}
}

// What is remembered survives a restart.
func TestAskedIsKept(t *testing.T) {
	now := time.Unix(1_800_000_000, 0).UTC()
	var a Asked
	for k := range 9 {
		j := Job{Ask: 3 + k%3, Staying: 2 + k%2, Worth: []float64{3, 2, float64(k)}, Calm: 2, CalmMost: 3, Late: k > 5}
		a = a.After(&j, now.Add(time.Duration(k)*2*time.Second), move)
	}
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var b Asked
	if err := json.Unmarshal(text, &b); err != nil || !reflect.DeepEqual(a, b) {
		t.Errorf("%v: %+v, was %+v", err, b, a)
	}
	if text, _ := json.Marshal(Asked{}); string(text) != "{}" {
		t.Errorf("nothing: %s", text)
	}
}

// Where weights alone divide, what a job was given a moment ago is not taken for another of its priority either: nor is another of its workers instead.
func TestWhatJustCameStaysWhereWeightsDivide(t *testing.T) {
	jobs := []Job{{Name: "a", Limit: 9, Ask: 6, Staying: 4, Settling: 1}, {Name: "b", Limit: 9, Ask: 6, Staying: 2, Weight: 2}}
	if d := Divide(6, jobs); d.Shares[0].Goal != 4 || d.Shares[1].Goal != 2 {
		t.Errorf("a has %d, b %d", d.Shares[0].Goal, d.Shares[1].Goal)
	}
	jobs[0].Settling = 0
	if d := Divide(6, jobs); d.Shares[0].Goal != 2 || d.Shares[1].Goal != 4 {
		t.Errorf("then a has %d, b %d", d.Shares[0].Goal, d.Shares[1].Goal)
	}
	jobs[0].Settling, jobs[1].Priority = 1, 1
	if d := Divide(6, jobs); d.Shares[0].Goal != 0 {
		t.Errorf("beside a higher priority a has %d", d.Shares[0].Goal)
	}
}

// Who gets less is told who has it, and what it is worth there and here.
func TestWordsOfWorth(t *testing.T) {
	jobs := []Job{
		{Name: "a", Limit: 4, Ask: 3, Staying: 1, Worth: []float64{9, 1.5, 1}, Guarantee: 1},
		{Name: "b", Limit: 4, Ask: 2, Staying: 2, Worth: []float64{9, 3}, Move: 0.5, Guarantee: 1},
		{Name: "c", Limit: 4, Ask: 2, Staying: 1, Worth: []float64{9, 4}, Guarantee: 1, GPUs: 1},
	}
	d := Divide(5, jobs)
	want := "asks for 3, is guaranteed 1, holds 1; gets 1 of the pool's 5, beside b and c where a worker is worth as much or more (GPU-hours of lag that it prevents for each GPU-hour: " +
		"the last of b 3, and 5 with what it would cost to move it, the last of c 4; the next here 1.5)"
	if got := d.Words(0); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Figures of worth are written out.
func TestFiguresOfWorth(t *testing.T) {
	for worth, want := range map[float64]string{0.04567: "0.046", 1.5: "1.5", 9.94: "9.9", 12.4: "12", 2012: "2012", 7_712_000: "7712000"} {
		if got := figure(worth); got != want {
			t.Errorf("%v: %s, want %s", worth, got, want)
		}
	}
}
