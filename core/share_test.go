package core

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/fake"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/pool"
	"github.com/kale-sched/kale/core/rpc"
)

// party is jobs that share a pool, each with a cluster and a chief of its own.
type party struct {
	t     *testing.T
	rules *job.Pool
	size  int // GPUs
	rigs  []*rig
}

const partyPool = `
pool "main" {
  gpus = 4
  job "a" {
    priority = 10
  }
}
`

// newParty opens the jobs of these names, which nobody has looked at yet.
func newParty(t *testing.T, src string, names ...string) *party {
	t.Helper()
	rules, _, diags := job.ParsePool([]byte(src), "pool.hcl")
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	p := &party{t: t, rules: rules, size: rules.GPUs}
	shared, broker := NewPool(rules), openBroker(t)
	for _, name := range names {
		p.rigs = append(p.rigs, newRig(t, rigOptions{broker: broker, pool: shared, change: func(text string) string {
			return strings.Replace(text, `job "ctr"`, `job "`+name+`"`, 1)
		}}))
	}
	return p
}

// beat is a beat of every job, at one time, after which no more GPUs may be held than there are.
func (p *party) beat() {
	p.t.Helper()
	for _, r := range p.rigs {
		r.beat()
		if held := p.held(); held > p.size {
			p.t.Fatalf("%d GPUs are held of %d", held, p.size)
		}
	}
}

// held is how many workers live.
func (p *party) held() (n int) {
	for _, r := range p.rigs {
		n += r.liveWorkers()
	}
	return n
}

func (r *rig) liveWorkers() (n int) {
	for _, st := range r.list() {
		if st.ID.Role == backend.RoleWorker && st.State.Live() {
			n++
		}
	}
	return n
}

// until beats until the jobs have so many workers, and nothing is under way.
func (p *party) until(what string, workers ...int) {
	p.t.Helper()
	var err error
	for range 100 {
		p.beat()
		err = nil
		for i, r := range p.rigs {
			err = errors.Join(err, r.settled(workers[i])())
		}
		if err == nil {
			return
		}
	}
	p.t.Fatalf("it never came that %s: %v", what, err)
}

// reopen ends all schedulers as kill -9 would, and opens others with a pool that knows nothing.
func (p *party) reopen() {
	shared := NewPool(p.rules)
	for _, r := range p.rigs {
		r.pool = shared
		r.reopen()
	}
}

// A job whose workers wait for places in the cluster's queue gives of them to the others of its pool at once: whom they are for loses a turn with each moment.
func TestWhoWaitsInTheQueueGivesAtOnce(t *testing.T) {
	p := newParty(t, partyPool, "a", "b")
	a, b := p.rigs[0], p.rigs[1]
	p.until("both run", 1, 1)
	b.order("scale", 3)
	b.beat()
	id := workerID(2, b.s.want.Workers[2])
	if err := b.cluster.SetState("b", id, backend.StatePending, "nothing is free"); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		p.beat()
	}
	if b.s.want.Rescale == nil || b.s.want.Target != 3 {
		t.Fatalf("b wants %d workers, and %+v is under way", b.s.want.Target, b.s.want.Rescale)
	}
	b.s.tickAt = b.now.Add(time.Hour)
	a.order("scale", 2)
	p.until("a has got one", 2, 2)
	b.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1")
}

// The job with priority takes by drain what the other has beyond its guarantee, starts when that is free, and gives it back.
func TestPriorityTakesByDrainAndGivesBack(t *testing.T) {
	p := newParty(t, partyPool, "a", "b")
	a, b := p.rigs[0], p.rigs[1]
	a.order("scale", 1)
	b.order("scale", 3)
	p.until("a has 1 and b has 3", 1, 3)
	a.mark()
	b.mark()

	b.chief.with(func(*rpc.JobStatus) { b.chief.slow = true })
	a.order("scale", 3)
	for range 5 {
		p.beat()
		a.joinAll()
	}
	if got := strings.Join(b.chief.asked(), " "); got != "worker-1 worker-2" {
		t.Fatalf("of b were asked to drain: %q", got)
	}
	a.wantCalls() // nothing is free while they drain
	b.wantCalls()
	if why := a.s.last.Pool.Why; !strings.Contains(why, "gets 3; waits for 2 until b has given back") {
		t.Errorf("a's share: %s", why)
	}
	if v := a.s.View(); v.Pool == nil || v.Pool.Goal != 3 || v.Pool.Waits != 2 || v.Pool.Held != 4 {
		t.Errorf("a's view of the pool: %+v", v.Pool)
	}
	if d := b.s.lastChange; d == nil || d.Decision.Kind != plan.KindIn || !strings.Contains(d.Decision.Reason, `pool "main"`) || !strings.Contains(d.Pool.Why, "gives 2 back for a (priority 10)") {
		t.Errorf("b's last change: %+v, pool %+v", d.Decision.Reason, d.Pool)
	}
	b.chief.with(func(*rpc.JobStatus) { b.chief.slow = false })
	for _, m := range []int{1, 2} {
		b.chief.set(m, 1, rpc.MemberState_MEMBER_STATE_DRAINED)
	}
	p.until("a has 3 and b has 1", 3, 1)
	b.wantCalls("release worker-1-g1 drained", "release worker-2-g1 drained")
	a.wantCalls("ensure worker-1-g1", "ensure worker-2-g1")
	if d := b.s.last.Decision; d.Target != 1 || !strings.Contains(strings.Join(d.Hold, "; "), "of higher priority") {
		t.Errorf("b has 1 of 3: %+v", d)
	}

	a.order("scale", 1)
	p.until("a has 1 again and b has 3", 1, 3)
}

// A decision that the pool makes smaller says so first, and not that the part that is left is all that the job file allows.
func TestADecisionNamesThePoolThatNarrowsIt(t *testing.T) {
	params := plan.Observation{Limits: plan.Limits{Min: 1, Max: 8}}
	decide := func(o plan.Observation) plan.Decision {
		if o.Limits.Max == 8 {
			return plan.Decision{Target: 3, Current: 2, Source: "forecast", Reason: "the plan needs 3 workers"}
		}
		return plan.Decision{Target: o.Limits.Max, Current: 2, Source: "forecast", Reason: fmt.Sprintf("more than any %d to %d workers train: saturated", o.Limits.Min, o.Limits.Max)}
	}
	share := PoolShare{Pool: "main", Size: 4, Held: 4, Why: "asks for 3, is guaranteed 1, holds 2; gets 1 of the pool's 4, beside a of higher priority"}
	share.Job.Name, share.Ask, share.Limit, share.May, share.Goal = "b", 3, 8, 1, 1
	_, d := share.Within(decide, params, decide(params))
	want := `no more than 1 worker by pool "main"; without that: the plan needs 3 workers`
	held := `by pool "main", 4 of 4 GPUs in use: b asks for 3, is guaranteed 1, holds 2; gets 1 of the pool's 4, beside a of higher priority`
	if !slices.Equal(d.Hold, []string{held}) {
		t.Errorf("held %q", d.Hold)
	}
	if d.Target != 1 || d.Source != "pool" || d.Reason != want {
		t.Errorf("%d by %s: %s", d.Target, d.Source, d.Reason)
	}
}

// Who orders more workers than the pool gives can be told at once what comes of it.
func TestAnOrderBeyondThePoolsPart(t *testing.T) {
	p := newParty(t, partyPool, "a", "b")
	a, b := p.rigs[0], p.rigs[1]
	a.order("scale", 3)
	b.order("scale", 1)
	p.until("a has 3 and b has 1", 3, 1)
	b.order("scale", 4)
	want := `for now pool "main" makes that 1: 4 of 4 GPUs in use, and b asks for 4, is guaranteed 1, holds 1; gets 1 of the pool's 4, beside a of higher priority`
	if got := b.s.View().Pool.Keeps(4); got != want {
		t.Errorf("b: %s", got)
	}
	a.order("scale", 2)
	if got := a.s.View().Pool.Keeps(2); got != "" {
		t.Errorf("a: %s", got)
	}
}

// A job that asks for less than it has gives way to itself: nothing of a pool that has room is felt.
func TestAPoolWithRoomIsNotFelt(t *testing.T) {
	p := newParty(t, strings.Replace(partyPool, "gpus = 4", "gpus = 16", 1), "a", "b")
	p.rigs[0].order("scale", 5)
	p.rigs[1].order("scale", 7)
	p.until("both have what they ask for", 5, 7)
	for _, r := range p.rigs {
		if d := r.s.last; d.Pool == nil || d.Pool.Short() != 0 || strings.Contains(strings.Join(d.Decision.Hold, "; "), "pool") || d.Observation.Limits.Max != 8 {
			t.Errorf("job %s: pool %+v, held %v, limits %v", r.job.Name, d.Pool, d.Decision.Hold, d.Observation.Limits)
		}
	}
}

// Schedulers that are killed in the middle of it, all of them, find it again in the jobs' states.
func TestTakingSurvivesTheSchedulers(t *testing.T) {
	p := newParty(t, partyPool, "a", "b")
	a, b := p.rigs[0], p.rigs[1]
	a.order("scale", 1)
	b.order("scale", 3)
	p.until("a has 1 and b has 3", 1, 3)
	a.order("scale", 3)
	for range 12 {
		p.reopen()
		p.beat()
		a.joinAll()
	}
	p.until("a has 3 and b has 1", 3, 1)
	p.reopen()
	for range 5 {
		p.beat()
	}
	if a.liveWorkers() != 3 || b.liveWorkers() != 1 {
		t.Errorf("after another restart a has %d and b has %d", a.liveWorkers(), b.liveWorkers())
	}
}

// What a job holds that nobody could look at yet is not taken for nothing: others do not grow into it.
func TestWhatIsNotKnownOfAPoolIsHeld(t *testing.T) {
	p := newParty(t, partyPool, "a", "b")
	a, b := p.rigs[0], p.rigs[1]
	b.order("scale", 3)
	a.order("scale", 3)
	p.until("a has 3 and b has 1", 3, 1)

	// b's scheduler has lost its state, and its backend does not answer.
	b.state = t.TempDir()
	p.reopen()
	b.order("scale", 3)
	a.order("scale", 4)
	a.mark()
	for range 5 {
		b.backend.FailNext(fake.OpList, errors.New("scripted"))
		a.beat()
		a.joinAll()
		b.beat()
	}
	a.wantCalls()
	if why := a.s.View().Pool.Why; !strings.Contains(why, "until it is known what b holds") {
		t.Errorf("a's share: %s", why)
	}
	for range 10 {
		p.beat()
		a.joinAll()
	}
	if got := fmt.Sprint(a.liveWorkers(), b.liveWorkers()); got != "3 1" {
		t.Errorf("a and b have %s", got)
	}
}

// A job that is not fully known now gives nothing back, and nobody starts in its place.
func TestAnUnknownJobGivesNothingBack(t *testing.T) {
	p := newParty(t, partyPool, "a", "b")
	a, b := p.rigs[0], p.rigs[1]
	a.order("scale", 1)
	b.order("scale", 3)
	p.until("a has 1 and b has 3", 1, 3)
	a.mark()
	b.mark()
	a.order("scale", 3)
	for range 10 {
		b.backend.FailNext(fake.OpList, errors.New("scripted"))
		p.beat()
	}
	a.wantCalls()
	b.wantCalls()
	p.until("a has 3 and b has 1", 3, 1)
}

// What a person has paused stays as it is.
func TestAPausedJobKeepsItsShare(t *testing.T) {
	p := newParty(t, partyPool, "a", "b")
	a, b := p.rigs[0], p.rigs[1]
	a.order("scale", 1)
	b.order("scale", 3)
	p.until("a has 1 and b has 3", 1, 3)
	b.order("pause", 0)
	a.order("scale", 3)
	for range 10 {
		p.beat()
		a.joinAll()
	}
	if got := fmt.Sprint(a.liveWorkers(), b.liveWorkers()); got != "1 3" {
		t.Errorf("a and b have %s", got)
	}
	b.order("resume", 0)
	p.until("a has 3 and b has 1", 3, 1)
}

// What a stopped job had is the others'.
func TestAStoppedJobLeavesThePool(t *testing.T) {
	p := newParty(t, partyPool, "a", "b")
	a, b := p.rigs[0], p.rigs[1]
	a.order("scale", 3)
	b.order("scale", 3)
	p.until("a has 3 and b has 1", 3, 1)
	a.order("stop", 0)
	for range 100 {
		p.beat()
		b.joinAll()
		if a.s.want.Stopped {
			break
		}
	}
	a.beat()
	b.until("b has 3", b.settled(3))
}

// Whatever people order and whoever dies, no more is held than there is, guarantees are kept, and in the end each has what the rules give it.
func TestPoolUnderRandomOrders(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			p := newParty(t, partyPool, "a", "b", "c")
			for range 40 {
				switch r.IntN(6) {
				case 0, 1:
					p.rigs[r.IntN(3)].order("scale", 1+r.IntN(4))
				case 2:
					p.reopen()
				case 3:
					slow := r.IntN(2) == 0
					i := r.IntN(3)
					p.rigs[i].chief.with(func(*rpc.JobStatus) { p.rigs[i].chief.slow = slow })
				}
				p.beat()
				p.rigs[r.IntN(3)].joinAll()
			}
			for _, r := range p.rigs {
				r.chief.with(func(st *rpc.JobStatus) {
					r.chief.slow = false
					for _, m := range st.Members {
						if m.State == rpc.MemberState_MEMBER_STATE_DRAINING {
							m.State = rpc.MemberState_MEMBER_STATE_DRAINED
						}
					}
				})
			}
			p.rigs[0].order("scale", 2)
			p.rigs[1].order("scale", 1)
			p.rigs[2].order("scale", 4)
			p.until("a has 2, b and c 1 each", 2, 1, 1)
		})
	}
}

// A worker whose time is up is renewed beside itself only where the pool has room for both.
func TestRenewalInAFullPool(t *testing.T) {
	p := newParty(t, partyPool, "a", "b")
	a, b := p.rigs[0], p.rigs[1]
	a.order("scale", 3)
	b.order("scale", 1)
	p.until("a has 3 and b has 1", 3, 1)
	if err := a.cluster.SetDeadline("a", worker(1, 1), a.now.Add(10*time.Minute)); err != nil {
		t.Fatal(err)
	}
	for range 12 {
		for _, r := range p.rigs {
			r.now = r.now.Add(time.Minute - time.Second)
		}
		p.beat()
		for range 5 {
			p.beat()
			a.joinAll()
		}
	}
	if got := a.calls(); !slices.Contains(got, "ensure worker-1-g2") {
		t.Errorf("the worker was not replaced in place: %q", got)
	}
}

// kale plan shows what the pool would give each job, by the same code, and changes nothing.
func TestPreviewsThroughAPool(t *testing.T) {
	p := newParty(t, partyPool, "a", "b")
	a, b := p.rigs[0], p.rigs[1]
	a.order("scale", 1)
	b.order("scale", 3)
	p.until("a has 1 and b has 3", 1, 3)
	a.order("scale", 3) // which nobody has decided on yet
	var all []Options
	shared := NewPool(p.rules)
	for _, r := range p.rigs {
		if err := r.s.Close(); err != nil {
			t.Fatal(err)
		}
		r.pool = shared
		all = append(all, r.options("run"))
	}
	ps, _, err := NewPreviews(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	da, db := ps[0].Record, ps[1].Record
	if da.Decision.Target != 1 || da.Pool.Goal != 3 || da.Pool.Waits != 2 || db.Decision.Target != 1 || db.Pool.Gives != 2 {
		t.Errorf("a: target %d, %v\nb: target %d, %v", da.Decision.Target, da.Pool, db.Decision.Target, db.Pool)
	}
	if !strings.Contains(db.Decision.Explain(), `held  by pool "main"`) {
		t.Errorf("b's decision:\n%s", db.Decision.Explain())
	}
	if got := fmt.Sprint(a.liveWorkers(), b.liveWorkers()); got != "1 3" {
		t.Errorf("a and b have %s", got)
	}
}

// What one job was promised, another one is not promised too before the first has taken it.
func TestNothingIsPromisedTwice(t *testing.T) {
	rules, _, diags := job.ParsePool([]byte("pool \"main\" {\n  gpus = 4\n}\n"), "pool.hcl")
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	p := NewPool(rules)
	wants := func(n int) func(*pool.Job) {
		return func(j *pool.Job) { j.Ask, j.Limit, j.GPUs = n, 4, 1 }
	}
	p.ask("b", time.Now(), 0, wants(0))
	if got := p.ask("a", time.Now(), 3, wants(3)); got.May != 3 {
		t.Errorf("a may have %d of 4, and asks for 3", got.May)
	}
	if got := p.ask("b", time.Now(), 3, wants(3)); got.May != 1 || got.Waits != 1 {
		t.Errorf("b may have %d beside the 3 that a was promised, and waits for %d", got.May, got.Waits)
	}
	if p.spare("a") {
		t.Error("there is one to spare, though all are promised")
	}
	if held := p.share("a").Held; held != 4 {
		t.Errorf("%d are held or promised", held)
	}
}

// Jobs that are run together wait for each other's first word: whoever decides first takes nothing that a job of higher priority, or with a guarantee, would have to take back.
func TestFirstDecisionsWaitForEachOther(t *testing.T) {
	p := newParty(t, strings.Replace(partyPool, "priority = 10", "priority = 10\n    guarantee = 1", 1), "b", "c", "a")
	b := p.rigs[0]
	for i, r := range p.rigs {
		r.order("scale", []int{4, 3, 2}[i])
	}
	for _, r := range p.rigs { // each has looked before any decides, as where they run beside each other
		r.s.seen = r.s.look(t.Context())
		r.s.tellPool()
	}
	b.beat()
	if d := b.s.last; d == nil || d.Decision.Kind != plan.KindHold || b.s.want.Target != 0 || !strings.Contains(d.Decision.Reason, `no worker is asked for yet: pool "main" gives none yet`) {
		t.Errorf("b, before the others were heard, wants %d: %+v", b.s.want.Target, d)
	}
	p.until("all have what is theirs", 1, 1, 2)
}

// A job that is never heard is waited for some seconds, and has what it is guaranteed kept for it from then on; one that is stopped is not waited for.
func TestWhoIsNotHeardIsWaitedForSomeSeconds(t *testing.T) {
	p, now := NewPool(&job.Pool{Name: "main", GPUs: 5}), time.Unix(1_800_000_000, 0)
	wants := func(n int) func(*pool.Job) {
		return func(j *pool.Job) { j.Ask, j.Limit, j.GPUs = n, 5, 1 }
	}
	p.tell("b", wants(0))
	p.tell("c", func(j *pool.Job) { wants(2)(j); j.Guarantee = 2 })
	for _, c := range []struct {
		after time.Duration
		may   int
	}{{0, 0}, {firstAsks - 1, 0}, {firstAsks, 3}, {2 * firstAsks, 3}} {
		if got := p.ask("a", now.Add(c.after), 5, wants(5)); got.May != c.may {
			t.Errorf("after %v a may have %d, want %d: %s", c.after, got.May, c.may, got.Why)
		} else if says := strings.Contains(got.Why, "takes no more before it is known what is first asked for by b and c, which takes 10s at the most"); says != (c.may == 0) {
			t.Errorf("after %v it says %q", c.after, got.Why)
		}
	}
	q := NewPool(p.rules)
	q.tell("b", wants(0))
	q.passOver("b")
	if got := q.ask("a", now, 5, wants(5)); got.May != 5 {
		t.Errorf("beside one that is stopped a may have %d: %s", got.May, got.Why)
	}
}

// sees is a policy that decides by a rate in records/s, whatever was measured, and without a forecast.
type sees struct {
	plan.Policy
	rate float64
}

func (p sees) Decide(o plan.Observation) plan.Decision {
	o.Rates = plan.Series{Start: o.Now.Add(-30 * o.Interval), Step: o.Interval, Values: slices.Repeat([]float64{p.rate}, 30)}
	return p.Policy.Decide(o)
}

// A job of priority that holds more than its traffic needs, and lets nobody go for want of a forecast, gives them to who needs them, and no more than that.
func TestWhatIsKeptWithoutAForecastIsForOthers(t *testing.T) {
	p := newParty(t, partyPool, "a", "b")
	a, b := p.rigs[0], p.rigs[1]
	a.order("scale", 3)
	b.order("scale", 1)
	p.until("a has 3 and b has 1", 3, 1)
	a.s.policy = sees{a.s.policy, 500} // half of what one worker trains
	a.order("auto", 0)
	p.until("a keeps them", 3, 1)
	if d := a.s.last.Decision; d.Kept() != 2 || a.s.last.Pool.Kept+a.s.last.Pool.Lately != 2 {
		t.Fatalf("a, without a forecast, keeps %d: %s", d.Kept(), d.Explain())
	}
	b.order("scale", 2)
	p.until("b has got one", 2, 2)
	if why := a.s.lastChange.Pool.Why; !strings.Contains(why, "of what it holds it keeps 1 for want of a forecast alone; gives 1 back for b (priority 0)") {
		t.Errorf("a's share when it gave one up: %s", why)
	}
	b.order("scale", 3)
	p.until("b has got the other", 1, 3)
	a.order("scale", 3) // a person of a knows that it needs them
	p.until("a has them again", 3, 1)
}
