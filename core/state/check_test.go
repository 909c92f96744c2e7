package state

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCheckFindsDamage: a file that opens, and whose desired state can be read, may be damaged all the same.
func TestCheckFindsDamage(t *testing.T) {
	for name, x := range map[string]struct {
		damage func(raw []byte) []byte
		says   string // "": nothing is wrong
	}{
		"sound": {func(raw []byte) []byte { return raw }, ""},
		"200 bytes of a decision": {func(raw []byte) []byte {
			// Which of several copies of an entry is the one in use is the library's affair.
			for rest := raw; ; {
				at := bytes.Index(rest, bytes.Repeat([]byte("why "), 60))
				if at < 0 {
					break
				}
				for i := range 200 {
					rest[at+i] ^= 0xff
				}
				rest = rest[at+200:]
			}
			return raw
		}, "damaged: move it away"},
		"what is written cut off":  {func(raw []byte) []byte { return bytes.TrimRight(raw, "\x00")[:len(bytes.TrimRight(raw, "\x00"))-137] }, "bytes are missing"},
		"what is not used cut off": {func(raw []byte) []byte { return raw[:len(raw)-137] }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "state.db")
			s, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 30 {
				at := time.Unix(int64(i), 0)
				if err := s.Append(Decisions, at, map[string]string{"why": strings.Repeat("why ", 2000)}); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(s.Put("desired", "x"), s.Room(), s.Check(time.Minute), s.Close()); err != nil {
				t.Fatal(err)
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, x.damage(raw), 0o600); err != nil {
				t.Fatal(err)
			}
			if s, err = Open(dir); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			err = s.Check(time.Minute)
			if x.says == "" && err != nil || x.says != "" && (err == nil || !strings.Contains(err.Error(), x.says) || !strings.Contains(err.Error(), path)) {
				t.Errorf("checked: %v; want %q", err, x.says)
			}
			if err := s.Check(0); err != nil && !strings.Contains(fmt.Sprint(err), "missing") {
				t.Errorf("in no time it found %v", err)
			}
		})
	}
}

// TestEmptyFileIsNoState: an empty file is one in which nothing was written, and not a failure of the system.
func TestEmptyFileIsNoState(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "state.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenReader(dir); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("read: %v", err)
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenReader(dir); err != nil {
		t.Error(err)
	}
}
