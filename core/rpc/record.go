package rpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/cespare/xxhash/v2"
)

// RecordCopy ends the name of a record's second copy, which lies beside it: it is read where the record itself is damaged.
const RecordCopy = ".copy"

// envelope guards a record with a checksum of its bytes.
type envelope struct {
	Checksum string          `json:"xxhash64"`
	Record   json.RawMessage `json:"record"`
}

// SealRecord is the text of a record's file.
func SealRecord(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(envelope{checksum(body), body})
	return append(text, '\n'), err
}

// ErrRecord says that a record does not verify: it is torn, altered, or another one's.
var ErrRecord = errors.New("damaged record")

// ReadRecord reads a record and verifies it, and where it is damaged its copy. Errors: ErrRecord, naming the file, and what reading gives.
func ReadRecord(path string, v any) error {
	err := readSealed(path, v)
	if errors.Is(err, ErrRecord) && readSealed(path+RecordCopy, v) == nil {
		return nil
	}
	return err
}

func readSealed(path string, v any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var e envelope
	if err := json.Unmarshal(text, &e); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrRecord, path, err)
	}
	var body bytes.Buffer
	if err := json.Compact(&body, e.Record); err != nil || checksum(body.Bytes()) != e.Checksum {
		return fmt.Errorf("%w: %s: its checksum is wrong", ErrRecord, path)
	}
	return json.Unmarshal(e.Record, v)
}

func checksum(body []byte) string { return fmt.Sprintf("%016x", xxhash.Sum64(body)) }

// OnlyRecord says that a folder has one record, so that there is none to go back to.
func OnlyRecord(folder string) bool {
	entries, _ := fs.Glob(os.DirFS(folder), "*.json") // the pattern is good
	return len(entries) < 2
}
