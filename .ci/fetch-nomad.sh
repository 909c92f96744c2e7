#!/usr/bin/env bash
# Builds the Nomad that the tests start, pinned, and its fake GPUs, into the cache that they use: about 2 minutes on two cores, once.
# KALE_NOMAD=/path/to/nomad takes that one instead; the fake GPUs are built all the same. Says so where it cannot.
set -euo pipefail
cd "$(dirname "$0")/nomad"
version=$(sed -n 's|^\tgithub.com/hashicorp/nomad \(v[0-9.]*\)$|\1|p' go.mod)
dir=${KALE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kale}/nomad-${version#v}
[ "${1:-}" = --where ] && { echo "$dir"; exit 0; }
if ! command -v go >/dev/null 2>&1; then
  echo "skipping real Nomad: needs Go to build it" >&2
  exit 0
fi
mkdir -p "$dir/plugins"
cgo=0 # the driver exec needs it; the rest does not
if command -v "${CC:-cc}" >/dev/null 2>&1; then cgo=1; fi
build() { # into a name of its own first: a build that is interrupted leaves nothing that looks whole
  [ -x "$dir/$1" ] && return 0
  echo "building $1 for the tests (Nomad ${version#v}; once)" >&2
  if ! CGO_ENABLED=$cgo go build -mod=readonly -trimpath -ldflags "-s -w" -o "$dir/.new-$$" "$2"; then
    rm -f "$dir/.new-$$"
    echo "skipping real Nomad: it could not be built here; set KALE_NOMAD to a nomad binary" >&2
    return 1
  fi
  mv "$dir/.new-$$" "$dir/$1"
}
build plugins/fakegpu ./fakegpu || exit 0
[ -n "${KALE_NOMAD:-}" ] || build nomad github.com/hashicorp/nomad || exit 0
