#!/usr/bin/env bash
# Puts Apache Kafka's jars, pinned, into the cache that the tests use, where Java and Maven are there; says so where not.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v java >/dev/null 2>&1 || ! command -v mvn >/dev/null 2>&1; then
  echo "skipping real Kafka: needs Java 17 or newer and Maven (apt-get install openjdk-17-jre-headless maven)" >&2
  exit 0
fi
go run ./core/stream/kafkatest/fetch
