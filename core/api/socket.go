package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// socketName is the socket's name in a job's state folder.
const socketName = "api.sock"

// maxSocketPath is the longest path of a unix socket that all systems take: sun_path has 108 bytes on Linux and 104 on BSD, and ends with a zero.
const maxSocketPath = 103

// ErrNoScheduler says that nobody answers on a job's socket.
var ErrNoScheduler = errors.New("no scheduler is running")

// SocketPath is where the scheduler of the job with this state folder listens: in the folder or, where that would be longer than a socket's
// path may be, under the user's runtime folder by a name made from it. Client and server compute the same.
func SocketPath(stateDir string) (string, error) {
	abs, err := filepath.Abs(stateDir)
	if err != nil {
		return "", fmt.Errorf("find the scheduler's socket: %w", err)
	}
	if path := filepath.Join(abs, socketName); len(path) <= maxSocketPath {
		return path, nil
	}
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if dir == "" {
		dir = filepath.Join(os.TempDir(), "kale-"+strconv.Itoa(os.Getuid()))
	}
	sum := sha256.Sum256([]byte(abs))
	path := filepath.Join(dir, "kale-"+hex.EncodeToString(sum[:8])+".sock")
	if len(path) > maxSocketPath {
		return "", fmt.Errorf("the scheduler's socket cannot be in %s, whose path is too long, nor in %s: a socket's path may have %d bytes; "+
			"choose a shorter state folder, or set XDG_RUNTIME_DIR to a shorter one", abs, dir, maxSocketPath)
	}
	return path, nil
}

// probeTimeout bounds the question whether somebody answers on a socket.
const probeTimeout = 2 * time.Second

// Listen opens the socket at path. One that is left over from a scheduler that ended badly is replaced; one on which somebody answers is an
// error, and so is a file that is no socket.
func Listen(path string) (net.Listener, error) {
	if err := ownFolder(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := clearStale(path); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on the scheduler's socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("close the scheduler's socket to others: %w", err), l.Close())
	}
	return l, nil
}

// ownFolder makes the socket's folder, and refuses one that others may write in: they could put a socket of their own there.
func ownFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the folder of the scheduler's socket: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("look at the folder of the scheduler's socket: %w", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && os.Getuid() != 0 && st.Uid != uint32(os.Getuid()) {
		return fmt.Errorf("the folder of the scheduler's socket, %s, belongs to another user (uid %d): choose another state folder", dir, st.Uid)
	}
	if info.Mode().Perm()&0o002 != 0 {
		return fmt.Errorf("the folder of the scheduler's socket, %s, can be written by everybody: chmod o-w it, or choose another state folder", dir)
	}
	return nil
}

func clearStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the scheduler's socket: %w", err)
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("%s is where the scheduler's socket goes, and something else is there: move it away", path)
	}
	conn, err := net.DialTimeout("unix", path, probeTimeout)
	if err == nil {
		conn.Close()
		return fmt.Errorf("another scheduler answers on %s: end it first", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("see whether another scheduler answers on %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the socket that an earlier scheduler left: %w", err)
	}
	return nil
}

// dial connects to a scheduler's socket. ErrNoScheduler: nobody is there.
func dial(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: nobody answers on %s", ErrNoScheduler, path)
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("the scheduler's socket belongs to another user: %w", err)
	}
	return conn, err
}
