package slurm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// Logs implements backend.Backend: it reads the workload's output in the shared folder.
func (s *slurm) Logs(ctx context.Context, name string, id backend.ID, opts backend.LogOptions) (io.ReadCloser, error) {
	j, err := s.job(ctx, name)
	if err != nil {
		return nil, err
	}
	if id.Validate() != nil {
		return nil, backend.Errorf(backend.Gone, "read the log of %s of job %q: there is no such workload", id, name)
	}
	inst := j.instance(id)
	if _, err := os.Stat(inst.dir); errors.Is(err, fs.ErrNotExist) {
		return nil, backend.Errorf(backend.Gone, "read the log of %s of job %q: it never was, or its folder was removed", id, name)
	}
	past, err := os.ReadFile(inst.path(outputFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, backend.Errorf(failureCode(err), "read the log of %s of job %q: %w", id, name, err)
	}
	at := int64(len(past))
	past = lastLines(past, opts.Tail)
	if !opts.Follow {
		return io.NopCloser(bytes.NewReader(past)), nil
	}
	r, w := io.Pipe()
	// Ends with ctx, the reader, the workload or Close; owns w.
	go func() {
		_, err := w.Write(past)
		if err == nil {
			err = s.follow(ctx, j, inst, at, w)
		}
		w.CloseWithError(err)
	}()
	return r, nil
}

// lastLines gives the last n lines of text: all of it for n = 0, none for a negative n.
func lastLines(text []byte, n int) []byte {
	switch {
	case n == 0:
		return text
	case n < 0:
		return nil
	}
	at := bytes.TrimSuffix(text, []byte("\n"))
	for ; n > 0; n-- {
		i := bytes.LastIndexByte(at, '\n')
		if i < 0 {
			return text
		}
		at = at[:i]
	}
	return text[len(at)+1:]
}

// followEvery is how often a followed output is looked at.
const followEvery = 200 * time.Millisecond

// follow copies what is added to the instance's output after the offset, until the workload is over. The file is opened anew each time: that is what
// makes a file system over the network look again.
func (s *slurm) follow(ctx context.Context, j *job, inst instance, at int64, w io.Writer) error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		alive := inst.alive(j.queue.poll(ctx, j.queue.freshness())) // before the copy: what was written before its end is copied after
		n, err := copyFrom(inst.path(outputFile), at, w)
		at += n
		if err != nil || !alive {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.closed:
			return nil
		case <-tick.C:
		}
	}
}

// alive reports whether the instance may still write.
func (i instance) alive(snap snapshot) bool {
	v := i.look(snap)
	if v.broken != nil {
		return !errors.Is(v.broken, fs.ErrNotExist)
	}
	if v.verdict != nil || v.report.over() {
		return false
	}
	return !(v.inQueue && v.row.phase() == phaseOver && !v.awaitsLastWord())
}

func copyFrom(path string, at int64, w io.Writer) (int64, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() < at { // somebody emptied it
		return 0, nil
	}
	if _, err := f.Seek(at, io.SeekStart); err != nil {
		return 0, err
	}
	return io.Copy(w, f)
}
