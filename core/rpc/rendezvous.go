package rpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrNoChief says that no chief of the job has published itself in the checkpoint folder.
var ErrNoChief = errors.New("the job has no chief yet")

// ChiefRecord says where a job's chief is.
type ChiefRecord struct {
	Address     string `json:"address"`
	Incarnation uint64 `json:"incarnation"`
	Timeline    string `json:"timeline"`
}

// FindChief reads where the newest chief of a job is: the highest-named record under DIR/JOB/chief, which trainer/checkpoint writes
// (EXACTLY_ONCE rule 3). A record that is being replaced is looked for again. ErrNoChief: there is none.
func FindChief(dir, job string) (ChiefRecord, error) {
	folder := filepath.Join(dir, job, "chief")
	for range 5 {
		entries, err := os.ReadDir(folder)
		if errors.Is(err, fs.ErrNotExist) {
			return ChiefRecord{}, ErrNoChief
		}
		if err != nil {
			return ChiefRecord{}, fmt.Errorf("find the chief of job %q: %w", job, err)
		}
		newest := ""
		for _, e := range entries {
			if n := e.Name(); strings.HasSuffix(n, ".json") && !strings.HasPrefix(n, ".") && n > newest {
				newest = n
			}
		}
		if newest == "" {
			return ChiefRecord{}, ErrNoChief
		}
		raw, err := os.ReadFile(filepath.Join(folder, newest))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return ChiefRecord{}, fmt.Errorf("find the chief of job %q: %w", job, err)
		}
		var envelope struct {
			Record ChiefRecord `json:"record"`
		}
		err = json.Unmarshal(raw, &envelope)
		if err == nil && envelope.Record.Address == "" {
			err = errors.New("it has no address")
		}
		if err != nil {
			return ChiefRecord{}, fmt.Errorf("find the chief of job %q: %s is not a chief's record: %w", job, filepath.Join(folder, newest), err)
		}
		return envelope.Record, nil
	}
	return ChiefRecord{}, fmt.Errorf("find the chief of job %q: its record is replaced faster than it can be read: ask again", job)
}

// Prefer says which of two places of a job's chief to believe: folder is what the checkpoint folder says, told what the scheduler's Rendezvous does; the
// zero record is no answer. Of one timeline the higher incarnation is the newer one, whoever says so; of two timelines the folder's is the job's.
func Prefer(folder, told ChiefRecord) ChiefRecord {
	if folder.Address == "" || told.Address != "" && told.Timeline == folder.Timeline && told.Incarnation > folder.Incarnation {
		return told
	}
	return folder
}

// ChiefRecordOf reads what came over the wire.
func ChiefRecordOf(p *ChiefPlace) ChiefRecord {
	return ChiefRecord{Address: p.GetAddress(), Incarnation: p.GetIncarnation(), Timeline: p.GetTimeline()}
}

// Place is the record for the wire.
func (r ChiefRecord) Place() *ChiefPlace {
	return &ChiefPlace{Address: r.Address, Incarnation: r.Incarnation, Timeline: r.Timeline}
}

// Group is the consumer group under which a job commits, for the eyes of other tools, how far it is durable.
func Group(job string) string { return "kale-" + job }
