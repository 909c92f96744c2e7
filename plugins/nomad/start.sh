# Starts a workload's program on a node and stays beside it. Arguments: its grace in seconds, how many GPUs it asked
# for, then the program and its arguments. Plain sh: it runs in whatever image the job names.
early= stop= hard= pid=
trap early=1 TERM INT USR2 # from the first moment on: by itself a signal would end it as a crash, and Nomad would start it again
grace=$1 gpus=$2
shift 2
exec 2>&1
cd "$NOMAD_TASK_DIR" || exit 1
state="$NOMAD_TASK_DIR/.kale"
mkdir -p "$state" || exit 1

# final leaves the true exit code (and why) where the backend reads it, and ends well, so that Nomad starts no other. What the
# program was given, of which some may be secret, goes: Nomad would keep it until it collects the allocation.
final() {
  rm -rf "$NOMAD_SECRETS_DIR/kale" "$NOMAD_SECRETS_DIR/kale-zipped" 2> /dev/null
  printf '%s\n' "$*" > "$state/exit.new" && mv "$state/exit.new" "$state/exit"
  exit 0
}

# Somebody has Nomad restart what has ended for good: what it was given is gone, and the scheduler starts the next generation.
[ ! -e "$state/exit" ] || exit 0
if [ "${NOMAD_ALLOC_INDEX:-0}" != 0 ]; then
  final 3 "a second copy of this workload was asked for, which never runs"
fi
# Where Nomad has moved the workload, it starts when the process before it has ended: the backend says so. See bind.go.
unless_stopped() { [ -z "$early$stop" ] || final 0 "it was asked to stop before it ran"; }
waits=
while unless_stopped; bound=$(cat "$NOMAD_SECRETS_DIR/kale/.bound" 2> /dev/null); [ -n "$bound" ] && [ "$bound" != "$NOMAD_ALLOC_ID" ]; do
  [ -n "$waits" ] || echo "[kale] Nomad has moved it here; it starts when the process before it has ended"
  waits=1
  sleep 0.2
done
# What an earlier one of this allocation left running, when it was killed from outside or Nomad lost sight of it, ends
# before anything starts: first that one itself, then its program with all of its session.
ours() { grep -qs "NOMAD_ALLOC_ID=$NOMAD_ALLOC_ID" "/proc/$1/environ"; }
# In a container both may have been called 1, or whatever else is somebody's here by now.
old=$(cat "$state/self" 2> /dev/null)
if [ -n "$old" ] && [ "$old" != $$ ] && ours "$old"; then kill -s KILL "$old" 2> /dev/null; fi
if [ -s "$state/program" ]; then
  old=$(cat "$state/program")
  while ours "$old" && kill -s KILL "$old" 2> /dev/null; do
    kill -s KILL -- "-$old" 2> /dev/null
    sleep 0.05
  done
fi
echo $$ > "$state/self"
# Nomad has started this one anew: say how the one before it ended.
if [ -e "$state/lives" ]; then
  if [ -e "$state/ended" ]; then ended=$(cat "$state/ended"); else ended="it was killed from outside"; fi
  printf '[kale] process ended: %s\n' "$ended"
fi
rm -f "$state/ended"

export KALE_ALLOC_DIR="$NOMAD_SECRETS_DIR/kale"
zipped="$NOMAD_SECRETS_DIR/kale-zipped"
if [ -d "$zipped" ]; then # they were too large otherwise
  command -v gzip > /dev/null 2>&1 || final 127 "its files came compressed, and gzip is not there"
  mkdir -p "$KALE_ALLOC_DIR" || exit 1
  for f in "$zipped"/* "$zipped"/.[!.]*; do
    [ ! -f "$f" ] || (umask 077 && gzip -dc < "$f" > "$KALE_ALLOC_DIR/${f##*/}") || final 126 "its files came compressed, and do not fit its secrets folder (Nomad's clients give 1 MB before 1.8.3)"
  done
fi
. "$KALE_ALLOC_DIR/.env" || exit 1
if [ "$gpus" = 0 ]; then
  export CUDA_VISIBLE_DEVICES=""
elif [ -z "${CUDA_VISIBLE_DEVICES:-}" ] && [ -n "${NVIDIA_VISIBLE_DEVICES:-}" ]; then
  export CUDA_VISIBLE_DEVICES="$NVIDIA_VISIBLE_DEVICES"
fi
# A program that was downloaded by itself, and not in an archive, may be nobody's to run.
fetched="$NOMAD_TASK_DIR/kale/$1"
if [ -f "$fetched" ] && [ ! -x "$fetched" ] && ! chmod +x "$fetched" 2> /dev/null; then
  mkdir -p "$state/bin" && cp "$fetched" "$state/bin/" && chmod +x "$state/bin/$1"
fi
PATH="$NOMAD_TASK_DIR/kale:$state/bin:${PATH:-/usr/local/bin:/usr/bin:/bin}"
export PATH
command -v "$1" > /dev/null 2>&1 || final 127 "the program $1 is not there, or cannot be run"

signal() { # the program and all that it started, where it has a session of its own
  [ -n "$pid" ] || return 0
  if [ -n "$session" ] && [ "$1" = KILL ]; then kill -s "$1" -- "-$pid" 2> /dev/null; else kill -s "$1" "$pid" 2> /dev/null; fi
}
drain() {
  [ -z "$stop" ] || return 0
  stop=1
  signal TERM
  main=$$
  (trap '' TERM INT USR2; sleep "$grace"; kill -s USR2 "$main" 2> /dev/null) > /dev/null 2>&1 &
  timer=$!
}
abort() {
  stop=1 hard=1
  signal KILL
}
how() { # how CODE: how a process ended, in words
  case $1 in
  130) echo "signal 2 (interrupt)" ;;
  134) echo "signal 6 (aborted)" ;;
  137) echo "signal 9 (killed)" ;;
  139) echo "signal 11 (segmentation fault)" ;;
  143) echo "signal 15 (terminated)" ;;
  *) if [ "$1" -gt 128 ] && [ "$1" -le 192 ]; then echo "signal $(($1 - 128))"; else echo "code $1"; fi ;;
  esac
}

trap drain TERM INT
trap abort USR2
unless_stopped

session= tied=
if command -v setsid > /dev/null 2>&1; then session=setsid; fi
# Where it can be had, the kernel ends the program when this shell is killed.
if setpriv --pdeathsig KILL true > /dev/null 2>&1; then tied="setpriv --pdeathsig KILL"; fi
echo x >> "$state/lives"
$session $tied "$@" < /dev/null &
pid=$!
echo "$pid" > "$state/program"
if [ -n "$hard" ]; then signal KILL; elif [ -n "$stop" ]; then signal TERM; fi # asked for while it was being started
while :; do
  wait "$pid"
  code=$?
  kill -0 "$pid" 2> /dev/null || break
done
# A signal may have ended the wait just when the program ended: asked again the shell tells its code, or 127 when it has told it already.
wait "$pid" 2> /dev/null
again=$?
[ "$again" = 127 ] || code=$again
[ -z "$session" ] || kill -s KILL -- "-$pid" 2> /dev/null # what it left running
[ -z "${timer:-}" ] || kill -s KILL "$timer" 2> /dev/null

case $code in
0) final 0 "it ended with code 0: done" ;;
3) final 3 "it ended with code 3: another incarnation has its place" ;;
esac
[ -z "$stop" ] || final "$code" "it was asked to stop and ended with $(how "$code")"
echo "it crashed with $(how "$code")" > "$state/ended"
exit "$code"
