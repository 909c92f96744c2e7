package view

import (
	"bytes"
	"context"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/pool"
)

// restored fails unless what the picture does to a terminal is undone: the other screen left, the cursor shown, and whatever it may have switched besides.
func restored(t *testing.T, out string) {
	t.Helper()
	always := map[string]string{"\x1b[?1049h": "\x1b[?1049l", "\x1b[?25l": "\x1b[?25h", "\x1b[?2004h": "\x1b[?2004l"}
	sometimes := map[string]string{"\x1b[?7l": "\x1b[?7h", "\x1b[>1u": "\x1b[<1u", "\x1b[>4;2m": "\x1b[>4m", "\x1b[?2026h": "\x1b[?2026l", "\x1b[?2027h": "\x1b[?2027l"}
	for on, off := range sometimes {
		if strings.LastIndex(out, off) < strings.LastIndex(out, on) {
			t.Errorf("%q is not undone at the end", on)
		}
	}
	for on, off := range always {
		if strings.LastIndex(out, on) < 0 {
			t.Errorf("%q was never written: is this still how the picture takes the terminal?", on)
		}
		if strings.LastIndex(out, off) < strings.LastIndex(out, on) {
			t.Errorf("%q is not undone at the end", on)
		}
	}
}

// source always gives the same view of the demo.
func source(t *testing.T) func() *core.View {
	v := at(t, newDemo(t), 30*time.Second).View
	return func() *core.View { return v }
}

func TestKeysEndThePicture(t *testing.T) {
	for name, key := range map[string]string{"q": "q", "Ctrl-C": "\x03"} {
		t.Run(name, func(t *testing.T) {
			in, keys := io.Pipe()
			go func() { _, _ = io.WriteString(keys, key) }() // Ends when the picture has read the key.
			var out bytes.Buffer
			if err := show(t.Context(), in, &out, source(t), Options{Zone: time.UTC}); err != nil {
				t.Fatal(err)
			}
			restored(t, out.String())
		})
	}
}

func TestPictureEndsWithItsCause(t *testing.T) {
	done := make(chan struct{})
	close(done)
	var out bytes.Buffer
	if err := show(t.Context(), nil, &out, source(t), Options{EndsWhen: done}); err != nil {
		t.Errorf("EndsWhen closed: %v", err)
	}
	restored(t, out.String())

	ctx, cancel := context.WithCancel(t.Context())
	src, looks := source(t), 0
	out.Reset()
	err := show(ctx, nil, &out, func() *core.View {
		if looks++; looks == 3 {
			cancel()
		}
		return src()
	}, Options{})
	if err != nil {
		t.Errorf("ctx ended: %v", err)
	}
	restored(t, out.String())
}

// A source that panics ends the picture with an error, and the terminal is as it was.
func TestPanicRestoresTheTerminal(t *testing.T) {
	src, looks := source(t), 0
	var out bytes.Buffer
	err := show(t.Context(), nil, &out, func() *core.View {
		if looks++; looks == 2 {
			panic("a fault of the source")
		}
		return src()
	}, Options{})
	if err == nil || !strings.Contains(err.Error(), "show the job on the terminal") {
		t.Errorf("a panic gives %v", err)
	}
	restored(t, out.String())
}

// Screens of moments that matter, at the sizes that people have.
func TestScreens(t *testing.T) {
	moments := map[string]func() Frame{
		"nothing_yet": func() Frame { return Frame{Note: "reading the arrival history from the broker: 12 of 40"} },
		"joining":     func() Frame { return at(t, newDemo(t), 32500*time.Millisecond) },
		"surge": func() Frame {
			d := newDemo(t)
			at(t, d, 70*time.Second)
			d.surge = 6
			d.problems = []string{
				"parameter server 1: snapshots fail: write checkpoints/demo/tablet-17: no space left on device",
				"partition 3: retention removed untrained offsets (4,392); training stands still there until you accept the loss: set on_lost = \"skip\" in the stream block; then Ctrl-C and kale run again (training goes on)",
				"worker-2.1 failed: exit status 137", "the chief does not answer",
			}
			return at(t, d, 78*time.Second)
		},
		"unknown": func() Frame {
			d := newDemo(t)
			at(t, d, 48*time.Second)
			d.unknown = "the chief does not answer since 40 s"
			f := at(t, d, 50*time.Second)
			f.View.Sample = core.Sample{At: f.View.Now, Target: f.View.Sample.Target, Unknown: d.unknown}
			for i := range f.View.Workers {
				w := &f.View.Workers[i]
				w.Member, w.Partitions, w.Rate, w.Busy, w.Queue = "unknown", nil, nil, nil, nil
			}
			for i := range f.View.Servers {
				f.View.Servers[i].Up = nil
			}
			f.View.Trained, f.View.AUC = nil, nil
			f.View.Forecast.Trusted, f.View.Forecast.Reason = false, "it was worse than seasonal naive"
			f.View.Manual = plan.Manual{Pinned: true, Target: 4}
			return f
		},
	}
	for name, frame := range moments {
		t.Run(name, func(t *testing.T) {
			f := frame()
			f.Zone = time.UTC
			golden(t, name+"_80x24.txt", Render(f, 80, 24))
			golden(t, name+"_60x20.txt", Render(f, 60, 20))
			golden(t, name+"_120x40.txt", Render(f, 120, 40))
		})
	}
}

// Whatever the size, a screen fits, and says how to leave it.
func TestScreensFit(t *testing.T) {
	d := newDemo(t)
	d.problems = []string{strings.Repeat("a long problem ", 30), "another", "a third", "a fourth"}
	frames := []Frame{{}, at(t, newDemo(t), time.Second), at(t, d, 40*time.Second)}
	frames[2].Note = strings.Repeat("note ", 50)
	for i, f := range frames {
		for width := 1; width <= 130; width += 7 {
			for height := 1; height <= 45; height++ {
				screen := Render(f, width, height)
				lines := strings.Split(screen, "\n")
				if len(lines) > height {
					t.Fatalf("frame %d, %dx%d: %d lines", i, width, height, len(lines))
				}
				for _, l := range lines {
					if w := ansi.StringWidth(l); w > width {
						t.Fatalf("frame %d, %dx%d: a line of width %d: %q", i, width, height, w, l)
					}
				}
				if height >= 6 && width >= 30 && !strings.Contains(lines[len(lines)-1], "q or Ctrl-C ends this picture") {
					t.Fatalf("frame %d, %dx%d: the last line is %q", i, width, height, lines[len(lines)-1])
				}
			}
		}
	}
}

// Numbers that cannot be drawn give a screen without them, never a panic.
func TestStrangeNumbers(t *testing.T) {
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -5, 0, math.MaxFloat64, 1e-300} {
		f := at(t, newDemo(t), 30*time.Second)
		s := &f.View.Sample
		s.Rate, s.Lag, s.Trained, s.Capacity, s.Busy, s.Forecast = &x, &x, &x, &x, &x, &core.Band{Mean: x, Lower: x, Upper: x}
		f.Trail = append(f.Trail, *s)
		for i := range f.View.Forecast.Mean {
			f.View.Forecast.Mean[i], f.View.Forecast.Lower[i], f.View.Forecast.Upper[i] = x, x, x
		}
		for i := range f.View.History.Values {
			f.View.History.Values[i] = x
		}
		f.View.AUC, f.View.MaxLag, f.View.Max = &x, time.Duration(x), 0
		if screen := Render(f, 100, 30); !strings.Contains(screen, "job demo") || strings.Contains(screen, "NaN") || strings.Contains(screen, "Inf") {
			t.Errorf("%v:\n%s", x, screen)
		}
	}
}

// Words of a job, a broker or a backend cannot command the terminal, nor begin a line of their own.
func TestForeignTextIsTame(t *testing.T) {
	const attack = "\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m\nline\rback\x9b31m\u202eturned\xff"
	f := at(t, newDemo(t), 30*time.Second)
	f.View.Job, f.View.Mode, f.View.Model, f.Note, f.Title, f.Hint = attack, attack, attack, attack, attack, attack
	f.View.Problems, f.View.Sample.Unknown = []string{attack}, attack
	f.View.Decision.Decision.Reason = attack
	for i := range f.View.Workers {
		f.View.Workers[i].ID, f.View.Workers[i].Backend, f.View.Workers[i].Member = attack, attack, attack
	}
	f.View.Sample.Lag = nil
	p := printer{options: Options{Zone: time.UTC}}
	for name, text := range map[string]string{"picture": Render(f, 200, 50), "lines": strings.Join(p.lines(f.View), "\n")} {
		for _, bad := range []string{"\x1b", "\x07", "\r", "\u009b", "\u202e", "\xff"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s: %q comes through", name, bad)
			}
		}
		if strings.Contains(text, "\nline") || !strings.Contains(text, "red line back") {
			t.Errorf("%s: a line break comes through, or the words do not:\n%s", name, text)
		}
	}
}

func TestWords(t *testing.T) {
	for want, v := range map[string]float64{
		"0": 0, "0.5": 0.5, "7": 7, "812": 812.4, "9,999": 9999, "10.0k": 9999.9, "16.3k": 16_300, "163k": 163_000, "1.00M": 999_600, "2.41M": 2_410_000, "3.00G": 3e9, "unknown": math.NaN(),
	} {
		if got := rate(v); got != want {
			t.Errorf("rate(%v) = %q, want %q", v, got, want)
		}
		if got := rate(v); len(got) > labelWidth+1 {
			t.Errorf("%q is wider than the chart's scale", got)
		}
	}
}

// A problem whose numbers change is the same one, in whatever unit they stand and of however many partitions it is.
func TestSame(t *testing.T) {
	for _, same := range [][]string{
		{"it is 58s old, of 20s", "it is 1m3s old, of 20s", "it is 2h old, of 20m"},
		{"900KiB wait", "1.2MiB wait"},
		{"partition 3: no broker answers for 9s", "partitions 0–1, 4: no broker answers for 1m10s"},
	} {
		for _, other := range same[1:] {
			if !Same(same[0], other) {
				t.Errorf("%q and %q", same[0], other)
			}
		}
	}
	if Same("worker-1 is slow", "worker-1 is gone") {
		t.Error("two problems are one")
	}
}

// What does not answer one question answers others as little: that is told once. Another cause is told.
func TestTold(t *testing.T) {
	const told = "the backend does not answer: list allocations: it cannot be reached"
	for problem, want := range map[string]bool{
		told: true,
		"the backend does not answer: read the ledger: it cannot be reached": true,
		"the backend does not answer: read the ledger: permission denied":    false,
		"the chief does not answer: it cannot be reached":                    false,
	} {
		if got := Told([]string{"worker-0-g1 is slow", told}, problem); got != want {
			t.Errorf("%q was told: %v, want %v", problem, got, want)
		}
	}
}

// A decision that a pool makes smaller says once what the pool gives, and why.
func TestADecisionTellsOfItsPool(t *testing.T) {
	share := &core.PoolShare{Pool: "main", Size: 3, Held: 3, Share: pool.Share{Job: pool.Job{Name: "ctr", Ask: 3, Limit: 4}, Goal: 1, May: 1}, Why: "asks for 3; gets 1 of the pool's 3, beside ads of higher priority"}
	decide := func(plan.Observation) plan.Decision {
		return plan.Decision{Kind: plan.KindIn, Current: 3, Target: 1, Reason: "the plan needs fewer"}
	}
	r := &core.Record{Pool: share}
	_, r.Decision = share.Within(decide, plan.Observation{}, plan.Decision{Target: 3, Current: 3, Reason: "the plan needs 3 workers"})
	const want = `scale in 3 → 1: no more than 1 worker by pool "main"; without that: the plan needs 3 workers; ctr asks for 3; gets 1 of the pool's 3, beside ads of higher priority`
	if got := Decided(r, Reason(r)); got != want {
		t.Errorf("%s", got)
	}
}

// What is only observed is decided anew each time: the screen has it once, as long as it is the same.
func TestScreenShowsAnObservedDecisionOnce(t *testing.T) {
	f := at(t, newDemo(t), 40*time.Second)
	v := *f.View
	v.Mode, v.State = "observe", core.StateObserved
	record := func(at time.Time, target int) *core.Record {
		return &core.Record{Decision: plan.Decision{Kind: plan.KindOut, At: at, Target: target, Reason: "a reason"}, ObserveOnly: true}
	}
	v.LastChange, v.Decision = record(v.Now.Add(-time.Minute), 3), record(v.Now, 3)
	f.View = &v
	screen := Render(f, 120, 40)
	if n := strings.Count(screen, "a reason"); n != 1 || !strings.Contains(screen, "nothing of it runs") || !strings.Contains(screen, "that it would have (1 to 6)") {
		t.Errorf("the decision stands there %d times:\n%s", n, screen)
	}
	v.Decision = record(v.Now, 2)
	if n := strings.Count(Render(f, 120, 40), "a reason"); n != 2 {
		t.Errorf("another decision and the change before it: %d of them", n)
	}
	v.Decision, v.LastChange = record(v.Now, 2), record(v.Now.Add(-time.Minute), 3)
	v.LastChange.Decision.Kind = plan.KindHold
	if screen := Render(f, 120, 40); !strings.Contains(screen, "\nhold  ") || strings.Contains(screen, "\nchange") {
		t.Errorf("a hold is called another thing:\n%s", screen)
	}
}

func BenchmarkRender(b *testing.B) {
	f := at(b, newDemo(b), 90*time.Second)
	for b.Loop() {
		Render(f, 120, 40)
	}
}
