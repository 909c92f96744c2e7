package slurmtest

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// take listens on a port of this machine until the test ends, as somebody else does.
func take(t *testing.T, port int) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // nothing is sent there
}

// A port that another process takes between its choice and the daemon's start costs another start, on other ports, and no more. The folder is used again.
func TestAPortThatIsTakenMeanwhile(t *testing.T) {
	if why := Missing(); why != "" {
		t.Skip(why)
	}
	for _, test := range []struct {
		name string
		of   func(*Cluster) int
		o    Options
	}{
		{name: "of slurmctld", of: func(c *Cluster) int { return c.port }},
		{name: "of a slurmd", of: func(c *Cluster) int { return c.ports[1] }},
		{name: "of the database", of: func(c *Cluster) int { return c.dbPort }, o: Options{Accounting: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if why := MissingAccounting(); test.o.Accounting && why != "" {
				t.Skip(why)
			}
			var tried []int
			test.o.Dir = t.TempDir()
			test.o.chosen = func(c *Cluster) {
				if tried = append(tried, test.of(c)); len(tried) == 1 {
					take(t, tried[0])
				}
			}
			c, err := Start(t.Context(), test.o)
			if err != nil {
				t.Fatal(err)
			}
			if len(tried) != 2 || tried[0] == tried[1] {
				t.Errorf("the ports tried are %v", tried)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Who finds a port taken at the second start too is told so, and by whose word.
func TestPortsThatAreTakenAgain(t *testing.T) {
	if why := Missing(); why != "" {
		t.Skip(why)
	}
	dir, tries := t.TempDir(), 0
	_, err := Start(t.Context(), Options{Dir: dir, chosen: func(c *Cluster) { tries++; take(t, c.port) }})
	if !errors.Is(err, errTaken) || tries != 2 || !strings.Contains(err.Error(), "slurmctld.out.log: ") || !strings.Contains(err.Error(), inUse) {
		t.Errorf("after %d tries: %v", tries, err)
	}
	if logs, _ := filepath.Glob(filepath.Join(dir, "log", "*")); len(logs) > 0 {
		t.Errorf("what the daemons of ended clusters said is left: %v", logs)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("the folder that was given: %v", err)
	}
}
