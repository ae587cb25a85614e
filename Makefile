# Needs Go and make. Everything else is installed, or its tests skip.

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
# All checks except the style of names, because some names come from protocols.
CHECKS := all,-ST1003

# The time limit of one test package. A test that hangs fails with the stacks of all
# goroutines.
TIMEOUT ?= 20m
# The number of packages that are tested at a time.
SIDE_BY_SIDE ?= 4
# `make test PKG="./core/redlock ./core/once" RUN=TestFaults COUNT=3 SHORT=1` tests some
# packages, with go test's -run, -count and -short. BUSY=1 tests beside four busy loops
# for each core. A package of a nested module needs MODULES=core/benchmarks PKG=. too.
PKG ?=
RUN ?=
COUNT ?=
BUSY ?=
# `make proof PART=mutants,hazards` runs parts by their names.
PART ?=
# `make bench SHORT=1` is a quick look, `make bench BENCH=own,hand` runs some scenarios by
# parts of their names, and `make bench FULL=1` is the longest run. Only whole runs are
# written to core/benchmarks/README.md.
BENCH ?=
SHORT ?=
FULL ?=
# `make matrix SERVER=valkey,redis-6` runs the servers whose names have these prefixes.
SERVER ?=
WRITE ?=
FRESH ?=

# The kit, and each nested module. Nested modules keep the further dependencies of
# benchmarks and tests out of the kit's go.mod.
MODULES := . $(if $(PKG),,$(patsubst ./%/go.mod,%,$(filter-out ./go.mod,$(shell find . -name '.?*' -prune -o -name testdata -prune -o -name go.mod -print))))

# Fewer garbage collections save 15 percent of the compiler's time, and 3 of the tests'.
test proof lint: export GOGC ?= 400

.DEFAULT_GOAL := help
.PHONY: help test newest proof bench lint matrix

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# PROOF matches the packages whose tests run only in make proof. The tests of the other
# packages in core/proof are quick.
PROOF := /core/proof/(adapters|hazards|histories|latency|matrix|models|neighbours|sim|soak)$$

# Tests with real processes wait most of the time and tolerate a busy machine, so some
# packages run side by side. They run in reverse order, so that no long package runs alone
# at the end. The nested modules run one after another beside the kit's own packages. The
# race detector leaves out SQLite, which is translated C. With it, a batch of 600
# extensions would take longer than the 2 s of a call. The rest of modernc.org/sqlite is
# not left out, because it uses a sync.Map. The linker can choose that package's copy of
# generic code, so the detector would not see the synchronization of any sync.Map.
# make lint runs go vet.
test: ## Install missing servers where possible, then run every package's tests with the race detector (PKG=./core/once: one package, BUSY=1: beside busy loops)
	@.ci/servers
	@$(MAKE) --no-print-directory --keep-going --jobs=$(if $(BUSY),1,2) $(MODULES:%=test-of/%)

.PHONY: $(MODULES:%=test-of/%)
$(MODULES:%=test-of/%):
	@race="-race -gcflags=modernc.org/...lib...=-race=false"; \
	if ! go build -race runtime/race >/dev/null 2>&1; then \
		race=; echo "make test: no working C compiler (or no cgo): the tests run without -race"; \
	fi; \
	cd $(@:test-of/%=%) && packages=$(if $(PKG),'$(PKG)',$$(go list ./... | grep -vE '$(PROOF)' | sort -r)) && set -x && \
	$(if $(BUSY),$(CURDIR)/.ci/busy) go test $$race -vet=off -p $(SIDE_BY_SIDE) -shuffle=on -timeout $(TIMEOUT) \
		$(if $(RUN),-run '$(RUN)') $(if $(COUNT),-count $(COUNT)) $(if $(SHORT),-short) $$packages

# go.mod names the minimum versions of the dependencies, which the other targets use. To
# record newer versions:
# go get -modfile=.ci/newest.mod <module>@<version> && go mod tidy -modfile=.ci/newest.mod
# In grpcmw/connectmw the same needs -modfile=../../.ci/newest-connectmw.mod.
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
		echo "make lint: the clone is shallow: entries of CHANGELOG.md for commits that change the API are not checked: git fetch --unshallow"; \
	fi
	go run $(ACTIONLINT) -shellcheck= -pyflakes=
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "make lint: run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	@for module in $(MODULES); do \
		(cd $$module && set -ex && \
			go vet ./... && go run $(STATICCHECK) -checks $(CHECKS) ./... && go mod tidy -diff) || exit 1; \
	done
	@# An int of 32 bits, and a system without the signals of Unix. The adapters would
	@# add a minute for their dependencies.
	GOOS=windows GOARCH=386 CGO_ENABLED=0 go build ./core/...
	GOOS=linux GOARCH=arm CGO_ENABLED=0 go build ./core/...
	@# The tests that calculate with times, weights and tokens also run with that int, if
	@# the machine can run them.
	@case $$(go env GOHOSTOS)/$$(go env GOHOSTARCH) in linux/amd64|linux/386) \
		set -x && GOARCH=386 CGO_ENABLED=0 go test -short ./retry ./core ./core/store ./core/memstore ./core/keys ./core/internal/... && \
			GOARCH=386 CGO_ENABLED=0 go test -short -run '^TestRecord' ./core/once;; \
	esac
