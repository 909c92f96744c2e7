package rpc

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// RestoreRecord is what a parameter server found wrong when it took up its tablets from the checkpoint folder, for people. It is the server's newest record under
// DIR/JOB/restore/SERVER, which trainer/checkpoint writes, so that it can be read while the server serves nobody, or runs no more.
type RestoreRecord struct {
	Server      int       `json:"server"`
	Incarnation uint64    `json:"incarnation"`
	At          time.Time `json:"at"`
	// Error is why it cannot start; "": it can.
	Error string `json:"error,omitempty"`
	// Fallbacks are the tablets that it did not take up as they were last, for people.
	Fallbacks []string `json:"fallbacks,omitempty"`
}

// Fine says that there is nothing to tell.
func (r RestoreRecord) Fine() bool { return r.Error == "" && len(r.Fallbacks) == 0 }

// RestoreFolder is where the records of a server lie, below the job's own folder.
func RestoreFolder(server int) string { return filepath.Join("restore", strconv.Itoa(server)) }

// CannotStart reads which of a job's parameter servers cannot start, by the newest record of each. What cannot be read is left out: it tells a person why, and
// nothing is decided by it.
func CannotStart(dir, job string, servers int) []RestoreRecord {
	var out []RestoreRecord
	for i := range servers {
		folder := filepath.Join(dir, job, RestoreFolder(i))
		entries, err := os.ReadDir(folder)
		if err != nil {
			continue
		}
		newest := ""
		for _, e := range entries {
			if n := e.Name(); strings.HasSuffix(n, ".json") && !strings.HasPrefix(n, ".") {
				newest = max(newest, n)
			}
		}
		raw, err := os.ReadFile(filepath.Join(folder, newest))
		if err != nil {
			continue
		}
		var envelope struct {
			Record RestoreRecord `json:"record"`
		}
		if json.Unmarshal(raw, &envelope) == nil && envelope.Record.Error != "" {
			out = append(out, envelope.Record)
		}
	}
	return out
}
