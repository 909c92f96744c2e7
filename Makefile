# Kale. Two commands do all the set-up and the work: `make demo` and `make test`. `make help` lists the rest.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help deps build cluster-slurm cluster-nomad demo test lint bench bench-replay chaos crowd proto fuzz clean

ROOT    := $(CURDIR)
ORT     := $(ROOT)/.deps/onnxruntime
TOOLS   := $(ROOT)/.deps/tools
PROGRAMS := kale kale-trainer kale-backend-local kale-backend-nomad kale-backend-slurm kale-cluster

# Pinned tools.
GOLANGCI_LINT := v2.15.0
PROTOC_GEN_GO := v1.36.12
PROTOC_GEN_GO_GRPC := v1.6.0
GOTESTSUM := v1.13.0

# How `make test` runs tests: each once. What fails is named again at the end. go vet is a part of `make lint`. A process with the race detector sleeps for
# a second before it ends, for reports of others: a tenth will do.
# RERUN=n (CI has 1) runs what failed again, up to n times, where that are few tests and none has a data race: real clusters on a machine that others use
# too are late now and then. Both runs are printed, and what needed a second one is a bug to be found.
RUNTESTS := GORACE=atexit_sleep_ms=100 "$(TOOLS)/gotestsum" --format pkgname-and-test-fails $(if $(RERUN),--rerun-fails=$(RERUN) --rerun-fails-max-failures=5 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race)
# -race brings checks of unsafe pointers too. Packages of numbers have none of their own (core/law_test.go sees to that), and are checked at every math.Abs, which makes
# them slower and shows nothing (forecast: 203 s of CPU, without 149). Everything else keeps the checks.
NUMBERS := math $(addprefix github.com/kale-sched/kale/,forecast/... estimator core/plan core/replay)
TESTFLAGS := -race -vet=off $(NUMBERS:%=-gcflags=%=-d=checkptr=0)
# Packages under test at once, and end-to-end tests: many wait for servers more than they compute. The longest come first.
AT_ONCE := $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$((n > 4 ? n : 4)))

help: ## what each target does
	@width=$$(tput cols 2>/dev/null || echo 100); grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' | \
	  while IFS='|' read -r target does; do printf '  make %-14s %s\n' "$$target" "$$(fold -s -w $$((width > 60 ? width - 23 : 40)) <<<"$$does" | sed 's/ *$$//; 2,$$s/^/                      /')"; done

deps: ## check what the machine has and fetch ONNX Runtime, pinned (Kafka and Nomad are fetched by make test)
	@.ci/check-machine.sh $(if $(filter deps,$(MAKECMDGOALS)),-v)
	@.ci/fetch-onnxruntime.sh "$(ORT)"

build: deps ## build the programs into bin/
	@.ci/build.sh $(BUILDFLAGS) $(PROGRAMS:%=./cmd/%)
	@ln -sf ../.deps/onnxruntime/libonnxruntime.so bin/libonnxruntime.so 2>/dev/null || true

demo: build ## one job through a day of two minutes on this machine: live picture, summary, report; leaves nothing else behind
	@bin/kale demo

cluster-slurm: build ## a private Slurm with fake GPUs on this machine, to try Kale on; Ctrl-C ends it (needs slurm-wlm)
	@bin/kale-cluster slurm

cluster-nomad: build ## a private Nomad with fake GPUs on this machine, to try Kale on; Ctrl-C ends it (built once, 2 minutes)
	@.ci/fetch-nomad.sh
	@bin/kale-cluster nomad

test: BUILDFLAGS := -trimpath=false -buildvcs=false # as linters and tests build: what is compiled, or linked, for one serves the others
test: build ## all tests with the race detector, real Kafka included where Java and Maven are
	@.ci/fetch-kafka.sh
	@.ci/fetch-nomad.sh
	@.ci/fetch-tool.sh "$(TOOLS)" gotest.tools/gotestsum@$(GOTESTSUM)
	@$(RUNTESTS) --packages "$$(go list ./cmd/kale ./plugins/... ./forecast ./... | grep -v /cmd/kale/e2e | tr '\n' ' ')" -- $(TESTFLAGS) -p $(AT_ONCE) -timeout 25m
	@$(RUNTESTS) --packages ./cmd/kale/e2e -- $(TESTFLAGS) -parallel $(AT_ONCE) -timeout 40m # alone: it runs the whole product

lint: ## golangci-lint, pinned
	@.ci/fetch-tool.sh "$(TOOLS)" github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT)
	@"$(TOOLS)/golangci-lint" run ./...

bench: build ## benchmarks of what is hot; figures depend on the machine, compare ratios within one run
	@go test -count=1 -run '^TestHeldOutError$$' -v ./estimator
	@go test -run '^$$' -bench . -benchtime 0.5s ./core/onnx ./trainer/... ./shuffler ./estimator ./forecast ./core/plan ./core/pool ./core/profile ./core/replay ./core/traffic ./core/stream

REPLAY ?= -synthetic week -sweep
bench-replay: build ## the policies over the published week, with outages of 5 to 8 minutes and live, tables and pages in .cache/replay; TRACES=DIR does the .csv.gz in DIR too
	@mkdir -p .cache/replay
	@set -o pipefail; for how in 5m..8m live; do \
	  echo "== week, $$how"; \
	  bin/kale replay $(REPLAY) -rescale $$how -o .cache/replay/week-$$how.html | tee .cache/replay/week-$$how.txt || exit 1; \
	  for trace in $(TRACES:%=%/*.csv.gz); do name=$$(basename $$trace .csv.gz); \
	    echo "== $$name, $$how"; \
	    bin/kale replay -trace $$trace -scale 28 -sweep -rescale $$how -o .cache/replay/$$name-$$how.html | tee .cache/replay/$$name-$$how.txt || exit 1; \
	  done; \
	done

fuzz: ## a short run of every fuzz target
	@.ci/fuzz.sh 20s

FAULTS ?= 100
chaos: build ## a job through FAULTS=100 random faults on every backend that this machine has; KALE_CHAOS_SEED=N repeats a run; journals go to .cache/chaos
	@.ci/fetch-kafka.sh
	@mkdir -p .cache/chaos
	@go test -count=1 -timeout 3h -parallel 1 -run '^TestChaos$$' ./cmd/kale/e2e -v -faults $(FAULTS) -chaos-log "$(ROOT)/.cache/chaos"

CROWD ?= 200
crowd: build ## CROWD=200 workers without compute on a private Slurm and a private Nomad: time until all have joined, calls to the controller, memory (takes 8 GB)
	@.ci/fetch-nomad.sh
	@go test -count=1 -timeout 2h -run '^TestCrowd$$' ./cmd/kale/e2e -v -crowd $(CROWD)

proto: ## regenerate the protocols (needs protoc)
	@.ci/fetch-tool.sh "$(TOOLS)" google.golang.org/protobuf/cmd/protoc-gen-go@$(PROTOC_GEN_GO)
	@.ci/fetch-tool.sh "$(TOOLS)" google.golang.org/grpc/cmd/protoc-gen-go-grpc@$(PROTOC_GEN_GO_GRPC)
	@.ci/proto.sh "$(TOOLS)"

clean: ## remove what was built and fetched
	@rm -rf bin .deps .cache
