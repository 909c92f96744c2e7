#!/usr/bin/env bash
# Runs every fuzz target for a while: fuzz.sh TIME.
set -euo pipefail
cd "$(dirname "$0")/.."
grep -rlE '^func Fuzz' --include=*_test.go . | while read -r f; do
  d=$(dirname "$f")
  grep -oE '^func Fuzz[A-Za-z0-9]+' "$f" | awk '{print $2}' | while read -r t; do
    echo "== $d $t"
    go test "$d" -run '^$' -fuzz "^$t\$" -fuzztime "$1" </dev/null
  done
done
