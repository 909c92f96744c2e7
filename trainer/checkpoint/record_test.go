package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/rpc"
)

func state(mapVersion uint64) JobState {
	return JobState{
		Version: 1, Job: "ctr", Timeline: "t1", Fingerprint: "f", Topic: "clicks", TopicID: "id", Tablets: 64, Servers: 2,
		MapVersion: mapVersion, Starts: map[int32]int64{0: 7, 1: 0}, CreatedAt: time.Date(2024, 5, 1, 0, 0, 0, 0, time.UTC),
	}
}

func TestJobStateSurvives(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if _, err := s.LoadJob(); !errors.Is(err, ErrNoJob) {
		t.Fatalf("load from an empty store: %v, want ErrNoJob", err)
	}
	inc := claimed(t, s, 0)
	for v := range uint64(10) {
		if err := s.SaveJob(state(v), inc); err != nil {
			t.Fatal(err)
		}
	}
	got, err := open(t, dir).LoadJob()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(state(9), got); diff != "" {
		t.Error(diff)
	}
	if names, _ := s.recordNames("job"); len(names) != keptRecords {
		t.Errorf("%d job records stay, want %d", len(names), keptRecords)
	}
}

// Rules 2 and 3: the chief passes its check, is stopped before its write, is replaced, and writes when it is continued. The naive store, one
// file replaced by rename, loses the successor's state.
func TestRule3ChiefThatSleptDoesNotOverwriteJobState(t *testing.T) {
	dir := t.TempDir()
	old, next := open(t, dir), open(t, dir)
	first := claimed(t, old, 0)
	if err := old.SaveJob(state(1), first); err != nil {
		t.Fatal(err)
	}
	old.fault = func(point string) error {
		if point == "record before rename" {
			old.fault = nil
			if err := next.SaveJob(state(3), claimed(t, next, 0)); err != nil {
				t.Error(err)
			}
		}
		return nil
	}
	if err := old.SaveJob(state(2), first); !errors.Is(err, ErrSuperseded) {
		t.Errorf("the old chief's late save: %v, want ErrSuperseded", err)
	}
	if err := old.SaveJob(state(2), first); !errors.Is(err, ErrSuperseded) {
		t.Errorf("the old chief's next save: %v, want ErrSuperseded", err)
	}
	got, err := open(t, dir).LoadJob()
	if err != nil || got.MapVersion != 3 {
		t.Errorf("loaded map version %d, %v; want the successor's 3", got.MapVersion, err)
	}
}

func TestRule3ChiefThatSleptDoesNotHideItsSuccessor(t *testing.T) {
	dir := t.TempDir()
	old, next := open(t, dir), open(t, dir)
	if _, err := old.Chief(); !errors.Is(err, ErrNoChief) {
		t.Fatalf("%v, want ErrNoChief", err)
	}
	first := claimed(t, old, 0)
	var second uint64
	old.fault = func(point string) error {
		if point == "record before rename" {
			second = claimed(t, next, 0)
			if err := next.PublishChief(ChiefInfo{"new:1", second, "t1"}); err != nil {
				t.Error(err)
			}
		}
		return nil
	}
	if err := old.PublishChief(ChiefInfo{"old:1", first, "t1"}); !errors.Is(err, ErrSuperseded) {
		t.Errorf("late publication: %v, want ErrSuperseded", err)
	}
	got, err := old.Chief()
	if diff := cmp.Diff(ChiefInfo{"new:1", second, "t1"}, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
}

// A damaged job state is an error that names the file; going back to the one before is for the operator to decide.
func TestDamagedJobStateIsNotSkipped(t *testing.T) {
	s := open(t, t.TempDir())
	inc := claimed(t, s, 0)
	for v := range uint64(2) {
		if err := s.SaveJob(state(v), inc); err != nil {
			t.Fatal(err)
		}
	}
	names, err := s.recordNames("job")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.Root(), "job", names[0].file())
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := s.LoadJob()
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]string{
		"altered": strings.Replace(string(text), `"tablets":64`, `"tablets":63`, 1),
		"torn":    string(text[:len(text)/2]),
		"empty":   "",
	} {
		if err := errors.Join(os.WriteFile(path, []byte(damage), 0o600), os.WriteFile(path+rpc.RecordCopy, text, 0o600)); err != nil {
			t.Fatal(err)
		}
		if got, err := s.LoadJob(); err != nil || cmp.Diff(want, got) != "" {
			t.Errorf("%s, with its copy: %v, %s", name, err, cmp.Diff(want, got))
		}
		if err := os.WriteFile(path+rpc.RecordCopy, []byte(damage), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.LoadJob(); !errors.Is(err, ErrDamaged) || !strings.HasSuffix(err.Error(), "remove it to go back to the one before") {
			t.Errorf("%s, and its copy: %v", name, err)
		}
		if _, err := s.LoadJob(); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want ErrDamaged and the file's name", name, err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got, err := s.LoadJob(); err != nil || got.MapVersion != 0 {
		t.Errorf("after its removal: map version %d, %v; want the one before", got.MapVersion, err)
	}
	path = filepath.Join(s.Root(), "job", names[1].file())
	if err := errors.Join(os.WriteFile(path, text[1:], 0o600), os.Remove(path+rpc.RecordCopy)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.LoadJob(); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "backup") || strings.Contains(err.Error(), "remove it") {
		t.Errorf("the only one: %v, want no advice to remove it", err)
	}
}

// Copies of a job's state go with it.
func TestCopiesAreDroppedWithTheirRecords(t *testing.T) {
	s := open(t, t.TempDir())
	inc := claimed(t, s, 0)
	for v := range uint64(10) {
		if err := s.SaveJob(state(v), inc); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(filepath.Join(s.Root(), "job"))
	if err != nil || len(entries) != 2*keptRecords {
		t.Errorf("%d files, %v: %v", len(entries), err, entries)
	}
}

func TestJobStateOfANewerProgramIsRefused(t *testing.T) {
	s := open(t, t.TempDir())
	st := state(1)
	st.Version = jobVersion + 1
	if err := s.SaveJob(st, claimed(t, s, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.LoadJob(); err == nil || !strings.Contains(err.Error(), "newer kale-trainer") {
		t.Errorf("%v, want advice to use a newer program", err)
	}
}

// A file whose name means a number that this program writes otherwise is nobody's: it could not be opened under the name that it would have.
func TestNamesThatAreNotOurs(t *testing.T) {
	s := open(t, t.TempDir())
	inc := claimed(t, s, 0)
	if err := errors.Join(s.SaveJob(state(3), inc), os.MkdirAll(s.tabletDir(2), 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		filepath.Join(s.Root(), "job", "09999999999999999-0000000001.json"), filepath.Join(s.Root(), "job", "+9999999999999999999-0000000001.json"),
		filepath.Join(s.tabletDir(2), "09999999999999999-00000000000000000999.snap"),
	} {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.LoadJob(); err != nil || got.MapVersion != 3 {
		t.Errorf("the job's state: %+v, %v", got, err)
	}
	if got, err := s.Generations(2); err != nil || len(got) > 0 {
		t.Errorf("snapshots: %v, %v", got, err)
	}
}
