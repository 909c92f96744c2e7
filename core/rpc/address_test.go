package rpc

import (
	"net"
	"net/netip"
	"strings"
	"testing"
)

func TestChooseAddress(t *testing.T) {
	have := []HostAddress{
		{"lo", netip.MustParseAddr("127.0.0.1")}, {"lo", netip.MustParseAddr("::1")},
		{"eth0", netip.MustParseAddr("fe80::1")}, {"eth0", netip.MustParseAddr("2001:db8::7")}, {"eth0", netip.MustParseAddr("192.168.1.7")},
		{"ib0", netip.MustParseAddr("10.1.0.7")}, {"ib0", netip.MustParseAddr("10.2.0.7")},
		{"ib1", netip.MustParseAddr("fe80::2")}, {"ib1", netip.MustParseAddr("fd00::2")}, {"ib1", netip.MustParseAddr("fd00::3")},
		{"tun0", netip.MustParseAddr("fe80::3")},
	}
	for _, c := range []struct{ want, got, says string }{
		{"ib0", "10.1.0.7", ""},
		{"eth0", "192.168.1.7", ""}, // IPv4 before IPv6
		{"ib1", "fd00::2", ""},      // nothing link-local
		{"lo", "127.0.0.1", ""},
		{"10.0.0.0/8", "10.1.0.7", ""},
		{"10.2.0.0/16", "10.2.0.7", ""},
		{"10.2.0.7/32", "10.2.0.7", ""},
		{"0.0.0.0/0", "127.0.0.1", ""},
		{"fd00::/64", "fd00::2", ""},
		{"2001:db8::/32", "2001:db8::7", ""},
		{"fe80::/10", "", "no address in fe80::/10"},
		{"172.16.0.0/12", "", "no address in 172.16.0.0/12; it has lo 127.0.0.1,"},
		{"ib7", "", `no interface "ib7"`},
		{"tun0", "", `no interface "tun0"`},
		{"", "", "no interface"},
	} {
		got, err := ChooseAddress(c.want, have)
		if c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%q: %v, %v; want an error that says %q", c.want, got, err, c.says)
			}
		} else if err != nil || got.String() != c.got {
			t.Errorf("%q: %v, %v; want %s", c.want, got, err, c.got)
		}
	}
	if _, err := ChooseAddress("10.0.0.0/8", nil); err == nil {
		t.Error("a machine without addresses has one")
	}
}

func TestThisMachineHasAddresses(t *testing.T) {
	have, err := HostAddresses()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ChooseAddress("127.0.0.0/8", have); err != nil || !got.IsLoopback() {
		t.Errorf("%v, %v among %v", got, err, have)
	}
}

func TestSourceAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for _, towards := range [][]string{{l.Addr().String()}, {"", "no.such.host.invalid:1", "127.0.0.1:9"}, {"not an address", l.Addr().String()}} {
		if got, err := SourceAddress(t.Context(), towards...); err != nil || !got.IsLoopback() {
			t.Errorf("towards %v: %v, %v", towards, got, err)
		}
	}
	for _, towards := range [][]string{nil, {""}, {"no.such.host.invalid:1"}} {
		if got, err := SourceAddress(t.Context(), towards...); err == nil || !strings.Contains(err.Error(), "name an interface") {
			t.Errorf("towards %v: %v, %v; want advice", towards, got, err)
		}
	}
}
