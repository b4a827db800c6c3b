# make without a target says what there is.

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)

.DEFAULT_GOAL := help
.PHONY: help build demo demo-slack demo-engineer demo-browser smoke-slack test test-quick bench bench-go image browser-program browser browser-video task-browser setup lint cover fuzz vuln mutants clean
.NOTPARALLEL:

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## bin/ramus, one static binary, with the one for containers in it
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o bin/ramus-runner ./cmd/ramus-runner
	@gzip -9nc bin/ramus-runner >cmd/ramus/ramus-runner.gz
	CGO_ENABLED=0 go build -trimpath -tags ramusrunner -ldflags '$(LDFLAGS)' -o bin/ramus ./cmd/ramus

demo: ## a workflow on a real repository, without Docker
	@scripts/setup.sh demo
	@$(MAKE) --no-print-directory build
	@scripts/demo.sh

demo-slack: ## the same from a Slack thread, with a stand-in of Slack in the terminal
	@scripts/setup.sh demo
	@$(MAKE) --no-print-directory build
	@scripts/demo-slack.sh

demo-engineer: ## a task by MCP, a pull request, its review and merge, with stand-ins of GitHub and a model
	@scripts/setup.sh demo
	@$(MAKE) --no-print-directory build
	@scripts/demo-engineer.sh

demo-browser: ## a page is changed on a branch and checked in a browser, before and after, and with four faults
	@scripts/setup.sh browser
	@$(MAKE) --no-print-directory build browser-program
	@scripts/demo-browser.sh

smoke-slack: ## three threads at the gate: not allowed, allowed, by prefix
	@scripts/setup.sh demo
	@$(MAKE) --no-print-directory build
	@scripts/demo-slack.sh smoke

# Where the image cannot be built the tests that need it say so, and are failures with CI=true.
test: ## set-up, images, vet, staticcheck and all tests with the race detector
	@scripts/setup.sh
	@$(MAKE) --no-print-directory browser-program || true
	@containers/image/build.sh task browser || true
	@$(MAKE) --no-print-directory lint RACE=-race
	@$(GOTESTSUM) -- -race $(TESTS)

test-quick: ## the short tests, without set-up, race detector or lint
	@$(GOTESTSUM) -- -short $(TESTS)

# -count=1: many tests depend on what the go command does not see (a container engine, an image, a program
# they build). -p: one more than there are processors, since tests wait for containers and servers more than they compute.
# -vet=off: lint has done it.
GOTESTSUM = mkdir -p bin && go tool gotestsum --format pkgname-and-test-fails --format-icons text --format-hide-empty-pkg --jsonfile bin/tests.json \
	--post-run-command scripts/cannot-run.sh
TESTS = -count=1 -vet=off -timeout 15m -p $$(($$(nproc) + 1)) ./...

# BENCH=cold,clone for some scenarios, BENCH_ROUNDS=n; docs/benchmarks.md has the others.
bench: build ## ramus beside what else does the work: a table, bin/bench/results.json, charts
	@go build -trimpath -o bin/ramus-bench ./internal/bench
	@bin/ramus-bench

bench-go: ## the benchmarks of single packages
	@packages=$$(grep -rl --include='*_test.go' '^func Benchmark' . | xargs -r -n1 dirname | sort -u); \
	if [ -z "$$packages" ]; then echo 'bench-go: no package has benchmarks'; else go test -run '^$$' -bench . -benchmem $$packages; fi

image: ## the task image ramus/task:latest (see containers/image/build.sh)
	@containers/image/build.sh

# What goes into the images, and what a Sandbox shows its browser's container. Without
# the state of the checkout, so that an image is not built anew for every commit.
browser-program:
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o bin/ramus-browser ./cmd/ramus-browser
	@bin/ramus-browser install bin/browser

browser: browser-program ## bin/browser for the Sandbox, and the image ramus/browser:latest where Docker answers
	@containers/image/build.sh browser || true

browser-video: browser-program ## the image ramus/browser:video, which can also film
	@containers/image/build.sh browser-video

task-browser: browser-program ## the image ramus/task-browser:latest, for a project's own tests in a browser
	@containers/image/build.sh task-browser

setup: ## what make test needs: packages, a Docker engine
	@scripts/setup.sh

# RACE=-race: the tests are compiled so, and both compile the packages that they look at.
lint: ## go vet and staticcheck
	go vet $(RACE) ./...
	@go build -o bin/staticcheck honnef.co/go/tools/cmd/staticcheck
	GOFLAGS=$(RACE) bin/staticcheck ./...

cover: ## statements reached by the tests, by room
	@scripts/cover.sh

fuzz: ## every fuzz target for FUZZTIME (10s)
	@scripts/fuzz.sh

vuln: ## known vulnerabilities; DB=file://… where the public data base is out of reach
	go run golang.org/x/vuln/cmd/govulncheck@v1.8.0 $(if $(DB),-db $(DB)) ./...

# PACKAGES=./gitd/pack, FAULTS=n of each package (0: all), SEED=n.
mutants: ## faults planted in packages of pure logic; names those that no test notices
	@go run ./internal/mutants -n $(or $(FAULTS),30) -seed $(or $(SEED),1) $(or $(PACKAGES),$(PURE))

PURE = ./executor/egress ./executor/index ./executor/record ./gateway/gate ./gateway/github ./gateway/links ./gateway/model ./gateway/render \
	./gateway/slack ./gitd/gitindex ./gitd/grant ./gitd/object ./gitd/pack ./gitd/pathspec ./gitd/protocol ./internal/bytesize ./internal/durable ./internal/netaddr \
	./internal/pattern ./internal/redact ./internal/text \
	./tasks/browser ./tasks/document ./tasks/library ./tasks/nodejs ./tasks/results ./tasks/workflow

clean: ## removes what was built here
	rm -rf bin dist
