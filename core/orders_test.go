package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/fake"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/traffic"
)

func TestOrdersThatAreRefusedChangeNothing(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	before := *r.s.want
	for _, c := range []struct {
		order Order
		says  string
	}{
		{Order{Kind: "scale", Target: 0}, `scale job "ctr" to 0 workers: the job file allows 1 to 8`},
		{Order{Kind: "scale", Target: 9}, `scale job "ctr" to 9 workers: the job file allows 1 to 8`},
		{Order{Kind: "scale", Target: -1}, "allows 1 to 8"},
		{Order{Kind: "dance"}, "there are scale, auto, pause, resume and stop"},
		{Order{}, "unknown order"},
	} {
		if err := r.s.obey(t.Context(), command{Order: c.order}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.order, err, c.says)
		}
	}
	r.chief.stop()
	for _, kind := range []string{"pause", "resume"} {
		if err := r.s.obey(t.Context(), command{Order: Order{Kind: kind}}); err == nil || !strings.Contains(err.Error(), kind+` job "ctr"`) {
			t.Errorf("%s without a chief: %v", kind, err)
		}
	}
	if r.s.want.Manual != before.Manual || r.s.want.Stopping {
		t.Errorf("the orders left %+v, stopping %v", r.s.want.Manual, r.s.want.Stopping)
	}
}

// An order that is taken while the backend does not answer is followed as soon as it does, and not only when it is time to decide again.
func TestAnOrderIsFollowedWhenTheBackendAnswersAgain(t *testing.T) {
	r := newRig(t, rigOptions{change: func(text string) string { return strings.Replace(text, `tick         = "1s"`, `tick = "1h"`, 1) }})
	r.started(2)
	for range 3 {
		r.backend.FailNext(fake.OpList, backend.Errorf(backend.Unavailable, "slurmctld does not answer"))
	}
	r.order("scale", 3)
	r.beats(3)
	if r.s.want.Target != 2 {
		t.Fatalf("%d workers are wanted on a look that failed", r.s.want.Target)
	}
	r.beat()
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1 worker-2-g1")
	r.until("it is followed", r.settled(3))
	if r.s.undecided {
		t.Error("it is still to be followed")
	}
}

func TestPinIsKeptUntilAuto(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(3)
	r.reopen()
	r.beat()
	if d := r.decision(); d.Target != 3 || d.Source != "manual" {
		t.Errorf("after a restart: %d by %q", d.Target, d.Source)
	}
	r.order("auto", 0)
	r.beat()
	if d := r.decision(); d.Source == "manual" {
		t.Errorf("after auto: %+v", d)
	}
}

func TestPauseHoldsTheNumberOfWorkers(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.order("pause", 0)
	r.order("scale", 4)
	r.beats(3)
	if d := r.decision(); d.Kind != plan.KindHold || d.Target != 2 || !r.s.seen.chief.GetPaused() {
		t.Errorf("while paused: %s at %d, chief paused %v", d.Kind, d.Target, r.s.seen.chief.GetPaused())
	}
	r.order("resume", 0)
	r.until("it goes on", r.settled(4))
	if r.s.seen.chief.GetPaused() {
		t.Error("the chief is still paused")
	}
}

// The loop itself: orders from other goroutines, a stop that ends Run, and Do after that.
func TestRun(t *testing.T) {
	r := newRig(t, rigOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- r.s.Run(ctx) }()
	order := func(o Order) {
		t.Helper()
		if err := r.s.Do(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	order(Order{Kind: "scale", Target: 3})
	eventually(t, "the view shows three workers that train", func() error {
		r.joinAll()
		if v := r.s.View(); v == nil || running(v) != 3 || v.Rescale != nil {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	if err := r.s.Do(ctx, Order{Kind: "scale", Target: 99}); err == nil || errors.Is(err, ErrNotRunning) {
		t.Errorf("an order that is refused: %v", err)
	}
	order(Order{Kind: "stop"})
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	if v := r.s.View(); !v.Stopped || r.live() != "" {
		t.Errorf("stopped %v, live %q", v.Stopped, r.live())
	}
	if err := r.s.Do(t.Context(), Order{Kind: "auto"}); !errors.Is(err, ErrNotRunning) {
		t.Errorf("an order after the end: %v", err)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	hold := make(chan struct{}) // never let go: a snapshot under way must not keep Run
	r.chief.with(func(*rpc.JobStatus) { r.chief.hold = hold })
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- r.s.Run(ctx) }()
	if err := r.s.Do(ctx, Order{Kind: "stop"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the workers are gone", r.isLive("ps-0-g1 ps-1-g1"))
	cancel()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	r.mustBeLive("ps-0-g1 ps-1-g1") // training would go on
}

// What was started just before the end is shown: whoever is told that nothing runs holds GPUs and does not know.
func TestWhatWasStartedLastIsShown(t *testing.T) {
	r := newRig(t, rigOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	r.s.opt.Backend = endingAfter{r.s.opt.Backend, cancel}
	if err := r.s.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if v := r.s.View(); r.live() == "" || len(v.Servers) != 2 {
		t.Errorf("%q runs, and shown is %+v", r.live(), v.Servers)
	}
}

// endingAfter ends the scheduler as soon as something was started.
type endingAfter struct {
	backend.Backend
	end func()
}

func (b endingAfter) Ensure(ctx context.Context, name string, ws []backend.Workload) ([]backend.Status, error) {
	defer b.end()
	return b.Backend.Ensure(ctx, name, ws)
}

// A broker that does not answer makes the back-fill last for minutes. Orders are taken meanwhile, and a stop does not wait for its end.
func TestOrdersAreTakenDuringTheBackfill(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	mute, err := net.Listen("tcp", "127.0.0.1:0") // it takes connections and never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mute.Close() }) // nothing was written to it
	answers := r.s.kafka
	if r.s.kafka, err = traffic.NewClient(traffic.ClientOptions{Brokers: []string{mute.Addr().String()}, Topic: rigTopic}); err != nil {
		t.Fatal(err)
	}
	defer answers.Close()
	ctx, cancel := context.WithTimeout(t.Context(), backfillTimeout/2)
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- r.s.Run(ctx) }()
	for _, o := range []Order{{Kind: "scale", Target: 2}, {Kind: "stop"}} {
		if err := r.s.Do(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	if w := r.s.want; w.Manual.Target != 2 || !w.Stopping {
		t.Errorf("pinned to %d, stopping %v", w.Manual.Target, w.Stopping)
	}
}

// Who gave an order and went away must not find it carried out later.
func TestOrderThatComesTooLateIsNotCarriedOut(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	for _, kind := range []string{"scale", "stop", "auto"} {
		o := Order{Kind: kind, Target: 4, Until: time.Now().Add(-time.Second)}
		if err := r.s.obey(t.Context(), command{Order: o}); err == nil || !strings.Contains(err.Error(), "the order comes too late") {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if w := r.s.want; w.Manual.Target != 2 || !w.Manual.Pinned || w.Stopping {
		t.Errorf("the orders left %+v, stopping %v", w.Manual, w.Stopping)
	}
	if err := r.s.obey(t.Context(), command{Order: Order{Kind: "scale", Target: 4, Until: time.Now().Add(time.Hour)}}); err != nil || r.s.want.Manual.Target != 4 {
		t.Errorf("in time: %v, %+v", err, r.s.want.Manual)
	}
}

// More workers do not bring a parameter server back: the number stays, but for an order.
func TestServerThatIsDownHoldsTheNumberOfWorkers(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.order("auto", 0)
	r.hang(server(1, 1))
	r.beats(2)
	if d := r.decision(); d.Kind != plan.KindHold || !strings.Contains(d.Reason, "parameter server 1 is down") {
		t.Errorf("decided %s: %s", d.Kind, d.Reason)
	}
	r.order("scale", 4)
	r.beat()
	if d := r.decision(); d.Target != 4 || d.Source != "manual" {
		t.Errorf("an order gives %d by %q: %s", d.Target, d.Source, d.Reason)
	}
}

// Who pauses a job and asks what it does is told, though no look has been made since.
func TestPauseShowsAtOnce(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.chief.with(func(st *rpc.JobStatus) { st.Members[0].RecordsPerSecond, st.Members[0].BusyShare = 700, 1.0002 })
	r.beat()
	if v := r.s.View(); v.State != StateRunning || !v.PausedSince.IsZero() || *v.Sample.Trained != 700 || *v.Workers[0].Busy != 1 || *v.Sample.Busy != 1 {
		t.Fatalf("%s, paused since %v", v.State, v.PausedSince)
	}
	before := time.Now()
	r.order("pause", 0)
	v := r.s.View()
	if v.State != StatePaused || !v.Manual.Paused || v.PausedSince.Before(before.Add(-time.Second)) {
		t.Errorf("%s, paused %v since %v", v.State, v.Manual.Paused, v.PausedSince)
	}
	if s, w := v.Sample, v.Workers[0]; *s.Trained != 0 || *s.Busy != 0 || *w.Rate != 0 || *w.Busy != 0 {
		t.Errorf("a job that was just paused trains %v records/s, busy %v; its worker %v, busy %v", *s.Trained, *s.Busy, *w.Rate, *w.Busy)
	}
	r.order("pause", 0)
	r.beat()
	if again := r.s.View(); again.State != StatePaused || !again.PausedSince.Equal(v.PausedSince) {
		t.Errorf("paused once more: %s since %v, want since %v", again.State, again.PausedSince, v.PausedSince)
	}
	r.order("resume", 0)
	if v := r.s.View(); v.State != StateRunning || !v.PausedSince.IsZero() {
		t.Errorf("%s, paused since %v", v.State, v.PausedSince)
	}
}

// A pause that only the chief knows of was ordered before this scheduler came: since when is not known, and not made up.
func TestPauseOfOneBefore(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.chief.with(func(st *rpc.JobStatus) { st.Paused = true })
	r.beats(2)
	if v := r.s.View(); v.State != StatePaused || !v.Manual.Paused || !v.PausedSince.IsZero() {
		t.Errorf("%s, paused %v since %v", v.State, v.Manual.Paused, v.PausedSince)
	}
}

// An order that only the chief can carry out is refused beside one that does not answer, in words for people: who that is, what becomes of it, and what to do. A chief
// that is known not to answer is not even asked, lest the order comes to it later.
func TestOrdersBesideAChiefThatDoesNotAnswer(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	mute := func(on bool) { r.chief.with(func(*rpc.JobStatus) { r.chief.mute = on }) }
	mute(true)
	refused := func(kind, want string) {
		t.Helper()
		err := r.s.obey(t.Context(), command{Order: Order{Kind: kind}})
		if err == nil || !regexp.MustCompile(want).MatchString(err.Error()) || !errors.Is(err, ErrChiefSilent) {
			t.Errorf("%s: %v, want %s", kind, err, want)
		}
	}
	const who = ` job "ctr": the chief \(parameter server 0, ps-0-g1, process \d+ on \S+\) does not answer: ask the chief at [0-9.:]+: no answer in time; after 30s it is ended by force and started again\. The order is not taken`
	refused("pause", "^pause"+who+`, though a chief that goes on may still follow it: give it again when kale status ctr shows that the chief answers, which also says whether the job is paused$`)
	r.beat()
	for _, kind := range []string{"pause", "resume"} {
		refused(kind, "^"+kind+who+` and changes nothing: give it again when kale status ctr shows that the chief answers$`)
	}
	raw, err := json.Marshal(r.s.View())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), "rpc error") || !strings.Contains(string(raw), "no answer in time") {
		t.Errorf("the view says: %s", raw)
	}
	r.chief.with(func(*rpc.JobStatus) {
		if r.s.want.Manual.Paused || r.chief.pauses != 1 {
			t.Errorf("paused %v; the chief was asked %d times", r.s.want.Manual.Paused, r.chief.pauses)
		}
	})
	mute(false)
	r.beat()
	r.order("pause", 0)
	r.chief.stop()
	r.until("the chief is said to be gone", func() error { // the first answer may be the end of the old connection
		if text := r.s.View().Sample.Unknown; !strings.Contains(text, "it cannot be reached: dial tcp") || strings.Contains(text, "desc = ") {
			return errors.New(text)
		}
		return nil
	})
}

// An order that waits is taken before the next look, which may take as long as the last one.
func TestAnOrderGoesBeforeALook(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.s.commands = make(chan command, 1)
	look := make(chan time.Time, 1)
	for range 64 {
		c := command{Order: Order{Kind: "dance"}, done: make(chan error, 1)}
		r.s.commands <- c
		if len(look) == 0 {
			look <- time.Now()
		}
		if !r.s.await(t.Context(), look) || len(c.done) == 0 {
			t.Fatal("it looked first")
		}
	}
}

// Whatever ends the wait for an order, its answer goes first, and then the loop's end: who asks at the very end is told what is true.
func TestWhatComesOfAnOrderAtTheEnd(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	refused := errors.New("no")
	for range 64 {
		s := &Scheduler{commands: make(chan command), ended: make(chan struct{})}
		if err := s.Do(over, Order{Kind: "stop"}); !errors.Is(err, ErrNotTaken) || errors.Is(err, ErrNotRunning) {
			t.Fatalf("an order that a loop has not come to: %v", err)
		}
		close(s.ended)
		if err := s.Do(over, Order{Kind: "stop"}); !errors.Is(err, ErrNotRunning) {
			t.Fatalf("an order to a loop that has ended: %v", err)
		}
		for want, answers := range map[error]bool{refused: true, ErrUnsettled: false} {
			s := &Scheduler{commands: make(chan command), ended: make(chan struct{})}
			ctx, end := context.WithCancel(t.Context())
			go func() { // ends with the order, which Do hands over
				c := <-s.commands
				if answers {
					c.done <- refused
				}
				end()
			}()
			if err := s.Do(ctx, Order{Kind: "stop"}); !errors.Is(err, want) || !answers && !errors.Is(err, context.Canceled) {
				t.Fatalf("an order that is being taken: %v, want %v", err, want)
			}
			end()
		}
	}
}
