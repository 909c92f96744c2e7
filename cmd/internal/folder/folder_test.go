package folder

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

func is(t *testing.T, dir string, want bool) {
	t.Helper()
	if _, err := os.Stat(dir); (err == nil) != want {
		t.Errorf("%s is there: %v, want %v", dir, err == nil, want)
	}
}

func TestMakeAndRemove(t *testing.T) {
	root := t.TempDir()
	a, b := filepath.Join(root, "a"), filepath.Join(root, "a", "b")
	made, err := Make(b)
	if err != nil || !slices.Equal(made, Made{b, a}) {
		t.Fatalf("made %v, %v", made, err)
	}
	again, err := Make(b)
	if err != nil || len(again) > 0 {
		t.Fatalf("made what was there: %v, %v", again, err)
	}
	again.Remove() // it is not its own
	is(t, b, true)
	made.Remove()
	is(t, a, false)
	is(t, root, true)
}

// What somebody has put something into stays, with what it is in.
func TestUsedFolderStays(t *testing.T) {
	root := t.TempDir()
	deep := filepath.Join(root, "state", "ctr")
	made, err := Make(deep)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(deep, "socket")
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	made.Remove()
	is(t, socket, true)
}

// Of many that make a folder at the same time one has made it, so that it is removed once at most.
func TestOneHasMadeIt(t *testing.T) {
	for range 20 {
		deep := filepath.Join(t.TempDir(), "a", "b", "c")
		var mu sync.Mutex
		var all Made
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				made, err := Make(deep)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				all = append(all, made...)
			})
		}
		wg.Wait()
		if slices.Sort(all); len(slices.Compact(slices.Clone(all))) != len(all) || len(all) != 3 {
			t.Fatalf("made by all together: %v", all)
		}
	}
}

func TestMakeUnderAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "a")} {
		if made, err := Make(dir); err == nil || len(made) > 0 {
			t.Errorf("%s: made %v, %v", dir, made, err)
		}
	}
}
