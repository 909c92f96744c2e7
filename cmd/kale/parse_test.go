package main

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/forecast"
)

func TestDashes(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"run ctr.hcl -var k=v --plain", "run ctr.hcl --var k=v --plain"},
		{"explain ctr -n 5 -json", "explain ctr -n 5 --json"},
		{"explain ctr -n5", "explain ctr -n5"},
		{"produce -from -24h", "produce --from -24h"},
		{"produce -peak=400", "produce --peak=400"},
		{"x - -- -var", "x - -- -var"},
		{"-h", "-h"},
	} {
		if got := strings.Join(dashes(strings.Fields(tt.in)), " "); got != tt.want {
			t.Errorf("%q becomes %q, want %q", tt.in, got, tt.want)
		}
	}
}

// Doing it twice changes nothing, and nothing is lost.
func FuzzDashes(f *testing.F) {
	f.Add("run -var a=b -- -x")
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, " ")
		once := dashes(args)
		if diff := cmp.Diff(once, dashes(once)); diff != "" {
			t.Errorf("twice differs from once:\n%s", diff)
		}
		for i := range args {
			if strings.TrimLeft(once[i], "-") != strings.TrimLeft(args[i], "-") {
				t.Errorf("%q became %q", args[i], once[i])
			}
		}
	})
}

func TestParseTopic(t *testing.T) {
	got, err := parseTopic("clicks:8:retention.ms=1000:cleanup.policy=delete")
	want := stream.TopicSpec{Name: "clicks", Partitions: 8, Config: map[string]string{"retention.ms": "1000", "cleanup.policy": "delete"}}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzParseTopic(f *testing.F) {
	for _, s := range []string{"a:1", "a:1:k=v", ":::", "a:-1", "a:99999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if spec, err := parseTopic(s); err == nil && (spec.Name == "" || spec.Partitions < 1) {
			t.Errorf("%q gives %+v", s, spec)
		}
	})
}

func TestSpan(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "90s": 90 * time.Second, "3d": 72 * time.Hour, "-6h": -6 * time.Hour, "1h30m": 90 * time.Minute} {
		var s span
		if err := s.Set(text); err != nil || time.Duration(s) != want {
			t.Errorf("%q is %v, %v; want %v", text, time.Duration(s), err, want)
			continue
		}
		var again span
		if err := again.Set(s.String()); err != nil || again != s {
			t.Errorf("%q is shown as %q, which is read as %v (%v)", text, s.String(), time.Duration(again), err)
		}
	}
	for _, text := range []string{"", "5", "--5s", "1y", "x"} {
		var s span
		if err := s.Set(text); err == nil {
			t.Errorf("%q is read as %v", text, time.Duration(s))
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{number(0.25), "0.2"}, {number(9.96), "10.0"}, {number(1234.4), "1,234"}, {number(-1234567), "-1,234,567"}, {number(999), "999"},
		{number(math.NaN()), "unknown"}, {number(math.Inf(1)), "unknown"}, {number(1e20), "1e+20"}, {plan.Thousands(0), "0"}, {plan.Thousands(uint64(math.MaxUint64)), "18,446,744,073,709,551,615"},
		{job.Length(1234 * time.Microsecond), "1.23ms"}, {job.Length(1234567 * time.Microsecond), "1.23s"}, {job.Length(20 * time.Minute), "20m"},
		{job.Length(90*time.Minute + 20*time.Second), "1h30m"}, {job.Length(-2 * time.Second), "-2s"},
		{partitions(nil, 0), "-"}, {partitions([]int32{0, 1, 2, 5, 7, 8}, 0), "p0-2,5,7-8"}, {job.Count(1, "worker"), "1 worker"}, {job.Count(0, "worker"), "0 workers"},
		{listed([]string{"a", "b", "c"}), "a, b and c"}, {listed(nil), ""},
	} {
		if tt.got != tt.want {
			t.Errorf("%q, want %q", tt.got, tt.want)
		}
	}
}

func TestCoarser(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC) // one bin before a whole one
	s := forecast.Series{Start: at, Step: time.Minute, Values: []float64{9, 1, 3, 5, math.NaN(), 7}}
	got, err := coarser(s, 2*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	want := forecast.Series{Start: at.Add(time.Minute), Step: 2 * time.Minute, Values: []float64{2, math.NaN()}}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, step := range []time.Duration{time.Second, 90 * time.Second} {
		if _, err := coarser(s, step); err == nil {
			t.Errorf("bins of %s from bins of a minute", step)
		}
	}
}

// A terminal's ways must not reach a file or a pipe.
func TestProgressIsSilentElsewhere(t *testing.T) {
	var out, errs buffer
	a := &app{out: &out, err: &errs, getenv: func(string) string { return "" }}
	bar := a.progress()
	for i := range 100 {
		bar.step("work", i, 100)
	}
	bar.done()
	if bytes.ContainsAny([]byte(out.String()+errs.String()), "\r\x1b") {
		t.Errorf("a pipe got %q", errs.String())
	}
	if a.coloured(&errs) {
		t.Error("a pipe is coloured")
	}
}

// Whoever takes a job up again need not take it from anybody.
func TestAgainTakesNothingOver(t *testing.T) {
	for _, flag := range []string{"-take-over", "--take-over", "--take-over=true"} {
		if got := (&app{args: []string{"run", flag, "take-over.hcl", "-plain"}}).again(); got != "run take-over.hcl -plain" {
			t.Errorf("%s: %q", flag, got)
		}
	}
}
