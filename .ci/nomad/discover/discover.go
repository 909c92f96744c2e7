// Package discover stands in for github.com/hashicorp/go-discover, which pulls in the software kits of every cloud: a
// Nomad that is started for tests on one machine finds its servers by address.
package discover

import (
	"errors"
	"log"
)

// Discover finds nothing.
type Discover struct{}

// Addrs is not supported here.
func (*Discover) Addrs(string, *log.Logger) ([]string, error) {
	return nil, errors.New("cloud auto-join is left out of this build")
}

// Help has nothing to say.
func (*Discover) Help() string { return "" }

// Names gives no provider.
func (*Discover) Names() []string { return nil }
