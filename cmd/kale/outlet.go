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

// outletPatience is how long a kale run waits for an output that takes nothing and does not fail either, such as a pipe whose reader stands still.
const outletPatience = time.Second

var errUntaken = errors.New("who reads it stands still")

// outlet is an output of a kale run, which goes on where that cannot be written, as on a disk that is full or to a reader that has gone or stands still: what would be
// written meanwhile is lost, and is no error. It is safe for concurrent use, and writes one text after the other. It is made by newOutlet.
type outlet struct {
	w    io.Writer
	turn chan struct{} // who has put something in writes

	mu      sync.Mutex // not held while w is written to, which may take long
	err     error      // why what was to be written last is lost, or is not taken yet; nil: it was taken
	since   time.Time  // of the first that was lost after the last one that was taken
	torn    bool       // the last line that was taken was not taken whole
	stalled bool       // what is written now has waited for too long: nobody waits for it any more
	told    bool       // beside knows that something is lost

	beside *outlet // the other output of the process, which is told that this one loses lines; may be nil
}

func newOutlet(w io.Writer) *outlet { return &outlet{w: w, turn: make(chan struct{}, 1)} }

// Write implements io.Writer; it does not fail, and waits no longer than outletPatience for those before and as long again. What can be written again begins with word of
// what is missing.
func (o *outlet) Write(p []byte) (int, error) {
	defer o.tell()
	if !o.comes() {
		return len(p), nil
	}
	began := time.Now()
	o.mu.Lock()
	was, since := o.err, o.since
	text := append([]byte(o.missing(began)), p...) // a copy: who writes has p back before it is written
	o.err = nil                                    // what is lost meanwhile is told by the next one
	o.mu.Unlock()
	taken := make(chan struct{})
	go func() { // ends when the output has taken or refused it, or with the process
		n, err := o.w.Write(text)
		o.mu.Lock()
		o.took(text[:n], err, was, since, began)
		close(taken) // with the lock, so that nobody takes for stalled what has just been taken
		o.mu.Unlock()
		<-o.turn
	}()
	select {
	case <-taken:
		return len(p), nil
	case <-time.After(outletPatience):
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case <-taken:
	default:
		o.stalled = true
		o.lose(errUntaken, began)
	}
	return len(p), nil
}

// tell has the other output say, once, that this one loses lines: both may be one file, and then that one loses this.
func (o *outlet) tell() {
	if o.beside == nil {
		return
	}
	o.mu.Lock()
	why, news := o.err, (o.err != nil) != o.told
	o.told = o.err != nil
	o.mu.Unlock()
	if news && why != nil {
		_, _ = fmt.Fprintf(o.beside, "kale: standard output cannot be written, and its lines are lost until it can: %v\n", why) // it does not fail
	}
}

// comes waits for the turn of what is to be written, unless nobody waits any more; false: it is lost.
func (o *outlet) comes() bool {
	select {
	case o.turn <- struct{}{}:
		return true
	default:
	}
	o.mu.Lock()
	stalled := o.stalled
	o.mu.Unlock()
	if !stalled {
		select {
		case o.turn <- struct{}{}:
			return true
		case <-time.After(outletPatience):
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lose(errUntaken, time.Now())
	return false
}

// lose takes down, with the lock, why something is lost, at a time.
func (o *outlet) lose(why error, at time.Time) {
	if o.err == nil {
		o.since = at
	}
	o.err = why
}

// took takes down, with the lock, what became of a text of which so much was written: before, why what was to come before it is lost, since when.
func (o *outlet) took(written []byte, err, before error, since, began time.Time) {
	o.stalled = false
	if err == nil {
		o.torn = false
		return
	}
	if n := len(written); n > 0 {
		o.torn = written[n-1] != '\n'
	}
	if before == nil {
		since = began
	}
	o.err, o.since = err, since
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
	case errors.Is(o.err, errUntaken):
		advice = ": have it go on, as with Ctrl-Q in a terminal that Ctrl-S stopped"
	case errors.Is(o.err, syscall.EPIPE), errors.Is(o.err, syscall.EIO):
		advice = ": who read it has gone. To have lines again, end this scheduler and run the job again with another output; training goes on meanwhile"
	}
	return fmt.Sprintf("the scheduler's output cannot be written, and its lines are lost since %s: %v%s", o.since.Format("2006-01-02 15:04:05"), o.err, advice)
}

// outlive lets a command that has a job to look after go on where its outputs cannot be written. Commands whose output is their result fail then.
func (a *app) outlive() {
	outliveReaders()
	out, errs := newOutlet(a.printed.w), newOutlet(a.err)
	out.beside = errs
	a.printed.w, a.err = out, errs
	a.unheard = func() []string {
		if what := cmp.Or(out.problem(), errs.problem()); what != "" { // both are mostly one file
			return []string{what}
		}
		return nil
	}
}
