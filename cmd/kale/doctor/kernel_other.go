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

// roomIn is what room the file system of a folder has for this user.
func roomIn(dir string) (room, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return room{}, err
	}
	return room{free: int64(st.Bavail) * int64(st.Bsize), size: int64(st.Blocks) * int64(st.Bsize), noFiles: st.Files > 0 && st.Ffree == 0}, nil
}
