// Package backendpb is the generated wire form of the backend contract (kale.backend.v1). The contract itself, with
// what every field means, is package core/backend; only its glue uses this one.
package backendpb
