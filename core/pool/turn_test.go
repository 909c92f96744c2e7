package pool_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/pool"
)

// Each type is divided as a pool of its own: nobody has GPUs of another type, and none above its own.
func TestTypes(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 37))
	for range 500 {
		var all []pool.Job
		var types []pool.Type
		want := map[string]pool.Division{}
		for _, name := range []string{"a100", "l4", "h100"} {
			size, jobs := draw(r)
			for i := range jobs {
				jobs[i].Name, jobs[i].Type = name+"-"+jobs[i].Name, name
			}
			if name == "h100" { // which the pool does not have
				size = 0
			} else {
				types = append(types, pool.Type{Name: name, GPUs: size})
			}
			d := pool.Divide(size, jobs)
			d.Type = name
			if name != "h100" || len(jobs) > 0 {
				want[name] = d
			}
			all = append(all, jobs...)
		}
		ds := pool.DivideTypes(types, all)
		if len(ds) != len(want) {
			t.Fatalf("%d divisions, want %d", len(ds), len(want))
		}
		for _, d := range ds {
			if diff := gocmp.Diff(want[d.Type], d); diff != "" {
				t.Fatalf("type %s (-want +got):\n%s", d.Type, diff)
			}
		}
	}
	d := pool.DivideTypes([]pool.Type{{"a100", 2}, {"l4", 4}}, []pool.Job{{Name: "a", Type: "l4", Ask: 6, Limit: 6, Staying: 4}, {Name: "b", Type: "a100", Ask: 1, Limit: 1}})
	if got, want := d[1].Words(0), "asks for 6, is guaranteed 0, holds 4; gets 4, all that the pool of 4 l4 has"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// What nobody knows the worth of is divided in proportion to weights, rounded to workers, whoever holds what; and then nothing moves.
func TestWeightsDivide(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 43))
	for range 500 {
		size, weights, held := 10+r.IntN(50), 0, 0
		jobs := make([]pool.Job, 2+r.IntN(4))
		for i := range jobs {
			jobs[i] = pool.Job{Name: string(rune('a' + i)), Limit: size, Ask: size, Weight: 1 + r.IntN(5), Move: 1, Staying: r.IntN(size - held + 1)}
			held += jobs[i].Staying
			weights += jobs[i].Weight
		}
		for range 3 {
			for i, s := range pool.Divide(size, jobs).Shares {
				jobs[i].Staying = s.Goal
			}
		}
		for i, s := range pool.Divide(size, jobs).Shares {
			if s.Goal != s.Staying {
				t.Fatalf("job %s moves from %d to %d: %+v", s.Name, s.Staying, s.Goal, jobs)
			}
			for _, o := range jobs { // no worker would be nearer to what is due to it elsewhere
				if (2*s.Goal-1)*o.Weight > (2*o.Staying+1)*s.Weight {
					t.Fatalf("job %s has %d at weight %d, and job %s %d at weight %d: %+v", s.Name, s.Goal, s.Weight, o.Name, o.Staying, o.Weight, jobs[i])
				}
			}
		}
	}
}

// What the worth of workers changes by, less than moving one costs, moves none of them, however jobs are weighed.
func TestNoiseMovesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(47, 53))
	for range 300 {
		jobs := make([]pool.Job, 4)
		base := make([][]float64, len(jobs))
		for i := range jobs {
			jobs[i] = pool.Job{Name: string(rune('a' + i)), Limit: 8, Ask: 1 + r.IntN(8), Weight: 1 + r.IntN(3), Move: 1, Priority: r.IntN(2)}
			for w := range 8 {
				base[i] = append(base[i], 20*r.Float64()/float64(1+w)+1)
			}
		}
		for round := range 20 {
			for i := range jobs {
				jobs[i].Worth = nil
				for _, v := range base[i] { // both sides together change by less than Move
					jobs[i].Worth = append(jobs[i].Worth, v+(r.Float64()-0.5)*0.9*jobs[i].Move/float64(jobs[i].Weight)/2)
				}
			}
			for i, s := range pool.Divide(10, jobs).Shares {
				if round > 3 && s.Goal != s.Staying {
					t.Fatalf("round %d: job %s moves from %d to %d", round, s.Name, s.Staying, s.Goal)
				}
				jobs[i].Staying = s.Goal
			}
		}
	}
}

// While a worker moves it trains for nobody: what it would have been worth is part of the change's cost. With Move .45 per GPU, of the time that the change is kept
// 45 % pass so: a worker that is worth 40 GPUs does not change hands for one that is worth 50, nor for 58, but for one that is worth 60.
func TestWhatAMoveCostsIsWhatTheWorkerIsWorth(t *testing.T) {
	for _, tt := range []struct {
		gpus  int
		other float64
		moves bool
	}{{1, 50, false}, {1, 58, false}, {1, 60, true}, {2, 50, false}, {2, 58, false}, {2, 60, true}} {
		jobs := []pool.Job{
			{Name: "a", Limit: 4, Ask: 2, Staying: 2, GPUs: tt.gpus, Worth: []float64{900, 40 * float64(tt.gpus)}, Move: pool.Move(tt.gpus, 240, 30, 600)},
			{Name: "b", Limit: 4, Ask: 2, Staying: 1, GPUs: tt.gpus, Worth: []float64{900, tt.other * float64(tt.gpus)}, Move: pool.Move(tt.gpus, 240, 30, 600)},
		}
		if s := pool.Divide(3*tt.gpus, jobs).Shares; s[1].Goal == 2 != tt.moves || s[0].Goal+s[1].Goal != 3 {
			t.Errorf("workers of %d GPUs, worth 40 a GPU where they are and %g elsewhere: a has %d, b %d", tt.gpus, tt.other, s[0].Goal, s[1].Goal)
		}
	}
}

// world is jobs that do as they are told, and the waits that their schedulers keep.
type world struct {
	size     int
	now      time.Time
	patience time.Duration
	move     time.Duration
	jobs     []pool.Job
	waits    []pool.Wait
}

// round is a minute: all decide, and what was to be drained before is gone.
func (w *world) round() pool.Division {
	for i := range w.jobs {
		w.waits[i].Tell(&w.jobs[i], w.now, w.patience, w.move)
	}
	d := pool.Divide(w.size, w.jobs)
	for i, s := range d.Shares {
		w.waits[i] = w.waits[i].After(s, w.now, w.patience, w.move)
		w.jobs[i].Leaving = s.Gives
		w.jobs[i].Staying = s.May
	}
	w.now = w.now.Add(time.Minute)
	return d
}

// Whoever asks for more than its guarantee has more within the patience and the turns of those before it, whatever the others ask for: one at a time, and
// nobody's guarantee is touched. Schedulers that are killed at any time change nothing of that.
func TestNobodyStarves(t *testing.T) {
	r := rand.New(rand.NewPCG(59, 61))
	turned := 0
	for range 60 {
		w := world{now: start, patience: time.Hour, move: 2 * time.Minute}
		n := 2 + r.IntN(5)
		w.size = 4 // beyond the guarantees
		for i := range n {
			j := pool.Job{Name: string(rune('a' + i)), Priority: r.IntN(3), Limit: 9, Ask: 2 + r.IntN(8), Guarantee: 1, Staying: 1, GPUs: 1 + r.IntN(2), Weight: 1 + r.IntN(2), Move: 0.1}
			for range 9 {
				j.Worth = append(j.Worth, 10*r.Float64())
			}
			slices.SortFunc(j.Worth, func(a, b float64) int { return int(1000 * (b - a)) })
			w.size += j.GPUs
			w.jobs = append(w.jobs, j)
		}
		w.waits = make([]pool.Wait, n)
		last := make([]time.Time, n) // when it had more than its guarantee
		for i := range last {
			last[i] = start
		}
		// Its patience, a turn of each of the others, and for each change of turns the minutes that it takes.
		bound := w.patience + time.Duration(n)*(pool.TurnLength(w.patience, w.move)+4*time.Minute)
		for range 12 * 60 {
			if r.IntN(10) == 0 {
				text, err := json.Marshal(w.waits)
				if err != nil {
					t.Fatal(err)
				}
				w.waits = nil
				if err := json.Unmarshal(text, &w.waits); err != nil {
					t.Fatal(err)
				}
			}
			d := w.round()
			turns := 0
			for i, s := range d.Shares {
				if s.OnTurn {
					turns++
				}
				if s.Goal < 1 {
					t.Fatalf("job %s has less than its guarantee", s.Name)
				}
				if s.Staying > 1 {
					last[i] = w.now
				}
				if w.now.Sub(last[i]) > bound {
					t.Fatalf("job %s has had no more than its guarantee for %v, of %d jobs: %+v", s.Name, w.now.Sub(last[i]), n, d.Shares)
				}
			}
			if turns > 1 {
				t.Fatalf("%d turns at a time", turns)
			}
			turned += turns
		}
	}
	if turned == 0 {
		t.Error("nobody ever had a turn: this test is not worth anything")
	}
}

// A turn is rare and long: between the turns of one job lies the patience, and each lasts for a quarter of it.
func TestTurnsDoNotFlap(t *testing.T) {
	w := world{size: 4, now: start, patience: time.Hour, move: time.Minute, waits: make([]pool.Wait, 2), jobs: []pool.Job{
		{Name: "a", Priority: 1, Ask: 4, Limit: 4, Guarantee: 1, Staying: 3}, {Name: "b", Ask: 3, Limit: 4, Guarantee: 1, Staying: 1},
	}}
	var got []string
	had := 0
	for range 4 * 60 {
		w.round()
		if n := w.jobs[1].Staying; n != had {
			got = append(got, fmt.Sprintf("%s %d", w.now.Add(-time.Minute).Format("15:04"), n))
			had = n
		}
	}
	want := "00:00 1, 01:01 2, 01:16 1, 02:18 2, 02:33 1, 03:35 2, 03:50 1"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("b has\n%s, want\n%s", s, want)
	}
	w.patience = 0
	for range 3 * 60 {
		if w.round(); w.jobs[1].Staying != 1 || w.waits[1] != (pool.Wait{}) {
			t.Fatalf("without patience b has %d, and %+v", w.jobs[1].Staying, w.waits[1])
		}
	}
}

func TestWait(t *testing.T) {
	const patience, move = time.Hour, time.Minute
	at := func(d time.Duration) time.Time { return start.Add(d) }
	short := pool.Share{Job: pool.Job{Ask: 3, Limit: 4, Guarantee: 1, Staying: 1}, Goal: 1, May: 1}
	with := func(change func(*pool.Share)) pool.Share {
		s := short
		change(&s)
		return s
	}
	turn := with(func(s *pool.Share) { s.OnTurn, s.Goal, s.May = true, 2, 2 })
	for _, c := range []struct {
		name string
		w    pool.Wait
		s    pool.Share
		move time.Duration
		want pool.Wait
	}{
		{"it begins to wait", pool.Wait{}, short, move, pool.Wait{Since: at(0)}},
		{"it waits", pool.Wait{Since: at(-time.Minute)}, short, move, pool.Wait{Since: at(-time.Minute)}},
		{"it has more", pool.Wait{Since: at(-time.Minute)}, with(func(s *pool.Share) { s.Staying = 2 }), move, pool.Wait{}},
		{"it asks for no more", pool.Wait{Since: at(-time.Minute)}, with(func(s *pool.Share) { s.Ask = 1 }), move, pool.Wait{}},
		{"its turn begins", pool.Wait{Since: at(-2 * time.Hour)}, turn, move, pool.Wait{Since: at(-2 * time.Hour), Until: at(15 * time.Minute)}},
		{"one that is worth its moves", pool.Wait{Since: at(-2 * time.Hour)}, turn, 6 * time.Minute, pool.Wait{Since: at(-2 * time.Hour), Until: at(24 * time.Minute)}},
		{"its turn waits for GPUs", pool.Wait{Since: at(-2 * time.Hour)}, with(func(s *pool.Share) { s.OnTurn, s.Goal = true, 2 }), move, pool.Wait{Since: at(-2 * time.Hour)}},
		{"its turn is over", pool.Wait{Since: at(-2 * time.Hour), Until: at(0)}, with(func(s *pool.Share) { s.Staying = 1 }), move, pool.Wait{Since: at(0)}},
		{"it does not ask in its turn", pool.Wait{Since: at(-2 * time.Hour), Until: at(time.Minute)}, with(func(s *pool.Share) { s.Ask = 1 }), move, pool.Wait{}},
		{"the clock went back", pool.Wait{Since: at(time.Hour)}, short, move, pool.Wait{Since: at(0)}},
		{"and in a turn", pool.Wait{Since: at(-time.Hour), Until: at(9 * time.Hour)}, turn, move, pool.Wait{Since: at(-time.Hour), Until: at(15 * time.Minute)}},
	} {
		if got := c.w.After(c.s, start, patience, c.move); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestWordsOfTurns(t *testing.T) {
	jobs := []pool.Job{
		{Name: "a", Ask: 4, Limit: 4, Priority: 10, Guarantee: 1, Staying: 3},
		{Name: "b", Ask: 3, Limit: 4, Guarantee: 1, Staying: 1, Weight: 2, Since: start.Add(-time.Hour), Due: true},
		{Name: "c", Ask: 3, Limit: 4, Guarantee: 1, Staying: 1, Since: start.Add(-time.Minute), Due: true},
	}
	check := func(size int, want ...string) {
		t.Helper()
		d := pool.Divide(size, jobs)
		for i := range jobs {
			if got := d.Words(i); got != want[i] {
				t.Errorf("got  %s\nwant %s", got, want[i])
			}
		}
	}
	const late = "; has had no more than its guarantee since Jan 1 23:59"
	check(5,
		"asks for 4, is guaranteed 1, holds 3; gets 2 of the pool's 5, beside b whose turn it is after a wait, c with what it is guaranteed; gives 1 back for b (priority 0)",
		"asks for 3, is guaranteed 1, holds 1, has weight 2; gets 2 of the pool's 5, beside a of higher priority, c with what it is guaranteed; "+
			"one of them in its turn, for it has had no more than its guarantee since Jan 1 23:00; waits for 1 until a has given back",
		"asks for 3, is guaranteed 1, holds 1; gets 1 of the pool's 5, beside a of higher priority, b whose turn it is after a wait"+late+", and has its turn after b")
	jobs[1].Due, jobs[1].Turn, jobs[2].Due = false, start.Add(time.Hour), false
	jobs[0].Staying, jobs[1].Staying = 2, 2
	check(5,
		"asks for 4, is guaranteed 1, holds 2; gets 2 of the pool's 5, beside b whose turn it is after a wait, c with what it is guaranteed",
		"asks for 3, is guaranteed 1, holds 2, has weight 2; gets 2 of the pool's 5, beside a of higher priority, c with what it is guaranteed; one of them in its turn, until Jan 2 01:00",
		"asks for 3, is guaranteed 1, holds 1; gets 1 of the pool's 5, beside a of higher priority, b whose turn it is after a wait"+late)
	jobs[2].Due = true
	jobs[0].Staying, jobs[1].Turn, jobs[1].Since = 1, time.Time{}, time.Time{}
	jobs[1].Staying = 1
	if got, want := pool.Divide(3, jobs).Words(2), late+", and what is not guaranteed is too little for a turn"; !strings.HasSuffix(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A worker is given to nobody of whom a turn would take it again before it has come.
func TestATurnThatIsNearComesFirst(t *testing.T) {
	w := &world{size: 4, now: start, patience: time.Hour, move: 5 * time.Minute, waits: make([]pool.Wait, 3), jobs: []pool.Job{
		{Name: "a", Guarantee: 1, Limit: 4, Ask: 2, Staying: 2, Worth: []float64{9, 4}},
		{Name: "b", Guarantee: 1, Limit: 4, Ask: 1, Staying: 1, Worth: []float64{9, 8, 7}},
		{Name: "c", Guarantee: 1, Limit: 4, Ask: 2, Staying: 1, Worth: []float64{9, 1}},
	}}
	was, at, had := -1, start, false
	for w.now.Before(start.Add(2 * time.Hour)) {
		if w.now.Equal(start.Add(57 * time.Minute)) {
			w.jobs[1].Ask = 2 // c's patience ends in three minutes
		}
		before := w.now
		d := w.round()
		for i, s := range d.Shares {
			if s.May <= 1 || i == was {
				continue
			}
			if was >= 0 && before.Sub(at) < w.move {
				t.Fatalf("after %s the worker goes to %s, %s after it went to %s", before.Sub(start), s.Name, before.Sub(at), w.jobs[was].Name)
			}
			was, at, had = i, before, had || s.Name == "b"
		}
	}
	if !had {
		t.Errorf("b, whose second worker is worth most, never has it: %+v", w.jobs)
	}
}

// A turn is due before the patience has passed by as long as a move takes, and by no more than a quarter of the patience.
func TestTurnsAreDueAhead(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		move, after time.Duration
		due         bool
	}{
		{5 * time.Minute, 34 * time.Minute, false},
		{5 * time.Minute, 35 * time.Minute, true},
		{30 * time.Minute, 29 * time.Minute, false},
		{30 * time.Minute, 30 * time.Minute, true},
	} {
		var j pool.Job
		if (pool.Wait{Since: now}).Tell(&j, now.Add(c.after), 40*time.Minute, c.move); j.Due != c.due {
			t.Errorf("a move of %v, %v of 40 min: due %v, want %v", c.move, c.after, j.Due, c.due)
		}
	}
}
