package nomad

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/core/backend"
)

const (
	// followLook is how often it is looked whether what is followed has ended.
	followLook = 2 * time.Second
)

// Logs implements backend.Backend: what the workload wrote on the node where it is or was last.
func (n *nomad) Logs(ctx context.Context, job string, id backend.ID, opts backend.LogOptions) (io.ReadCloser, error) {
	s, err := n.settings(ctx, job)
	if err != nil {
		return nil, err
	}
	p, err := s.look(ctx, job)
	if err != nil {
		return nil, err
	}
	v, there := p.find(id)
	if !there {
		return nil, backend.Errorf(backend.Gone, "read the log of %s of job %q: Nomad has no job for it, or has collected it", id, job)
	}
	a := v.latest()
	if a == nil {
		return io.NopCloser(bytes.NewReader(nil)), nil // it never had a place, so it wrote nothing
	}
	past, offset, err := s.past(ctx, a, opts.Tail)
	if err != nil {
		return nil, failed(err, capLogs, "read the log of %s of job %q on %s", id, job, a.NodeName)
	}
	if !opts.Follow || ended(a) {
		return io.NopCloser(bytes.NewReader(past)), nil
	}
	return n.follow(ctx, s, job, v, past, offset), nil
}

// past gives the last tail lines (0: all, negative: none), and how far into the log that is, in bytes from its start.
func (s settings) past(ctx context.Context, a *api.AllocationListStub, tail int) ([]byte, int64, error) {
	all, err := s.readLog(ctx, a, "start", 0)
	if err != nil {
		return nil, 0, err
	}
	offset := int64(len(all))
	if tail < 0 {
		return nil, offset, nil
	}
	return lastLines(all, tail), offset, nil
}

// lastLines gives the last n lines of text; 0 means all.
func lastLines(text []byte, n int) []byte {
	if n <= 0 {
		return text
	}
	at := len(text)
	if at > 0 && text[at-1] == '\n' {
		at--
	}
	for ; n > 0; n-- {
		i := bytes.LastIndexByte(text[:at], '\n')
		if i < 0 {
			return text
		}
		at = i
	}
	return text[at+1:]
}

// readLog reads what is there now, from the offset on.
func (s settings) readLog(ctx context.Context, a *api.AllocationListStub, origin string, offset int64) ([]byte, error) {
	q, cancel := s.read(ctx)
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	frames, errs := s.client.AllocFS().Logs(&api.Allocation{ID: a.ID, NodeID: a.NodeID}, false, taskName, "stdout", origin, offset, done, q)
	var all []byte
	for {
		select {
		case f, open := <-frames:
			if !open && frames != nil {
				return all, nil
			}
			if f != nil {
				all = append(all, f.Data...)
			}
		case err := <-errs:
			if absent(err) {
				return all, nil // it has not written anything yet
			}
			return nil, err
		case <-q.Context().Done():
			return nil, q.Context().Err()
		}
	}
}

// absent reports whether there is no log yet.
func absent(err error) bool {
	if notFound(err) {
		return true
	}
	var answer api.UnexpectedResponseError
	return errors.As(err, &answer) && bytes.Contains([]byte(answer.Body()), []byte("not started yet"))
}

// follow gives the past and then what comes, until the reader is closed, ctx ends or the workload is gone.
func (n *nomad) follow(ctx context.Context, s settings, job string, v view, past []byte, offset int64) io.ReadCloser {
	ctx, cancel := context.WithCancel(ctx)
	r, w := io.Pipe()
	// Ends when the reader is closed (a write fails), with ctx, or with the workload; owns w.
	go func() {
		defer cancel()
		w.CloseWithError(n.copyLog(ctx, s, job, v, past, offset, w))
	}()
	return &followed{PipeReader: r, cancel: cancel}
}

// followed is a log that is being followed.
type followed struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (f *followed) Close() error {
	f.cancel()
	return f.PipeReader.Close()
}

// followEvery is the pause between two looks at a log's end.
const followEvery = 300 * time.Millisecond

// copyLog polls: Nomad's own following never ends when the workload does.
func (n *nomad) copyLog(ctx context.Context, s settings, job string, v view, past []byte, offset int64, w io.Writer) error {
	if _, err := w.Write(past); err != nil {
		return nil // the reader was closed
	}
	a, looked := v.latest(), time.Now()
	for last := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followEvery):
		}
		text, err := s.readLog(ctx, a, "start", offset)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return failed(err, capLogs, "follow the log of %s", v.id)
		}
		offset += int64(len(text))
		if _, err := w.Write(text); err != nil {
			return nil
		}
		if last {
			return nil
		}
		if time.Since(looked) < followLook {
			continue
		}
		looked = time.Now()
		p, err := s.look(ctx, job)
		if err != nil {
			continue // unknown is not gone
		}
		now, there := p.find(v.id)
		last = !there || now.over() || now.latest() != nil && ended(now.latest()) && (now.latest().ID == a.ID)
	}
}
