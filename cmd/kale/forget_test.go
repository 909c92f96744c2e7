package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A job whose cluster is gone stays in the list with what to do, and -force takes it from there and says what stays on the cluster.
func TestForgetOnAClusterThatIsGone(t *testing.T) {
	s := newShell(t).withPlugin("kale-backend-nomad")
	checkpoints := t.TempDir()
	order := filepath.Join(checkpoints, "clicks", "order.json")
	if err := os.Mkdir(filepath.Dir(order), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(order, []byte(`{"pinned":true,"target":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	file := write(t, fmt.Sprintf(clusterJob, "127.0.0.1:1", checkpoints, "nomad", "    address = \"http://127.0.0.1:1\"\n"))
	dir, err := s.app(&buffer{}, &buffer{}).jobDir("clicks")
	if err != nil {
		t.Fatal(err)
	}
	if err := saveInvocation(dir, invocation{File: file}); err != nil {
		t.Fatal(err)
	}
	stays := "the Nomad jobs kale-clicks-… and the variable kale/clicks"
	r := s.run("forget", "clicks")
	for _, want := range []string{"connection refused", stays, "kale forget -force clicks"} {
		if r.code != exitFailed || !strings.Contains(r.err, want) || strings.Contains(r.err, "forget what is kept") {
			t.Errorf("forget: exit code %d, %s; want %q", r.code, r.err, want)
		}
	}
	if folder := t.TempDir(); true { // where the plugins are may have changed since
		if r := s.run("forget", "-plugin-dir", folder, "clicks"); r.code != exitFailed || !strings.Contains(r.err, folder) {
			t.Errorf("forget -plugin-dir: exit code %d, %s; want that %s is named", r.code, r.err, folder)
		}
	}
	if text := s.must("status").out; !strings.Contains(text, "clicks") {
		t.Errorf("status after a forget that failed:\n%s", text)
	}
	if r := s.must("forget", "-force", "clicks"); !strings.Contains(r.out, `job "clicks" is forgotten`) || !strings.Contains(r.out, "not removed: what its backend keeps, since its cluster does not answer: "+stays+"\n") || strings.Contains(r.out, "refused") {
		t.Errorf("forget -force: %s", r.out)
	} else if _, err := os.Stat(order); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(r.out, "removed: the number of workers that was ordered, "+order+"\n") {
		t.Errorf("the order is kept (%v): %s", err, r.out)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("forget -force left %v (%v)", under(t, dir), err)
	}
}
