package rpc

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
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
		var r RestoreRecord
		if NewestRecord(filepath.Join(dir, job, RestoreFolder(i)), &r) && r.Error != "" {
			out = append(out, r)
		}
	}
	return out
}

// WrittenFolder is where the notes lie, below the job's own folder, of which snapshots a server has written.
func WrittenFolder(server int) string { return filepath.Join("written", strconv.Itoa(server)) }

// RestorePoint is where so many servers of a timeline go on from their newest snapshots, by what each noted as it wrote them (checkpoint.Manifest): the first offset
// of each partition that one of them does not have. known is false where one has noted nothing. folder is the job's own.
func RestorePoint(folder, timeline string, servers int) (next map[int32]int64, known bool) {
	next = map[int32]int64{}
	for i := range servers {
		note, found := readNote(folder, timeline, i)
		if !found || len(note.Applied) == 0 {
			return nil, false
		}
		for p, o := range note.Applied {
			if was, ok := next[p]; !ok || o < was {
				next[p] = o
			}
		}
	}
	return next, servers > 0
}

// RestoreRecords is how many records each tablet of so many servers has at least in its newest snapshot, dead ones included, by the same notes.
func RestoreRecords(folder, timeline string, servers int) (least uint64, known bool) {
	for i := range servers {
		note, found := readNote(folder, timeline, i)
		if !found {
			return 0, false
		}
		for _, t := range note.Tablets {
			if !known || t.Records < least {
				least, known = t.Records, true
			}
		}
	}
	return least, known
}

// note is the part of a checkpoint.Manifest that says where its server goes on.
type note struct {
	Timeline string          `json:"timeline"`
	Applied  map[int32]int64 `json:"applied"`
	Tablets  map[int]struct {
		Records uint64 `json:"records"`
	} `json:"tablets"`
}

func readNote(folder, timeline string, server int) (n note, found bool) {
	found = NewestRecord(filepath.Join(folder, WrittenFolder(server)), &n) && n.Timeline == timeline
	return n, found
}

// NewestRecord reads the newest record of a folder of them, as trainer/checkpoint writes them, without verifying it; false: there is none that can be read.
func NewestRecord(folder string, v any) bool {
	names, err := recordNames(folder, RecordEnding)
	if err != nil || len(names) == 0 {
		return false
	}
	raw, err := os.ReadFile(filepath.Join(folder, names[0]+RecordEnding))
	if err != nil {
		return false
	}
	envelope := struct {
		Record any `json:"record"`
	}{v}
	return json.Unmarshal(raw, &envelope) == nil
}
