package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kale-sched/kale/cmd/kale/chaos"
	"github.com/kale-sched/kale/core/backend"
)

// storm applies a schedule of faults to a rig. It belongs to the goroutine of the test.
type storm struct {
	*rig
	broker  *chaos.Proxy
	journal *chaos.Journal
	busy    map[string]bool // what a fault has in its hands: no second one takes it
	healing []healing       // what is to be undone, in no order
	applied int
	tries   int       // starts of the scheduler that a fault made fail
	latest  time.Time // when a fault last struck or was healed
}

// endWithin is how long after a fault a scheduler that ran may still end of it. One that was started while the fault acted takes its time to find out: as
// long as anything is waited for.
const endWithin = 15 * time.Second

// calmWithin bounds how long a job may need after a storm, and after a fault until nothing of it is left. Slurm's backend gives a launch that was lost a minute,
// and the next one of that place two; a process that was never heard of has two minutes to begin.
const calmWithin = 5 * time.Minute

// healing is what undoes a fault. While it gives an error it is tried again, for no longer than calmWithin.
type healing struct {
	at, since time.Time
	fault     chaos.Fault
	undo      func() error
}

// rage applies all faults. One that cannot be applied just now, because its target is away or taken, is tried again until it can.
func (c *storm) rage(schedule []chaos.Fault) {
	for _, f := range schedule {
		c.pass(f.After)
		what, undo, void := c.strike(f)
		for end := time.Now().Add(calmWithin); void; what, undo, void = c.strike(f) {
			if time.Now().After(end) {
				c.fatalf("fault %v could not be applied within %v: what it would hit is away, or in another fault's hands", f, calmWithin)
			}
			c.pass(poll)
		}
		now := time.Now()
		c.journal.Strike(now, f, "%s", what)
		c.applied, c.latest = c.applied+1, now
		if undo == nil {
			c.journal.Heal(now, f)
		} else {
			c.healing = append(c.healing, healing{at: now.Add(f.For), since: now.Add(f.For), fault: f, undo: undo})
		}
	}
}

// pass lets time go by, and does what falls due in it: what lies between two faults is chance, and proves nothing.
func (c *storm) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		c.tend()
	}
}

// calm lets all faults pass, and has all workers back.
func (c *storm) calm() {
	for len(c.healing) > 0 {
		c.pass(50 * time.Millisecond)
	}
	c.journal.Note(time.Now(), "all is healed: %d faults were applied", c.applied)
	c.rig.await("the scheduler answers", func() string {
		c.tend()
		if _, err := c.view(); err != nil {
			return err.Error()
		}
		return ""
	})
	c.scale(stormWorkers)
	ready, last, since := c.steady(stormWorkers), "", time.Now()
	digits := func(r rune) bool { return r >= '0' && r <= '9' }
	c.rig.awaitFor("all workers are there and train", calmWithin, func() string {
		c.tend()
		missing := ready()
		if len(missing) > 120 {
			missing = missing[:120]
		}
		now := time.Now()
		switch {
		case missing == "":
		case last != missing:
			if strings.Join(strings.FieldsFunc(last, digits), "") != strings.Join(strings.FieldsFunc(missing, digits), "") {
				c.journal.Note(now, "not yet: %s", missing)
			}
			since = now
		case now.Sub(since) > 10*time.Second: // slow, but in order as far as anybody knows: for whoever reads the journal
			c.t.Logf("for %v: %s\n%s", now.Sub(since), missing, c.describe())
			since = now.Add(time.Hour)
		}
		last = missing
		return missing
	})
}

// tend undoes the faults whose time has come, and starts a scheduler again that could not start because of one.
func (c *storm) tend() {
	now := time.Now()
	var rest, due []healing
	for _, h := range c.healing {
		if now.Before(h.at) {
			rest = append(rest, h)
		} else {
			due = append(due, h)
		}
	}
	c.healing = rest
	for _, h := range due {
		if err := h.undo(); err != nil {
			if now.Sub(h.since) > calmWithin {
				c.fatalf("fault %v could not be undone for %v: %v", h.fault, calmWithin, err)
			}
			h.at = now.Add(poll)
			c.healing = append(c.healing, h)
			continue
		}
		c.latest = time.Now()
		c.journal.Heal(time.Now(), h.fault)
	}
	if c.site.tend != nil {
		c.site.tend(c)
	}
	if c.sched == nil {
		return
	}
	select {
	case <-c.sched.ended:
	default:
		return
	}
	excused := len(c.healing) > 0 || now.Sub(c.latest) <= endWithin || c.sched.began.Before(c.latest) && now.Sub(c.sched.began) < patience
	if !excused || c.tries > 100 {
		c.fatalf("the scheduler ended by itself: %v", c.sched.err)
	}
	c.tries++
	c.journal.Note(now, "the scheduler has ended (%v): it is started again", c.sched.err)
	c.sched = nil
	c.start()
}

// take takes what a fault needs for itself, if it is free.
func (c *storm) take(name string) bool {
	if c.busy[name] {
		return false
	}
	c.busy[name] = true
	return true
}

// freeing gives what undoes a fault that has taken something for itself, by what cannot fail.
func (c *storm) freeing(name string, undo func()) func() error {
	return func() error {
		undo()
		c.busy[name] = false
		return nil
	}
}

// untilTaken gives what ends a fault that waits for the job to submit something: it ends when that has come, and brings it about again from time to time,
// for the job may want less by now.
func (c *storm) untilTaken(taken func() bool, again func() (what string)) func() error {
	asked := time.Now()
	return func() error {
		if taken() {
			c.busy["submission"] = false
			return nil
		}
		if now := time.Now(); now.Sub(asked) > 10*time.Second {
			asked = now
			c.journal.Note(now, "nothing was submitted; again: %s", again())
		}
		return errors.New("nothing was submitted since")
	}
}

// strike applies a fault: what it hit, and what undoes it. void: it cannot be applied now.
func (c *storm) strike(f chaos.Fault) (what string, undo func() error, void bool) {
	switch f.Kind {
	case chaos.KillWorker:
		return c.kill(f, func(id backend.ID) bool { return id.Role == backend.RoleWorker })
	case chaos.KillServer:
		return c.kill(f, func(id backend.ID) bool { return id.Role == backend.RoleServer && id.Rank > 0 })
	case chaos.KillChief:
		return c.kill(f, func(id backend.ID) bool { return id.Role == backend.RoleServer && id.Rank == 0 })
	case chaos.StopWorker:
		return c.sleep(f, backend.RoleWorker)
	case chaos.StopServer:
		return c.sleep(f, backend.RoleServer)
	case chaos.KillScheduler, chaos.StopScheduler, chaos.KillPlugin, chaos.Rescale:
		return c.strikeScheduler(f)
	case chaos.KillBroker, chaos.StopBroker:
		return c.strikeBroker(f)
	case chaos.SlowBroker, chaos.CutBroker, chaos.RefuseBroker:
		return c.strikeNet(f, "the broker", c.broker)
	case chaos.SlowServer, chaos.CutServer:
		rank := f.Of(len(c.proxies))
		return c.strikeNet(f, fmt.Sprintf("server %d", rank), c.proxies[rank])
	case chaos.FillDisk:
		if !c.take("disk") {
			return "", nil, true
		}
		return c.disk.fill(), c.freeing("disk", c.disk.free), false
	}
	own := c.site.faults[f.Kind]
	if own == nil {
		c.fatalf("site %s has no way to bring about %s", c.site.backend, f.Kind)
	}
	return own(c, f)
}

// kill kills one of the job's processes.
func (c *storm) kill(f chaos.Fault, which func(backend.ID) bool) (what string, undo func() error, void bool) {
	var found []trainee
	for _, p := range trainees(c.dir) {
		if which(p.id) {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		return "", nil, true
	}
	p := found[f.Of(len(found))]
	p.signal(syscall.SIGKILL)
	return fmt.Sprintf("%s, process %d", p.id, p.pid), nil, false
}

// sleep stops one of the job's processes for as long as the fault lasts.
func (c *storm) sleep(f chaos.Fault, role string) (what string, undo func() error, void bool) {
	var found []trainee
	for _, p := range trainees(c.dir) {
		if p.id.Role == role && !c.busy[p.name()] {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		return "", nil, true
	}
	p := found[f.Of(len(found))]
	c.take(p.name())
	p.signal(syscall.SIGSTOP)
	return fmt.Sprintf("%s, process %d", p.id, p.pid), c.freeing(p.name(), func() { p.signal(syscall.SIGCONT) }), false
}

// send sends a signal to a process of the rig. It is false for one that has ended, and for any other process.
func (c *storm) send(pid int, sig syscall.Signal) bool {
	return pid > 1 && belongs(pid, c.dir) && syscall.Kill(pid, sig) == nil
}

// strikeScheduler does something to the scheduler or by it.
func (c *storm) strikeScheduler(f chaos.Fault) (what string, undo func() error, void bool) {
	if c.sched == nil || c.busy["scheduler"] || startOf(c.sched.cmd.Process.Pid) == "" {
		return "", nil, true
	}
	pid := c.sched.cmd.Process.Pid
	switch f.Kind {
	case chaos.KillScheduler:
		c.take("scheduler")
		c.killScheduler()
		return fmt.Sprintf("process %d", pid), c.freeing("scheduler", c.start), false
	case chaos.StopScheduler:
		c.take("scheduler")
		c.signal(pid, syscall.SIGSTOP)
		s := c.sched
		return fmt.Sprintf("process %d", pid), c.freeing("scheduler", func() { _ = s.cmd.Process.Signal(syscall.SIGCONT) }), false
	case chaos.KillPlugin:
		plugin := c.plugin()
		if plugin == 0 || !c.send(plugin, syscall.SIGKILL) {
			return "", nil, true
		}
		return fmt.Sprintf("process %d", plugin), nil, false
	}
	n := 2 + f.Of(stormWorkers-1)
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(c.bins.dir, "kale"), "-state-dir", filepath.Join(c.dir, "s"), "scale", jobName, strconv.Itoa(n))
	cmd.Dir, cmd.Env = c.dir, c.env()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Sprintf("%v: %s", err, out), nil, true // the scheduler is not back yet
	}
	return fmt.Sprintf("to %d workers", n), nil, false
}

func (c *storm) strikeBroker(f chaos.Fault) (what string, undo func() error, void bool) {
	if !c.take("broker") {
		return "", nil, true
	}
	what = fmt.Sprintf("process %d", c.kafka.Pid())
	if f.Kind == chaos.KillBroker {
		c.kafka.Kill9()
		return what, c.freeing("broker", c.kafka.Restart), false
	}
	c.kafka.Suspend()
	return what, c.freeing("broker", c.kafka.Resume), false
}

// strikeNet makes the way to something slow, or closes it.
func (c *storm) strikeNet(f chaos.Fault, name string, p *chaos.Proxy) (what string, undo func() error, void bool) {
	if !c.take("net of " + name) {
		return "", nil, true
	}
	switch f.Kind {
	case chaos.CutBroker, chaos.CutServer:
		p.Cut(true)
		return "nothing gets to " + name, c.freeing("net of "+name, func() { p.Cut(false) }), false
	case chaos.RefuseBroker:
		if err := p.Refuse(true); err != nil {
			c.fatalf("%v", err)
		}
		return name + " refuses", c.freeing("net of "+name, func() {
			if err := p.Refuse(false); err != nil {
				c.fatalf("%v", err)
			}
		}), false
	}
	by := time.Duration(20+f.Of(200)) * time.Millisecond
	p.Slow(by)
	return fmt.Sprintf("%s, %v each way", name, by), c.freeing("net of "+name, func() { p.Slow(0) }), false
}

// nobodyElse checks that the job's processes are those that its backend knows, and one for each role and rank.
func (c *storm) nobodyElse() {
	c.t.Helper()
	c.rig.await("the processes are those that the backend knows", func() string {
		known, places := map[int]backend.ID{}, map[string]int{}
		nameless := map[backend.ID]int{} // known, by a backend that gives no process numbers → how many there are
		for _, st := range c.list() {
			if st.State.Live() {
				if st.PID == 0 {
					nameless[st.ID] = 0
				} else {
					known[st.PID] = st.ID
				}
				places[fmt.Sprintf("%s-%d", st.ID.Role, st.ID.Rank)]++
			}
		}
		for place, n := range places {
			if n > 1 {
				return fmt.Sprintf("%s has %d workloads", place, n)
			}
		}
		there := trainees(c.dir)
		for _, p := range there {
			if n, ok := nameless[p.id]; ok && n == 0 {
				nameless[p.id]++
			} else if known[p.pid] != p.id {
				return fmt.Sprintf("process %d, %s, is not known: %v", p.pid, p.id, known)
			}
		}
		if len(there) != len(known)+len(nameless) {
			return fmt.Sprintf("%d processes, and the backend knows of %v and %v", len(there), known, nameless)
		}
		return ""
	})
}
