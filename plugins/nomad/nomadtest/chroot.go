package nomadtest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
)

// chrootTools are the programs that tasks of the driver exec find: what Kale's start.sh needs, and the tests' own. Nomad's
// default is all of the node's /usr, which takes a minute to copy where it is on another file system than the node's data.
var chrootTools = []string{"sh", "cat", "chmod", "cp", "grep", "gzip", "mkdir", "mkfifo", "mv", "rm", "setpriv", "setsid", "sleep"}

// libraries finds absolute paths in what ldd prints.
var libraries = regexp.MustCompile(`(/[^ ]+) \(0x`)

// populate makes a root file system with chrootTools, more programs and libraries by their paths, and the libraries that all these need.
func populate(root string, more []string) error {
	files := map[string]string{} // from the place there to the one here
	for _, name := range slices.Concat(chrootTools, more) {
		path := name
		if !filepath.IsAbs(name) {
			var err error
			if path, err = exec.LookPath(name); err != nil {
				return fmt.Errorf("make a root file system for tasks: %w", err)
			}
		}
		files["/bin/"+filepath.Base(name)] = path
		out, err := exec.Command("ldd", path).CombinedOutput()
		if err != nil {
			return fmt.Errorf("make a root file system for tasks: which libraries %s needs: %w\n%s", path, err, out)
		}
		for _, found := range libraries.FindAllStringSubmatch(string(out), -1) {
			files[found[1]] = found[1]
		}
	}
	for to, from := range files {
		if err := copyFile(filepath.Join(root, to), from); err != nil {
			return fmt.Errorf("make a root file system for tasks: %w", err)
		}
	}
	return nil
}

func copyFile(to, from string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if closed := out.Close(); err == nil {
		err = closed
	}
	return err
}
