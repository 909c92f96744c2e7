package trainer

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/kale-sched/kale/core/rpc"
)

func TestListen(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	port := int32(taken.Addr().(*net.TCPAddr).Port)
	for name, c := range map[string]struct {
		network    *rpc.NetworkSpec
		where, via string
		broker     string
		host, says string
		first      int32
		last       int32
	}{
		"one machine":                   {host: "127.0.0.1"},
		"told where":                    {where: "127.0.0.2:0", network: &rpc.NetworkSpec{Interface: "no-such-if"}, host: "127.0.0.2"},
		"an interface's network":        {network: &rpc.NetworkSpec{Interface: "127.0.0.0/8"}, host: "127.0.0.1"},
		"this machine's interface":      {network: &rpc.NetworkSpec{Interface: "no-such-if"}, via: "127.0.0.0/8", host: "127.0.0.1"},
		"an interface, one machine":     {via: "127.0.0.0/8", host: "127.0.0.1"},
		"no such interface":             {network: &rpc.NetworkSpec{Interface: "no-such-if"}, says: "set KALE_INTERFACE on this machine"},
		"no such network":               {network: &rpc.NetworkSpec{Interface: "240.0.0.0/4"}, says: "no address in 240.0.0.0/4"},
		"the route to the scheduler":    {network: &rpc.NetworkSpec{Rendezvous: "127.0.0.1:9"}, broker: "no.such.host.invalid:1", host: "127.0.0.1"},
		"the route to a broker":         {network: &rpc.NetworkSpec{FirstPort: 1024, LastPort: 65535}, broker: "127.0.0.1:9", host: "127.0.0.1", first: 1024, last: 65535},
		"no route":                      {network: &rpc.NetworkSpec{Rendezvous: "no.such.host.invalid:1"}, broker: "no.such.host.invalid:1", says: "KALE_INTERFACE"},
		"a range":                       {network: &rpc.NetworkSpec{Interface: "127.0.0.0/8", FirstPort: 20000, LastPort: 40000}, host: "127.0.0.1", first: 20000, last: 40000},
		"a range that is taken":         {network: &rpc.NetworkSpec{Interface: "127.0.0.0/8", FirstPort: port, LastPort: port}, says: "widen network.ports"},
		"a range that is none":          {network: &rpc.NetworkSpec{Interface: "127.0.0.0/8", FirstPort: 9, LastPort: 8}, says: "no range of ports"},
		"an address of another machine": {where: "192.0.2.1:0", says: "listen on 192.0.2.1:0"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &rpc.TrainSpec{Network: c.network, Stream: &rpc.StreamSpec{Brokers: []string{c.broker}}}
			lis, err := listen(t.Context(), spec, c.where, c.via)
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v, want an error that says %q", err, c.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = lis.Close() }()
			host, portText, err := net.SplitHostPort(lis.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			got, err := strconv.Atoi(portText)
			if host != c.host || err != nil || c.last > 0 && (got < int(c.first) || got > int(c.last)) {
				t.Errorf("it listens on %s; want host %s and a port of %d-%d", lis.Addr(), c.host, c.first, c.last)
			}
		})
	}
}

// A range of two ports serves two processes, whichever either of them tries first.
func TestListenWithinARange(t *testing.T) {
	var first int
	for try := 0; ; try++ { // two neighbours that are free
		a, err := listenWithin("127.0.0.1", 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		first = a.Addr().(*net.TCPAddr).Port
		b, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first+1)))
		_ = a.Close()
		if err == nil {
			_ = b.Close()
			break
		}
		if try == 100 {
			t.Skip("no two free ports beside each other")
		}
	}
	seen := map[string]bool{}
	for range 2 {
		l, err := listenWithin("127.0.0.1", first, first+1)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		seen[l.Addr().String()] = true
	}
	if len(seen) != 2 {
		t.Errorf("two processes listen on %v", seen)
	}
}
