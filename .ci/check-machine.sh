#!/usr/bin/env bash
# Says what this machine lacks, all at once, and how to install it. Fails only on what nothing works without.
set -u
missing=0
need() { # need COMMAND WHAT INSTALL
  command -v "$1" >/dev/null 2>&1 && return 0
  echo "missing: $2. Install it: $3" >&2
  return 1
}
need go "Go 1.26 or newer" "https://go.dev/dl" || missing=1
if command -v go >/dev/null 2>&1; then
  v=$(go env GOVERSION | sed -E 's/^go([0-9]+)\.([0-9]+).*/\1 \2/')
  read -r major minor <<<"$v"
  if [ "${major:-0}" -lt 1 ] || { [ "$major" -eq 1 ] && [ "${minor:-0}" -lt 21 ]; }; then
    echo "missing: Go 1.26 or newer (this is $(go env GOVERSION)). Install it: https://go.dev/dl" >&2; missing=1
  fi
fi
if ! command -v "${CC:-cc}" >/dev/null 2>&1 && ! command -v gcc >/dev/null 2>&1; then
  echo "missing: a C compiler (ONNX Runtime and NVML are called through cgo). Install it: apt-get install gcc, or xcode-select --install" >&2; missing=1
fi
if [ -z "${KALE_ONNXRUNTIME:-}" ] && [ ! -e .deps/onnxruntime/libonnxruntime.so ]; then
  if ! command -v npm >/dev/null 2>&1 && ! python3 -m pip --version >/dev/null 2>&1 && ! python -m pip --version >/dev/null 2>&1; then
    echo "missing: npm or pip (one of them fetches ONNX Runtime), or KALE_ONNXRUNTIME=/path/to/libonnxruntime.so. Install one: apt-get install npm, or python3-pip" >&2; missing=1
  fi
fi
if ! command -v java >/dev/null 2>&1 || ! command -v mvn >/dev/null 2>&1; then
  echo "note: Java 17 and Maven are not here: the tests against real Apache Kafka are skipped (apt-get install openjdk-17-jre-headless maven)" >&2
fi
if ! command -v sbatch >/dev/null 2>&1 || ! PATH=$PATH:/usr/sbin command -v slurmctld >/dev/null 2>&1; then
  echo "note: Slurm is not here: the tests against a real Slurm are skipped (apt-get install slurm-wlm)" >&2
elif ! PATH=$PATH:/usr/sbin command -v slurmdbd >/dev/null 2>&1 || ! PATH=$PATH:/usr/sbin command -v mariadbd >/dev/null 2>&1; then
  echo "note: slurmdbd or MariaDB is not here: the tests of Slurm's accounts are skipped (apt-get install slurmdbd mariadb-server)" >&2
fi
exit $missing
