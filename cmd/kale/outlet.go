package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"syscall"
	"time"
)

// outlet is an output of a kale run, which goes on where that cannot be written, as on a disk that is full or to a reader that has gone: what would be written
// meanwhile is lost, and is no error. It is safe for concurrent use where w is.
type outlet struct {
	w     io.Writer
	mu    sync.Mutex // not held while w is written to, which may take long
	err   error      // of the last write; nil: it was taken
	since time.Time  // of the first write that failed after the last one that was taken
	torn  bool       // the last line that was taken was not taken whole
}

// Write implements io.Writer; it does not fail. What can be written again begins with word of what is missing.
func (o *outlet) Write(p []byte) (int, error) {
	o.mu.Lock()
	text, missing := p, o.missing(time.Now())
	o.mu.Unlock()
	if missing != "" {
		text = append([]byte(missing), p...)
	}
	n, err := o.w.Write(text)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		o.err, o.torn = nil, false
		return len(p), nil
	}
	if n > 0 {
		o.torn = text[n-1] != '\n'
	}
	if o.err == nil {
		o.since = time.Now()
	}
	o.err = err
	return len(p), nil
}

// missing is what an output begins with that can be written again; "": it could be all the time.
func (o *outlet) missing(now time.Time) string {
	if o.err == nil {
		return ""
	}
	end := ""
	if o.torn {
		end = "\n"
	}
	why := o.err
	if at := new(fs.PathError); errors.As(why, &at) {
		why = at.Err // here one knows where
	}
	return fmt.Sprintf("%skale: lines of %s to %s are missing here, since they could not be written: %v\n", end, clock(o.since, now), clock(now, now), why)
}

// problem says that lines are lost, for who asks for the job's status; "": they are not. It tries whether there is room again.
func (o *outlet) problem() string {
	o.mu.Lock()
	lost := o.err != nil
	o.mu.Unlock()
	if lost {
		_, _ = o.Write(nil) // it does not fail, and takes down what comes of it
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		return ""
	}
	advice := ""
	switch {
	case errors.Is(o.err, syscall.ENOSPC), errors.Is(o.err, syscall.EDQUOT):
		advice = ": free some space there"
	case errors.Is(o.err, syscall.EFBIG):
		advice = ": raise the limit on the size of files (ulimit -f)"
	case errors.Is(o.err, syscall.EPIPE), errors.Is(o.err, syscall.EIO):
		advice = ": who read it has gone. To have lines again, end this scheduler and run the job again with another output; training goes on meanwhile"
	}
	return fmt.Sprintf("the scheduler's output cannot be written, and its lines are lost since %s: %v%s", o.since.Format("2006-01-02 15:04:05"), o.err, advice)
}

// outlive lets a command that has a job to look after go on where its outputs cannot be written. Commands whose output is their result fail then.
func (a *app) outlive() {
	outliveReaders()
	out, errs := &outlet{w: a.printed.w}, &outlet{w: a.err}
	a.printed.w, a.err = out, errs
	a.unheard = func() []string {
		if what := cmp.Or(out.problem(), errs.problem()); what != "" { // both are mostly one file
			return []string{what}
		}
		return nil
	}
}
