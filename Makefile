# Everything a user or a script types. `make help` lists it.
SHELL := /bin/bash
GO ?= go
BIN := bin/strandline
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
TESTFLAGS ?=

.PHONY: help build run test test-all test-long tools lint bench fuzz docs clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

build: ## bin/strandline, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/strandline

# Small segments and little local retention, so that the tier is seen at work
# after a few megabytes.
run: build ## a broker in the foreground on ./data, with a directory as its tier
	./$(BIN) server \
	  --set log.dirs=./data/logs --set metadata.log.dir=./data/metadata \
	  --set remote.cache.dir=./data/cache --set remote.store.url=file://$(CURDIR)/data/tier \
	  --set log.segment.bytes=1048576 --set log.roll.ms=10000 \
	  --set log.local.retention.bytes=4194304 \
	  --set log.retention.check.interval.ms=2000 --set remote.log.manager.task.interval.ms=1000

test: ## format, vet and all tests; what needs a missing tool is skipped with a visible line
	$(GO) run ./integration/testrun $(TESTFLAGS)

test-all: tools ## make test with every tool installed and a skip made a failure
	STRANDLINE_REQUIRE_TOOLS=1 $(GO) run ./integration/testrun $(TESTFLAGS)

tools: ## install what a Debian machine lacks: kcat, python3-kafka, strace, MinIO, Apache Kafka's tools
	./integration/tools.sh

lint: ## golangci-lint, where it is installed
	golangci-lint run ./...

bench: ## Go benchmarks of the hot path
	$(GO) test -run '^$$' -bench . -benchmem ./broker/... ./tiering/... ./metadata/...

docs: build ## write the generated reference pages
	./$(BIN) docs apis > docs/apis.md
	./$(BIN) docs config > docs/configuration.md
	./$(BIN) docs metrics > docs/metrics.md

clean: ## remove what was built; never ./data
	rm -rf bin coverage.out
