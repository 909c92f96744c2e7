package probe

import "golang.org/x/sys/unix"

// roomIn is how many bytes this user may still write in a folder.
func roomIn(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * st.Bsize, nil
}
