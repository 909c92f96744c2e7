package backend

import (
	"os"
	"os/user"
	"strconv"
	"strings"
)

// Origin says whose a process is, and which machine it runs on, as others on machines that share a folder read it there.
type Origin struct {
	Host string `json:"host"`
	User string `json:"user"`
	// Boot and PIDs say which processes can be told by Process: those of one start of one kernel, in one namespace (a container has its own).
	Boot string `json:"boot"`
	PIDs string `json:"pids"`
}

// ThisOrigin is this process's. What cannot be told stays empty.
func ThisOrigin() Origin {
	o := Origin{User: "of uid " + strconv.Itoa(os.Getuid())}
	o.Host, _ = os.Hostname()
	if u, err := user.Current(); err == nil {
		o.User = u.Username
	}
	if raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		o.Boot = strings.TrimSpace(string(raw))
	}
	o.PIDs, _ = os.Readlink("/proc/self/ns/pid")
	return o
}

// Near says that processes of the one can be seen from the other, at once.
func (o Origin) Near(other Origin) bool {
	return o.Boot != "" && o.Boot == other.Boot && o.PIDs != "" && o.PIDs == other.PIDs
}
