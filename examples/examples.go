// Package examples holds job files that are meant to be read, and that the tests and the demo use: start with ctr.hcl.
package examples

import _ "embed"

// Demo is the job of `kale demo`.
//
//go:embed demo.hcl
var Demo []byte

// Replay is the reference job of `kale replay`.
//
//go:embed replay.hcl
var Replay []byte
