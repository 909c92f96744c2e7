package trainer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"github.com/kale-sched/kale/core/rpc"
)

// listen opens this process's own port. where is what the command line says, "" for what the job's specification says: without a network the loopback
// interface; else the address on the interface (via, when it is not empty, in place of the specification's), or the source address of the route to the
// scheduler, or to a broker. Nothing but that one address is listened on.
func listen(ctx context.Context, spec *rpc.TrainSpec, where, via string) (net.Listener, error) {
	n := spec.GetNetwork()
	if where != "" {
		lis, err := net.Listen("tcp", where)
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w", where, err)
		}
		return lis, nil
	}
	host := "127.0.0.1"
	if n != nil || via != "" {
		addr, err := ownAddress(ctx, spec, via)
		if err != nil {
			return nil, err
		}
		host = addr.String()
	}
	return listenWithin(host, int(n.GetFirstPort()), int(n.GetLastPort()))
}

// ownAddress is the address of this machine that other machines of the job reach.
func ownAddress(ctx context.Context, spec *rpc.TrainSpec, via string) (netip.Addr, error) {
	n := spec.GetNetwork()
	if via == "" {
		via = n.GetInterface()
	}
	if via == "" {
		addr, err := rpc.SourceAddress(ctx, append([]string{n.GetRendezvous()}, spec.GetStream().GetBrokers()...)...)
		if err != nil {
			return addr, fmt.Errorf("%w, in the job file's network block or in %s", err, rpc.InterfaceEnv)
		}
		return addr, nil
	}
	have, err := rpc.HostAddresses()
	if err != nil {
		return netip.Addr{}, err
	}
	addr, err := rpc.ChooseAddress(via, have)
	if err != nil {
		return addr, fmt.Errorf("%w: correct network.interface, or set %s on this machine", err, rpc.InterfaceEnv)
	}
	return addr, nil
}

// listenWithin takes a free port of an inclusive range, any port when last is 0. It begins at a random one: processes that start together do not all
// knock at the same doors.
func listenWithin(host string, first, last int) (net.Listener, error) {
	if last == 0 {
		lis, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w", host, err)
		}
		return lis, nil
	}
	if first < 1 || last < first || last > 65535 {
		return nil, fmt.Errorf("listen on %s: %d-%d is no range of ports", host, first, last)
	}
	n := last - first + 1
	for i, begin := 0, rand.IntN(n); i < n; i++ {
		lis, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(first+(begin+i)%n)))
		if err == nil {
			return lis, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("listen on %s: %w", host, err)
		}
	}
	return nil, fmt.Errorf("listen on %s: all %d ports of %d-%d are taken: widen network.ports", host, n, first, last)
}
