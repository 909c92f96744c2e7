// Package loopback finds ports of this machine for the private clusters that tests and kale-cluster start.
package loopback

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

var (
	mu    sync.Mutex
	given = map[int]bool{}
)

// FreePorts gives n ports of 127.0.0.1 on which nobody listens now. They are below those that the kernel gives to whoever asks for any, and to outgoing connections: one of
// these could be taken before a daemon listens on it. A process gets none twice: what was killed and comes back finds its own, and who asks it meanwhile finds nobody else there.
func FreePorts(n int) ([]int, error) {
	mu.Lock()
	defer mu.Unlock()
	var ports []int
	for tries := 0; len(ports) < n; tries++ {
		port := 10_000 + rand.IntN(10_000)
		if given[port] && tries < 1000 {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil && tries < 1000 {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		if err := l.Close(); err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		given[port] = true
		ports = append(ports, port)
	}
	return ports, nil
}
