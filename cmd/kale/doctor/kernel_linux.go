package doctor

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

// disciplined says whether a time service keeps this machine's clock right (adjtimex(2): TIME_ERROR, STA_UNSYNC).
func disciplined() (yes, known bool) {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return false, false // a sandbox forbids even to ask
	}
	return state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0, true
}

// kinds of file systems that matter here.
const (
	onDisk = iota
	inMemory
	onNetwork
)

// kindOf is the kind of the file system that a folder is on, or would be.
func kindOf(dir string) int {
	var st unix.Statfs_t
	for unix.Statfs(dir, &st) != nil {
		if dir == filepath.Dir(dir) {
			return onDisk
		}
		dir = filepath.Dir(dir)
	}
	switch st.Type {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		return inMemory
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.V9FS_MAGIC, unix.CEPH_SUPER_MAGIC, unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC:
		return onNetwork
	}
	return onDisk
}

// roomIn is what room the file system of a folder has for this user.
func roomIn(dir string) (room, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return room{}, err
	}
	return room{free: int64(st.Bavail) * st.Bsize, size: int64(st.Blocks) * st.Bsize, noFiles: st.Files > 0 && st.Ffree == 0}, nil
}
