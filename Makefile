# Needs Go and make; everything else is installed or done without.

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
# All checks but the style of names, of which some come from the protocols spoken.
CHECKS := all,-ST1003

# For one test package. A hang ends here, with the stacks of all goroutines.
TIMEOUT ?= 20m
# So many packages are tested at a time.
SIDE_BY_SIDE ?= 3
# `make test PKG="./core/redlock ./core/once" RUN=TestFaults COUNT=3 SHORT=1` tests some packages, with go test's -run, -count
# and -short. BUSY=1 tests beside four busy loops a core. A package of a module inside needs MODULES=core/benchmarks PKG=. too.
PKG ?=
RUN ?=
COUNT ?=
BUSY ?=
# `make proof PART=mutants,hazards` runs parts by their names.
PART ?=
# `make bench SHORT=1` is a quick look, `make bench BENCH=own,hand` some scenarios by parts of their names, `make bench
# FULL=1` the longest run. Only whole runs go into core/benchmarks/README.md.
BENCH ?=
SHORT ?=
FULL ?=
# `make matrix SERVER=valkey,redis-6` runs those whose names begin so.
SERVER ?=
WRITE ?=
FRESH ?=

# The kit, and each module inside of it: what benchmarks and tests need beside stays out of the kit's go.mod.
MODULES := . $(if $(PKG),,$(patsubst ./%/go.mod,%,$(filter-out ./go.mod,$(shell find . -name '.?*' -prune -o -name testdata -prune -o -name go.mod -print))))

.DEFAULT_GOAL := help
.PHONY: help test newest proof bench lint matrix

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# Every package's own tests. Those of the proof run with make proof; but for two, whose tests of themselves are quick.
PROOF := /core/proof/(adapters|hazards|histories|latency|matrix|models|neighbours|sim|soak)$$

# Tests with real processes wait most of the time and bear a busy machine, so some packages run side by side: in
# reverse order, which has no long one left at the end with nothing beside it. The nested modules, one after another, run
# beside the kit's own packages. The race detector leaves out SQLite, which is translated C: slowed by it, a batch of 600
# extensions takes more than the 2 s of a call.
test: ## Install missing servers where possible, then run every package's tests with the race detector (PKG=./core/once: those of one package, BUSY=1: beside busy loops)
	@.ci/servers
	@$(MAKE) --no-print-directory --keep-going --jobs=$(if $(BUSY),1,2) $(MODULES:%=test-of/%)

.PHONY: $(MODULES:%=test-of/%)
$(MODULES:%=test-of/%):
	@race="-race -gcflags=modernc.org/...=-race=false"; \
	if ! go build -race runtime/race >/dev/null 2>&1; then \
		race=; echo "make test: no working C compiler (or no cgo): the tests run without -race"; \
	fi; \
	cd $(@:test-of/%=%) && packages=$(if $(PKG),'$(PKG)',$$(go list ./... | grep -vE '$(PROOF)' | sort -r)) && set -x && \
	$(if $(BUSY),$(CURDIR)/.ci/busy) go test $$race -p $(SIDE_BY_SIDE) -shuffle=on -timeout $(TIMEOUT) \
		$(if $(RUN),-run '$(RUN)') $(if $(COUNT),-count $(COUNT)) $(if $(SHORT),-short) $$packages

# go.mod names the least versions of the dependencies, so the other targets are about those. To record newer ones:
# go get -modfile=.ci/newest.mod <module>@<version> && go mod tidy -modfile=.ci/newest.mod
# and in grpcmw/connectmw the same with -modfile=../../.ci/newest-connectmw.mod.
newest: ## Build with the newest recorded versions of the dependencies, and run the tests that depend on them
	go vet -modfile=.ci/newest.mod -tags newest ./...
	go test -modfile=.ci/newest.mod -tags newest -p $(SIDE_BY_SIDE) -shuffle=on -timeout $(TIMEOUT) ./httpmw/... ./grpcmw/... ./taskmw \
		./core/otellock ./core/redisstore/internal/pipeline
	go test -modfile=.ci/newest.mod -tags newest -p $(SIDE_BY_SIDE) -shuffle=on -timeout $(TIMEOUT) -short \
		-run '^Test(Store|Check|ErrorReplies|Migrate|Rights|Faults)$$' ./core/redisstore ./core/pgstore
	cd grpcmw/connectmw && go test -modfile=$(CURDIR)/.ci/newest-connectmw.mod -shuffle=on -timeout $(TIMEOUT) .

proof: ## Run what make test leaves out (PART=mutants: some of it, PART=all: every test, and the report, LONG=1: the same at full counts, in hours)
	@.ci/servers
	@go run ./core/proof $(if $(PART),-run $(PART))

matrix: ## Run the stores' tests on other servers and versions (SERVER=valkey-9: one, SHORT=1: the oldest and newest, WRITE=1: into core/SERVERS.md, FRESH=1: unpack them again)
	@.ci/servers
	@go run ./core/proof/servers $(if $(SERVER),-server $(SERVER)) $(if $(SHORT),-short) $(if $(WRITE),-write) $(if $(FRESH),-fresh)

bench: ## Measure the kit beside its peers (SHORT=1: a quick look, BENCH=own,hand: some scenarios)
	@.ci/servers
	@cd core/benchmarks && go build -o ../../bin/benchmarks . && \
	../../bin/benchmarks $(if $(SHORT),-short) $(if $(FULL),-full) $(if $(BENCH),-run '$(BENCH)') \
		$(if $(SHORT)$(BENCH),,-json result.json -chart chart.svg -readme README.md)

lint: ## Check the top level, the minima of dependencies, a build outside the clone, the exported names, the workflows, formatting, go vet, staticcheck and go.mod
	@.ci/layout
	@.ci/moves
	@.ci/stranger
	@.ci/apitext
	@.ci/apidiff
	@if [ "$$(git rev-parse --is-shallow-repository)" = true ]; then \
		echo "make lint: the clone is shallow: words (TestWordsThatAreGone), and entries of CHANGELOG.md for commits that change the API, are not checked: git fetch --unshallow"; \
	fi
	go run $(ACTIONLINT) -shellcheck= -pyflakes=
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "make lint: run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	@for module in $(MODULES); do \
		(cd $$module && set -ex && \
			go vet ./... && go run $(STATICCHECK) -checks $(CHECKS) ./... && go mod tidy -diff) || exit 1; \
	done
	@# An int of 32 bits, and a system without Unix's signals. The adapters would add a minute of their dependencies.
	GOOS=windows GOARCH=386 CGO_ENABLED=0 go build ./core/...
	GOOS=linux GOARCH=arm CGO_ENABLED=0 go build ./core ./core/store ./core/once ./core/redisstore
	@# The tests that calculate with times, weights and tokens also run with that int, where the machine can run them.
	@case $$(go env GOHOSTOS)/$$(go env GOHOSTARCH) in linux/amd64|linux/386) \
		set -x && GOARCH=386 CGO_ENABLED=0 go test -short ./retry ./core ./core/store ./core/memstore ./core/keys ./core/internal/... && \
			GOARCH=386 CGO_ENABLED=0 go test -short -run '^TestRecord' ./core/once;; \
	esac
