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
	followLook = 1 * time.Second
)

// Logs implements backend.Backend: what the workload wrote on the node where it is or was last.
func (n *nomad) Logs(ctx context.Context, job string, id backend.ID, opts backend.LogOptions) (io.ReadCloser, error) {
	s, err := n.jobs.Of(ctx, job)
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

const (
	// settle is how long nothing must have come after the workload's end for its log to be complete.
	settle = time.Second
	// again is the pause after a stream that broke: the client is being restarted, or the server.
	again = time.Second
)

// copyLog gives the past and then Nomad's stream, which copes with rotated files but never ends when the workload does:
// that is looked for here.
func (n *nomad) copyLog(ctx context.Context, s settings, job string, v view, past []byte, offset int64, w io.Writer) error {
	if _, err := w.Write(past); err != nil {
		return nil // the reader was closed
	}
	a := v.latest()
	for {
		got, done, err := n.copyStream(ctx, s, job, a, v.id, offset, w)
		offset += got
		if done || ctx.Err() != nil {
			return err
		}
		n.lg.Debug("the stream of a log broke; it is taken up again", "nomad_job", a.JobID, "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(again):
		}
	}
}

// copyStream copies one stream of the log from the offset on, and says how much that was, and whether it is all there is.
func (n *nomad) copyStream(ctx context.Context, s settings, job string, a *api.AllocationListStub, id backend.ID, offset int64, w io.Writer) (got int64, done bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	stop := make(chan struct{})
	q := (&api.QueryOptions{Namespace: s.namespace}).WithContext(ctx)
	frames, errs := s.client.AllocFS().Logs(&api.Allocation{ID: a.ID, NodeID: a.NodeID}, true, taskName, "stdout", "start", offset, stop, q)
	defer n.letGo(frames, errs)
	defer cancel()
	defer close(stop)
	look, over, last := time.NewTicker(followLook), false, time.Now()
	defer look.Stop()
	for {
		select {
		case f, open := <-frames:
			if !open && frames != nil {
				return got, false, nil
			}
			if f == nil {
				continue
			}
			last = time.Now()
			if _, err := w.Write(f.Data); err != nil {
				return got, true, nil // the reader was closed
			}
			got += int64(len(f.Data))
		case err := <-errs:
			return got, over, err
		case <-look.C:
			over = over || n.hasEnded(ctx, s, job, id, a)
			if over && time.Since(last) > settle {
				return got, true, nil
			}
		case <-ctx.Done():
			return got, true, nil
		}
	}
}

// hasEnded reports whether what writes the log has ended. Unknown is not ended.
func (n *nomad) hasEnded(ctx context.Context, s settings, job string, id backend.ID, a *api.AllocationListStub) bool {
	p, err := s.look(ctx, job)
	if err != nil {
		return false
	}
	v, there := p.find(id)
	if !there || v.over() {
		return true
	}
	now := v.latest()
	return now != nil && now.ID == a.ID && ended(now)
}

// letGo takes what the API's goroutine still has to say after its stream was cancelled, so that it ends.
func (n *nomad) letGo(frames <-chan *api.StreamFrame, errs <-chan error) {
	if frames == nil {
		return // it never began
	}
	go func() { // ends with the API's goroutine, whose context is over
		for {
			select {
			case _, open := <-frames:
				if !open {
					return
				}
			case err := <-errs:
				n.lg.Debug("the stream of a log has ended", "err", err)
				return
			}
		}
	}()
}
