# Needs Go and make; everything else is installed or done without.

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
# All checks but the style of names, of which some come from the protocols spoken.
CHECKS := all,-ST1003

# For one test package. A hang ends here, with the stacks of all goroutines.
TIMEOUT ?= 20m
# `make bench SHORT=1` is a quick look, `make bench BENCH=own,hand` some scenarios by parts of their names, `make bench
# FULL=1` the longest run. Only whole runs go into README.
BENCH ?=
SHORT ?=
FULL ?=

# The kit, and each module inside of it: what benchmarks and tests need beside stays out of the kit's go.mod.
MODULES := . $(patsubst ./%/go.mod,%,$(filter-out ./go.mod,$(shell find . -name '.?*' -prune -o -name testdata -prune -o -name go.mod -print)))

.DEFAULT_GOAL := help
.PHONY: help test proof bench lint

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# One package at a time (-p 1): tests with real processes bear a busy machine, but are better off without one.
test: ## Install missing servers where possible, then run all tests with the race detector
	@.ci/servers
	@race=-race; \
	if ! go build -race runtime/race >/dev/null 2>&1; then \
		race=; echo "make test: no working C compiler (or no cgo): the tests run without -race"; \
	fi; \
	status=0; \
	for module in $(MODULES); do \
		(cd $$module && set -x && go test $$race -p 1 -shuffle=on -timeout $(TIMEOUT) ./...) || status=1; \
	done; \
	exit $$status

proof: ## Run everything that shows what the kit promises, write the report (LONG=1: the full counts, hours)
	@.ci/servers
	@go run ./core/proof

bench: ## Measure the kit beside its peers (SHORT=1: a quick look, BENCH=own,hand: some scenarios)
	@.ci/servers
	@cd core/benchmarks && go build -o ../../bin/benchmarks . && \
	../../bin/benchmarks $(if $(SHORT),-short) $(if $(FULL),-full) $(if $(BENCH),-run '$(BENCH)') \
		$(if $(SHORT)$(BENCH),,-json result.json -chart chart.svg -readme ../../README.md)

lint: ## Check formatting, go vet, staticcheck and go.mod
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "make lint: run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	@for module in $(MODULES); do \
		(cd $$module && set -ex && \
			go vet ./... && go run $(STATICCHECK) -checks $(CHECKS) ./... && go mod tidy -diff) || exit 1; \
	done
