package local

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/kale-sched/kale/core/backend"
)

// claims is the machine's folder of claims: for each GPU (or MIG instance) that was ever given out a file, on which whoever has it holds an exclusive lock (flock).
// The plugin takes the lock and hands the open file to the supervisor, which keeps it for as long as it lives; so there is no gap, and the kernel frees the GPU
// whatever way its holder ends. The file says who that is, for people and for those that look; only the lock, and a process that outlives it for a moment, count.
//
// The folder is the same for all users, whatever their environment. Two containers that share a GPU but neither /run/lock nor /tmp do not see each other's claims.
type claims string

// machineClaims is below /run/lock where that is everybody's, else below /tmp: it does not depend on who asks.
func machineClaims() claims {
	base := "/tmp"
	if info, err := os.Stat("/run/lock"); err == nil && info.IsDir() && info.Mode()&os.ModeSticky != 0 && info.Mode().Perm()&0o002 != 0 {
		base = "/run/lock"
	}
	return claims(filepath.Join(base, "kale-gpus"))
}

// holder is what a claim's file says.
type holder struct {
	Job, ID string
	Dir     string // the instance's folder
	backend.Origin
	Supervisor, Child processID // zero while there is none
}

func (i instance) holder() holder {
	return holder{Job: i.job, ID: i.id.String(), Dir: i.dir, Origin: backend.ThisOrigin()}
}

// String is as backend.Device's HeldBy, with whose the job is where it is another user's.
func (h holder) String() string {
	if h.Job == "" {
		return "another process" // which has not said yet who it is, or has no room to
	}
	name := h.Job + "/" + h.ID
	if me := backend.ThisOrigin(); h.User != me.User {
		name = h.User + ":" + name
	}
	return name
}

// dying says that the holder's program lives. The kernel kills it with its supervisor, which may take a moment longer than to free the claim.
func (h holder) dying() bool { return h.Child.Alive() && h.Near(backend.ThisOrigin()) }

// path is the file of a device's claim. Whatever its UUID is, it is a name in the folder and no other device's.
func (c claims) path(device string) string {
	name := url.PathEscape(device)
	if len(name) > 200 {
		name = fmt.Sprintf("%x", sha256.Sum256([]byte(device)))
	}
	return filepath.Join(string(c), name+".claim")
}

var errOdd = errors.New("it is not what Kale has made there")

func (c claims) failed(device string, err error) *backend.Error {
	code := backend.FileCode(err)
	for _, e := range []error{errOdd, unix.ELOOP, unix.EISDIR, unix.ENXIO} {
		if errors.Is(err, e) {
			code = backend.Blocked
		}
	}
	return backend.Errorf(code, "see who has GPU %[2]s: %[3]w; all users of this machine must be able to read and write what is in %[1]s, by which no GPU is given out twice: "+
		"sudo chmod 1777 %[1]s and sudo chmod 666 %[1]s/* let them, and what is no folder or file there is to be removed; or set gpus = \"none\" in the backend block",
		string(c), device, err)
}

// open opens the file of a device's claim, fs.ErrNotExist where there is none. It makes nothing: what is others' in a folder of everybody's cannot be opened by
// who would make it (fs.protected_regular).
func (c claims) open(device string, flag int) (*os.File, error) {
	if info, err := os.Lstat(string(c)); err != nil || !info.IsDir() {
		if err == nil {
			err = fmt.Errorf("%s is no folder: %w", string(c), errOdd)
		}
		return nil, err
	}
	path := c.path(device)
	f, err := os.OpenFile(path, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("%s is no file: %w", path, errOdd)
	}
	return f, nil
}

// provide makes the folder and the file of a device's claim where there are none. Both get their names when everybody can use them already.
func (c claims) provide(device string) error {
	if _, err := os.Lstat(string(c)); errors.Is(err, fs.ErrNotExist) {
		draft, err := os.MkdirTemp(filepath.Dir(string(c)), "."+filepath.Base(string(c))+"-*")
		if err != nil {
			return err
		}
		err = os.Chmod(draft, 0o777|os.ModeSticky) // whatever the umask
		if err == nil {
			err = unix.Renameat2(unix.AT_FDCWD, draft, unix.AT_FDCWD, string(c), unix.RENAME_NOREPLACE)
		}
		if err != nil {
			_ = os.Remove(draft) // the first error tells more
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return &fs.PathError{Op: "make", Path: string(c), Err: err}
		}
	}
	draft, err := backend.WriteDraft(c.path(device), nil, 0o666)
	if err != nil {
		return err
	}
	err = os.Link(draft, c.path(device))
	if errors.Is(err, fs.ErrExist) {
		err = nil // another was faster
	}
	return errors.Join(err, os.Remove(draft))
}

// look says whether somebody has a device, and who. It changes nothing.
func (c claims) look(device string) (by holder, held bool, err error) {
	f, err := c.open(device, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return holder{}, false, nil
	}
	if err != nil {
		return holder{}, false, c.failed(device, err)
	}
	defer f.Close()                                              // which lets go of what is taken here
	switch err := backend.Flock(f, unix.LOCK_SH|unix.LOCK_NB); { // shared, so that two that look do not see each other; who takes it meanwhile tries again
	case err == nil:
		by = readHolder(f)
		return by, by.dying(), nil
	case !errors.Is(err, unix.EWOULDBLOCK):
		return holder{}, false, c.failed(device, fmt.Errorf("lock %s: %w", f.Name(), err))
	}
	return readHolder(f), true, nil
}

// takeTries bounds how often a claim is tried that is free, and that those who only look keep from being taken.
const takeTries = 1000

// take takes a device for me. Where another has it the file is nil, and by says who. The claim lasts for as long as the file is open, here or in a process that
// inherited it.
func (c claims) take(device string, me holder) (file *os.File, by holder, err error) {
	for range takeTries {
		f, err := c.open(device, os.O_RDWR)
		if errors.Is(err, fs.ErrNotExist) {
			if err = c.provide(device); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, holder{}, c.failed(device, err)
		}
		err = backend.Flock(f, unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			f.Close()
			if by, held, err := c.look(device); err != nil || held {
				return nil, by, err
			}
			time.Sleep(time.Millisecond) // whoever it was looked only, or has ended
			continue
		case err != nil:
			f.Close()
			return nil, holder{}, c.failed(device, fmt.Errorf("lock %s: %w", f.Name(), err))
		case !backend.IsAt(f, c.path(device)): // it was removed meanwhile
			f.Close()
			continue
		}
		if by := readHolder(f); by.Dir != me.Dir && by.dying() {
			f.Close()
			return nil, by, nil
		}
		writeHolder(f, me)
		return f, holder{}, nil
	}
	return nil, holder{}, nil
}

// has says that the instance's supervisor, or what it leaves for a moment when it is killed, has one of its devices. Where that cannot be told it is no: who
// takes them is told why.
func (c claims) has(v view) bool {
	return slices.ContainsFunc(gpusOf(v.spec.Devices), func(device string) bool {
		by, held, err := c.look(device)
		return err == nil && held && by.Dir == v.dir
	})
}

// inheritedClaims gives the claims that the plugin has taken for this supervisor. They are not its child's: what that leaves running must not keep them.
func inheritedClaims() (files []*os.File) {
	n, _ := strconv.Atoi(os.Getenv(envClaims)) // none, where a person starts it
	_ = os.Unsetenv(envClaims)                 // it is not the workload's
	for fd := firstExtra + 1; fd <= firstExtra+n; fd++ {
		unix.CloseOnExec(fd)
		files = append(files, os.NewFile(uintptr(fd), "claim"))
	}
	return files
}

// checkClaims refuses to go on without the claims of all GPUs that the child will have.
func (s *supervisor) checkClaims() error {
	if gpus := gpusOf(s.spec.Devices); len(gpus) != len(s.claims) {
		return fmt.Errorf("it has %d claims for %d GPUs (%s): only Kale's plugin starts it", len(s.claims), len(gpus), strings.Join(gpus, ", "))
	}
	for _, f := range s.claims {
		if err := backend.Flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil { // which it has already
			return fmt.Errorf("it has no claim of a GPU: %w", err)
		}
	}
	return nil
}

// noteClaims says in the claims who has them now.
func (s *supervisor) noteClaims() {
	if len(s.claims) == 0 {
		return
	}
	h := instance{dir: s.dir, job: s.spec.Job, id: s.spec.ID}.holder()
	h.Supervisor, h.Child = s.record.Supervisor, s.record.Child
	for _, f := range s.claims {
		writeHolder(f, h)
	}
}

func (s *supervisor) freeClaims() {
	for _, f := range s.claims {
		_ = f.Truncate(0) // nobody has it, as the lock says too
	}
	closeAll(s.claims)
}

// slotPrefix begins the names of devices that are no GPUs: those are known in their folder only.
const slotPrefix = "slot-"

// gpusOf gives those of the devices that are claimed.
func gpusOf(devices []string) []string {
	return slices.DeleteFunc(slices.Clone(devices), func(d string) bool { return strings.HasPrefix(d, slotPrefix) })
}

// takenBy is who has which device.
type takenBy struct {
	holder
	device string
}

// takeAll takes the claims of all devices, at least one, for an instance. Where another has one of them it takes none, and by says who has which.
func (c claims) takeAll(devices []string, who instance) (files []*os.File, by takenBy, err error) {
	me := who.holder()
	for _, d := range devices {
		f, other, err := c.take(d, me)
		if f == nil {
			closeAll(files)
			return nil, takenBy{other, d}, err
		}
		files = append(files, f)
	}
	return files, takenBy{}, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// readHolder gives what a claim's file says, nobody where that is nothing or cannot be read.
func readHolder(f *os.File) holder {
	var h holder
	raw := make([]byte, 16<<10)
	n, _ := f.ReadAt(raw, 0) // the end of the file, or nothing to go by
	if err := json.NewDecoder(bytes.NewReader(raw[:n])).Decode(&h); err != nil {
		return holder{} // empty, or just being written
	}
	if strings.ContainsFunc(h.Job+h.ID+h.User, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		return holder{} // anybody may write there, and this is shown on terminals
	}
	return h
}

// writeHolder says in a claim's file who has it. Where there is no room for that the claim holds all the same.
func writeHolder(f *os.File, h holder) {
	raw, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		panic("local: " + err.Error()) // strings and numbers
	}
	if n, err := f.WriteAt(raw, 0); err == nil { // what is left of a longer one is behind the first value, which alone is read
		_ = f.Truncate(int64(n))
	} else {
		_ = f.Truncate(0) // better nobody than somebody else
	}
}
