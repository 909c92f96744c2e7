//go:build !linux

package probe

import "syscall"

// roomIn is how many bytes this user may still write in a folder.
func roomIn(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}
