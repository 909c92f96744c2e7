#!/usr/bin/env bash
# Puts ONNX Runtime's shared library where Kale's programs and tests look for it:
#
#     .ci/fetch-onnxruntime.sh [DEST]      DEST defaults to <repository>/.deps/onnxruntime
#
# It comes from the npm package onnxruntime-node or, where npm is absent or fails, from the Python wheel onnxruntime, through
# their ordinary clients and whatever registry those are configured for. Nothing is installed and no script of the package
# runs. The library is taken only when its SHA-256 is one of those pinned below. A second run finds it there and touches no network.
# With KALE_ONNXRUNTIME set (a library of your own, such as a CUDA build) nothing is fetched.
set -euo pipefail

readonly version=1.27.0
readonly sums_x64="d8aff4aa8abee8fb2abb2f2f2459ffc94461e781e41b9f7c072829dd0d470221 b5c9d4f124d24707f514dad926dc181820807178855df1c528e3addb2dd0e6f7"
readonly sums_arm64="c36bc200e7e6c093b8abb0b34590fbdd8c52fd3fb5e33795b9523ffdde2fce0f 9275ef52956228686ae47b0219f67476a1148505084bdc5571e7bf1bf69b11f2"
# The first sum of each pair is the npm package's library, the second the wheel's: the same release, built twice.

say() { echo "fetch-onnxruntime: $*" >&2; }
die() { say "$@"; exit 1; }

sha256() {
  if command -v sha256sum >/dev/null; then sha256sum "$1" | cut -d' ' -f1
  elif command -v shasum >/dev/null; then shasum -a 256 "$1" | cut -d' ' -f1
  else die "neither sha256sum nor shasum is installed; install coreutils, the library's checksum must be verified"
  fi
}

# verified FILE: is it one of the pinned libraries for this machine?
verified() { [[ -f $1 && " $sums " == *" $(sha256 "$1") "* ]]; }

# from_npm: leaves the library at $work/libonnxruntime.so. `npm pack` only downloads: the package's postinstall never runs.
from_npm() {
  local member="package/bin/napi-v6/linux/$npm_arch/libonnxruntime.so.1"
  say "fetching onnxruntime-node $version with npm (about 100 MB)"
  (cd "$work" && npm pack --silent --ignore-scripts "onnxruntime-node@$version" >/dev/null) || return 1
  tar -xzf "$work/onnxruntime-node-$version.tgz" -C "$work" "$member" || return 1
  mv "$work/$member" "$work/libonnxruntime.so"
}

# from_pip: the same from the wheel. Platform and Python are named, so that any pip gets the wheel whose sum is pinned.
from_pip() {
  say "fetching onnxruntime $version with pip (about 20 MB)"
  "${pip[@]}" download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --platform "manylinux_2_28_$pip_arch" --platform "manylinux_2_27_$pip_arch" \
    --python-version 3.12 --implementation cp --abi cp312 --dest "$work" "onnxruntime==$version" || return 1
  "$python" - "$work" "$version" <<'PY'
import glob, shutil, sys, zipfile
work, version = sys.argv[1:]
with zipfile.ZipFile(glob.glob(work + "/onnxruntime-*.whl")[0]) as wheel:
    with wheel.open("onnxruntime/capi/libonnxruntime.so." + version) as src, open(work + "/libonnxruntime.so", "wb") as dst:
        shutil.copyfileobj(src, dst)
PY
}

if [[ -n ${KALE_ONNXRUNTIME:-} ]]; then
  [[ -f $KALE_ONNXRUNTIME ]] || die "KALE_ONNXRUNTIME is $KALE_ONNXRUNTIME, which is not a file; correct it, or unset it to fetch the library"
  say "KALE_ONNXRUNTIME is set: using $KALE_ONNXRUNTIME, fetching nothing"
  exit 0
fi

[[ $# -le 1 ]] || die "usage: $0 [DEST]"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dest=${1:-$root/.deps/onnxruntime}

os=$(uname -s) arch=$(uname -m)
[[ $os == Linux ]] || die "no pinned library for $os; get ONNX Runtime 1.24 or newer for it and set KALE_ONNXRUNTIME to the library file"
case $arch in
  x86_64 | amd64) npm_arch=x64 pip_arch=x86_64 sums=$sums_x64 ;;
  aarch64 | arm64) npm_arch=arm64 pip_arch=aarch64 sums=$sums_arm64 ;;
  *) die "no pinned library for linux/$arch; get ONNX Runtime 1.24 or newer for it and set KALE_ONNXRUNTIME to the library file" ;;
esac

if verified "$dest/libonnxruntime.so"; then
  say "$dest/libonnxruntime.so is there already (ONNX Runtime $version)"
  exit 0
fi

python=$(command -v python3 || command -v python || true)
pip=()
if [[ -n $python ]] && "$python" -m pip --version >/dev/null 2>&1; then pip=("$python" -m pip); fi
have_npm=$(command -v npm || true)
[[ -n $have_npm || ${#pip[@]} -gt 0 ]] ||
  die "neither npm nor pip is installed; install one (Debian: apt-get install npm, or python3-pip), or set KALE_ONNXRUNTIME to a libonnxruntime.so of 1.24 or newer"

mkdir -p "$dest"
work=$(mktemp -d "$dest/.fetch.XXXXXX") # beside the target: the last mv is then a rename, so never a half-written library
trap 'rm -rf "$work"' EXIT

got=
if [[ -n $have_npm ]]; then
  if from_npm; then got=npm; else say "npm could not fetch it"; fi
fi
if [[ -z $got && ${#pip[@]} -gt 0 ]]; then
  if from_pip; then got=pip; else say "pip could not fetch it"; fi
fi
[[ -n $got ]] || die "could not fetch ONNX Runtime $version; check the network and the registry that npm or pip is configured for, or set KALE_ONNXRUNTIME"
verified "$work/libonnxruntime.so" ||
  die "the library that $got delivered has SHA-256 $(sha256 "$work/libonnxruntime.so"), which is not one of the pinned ones ($sums); refusing it"
chmod 0644 "$work/libonnxruntime.so"
mv -f "$work/libonnxruntime.so" "$dest/libonnxruntime.so"
say "ONNX Runtime $version from $got is at $dest/libonnxruntime.so"
