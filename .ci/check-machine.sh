#!/usr/bin/env bash
# Says what this machine lacks, all at once: what each is needed for, and what installs it. With -v also what it has, with version and path.
# Fails only on what nothing works without.
set -u
verbose=; [ "${1:-}" = -v ] && verbose=1
failed=0

# number: the first version in what a command says of itself.
number() { "$@" 2>&1 </dev/null | sed 's/\x1b\[[0-9;]*m//g' | grep -oE '[0-9]+(\.[0-9]+)*' | head -n 1; }
found() { [ -z "$verbose" ] || printf 'found     %-13s %-9s %s\n' "$1" "$2" "$3"; }         # NAME VERSION PATH
missing() { printf 'missing   %-13s needed %s. Install it: %s\n' "$@" >&2; failed=1; }      # NAME WHATFOR INSTALL
optional() { printf 'optional  %-13s is not here: needed %s. Install it: %s\n' "$@" >&2; }   # NAME WHATFOR INSTALL

if ! command -v go >/dev/null 2>&1; then
  missing Go "to build Kale, 1.26 or newer" "https://go.dev/dl"
else
  v=$(go env GOVERSION | sed 's/^go//')
  IFS=. read -r major minor _ <<<"$v"
  if [ "${major:-0}" -lt 1 ] || { [ "$major" -eq 1 ] && [ "${minor:-0}" -lt 21 ]; }; then
    missing Go "to build Kale, 1.26 or newer, or 1.21, which fetches it (this is $v, $(command -v go))" "https://go.dev/dl"
  else
    found Go "$v" "$(command -v go)"
  fi
fi

if cc=$(command -v "${CC:-cc}" || command -v gcc); then
  v=$("$cc" -dumpfullversion 2>/dev/null || "$cc" -dumpversion 2>/dev/null)
  found "C compiler" "$v" "$cc"
else
  missing "C compiler" "to call ONNX Runtime and NVML (cgo)" "apt-get install gcc"
fi

python=$(command -v python3 || command -v python)
if [ -n "${KALE_ONNXRUNTIME:-}" ] || [ -e .deps/onnxruntime/libonnxruntime.so ]; then
  : # fetch-onnxruntime.sh says which it is
elif command -v npm >/dev/null 2>&1; then
  found npm "$(number npm --version)" "$(command -v npm)"
elif [ -n "$python" ] && "$python" -m pip --version >/dev/null 2>&1; then
  found pip "$(number "$python" -m pip --version)" "$python -m pip"
else
  missing "npm or pip" "to fetch ONNX Runtime (or set KALE_ONNXRUNTIME to a libonnxruntime.so of 1.24 or newer)" "apt-get install npm, or python3-pip"
fi

kafka="for the tests against real Apache Kafka, which are skipped without"
v=
command -v java >/dev/null 2>&1 && v=$(number java -version)
if [ -z "$v" ]; then
  optional Java "$kafka" "apt-get install openjdk-17-jre-headless"
elif [ "${v%%.*}" -lt 17 ]; then
  optional "Java 17" "$kafka (this is $v, $(command -v java))" "apt-get install openjdk-17-jre-headless"
else
  found Java "$v" "$(command -v java)"
fi
# extra NAME COMMAND WHATFOR INSTALL [VERSION...]: what the rest can do without.
extra() {
  if ! command -v "$2" >/dev/null 2>&1; then
    optional "$1" "$3" "$4"
  elif [ -n "$verbose" ]; then
    found "$1" "$(number "${@:5}")" "$(command -v "$2")"
  fi
}
extra Maven mvn "$kafka" "apt-get install maven" mvn --version
PATH=$PATH:/usr/sbin:/sbin # the daemons lie there
slurm="for the tests against a real Slurm, which are skipped without, and for make cluster-slurm"
extra Slurm slurmctld "$slurm" "apt-get install slurm-wlm" slurmctld -V
extra sbatch sbatch "$slurm" "apt-get install slurm-client" slurmctld -V
accounts="for the tests of Slurm's accounts, which are skipped without"
extra slurmdbd slurmdbd "$accounts" "apt-get install slurmdbd" slurmctld -V
extra MariaDB mariadbd "$accounts" "apt-get install mariadb-server" mariadbd --version
extra Docker dockerd "for the tests of tasks that run in containers, which are skipped without" "apt-get install docker.io" dockerd --version
[ -z "$verbose" ] || extra protoc protoc "for make proto alone, where a protocol is changed" "apt-get install protobuf-compiler" protoc --version
[ -z "$verbose" ] || extra "NVIDIA driver" nvidia-smi "to compute on GPUs; without, workers compute on CPUs: gpus = 0 in the job file" "the site's NVIDIA driver" nvidia-smi --query-gpu=driver_version --format=csv,noheader
exit $failed
