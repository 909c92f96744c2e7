package demo

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/job"
)

// The demo's job file is the one in examples, save for its backend block and its GPUs.
func TestJobFileForAPlace(t *testing.T) {
	load := func(p Place) *job.Job {
		t.Helper()
		text, err := jobFile(p)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "demo.hcl")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		j, _, diags := job.Load(path, map[string]string{"brokers": "127.0.0.1:1", "dir": "/checkpoints"}, nil)
		if diags.HasErrors() {
			t.Fatalf("%v\n%s", diags, text)
		}
		return j
	}
	local := load(Place{Backend: "local"})
	if local.Backend.Name != "local" || local.Workers.GPUs != 0 || strings.TrimSpace(string(local.Backend.Source)) != "" {
		t.Errorf("local: backend %q with %q, %d GPUs", local.Backend.Name, local.Backend.Source, local.Workers.GPUs)
	}
	other := load(Place{Backend: "acme", Block: "conf = \"/etc/slurm.conf\"\nextra {\n  n = 2\n}\n", GPUs: 1})
	if other.Backend.Name != "acme" || other.Workers.GPUs != 1 {
		t.Errorf("backend %q, %d GPUs", other.Backend.Name, other.Workers.GPUs)
	}
	for _, want := range []string{`conf = "/etc/slurm.conf"`, "extra {", "n = 2"} {
		if !strings.Contains(string(other.Backend.Source), want) {
			t.Errorf("the backend's block lacks %q:\n%s", want, other.Backend.Source)
		}
	}
	if other.Workers.EmulateStep != local.Workers.EmulateStep || !cmp.Equal(other.Autoscale, local.Autoscale) {
		t.Error("another backend changed more than itself")
	}
	if _, err := jobFile(Place{Backend: "acme", Block: "conf = {"}); err == nil || !strings.Contains(err.Error(), `backend "acme"`) {
		t.Errorf("a broken block: %v", err)
	}
}

// broken is a cluster that does not start.
type broken struct{ closed int }

var errBroken = errors.New("no room")

func (*broken) Start(context.Context, string) (Place, error) { return Place{}, errBroken }
func (b *broken) Close() error                               { b.closed++; return nil }
func (*broken) EndLeftover(context.Context, Options) error   { return nil }

// A cluster that fails to start is closed, and the demo ends with its error.
func TestClusterThatDoesNotStartIsClosed(t *testing.T) {
	b := &broken{}
	if _, err := Run(t.Context(), Options{Cluster: b, Dir: t.TempDir()}); !errors.Is(err, errBroken) {
		t.Errorf("error %v, want %v", err, errBroken)
	}
	if b.closed != 1 {
		t.Errorf("closed %d times", b.closed)
	}
}
