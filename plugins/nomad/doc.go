// Package nomad is where the Nomad backend will live. It is not built yet: the package holds no code, and a job file
// that says backend "nomad" is refused.
//
// It will implement core/backend.Backend against a Nomad cluster, with workers as one group and parameter servers as
// a job of their own, through Nomad's api module only (MPL), and will pass core/backend/conformance.
package nomad
