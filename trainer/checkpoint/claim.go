package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ClaimIncarnation takes a new incarnation for a parameter server, higher than every one that the job has given out so far, to any
// server. That holds too where the store was put back from an older copy, which knows less: a number is at least the time, in microseconds. Concurrent claims, by whatever processes, never get the same number; of two for one server the higher wins, and the lower
// learns it from Superseded, from its next write, or here already (ErrSuperseded). Numbers are not contiguous.
func (s *Store) ClaimIncarnation(server int) (uint64, error) {
	fail := func(err error) (uint64, error) {
		return 0, fmt.Errorf("claim an incarnation for server %d of job %q: %w%s", server, s.job, err, advice(err))
	}
	if server < 0 {
		return fail(errors.New("the server's number is negative"))
	}
	dir := filepath.Join(s.root, "claims")
	n, err := s.newest()
	if err != nil {
		return fail(err)
	}
	n = max(n, uint64(max(0, time.Now().UnixMicro())))
	// The number is the thing that is exclusive: its file is created by exactly one claimant. Numbers are never given back, so the
	// folder grows by two empty files per start of a server.
	for {
		n++
		err := createExclusive(filepath.Join(dir, claimName(n)))
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrExist) {
			return fail(err)
		}
	}
	if err := s.point("claim reserved"); err != nil {
		return fail(err)
	}
	if err := createExclusive(filepath.Join(dir, claimName(n)+serverMark+strconv.Itoa(server))); err != nil {
		return fail(err)
	}
	if err := syncDir(dir); err != nil {
		return fail(err)
	}
	if err := s.checkCurrent(server, n); err != nil {
		return fail(err)
	}
	return n, nil
}

// newest is the highest incarnation of which anything is in the store. Claims alone do not tell where their folder was lost, or put back from an older copy: what was
// written under a higher incarnation would then come after all that the next one writes, and who has seen that one would not take this one.
func (s *Store) newest() (n uint64, err error) {
	const digits = 20 // of an incarnation, at the front of every file's name that has one
	err = filepath.WalkDir(s.root, func(_ string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile, since there is a newer one
		}
		if err != nil || e.IsDir() || len(e.Name()) < digits {
			return err
		}
		if inc, err := strconv.ParseUint(e.Name()[:digits], 10, 64); err == nil {
			n = max(n, inc)
		}
		return nil
	})
	return n, err
}

// Superseded says whether a higher incarnation than inc has been claimed for the server.
func (s *Store) Superseded(server int, inc uint64) (bool, error) {
	claims, err := s.claims()
	if err != nil {
		return false, fmt.Errorf("look for newer incarnations of server %d of job %q: %w%s", server, s.job, err, advice(err))
	}
	for _, c := range claims {
		if c.server == server && c.number > inc {
			return true, nil
		}
	}
	return false, nil
}

// stoppedFile names the incarnation above which alone somebody may train: the job was stopped, and what is left of it is to end.
const stoppedFile = "stopped"

// ShutOut claims an incarnation for each parameter server of a job that was stopped, and notes that no process of an older chief is to go on: what a cluster cannot
// end finds that out by itself. Whoever runs the job next has higher ones.
func (s *Store) ShutOut(servers int) error {
	highest := uint64(0)
	var errs []error
	for i := range servers {
		n, err := s.ClaimIncarnation(i)
		if err != nil && !errors.Is(err, ErrSuperseded) {
			errs = append(errs, err)
		}
		highest = max(highest, n)
	}
	if highest > 0 {
		if err := s.place(filepath.Join(s.root, "claims"), stoppedFile, []byte(claimName(highest))); err != nil {
			errs = append(errs, fmt.Errorf("note that job %q was stopped: %w%s", s.job, err, advice(err)))
		}
	}
	return errors.Join(errs...)
}

// Stopped says whether the job was stopped for good since the incarnation was given out: ShutOut.
func (s *Store) Stopped(inc uint64) (bool, error) {
	raw, err := os.ReadFile(filepath.Join(s.root, "claims", stoppedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look whether job %q was stopped: %w%s", s.job, err, advice(err))
	}
	n, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil {
		return false, fmt.Errorf("look whether job %q was stopped: %s is damaged: %w", s.job, filepath.Join(s.root, "claims", stoppedFile), err)
	}
	return n > inc, nil
}

// checkCurrent is an error that is ErrSuperseded when inc is not the server's newest claim any more.
func (s *Store) checkCurrent(server int, inc uint64) error {
	gone, err := s.Superseded(server, inc)
	if err != nil {
		return err
	}
	if gone {
		return fmt.Errorf("server %d, incarnation %d: %w", server, inc, ErrSuperseded)
	}
	return nil
}

// claim is one file of the claims folder; server is −1 for a number without an owner (yet).
type claim struct {
	number uint64
	server int
}

const serverMark = ".server-"

// claimName is fixed in width so that `ls` sorts by number.
func claimName(n uint64) string { return fmt.Sprintf("%020d", n) }

func (s *Store) claims() ([]claim, error) {
	entries, err := os.ReadDir(filepath.Join(s.root, "claims"))
	if err != nil {
		return nil, err
	}
	out := make([]claim, 0, len(entries))
	for _, e := range entries {
		digits, owner, owned := strings.Cut(e.Name(), serverMark)
		c := claim{server: -1}
		if c.number, err = strconv.ParseUint(digits, 10, 64); err != nil || claimName(c.number) != digits {
			continue // not a claim: an editor's backup, .nfs…
		}
		if owned {
			if c.server, err = strconv.Atoi(owner); err != nil {
				continue
			}
		}
		out = append(out, c)
	}
	return out, nil
}

// createExclusive creates an empty file that must not exist yet.
func createExclusive(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	return f.Close()
}
