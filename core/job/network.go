package job

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/zclconf/go-cty/cty"
)

// interfaceName is what Linux takes for one, but for a slash: that makes a network.
var interfaceName = regexp.MustCompile(`^[^\s/]{1,15}$`)

// checkInterface wants an interface's name or a network in CIDR form.
func checkInterface(text string) string {
	if strings.Contains(text, "/") {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return `A network is written ADDRESS/BITS, as in "10.0.0.0/8" or "fd00::/64".`
		}
		if p != p.Masked() {
			return fmt.Sprintf("The network of this address is %q: write that.", p.Masked())
		}
		return ""
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return fmt.Sprintf("An address is another one on every machine. Name the network that it is in, as in %q, or an interface.", netip.PrefixFrom(a, a.BitLen()*3/4).Masked())
	}
	if !interfaceName.MatchString(text) {
		return `Name an interface as "ip link" does, such as "ib0", or a network such as "10.0.0.0/8".`
	}
	return ""
}

// checkListen wants host:port, where an empty host is all interfaces and port 0 any free port.
func checkListen(text string) string {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return `Write host:port, as in "0.0.0.0:7700", ":7700" for all interfaces, or "[2001:db8::1]:7700".`
	}
	return checkPort(port, 0)
}

// checkAdvertise wants a host that others can dial.
func checkAdvertise(text string) string {
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" {
		return `Write host:port, as in "login-1:7700" or "10.0.0.5:7700".`
	}
	if a, err := netip.ParseAddr(host); err == nil && a.IsUnspecified() {
		return fmt.Sprintf("Nobody can reach %s from another machine: name this machine's address or host name.", host)
	}
	return checkPort(port, 0)
}

func checkPort(port string, least int) string {
	if n, err := strconv.Atoi(port); err != nil || n < least || n > 65535 {
		return fmt.Sprintf("%q is not a port: use %d to 65535.", port, least)
	}
	return ""
}

// portRange reads "20000-20999".
func portRange(dst func(*Job) *PortRange) field {
	return scalar[PortRange]{"string", `"FIRST-LAST"`, dst, func(_ string, v cty.Value) (PortRange, *problem) {
		text, p := asString(v)
		if p != nil {
			return PortRange{}, p
		}
		first, last, ok := strings.Cut(text, "-")
		if !ok {
			return PortRange{}, wrong(fmt.Sprintf("Unsuitable value %q", text), `Ports are written FIRST-LAST, as in "20000-20999".`)
		}
		for _, port := range []string{first, last} {
			if detail := checkPort(strings.TrimSpace(port), 1); detail != "" {
				return PortRange{}, wrong(fmt.Sprintf("Unsuitable value %q", text), "%s", detail)
			}
		}
		var r PortRange
		r.First, _ = strconv.Atoi(strings.TrimSpace(first)) // both were checked
		r.Last, _ = strconv.Atoi(strings.TrimSpace(last))
		if r.First > r.Last {
			return PortRange{}, wrong(fmt.Sprintf("Unsuitable value %q", text), "%d comes after %d: write the lower port first.", r.First, r.Last)
		}
		return r, nil
	}}
}

func (d *decoder) checkNetwork(j *Job) {
	n := j.Network
	if room, least, most := n.Ports.Last-n.Ports.First+1, j.Servers.Count+j.Workers.Min, j.Servers.Count+j.Workers.Max; n.Ports.Last > 0 && j.Backend.Name == BackendLocal {
		d.must(room >= least, "network.ports", []string{"workers.min", "servers.count", "backend"}, "Too few ports",
			"On backend \"local\" every process is on this machine and needs a port of its own: at least %d (servers.count and workers.min), at most %d. There are %d.", least, most, room)
		if room >= least && room < most && d.ok("network.ports", "workers.max", "servers.count", "backend") {
			d.warn("network.ports", "Too few ports for all workers", "On backend \"local\" every process is on this machine and needs a port of its own: %d for servers.count and workers.max. There are %d, so that no more than %d workers can run.",
				most, room, room-j.Servers.Count)
		}
	}
	served := n.Listen != "" || j.Backend.Name != BackendLocal
	d.must(n.Advertise == "" || served, "network.advertise", []string{"network.listen", "backend"}, "Nothing to advertise",
		`On backend "local" the scheduler answers trainers only where listen says so. Add listen, or remove advertise.`)
	if n.Listen == "" || !d.ok("network.listen", "network.advertise") {
		return
	}
	host, port, err := net.SplitHostPort(n.Listen)
	if err != nil {
		return
	}
	if a, err := netip.ParseAddr(host); (host == "localhost" || err == nil && a.IsLoopback()) && n.Advertise == "" && j.Backend.Name != BackendLocal && d.ok("backend") {
		d.warn("network.listen", "Other machines cannot reach the scheduler", "It listens on the loopback interface. That is right only where all nodes are this machine.")
	}
	p, err := strconv.Atoi(port)
	d.must(err != nil || p == 0 || p < n.Ports.First || p > n.Ports.Last, "network.listen", []string{"network.ports"}, "The scheduler's port is among those of trainers",
		"A trainer on this machine could take %d first. Choose one outside of %s.", p, n.Ports)
}
