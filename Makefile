# make without a target says what there is.

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)

.DEFAULT_GOAL := help
.PHONY: help build demo demo-slack demo-engineer smoke-slack test test-quick bench image setup lint cover fuzz vuln clean
.NOTPARALLEL:

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## bin/ramus, one static binary
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ramus ./cmd/ramus

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

smoke-slack: ## three threads at the gate: not allowed, allowed, by prefix
	@scripts/setup.sh demo
	@$(MAKE) --no-print-directory build
	@scripts/demo-slack.sh smoke

# Where the image cannot be built the tests that need it say so, and are failures with CI=true.
test: ## set-up, image, vet, staticcheck and all tests with the race detector
	@scripts/setup.sh
	@containers/image/build.sh || true
	@go build -o bin/testreport ./internal/testreport
	@bin/testreport -lint -race ./...

test-quick: ## the short tests, without set-up, race detector or lint
	@go build -o bin/testreport ./internal/testreport
	@bin/testreport -short ./...

bench: ## the benchmarks
	@packages=$$(grep -rl --include='*_test.go' '^func Benchmark' . | xargs -r -n1 dirname | sort -u); \
	if [ -z "$$packages" ]; then echo 'bench: no package has benchmarks'; else go test -run '^$$' -bench . -benchmem $$packages; fi

image: ## the task image ramus/task:latest (see containers/image/build.sh)
	@containers/image/build.sh

setup: ## what make test needs: packages, a Docker engine
	@scripts/setup.sh

lint: ## go vet and staticcheck
	go vet ./...
	go tool staticcheck ./...

cover: ## statements reached by the tests, by room
	@scripts/cover.sh

fuzz: ## every fuzz target for FUZZTIME (10s)
	@scripts/fuzz.sh

vuln: ## known vulnerabilities; DB=file://… where the public data base is out of reach
	go run golang.org/x/vuln/cmd/govulncheck@v1.8.0 $(if $(DB),-db $(DB)) ./...

clean: ## removes what was built here
	rm -rf bin dist
