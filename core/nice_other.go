//go:build !linux

package core

// lowly does nothing where threads have no place of their own.
func lowly() {}
