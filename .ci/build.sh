#!/usr/bin/env bash
# Builds programs into bin/, and says how far it is: a first build fetches Kale's modules and compiles some hundreds of packages, which takes minutes.
#
#     .ci/build.sh ./cmd/kale ./cmd/kale-trainer ...
#
# Nothing is said of a build that is over within three seconds, and errors come through as they are.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p bin
started=$SECONDS said=$SECONDS fetched=0 built=0 newest=

progress() { # a line that is written over on a terminal, elsewhere one in ten seconds
  local every=10 line
  [[ -t 2 ]] && every=1
  ((SECONDS - started < 3 || SECONDS - said < every)) && return 0
  said=$SECONDS
  line="building Kale, $((SECONDS - started)) s: "
  if ((fetched + built)); then line+="$fetched modules fetched, $built packages compiled, the last $newest"; else line+="all is compiled already; linking"; fi
  if [[ -t 2 ]]; then printf '\r\033[K%s' "${line:0:$(($(tput cols 2>/dev/null || echo 80) - 1))}" >&2; else echo "$line" >&2; fi
}
clear_line() { if [[ -t 2 ]]; then printf '\r\033[K' >&2; fi; }

follow() { # reads what go build -v says
  local line status
  while true; do
    if IFS= read -r -t 1 line; then
      case $line in
        'go: downloading '*) fetched=$((fetched + 1)) newest=${line#go: downloading } ;;
        *[!a-zA-Z0-9._~/-]* | '') clear_line; echo "$line" >&2 ;; # no package's path
        *) built=$((built + 1)) newest=$line ;;
      esac
    else
      status=$?
      ((status > 128)) || break # not the time, but the end
    fi
    progress
  done
  clear_line
  ((SECONDS - started < 10)) || echo "built Kale in $((SECONDS - started)) s" >&2
}

# kale version names the commit: where git answers, whatever GOFLAGS has against it. Go fails where git does, as in a folder of another user.
vcs=-buildvcs=false
git status >/dev/null 2>&1 && vcs=-buildvcs=auto

go build -v -trimpath "$vcs" -o bin/ "$@" 2>&1 | follow
exit "${PIPESTATUS[0]}"
