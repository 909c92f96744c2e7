// Package rpc holds the protocol that the scheduler, the chief, the parameter servers and the workers speak (trainer.proto), and the little that both of its
// sides must do alike: find a chief's record, check a token, choose an address. core and trainer both import it, and not each other.
//
// Regenerate with `make proto`.
package rpc
