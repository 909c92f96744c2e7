//go:build kale_nodedup

package main

import "github.com/kale-sched/kale/core/rpc"

// Built with the tag kale_nodedup, parameter servers apply every push, duplicates included. The end-to-end tests use such a trainer to show that
// their check of records can fail (EXACTLY_ONCE rule 19). It is never installed.
func init() { amend = func(s *rpc.TrainSpec) { s.UnsafeNoDedup = true } }
