#!/usr/bin/env bash
# Installs a Go program at a pinned version into a folder, once: fetch-tool.sh FOLDER PACKAGE@VERSION. The module proxy's checksums guard it.
set -euo pipefail
dir=$1 pkg=$2
name=$(basename "${pkg%@*}") stamp="$dir/.$(basename "${pkg%@*}")"
[ -x "$dir/$name" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$pkg" ] && exit 0
mkdir -p "$dir"
echo "building $pkg" >&2
GOBIN="$dir" GOFLAGS= go install "$pkg"
echo "$pkg" >"$stamp"
