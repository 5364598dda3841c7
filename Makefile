# Everything a user or a script types. `make help` lists it.
SHELL := /bin/bash
GO ?= go
BIN := bin/strandline
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
TESTFLAGS ?=

.PHONY: help build run test test-all tools lint bench docs clean \
  test-long test-long-kill test-long-power test-long-tier test-long-metamorphic test-long-soak test-long-groups test-long-compaction test-long-scale fuzz

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 24

build: ## bin/strandline, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/strandline

# Small segments, little local retention and short pauses, so that the tier and
# compaction are seen at work after a few megabytes, and a group begins at once.
run: build ## a broker in the foreground on ./data, with a directory as its tier
	./$(BIN) server \
	  --set log.dirs=./data/logs --set metadata.log.dir=./data/metadata \
	  --set remote.cache.dir=./data/cache --set remote.store.url=file://$(CURDIR)/data/tier \
	  --set log.segment.bytes=1048576 --set log.roll.ms=10000 \
	  --set log.local.retention.bytes=4194304 \
	  --set log.initial.task.delay.ms=1000 --set log.retention.check.interval.ms=2000 --set remote.log.manager.task.interval.ms=1000 \
	  --set log.cleaner.backoff.ms=2000 --set group.initial.rebalance.delay.ms=0

test: ## format, vet and all tests; what needs a missing tool is skipped with a visible line
	$(GO) run ./integration/testrun $(TESTFLAGS)

test-all: tools ## make test with every tool installed and a skip made a failure
	STRANDLINE_REQUIRE_TOOLS=1 $(GO) run ./integration/testrun $(TESTFLAGS)

tools: ## install what a Debian machine lacks: kcat, clients of Python and Node, strace, MinIO, Apache Kafka's tools, Prometheus
	./integration/tools.sh

# The full forms of what make test runs short, each a target of its own.
LONG := STRANDLINE_LONG=1 $(GO) test -count=1 -v
FUZZTIME ?= 30s

test-long: test-long-kill test-long-power test-long-tier test-long-metamorphic test-long-soak test-long-groups test-long-compaction fuzz ## the full forms of what make test runs short; each part is a target

test-long-kill: ## kill -9 at named steps and at random, under load
	$(LONG) -timeout 60m -run 'TestKill|TestCommitsSurviveKills|TestCrowd|TestDamagedFiles|TestHostile|TestOffsetsAreLinearizable|TestWritesThroughKills' ./integration/crash ./integration/cases

test-long-power: ## power losses at random and directed points, on the disk in memory
	$(LONG) -timeout 60m -run Power ./integration/crash ./broker/locallog

test-long-tier: ## 2 GiB through MinIO and back, a 1 GiB segment, the store's failures
	$(LONG) -timeout 60m ./integration/tier -skip TestTierOnEqualsTierOff
	$(LONG) -timeout 30m ./tiering/objstore/drivers

test-long-metamorphic: ## one workload with the tier on and off, many seeds
	$(LONG) -timeout 60m -run TestTierOnEqualsTierOff ./integration/tier

test-long-soak: ## minutes of load on the cases of the tier
	$(LONG) -timeout 120m ./integration/tiercases

test-long-groups: ## every client's group with the server killed ten times, and minutes of groups over a log that is compacted
	$(LONG) -timeout 60m -run 'TestGroups$$|TestGroupsSurviveCompaction' ./integration/clients ./integration/cases

test-long-compaction: ## 500 seeds against a map, 5 million keys, 50 kills, every client from every offset
	$(LONG) -timeout 60m ./broker/cleaner ./integration/compaction
	$(LONG) -timeout 30m -run CompactedLogs ./integration/clients

test-long-scale: ## 5,000 partitions, 100,000 groups and 100,000 remote segments, beside Apache Kafka; half an hour
	$(LONG) -timeout 60m ./integration/scale

fuzz: ## every fuzz target for FUZZTIME, one after the other
	@grep -rlE '^func Fuzz' --include='*_test.go' broker metadata tiering | xargs -n1 dirname | sort -u | while read -r dir; do \
	  for target in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]+' $$dir/*_test.go | cut -c6-); do \
	    echo "$$dir $$target"; \
	    $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) ./$$dir || exit 1; \
	  done; done

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

lint: ## golangci-lint with .golangci.yml where it is installed, else staticcheck alone
	@if command -v golangci-lint >/dev/null; then golangci-lint run ./...; \
	else echo "golangci-lint is not installed: staticcheck alone"; $(GO) run $(STATICCHECK) ./...; fi

bench: ## Go benchmarks of the hot path
	$(GO) test -run '^$$' -bench . -benchmem ./broker/... ./tiering/... ./metadata/...

docs: build ## write the generated reference pages
	./$(BIN) docs apis > docs/apis.md
	./$(BIN) docs config > docs/configuration.md
	./$(BIN) docs metrics > docs/metrics.md

clean: ## remove what was built; never ./data
	rm -rf bin coverage.out
