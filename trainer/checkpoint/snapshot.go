package checkpoint

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Generation names one snapshot of one tablet. Higher incarnations come after lower ones, whatever their numbers.
type Generation struct {
	Tablet      int
	Incarnation uint64
	Number      uint64
}

// Compare orders the generations of a tablet from old to new.
func (g Generation) Compare(h Generation) int {
	return recordName{g.Incarnation, g.Number}.compare(recordName{h.Incarnation, h.Number})
}

// Name is the generation without its tablet, for messages: incarnation-generation.
func (g Generation) Name() string { return fmt.Sprintf("%d-%d", g.Incarnation, g.Number) }

// String names the generation for messages.
func (g Generation) String() string {
	return fmt.Sprintf("tablet %d, incarnation %d, generation %d", g.Tablet, g.Incarnation, g.Number)
}

// modelMode is the mode of files that hold what was learnt: the owner's, and those of his group.
const modelMode = 0o640

const (
	headMagic = "KALESNP1"
	tailMagic = "KALEEND1"
	headSize  = 32 // magic, tablet, incarnation, generation
	tailSize  = 24 // body length, checksum of all before it, magic
)

// TabletDir is the folder of a tablet's snapshots, for messages.
func (s *Store) TabletDir(tablet int) string { return s.tabletDir(tablet) }

func (s *Store) tabletDir(tablet int) string {
	return filepath.Join(s.root, "tablets", fmt.Sprintf("%06d", tablet))
}

func (g Generation) file() string { return fmt.Sprintf("%020d-%020d.snap", g.Incarnation, g.Number) }

// Path is where a generation lies, for messages.
func (s *Store) Path(g Generation) string { return filepath.Join(s.tabletDir(g.Tablet), g.file()) }

// WriteTablet writes one snapshot of a tablet: what write puts into its argument, framed with its identity and a checksum. The file is
// synced, read back and verified before it gets its name, so a name is a whole snapshot whenever the machine stops.
//
// ErrSuperseded: the server has a newer incarnation; the caller's process must exit. Other errors leave the older generations as they were.
func (s *Store) WriteTablet(tablet, server int, inc, gen uint64, write func(io.Writer) error) error {
	g := Generation{tablet, inc, gen}
	if err := s.writeTablet(g, server, write); err != nil {
		return fmt.Errorf("write snapshot (%v): %w%s", g, err, advice(err))
	}
	s.mu.Lock()
	s.verified[g] = true
	s.mu.Unlock()
	return nil
}

func (s *Store) writeTablet(g Generation, server int, write func(io.Writer) error) error {
	if err := s.checkCurrent(server, g.Incarnation); err != nil {
		return err
	}
	dir := s.tabletDir(g.Tablet)
	if err := s.ensureTabletDir(dir); err != nil {
		return err
	}
	tmp := filepath.Join(dir, "."+g.file()+".tmp")
	if err := s.writeFrame(tmp, g, write); err != nil {
		_ = os.Remove(tmp) // it may not exist
		return err
	}
	if err := verifyFrame(tmp, g, nil); err != nil {
		_ = os.Remove(tmp)
		return fmt.Errorf("what was written does not read back: %w", err)
	}
	if err := s.checkCurrent(server, g.Incarnation); err != nil {
		_ = os.Remove(tmp)
		return err
	}
	if err := s.point("snapshot before rename"); err != nil {
		return err
	}
	if err := os.Rename(tmp, s.Path(g)); err != nil {
		_ = os.Remove(tmp)
		return err
	}
	if err := s.point("snapshot before folder sync"); err != nil {
		return err
	}
	if err := syncDir(dir); err != nil {
		return err
	}
	return s.checkCurrent(server, g.Incarnation)
}

func (s *Store) ensureTabletDir(dir string) error {
	switch err := os.Mkdir(dir, 0o777); {
	case errors.Is(err, os.ErrExist):
		return nil
	case err != nil:
		return err
	}
	return syncDir(filepath.Dir(dir))
}

// writeFrame writes head, body and tail to path and syncs it.
func (s *Store) writeFrame(path string, g Generation, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, modelMode)
	if err != nil {
		return err
	}
	defer f.Close()
	out := bufio.NewWriterSize(f, 256<<10)
	sum := &summingWriter{to: out, sum: xxhash.New()}
	if _, err := sum.Write(g.head()); err != nil {
		return err
	}
	if err := s.point("snapshot before body"); err != nil {
		return err
	}
	sum.n = 0
	if err := write(sum); err != nil {
		return err
	}
	tail := make([]byte, 0, tailSize)
	tail = binary.LittleEndian.AppendUint64(tail, uint64(sum.n))
	if _, err := sum.Write(tail); err != nil {
		return err
	}
	tail = binary.LittleEndian.AppendUint64(tail, sum.sum.Sum64())
	tail = append(tail, tailMagic...)
	if _, err := out.Write(tail[8:]); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if err := s.point("snapshot before sync"); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

func (g Generation) head() []byte {
	b := append(make([]byte, 0, headSize), headMagic...)
	b = binary.LittleEndian.AppendUint64(b, uint64(g.Tablet))
	b = binary.LittleEndian.AppendUint64(b, g.Incarnation)
	return binary.LittleEndian.AppendUint64(b, g.Number)
}

// summingWriter counts and hashes what passes through. The first error stays, so that a caller that swallows it yields no snapshot.
type summingWriter struct {
	to  io.Writer
	sum *xxhash.Digest
	n   int64
	err error
}

func (w *summingWriter) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.to.Write(p)
	_, _ = w.sum.Write(p[:n]) // a hash takes everything
	w.n += int64(n)
	w.err = err
	return n, err
}

// ReadTablet verifies a snapshot and then hands its body to read, which must consume all of it. ErrDamaged (with the file's name and
// what is wrong) when it does not verify or read does not finish at its end; fs.ErrNotExist when it has been removed.
func (s *Store) ReadTablet(g Generation, read func(io.Reader) error) error {
	err := verifyFrame(s.Path(g), g, read)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(s.verified, g) // it may have been whole before
		return fmt.Errorf("read snapshot (%v): %w%s", g, err, advice(err))
	}
	s.verified[g] = true
	return nil
}

// verifyFrame reads the file twice when read is not nil: first whole for the checksum, so that read is never shown unverified bytes.
func verifyFrame(path string, g Generation, read func(io.Reader) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	damaged := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s: %s", ErrDamaged, path, fmt.Sprintf(format, args...))
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	body := info.Size() - headSize - tailSize
	switch {
	case info.Size() == 0:
		return damaged("it is empty")
	case body < 0:
		return damaged("it is short: it has %d bytes, fewer than an empty snapshot", info.Size())
	}
	sum := xxhash.New()
	in := io.TeeReader(bufio.NewReaderSize(f, 256<<10), sum)
	head := make([]byte, headSize)
	if _, err := io.ReadFull(in, head); err != nil {
		return err
	}
	if string(head) != string(g.head()) {
		return damaged("its head does not say %v", g)
	}
	if _, err := io.CopyN(io.Discard, in, body); err != nil {
		return err
	}
	tail := make([]byte, tailSize)
	if _, err := io.ReadFull(in, tail[:8]); err != nil {
		return err
	}
	want := sum.Sum64()
	if _, err := io.ReadFull(in, tail[8:]); err != nil {
		return err
	}
	switch {
	case string(tail[16:]) != tailMagic, binary.LittleEndian.Uint64(tail) != uint64(body):
		return damaged("it is cut short: it does not end as a snapshot of its length does")
	case binary.LittleEndian.Uint64(tail[8:]) != want:
		return damaged("its checksum is wrong")
	}
	if read == nil {
		return nil
	}
	if _, err := f.Seek(headSize, io.SeekStart); err != nil {
		return err
	}
	rest := bufio.NewReaderSize(io.LimitReader(f, body), 256<<10)
	if err := read(rest); err != nil {
		return err
	}
	if _, err := rest.ReadByte(); err != io.EOF {
		return damaged("it holds more than its reader knows")
	}
	return nil
}

// Generations lists the snapshots of a tablet, newest first, verified or not. A tablet that was never written has none.
func (s *Store) Generations(tablet int) ([]Generation, error) {
	entries, err := os.ReadDir(s.tabletDir(tablet))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the snapshots of tablet %d: %w%s", tablet, err, advice(err))
	}
	var out []Generation
	for _, e := range entries {
		n, ok := parsePair(e.Name(), ".snap")
		if g := (Generation{tablet, n[0], n[1]}); ok && g.file() == e.Name() { // else nobody would find it by its name
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b Generation) int { return b.Compare(a) })
	return out, nil
}

// Prune removes snapshots of a tablet that are older than the newest keep (at least 1) that this process has verified, and temporary
// files that lower incarnations left. It never removes a file of a higher incarnation than inc.
func (s *Store) Prune(tablet int, inc uint64, keep int) error {
	all, err := s.Generations(tablet)
	if err != nil {
		return err
	}
	var errs []error
	kept := 0
	for _, g := range all {
		s.mu.Lock()
		ok := s.verified[g]
		if kept >= max(keep, 1) && g.Incarnation <= inc {
			delete(s.verified, g)
		}
		s.mu.Unlock()
		if kept < max(keep, 1) {
			if ok {
				kept++
			}
			continue
		}
		if g.Incarnation <= inc {
			errs = append(errs, os.Remove(s.Path(g)))
		}
	}
	if kept < max(keep, 1) {
		return nil
	}
	entries, err := os.ReadDir(s.tabletDir(tablet))
	if err != nil {
		errs = append(errs, err)
	}
	for _, e := range entries {
		base, ok := strings.CutPrefix(e.Name(), ".")
		if n, is := parsePair(base, ".snap.tmp"); ok && is && n[0] < inc {
			errs = append(errs, os.Remove(filepath.Join(s.tabletDir(tablet), e.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove old snapshots of tablet %d: %w%s", tablet, err, advice(err))
	}
	return nil
}
