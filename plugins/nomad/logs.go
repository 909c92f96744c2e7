package nomad

import (
	"bytes"
	"context"
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
	all, err := s.readLog(ctx, a)
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
	defer cancel()
	q := (&api.QueryOptions{Namespace: s.namespace}).WithContext(ctx)
	r, err := s.openLog(q, a, true, offset)
	if err != nil {
		return 0, false, err
	}
	defer r.Close()
	pieces, broken := make(chan []byte), make(chan error, 1)
	// Ends with the stream, or with ctx, which ends the stream; it writes to both channels.
	go func() {
		broken <- eachFrame(r, func(piece []byte) bool {
			select {
			case pieces <- piece:
				return true
			case <-ctx.Done():
				return false
			}
		})
	}()
	look, over, last := time.NewTicker(followLook), false, time.Now()
	defer look.Stop()
	for {
		select {
		case piece := <-pieces:
			last = time.Now()
			if _, err := w.Write(piece); err != nil {
				return got, true, nil // the reader was closed
			}
			got += int64(len(piece))
		case err := <-broken:
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
