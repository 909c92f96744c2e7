package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

// A job's state lies there twice: where one file of it is damaged or lost the other is taken, and makes it whole again. Where both are, that is an error which names the
// file; going back to the one before is for the operator to decide, and is proposed where there is one.
func TestDamagedJobState(t *testing.T) {
	s := open(t, t.TempDir())
	inc := claimed(t, s, 0)
	if err := s.SaveJob(state(0), inc); err != nil {
		t.Fatal(err)
	}
	names, err := s.recordNames("job")
	if err != nil {
		t.Fatal(err)
	}
	files := func(n recordName) (record, copied string) {
		return filepath.Join(s.Root(), "job", n.file()), filepath.Join(s.Root(), "job", n.copyFile())
	}
	record, copied := files(names[0])
	sound, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	write := func(path, text string) {
		t.Helper()
		err := os.RemoveAll(path)
		if err == nil && text != "lost" {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	same := func() {
		t.Helper()
		for _, path := range []string{record, copied} {
			if got, err := os.ReadFile(path); err != nil || string(got) != string(sound) {
				t.Errorf("%s: %q, %v", path, got, err)
			}
		}
	}
	same()
	for name, damage := range map[string]string{
		"altered": strings.Replace(string(sound), `"tablets":64`, `"tablets":63`, 1),
		"torn":    string(sound[:10]),
		"empty":   "",
		"lost":    "lost",
	} {
		t.Run(name, func(t *testing.T) {
			write(record, damage)
			if got, err := s.LoadJob(); err != nil || got.Tablets != 64 {
				t.Errorf("with its copy: %+v, %v", got, err)
			}
			if was, err := s.MendJob(); err != nil || was == nil || !strings.Contains(was.Error(), record) {
				t.Errorf("mended: %v, %v", was, err)
			}
			same()
			write(copied, damage)
			if was, err := s.MendJob(); err != nil || (was == nil) != (damage == "lost") { // an older version writes none
				t.Errorf("its copy is mended: %v, %v", was, err)
			}
			same()
			if was, err := s.MendJob(); err != nil || was != nil {
				t.Errorf("nothing was to mend: %v, %v", was, err)
			}
			if damage == "lost" {
				return
			}
			write(record, damage)
			write(copied, "lost") // an older version wrote none
			if _, err := s.LoadJob(); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), record) || !strings.Contains(err.Error(), "there is none before it: bring it back from a backup") {
				t.Errorf("%v, want ErrDamaged and the file's name", err)
			}
			write(record, string(sound))
			write(copied, string(sound))
		})
	}
	if err := s.SaveJob(state(1), inc); err != nil {
		t.Fatal(err)
	}
	if names, err = s.recordNames("job"); err != nil {
		t.Fatal(err)
	}
	record, copied = files(names[0])
	write(record, "")
	write(copied, "")
	if _, err := s.LoadJob(); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "bring it back from a backup, or remove it and its copy (.copy) to go back to the one before") {
		t.Errorf("%v", err)
	}
	if _, err := s.MendJob(); !errors.Is(err, ErrDamaged) {
		t.Errorf("mended from nothing: %v", err)
	}
	write(record, "lost")
	write(copied, "lost")
	if got, err := s.LoadJob(); err != nil || got.MapVersion != 0 {
		t.Errorf("after its removal: map version %d, %v; want the one before", got.MapVersion, err)
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
