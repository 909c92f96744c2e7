package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kale-sched/kale/core/stream"
)

const (
	readyWithin = 2 * time.Minute
	readyPoll   = 50 * time.Millisecond
	stopWithin  = 10 * time.Second // after SIGTERM, before SIGKILL
)

// Cluster is one broker in a process of its own, which lives as long as its test unless it is killed. Its address and
// data stay the same through Kill9 and Restart. Methods are for the goroutine of the test; what fails ends the test.
type Cluster struct {
	t      testing.TB
	kind   string
	addr   string
	proxy  string           // what it tells clients to connect to; empty means addr
	launch func() *exec.Cmd // a new command for the same address and data

	proc *process
}

// Kind says which broker it is: "kafka" or "embedded".
func (c *Cluster) Kind() string { return c.kind }

// Brokers is where clients connect, as a list of seeds.
func (c *Cluster) Brokers() []string {
	if c.proxy != "" {
		return []string{c.proxy}
	}
	return []string{c.addr}
}

// Listens is where the broker itself is, behind whatever proxy.
func (c *Cluster) Listens() string { return c.addr }

// Client is Brokers as options of a franz-go client, one that takes a killed broker for what it is: without
// AlwaysRetryEOF a connection that ends at its first answer is taken for a lack of SASL, and not retried.
func (c *Cluster) Client() []kgo.Opt {
	return []kgo.Opt{kgo.SeedBrokers(c.Brokers()...), kgo.AlwaysRetryEOF()}
}

// Pid is the broker's process; 0 while it is killed.
func (c *Cluster) Pid() int {
	if c.proc == nil {
		return 0
	}
	return c.proc.cmd.Process.Pid
}

// CreateTopics creates topics.
func (c *Cluster) CreateTopics(topics ...stream.TopicSpec) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), readyWithin)
	defer cancel()
	if err := stream.EnsureTopics(ctx, c.Client(), topics); err != nil {
		c.t.Fatalf("kafkatest: %v", err)
	}
}

// Kill9 kills the broker with SIGKILL and waits for its end.
func (c *Cluster) Kill9() {
	c.t.Helper()
	if c.proc == nil {
		c.t.Fatalf("kafkatest: the %s broker is not running", c.kind)
	}
	c.proc.kill()
	c.proc = nil
}

// Restart starts the broker again after Kill9, at the same address with the same data, and waits until it answers.
func (c *Cluster) Restart() {
	c.t.Helper()
	if c.proc != nil {
		c.t.Fatalf("kafkatest: the %s broker is still running", c.kind)
	}
	if err := c.start(); err != nil {
		c.t.Fatalf("kafkatest: restart the %s broker: %v", c.kind, err)
	}
}

// Suspend stops the broker with SIGSTOP, Resume lets it go on.
func (c *Cluster) Suspend() {
	c.t.Helper()
	c.signal(syscall.SIGSTOP)
	// The signal takes hold a moment later: until then the broker would still answer.
	stat := fmt.Sprintf("/proc/%d/stat", c.Pid())
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		raw, err := os.ReadFile(stat)
		if err != nil {
			return // not Linux: there is nothing to look at
		}
		if _, state, ok := strings.Cut(string(raw), ") "); ok && strings.HasPrefix(state, "T") {
			return
		}
	}
	c.t.Fatalf("kafkatest: the %s broker was sent SIGSTOP and still runs", c.kind)
}

// Resume lets a suspended broker go on.
func (c *Cluster) Resume() { c.signal(syscall.SIGCONT) }

func (c *Cluster) signal(s syscall.Signal) {
	c.t.Helper()
	if c.proc == nil {
		c.t.Fatalf("kafkatest: the %s broker is not running", c.kind)
	}
	if err := c.proc.cmd.Process.Signal(s); err != nil {
		c.t.Fatalf("kafkatest: send %s to the %s broker: %v", s, c.kind, err)
	}
}

// start launches the process and waits until it serves.
func (c *Cluster) start() error {
	p, err := launch(c.launch())
	if err != nil {
		return err
	}
	if err := p.waitReady(c.addr); err != nil {
		p.kill()
		return err
	}
	c.proc = p
	return nil
}

// stop ends the broker: SIGTERM, and SIGKILL if it does not end.
func (c *Cluster) stop() {
	if c.proc == nil {
		return
	}
	p := c.proc
	c.proc = nil
	select {
	case <-p.done: // whatever failed, this may be why
		c.t.Logf("kafkatest: the %s broker at %s had ended by itself (%v); it said last: %s", c.kind, c.addr, p.cmd.ProcessState, p.out)
	default:
	}
	_ = p.cmd.Process.Signal(syscall.SIGCONT) // in case it is suspended; it may be gone already
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopWithin):
		p.kill()
	}
}

// process is a started command, with its output kept.
type process struct {
	cmd  *exec.Cmd
	out  *tail
	done chan struct{} // closed when it has ended
}

// launch starts a command that dies with this process (where the system can do that). Its goroutine owns the command's
// end and stays on the thread that started it, because Linux ties the child's death signal to that thread.
func launch(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, out: &tail{}, done: make(chan struct{})}
	cmd.Stderr = p.out
	if cmd.Stdout == nil {
		cmd.Stdout = p.out
	}
	if _, err := cmd.StdinPipe(); err != nil { // never written: its end tells the child that this process is gone
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	dieWithParent(cmd)
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer close(p.done)
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		_ = cmd.Wait() // how it ended is of no interest
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// waitReady waits until the broker at addr answers a metadata request that names it as the only broker.
func (p *process) waitReady(addr string) error {
	ctx, cancel := context.WithTimeout(context.Background(), readyWithin)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RetryTimeout(2*time.Second), kgo.RequestRetries(0),
		kgo.DialTimeout(2*time.Second), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	for {
		err := answers(ctx, cl)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("the broker ended before it answered; it said:\n%s", p.out)
		case <-ctx.Done():
			return fmt.Errorf("the broker did not answer within %v: %w; it said:\n%s", readyWithin, err, p.out)
		case <-time.After(readyPoll):
		}
	}
}

// tail keeps the last 64 KiB that a process wrote.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (w *tail) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf = append(w.buf, b...)
	if over := len(w.buf) - 64<<10; over > 0 {
		w.buf = append(w.buf[:0], w.buf[over:]...)
	}
	return len(b), nil
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.buf) == 0 {
		return "(nothing)"
	}
	return strings.TrimSpace(string(w.buf))
}

// answers asks for metadata until the broker is named in it: Kafka leaves out brokers that may not serve yet.
func answers(ctx context.Context, cl *kgo.Client) error {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	if len(resp.Brokers) == 0 || resp.ControllerID < 0 {
		return errors.New("no broker is named in the metadata yet")
	}
	return nil
}

// freeAddr finds a port that is free now.
func freeAddr() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	addr := ln.Addr().String()
	return addr, ln.Close()
}

// startTries is how often a port is chosen anew where another process took it first.
const startTries = 3
