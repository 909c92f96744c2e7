package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kale-sched/kale/core/rpc"
)

// jobVersion is the newest form of JobState that this program writes and reads.
const jobVersion = 1

// JobState is what a job's chief must not forget (EXACTLY_ONCE rule 3): everything else is reported to it again by its members.
type JobState struct {
	// Version is the form of this record; SaveJob sets it when it is 0.
	Version int `json:"version"`
	// Job is the job's name.
	Job string `json:"job"`
	// Timeline is drawn once, when the job's state is made: state and messages of another timeline are refused.
	Timeline string `json:"timeline"`
	// Fingerprint is the digest of what the stored state depends on (rpc.TrainSpec).
	Fingerprint string `json:"fingerprint"`
	Topic       string `json:"topic"`
	TopicID     string `json:"topic_id"`
	Tablets     int    `json:"tablets"`
	Servers     int    `json:"servers"`
	// MapVersion is the version of the map from tablets to servers.
	MapVersion uint64 `json:"map_version"`
	// Starts is the pinned start offset of every partition: the floor of its applied sets.
	Starts    map[int32]int64 `json:"starts"`
	CreatedAt time.Time       `json:"created_at"`
	// Lost are the spans that an operator has given up (rule 16): a later chief must not ask again.
	Lost []LostSpan `json:"lost,omitempty"`
	// CutOff says where the log's end was cut off (rule 17): once it has grown again, nothing else does.
	CutOff []CutOff `json:"cut_off,omitempty"`
}

// CutOff says that the end of a partition's log was cut off: an unclean election, brokers with an older copy of their data. The log ended at offset At when that was
// seen, and had been read up to ReadTo. It was cut there or, where some more had been written until it was seen, somewhat below.
type CutOff struct {
	Partition int32     `json:"partition"`
	At        int64     `json:"at"`
	ReadTo    int64     `json:"read_to"`
	Seen      time.Time `json:"seen,omitzero"`
}

// LostSpan is [Begin, End) of one partition, removed by retention before it was trained.
type LostSpan struct {
	Partition int32 `json:"partition"`
	Begin     int64 `json:"begin"`
	End       int64 `json:"end"`
}

// ChiefInfo says where the chief is.
type ChiefInfo struct {
	Address string `json:"address"`
	// Incarnation is that of parameter server 0, in which the chief runs.
	Incarnation uint64 `json:"incarnation"`
	Timeline    string `json:"timeline"`
}

// LoadJob reads the newest job state, from its copy where it must (MendJob). ErrNoJob: there is none. ErrDamaged: neither verifies; the state is not skipped, since an
// older one may lack the pinned start of a partition that has been trained since.
func (s *Store) LoadJob() (JobState, error) {
	var st JobState
	_, err := rpc.ReadJobState(s.root, &st)
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNoJob
	}
	if err == nil && st.Version > jobVersion {
		err = fmt.Errorf("it is of version %d and this program knows up to %d: use a newer kale-trainer", st.Version, jobVersion)
	}
	if err != nil {
		return JobState{}, fmt.Errorf("load the state of job %q from %s: %w%s", s.job, s.root, err, advice(err))
	}
	return st, nil
}

// SaveJob saves the job's state, atomically and durably. It is refused with ErrSuperseded when server 0 has a newer incarnation than
// chiefInc: the caller must not act on what it wanted to save. What such a caller may have written is below what its successor writes.
func (s *Store) SaveJob(st JobState, chiefInc uint64) error {
	if st.Version == 0 {
		st.Version = jobVersion
	}
	if err := s.saveNext(rpc.JobStateFolder, 0, st, chiefInc); err != nil {
		return fmt.Errorf("save the state of job %q: %w%s", s.job, err, advice(err))
	}
	return nil
}

// MendJob makes two of the newest job state again where there is only one of it that verifies: so it is of one that an older version saved, and of one of which a file
// was damaged or lost, which was says. What a name stands for is written once and never changes, so that it does not matter who mends it, or when.
func (s *Store) MendJob() (was, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, err = s.mendJob()
	if err != nil {
		err = fmt.Errorf("keep two copies of the state of job %q: %w%s", s.job, err, advice(err))
	}
	return was, err
}

func (s *Store) mendJob() (was, err error) {
	var st json.RawMessage
	if was, err = rpc.ReadJobState(s.root, &st); err != nil {
		return nil, err
	}
	names, err := s.recordNames(rpc.JobStateFolder)
	if err != nil || len(names) == 0 {
		return was, err
	}
	dir, record, copied := filepath.Join(s.root, rpc.JobStateFolder), names[0].file(), names[0].copyFile()
	from, to := record, copied
	if was != nil {
		from, to = copied, record
	} else if err := rpc.ReadRecord(filepath.Join(dir, copied), &st); err == nil {
		return nil, nil
	} else if errors.Is(err, ErrDamaged) {
		was = err
	}
	text, err := os.ReadFile(filepath.Join(dir, from))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // replaced by newer ones since it was listed
	}
	if err == nil {
		err = s.place(dir, to, text)
	}
	return was, err
}

// saveNext saves a record of a kind above all that this incarnation of the server has saved.
func (s *Store) saveNext(kind string, server int, v any, inc uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	names, err := s.recordNames(kind)
	if err != nil {
		return err
	}
	next := recordName{inc, 1}
	for _, n := range names {
		if n.inc == inc {
			next.seq = max(next.seq, n.seq+1)
		}
	}
	if err := s.putRecord(kind, server, next, v); err != nil {
		return err
	}
	s.dropRecords(kind, append(names, next), inc)
	return nil
}

// SaveMemory saves what a chief keeps for its successor beside the job's state (rpc.ChiefMemory, encoded). ErrSuperseded as with SaveJob.
func (s *Store) SaveMemory(raw []byte, chiefInc uint64) error {
	if err := s.saveNext(memoryKind, 0, raw, chiefInc); err != nil {
		return fmt.Errorf("save the chief's memory of job %q: %w%s", s.job, err, advice(err))
	}
	return nil
}

// Memory reads what SaveMemory saved last; nil when there is none.
func (s *Store) Memory() (raw []byte, err error) {
	err = s.newestRecord(memoryKind, &raw)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the chief's memory of job %q: %w%s", s.job, err, advice(err))
	}
	return raw, nil
}

const memoryKind = "memory"

// PublishChief makes the chief known to all. ErrSuperseded: server 0 has a newer incarnation than the one in info.
func (s *Store) PublishChief(info ChiefInfo) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := recordName{info.Incarnation, 1}
	err := s.putRecord("chief", 0, name, info)
	if err != nil {
		return fmt.Errorf("publish the chief of job %q: %w%s", s.job, err, advice(err))
	}
	if names, err := s.recordNames("chief"); err == nil {
		s.dropRecords("chief", names, info.Incarnation)
	}
	return nil
}

// Chief reads where the newest chief is; ErrNoChief when none has published itself.
func (s *Store) Chief() (ChiefInfo, error) {
	var info ChiefInfo
	err := s.newestRecord("chief", &info)
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNoChief
	}
	if err != nil {
		return ChiefInfo{}, fmt.Errorf("find the chief of job %q in %s: %w%s", s.job, s.root, err, advice(err))
	}
	return info, nil
}

// recordName orders the records of one kind: by incarnation, then by the writer's own counter.
type recordName struct{ inc, seq uint64 }

func (n recordName) file() string { return fmt.Sprintf("%020d-%010d.json", n.inc, n.seq) }

func (n recordName) copyFile() string {
	return strings.TrimSuffix(n.file(), rpc.RecordEnding) + rpc.CopyEnding
}

func (n recordName) compare(m recordName) int {
	switch {
	case n.inc < m.inc || n.inc == m.inc && n.seq < m.seq:
		return -1
	case n == m:
		return 0
	}
	return 1
}

// recordNames lists the records of a kind, newest first.
func (s *Store) recordNames(kind string) ([]recordName, error) {
	entries, err := os.ReadDir(filepath.Join(s.root, kind))
	if err != nil {
		return nil, err
	}
	var out []recordName
	for _, e := range entries {
		file := e.Name()
		if base, ok := strings.CutSuffix(file, rpc.CopyEnding); ok && kind == rpc.JobStateFolder {
			file = base + rpc.RecordEnding
		}
		n, ok := parsePair(file, rpc.RecordEnding)
		if name := (recordName{n[0], n[1]}); ok && name.file() == file { // else nobody would find it by its name
			out = append(out, name)
		}
	}
	slices.SortFunc(out, func(a, b recordName) int { return b.compare(a) })
	return slices.Compact(out), nil
}

// keptRecords is how many records of a kind stay: more than one, so that a reader that has just listed finds its file.
const keptRecords = 3

// dropRecords removes records of own or lower incarnations beyond the newest few. One that stays behind costs nothing but room.
func (s *Store) dropRecords(kind string, names []recordName, inc uint64) {
	slices.SortFunc(names, func(a, b recordName) int { return b.compare(a) })
	names = slices.Compact(names)
	for i, n := range names {
		if i >= keptRecords && n.inc <= inc {
			_ = os.Remove(filepath.Join(s.root, kind, n.file()))
			if kind == rpc.JobStateFolder {
				_ = os.Remove(filepath.Join(s.root, kind, n.copyFile()))
			}
		}
	}
}

// putRecord writes a record of a server under its name, durably, and tells a superseded writer so.
func (s *Store) putRecord(kind string, server int, name recordName, v any) error {
	if err := s.checkCurrent(server, name.inc); err != nil {
		return err
	}
	text, err := rpc.EncodeRecord(v)
	if err != nil {
		return err
	}
	dir := filepath.Join(s.root, kind)
	if err := s.place(dir, name.file(), text); err != nil {
		return err
	}
	if kind == rpc.JobStateFolder {
		if err := s.place(dir, name.copyFile(), text); err != nil {
			return err
		}
	}
	// Only now is it known that no successor had claimed, and loaded, before this record was there to be loaded.
	return s.checkCurrent(server, name.inc)
}

// place writes a file of a folder whole and durably, or not at all.
func (s *Store) place(dir, name string, text []byte) error {
	tmp := filepath.Join(dir, "."+name+".tmp")
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = os.Remove(tmp)
		return err
	}
	if err := s.point("record before rename"); err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
		_ = os.Remove(tmp)
		return err
	}
	return syncDir(dir)
}

// newestRecord reads the newest record of a kind; fs.ErrNotExist when there is none.
func (s *Store) newestRecord(kind string, v any) error {
	for try := 0; ; try++ {
		names, err := s.recordNames(kind)
		if err != nil {
			return err
		}
		if len(names) == 0 {
			return fs.ErrNotExist
		}
		err = s.readRecord(kind, names[0], v)
		if errors.Is(err, fs.ErrNotExist) && try < 10 {
			continue // replaced by newer ones and removed since it was listed
		}
		if errors.Is(err, ErrDamaged) {
			err = fmt.Errorf("%w; remove it, and it is written anew", err)
		}
		return err
	}
}

// readRecord reads one record and verifies it.
func (s *Store) readRecord(kind string, name recordName, v any) error {
	return rpc.ReadRecord(filepath.Join(s.root, kind, name.file()), v)
}

// parsePair reads names of the form A-B<suffix> with decimal A and B.
func parsePair(name, suffix string) ([2]uint64, bool) {
	base, ok := strings.CutSuffix(name, suffix)
	if !ok {
		return [2]uint64{}, false
	}
	left, right, ok := strings.Cut(base, "-")
	if !ok {
		return [2]uint64{}, false
	}
	a, err1 := strconv.ParseUint(left, 10, 64)
	b, err2 := strconv.ParseUint(right, 10, 64)
	return [2]uint64{a, b}, err1 == nil && err2 == nil
}
