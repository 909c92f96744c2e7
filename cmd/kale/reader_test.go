package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// fewLogs is a backend with a process that writes a line, and then nothing.
type fewLogs struct{ lateLogs }

func (l *fewLogs) open(context.Context, string, backend.LogOptions) (io.ReadCloser, error) {
	r, w := io.Pipe()
	go func() { _, _ = w.Write([]byte("hello\n")) }() // ends when it is read, or not to be
	return r, nil
}

// Logs that are followed end when nobody reads them any more, though nothing more is written that would tell so.
func TestFollowedLogsEndWithTheirReader(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var errs buffer
	a := &app{out: &printed{w: w}, err: &errs}
	ended := make(chan error, 1)
	go func() {
		ended <- a.followLogs(t.Context(), &fewLogs{lateLogs{names: []string{"ps-0-g1"}}}, "ctr", "", 0)
	}() // ends with its reader
	if n, err := r.Read(make([]byte, 100)); err != nil || n == 0 {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		t.Fatalf("it has ended while it is read: %v, %s", err, errs.String())
	case <-time.After(2 * readerPoll):
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil || errs.String() != "" {
			t.Errorf("it ends with %v and says %q", err, errs.String())
		}
	case <-time.After(time.Minute):
		t.Fatal("it goes on without a reader")
	}
}

// What is written to a file is not read by anybody now, and may be later.
func TestAFileIsRead(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if unread(f) || unread(null) {
		t.Error("it is taken for a pipe without a reader")
	}
}
