package rpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// ErrDamaged says that a file of the checkpoint folder does not verify: it is torn, altered, or another one's.
var ErrDamaged = errors.New("damaged checkpoint file")

// How the names of records end, and that of the copy which the record of a job's state has beside it: nothing else in the checkpoint can be used without that one.
const (
	RecordEnding = ".json"
	CopyEnding   = ".copy"
)

// recordForm is that of the names of records, without their ending: the writer's incarnation, and its own counter.
var recordForm = regexp.MustCompile(`^[0-9]{20}-[0-9]{10}$`)

// envelope guards a record with a checksum of its bytes.
type envelope struct {
	Checksum string          `json:"xxhash64"`
	Record   json.RawMessage `json:"record"`
}

// EncodeRecord is a record as it lies in its file.
func EncodeRecord(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(envelope{fmt.Sprintf("%016x", xxhash.Sum64(body)), body})
	return append(text, '\n'), err
}

// ReadRecord reads a record and verifies it: ErrDamaged, with the file's name, where it does not.
func ReadRecord(path string, v any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var e envelope
	if err := json.Unmarshal(text, &e); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrDamaged, path, err)
	}
	var body bytes.Buffer
	if err := json.Compact(&body, e.Record); err != nil || fmt.Sprintf("%016x", xxhash.Sum64(body.Bytes())) != e.Checksum {
		return fmt.Errorf("%w: %s: its checksum is wrong", ErrDamaged, path)
	}
	return json.Unmarshal(e.Record, v)
}

// recordNames are the names of the records of a folder without their ending, the newest first. What is named otherwise is none.
func recordNames(folder string, endings ...string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		ending := filepath.Ext(e.Name())
		if name := strings.TrimSuffix(e.Name(), ending); slices.Contains(endings, ending) && recordForm.MatchString(name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	slices.Reverse(out)
	return slices.Compact(out), nil
}

// ReadJobState reads the newest state of a job, whose own folder is given, or its copy where the record itself is lost or damaged; instead says that it is, and is nil
// otherwise. fs.ErrNotExist: there is none. ErrDamaged: none of the newest can be used; it is not skipped, since an older state may lack what was pinned since.
func ReadJobState(folder string, v any) (instead, err error) {
	dir := filepath.Join(folder, JobStateFolder)
	for try := 0; ; try++ {
		names, err := recordNames(dir, RecordEnding, CopyEnding)
		if err != nil {
			return nil, err
		}
		if len(names) == 0 {
			return nil, fs.ErrNotExist
		}
		path := filepath.Join(dir, names[0])
		err = ReadRecord(path+RecordEnding, v)
		if !errors.Is(err, ErrDamaged) && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		copied := ReadRecord(path+CopyEnding, v)
		gone := errors.Is(err, fs.ErrNotExist)
		switch {
		case copied == nil && gone:
			return fmt.Errorf("%s%s is lost", path, RecordEnding), nil
		case copied == nil:
			return err, nil
		case gone && errors.Is(copied, fs.ErrNotExist) && try < 10:
			continue // replaced by newer ones and removed since it was listed
		case gone:
			err = copied
		}
		what := "it"
		if errors.Is(copied, ErrDamaged) {
			what = "it and its copy (.copy)"
		}
		if len(names) > 1 {
			return nil, fmt.Errorf("%w; bring it back from a backup, or remove %s to go back to the one before", err, what)
		}
		return nil, fmt.Errorf("%w; there is none before it: bring it back from a backup", err)
	}
}

// HasJobState says that a job's own folder has a record of its state, whether or not it can be used.
func HasJobState(folder string) (bool, error) {
	names, err := recordNames(filepath.Join(folder, JobStateFolder), RecordEnding, CopyEnding)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return len(names) > 0, err
}
