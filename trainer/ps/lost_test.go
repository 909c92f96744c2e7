package ps

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kale-sched/kale/trainer/checkpoint"
)

// trained is a job of two tablets with 20 records in each, snapshotted twice.
func trained(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, 2, 1, 2, 1)
	s := r.start(0)
	for i := range int64(2) {
		r.push(s, request(s, []uint64{1}, part(0, 10*i, 10*i+10)), 2, 0, 0)
		r.snapshot(s)
	}
	return r
}

// Rule 4: a tablet that is known to have had a snapshot and has none now is not begun anew in silence, whether its folder is gone or empty; when its files are
// back, it goes on.
func TestRule4LostTabletIsNotBegunAnewInSilence(t *testing.T) {
	r := trained(t)
	folder := r.store.TabletDir(1)
	aside := folder + ".aside"
	for what, lose := range map[string]func() error{
		"its folder is gone":  func() error { return nil },
		"its folder is empty": func() error { return os.Mkdir(folder, 0o777) },
	} {
		if err := errors.Join(os.Rename(folder, aside), lose()); err != nil {
			t.Fatal(err)
		}
		_, err := r.tryStart(0)
		if !errors.Is(err, ErrUnrestorable) {
			t.Fatalf("%s: %v", what, err)
		}
		for _, want := range []string{"1 of 2 tablets", "tablet 1 had a snapshot (", " with 20 records) and has none now in " + folder, "Bring the files back", "touch " + r.store.AnewPath(1)} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", what, err, want)
			}
		}
		if err := errors.Join(os.RemoveAll(folder), os.Rename(aside, folder)); err != nil {
			t.Fatal(err)
		}
		if applied, touched, _ := watermarks(r.start(0)); applied != 20 || touched != 20 {
			t.Errorf("%s, and is back: applied %d, touched %d, want 20", what, applied, touched)
		}
	}
}

// By order a lost tablet begins anew, alone, and is told of; the order stands until the tablet has a snapshot again, and is dropped then.
func TestLostTabletBeginsAnewByOrder(t *testing.T) {
	r := trained(t)
	if err := errors.Join(os.RemoveAll(r.store.TabletDir(1)), os.WriteFile(r.store.AnewPath(1), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second server starts before the first one has written anything
		s := r.start(0)
		if got := s.Fallbacks(); len(got) != 1 || !strings.HasPrefix(got[0], "tablet 1 could not be restored and begins anew, as ordered by "+r.store.AnewPath(1)) ||
			!strings.HasSuffix(got[0], "it had been trained with 20 records, and is trained again with those that the topic still has") {
			t.Errorf("it says %q", got)
		}
		if applied, touched, durable := watermarks(s); applied != 0 || touched != 20 || durable != 0 {
			t.Errorf("applied %d, touched %d, durable %d; want 0, 20, 0", applied, touched, durable)
		}
	}
	s := r.start(0)
	r.push(s, request(s, []uint64{1}, part(0, 0, 20)), 1, 1, 0) // replayed from the start, for this tablet only
	r.snapshot(s)
	if found, err := r.store.Anew(1); found || err != nil {
		t.Errorf("the order is there still: %v, %v", found, err)
	}
	if got := r.start(0).Fallbacks(); len(got) != 0 {
		t.Errorf("the next server says %q", got)
	}
	// And what was ordered once is not ordered for ever.
	if err := os.RemoveAll(r.store.TabletDir(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.tryStart(0); !errors.Is(err, ErrUnrestorable) {
		t.Errorf("lost once more: %v", err)
	}
}

// An order for a tablet that can be restored does nothing, and does not lie in wait.
func TestOrderForAGoodTabletIsDropped(t *testing.T) {
	r := trained(t)
	if err := os.WriteFile(r.store.AnewPath(0), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := r.start(0)
	if applied, _, _ := watermarks(s); applied != 20 || len(s.Fallbacks()) > 0 {
		t.Errorf("applied %d, fallbacks %q; want 20 and none", applied, s.Fallbacks())
	}
	if found, err := r.store.Anew(0); found || err != nil {
		t.Errorf("the order is there still: %v, %v", found, err)
	}
}

// A tablet that never had a snapshot begins empty: a crash before, or between, the first ones lost nothing that was durable.
func TestTabletThatNeverHadASnapshotBeginsEmpty(t *testing.T) {
	r := newRig(t, 2, 1, 2, 1)
	s := r.start(0)
	r.push(s, request(s, []uint64{1}, part(0, 0, 10)), 2, 0, 0)
	s.generation++
	if err := s.snapshotTablet(s.tablets[0]); err != nil { // and the process dies
		t.Fatal(err)
	}
	s = r.start(0)
	if applied, touched, _ := watermarks(s); applied != 0 || touched != 10 || len(s.Fallbacks()) > 0 {
		t.Errorf("applied %d, touched %d, fallbacks %q; want 0, 10, none", applied, touched, s.Fallbacks())
	}
}

// A newest snapshot that is missing, and not damaged, is told of as well.
func TestMissingNewestSnapshotIsTold(t *testing.T) {
	r := trained(t)
	all, err := r.store.Generations(0)
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	if err := os.Remove(r.store.Path(all[0])); err != nil {
		t.Fatal(err)
	}
	s := r.start(0)
	if got := s.Fallbacks(); len(got) != 1 || !strings.Contains(got[0], "at least 10 records, because the newer one is missing from "+r.store.TabletDir(0)) {
		t.Errorf("it says %q", got)
	}
	r.push(s, request(s, []uint64{1}, part(0, 10, 20)), 1, 1, 0)
}

// A damaged snapshot that is older than the one that is restored costs nothing, and nobody is told that he was rolled back.
func TestDamagedOlderSnapshotIsNoFallback(t *testing.T) {
	r := trained(t)
	all, err := r.store.Generations(0)
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	damage(t, r.store.Path(all[1]))
	s := r.start(0)
	if applied, _, _ := watermarks(s); applied != 20 || len(s.Fallbacks()) > 0 {
		t.Errorf("applied %d, fallbacks %q; want 20, none", applied, s.Fallbacks())
	}
}

// A damaged manifest costs nothing but what it alone knew: the one before is believed.
func TestDamagedManifestIsNotBelieved(t *testing.T) {
	r := trained(t)
	names, err := filepath.Glob(filepath.Join(r.store.Root(), "written", "0", "*.json"))
	if err != nil || len(names) != 2 {
		t.Fatal(names, err)
	}
	damage(t, names[1])
	_, damaged, err := r.store.Written("t1")
	if err != nil || len(damaged) != 1 || !errors.Is(damaged[0], checkpoint.ErrDamaged) {
		t.Errorf("damaged %v, %v", damaged, err)
	}
	if err := os.RemoveAll(r.store.TabletDir(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.tryStart(0); !errors.Is(err, ErrUnrestorable) || !strings.Contains(err.Error(), "with 10 records") {
		t.Errorf("%v; want what the manifest before knew", err)
	}
}

// What was learnt is for the owner and his group, and for nobody else.
func TestModelFilesAreNotForEverybody(t *testing.T) {
	r := trained(t)
	all, err := r.store.Generations(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range all {
		info, err := os.Stat(r.store.Path(g))
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode&0o007 != 0 || mode&0o600 != 0o600 {
			t.Errorf("%s has mode %o", r.store.Path(g), mode)
		}
	}
}
