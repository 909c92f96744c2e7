package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/kale-sched/kale/core/rpc"
)

// Manifest says which snapshot of each of a server's tablets was the newest when it was saved. A folder cannot tell a tablet that never had a snapshot
// from one whose files are lost; this record, which lies elsewhere, can. It is saved after the snapshots that it names, so that what it names was there.
type Manifest struct {
	Timeline string          `json:"timeline"`
	Tablets  map[int]Written `json:"tablets"`
	// Applied is where the server goes on from them: the first offset of each partition that one of its tablets does not have (rpc.RestorePoint).
	Applied map[int32]int64 `json:"applied,omitempty"`
}

// Written is a snapshot that was written, synced and read back.
type Written struct {
	Incarnation uint64 `json:"incarnation"`
	Number      uint64 `json:"generation"`
	UnixMs      int64  `json:"unix_ms"`
	// Records is how many records the tablet had been trained with.
	Records uint64 `json:"records"`
}

// Of is the snapshot as the generation of a tablet.
func (w Written) Of(tablet int) Generation { return Generation{tablet, w.Incarnation, w.Number} }

// SaveManifest saves what a server has written. ErrSuperseded: the server has a newer incarnation.
func (s *Store) SaveManifest(m Manifest, server int, inc uint64) error {
	if err := s.saveOwn(rpc.WrittenFolder(server), server, m, inc); err != nil {
		return fmt.Errorf("note which snapshots server %d of job %q has written: %w%s", server, s.job, err, advice(err))
	}
	return nil
}

// saveOwn saves a record of a kind that has a folder for each server.
func (s *Store) saveOwn(kind string, server int, v any, inc uint64) error {
	for _, dir := range []string{filepath.Dir(kind), kind} { // never the store itself: it may be away
		if err := os.Mkdir(filepath.Join(s.root, dir), 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return s.saveNext(kind, server, v, inc)
}

// Written lists, of all servers' manifests of a timeline, the newest snapshot that each tablet is known to have had. What is said once stays true, so of a
// server whose newest manifest is damaged an older one is taken; damaged lists those.
func (s *Store) Written(timeline string) (out map[int]Written, damaged []error, err error) {
	out = map[int]Written{}
	servers, err := os.ReadDir(filepath.Join(s.root, "written"))
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil, nil
	}
	for _, e := range servers {
		server, numErr := strconv.Atoi(e.Name())
		if numErr != nil {
			continue
		}
		m, bad, oneErr := s.manifest(server)
		damaged, err = append(damaged, bad...), errors.Join(err, oneErr)
		if m.Timeline != timeline {
			continue
		}
		for tablet, w := range m.Tablets {
			if old, known := out[tablet]; !known || old.Of(tablet).Compare(w.Of(tablet)) < 0 {
				out[tablet] = w
			}
		}
	}
	if err != nil {
		return nil, damaged, fmt.Errorf("read which snapshots of job %q were written: %w%s", s.job, err, advice(err))
	}
	return out, damaged, nil
}

// manifest reads the newest one of a server that verifies; the zero one when there is none.
func (s *Store) manifest(server int) (m Manifest, damaged []error, err error) {
	for try := 0; ; try++ {
		names, err := s.recordNames(rpc.WrittenFolder(server))
		if err != nil {
			return Manifest{}, nil, err
		}
		damaged = nil
		gone := false
		for _, n := range names {
			m = Manifest{}
			err := s.readRecord(rpc.WrittenFolder(server), n, &m)
			if err == nil {
				return m, damaged, nil
			}
			gone = gone || errors.Is(err, fs.ErrNotExist)
			damaged = append(damaged, err)
		}
		if !gone || try == 10 { // else replaced by newer ones since they were listed
			return Manifest{}, damaged, nil
		}
	}
}

// SaveRestore saves what a server found wrong when it started, for people; ErrSuperseded as with SaveManifest. A server that found nothing says so only where
// something else was said before.
func (s *Store) SaveRestore(r rpc.RestoreRecord) error {
	kind := rpc.RestoreFolder(r.Server)
	if r.Fine() {
		names, err := s.recordNames(kind)
		if errors.Is(err, fs.ErrNotExist) || err == nil && len(names) == 0 {
			return nil
		}
	}
	if err := s.saveOwn(kind, r.Server, r, r.Incarnation); err != nil {
		return fmt.Errorf("note how server %d of job %q was restored: %w%s", r.Server, s.job, err, advice(err))
	}
	return nil
}

// anewDir holds the orders to begin anew.
const anewDir = "anew"

// AnewPath is the file by which an operator orders that a tablet which cannot be restored begins anew: its content does not matter.
func (s *Store) AnewPath(tablet int) string {
	return filepath.Join(s.root, anewDir, fmt.Sprintf("%06d", tablet))
}

// Anew says whether the tablet is to begin anew.
func (s *Store) Anew(tablet int) (bool, error) {
	_, err := os.Stat(s.AnewPath(tablet))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for an order to begin tablet %d anew: %w%s", tablet, err, advice(err))
	}
	return true, nil
}

// DropAnew removes the order: it is fulfilled, or was never needed.
func (s *Store) DropAnew(tablet int) error {
	if err := os.Remove(s.AnewPath(tablet)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the order to begin tablet %d anew: %w%s", tablet, err, advice(err))
	}
	return nil
}
