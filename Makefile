# `make` lists what can be made. Needed: Go, git, make; everything else is built. With
# Node.js the compacted tables are also read by DuckDB.

GO       ?= go
ROUNDS   ?= 3
SHORT    ?=
BACKFILL ?=
FUZZTIME ?= 20s

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)

# Recipes of several lines that need a weed begin with this.
WEED := weed=$$(infra/seaweedfs/build.sh) && export SPILLWAY_WEED=$$weed

NODE := command -v node >/dev/null && command -v npm >/dev/null

.DEFAULT_GOAL := help
.PHONY: help build weed duckdb demo test test-duckdb test-zones race lint fuzz bench chaos clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/spillway
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/spillway ./cmd/spillway

weed: ## make sure that there is a weed (SeaweedFS); builds it once, about 8 minutes
	@infra/seaweedfs/build.sh

duckdb: ## make sure that there is DuckDB, for reading tables independently; needs Node.js, installs it once
	@infra/duckdb/install.sh

demo: build ## run the whole line on real records and check the result; needs about 40 seconds
	@if $(NODE); then infra/duckdb/install.sh >/dev/null || echo 'going on without DuckDB' >&2; fi
	@$(WEED) && $(GO) run ./infra/demo

test: ## run all tests, on a real SeaweedFS and nats-server; with Node.js also test-duckdb
	@$(WEED) && $(GO) test -timeout 25m ./...
	@if $(NODE) && infra/duckdb/install.sh >/dev/null; then $(MAKE) --no-print-directory test-duckdb; else \
	printf '\n!!! NOT RUN: there is no DuckDB here, so that it has not read what the compactor writes.\n!!! Install Node.js 18 or newer with npm, and run: make test-duckdb\n\n' >&2; fi

test-duckdb: ## have DuckDB read what real flights became in the table; needs Node.js, and fails without
	@infra/duckdb/install.sh >/dev/null && $(WEED) && $(GO) test -timeout 10m -tags duckdb ./infra/duckdb/...

# go test does not know that a test's outcome may depend on TZ: nothing cached counts.
test-zones: ## run the tests of what handles times in two zones that are half an hour off
	@$(WEED) && for zone in Asia/Kolkata America/St_Johns; do echo "TZ=$$zone"; \
	TZ=$$zone $(GO) test -count=1 -timeout 15m ./internal/record ./internal/rows ./internal/parquet ./internal/segment \
	./internal/backfill ./internal/verify ./compactor ./compactor/table || exit 1; done

race: ## run the concurrent packages' tests under the race detector (needs a C compiler)
	@$(WEED) && CGO_ENABLED=1 $(GO) test -race -timeout 30m ./internal/... ./ingest/... ./planner/... ./functions/... ./client/...

lint: ## check format, vet, and golangci-lint with the import fences
	@unformatted=$$(gofmt -l .) && if [ -n "$$unformatted" ]; then echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./... && $(GO) vet -tags duckdb ./infra/duckdb/...
	@linter=$$(infra/tools/lint.sh) && $$linter run ./...
	@heavy=$$($(GO) list -deps ./client | grep -E '^github.com/(seaweedfs|apache|parquet-go)/' || true); \
	if [ -n "$$heavy" ]; then echo "a program that uses the client must not link:"; echo "$$heavy"; exit 1; fi

fuzz: ## run each fuzz target for FUZZTIME (20s)
	@infra/tools/fuzz.sh $(FUZZTIME)

bench: build ## measure throughput and latency against the limits; writes bench/latest.json; backfills and compaction need SPILLWAY_DATA
	@if $(NODE); then infra/duckdb/install.sh >/dev/null || echo 'going on without DuckDB' >&2; fi
	@$(WEED) && $(GO) run ./infra/bench

chaos: build ## publish at full speed while processes are killed, ROUNDS (3) times, then verify; before that a 5 GiB object, after it backfills of a sample; SHORT=1: brief, and no object; BACKFILL=1: only backfills, of all flights in SPILLWAY_DATA
	@$(WEED) && $(GO) run ./infra/chaos -rounds $(ROUNDS) $(if $(SHORT),-short) $(if $(BACKFILL),-backfill)

clean: ## remove what was built here; the cache of weed and golangci-lint stays
	rm -rf bin bench/*.prof
