package loopback

import (
	"fmt"
	"net"
	"testing"
)

// No port is given twice, and each can be listened on.
func TestFreePorts(t *testing.T) {
	seen := map[int]bool{}
	for range 100 {
		ports, err := FreePorts(20)
		if err != nil {
			t.Fatal(err)
		}
		for _, port := range ports {
			if seen[port] {
				t.Fatalf("port %d is given twice", port)
			}
			seen[port] = true
		}
	}
	ports, err := FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0]))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
