package probe

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kale-sched/kale/cmd/internal/about"
	"github.com/kale-sched/kale/cmd/internal/folder"
	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer"
)

const (
	// lookEvery is how often a probe looks for the others' files.
	lookEvery = 250 * time.Millisecond
	// callTimeout bounds one call to another probe, or to the scheduler's address.
	callTimeout = 5 * time.Second
	// Most is how many probes a run can have.
	Most = 4
)

// Options say which probe this is.
type Options struct {
	Spec      *rpc.TrainSpec
	Run       string
	Index     int
	Interface string // in place of the specification's
	Out       io.Writer
}

// note is what a probe's file holds.
type note struct {
	Run     string    `json:"run"`
	Index   int       `json:"index"`
	Host    string    `json:"host"`
	Address string    `json:"address"` // HOST:PORT where it answers; "" when it cannot listen
	Written time.Time `json:"written"` // by its clock
}

// look is one probe at work.
type look struct {
	Options
	dir  string
	mu   sync.Mutex
	err  error // of writing to Out
	seen map[int]bool
}

// Run tries the node, and goes on looking for the files of the other probes of the run until ctx ends. It removes what it has written. The error is for
// output that could not be written; what is wrong with the node is in the output.
func Run(ctx context.Context, o Options) error {
	if o.Run == "" || o.Run != filepath.Base(o.Run) || o.Index < 0 || o.Index >= Most {
		return fmt.Errorf("probe: run %q and index %d are none: kale doctor starts probes", o.Run, o.Index)
	}
	l := &look{Options: o, dir: Folder(o.Spec.GetCheckpointDir(), o.Run), seen: map[int]bool{}}
	var work sync.WaitGroup
	defer work.Wait()
	defer l.clear()  // before the library has answered: who asks to end may not wait for that
	work.Go(func() { // a crash in the library ends the process: what was said before stays in the log
		v := about.This(onnx.CPU, os.Getenv(onnx.LibraryEnv))
		l.say(Line{Compute: &v})
		if WantsCUDA(o.Spec) && v.ONNX != "" {
			l.say(Line{CUDA: tryCUDA()})
		}
	})
	lis, err := trainer.Listen(ctx, o.Spec, o.Interface)
	n := Network{}
	own := note{Run: o.Run, Index: o.Index}
	own.Host, _ = os.Hostname() // only for people
	if err != nil {
		n.ListenError = err.Error()
	} else {
		n.Listen, own.Address = lis.Addr().String(), lis.Addr().String()
		work.Go(func() { answer(lis, o.Run) })
	}
	work.Go(func() { l.reach(ctx, n) })
	if lis != nil {
		defer func() { _ = lis.Close() }() // ends answer
	}
	l.begin(own)
	for {
		l.others(ctx, own)
		select {
		case <-ctx.Done():
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.err
		case <-time.After(lookEvery):
		}
	}
}

// WantsCUDA says whether a job's workers compute on GPUs: a counting job computes nothing.
func WantsCUDA(spec *rpc.TrainSpec) bool {
	return spec.GetWorker().GetDevice() == onnx.CUDA && spec.GetModel().GetKind() != trainer.KindCounting
}

func tryCUDA() *CUDA {
	if _, err := onnx.Try("", onnx.CUDA); err != nil {
		return &CUDA{Error: err.Error()}
	}
	return &CUDA{}
}

// say writes a line.
func (l *look) say(line Line) {
	line.Run = l.Run
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := json.NewEncoder(l.Out).Encode(line); err != nil {
		l.err = errors.Join(l.err, fmt.Errorf("probe: %w", err))
	}
}

// answer tells whoever calls the run's name and this machine's time, until lis is closed.
func answer(lis net.Listener, run string) {
	for {
		conn, err := lis.Accept()
		if err != nil {
			return
		}
		_ = conn.SetDeadline(time.Now().Add(callTimeout))
		_, _ = fmt.Fprintf(conn, "%s %d\n", run, time.Now().UnixNano()) // a failure shows on the other side
		_ = conn.Close()
	}
}

// call asks at an address: what it says first, by when of its clock (zero when it does not tell), and how much that is ahead of this one.
func call(ctx context.Context, address string) (says string, offset *float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = conn.Close() }()
	connected := time.Now()
	_ = conn.SetReadDeadline(connected.Add(time.Second)) // who is not of the run says nothing
	line, _ := bufio.NewReader(io.LimitReader(conn, 200)).ReadString('\n')
	heard := time.Now()
	says, at, _ := strings.Cut(strings.TrimSpace(line), " ")
	if nanos, err := strconv.ParseInt(at, 10, 64); err == nil {
		middle := connected.Add(heard.Sub(connected) / 2)
		ahead := time.Unix(0, nanos).Sub(middle).Seconds()
		offset = &ahead
	}
	return says, offset, nil
}

// reach calls whom a process of the job calls.
func (l *look) reach(ctx context.Context, n Network) {
	reached, err := trainer.ReachBrokers(ctx, l.Spec)
	n.BrokerError = map[string]string{}
	if err != nil {
		n.BrokerError[""] = err.Error()
	}
	for _, r := range reached {
		if r.Err != nil {
			n.BrokerError[r.Address] = r.Err.Error()
			continue
		}
		n.Brokers++
	}
	if at := l.Spec.GetNetwork().GetRendezvous(); at != "" {
		if n.Meet, _, err = call(ctx, at); err != nil {
			n.MeetError = err.Error()
		}
	}
	if ctx.Err() == nil { // else it was cut short
		l.say(Line{Network: &n})
	}
}

// begin makes the folder and writes this probe's file for the first time.
func (l *look) begin(own note) {
	w := Wrote{Host: own.Host}
	err := l.makeFolder()
	if err == nil {
		err = l.write(own)
	}
	if err != nil {
		w.Error = err.Error()
	} else if free, err := roomIn(l.dir); err == nil {
		w.Free = free
	}
	l.say(Line{Wrote: &w})
}

func (l *look) makeFolder() error {
	if l.Spec.GetCheckpointDir() == "" {
		return errors.New("the specification names no checkpoint folder")
	}
	made, err := folder.Make(l.dir)
	if err != nil {
		made.Remove()
		return err
	}
	if len(made) == 0 {
		return nil
	}
	raw, err := json.Marshal(made)
	if err != nil {
		return err
	}
	says := filepath.Join(l.dir, madePrefix+strconv.Itoa(l.Index))
	if err := os.WriteFile(says, raw, 0o600); err != nil { // as on a full disk: nobody would know what is to be taken away
		_ = os.Remove(says)
		made.Remove()
		return err
	}
	return nil
}

// madePrefix begins the names of the files in a run's folder that say which folders a probe has made for it: whoever is the last there takes them away.
const madePrefix = ".made-"

func file(dir string, index int) string { return filepath.Join(dir, strconv.Itoa(index)+".json") }

// write puts this probe's file in its place, as snapshots are written: draft, durable, renamed.
func (l *look) write(own note) error {
	own.Written = time.Now()
	raw, err := json.Marshal(own)
	if err != nil {
		return err
	}
	draft := filepath.Join(l.dir, fmt.Sprintf(".%d", own.Index))
	f, err := os.OpenFile(draft, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(draft, file(l.dir, own.Index))
}

// others looks for the files of the others that have not been seen. A file server's client may remember that there was none: writing in the folder
// makes it look again.
func (l *look) others(ctx context.Context, own note) {
	for i := range Most {
		if i == l.Index || l.seen[i] {
			continue
		}
		raw, err := os.ReadFile(file(l.dir, i))
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				l.seen[i] = true
				l.say(Line{Saw: &Saw{Index: i, Wrong: err.Error()}})
			}
			continue
		}
		l.seen[i] = true
		l.say(Line{Saw: l.read(ctx, i, raw)})
	}
	_ = l.write(own) // begin has said whether it can
}

// read judges the file of another probe, and calls the one who wrote it.
func (l *look) read(ctx context.Context, i int, raw []byte) *Saw {
	s := &Saw{Index: i}
	var other note
	if err := json.Unmarshal(raw, &other); err != nil || other.Run != l.Run || other.Index != i {
		s.Wrong = fmt.Sprintf("it reads %.100q", raw)
		return s
	}
	if other.Address == "" {
		return s
	}
	says, offset, err := call(ctx, other.Address)
	switch {
	case err != nil:
		s.DialError = err.Error()
	case says != l.Run:
		s.DialError = fmt.Sprintf("dial %s: somebody else answers there", other.Address)
	default:
		s.Offset = offset
	}
	return s
}

// clear removes this probe's files; the last probe of a folder removes also the folders that one of them made, and that are empty by now.
func (l *look) clear() {
	_ = os.Remove(filepath.Join(l.dir, fmt.Sprintf(".%d", l.Index)))
	_ = os.Remove(file(l.dir, l.Index))
	left, err := os.ReadDir(l.dir)
	if err != nil {
		return // another one was the last
	}
	made := folder.Made{l.dir}
	for _, f := range left {
		if !strings.HasPrefix(f.Name(), madePrefix) {
			return // another one is at work
		}
		var theirs folder.Made
		if raw, err := os.ReadFile(filepath.Join(l.dir, f.Name())); err == nil && json.Unmarshal(raw, &theirs) == nil {
			made = append(made, theirs...)
		}
	}
	for _, f := range left {
		_ = os.Remove(filepath.Join(l.dir, f.Name()))
	}
	slices.SortStableFunc(made, func(a, b string) int { return len(b) - len(a) }) // the deepest first
	made.Remove()
}
