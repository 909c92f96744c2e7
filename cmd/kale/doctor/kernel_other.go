//go:build !linux

package doctor

import "syscall"

// disciplined is not known on this system.
func disciplined() (yes, known bool) { return false, false }

// kinds of file systems that matter here.
const (
	onDisk = iota
	inMemory
	onNetwork
)

// kindOf takes every folder for one on a disk.
func kindOf(string) int { return onDisk }

// roomIn is how many bytes this user may still write in a folder.
func roomIn(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}
