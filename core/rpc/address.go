package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"
)

// HostAddress is an address of this machine and the interface that has it.
type HostAddress struct {
	Interface string
	Addr      netip.Addr
}

// InterfaceEnv is the environment variable that names, on a machine that differs from the others, the interface or network on which trainers listen.
const InterfaceEnv = "KALE_INTERFACE"

// HostAddresses lists the addresses of the interfaces that are up, in the system's order.
func HostAddresses() ([]HostAddress, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list this machine's network interfaces: %w", err)
	}
	var out []HostAddress
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("list the addresses of interface %s: %w", i.Name, err)
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok {
				if ip, ok := netip.AddrFromSlice(n.IP); ok {
					out = append(out, HostAddress{i.Name, ip.Unmap()})
				}
			}
		}
	}
	return out, nil
}

// ChooseAddress picks the address that a machine with these ones has on an interface ("ib0") or in a network ("10.0.0.0/8"). Of several the first IPv4
// address counts, else the first IPv6 address. Link-local addresses of IPv6 do not: they mean nothing on another machine.
func ChooseAddress(want string, have []HostAddress) (netip.Addr, error) {
	network, err := netip.ParsePrefix(want)
	byName := err != nil
	var found netip.Addr
	var named []string
	for _, a := range have {
		named = append(named, a.Interface+" "+a.Addr.String())
		if a.Addr.Is6() && a.Addr.IsLinkLocalUnicast() || byName && a.Interface != want || !byName && !network.Contains(a.Addr) {
			continue
		}
		if !found.IsValid() || found.Is6() && a.Addr.Is4() {
			found = a.Addr
		}
	}
	switch {
	case found.IsValid():
		return found, nil
	case byName:
		return found, fmt.Errorf("this machine has no interface %q that is up and has an address; it has %s", want, strings.Join(named, ", "))
	}
	return found, fmt.Errorf("this machine has no address in %s; it has %s", want, strings.Join(named, ", "))
}

// SourceAddress is the address that this machine would have in a connection to one of the given HOST:PORTs: that of its route to the first one that can be
// resolved and routed to. Nothing is sent but what resolving a name takes.
func SourceAddress(ctx context.Context, towards ...string) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var errs []error
	for _, to := range towards {
		if to == "" {
			continue
		}
		var d net.Dialer
		conn, err := d.DialContext(ctx, "udp", to)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		from, ok := conn.LocalAddr().(*net.UDPAddr)
		_ = conn.Close() // nothing was sent
		if ok {
			if addr, ok := netip.AddrFromSlice(from.IP); ok && !addr.IsUnspecified() {
				return addr.Unmap(), nil
			}
		}
		errs = append(errs, fmt.Errorf("the route to %s has no source address", to))
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New("nothing is known to route to"))
	}
	return netip.Addr{}, fmt.Errorf("find this machine's address: %w: name an interface or a network", errors.Join(errs...))
}
