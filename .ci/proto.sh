#!/usr/bin/env bash
# Regenerates Go code from the protocols: proto.sh TOOLS.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v protoc >/dev/null || { echo "protoc is missing: apt-get install protobuf-compiler" >&2; exit 1; }
export PATH="$1:$PATH"
for p in core/rpc/trainer.proto core/backend/backendpb/backend.proto; do
  protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative "$p"
done
