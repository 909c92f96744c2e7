package pool

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"time"
)

// Job is what the pool knows of a job. Numbers of workers count whole workers, each of which takes GPUs of the pool.
type Job struct {
	// Name is the job's, and tells it from the others.
	Name string `json:"job"`
	// Type is the type of GPU that it runs on; "" where the pool has one kind.
	Type string `json:"type,omitempty"`
	// Priority: who has a higher one is served first beyond the guarantees.
	Priority int `json:"priority"`
	// Weight is how often what a worker is worth counts among jobs of one priority; below 1 counts as 1.
	Weight int `json:"weight,omitempty"`
	// Guarantee is how many workers the job gets when it asks for them, whatever others want. Limit is the most it may have.
	Guarantee int `json:"guarantee"`
	Limit     int `json:"limit"`
	// GPUs are those of one worker; below 1 counts as 1.
	GPUs int `json:"gpus"`
	// Ask is how many workers the job wants.
	Ask int `json:"ask"`
	// Staying are its workers that are wanted, whether they train yet or not; Leaving those on their way out, that still hold GPUs.
	Staying int `json:"staying"`
	Leaving int `json:"leaving,omitempty"`
	// Unknown: nobody could look yet at what it holds; Staying and Leaving are then the least that it holds.
	Unknown bool `json:"unknown,omitempty"`
	// Worth[w-1] is what the w-th worker is worth, in GPUs: the lag and the violations of an hour that it prevents. What is missing is worth nothing.
	Worth []float64 `json:"worth,omitempty"`
	// Move is what it costs to take a worker away from this job and to give it to another one, in GPUs, as Worth is.
	// Back is how often lately the job was given a worker that was taken again, or the other way round, by its Asked: each time doubles Move.
	Move float64 `json:"move,omitempty"`
	Back int     `json:"back,omitempty"`
	// Fresh are those of Ask that it has not asked for all the time that moving a worker takes: beyond what it holds and is owed, nobody drains for them.
	// Settling are those of Staying that it was given no longer ago than that: where there are any, jobs of its priority take none of its workers. An Asked says both.
	Fresh    int `json:"fresh,omitempty"`
	Settling int `json:"settling,omitempty"`
	// Late: it is over its objective, of so much lag. Calm is how many workers it needs by its traffic on the whole, where that jumps, and CalmMost how many at the most; 0: its traffic does not jump, or nobody
	// knows. An Asked makes of it Whim, those of Ask beyond Calm: nobody drains for them either; and what is held beyond CalmMost is only kept.
	Late      bool          `json:"late,omitempty"`
	Objective time.Duration `json:"objective_ns,omitempty"`
	Calm      int           `json:"calm,omitempty"`
	CalmMost  int           `json:"calm_most,omitempty"`
	Whim      int           `json:"whim,omitempty"`
	// Kept are those of Ask that it holds for want of a forecast alone, as far as it knows without need: they are for whoever has asked for more long enough.
	// Lately are others of these that it needed a moment ago: nobody gets them yet. An Asked says so.
	Kept   int `json:"kept,omitempty"`
	Lately int `json:"kept_lately,omitempty"`
	// Since is when it began to ask for more than its guarantee and to have no more, zero: it does not. Due: that is long ago enough for a turn. Turn is when
	// its turn ends, zero: it has none. A Wait says all three.
	Since time.Time `json:"waits_since,omitzero"`
	Due   bool      `json:"due,omitempty"`
	Turn  time.Time `json:"turn_ends,omitzero"`
}

// Share is what the pool gives to one job.
type Share struct {
	Job
	// Goal is how many workers the job shall have in the end; May, how many it may want now.
	Goal int `json:"goal"`
	May  int `json:"may"`
	// Gives is how many workers beside those that leave already must drain, for others or because the job does not ask for them; Waits, how many it gets once others have given back.
	Gives int `json:"gives,omitempty"`
	Waits int `json:"waits,omitempty"`
	// OnTurn: one worker of Goal is beyond the guarantee because it is the job's turn.
	OnTurn bool `json:"on_turn,omitempty"`
}

// Short is how many workers the job asks for and does not get.
func (s Share) Short() int { return max(s.asks()-s.Goal, 0) }

// Type is the GPUs of one type in a pool.
type Type struct {
	Name string
	GPUs int
}

// Division is how a pool is divided or, where it has types, how one of them is.
type Division struct {
	// Type is that of the GPUs; "" where the pool has one kind.
	Type string `json:"type,omitempty"`
	// Size is the pool's, Held what its jobs hold at least, Free what nobody has or is about to have, all in GPUs.
	Size int `json:"size"`
	Held int `json:"held"`
	Free int `json:"free"`
	// Frozen names the jobs of which it is unknown what they hold, where that keeps all as it is.
	Frozen []string `json:"frozen,omitempty"`
	// Shares are in the order of the jobs.
	Shares []Share `json:"shares"`
}

// DivideTypes divides the GPUs of each type among the jobs that run on it. There is a division for each type, in their order; of a type that is not among
// them there are no GPUs, and its division follows, by name.
func DivideTypes(types []Type, jobs []Job) []Division {
	types = slices.Clone(types)
	of := map[string][]Job{}
	for _, t := range types {
		of[t.Name] = nil
	}
	var none []Type
	for _, j := range jobs {
		if _, there := of[j.Type]; !there {
			none = append(none, Type{Name: j.Type})
		}
		of[j.Type] = append(of[j.Type], j)
	}
	slices.SortFunc(none, func(a, b Type) int { return cmp.Compare(a.Name, b.Name) })
	out := make([]Division, 0, len(types)+len(none))
	for _, t := range append(types, none...) {
		d := Divide(t.GPUs, of[t.Name])
		d.Type = t.Name
		out = append(out, d)
	}
	return out
}

// Divide divides size GPUs of one type among jobs, whose names differ.
func Divide(size int, jobs []Job) Division {
	d := Division{Size: max(size, 0), Shares: make([]Share, len(jobs))}
	order := make([]*Share, len(jobs)) // by name: the order of the input decides nothing
	for i, j := range jobs {
		d.Shares[i].Job = j.sane()
		order[i] = &d.Shares[i]
	}
	slices.SortFunc(order, func(a, b *Share) int { return cmp.Compare(a.Name, b.Name) })
	for _, s := range order {
		d.Held += s.held()
	}
	room, known := d.setAside(order)
	if len(d.Frozen) > 0 {
		for _, s := range known {
			s.Goal, s.May = s.Staying, s.Staying
		}
		d.Free = max(d.Size-d.Held, 0)
		return d
	}
	room = guarantee(room, known)
	room = turn(room, known)
	for _, asked := range []func(*Job) int{(*Job).firm, (*Job).asks} { // the whim of a moment, and what is only kept, has what nobody else wants
		for from := 0; from < len(known); { // known is in the order of priorities now
			to := from
			for to < len(known) && known[to].Priority == known[from].Priority {
				to++
			}
			room = serve(room, known[from:to], asked)
			from = to
		}
	}
	d.Free = grant(d.Size-d.Held, known)
	return d
}

// mostWorth keeps sums of worths finite.
const mostWorth = 1e12

// mostWeight keeps products of weights exact.
const mostWeight = 1_000_000

// sane is j with numbers that can be reckoned with.
func (j Job) sane() Job {
	j.GPUs, j.Weight = max(j.GPUs, 1), min(max(j.Weight, 1), mostWeight)
	j.Staying, j.Leaving, j.Limit = max(j.Staying, 0), max(j.Leaving, 0), max(j.Limit, 0)
	j.Ask, j.Guarantee = max(j.Ask, 0), max(j.Guarantee, 0)
	j.Fresh, j.Settling = min(max(j.Fresh, 0), j.Ask), min(max(j.Settling, 0), j.Staying)
	j.Kept, j.Whim = min(max(j.Kept, 0), j.Ask), min(max(j.Whim, 0), j.Ask)
	if !(j.Move >= 0) {
		j.Move = 0
	}
	j.Back = min(max(j.Back, 0), mostBack)
	j.Move = min(j.Move*float64(int(1)<<j.Back), mostWorth)
	return j
}

// asks is what the job asks for within its limit.
func (j *Job) asks() int { return min(j.Ask, j.Limit) }

// lasting is what the job asks for with what it has asked for long enough, holds, or is owed.
func (j *Job) lasting() int {
	return min(j.asks(), max(j.Ask-max(j.Fresh, j.Whim), j.Staying, j.owed()))
}

// firm is lasting without what the job only keeps.
func (j *Job) firm() int { return max(min(j.lasting(), j.Ask-j.Kept), j.owed()) }

// owed is the part of its guarantee that the job asks for.
func (j *Job) owed() int { return min(j.Guarantee, j.asks()) }

// held is the GPUs that the job holds.
func (j *Job) held() int { return (j.Staying + j.Leaving) * j.GPUs }

// setAside leaves out the jobs of which it is unknown what they hold, with what they may hold at most. It names them in Frozen where too little would
// remain for what the others hold.
func (d *Division) setAside(all []*Share) (room int, known []*Share) {
	room = d.Size
	held := 0
	for _, s := range all {
		if s.Unknown {
			s.Goal, s.May = s.Staying, s.Staying
			room -= max(s.held(), s.Limit*s.GPUs)
			continue
		}
		held += s.held()
		known = append(known, s)
	}
	if len(known) < len(all) && room < held {
		for _, s := range all {
			if s.Unknown {
				d.Frozen = append(d.Frozen, s.Name)
			}
		}
	}
	return max(room, 0), known
}

// guarantee gives every job what it is owed, and sorts by priority, the highest first. A pool that is too small for all guarantees serves the
// higher priorities first.
func guarantee(room int, jobs []*Share) (left int) {
	slices.SortStableFunc(jobs, func(a, b *Share) int { return cmp.Compare(b.Priority, a.Priority) })
	for _, s := range jobs {
		s.Goal = min(s.owed(), room/s.GPUs)
		room -= s.Goal * s.GPUs
	}
	return room
}

// serve gives what is left to jobs of one priority, as far as each has asked, worker by worker, to where one is worth most per GPU, by weight. Where none of these workers is worth
// anything, or nobody knows what they are worth, weights alone divide, whoever holds what.
func serve(room int, jobs []*Share, asked func(*Job) int) (left int) {
	q := make(queue, 0, len(jobs))
	valued := false
	for _, s := range jobs { // what one of them has lost, whichever of its workers that was, it would have been given in vain
		if keeps := min(asked(&s.Job), s.Staying); s.Settling > 0 && s.Goal < keeps {
			come := min(keeps-s.Goal, room/s.GPUs)
			s.Goal, room = s.Goal+come, room-come*s.GPUs
		}
	}
	for _, s := range jobs {
		if most := asked(&s.Job); s.Goal < most {
			b := &bidder{Share: s, most: most, worth: something(falling(s.Worth, most), s.GPUs)}
			valued = valued || b.worth[s.Goal] > 0 // what falls is nowhere higher
			q = append(q, b)
		}
	}
	for _, b := range q {
		b.valued = valued
		b.bid()
	}
	heap.Init(&q)
	for len(q) > 0 {
		b := q[0]
		if b.GPUs > room { // nor does a later worker of this job fit
			heap.Pop(&q)
			continue
		}
		room -= b.GPUs
		b.Goal++
		if b.Goal >= b.most {
			heap.Pop(&q)
			continue
		}
		b.bid()
		heap.Fix(&q, 0)
	}
	return room
}

// falling makes of the worth of each worker, up to n of them, a row that does not rise, by averaging where it does: three workers of which only the
// third clears a backlog are worth a third of that each. The sum up to any place where the row falls stays as it was.
func falling(worth []float64, n int) []float64 {
	out := make([]float64, n)
	type block struct {
		sum float64
		n   int
	}
	var blocks []block
	for i := range n {
		b := block{n: 1}
		if i < len(worth) && worth[i] > 0 { // not NaN
			b.sum = min(worth[i], mostWorth)
		}
		for k := len(blocks); k > 0 && blocks[k-1].sum*float64(b.n) < b.sum*float64(blocks[k-1].n); k-- {
			b.sum, b.n = b.sum+blocks[k-1].sum, b.n+blocks[k-1].n
			blocks = blocks[:k-1]
		}
		blocks = append(blocks, b)
	}
	i := 0
	for _, b := range blocks {
		for range b.n {
			out[i] = b.sum / float64(b.n)
			i++
		}
	}
	return out
}

// leastWorth is what a worker's GPU must be worth, in GPUs, to be worth anything: a twentieth of what it costs. A live stream always has some records that
// wait, so that one more worker always prevents some lag; were that worth anything, nothing would ever be divided by weights, and who holds a worker would
// keep it for next to nothing.
const leastWorth = 0.05

// something makes of the worths of workers of so many GPUs, a row that does not rise, what is worth nothing 0.
func something(falling []float64, gpus int) []float64 {
	for i := len(falling) - 1; i >= 0 && falling[i] < leastWorth*float64(gpus); i-- {
		falling[i] = 0
	}
	return falling
}

// bidder is a job that wants one more worker.
type bidder struct {
	*Share
	most   int // workers that it shall have at most
	worth  []float64
	valued bool    // somebody's next worker is worth something
	offers float64 // what the next worker is worth, per GPU
}

func (b *bidder) bid() {
	b.offers = b.offer(b.worth[b.Goal], b.valued && b.Goal < b.Staying)
}

// offer is what a worker that is worth so much is worth per GPU by the job's weight and, where it is one that it holds, with what it costs to move that.
func (j *Job) offer(worth float64, held bool) float64 {
	worth *= float64(j.Weight)
	if held {
		worth += worth*j.Move/float64(j.GPUs) + j.Move
	}
	return worth / float64(j.GPUs)
}

// beyond is twice the GPUs that it has beyond its guarantee, with half of those of the next worker: who has least of that by weight comes first, as in
// Webster's method, which rounds shares to whole workers without favour.
func (b *bidder) beyond() int { return (2*(b.Goal-b.Guarantee) + 1) * b.GPUs }

// queue is the bidders, the best offer first.
type queue []*bidder

func (q queue) Len() int      { return len(q) }
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q queue) Less(i, j int) bool {
	a, b := q[i], q[j]
	if a.offers != b.offers {
		return a.offers > b.offers
	}
	return cmp.Or(
		cmp.Compare(a.beyond()*b.Weight, b.beyond()*a.Weight),
		holding(b)-holding(a), // what changes nothing for the better does not change hands
		cmp.Compare(a.Name, b.Name),
	) < 0
}

// holding is 1 where the next worker is one that the job holds, else 0.
func holding(b *bidder) int {
	if b.Goal < b.Staying {
		return 1
	}
	return 0
}

func (q *queue) Push(x any) { *q = append(*q, x.(*bidder)) }
func (q *queue) Pop() any {
	old := *q
	last := old[len(old)-1]
	*q = old[:len(old)-1]
	return last
}

// grant says what each job may want now: no more than its goal, and no more than is free. Free GPUs go first to who lacks of what it is owed, then by
// priority.
func grant(free int, jobs []*Share) (left int) {
	takers := make([]*Share, 0, len(jobs))
	for _, s := range jobs {
		s.May = min(s.Goal, s.Staying)
		s.Gives = s.Staying - s.May
		if s.Goal > s.Staying {
			takers = append(takers, s)
		}
	}
	slices.SortStableFunc(takers, func(a, b *Share) int {
		if lacks := cmp.Compare(b.lacks(), a.lacks()); lacks != 0 {
			return lacks
		}
		return cmp.Compare(b.Priority, a.Priority)
	})
	for _, s := range takers {
		come := min(s.Goal-s.Staying, max(free, 0)/s.GPUs)
		s.May += come
		s.Waits = s.Goal - s.May
		free -= come * s.GPUs
	}
	return max(free, 0)
}

// lacks is 1 for a job that has less than it is owed, else 0.
func (s *Share) lacks() int {
	if s.Staying < s.owed() {
		return 1
	}
	return 0
}

// Move is what it costs per hour, in GPUs, to move a worker from one job to another: lead is how long the GPUs of a worker that comes do not train, drain how long those of
// one that leaves do not, and hold how long the change is kept at least.
func Move(gpus int, lead, drain, hold float64) float64 {
	if !(hold > 0) || math.IsInf(hold, 0) {
		hold = 1
	}
	cost := float64(max(gpus, 1)) * (max(lead, 0) + max(drain, 0)) / hold
	if math.IsNaN(cost) {
		return 0
	}
	return min(cost, mostWorth)
}
