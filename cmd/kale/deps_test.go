package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// make deps says of each thing that is missing what it is needed for and what installs it, and shows the version and the path of what is there. A build says
// only what is missing.
func TestDepsAreTold(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	few := t.TempDir() // a PATH with what a script needs, and Go
	for _, name := range []string{"bash", "env", "sed", "grep", "head", "go"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if path, err = filepath.EvalSymlinks(path); err == nil && name != "go" {
			err = os.Symlink(path, filepath.Join(few, name))
		} else if err == nil { // it finds its own files beside itself
			err = os.WriteFile(filepath.Join(few, name), []byte("#!/bin/sh\nexec '"+path+"' \"$@\"\n"), 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func(path string, args ...string) (out, said string, err error) {
		cmd := exec.CommandContext(t.Context(), "bash", append([]string{filepath.Join(root, ".ci/check-machine.sh")}, args...)...)
		cmd.Dir = t.TempDir() // where nothing was fetched
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		cmd.Env = append(os.Environ(), "PATH="+path, "CC=", "KALE_ONNXRUNTIME=")
		err = cmd.Run()
		return stdout.String(), stderr.String(), err
	}
	out, said, err := check(few, "-v")
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("without a C compiler: %v", err)
	}
	if !regexp.MustCompile(`(?m)^found     Go +\d+\.\d+\S* +` + regexp.QuoteMeta(few) + `/go$`).MatchString(out) {
		t.Errorf("of Go it says\n%s", out)
	}
	for _, want := range []string{
		`(?m)^missing   C compiler +needed to .*\. Install it: apt-get install gcc$`,
		`(?m)^missing   npm or pip +needed to fetch ONNX Runtime .*\. Install it: apt-get install npm, or python3-pip$`,
		`(?m)^optional  Java +is not here: needed for the tests against real Apache Kafka.*\. Install it: apt-get install openjdk`,
		`(?m)^optional  Maven +is not here: needed for the tests against real Apache Kafka.*\. Install it: apt-get install maven$`,
	} {
		if !regexp.MustCompile(want).MatchString(said) {
			t.Errorf("it does not say %s:\n%s", want, said)
		}
	}
	if out, _, err := check(os.Getenv("PATH")); out != "" || err != nil {
		t.Errorf("a build says %q: %v", out, err)
	}
}
