package rpc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFindChief(t *testing.T) {
	record := func(address string, incarnation uint64) string {
		return fmt.Sprintf(`{"xxhash64":"0000000000000000","record":{"address":%q,"incarnation":%d,"timeline":"t"}}`, address, incarnation)
	}
	for name, c := range map[string]struct {
		files map[string]string // nil: no folder
		want  ChiefRecord
		says  string // in the error; ErrNoChief when it is "none"
	}{
		"no folder":    {nil, ChiefRecord{}, "none"},
		"empty folder": {map[string]string{}, ChiefRecord{}, "none"},
		"one":          {map[string]string{"00000000000000000007-0000000001.json": record("a:1", 7)}, ChiefRecord{"a:1", 7, "t"}, ""},
		"the newest of several": {map[string]string{
			"00000000000000000009-0000000001.json": record("b:1", 9), "00000000000000000010-0000000001.json": record("c:1", 10), "00000000000000000008-0000000001.json": record("a:1", 8),
		}, ChiefRecord{"c:1", 10, "t"}, ""},
		"drafts and others are passed over": {map[string]string{
			"00000000000000000007-0000000001.json": record("a:1", 7), ".00000000000000000008-0000000001.json.tmp": "{", ".zzz.json": "{", "zzz.txt": "x",
		}, ChiefRecord{"a:1", 7, "t"}, ""},
		"only drafts":     {map[string]string{".00000000000000000008-0000000001.json.tmp": "{"}, ChiefRecord{}, "none"},
		"torn":            {map[string]string{"00000000000000000007-0000000001.json": record("a:1", 7)[:40]}, ChiefRecord{}, "is not a chief's record"},
		"empty":           {map[string]string{"00000000000000000007-0000000001.json": ""}, ChiefRecord{}, "is not a chief's record"},
		"without address": {map[string]string{"00000000000000000007-0000000001.json": `{"record":{"incarnation":7}}`}, ChiefRecord{}, "is not a chief's record"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			folder := filepath.Join(dir, "ctr", "chief")
			if c.files != nil {
				if err := os.MkdirAll(folder, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for f, text := range c.files {
				if err := os.WriteFile(filepath.Join(folder, f), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := FindChief(dir, "ctr")
			switch {
			case c.says == "none":
				if !errors.Is(err, ErrNoChief) {
					t.Errorf("%+v, %v; want ErrNoChief", got, err)
				}
			case c.says != "":
				if err == nil || errors.Is(err, ErrNoChief) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), folder) {
					t.Errorf("%+v, %v; want an error that says %q and names the file", got, err, c.says)
				}
				if err != nil && strings.Contains(err.Error(), "%!") {
					t.Errorf("the error is not well made: %v", err)
				}
			default:
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

// A folder that cannot be read is unknown, and not a job without a chief.
func TestFindChiefInAFolderThatIsNone(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "ctr"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ctr", "chief"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := FindChief(dir, "ctr"); err == nil || errors.Is(err, ErrNoChief) || !strings.Contains(err.Error(), `chief of job "ctr"`) {
		t.Errorf("error %v", err)
	}
}

// While chiefs follow each other and drop the records of those before them, one is always found, and never an older one than before.
func TestFindChiefWhileItIsReplaced(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "ctr", "chief")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	name := func(i int) string { return filepath.Join(folder, fmt.Sprintf("%020d-%010d.json", i, 1)) }
	publish := func(i int) error {
		draft := filepath.Join(folder, fmt.Sprintf(".%d.tmp", i))
		if err := os.WriteFile(draft, fmt.Appendf(nil, `{"record":{"address":"a:%d","incarnation":%d}}`, i, i), 0o644); err != nil {
			return err
		}
		return os.Rename(draft, name(i))
	}
	if err := publish(1); err != nil {
		t.Fatal(err)
	}
	const last = 500
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		for i := 2; i <= last; i++ {
			if err := publish(i); err != nil {
				t.Error(err)
				return
			}
			if i <= 3 { // as many stay as in trainer/checkpoint
				continue
			}
			if err := os.Remove(name(i - 3)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer wg.Wait()
	seen := uint64(0)
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		got, err := FindChief(dir, "ctr")
		if err != nil && running && strings.Contains(err.Error(), "ask again") {
			continue // five replacements during one call
		}
		if err != nil {
			t.Fatal(err)
		}
		if got.Incarnation < seen {
			t.Fatalf("chief %d was found after %d", got.Incarnation, seen)
		}
		seen = got.Incarnation
	}
	if seen != last {
		t.Errorf("the last one found is %d, want %d", seen, last)
	}
}
