// Package nomadtest runs a private Nomad on this machine: for the tests of the Nomad backend, and for people who want
// to try Kale on a cluster without having one (make cluster-nomad).
//
// Input: how many client nodes, and how many GPUs each pretends to have. Output: the address of a Nomad that is ready,
// in seconds. A server and each client are processes of their own on loopback, with all they keep in one temporary
// folder; they end by pid, and nothing is left of them or of what they ran.
//
// Nodes are taken away and come back in the ways of real ones: their agent is killed, stopped or suspended while their
// tasks live on, they crash with all they run, are set up anew, are drained, or take no new work (nodes.go).
//
// As root on Linux each client has a mount namespace of its own, in which the folder Private is another one on every
// node, while Shared is the same on all: what works only on one host's file system fails here as on a real cluster.
//
// The binaries come from .ci/fetch-nomad.sh; the variable KALE_NOMAD names another nomad. Nomad's licence (BUSL) does
// not touch the product: nothing of it is linked here.
package nomadtest
