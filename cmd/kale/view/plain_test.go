package view

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/state"
)

// Where the output is no terminal, the picture is lines without any command to a terminal.
func TestNoTerminalGivesLines(t *testing.T) {
	done := make(chan struct{})
	close(done)
	var out bytes.Buffer
	if err := Run(t.Context(), nil, &out, source(t), Options{EndsWhen: done, Zone: time.UTC}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), "09:14:29  job       demo, mode live, 1–6 workers, lag objective 2s, emulated accelerators\n") || strings.Contains(out.String(), "\x1b") {
		t.Errorf("%q", out.String())
	}
}

// The lines of a run: what changed, what a rescale cost, a hold once, problems that come and go without their numbers, and a status now and then.
func TestPlainLines(t *testing.T) {
	d := newDemo(t)
	p := printer{options: Options{Zone: time.UTC, Every: 15 * time.Second}}
	var got []string
	for d.now.Before(d.start.Add(70 * time.Second)) {
		switch s := d.now.Sub(d.start); {
		case s >= 66*time.Second:
			d.unknown = ""
		case s >= 63*time.Second:
			d.unknown = "the chief does not answer"
		case s >= 55*time.Second:
			d.problems = nil
		case s >= 52*time.Second:
			d.problems = []string{"partition 3: 14 records behind"}
		case s >= 50*time.Second:
			d.problems = []string{"partition 3: 12 records behind"}
		}
		v := d.step(250 * time.Millisecond)
		got = append(got, p.lines(v)...)
		if again := p.lines(v); len(again) > 0 {
			t.Errorf("one view twice: %q", again)
		}
	}
	golden(t, "lines.txt", strings.Join(got, "\n"))
	if p.lines(nil) != nil {
		t.Error("no view gives lines")
	}
}

// A process that ends again is the same problem, whatever its log says now; that it is resolved does not tell the log a second time.
func TestTroublesAreToldOnce(t *testing.T) {
	p := &printer{}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var got []string
	for _, problems := range [][]string{
		{"worker-0-g1 has ended 1×: it crashed" + core.LogEnds + "the cause"},
		{"worker-0-g1 has ended 2×: it crashed" + core.LogEnds + "another cause"},
		{"worker-0-g1 has ended 2×: it crashed"},
		{"server 0 lost 182 offsets" + core.RepairEnds},
		nil,
	} {
		f := Frame{View: &core.View{Now: at, Problems: problems}, Zone: time.UTC}
		got = append(got, f.text(p.troubles(f))...)
	}
	want := []string{
		"03:04:05  problem   worker-0-g1 has ended 1×: it crashed; its log ends: the cause",
		"03:04:05  problem   server 0 lost 182 offsets; until that is done lag counts them too",
		"03:04:05  gone      worker-0-g1 has ended 2×: it crashed",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// Two processes that end alike within seconds are two problems: each is told, and each is told to be gone. Of one, the generations and the numbers may change.
func TestEachProcessHasItsOwnTrouble(t *testing.T) {
	for _, c := range [][2]string{
		{"ps-1-g2 has ended 1×: it was killed", "ps-0-g2 has ended 1×: it was killed"},
		{"worker-0-g1 has ended 2×: it was killed", "worker-10-g1 has ended 1×: it was killed"},
		{"parameter server 0: snapshots fail: EOF", "parameter server 1: snapshots fail: EOF"},
	} {
		p := &printer{}
		at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		var got []string
		for _, problems := range [][]string{{c[0]}, {c[1], c[0]}, {c[1], c[0]}, {c[1]}, nil} {
			f := Frame{View: &core.View{Now: at, Problems: problems}, Zone: time.UTC}
			got = append(got, f.text(p.troubles(f))...)
		}
		var want []string
		for _, line := range []string{"problem   " + c[0], "problem   " + c[1], "gone      " + c[0], "gone      " + c[1]} {
			want = append(want, "03:04:05  "+line)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("lines (-want +got):\n%s", diff)
		}
	}
	if !Same("worker-0-g1 has ended 1×: it was killed", "worker-0-g2 has ended 2×: it was killed") {
		t.Error("another generation of a rank is another problem")
	}
}

// A trouble that is told in other words, as when it widens, is not said to be gone; one that ends while another subject's begins is.
func TestATroubleThatGoesOnIsNotGone(t *testing.T) {
	const narrow, wide = "parameter server 0: snapshots fail: write /a: no space left on device", "parameter servers 0–1: snapshots fail: write /a: read-only file system"
	for _, c := range []struct {
		before, now string
		goesOn      bool
	}{
		{narrow, wide, true},
		{wide, "parameter server 1: snapshots fail: write /a: no space left on device", true},
		{narrow, "parameter server 0 cannot start: its tablets are lost", true},
		{narrow, "ps-0-g2 has ended 1×: it crashed", true},
		{narrow, "parameter servers 1–3, 5: snapshots fail: write /a: read-only file system", false},
		{"parameter servers 1, 4–6: snapshots fail: EOF", "parameter server 5: snapshots fail: it is full", true},
		{"worker-0-g1 has ended 1×: it crashed" + core.LogEnds + "worker-3-g1 is gone", "worker-0-g2 has not answered for 5s; it is ended", true},
		{"worker-0-g1, worker-2-g1 answer, though nobody sees them", "worker-2-g1 has ended 2×: it crashed", true},
		{"worker-0-g1 has ended 1×: it crashed", "worker-10-g1 has ended 1×: it was killed", false},
		{"worker-0-g1 has ended 1×: it crashed", "partition 0: nobody reads it", false},
		{"partition 3: 12 records behind", "partitions 2–4: not read", true},
		{"the backend starts nothing: no room", "the backend starts nothing: it refuses", true},
		{"the backend starts nothing: no room", "the backend ends nothing: it refuses", false},
		{narrow, "nothing is decided", false},
	} {
		p := &printer{}
		var got []string
		for i, problem := range []string{c.before, c.now, c.now, ""} {
			v := &core.View{Now: time.Unix(int64(i), 0), Problems: []string{problem}}
			if problem == "" {
				v.Problems = nil
			}
			for _, e := range p.troubles(Frame{View: v}) {
				got = append(got, e.kind)
			}
		}
		want := []string{"problem", "problem", "gone"}
		if !c.goesOn {
			want = []string{"problem", "problem", "gone", "gone"}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q, then %q (-want +got):\n%s", c.before, c.now, diff)
		}
	}
}

// Who does not answer may show in another way at each look: each cause is told once while it lasts, whatever was asked, and its end once.
func TestSilenceIsOneProblem(t *testing.T) {
	p := &printer{}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const jobs, nodes, slow = "the backend does not answer: list the jobs: EOF", "the backend does not answer: list the nodes: EOF", "the backend does not answer: list the nodes: i/o timeout"
	var got []string
	for _, problems := range [][]string{
		{jobs}, {nodes}, {slow}, {jobs}, {nodes, "the chief does not answer: write tcp 127.0.0.1:40012->127.0.0.1:9000: broken pipe"},
		{"the chief does not answer: it cannot be reached"}, {"the chief does not answer: write tcp 127.0.0.1:40014->127.0.0.1:9000: broken pipe"}, nil, {jobs},
	} {
		f := Frame{View: &core.View{Now: at, Problems: problems}, Zone: time.UTC}
		got = append(got, f.text(p.troubles(f))...)
	}
	want := []string{
		"03:04:05  problem   " + jobs,
		"03:04:05  problem   " + slow,
		"03:04:05  problem   the chief does not answer: write tcp 127.0.0.1:40012->127.0.0.1:9000: broken pipe",
		"03:04:05  problem   the chief does not answer: it cannot be reached",
		"03:04:05  gone      the backend does not answer",
		"03:04:05  gone      the chief does not answer",
		"03:04:05  problem   " + jobs,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// What a hold does not know has its line as a problem, whichever of the two comes first; the decision tells it where no problem does.
func TestACauseIsToldOnce(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const mute = "the chief does not answer: it cannot be reached"
	for name, c := range map[string]struct {
		before, now []string
		want        string
	}{
		"at once":          {nil, []string{mute}, "hold at 2 workers: not fully known: a problem says why"},
		"before":           {[]string{mute}, []string{mute}, "hold at 2 workers: not fully known: a problem says why"},
		"in other words":   {[]string{"the chief does not answer: broken pipe"}, nil, "hold at 2 workers: not fully known: a problem says why"},
		"of somebody else": {[]string{"the backend does not answer: EOF"}, []string{"worker-0-g1 has ended 1×: killed"}, "hold at 2 workers: not fully known: " + mute},
	} {
		p := printer{options: Options{Zone: time.UTC, Every: time.Hour}}
		p.lines(&core.View{Now: at, Started: at, Problems: c.before})
		r := &core.Record{Observation: plan.Observation{Hold: plan.Hold{Unknown: true, Reason: mute}},
			Decision: plan.Decision{Kind: plan.KindHold, At: at.Add(time.Second), Current: 2, Target: 2, Reason: "hold at 2 workers: not fully known: " + mute}}
		got := p.lines(&core.View{Now: at.Add(time.Second), Started: at, Problems: c.now, Decision: r})
		if want := "03:04:06  decision  " + c.want; !slices.Contains(got, want) {
			t.Errorf("%s: %q lacks %q", name, got, want)
		}
	}
}

// So may retention, as the brokers' settings foresee it, as the chief sees it, and when it has removed something.
func TestRetentionIsOneProblem(t *testing.T) {
	p := &printer{}
	const near, taken = "the oldest record that is not trained is 50s old, and brokers may remove what is older than 1m (retention.ms); raise that", "partitions 0–1: retention removes records that are not trained yet"
	var got []string
	for _, problems := range [][]string{{near}, {taken}, {strings.Replace(near, "50s", "1m3s", 1)}, {"partition 0: retention removed untrained offsets (7)", near}, {near}, nil} {
		f := Frame{View: &core.View{Now: time.Unix(1, 0), Problems: problems}, Zone: time.UTC}
		got = append(got, f.text(p.troubles(f))...)
	}
	want := []string{"00:00:01  problem   " + near, "00:00:01  problem   " + taken, "00:00:01  problem   partition 0: retention removed untrained offsets (7)",
		"00:00:01  gone      retention is close to what is not trained, or beyond it"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// A stop mends nothing: what was a problem before is not said to be gone because the job is being stopped.
func TestAStopResolvesNothing(t *testing.T) {
	p := &printer{}
	p.troubles(Frame{View: &core.View{Now: time.Unix(1, 0), Problems: []string{"partition 2 stands still"}}, Zone: time.UTC})
	if got := p.troubles(Frame{View: &core.View{Now: time.Unix(2, 0), Stopping: true}, Zone: time.UTC}); len(got) > 0 {
		t.Errorf("a job that stops says %+v", got)
	}
}

// What a view says of a finished rescale is shown, with its gap and how far ahead it was.
func TestRescaleIsTold(t *testing.T) {
	d := newDemo(t)
	p := printer{options: Options{Zone: time.UTC}}
	p.lines(d.step(time.Second))
	begin := d.now
	for range 30 {
		quiet := *d.step(time.Second)
		quiet.Rescale = nil
		p.lines(&quiet)
	}
	r := &core.Rescale{
		Kind: plan.KindOut, From: 1, To: 2, Decided: begin, FirstTrained: begin.Add(2 * time.Second), Done: begin.Add(2100 * time.Millisecond),
		ConfiguredCapacity: 700, Gap: 48 * time.Millisecond, GapKnown: true,
	}
	v := *d.step(time.Second)
	v.LastRescale = r
	got := p.lines(&v)
	if diff := cmp.Diff([]string{"09:14:32  rescale   scale-out 1 → 2 took 2.1s, gap 48ms, 18s ahead of the load"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for want, change := range map[string]func(*core.Rescale){
		"start 0 → 2 took 2.1s": func(r *core.Rescale) { r.From = 0 },
		"scale-out 1 → 2 took 2.1s, gap 3s (a partition waited on after that), 18s ahead of the load": func(r *core.Rescale) { r.Gap = 3 * time.Second },
		"scale-in 1 → 2 took 2.1s, gap unknown":                                                       func(r *core.Rescale) { r.Kind, r.GapKnown = plan.KindIn, false },
		"scale-out 1 → 2 given up after 2.1s: worker 1, which is not ready":                           func(r *core.Rescale) { r.Aborted, r.Unfinished = true, "worker 1, which is not ready" },
		"scale-out 1 → 2 has come about since; it had been given up after 2.1s: worker 1, which is not ready": func(r *core.Rescale) {
			r.Aborted, r.CameAbout, r.Unfinished = true, true, "worker 1, which is not ready"
		},
		"scale-out 1 → 2 replaced by another decision after 2.1s": func(r *core.Rescale) { r.Aborted = true },
		"start 0 → 2 took 2.1s, settled 16s later, worker-1 has got nothing to train yet": func(r *core.Rescale) {
			r.From, r.Settled, r.Join = 0, r.Done.Add(16*time.Second), &core.Join{Worker: "worker-1", Idle: true}
		},
		"scale-out 1 → 2 took 2.1s, gap 48ms, 10s after the load came": func(r *core.Rescale) {
			r.FirstTrained = begin.Add(10 * time.Second)
			r.ConfiguredCapacity = 1
			r.Decided, r.Done = begin.Add(-time.Second), begin.Add(1100*time.Millisecond)
		},
	} {
		c := *r
		change(&c)
		if got := RescaleWords(c, p.memory.trail, 0); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Two orders that follow each other between two looks at the job are two decisions and two rescales, and each has its line.
func TestWhatHappensBetweenTwoLooksIsTold(t *testing.T) {
	st, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	d := newDemo(t)
	p := printer{options: Options{Zone: time.UTC, Store: st, Every: time.Hour}}
	p.lines(d.step(time.Second))
	begin := d.now
	v := *d.step(time.Second)
	v.Rescale = nil
	for i, to := range []int{1, 3, 2} {
		kind, at := plan.KindOut, begin.Add(time.Duration(i)*80*time.Millisecond)
		if to == 2 {
			kind = plan.KindIn
		}
		c := &core.Record{Decision: plan.Decision{Kind: kind, At: at, Current: v.Sample.Target, Target: to, Reason: "by hand"}}
		r := &core.Rescale{Kind: kind, From: v.Sample.Target, To: to, Decided: at, Done: at.Add(70 * time.Millisecond), Aborted: to == 3}
		if err := errors.Join(st.Append(state.Decisions, at, c), st.Append(state.Rescales, r.Done, r)); err != nil {
			t.Fatal(err)
		}
		v.Now, v.LastChange, v.Decision, v.LastRescale, v.Sample.Target = at, c, c, r, to
		if to == 1 {
			seen := v
			p.lines(&seen)
		}
	}
	want := []string{
		"09:14:01  decision  scale out 1 → 3: by hand",
		"09:14:01  decision  scale in 3 → 2: by hand",
		"09:14:01  rescale   scale-out 1 → 3 replaced by another decision after 70ms",
		"09:14:01  rescale   scale-in 3 → 2 took 70ms, gap unknown",
	}
	if diff := cmp.Diff(want, p.lines(&v)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// That a job ends by an order, whoever gave it, is told once.
func TestPlainTellsOfAStop(t *testing.T) {
	p := &printer{options: Options{Zone: time.UTC, Every: time.Hour}}
	for i, tt := range []struct {
		stopping bool
		want     int
	}{{false, 0}, {true, 1}, {true, 0}} {
		got := strings.Join(p.lines(&core.View{Job: "ads", Now: time.Unix(int64(i+1), 0), Stopping: tt.stopping}), "\n")
		if n := strings.Count(got, "a stop has been ordered"); n != tt.want {
			t.Errorf("look %d tells %d times of a stop, want %d:\n%s", i, n, tt.want, got)
		}
	}
}

// Of a pause and its end, ordered in another terminal or before this run, is told once what it means.
func TestPlainTellsOfAPause(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const means = ": nothing is trained, and no worker comes or goes, until kale resume ads"
	for _, tt := range []struct {
		name   string
		paused []bool
		want   []string
	}{
		{"meanwhile", []bool{false, true, true, false, false}, []string{"03:04:06  pause     a person paused the job" + means, "03:04:08  resume    a person resumed the job: training goes on, and so do decisions"}},
		{"before", []bool{true, true}, []string{"03:04:05  pause     a person paused the job 1h ago" + means}},
	} {
		p := &printer{options: Options{Zone: time.UTC, Every: time.Hour}}
		var got []string
		for i, paused := range tt.paused {
			v := &core.View{Job: "ads", Now: at.Add(time.Duration(i) * time.Second), Manual: plan.Manual{Paused: paused}}
			if paused {
				v.PausedSince = at.Add(-time.Hour)
			}
			for _, l := range p.lines(v) {
				if strings.Contains(l, "a person") {
					got = append(got, l)
				}
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// Since when a job is paused may not be known, and by a clock that differs it may be since a moment from now.
func TestPlainTellsOfAPauseBefore(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for since, want := range map[time.Time]string{{}: "the job was paused before this scheduler came: nothing is trained", now.Add(21 * time.Millisecond): "a person paused the job 0s ago: nothing is trained"} {
		p := &printer{options: Options{Zone: time.UTC, Every: time.Hour}}
		if got := strings.Join(p.lines(&core.View{Job: "ads", Now: now, Manual: plan.Manual{Paused: true}, PausedSince: since}), "\n"); !strings.Contains(got, want) {
			t.Errorf("%s; want %q", got, want)
		}
	}
}

// A stop of a job that cannot be run again as it is does not promise that.
func TestPlainTellsOfAStopForGood(t *testing.T) {
	p := &printer{options: Options{Zone: time.UTC, Every: time.Hour}}
	got := strings.Join(p.lines(&core.View{Job: "ads", Now: time.Unix(1, 0), Stopping: true, Stuck: "the topic was deleted or created again"}), "\n")
	if !strings.Contains(got, "is drained; the topic was deleted or created again, and the job cannot be run again before that is mended") || strings.Contains(got, "goes on from") {
		t.Error(got)
	}
}

// What a stop does, and that it became one by force, is told once each.
func TestPlainTellsOfAStopByForce(t *testing.T) {
	p := &printer{options: Options{Zone: time.UTC, Every: time.Hour}}
	var got []string
	for i, v := range []core.View{{}, {Stopping: true}, {Stopping: true}, {Stopping: true, Forced: true}, {Stopping: true, Forced: true}} {
		v.Job, v.Now = "ads", time.Unix(int64(i), 0)
		for _, l := range p.lines(&v) {
			if _, says, stop := strings.Cut(l, "  stop      "); stop {
				got = append(got, says)
			}
		}
	}
	const next = ", and the next run goes on from its last snapshot"
	want := []string{"a stop has been ordered: what runs is drained" + next, "the stop is one by force now: what runs ends without being drained" + next}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	p = &printer{options: Options{Zone: time.UTC, Every: time.Hour}}
	if at := strings.Join(p.lines(&core.View{Job: "ads", Now: time.Unix(1, 0), Stopping: true, Forced: true}), "\n"); !strings.Contains(at, "a stop by force has been ordered") {
		t.Error(at)
	}
}

// Records that stop partitions are one problem, and its end is a whole sentence.
func TestHaltIsOneProblem(t *testing.T) {
	p := &printer{}
	var got []string
	for _, problems := range [][]string{{"records that cannot be decoded stop partitions 0–1, and nothing of that is lost. Partition 0 of …"}, {"records that cannot be decoded stop partition 1, and nothing of that is lost. Partition 1 of …"}, nil} {
		f := Frame{View: &core.View{Now: time.Unix(1, 0), Problems: problems}, Zone: time.UTC}
		got = append(got, f.text(p.troubles(f))...)
	}
	want := "00:00:01  gone      partitions stand still at records that cannot be decoded"
	if len(got) == 0 || got[len(got)-1] != want {
		t.Errorf("%q; want %q at the end", got, want)
	}
}

// The first decision of this scheduler may be made before its first picture: it is told; that of one before is not. One that is only observed is told when it differs.
func TestPlainTellsOfTheFirstDecision(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		made time.Time
		want []string
	}{
		{at.Add(time.Second), []string{"03:04:06  decision  scale out 0 → 3: a reason (observed only: nothing is done)", "03:04:09  decision  stay at 2: a reason (observed only: nothing is done)"}},
		{at.Add(-time.Second), []string{"03:04:09  decision  stay at 2: a reason (observed only: nothing is done)"}},
	} {
		p := &printer{options: Options{Zone: time.UTC, Every: time.Hour}}
		change := &core.Record{Decision: plan.Decision{Kind: plan.KindOut, At: tt.made, Target: 3, Reason: "a reason"}, ObserveOnly: true, Differs: true}
		last := &core.Record{Decision: plan.Decision{Kind: plan.KindNone, At: at.Add(4 * time.Second), Current: 2, Target: 2, Reason: "a reason"}, ObserveOnly: true, Differs: true}
		var got []string
		for i, c := range []*core.Record{change, change, last} {
			for _, l := range p.lines(&core.View{Job: "ads", Started: at, Now: at.Add(time.Duration(i+2) * time.Second), Decision: c, LastChange: c}) {
				if strings.Contains(l, "decision") {
					got = append(got, l)
				}
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// Lines stand in the order of their times, as they are shown: what becomes known after later lines has the time at which it is told. What a scheduler before
// this one held for is no news.
func TestPlainLinesAreInOrder(t *testing.T) {
	at := func(seconds int) time.Time { return time.Date(2026, 1, 2, 3, 4, seconds, 0, time.UTC) }
	hold := func(second int) *core.Record {
		return &core.Record{Observation: plan.Observation{Hold: plan.Hold{Unknown: true}}, Decision: plan.Decision{Kind: plan.KindHold, At: at(second), Current: 1, Target: 1, Reason: "a reason"}}
	}
	change := &core.Record{Decision: plan.Decision{Kind: plan.KindOut, At: at(12), Target: 2, Reason: "a reason"}}
	rescale := &core.Rescale{Kind: plan.KindOut, From: 1, To: 2, Decided: at(12), Done: at(14)}
	p := &printer{options: Options{Zone: time.UTC, Every: 5 * time.Second}}
	var got []string
	for _, v := range []*core.View{
		{Now: at(13), Decision: hold(9), LastChange: change},
		{Now: at(18), Decision: hold(17), LastChange: change, Problems: []string{"a problem"}},
		{Now: at(20), Decision: hold(17), LastChange: change, LastRescale: rescale, Problems: []string{"a problem"}, Notes: []core.Note{{At: at(16), Text: "a note"}, {At: at(19), Text: "another"}}},
	} {
		v.Job, v.Started = "ads", at(10)
		for _, l := range p.lines(v) {
			got = append(got, strings.Join(strings.Fields(l)[:2], " "))
		}
	}
	want := []string{"03:04:12 job", "03:04:12 decision", "03:04:13 status", "03:04:17 decision", "03:04:18 problem", "03:04:18 status", "03:04:19 note", "03:04:20 rescale", "03:04:20 note"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPlainTellsThatItCannotWrite(t *testing.T) {
	if err := Plain(t.Context(), brokenPipe{}, source(t), Options{}); err == nil || err.Error() != "show the job: broken pipe" {
		t.Error(err)
	}
}

// What was not trained is in each status line, and what goes on is no note before it is over.
func TestPlainTellsOfLosses(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := &printer{}
	var got []string
	for _, n := range []core.Note{{At: at, Text: "lost: 1", UnderWay: true}, {At: at, Text: "lost: 2", UnderWay: true}, {At: at, Text: "lost: 2"}, {At: at, Text: "lost: 2"}} {
		f := Frame{View: &core.View{Notes: []core.Note{n}}, Zone: time.UTC}
		got = append(got, f.text(p.notices(f, false))...)
	}
	if diff := cmp.Diff([]string{"03:04:05  note      lost: 2"}, got); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	late := &printer{}
	late.notices(Frame{View: &core.View{Now: at}, Zone: time.UTC}, true)
	if said := late.notices(Frame{View: &core.View{Notes: []core.Note{{At: at.Add(-time.Hour), Text: "long ago"}, {At: at.Add(time.Second), Text: "now"}}}, Zone: time.UTC}, false); len(said) != 1 || said[0].says != "now" {
		t.Errorf("of a note from before and one from after the first view it tells %+v", said)
	}
	for want, v := range map[string]*core.View{
		"  380,201 offsets LOST to retention  7 skipped that could not be decoded":        {Lost: new(uint64(380201)), Dead: new(uint64(7)), Skips: true},
		"workers unknown  arrivals 175/s, trained unknown, capacity unknown  lag unknown": {Sample: core.Sample{Rate: new(175.), Target: 3}},
		"2 workers, paused  arrivals 175/s, trained 0/s, capacity 1,600/s  lag 3s": {Manual: plan.Manual{Paused: true}, MaxLag: time.Minute,
			Sample: core.Sample{Running: new(2), Pending: new(int), Rate: new(175.), Trained: new(0.), Capacity: new(1600.), Lag: new(3.), Target: 2}},
		"2 workers, others unknown  arrivals unknown, trained 0/s, capacity 1,600/s  lag unknown": {
			Sample: core.Sample{Running: new(2), Trained: new(0.), Capacity: new(1600.), Target: 3}},
		"  lag unknown  1,200 in topic dead that could not be decoded": {Dead: new(uint64(1200)), DeadLetter: "dead"},
		"  lag unknown": {Dead: new(uint64), DeadLetter: "dead"},
	} {
		if got := status(v); !strings.HasSuffix(got, want) {
			t.Errorf("%q does not end with %q", got, want)
		}
	}
}
