# Needs Go and make; everything else is installed or done without.

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
# All checks but the style of names, of which some come from the protocols spoken.
CHECKS := all,-ST1003

# For one test package. A hang ends here, with the stacks of all goroutines.
TIMEOUT ?= 20m
# Which benchmarks `make bench` runs, as a regular expression.
BENCH ?= .

# The kit, and the benchmarks with the peers they compare to, which stay out of the kit's go.mod.
MODULES := . $(patsubst %/go.mod,%,$(wildcard core/benchmarks/go.mod))

.DEFAULT_GOAL := help
.PHONY: help test bench lint

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

bench: ## Run the benchmarks (BENCH=regexp picks some)
	@if [ -f core/benchmarks/go.mod ]; then \
		.ci/servers && cd core/benchmarks && go test -run '^$$' -bench '$(BENCH)' -benchmem ./...; \
	else \
		echo "make bench: core/benchmarks does not exist yet, nothing to run"; \
	fi

lint: ## Check formatting, go vet, staticcheck and go.mod
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "make lint: run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	@for module in $(MODULES); do \
		(cd $$module && set -ex && \
			go vet ./... && go run $(STATICCHECK) -checks $(CHECKS) ./... && go mod tidy -diff) || exit 1; \
	done
