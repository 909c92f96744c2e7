# From here on it is the same for every workload. Written for any POSIX shell.

# A job that Slurm starts a second time, or a second job for the same workload, must run nothing: the claim is made once, and never again.
[ "${SLURM_RESTART_COUNT:-0}" = 0 ] || exit 0
ln -s "$SLURM_JOB_ID" "$kale_dir/claim" 2>/dev/null || exit 0
[ ! -e "$kale_dir/released" ] || exit 0

kale_child= kale_killer= kale_stopping= kale_restarts=0 kale_first= kale_finished= kale_code=0 kale_quick=0 kale_row=0 kale_pause=0.2
kale_node=${SLURMD_NODENAME:-$(hostname)}
kale_devices=${SLURM_JOB_GPUS:-${CUDA_VISIBLE_DEVICES:-}}

kale_note() { # kale_note STATE REASON: replaces the status, whole
  {
    echo "state=$1"
    echo "job=$SLURM_JOB_ID"
    echo "node=$kale_node"
    echo "devices=$kale_devices"
    echo "pid=${kale_child:-0}"
    echo "restarts=$kale_restarts"
    echo "code=$kale_code"
    echo "first=$kale_first"
    echo "finished=$kale_finished"
    echo "quick=$kale_quick"
    echo "reason=$2"
  } >"$kale_dir/.status" && mv -f "$kale_dir/.status" "$kale_dir/status"
}

kale_how() { # kale_how CODE: how a process ended, in words
  case $1 in
  130) echo "signal 2 (interrupt)" ;;
  134) echo "signal 6 (aborted)" ;;
  137) echo "signal 9 (killed)" ;;
  139) echo "signal 11 (segmentation fault)" ;;
  143) echo "signal 15 (terminated)" ;;
  *) if [ "$1" -gt 128 ] && [ "$1" -le 192 ]; then echo "signal $(($1 - 128))"; else echo "code $1"; fi ;;
  esac
}

kale_ended() { # kale_ended WHY: the line between what two processes wrote
  [ -z "$(tail -c 1 "$kale_dir/output.log" 2>/dev/null)" ] || echo
  echo "$kale_boundary $(date -u +%Y-%m-%dT%H:%M:%SZ) $1"
}

kale_stop() { # passes the request to stop on, once, and kills what does not obey
  [ -z "$kale_stopping" ] || return 0
  kale_stopping=1
  [ -n "$kale_child" ] || return 0
  kill -TERM "$kale_child" 2>/dev/null
  (
    trap 'kill "$s" 2>/dev/null; exit 0' TERM
    sleep "$kale_grace" & s=$!
    wait "$s"
    kill -KILL "$kale_child" 2>/dev/null
  ) &
  kale_killer=$!
}

kale_force() { # ends it now
  kale_stopping=1
  [ -z "$kale_child" ] || kill -KILL "$kale_child" 2>/dev/null
}

kale_heed() { # ends what was released and Slurm does not end, as under a dead slurmd: the record of the release is in the folder
  [ -e "$kale_dir/released" ] || return 0
  case $(cat "$kale_dir/released" 2>/dev/null) in
  *forced*) kill -USR2 $$ ;;
  *) kill -TERM $$ ;;
  esac
}

kale_bound() { # keeps output.log short: what is in it moves to output.log.1, and it is cut off in place, since the program has it open
  trap 'kill "$s" 2>/dev/null; exit 0' TERM
  trap - USR2
  log=$kale_dir/output.log
  while :; do
    sleep 5 & s=$!
    wait "$s"
    kale_heed
    size=$(($(wc -c <"$log"))) && [ "$size" -gt "$kale_bytes" ] || continue
    if [ "$size" -gt $((2 * kale_bytes)) ]; then
      { echo "[kale] $((size - kale_bytes)) bytes of output were left out here"; tail -c "$kale_bytes" "$log"; } >"$log.new" && mv -f "$log.new" "$log.1" && : >"$log"
    else # what comes while it is copied is copied after it
      cp "$log" "$log.new" && tail -c +$(($(wc -c <"$log.new") + 1)) "$log" >>"$log.new" && mv -f "$log.new" "$log.1" && : >"$log"
    fi || rm -f "$log.new"
  done
}

kale_artifact() { # kale_artifact SOURCE SHA256 CACHE: makes CACHE/SHA256 an executable with that sum
  mkdir -p "$3" || return 1
  [ ! -x "$3/$2" ] || return 0
  tmp="$3/.$2.$SLURM_JOB_ID"
  case $1 in
  http://* | https://*) curl -fsSL -o "$tmp" "$1" || wget -q -O "$tmp" "$1" || return 1 ;;
  *) cp "$1" "$tmp" || return 1 ;;
  esac
  sum=$(sha256sum "$tmp") || return 1
  if [ "${sum%% *}" != "$2" ]; then
    echo "[kale] the artifact $1 has the SHA-256 ${sum%% *}, not $2"
    rm -f "$tmp"
    return 1
  fi
  chmod 700 "$tmp" && mv -f "$tmp" "$3/$2"
}

kale_waits() { # whether the generation before this one may live
  [ -d "$kale_beside" ] && [ ! -e "$kale_beside/verdict.json" ] || return 1
  : >"$kale_beside/.look" && rm -f "$kale_beside/.look" # a network file system looks anew where something has changed
  [ ! -e "$kale_beside/settled" ] || return 1 # it was given up, on a node that does not answer
  while read -r line; do
    case $line in state=exited | state=failed) return 1 ;; esac
  done <"$kale_beside/status"
  return 0
} 2>/dev/null

kale_hold() { # holds the place until the generation before has ended
  kale_waits || return 0
  kale_note starting "it holds its place until the generation before it has ended"
  while kale_waits; do
    [ -z "$kale_stopping" ] && [ ! -e "$kale_dir/released" ] || break
    sleep 0.1 & kale_sleep=$!
    wait "$kale_sleep" # a request to stop ends it
  done
  [ ! -e "$kale_dir/released" ] || kale_finish exited "released before it ran"
}

kale_finish() { # kale_finish STATE REASON
  [ -z "$kale_killer" ] || kill "$kale_killer" 2>/dev/null
  kill "$kale_bounder" 2>/dev/null
  kale_finished=$(date +%s)
  kale_child=
  kale_note "$1" "$2"
  exit 0
}

exec </dev/null >>"$kale_dir/output.log" 2>&1
trap kale_stop TERM
trap kale_force USR2
kale_bound &
kale_bounder=$!
cd "$kale_dir/alloc" || kale_finish failed "its folder is not there on node $kale_node: is shared_dir mounted?"
kale_prologue
kale_fetch || { kale_quick=1; kale_code=127; kale_finish failed "its program could not be fetched on node $kale_node; its log says why"; }
kale_environment
kale_hold

while :; do
  [ -z "$kale_stopping" ] || kale_finish failed "it was asked to stop before it ran"
  began=$(date +%s)
  [ -n "$kale_first" ] || kale_first=$began
  ( trap - TERM USR2; kale_exec ) &
  kale_child=$!
  kale_note running ""
  if [ -n "$kale_stopping" ]; then kale_stopping=; kale_stop; fi # it came while the child was being started
  while :; do
    wait "$kale_child"
    kale_code=$?
    kill -0 "$kale_child" 2>/dev/null || break # else it was a signal that ended the wait
  done
  # A signal may have ended the wait just when the program ended: asked again the shell tells its code, or 127 when it has told it already.
  wait "$kale_child" 2>/dev/null
  kale_again=$?
  [ "$kale_again" = 127 ] || kale_code=$kale_again
  if [ -e "$kale_dir/released" ]; then kale_finish exited "released; it ended with $(kale_how "$kale_code")"; fi
  if [ -n "$kale_stopping" ]; then kale_finish failed "Slurm or a person asked it to stop (a time limit, a preemption, scancel); it ended with $(kale_how "$kale_code")"; fi
  case $kale_code in
  0) kale_finish exited "it ended with code 0: done" ;;
  3) kale_finish failed "it ended with code 3: another incarnation has its place" ;;
  esac
  kale_finished=$(date +%s)
  if [ $((kale_finished - began)) -ge 10 ]; then
    kale_pause=0.2 kale_row=0
  fi
  kale_row=$((kale_row + 1))
  if [ "$kale_row" -ge 6 ]; then # about six seconds: the node or the program is at fault
    kale_quick=1
    kale_finish failed "it crashed $kale_row times in a row on node $kale_node, the last time with $(kale_how "$kale_code")"
  fi
  kale_child=
  kale_note starting "it crashed with $(kale_how "$kale_code"); it starts again in $kale_pause s"
  kale_ended "it crashed with $(kale_how "$kale_code")"
  sleep "$kale_pause" & kale_sleep=$!
  wait "$kale_sleep" # a request to stop ends it
  case $kale_pause in
  0.2) kale_pause=0.4 ;; 0.4) kale_pause=0.8 ;; 0.8) kale_pause=1.6 ;; *) kale_pause=3.2 ;;
  esac
  kale_restarts=$((kale_restarts + 1))
done
