package stream

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// kfake writes its producers' sequence numbers only when it is closed. Killed, it would start with none, or with those
// of an earlier close: then the retry of a batch that was written but not yet acknowledged is written a second time, and
// a batch in sequence is refused. Kafka rebuilds this state from the batches in its log; restoreSequences does so for
// kfake, by writing its seq_windows.json anew from the log's batch headers before kfake reads it. The file's form is
// kfake's own (version 1) and no promise of its authors: TestKilledBrokerKnowsItsProducers fails should it change, and a
// folder of another version is left alone.

const (
	kfakeFormat   = 1
	seqWindow     = 5  // batches per producer and partition that Kafka can recognise as repeats
	batchHeader   = 61 // bytes of a record batch before its records, format v2
	maxBatchBytes = 1 << 30
)

type seqEntry struct {
	FirstSeq int32 `json:"first_seq"`
	NextSeq  int32 `json:"next_seq"`
	Offset   int64 `json:"offset"`
}

type seqState struct {
	PID     int64               `json:"pid"`
	Topic   string              `json:"topic"`
	Part    int32               `json:"partition"`
	Entries [seqWindow]seqEntry `json:"entries"`
	Count   uint8               `json:"count"`
	At      uint8               `json:"at"`
	Epoch   int16               `json:"epoch"`
	Seen    bool                `json:"seen"`
	NextSeq int32               `json:"next_seq"`
}

// add records a batch as kfake's own window does.
func (s *seqState) add(epoch int16, first, count int32, offset int64) {
	next := int32((int64(first) + int64(count)) % math.MaxInt32)
	if !s.Seen || epoch != s.Epoch {
		*s = seqState{PID: s.PID, Topic: s.Topic, Part: s.Part, Epoch: epoch, Seen: true}
	}
	s.NextSeq = next
	s.Entries[s.At] = seqEntry{FirstSeq: first, NextSeq: next, Offset: offset}
	s.At = (s.At + 1) % seqWindow
	s.Count = min(s.Count+1, seqWindow)
}

// restoreSequences rewrites seq_windows.json in dir from the log's batches. A folder without a log is left alone.
func restoreSequences(lg *slog.Logger, dir string) error {
	raw, err := os.ReadFile(filepath.Join(dir, "meta.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var meta struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(raw, &meta); err != nil {
		return fmt.Errorf("read meta.json: %w", err)
	}
	if meta.Version != kfakeFormat {
		lg.Warn("data folder has another format: producers that were cut off may write a record twice", "folder", dir, "format", meta.Version)
		return nil
	}
	parts, err := os.ReadDir(filepath.Join(dir, "partitions"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	windows := []*seqState{}
	for _, p := range parts {
		w, err := partitionSequences(filepath.Join(dir, "partitions"), p.Name())
		if err != nil {
			return err
		}
		windows = append(windows, w...)
	}
	out, err := json.Marshal(struct {
		Version int         `json:"version"`
		Windows []*seqState `json:"windows"`
	}{kfakeFormat, windows})
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "seq_windows.json")
	if err := os.WriteFile(path+".tmp", out, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// partitionSequences reads the batch headers of one partition's folder, named TOPIC-PARTITION.
func partitionSequences(root, name string) ([]*seqState, error) {
	i := strings.LastIndexByte(name, '-')
	if i < 0 {
		return nil, nil
	}
	part, err := strconv.ParseInt(name[i+1:], 10, 32)
	if err != nil {
		return nil, nil // not a partition's folder
	}
	topic, err := url.PathUnescape(name[:i])
	if err != nil {
		return nil, nil // not a partition's folder
	}
	files, err := os.ReadDir(filepath.Join(root, name))
	if err != nil {
		return nil, err
	}
	var bases []int64
	for _, f := range files {
		if base, ok := strings.CutSuffix(f.Name(), ".dat"); ok {
			if n, err := strconv.ParseInt(base, 10, 64); err == nil {
				bases = append(bases, n)
			}
		}
	}
	slices.Sort(bases)
	byPID := map[int64]*seqState{}
	var order []*seqState
	for _, base := range bases {
		err := eachBatch(filepath.Join(root, name, fmt.Sprintf("%d.dat", base)), func(h []byte) {
			pid := int64(binary.BigEndian.Uint64(h[43:]))
			if pid < 0 || binary.BigEndian.Uint16(h[21:])&0x20 != 0 { // no producer id, or a control batch
				return
			}
			s := byPID[pid]
			if s == nil {
				s = &seqState{PID: pid, Topic: topic, Part: int32(part)}
				byPID[pid] = s
				order = append(order, s)
			}
			s.add(int16(binary.BigEndian.Uint16(h[51:])), int32(binary.BigEndian.Uint32(h[53:])),
				int32(binary.BigEndian.Uint32(h[57:])), int64(binary.BigEndian.Uint64(h)))
		})
		if err != nil {
			return nil, err
		}
	}
	return order, nil
}

// eachBatch calls fn with the header of every whole record batch in a segment file; a torn end is where it stops.
func eachBatch(path string, fn func(header []byte)) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	var h [batchHeader]byte
	for pos := int64(0); ; {
		if _, err := f.ReadAt(h[:], pos); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		length := int64(int32(binary.BigEndian.Uint32(h[8:])))
		if length < batchHeader-12 || length > maxBatchBytes || pos+12+length > st.Size() {
			return nil
		}
		fn(h[:])
		pos += 12 + length
	}
}
