// Package rpc holds the protocol that the scheduler, the chief, the parameter servers and the workers speak (trainer.proto)
// and nothing else: core and trainer both import it, and not each other.
//
// Regenerate with `make proto`.
package rpc
