package backend

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"
)

// This file has what a backend needs whose cluster tells little or nothing by itself: it looks again and again.

// lister is the part of a Backend that WatchByList needs.
type lister interface {
	List(ctx context.Context, job string) (statuses []Status, complete bool, err error)
}

// WatchByList is a Watch that lists the job again and again, every so often and whenever there is a hint, and tells what has changed: new workloads, new
// states, and what is listed no more, as exited. A list that fails is left out, and what is absent from one that is not complete stays as it was. hints is
// for a cluster that says when to look; nil where it does not. The channel is closed when ctx ends.
func WatchByList(ctx context.Context, b lister, job string, every time.Duration, hints <-chan struct{}) <-chan Event {
	events := make(chan Event)
	// Ends with ctx; owns events.
	go func() {
		defer close(events)
		tick := time.NewTicker(every)
		defer tick.Stop()
		seen := map[ID]State{}
		for {
			if statuses, complete, err := b.List(ctx, job); err == nil { // otherwise it shows in the caller's own List
				now := map[ID]State{}
				if !complete {
					maps.Copy(now, seen)
				}
				for _, st := range statuses {
					now[st.ID] = st.State
				}
				for _, e := range changes(seen, now) {
					select {
					case events <- e:
					case <-ctx.Done():
						return
					}
				}
				seen = now
			}
			select {
			case <-tick.C:
			case <-hints:
			case <-ctx.Done():
				return
			}
		}
	}()
	return events
}

// changes gives what is new or other in now, and what has gone from it, as exited, ordered by ID.
func changes(seen, now map[ID]State) []Event {
	var out []Event
	for id, state := range now {
		if seen[id] != state {
			out = append(out, Event{ID: id, State: state})
		}
	}
	for id := range seen {
		if _, there := now[id]; !there {
			out = append(out, Event{ID: id, State: StateExited})
		}
	}
	slices.SortFunc(out, func(a, b Event) int { return a.ID.Compare(b.ID) })
	return out
}

// logEvery is how often a file that is followed is read again.
const logEvery = 100 * time.Millisecond

// OlderLog gives the name of the older part of the log at path, where whoever bounds it keeps one: it moved there what was in it and cut it off in place.
func OlderLog(path string) string { return path + ".1" }

// ReadLogFile is a Logs for a backend whose workloads write into plain files, of which OlderLog may be an older part. With opts.Follow it goes on for as long
// as live says that more may come, also when the file is cut off meanwhile. A file that is not there is Gone.
func ReadLogFile(ctx context.Context, path string, opts LogOptions, live func(context.Context) bool) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil {
		code := Unavailable
		if errors.Is(err, fs.ErrNotExist) {
			code = Gone
		}
		return nil, Errorf(code, "read a log: %w", err)
	}
	l := &logFile{path: path, newer: f}
	past, err := l.past(opts.Tail)
	if err != nil {
		f.Close()
		return nil, Errorf(Unavailable, "read a log: %w", err)
	}
	if !opts.Follow {
		return struct {
			io.Reader
			io.Closer
		}{past, f}, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	r, w := io.Pipe()
	// Ends with ctx, which the reader's Close ends, or the workload; owns f and w.
	go func() {
		defer f.Close()
		_, err := io.Copy(w, past)
		for err == nil {
			more := live(ctx) // asked first: what is read after the end is all
			if err = l.follow(w); err != nil || !more || ctx.Err() != nil {
				break
			}
			select {
			case <-ctx.Done():
			case <-time.After(logEvery):
			}
		}
		w.CloseWithError(err)
	}()
	return &follower{PipeReader: r, cancel: cancel}, nil
}

// logFile is a log with its older part.
type logFile struct {
	path  string
	older []byte
	newer *os.File
	at    int64 // how much of newer was read
}

// ReadAt implements io.ReaderAt over both parts.
func (l *logFile) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	if off < int64(len(l.older)) {
		n = copy(p, l.older[off:])
	}
	if n == len(p) {
		return n, nil
	}
	more, err := l.newer.ReadAt(p[n:], off+int64(n)-int64(len(l.older)))
	return n + more, err
}

// past gives the last lines of what is there now.
func (l *logFile) past(tail int) (io.Reader, error) {
	var err error
	if l.older, err = os.ReadFile(OlderLog(l.path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if l.at, err = l.newer.Seek(0, io.SeekEnd); err != nil {
		return nil, err
	}
	end := int64(len(l.older)) + l.at
	from, err := tailStart(l, end, tail)
	return io.NewSectionReader(l, from, end-from), err
}

// follow copies what was added since. When the file was cut off meanwhile, what came before the cut is in the older part, at the same place.
func (l *logFile) follow(w io.Writer) error {
	info, err := l.newer.Stat()
	if err != nil {
		return err
	}
	if info.Size() < l.at {
		if older, err := os.ReadFile(OlderLog(l.path)); err == nil && int64(len(older)) > l.at {
			if _, err := w.Write(older[l.at:]); err != nil {
				return err
			}
		}
		if l.at, err = l.newer.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
	n, err := io.Copy(w, l.newer)
	l.at += n
	return err
}

// LiveByList is a live for ReadLogFile: it says false once the workload is listed as ended, or no more. What cannot be told may go on.
func LiveByList(b lister, job string, id ID) func(context.Context) bool {
	return func(ctx context.Context) bool {
		statuses, complete, err := b.List(ctx, job)
		i := slices.IndexFunc(statuses, func(st Status) bool { return st.ID == id })
		if err != nil || i < 0 {
			return ctx.Err() == nil && (err != nil || !complete)
		}
		return statuses[i].State.Live()
	}
}

// PartLog writes the line with LogBoundary into the log of a process that ended, for the one that follows it. The log is opened with O_APPEND and O_RDWR.
func PartLog(log *os.File, why string) error {
	last := []byte("\n")
	info, err := log.Stat()
	if err == nil && info.Size() > 0 {
		_, err = log.ReadAt(last, info.Size()-1)
	}
	if err != nil {
		return err
	}
	line := LogBoundary + why + "\n"
	if last[0] != '\n' {
		line = "\n" + line
	}
	_, err = log.WriteString(line)
	return err
}

// follower is the reading side of a file that is followed.
type follower struct {
	*io.PipeReader
	cancel func()
}

func (f *follower) Close() error {
	f.cancel()
	return f.PipeReader.Close()
}

// tailStart gives where the last n lines begin of what lies before end: 0 lines are all, fewer are none.
func tailStart(f io.ReaderAt, end int64, n int) (int64, error) {
	if n == 0 {
		return 0, nil
	}
	if n < 0 {
		return end, nil
	}
	buf := make([]byte, 64<<10)
	for at := end; at > 0; {
		size := min(at, int64(len(buf)))
		at -= size
		if _, err := f.ReadAt(buf[:size], at); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		part := buf[:size]
		if at+size == end { // the last line's own end is none between two lines
			part = bytes.TrimSuffix(part, []byte("\n"))
		}
		for i := bytes.LastIndexByte(part, '\n'); i >= 0; i = bytes.LastIndexByte(part[:i], '\n') {
			if n--; n == 0 {
				return at + int64(i) + 1, nil
			}
		}
	}
	return 0, nil
}
