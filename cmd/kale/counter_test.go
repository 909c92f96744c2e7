package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A counter is no trace of rates: what is measured, trained on and replayed is refused, unless -counter takes its differences.
func TestCounterAsTrace(t *testing.T) {
	t.Parallel()
	s := newShell(t).asShipped()
	rates, counter := filepath.Join(t.TempDir(), "rates.csv"), filepath.Join(t.TempDir(), "clicks.csv")
	sum, text := 0.0, "timestamp,clicks_total\n"
	plain := strings.Split(strings.TrimSpace(daysOfTraffic()), "\n")
	for i, line := range plain {
		at, rate, _ := strings.Cut(line, ",")
		text += fmt.Sprintf("%s,%.6f\n", at, sum)
		v, err := strconv.ParseFloat(rate, 64)
		if err != nil {
			t.Fatal(err)
		}
		if sum += 600 * v; i == 100 {
			sum = 0
		}
	}
	text += fmt.Sprintf("%s,%.6f\n", laterBy(t, plain[len(plain)-1], 10*time.Minute), sum)
	for path, text := range map[string]string{rates: daysOfTraffic(), counter: text} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(t.TempDir(), "m.onnx")
	for _, args := range [][]string{
		{"forecast", "eval", "-trace", counter, "-origins", "2"}, {"forecast", "train", "-trace", counter, "-o", out}, {"replay", "-trace", counter},
		{"produce", "-topic", "x", "-curve", counter},
	} {
		r := s.run(args...)
		if says := strings.Join(strings.Fields(r.err), " "); r.code == 0 || !strings.Contains(says, "clicks.csv:103:1: the values look like a counter") || !strings.Contains(says, "Give -counter to take what is added") {
			t.Errorf("%v: exit code %d: %s", args, r.code, says)
		}
	}
	var e [2]evaluation
	for i, args := range [][]string{{"-trace", rates}, {"-trace", counter, "-counter"}} {
		r := s.run(append([]string{"forecast", "eval", "-origins", "30", "-horizon", "1h", "-json"}, args...)...)
		if err := json.Unmarshal([]byte(r.out), &e[i]); err != nil {
			t.Fatalf("%v: %v: %s", args, err, r.err)
		}
		if i == 1 && !strings.Contains(r.err, "taken as a counter") {
			t.Errorf("it does not say that it reads a counter: %s", r.err)
		}
	}
	for i, r := range e[1].Rows {
		if want := e[0].Rows[i]; r.Model != want.Model || math.Abs(*r.WAPE-*want.WAPE) > 0.01 {
			t.Errorf("%s is off by %v on the counter, and by %v on its rates", r.Model, *r.WAPE, *want.WAPE)
		}
	}
	if r := s.run("forecast", "eval", "-counter", "-trace", "kafka://h:1/t"); r.code != exitUsage || !strings.Contains(r.err, "-counter says what the values of a file are") {
		t.Errorf("of a topic: exit code %d: %s", r.code, r.err)
	}
}

// A counter that never grows is told, whatever becomes of it: it has no traffic to replay, for one job or a fleet.
func TestCounterThatStands(t *testing.T) {
	t.Parallel()
	text := "timestamp,x_total\n"
	for i := range 1500 {
		text += fmt.Sprintf("%d,500\n", 1714521600+60*i)
	}
	file := writeIn(t, t.TempDir(), "flat.csv", text)
	for args, want := range map[string]string{
		"":          "nothing arrives in the replayed days, so that they cannot be scaled\n",
		"-jobs=2":   "nothing arrives in the replayed days, so that they cannot be scaled to the peaks of a fleet's jobs\n",
		"-scale=28": "nothing arrives in the replayed days, so that they cannot be scaled\n",
	} {
		r := newShell(t).run(slices.DeleteFunc([]string{"replay", "-trace", file, "-counter", args}, func(arg string) bool { return arg == "" })...)
		if r.code != exitFailed || r.out != "" || !strings.Contains(r.err, "flat.csv: the counter never grows: nothing arrived.") || !strings.Contains(r.err, want) {
			t.Errorf("%s: exit code %d, %q, %s", args, r.code, r.out, r.err)
		}
	}
}

// laterBy is the time of a row of a trace, and so much later.
func laterBy(t *testing.T, row string, by time.Duration) string {
	t.Helper()
	text, _, _ := strings.Cut(row, ",")
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at.Add(by).Format(time.RFC3339)
}
