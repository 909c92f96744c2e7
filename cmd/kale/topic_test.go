package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/core/traffic"
)

// jobAt is the file of a job on some brokers.
func jobAt(t *testing.T, brokers string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "life.hcl")
	text := strings.NewReplacer("%BROKER%", brokers, "type = string", "type = string\ndefault = \"/tmp\"").Replace(lifeJob)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Brokers that are not there, and a topic that is not: each command that asks them says so once, and what helps.
func TestBrokersNotThere(t *testing.T) {
	s := newShell(t)
	out := t.TempDir()
	const nobody = "127.0.0.1:1"
	down := jobAt(t, nobody)
	refused := `ask the brokers for topic "clicks": unable to dial: dial tcp 127.0.0.1:1: connect: connection refused; are the addresses right, and does a broker run there?`
	there := broker(t, stream.TopicSpec{Name: "clickz", Partitions: 1})
	up := jobAt(t, there)
	const absent = `topic "clicks" does not exist; the brokers have: clickz`
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"init", "-brokers", nobody, "-topic", "clicks"}, refused},
		{[]string{"produce", "-brokers", nobody, "-topic", "clicks"}, refused},
		{[]string{"replay", "-trace", "kafka://" + nobody + "/clicks"}, refused},
		{[]string{"forecast", "train", down, "-o", filepath.Join(out, "m.onnx")}, refused},
		{[]string{"forecast", "eval", down}, refused},
		{[]string{"forecast", "eval", "-trace", "kafka://" + nobody + "/clicks"}, refused},
		{[]string{"audit", down}, `audit job "life": ` + refused},
		{[]string{"init", "-brokers", there, "-topic", "clicks"}, absent},
		{[]string{"produce", "-brokers", there, "-topic", "clicks"}, absent},
		{[]string{"replay", "-trace", "kafka://" + there + "/clicks"}, absent},
		{[]string{"forecast", "train", up, "-o", filepath.Join(out, "m.onnx")}, absent},
		{[]string{"forecast", "eval", up}, absent},
	} {
		if r := s.run(tt.args...); r.code != exitFailed || r.out != "" || r.err != "kale: "+tt.says+"\n" {
			t.Errorf("kale %s: exit code %d, %q; want %q:\n%s", quoted(tt.args), r.code, r.out, tt.says, r.err)
		}
	}
	if r := s.run("replay", "-trace", "kafka://"+there+"/clickz"); !strings.Contains(r.err, `topic "clickz" has no arrival history in the last 28d`) {
		t.Errorf("an empty topic:\n%s", r.err)
	}
}

// What helps is said of brokers that are not reached, and of nothing else.
func TestReached(t *testing.T) {
	refused := fmt.Errorf("backfill the arrivals: %w", &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED})
	if got := reached(refused); !errors.Is(got, refused) || !strings.HasSuffix(got.Error(), "connection refused; are the addresses right, and does a broker run there?") {
		t.Error(got)
	}
	for _, err := range []error{traffic.ErrNoTopic, fmt.Errorf("a broker: %w", &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET})} {
		if got := reached(err); !errors.Is(got, err) || got.Error() != err.Error() {
			t.Error(got)
		}
	}
}
