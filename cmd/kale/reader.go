package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// readerPoll is how often a command that may have nothing to print for long looks whether anybody reads it still.
const readerPoll = time.Second

// whileRead is a context that ends when nobody reads w any more, as after kale logs -f | head, where no write would tell. done ends what looks, and waits for it.
func whileRead(ctx context.Context, w io.Writer) (read context.Context, done func()) {
	read, end := context.WithCancel(ctx)
	f, is := behind(w).(*os.File)
	if !is {
		return read, end
	}
	over := make(chan struct{})
	go func() { // ends with read
		defer close(over)
		for wait(read, readerPoll) == nil {
			if unread(f) {
				end()
			}
		}
	}()
	return read, func() { end(); <-over }
}

// unread says that a file is a pipe, a socket or a terminal whose other end is closed.
func unread(f *os.File) bool {
	c, err := f.SyscallConn()
	if err != nil {
		return false
	}
	gone := false
	err = c.Control(func(fd uintptr) {
		of := []unix.PollFd{{Fd: int32(fd)}}
		for {
			n, err := unix.Poll(of, 0)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			gone = err == nil && n > 0 && of[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
			return
		}
	})
	return err == nil && gone
}
