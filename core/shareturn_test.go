package core

import (
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/pool"
)

// Jobs of two types do not take from each other, and what the pool says names their type.
func TestAPoolOfTwoTypes(t *testing.T) {
	p := newParty(t, `
pool "main" {
  type "a100" {
    gpus = 2
  }
  type "l4" {
    gpus = 3
  }
  job "a" {
    type     = "a100"
    priority = 10
  }
  job "b" {
    type = "l4"
  }
  job "c" {
    type   = "l4"
    weight = 2
  }
}
`, "a", "b", "c")
	p.size = 5
	a, b, c := p.rigs[0], p.rigs[1], p.rigs[2]
	a.order("scale", 4)
	b.order("scale", 3)
	p.until("a has its type's two, b what c leaves", 2, 2, 1)
	const why = `by pool "main", 2 of 2 a100 GPUs in use: a asks for 4, is guaranteed 1, holds 2; gets 2, all that the pool of 2 a100 has`
	if d := a.s.last.Decision; !strings.Contains(d.Explain(), why) || !strings.Contains(d.Reason, `pool "main" (a100)`) {
		t.Errorf("a's decision:\n%s", d.Explain())
	}
	c.order("scale", 3)
	p.until("c has more of what nobody knows the worth of, for its weight", 2, 1, 2)
	if why := c.s.last.Pool.String(); !strings.Contains(why, `"main", 3 of 3 l4 GPUs in use: c asks for 3, is guaranteed 1, holds 2, has weight 2; gets 2 of the pool's 3 l4, beside b with`) {
		t.Errorf("c's share: %s", why)
	}
}

// minutes are so many, each with some beats of every job, until the jobs have so many workers.
func (p *party) minutes(n int, what string, workers ...int) (passed int) {
	p.t.Helper()
	for passed = range n {
		for _, r := range p.rigs {
			r.now = r.now.Add(time.Minute - 5*time.Second)
		}
		for range 5 {
			p.beat()
			for _, r := range p.rigs {
				r.joinAll()
			}
		}
		all := true
		for i, r := range p.rigs {
			all = all && r.settled(workers[i])() == nil
		}
		if all {
			return passed + 1
		}
	}
	p.t.Fatalf("it never came in %d minutes that %s", n, what)
	return 0
}

// Who waits for more than its guarantee behind a job of higher priority has a worker for a turn, by drain, and gives it back; what is remembered of it survives
// the schedulers, of which none lives for long here.
func TestATurnAfterAWait(t *testing.T) {
	p := newParty(t, strings.Replace(partyPool, "gpus = 4", "gpus = 4\n  patience = \"20m\"", 1), "a", "b")
	a, b := p.rigs[0], p.rigs[1]
	a.order("scale", 3)
	b.order("scale", 3)
	p.until("a has 3 and b has 1", 3, 1)
	since := b.s.want.PoolWait.Since
	if since.IsZero() || !a.s.want.PoolWait.Since.IsZero() {
		t.Fatalf("a waits since %v, b since %v", a.s.want.PoolWait.Since, since)
	}
	for range 5 {
		p.minutes(1, "nothing changes", 3, 1)
		p.reopen()
	}
	if got := b.s.want.PoolWait.Since; !got.Equal(since) {
		t.Errorf("b has waited since %v, and after restarts since %v", since, got)
	}
	p.minutes(25, "b has its turn", 2, 2)
	if waited := b.now.Sub(since); waited < 20*time.Minute || waited > 25*time.Minute {
		t.Errorf("b's turn came after %v", waited)
	}
	p.reopen()
	p.minutes(1, "the turn goes on", 2, 2) // who joins goes by the real clock, of which the turn's beginning may be in the future
	if why := b.s.View().Pool.Why; !strings.Contains(why, "gets 2 of the pool's 4, beside a of higher priority; one of them in its turn, until ") {
		t.Errorf("b's share: %s", why)
	}
	if why := a.s.View().Pool.Why; !strings.Contains(why, "beside b whose turn it is after a wait") {
		t.Errorf("a's share: %s", why)
	}
	end := b.s.want.PoolWait.Until
	p.minutes(60, "b has given it back", 3, 1)
	if b.now.Before(end) || b.now.Sub(end) > 5*time.Minute {
		t.Errorf("b's turn was until %v, and it gave back by %v", end, b.now)
	}
	if again := b.s.want.PoolWait; !again.Until.IsZero() || again.Since.Before(end) {
		t.Errorf("after its turn, %+v", again)
	}
}

// Whose scheduler has ended has no turn before the others, and wants no more than what it holds, which counts still.
func TestWhoHasNoSchedulerLeavesItsTurn(t *testing.T) {
	rules, _, diags := job.ParsePool([]byte("pool \"main\" {\n  gpus = 5\n}\n"), "pool.hcl")
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	p, now := NewPool(rules), time.Now()
	for i, name := range []string{"a", "b", "c"} {
		p.tell(name, func(j *pool.Job) {
			j.Ask, j.Limit, j.GPUs, j.Guarantee, j.Staying = 3, 4, 1, 1, 1
			if name == "a" {
				j.Priority = 10
				return
			}
			pool.Wait{Since: now.Add(time.Duration(i)*time.Minute - 2*rules.Patience)}.Tell(j, now, rules.Patience, 0)
		})
	}
	if !p.share("b").OnTurn || p.share("c").OnTurn {
		t.Errorf("b has waited longest: %+v, %+v", p.share("b"), p.share("c"))
	}
	p.leave("b")
	p.leave("nobody")
	if b, c := p.share("b"), p.share("c"); b.OnTurn || b.Goal != 1 || b.Ask != 1 || b.Held != 3 || !c.OnTurn || c.Goal != 2 {
		t.Errorf("without b's scheduler: %+v, %+v", b, c)
	}
	// A turn ends by the clock of any job.
	p.tell("b", func(j *pool.Job) { j.Ask, j.Since, j.Turn = 3, now, now.Add(time.Minute) })
	if !p.share("b").OnTurn {
		t.Errorf("b is in its turn: %+v", p.share("b"))
	}
	if c := p.ask("c", now.Add(2*time.Minute), 3, func(*pool.Job) {}); !c.OnTurn || p.share("b").OnTurn {
		t.Errorf("b's turn is over: %+v", p.share("b"))
	}
}
