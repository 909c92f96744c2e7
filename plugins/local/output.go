package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// maxOutput bounds the newer part of a workload's output, in bytes; the older part is as long at most.
const maxOutput = 8 << 20

// olderOutput is the name of the older part.
func olderOutput(path string) string { return path + ".1" }

// outputLog keeps what a workload writes. Writing never fails for the workload: what the disk does not take is
// counted, and the count is written down when the disk takes it again.
type outputLog struct {
	path    string
	limit   int64
	open    func(path string, truncate bool) (io.WriteCloser, error) // a seam for tests
	file    io.WriteCloser
	size    int64
	midLine bool // what was written last did not end its line
	dropped int64
	why     error
}

func openOutput(path string, limit int64) (*outputLog, error) {
	o := &outputLog{path: path, limit: limit, open: openOutputFile}
	var err error
	if o.file, err = o.open(path, false); err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err == nil {
		o.size = info.Size()
		o.midLine = o.size > 0 // it is not known; an empty line too many does no harm
	}
	return o, nil
}

// boundary writes the line that parts the output of a process that ended from that of the next one (backend.LogBoundary). Nothing else writes meanwhile.
func (o *outputLog) boundary(at time.Time, why string) {
	line := backend.LogBoundary + at.UTC().Format(time.RFC3339) + " " + why + "\n"
	if o.midLine {
		line = "\n" + line
	}
	o.write([]byte(line))
}

func openOutputFile(path string, truncate bool) (io.WriteCloser, error) {
	flags := os.O_CREATE | os.O_APPEND | os.O_WRONLY
	if truncate {
		flags |= os.O_TRUNC
	}
	return os.OpenFile(path, flags, 0o600)
}

// copyFrom copies r until its end.
func (o *outputLog) copyFrom(r io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			o.write(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

func (o *outputLog) write(p []byte) {
	if o.size > 0 && o.size+int64(len(p)) > o.limit {
		o.rotate()
	}
	if o.dropped > 0 {
		note := fmt.Appendf(nil, "[kale: %d bytes of output were lost: %v]\n", o.dropped, o.why)
		if n, err := o.file.Write(note); err == nil {
			o.dropped, o.size = 0, o.size+int64(n)
		}
	}
	n, err := o.file.Write(p)
	o.size += int64(n)
	if n > 0 {
		o.midLine = p[n-1] != '\n'
	}
	if err != nil {
		o.dropped, o.why = o.dropped+int64(len(p)-n), err
	}
}

// rotate makes the newer part the older one. When that fails, the newer part begins anew in place: the bound holds.
func (o *outputLog) rotate() {
	renamed := os.Rename(o.path, olderOutput(o.path)) == nil
	file, err := o.open(o.path, !renamed)
	if err != nil {
		o.why = err
		return // goes on in the old file, beyond its limit until a file can be opened
	}
	o.file.Close()
	o.file, o.size = file, 0
}

func (o *outputLog) Close() { o.file.Close() }

// Logs implements backend.Backend.
func (l *local) Logs(ctx context.Context, job string, id backend.ID, opts backend.LogOptions) (io.ReadCloser, error) {
	s, err := l.at(ctx, job)
	if err != nil {
		return nil, err
	}
	inst := s.root().instance(job, id)
	if id.Validate() != nil {
		return nil, backend.Errorf(backend.Gone, "read the log of %s of job %q: there is no such workload", id, job)
	}
	if _, err := os.Stat(inst.dir); errors.Is(err, fs.ErrNotExist) {
		return nil, backend.Errorf(backend.Gone, "read the log of %s of job %q: it never was, or its folder was removed", id, job)
	}
	return openLog(ctx, inst, opts)
}

// openLog opens an instance's output, both parts, at the line that opts asks for.
func openLog(ctx context.Context, inst instance, opts backend.LogOptions) (io.ReadCloser, error) {
	path := filepath.Join(inst.dir, outputFile)
	failed := func(err error) error {
		return backend.Errorf(backend.FileCode(err), "read the log of %s of job %q: %w", inst.id, inst.job, err)
	}
	older, err := os.ReadFile(olderOutput(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, failed(err)
	}
	file, err := os.Open(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, failed(err)
	}
	var newer []byte
	if err == nil {
		if newer, err = io.ReadAll(file); err != nil {
			file.Close()
			return nil, failed(err)
		}
	} else {
		file = nil
	}
	past := lastLines(append(older, newer...), opts.Tail)
	if !opts.Follow {
		if file != nil {
			file.Close()
		}
		return io.NopCloser(bytes.NewReader(past)), nil
	}
	r, w := io.Pipe()
	// Ends with ctx, the reader or the workload; owns w and file.
	go func() {
		_, err := w.Write(past)
		if err == nil {
			err = follow(ctx, inst, path, file, w)
		} else if file != nil {
			file.Close()
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
	end := len(text)
	at := bytes.TrimSuffix(text, []byte("\n"))
	for ; n > 0; n-- {
		i := bytes.LastIndexByte(at, '\n')
		if i < 0 {
			return text
		}
		at = at[:i]
	}
	return text[len(at)+1 : end]
}

// followEvery is how often a followed output is looked at.
const followEvery = 100 * time.Millisecond

// follow copies what is added to the file at path, through rotations, until the workload is over. file is where the
// past was read from, at its end; nil when there was none yet.
func follow(ctx context.Context, inst instance, path string, file *os.File, w io.Writer) (err error) {
	defer func() {
		if file != nil {
			file.Close()
		}
	}()
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		v := inst.look() // before the copy: what was written before its end is copied after
		alive := v.held || !v.over() && v.broken == nil
		if file != nil {
			if _, err := io.Copy(w, file); err != nil {
				return err
			}
		}
		now, err := os.Open(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case file == nil || !sameFile(file, now):
			if file != nil {
				_, err = io.Copy(w, file) // what came before the rotation, after the copy above
				file.Close()
			}
			if file = now; err != nil {
				return err
			}
			continue
		default:
			now.Close()
		}
		if !alive {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func sameFile(a, b *os.File) bool {
	ia, errA := a.Stat()
	ib, errB := b.Stat()
	return errA == nil && errB == nil && os.SameFile(ia, ib)
}
