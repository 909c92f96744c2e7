package local

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kale-sched/kale/core/backend"
)

// SuperviseCommand is the first argument with which the plugin starts its own program as a supervisor.
const SuperviseCommand = "supervise"

const (
	// envReady names the variable with the number of the descriptor for the supervisor's first word.
	envReady  = "KALE_SUPERVISOR_READY_FD"
	readyWord = "ready"
	// envClaims names the variable with the number of claims that follow that descriptor.
	envClaims = "KALE_SUPERVISOR_CLAIMS"
	// firstExtra is the first descriptor that a process gets from exec.Cmd's ExtraFiles.
	firstExtra = 3
)

const (
	backoffMin = 200 * time.Millisecond // before the first restart; doubled for each that follows
	// backoffMax is the longest pause. It is short because a server that is down stops the whole job, and a start costs little: what made processes end (a
	// disk that was full, a broker that was away) is over at some time, and the job must not stand still for long after it.
	backoffMax = 5 * time.Second
	// healthyRun is how long a child must have lived for the next pause to be the shortest again: what fails by itself fails within it (a wrong path, a
	// port that is taken, a model that cannot be built), and what was killed after it was no crash loop.
	healthyRun = 10 * time.Second
	// drainOutput is how long after the child's end its output is still read.
	drainOutput = time.Second
	// rewriteEvery is how often a record that could not be written is tried again.
	rewriteEvery = time.Second
	// touchClaims is how often the claims are written again: systemd-tmpfiles removes files in /tmp that nobody has touched for ten days.
	touchClaims = time.Hour
)

// finalCodes are the exit codes after which a workload is not started again. Any other end is a crash.
var finalCodes = map[int]struct {
	state  backend.State
	reason string
}{
	0: {backend.StateExited, "it ended with code 0: done"},
	3: {backend.StateFailed, "it ended with code 3: another incarnation has its place"},
}

// Supervise runs the workload in the folder dir, and starts it again when it crashes, until it ends for good or is
// released. It returns at once and without an error when another supervisor has the folder. A supervisor does not
// outlive its child's end for good, and its child does not outlive it: the kernel kills the child.
func Supervise(dir string) error {
	// The kernel kills the child when the thread that started it ends. This goroutine starts every child, and keeps
	// its thread until the process ends.
	runtime.LockOSThread()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGTERM)
	signal.Ignore(unix.SIGHUP, unix.SIGINT)
	tell, claims := firstWord(), inheritedClaims()
	s, err := openSupervisor(dir, claims)
	if errors.Is(err, errSupervised) {
		tell(readyWord)
		return nil
	}
	if err != nil {
		tell(strings.ReplaceAll(err.Error(), "\n", " "))
		return err
	}
	defer s.lock.Close() // which lets go of the folder
	defer s.freeClaims() // before that: who waits for its end wants its GPUs
	defer s.output.Close()
	tell(readyWord)
	s.run(signals)
	return nil
}

// firstWord gives what sends one line to the plugin that started this supervisor, if one did.
func firstWord() func(string) {
	fd, err := strconv.Atoi(os.Getenv(envReady))
	if err != nil || fd < firstExtra {
		return func(string) {}
	}
	unix.CloseOnExec(fd)
	_ = os.Unsetenv(envReady) // it is not the workload's; it cannot fail for a name that was just read
	pipe := os.NewFile(uintptr(fd), "ready")
	return func(line string) {
		_, _ = fmt.Fprintln(pipe, line) // the plugin may have died meanwhile, which changes nothing here
		pipe.Close()
	}
}

var errSupervised = errors.New("another supervisor has the folder")

// supervisor is the state of one; only the goroutine of Supervise touches it.
type supervisor struct {
	dir    string
	lg     *slog.Logger
	lock   *os.File
	claims []*os.File // of its GPUs
	output *outputLog
	spec   spec
	record record
	stale  bool // the record on disk is not the one above

	backoff time.Duration
}

// openSupervisor takes the folder, ends what an earlier supervisor may have left, and writes the first record.
func openSupervisor(dir string, claims []*os.File) (*supervisor, error) {
	s := &supervisor{dir: dir, claims: claims, lg: slog.New(slog.NewTextHandler(os.Stderr, nil)), backoff: backoffMin}
	var err error
	if s.lock, err = lockSelf(filepath.Join(dir, lockFile)); err != nil {
		return nil, err
	}
	if err := backend.ReadJSON(filepath.Join(dir, specFile), &s.spec); err != nil {
		return nil, fmt.Errorf("read what to run: %w", err)
	}
	if len(s.spec.Argv) == 0 {
		return nil, fmt.Errorf("%s names no program", filepath.Join(dir, specFile))
	}
	var earlier record
	err = backend.ReadJSON(filepath.Join(dir, statusFile), &earlier)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read what became of it: %w", err)
	}
	resumed := err == nil
	if earlier.Final {
		return nil, errSupervised // it has ended for good, which is no less settled than being supervised
	}
	if err := s.checkClaims(); err != nil {
		return nil, err
	}
	for earlier.Child.Alive() { // it dies with its supervisor, by the kernel's hand, but that may take a moment
		if err := signalTo(earlier.Child, unix.SIGKILL); err != nil && !errors.Is(err, errNotThatProcess) {
			return nil, fmt.Errorf("end the process %d that an earlier supervisor left: %w", earlier.Child.PID, err)
		}
		time.Sleep(endingEvery)
	}
	self, err := backend.ProcessOf(os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("find its own start time: %w", err)
	}
	s.record = record{
		Supervisor: self, State: backend.StateStarting,
		Restarts: earlier.Restarts, ExitCode: earlier.ExitCode, Started: earlier.Started, Finished: earlier.Finished,
	}
	interrupted := resumed && earlier.Child != (processID{})
	if interrupted {
		s.record.Restarts++
		s.record.Reason = "its supervisor was killed; a new one starts it again"
	}
	if err := s.writeRecord(); err != nil {
		return nil, fmt.Errorf("write its record: %w", err)
	}
	s.noteClaims()
	if s.output, err = openOutput(filepath.Join(dir, outputFile), maxOutput); err != nil {
		return nil, fmt.Errorf("open its output: %w", err)
	}
	if interrupted {
		s.output.boundary(time.Now(), "its supervisor was killed, and the process with it")
	}
	return s, nil
}

// lockSelf takes the folder's lock for the life of the process. Those that only look hold it for an instant, and
// shared; they are waited for. Who holds it alone is another supervisor.
func lockSelf(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("lock the folder: %w", err)
	}
	for {
		err := backend.Flock(f, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock the folder: %w", err)
		}
		if taken, herr := held(path); herr == nil && taken {
			f.Close()
			return nil, errSupervised
		}
		time.Sleep(time.Millisecond)
	}
}

// writeRecord writes the record into the folder that this supervisor has. Where that was taken away, another one may be in its place, with a process of its
// own: its record is not ours to write.
func (s *supervisor) writeRecord() error {
	if has, err := s.lock.Stat(); err == nil {
		if is, err := os.Stat(filepath.Join(s.dir, lockFile)); err != nil && errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(has, is) {
			s.stale = false
			return nil
		}
	}
	err := instance{dir: s.dir}.writeRecord(s.record)
	s.stale = err != nil
	return err
}

// note writes the record; what cannot be written now is tried again later, and stops nothing.
func (s *supervisor) note() {
	if err := s.writeRecord(); err != nil {
		s.lg.Warn("cannot write the record", "err", err)
	}
}

// released says whether the workload is given up, and how.
func (s *supervisor) released() backend.How {
	how, err := readReleased(s.dir)
	if err != nil {
		s.lg.Warn("cannot read whether it was released", "err", err)
	}
	return how
}

// run starts the child again and again until it is over, and leaves the last record.
func (s *supervisor) run(signals <-chan os.Signal) {
	for {
		if how := s.released(); how != 0 {
			s.finish(backend.StateExited, "released, "+how.String(), true)
			return
		}
		began := time.Now()
		over := s.runOnce(signals)
		if over {
			return
		}
		pause := s.pauseAfter(time.Since(began))
		s.record.State = backend.StateStarting
		s.record.Reason += fmt.Sprintf("; it starts again in %v", pause)
		s.note()
		s.lg.Warn("the workload crashed", "code", s.record.ExitCode, "reason", s.record.Reason)
		again := time.After(pause)
		select {
		case <-signals:
			if s.released() == 0 {
				s.finish(backend.StateExited, "its supervisor was asked to end", false)
				return
			}
		case <-again:
			s.record.Restarts++
		}
	}
}

// pauseAfter gives the pause before the next start, after a child that lived for so long: twice as long each time, and short again after a healthy run.
func (s *supervisor) pauseAfter(lived time.Duration) time.Duration {
	if lived >= healthyRun {
		s.backoff = backoffMin
	}
	pause := s.backoff
	s.backoff = min(2*s.backoff, backoffMax)
	return pause
}

// finish leaves the last record. Unless it is final, the next Ensure starts the workload again. The folder is let go
// of only when the record is on disk, or a person or the disk gives up.
func (s *supervisor) finish(state backend.State, reason string, final bool) {
	s.record.State, s.record.Reason, s.record.Final, s.record.Child = state, reason, final, processID{}
	s.note()
	for tries := 0; s.stale && final && s.released() == 0 && tries < 600; tries++ {
		time.Sleep(rewriteEvery)
		s.note()
	}
	s.lg.Info("the workload is over", "state", string(state), "reason", reason)
}

// runOnce starts the child and waits for its end, passing on requests to stop. over reports whether it must not be
// started again; then the last record is written.
func (s *supervisor) runOnce(signals <-chan os.Signal) (over bool) {
	child, err := s.start()
	if err != nil {
		s.record.ExitCode, s.record.Finished = 127, time.Now().UTC()
		s.record.Reason = fmt.Sprintf("it cannot be started: %v", err)
		s.output.boundary(s.record.Finished, s.record.Reason)
		return false
	}
	asked := false // to stop
	var kill <-chan time.Time
	rewrite := time.NewTicker(rewriteEvery)
	defer rewrite.Stop()
	touch := time.NewTicker(touchClaims)
	defer touch.Stop()
	for {
		select {
		case <-rewrite.C:
			if s.stale {
				s.note()
			}
		case <-touch.C:
			s.noteClaims()
		case <-signals:
			if s.released() == backend.Forced {
				child.killGroup()
				asked = true
				break
			}
			if !asked {
				asked = true
				kill = time.After(s.spec.StopGrace)
				s.record.State, s.record.Reason = backend.StateStopping, "asked to stop"
				s.note()
				child.terminate()
			}
		case <-kill:
			s.lg.Warn("the workload ignored the request to stop and is killed", "grace", s.spec.StopGrace)
			child.killGroup()
		case <-child.ended:
			return s.reap(child, asked)
		}
	}
}

// reap takes note of the child's end and judges it.
func (s *supervisor) reap(child *child, asked bool) (over bool) {
	code, how := child.reap()
	s.record.ExitCode, s.record.Finished, s.record.Child = code, time.Now().UTC(), processID{}
	released := s.released()
	final, isFinal := finalCodes[code]
	switch {
	case released != 0:
		s.finish(backend.StateExited, fmt.Sprintf("released, %s; it ended with %s", released, how), true)
	case asked: // the next Ensure starts it again, under the same ID
		s.output.boundary(s.record.Finished, "its supervisor was asked to end; it ended with "+how)
		s.finish(backend.StateExited, "its supervisor was asked to end; it ended with "+how, false)
	case isFinal:
		s.finish(final.state, final.reason, true)
	default:
		s.record.Reason = "it crashed with " + how
		s.output.boundary(s.record.Finished, s.record.Reason)
		return false
	}
	return true
}

// child is one process of the workload.
type child struct {
	cmd    *exec.Cmd
	out    *os.File      // this side of its output
	copied chan struct{} // closed when its output was read to the end
	ended  chan struct{} // closed when it has ended; it is not reaped then
}

func (s *supervisor) start() (*child, error) {
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(s.spec.Argv[0], s.spec.Argv[1:]...)
	cmd.Dir = filepath.Join(s.dir, backend.AllocFolder)
	cmd.Env = os.Environ()
	for k, v := range s.spec.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.Stdout, cmd.Stderr = outW, outW
	cmd.SysProcAttr = childAttributes()
	err = cmd.Start()
	outW.Close()
	if err != nil {
		outR.Close()
		return nil, err
	}
	c := &child{cmd: cmd, out: outR, copied: make(chan struct{}), ended: make(chan struct{})}
	// Ends when nobody holds the child's output, or when reap closes this side of it.
	go func() {
		defer close(c.copied)
		s.output.copyFrom(outR)
	}()
	// Ends with the child.
	go func() {
		defer close(c.ended)
		if err := awaitExit(cmd.Process.Pid); err != nil {
			s.lg.Error("cannot wait for the workload", "err", err) // reap waits once more, and cannot be mistaken
		}
	}()
	id, err := backend.ProcessOf(cmd.Process.Pid)
	if err != nil { // it has ended already
		id = processID{}
	}
	s.record.Child, s.record.State, s.record.Started, s.record.Reason = id, backend.StateRunning, time.Now().UTC(), ""
	s.noteClaims()
	s.note()
	return c, nil
}

func (c *child) terminate() { _ = c.cmd.Process.Signal(syscall.SIGTERM) } // fails only when it has ended

// killGroup ends the child and what it started. The child is not reaped yet, so the group is its own.
func (c *child) killGroup() { _ = unix.Kill(-c.cmd.Process.Pid, unix.SIGKILL) } // fails only when all have ended

// reap ends what the child left running, and gives its exit code (128+n for signal n), also in words.
func (c *child) reap() (code int, how string) {
	c.killGroup()
	_ = c.cmd.Wait() // the state below tells more than the error
	select {
	case <-c.copied:
	case <-time.After(drainOutput): // something that left the group still holds the output
	}
	c.out.Close()
	<-c.copied
	return backend.ExitCode(c.cmd.ProcessState)
}
