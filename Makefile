# make without a target prints the targets.

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)

# With the flags of the programs that tests start, the standard library is compiled once for these and for tools.
GOTOOL = CGO_ENABLED=0 go build -trimpath -ldflags '-s -w'

.DEFAULT_GOAL := help
.PHONY: help build web demo demo-slack demo-engineer demo-browser demo-team demo-web demo-review demo-time demo-cluster smoke-slack test test-quick bench bench-go bench-web image browser-program browser browser-video task-browser setup lint cover fuzz vuln mutants cluster cluster-down test-cluster bench-cluster chart pulumi release clean
.NOTPARALLEL:

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: web ## build bin/ramus, a static binary that contains ramus-runner and the files of its pages
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o bin/ramus-runner ./cmd/ramus-runner
	@gzip -9nc bin/ramus-runner >cmd/ramus/ramus-runner.gz
	CGO_ENABLED=0 go build -trimpath -tags ramusrunner,ramusweb -ldflags '$(LDFLAGS)' -o bin/ramus ./cmd/ramus

# Without Node.js, or without its registry, the program is built without the terminal of pages, and says so.
web: ## build the style sheet and the scripts of pages in gateway/web/dist
	@if command -v npm >/dev/null && ! [ -d gateway/web/node_modules/@xterm/xterm ]; then \
		(cd gateway/web && npm ci --ignore-scripts --omit=dev --no-fund --no-audit >/dev/null 2>&1) || \
		echo "cannot fetch the packages of gateway/web: the program has no terminal in its pages"; fi
	@go run ./internal/webbuild

demo: ## run a workflow on a real repository, without Docker
	@scripts/setup.sh demo
	@$(MAKE) --no-print-directory build
	@scripts/demo.sh

demo-slack: ## run the same from a Slack thread, with a stand-in of Slack in the terminal
	@scripts/setup.sh demo
	@$(MAKE) --no-print-directory build
	@scripts/demo-slack.sh

demo-engineer: ## run a task by MCP, with a pull request, its review and merge, and stand-ins of GitHub and a model
	@scripts/setup.sh demo
	@$(MAKE) --no-print-directory build
	@scripts/demo-engineer.sh

demo-browser: ## change a page on a branch, and check it in a browser before, after, and with four faults
	@scripts/setup.sh browser
	@$(MAKE) --no-print-directory build browser-program
	@scripts/demo-browser.sh

demo-team: ## go from a mention to a pull request at a real Gitea, with tests in a real PostgreSQL, and push in the middle of merges
	@scripts/setup.sh team
	@$(MAKE) --no-print-directory build
	@scripts/demo-team.sh

demo-web: ## spend a day at the pages in a real Chromium, kill the server in between, and take pictures (bin/demo-web)
	@scripts/setup.sh browser
	@$(MAKE) --no-print-directory build
	@scripts/demo-web.sh

demo-review: ## review a branch with two people and an agent in a real Chromium, and take pictures (bin/demo-review)
	@scripts/setup.sh browser
	@$(MAKE) --no-print-directory build
	@scripts/demo-review.sh

demo-time: ## find a planted fault in 64 commands, take it out, begin again, verify, compare agents, and lose the machine
	@scripts/setup.sh browser
	@$(MAKE) --no-print-directory build browser-program
	@scripts/demo-time.sh

# It builds the parts of the cluster first, which takes half an hour the first time.
demo-cluster: ## install the chart in a cluster of this machine, kill a kubelet and a replica, move a repository, and order a node
	@scripts/setup.sh
	@$(MAKE) --no-print-directory build
	@docker image inspect ramus/task:latest >/dev/null 2>&1 || containers/image/build.sh task
	@scripts/demo-cluster.sh

smoke-slack: ## send three threads to the gate (not allowed, allowed, allowed by prefix)
	@scripts/setup.sh demo
	@$(MAKE) --no-print-directory build
	@scripts/demo-slack.sh smoke

# Without an image, the tests that need it report that they cannot run. With CI=true they fail.
test: ## set up, build images, run go vet, staticcheck and all tests with the race detector
	@scripts/setup.sh
	@$(MAKE) --no-print-directory browser-program || true
	@containers/image/build.sh task browser || true
	@$(MAKE) --no-print-directory lint RACE=-race
	@export GORACE='$(GORACE)' GOGC=$(GCRARE); $(GOTESTSUM) -- -race $(TESTS)

test-quick: ## run the short tests, without set-up, race detector or lint
	@export GOGC=$(GCRARE); $(GOTESTSUM) -- -short $(TESTS)

# -count=1, because the go command does not see a container engine, an image or a program that a test builds.
# -p is one more than the number of processors, because tests wait for containers and servers more than they compute.
# -vet=off, because lint runs go vet. Test programs are linked without tables for debuggers, which is sooner.
GOTESTSUM = mkdir -p bin && $(GOTOOL) -o bin/gotestsum gotest.tools/gotestsum && bin/gotestsum --format pkgname-and-test-fails --format-icons text --format-hide-empty-pkg --jsonfile bin/tests.json \
	--post-run-command scripts/cannot-run.sh
# GORACE: a program with the race detector would sleep for a second before it exits, which 110 packages do, and the programs that
# their tests start. Less is enough, because tests wait for their goroutines.
GORACE ?= atexit_sleep_ms=50
# GCRARE: compilers and staticcheck need a fifth to a third less of the processors if they collect garbage less often, and twice
# the memory (0.5 GB). Tests run without it, because they measure memory.
GCRARE ?= 300
# -trimpath, so that packages which another checkout has compiled are not compiled again. lint compiles with it, too.
TESTS = -exec 'env -u GOGC' -trimpath -count=1 -vet=off -ldflags '-s -w' -timeout 40m -p $$(($$(nproc) + 1)) ./...

# BENCH=cold,clone selects scenarios, BENCH_ROUNDS=n sets the rounds. docs/benchmarks.md has all variables.
bench: build ## compare ramus with the alternatives, in a table, bin/bench/results.json and charts
	@go build -trimpath -o bin/ramus-bench ./internal/bench
	@bin/ramus-bench

bench-go: ## run the benchmarks of single packages
	@packages=$$(grep -rl --include='*_test.go' '^func Benchmark' . | xargs -r -n1 dirname | sort -u); \
	if [ -z "$$packages" ]; then echo 'bench-go: no package has benchmarks'; else go test -run '^$$' -bench . -benchmem $$packages; fi

bench-web: build ## measure the pages in a real Chromium, each with its budget
	@RAMUS_BINARY=$(CURDIR)/bin/ramus RAMUS_BENCH=web go test -run '^TestWebBudgets$$' -count=1 -timeout 20m -v ./gateway/web

image: ## build the task image ramus/task:latest (see containers/image/build.sh)
	@containers/image/build.sh

# bin/browser goes into the images, and a Sandbox binds it in its browser's container. The binary has no
# VCS stamp, because an image would otherwise be rebuilt for every commit.
browser-program:
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o bin/ramus-browser ./cmd/ramus-browser
	@bin/ramus-browser install bin/browser

browser: browser-program ## build bin/browser for the Sandbox, and ramus/browser:latest if Docker runs
	@containers/image/build.sh browser || true

browser-video: browser-program ## build ramus/browser:video, which can also record videos
	@containers/image/build.sh browser-video

task-browser: browser-program ## build ramus/task-browser:latest, for a project's own tests in a browser
	@containers/image/build.sh task-browser

setup: ## install the packages and start the Docker engine that make test needs
	@scripts/setup.sh

# RACE=-race lets go vet and staticcheck reuse the packages that the tests compile with the race detector.
lint: ## run go vet and staticcheck
	GOGC=$(GCRARE) go vet -trimpath $(RACE) ./...
	@GOGC=$(GCRARE) $(GOTOOL) -o bin/staticcheck honnef.co/go/tools/cmd/staticcheck
	GOGC=$(GCRARE) GOFLAGS='-trimpath $(RACE)' bin/staticcheck ./...

cover: ## measure the statements that the tests reach, by room
	@scripts/cover.sh

fuzz: ## run every fuzz target for FUZZTIME (10s)
	@scripts/fuzz.sh

vuln: ## look for known vulnerabilities; DB=file://… replaces the public data base
	go run golang.org/x/vuln/cmd/govulncheck@v1.8.0 $(if $(DB),-db $(DB)) ./...

# PACKAGES=./gitd/pack, FAULTS=n for each package (0 means all), SEED=n.
mutants: ## plant faults in packages of pure logic, and name those that no test notices
	@go run ./internal/mutants -n $(or $(FAULTS),30) -seed $(or $(SEED),1) $(or $(PACKAGES),$(PURE))

PURE = ./containers/kube ./executor/anchor ./executor/attachment ./executor/bisect ./executor/egress ./executor/export ./executor/index ./executor/provenance ./executor/prune ./executor/quota ./executor/radar ./executor/record ./executor/review ./executor/seal ./executor/search \
	./executor/sealed ./executor/settings ./executor/terminal ./executor/tournament ./executor/trial \
	./gateway/account ./gateway/audit ./gateway/conversation ./gateway/credential ./gateway/diff ./gateway/domain ./gateway/forge ./gateway/forgekey ./gateway/gate ./gateway/github ./gateway/githubread ./gateway/links ./gateway/llm ./gateway/markup ./gateway/model ./gateway/naming ./gateway/people ./gateway/privacy \
	./gateway/render ./gateway/retry ./gateway/session ./gateway/slack ./gateway/trigger ./gitd/gitindex ./gitd/grant ./gitd/history ./gitd/object ./gitd/sshd ./gitd/sshsig \
	./gitd/pack ./gitd/pathspec ./gitd/protocol \
	./internal/bytesize ./internal/durable ./internal/netaddr ./internal/pattern ./internal/redact ./internal/text \
	./tasks/browser ./tasks/devcontainer ./tasks/document ./tasks/environment ./tasks/library ./tasks/nodejs ./tasks/results ./tasks/rules ./tasks/service ./tasks/workflow

cluster: ## start a Kubernetes cluster of one node in namespaces of its own (30 minutes the first time; see scripts/cluster.sh)
	@scripts/cluster.sh up

cluster-down: ## end that cluster without a trace
	@scripts/cluster.sh down

# The cluster stays up, for the next time.
test-cluster: cluster ## run the tests of the engine on Kubernetes in that cluster, with the race detector (10 minutes)
	@RAMUS_TEST=full go test -race -count=1 -timeout 25m ./containers/kubernetes
	@RAMUS_TEST=full go test -count=1 -timeout 25m -run 'TestScript/kubernetes' ./cmd/ramus
	@RAMUS_TEST=full RAMUS_TEST_ENGINE=kubernetes go test -count=1 -timeout 25m -run 'TestScript/kubernetes_node' ./cmd/ramus

chart: ## check the Helm chart in deploy/helm, and test what it makes of its values
	@cd deploy/helm && go test -count=1 ./...

pulumi: ## test the program of Pulumi in deploy/pulumi, with mocks in place of the clouds (3 minutes the first time)
	@cd deploy/pulumi && go vet . && go test -count=1 .

bench-cluster: cluster build ## compare containers in that cluster with those of Docker and plain pods, and measure 1 to 50 callers in pods and 1,000 on simulated nodes
	@go test -run '^$$' -bench . -benchtime 20x -timeout 25m ./containers/kubernetes
	@go build -trimpath -o bin/ramus-bench ./internal/bench
	@RAMUS_CLUSTER_INSIDE=1 BENCH=$${BENCH:-engines,cluster} BENCH_OUT=$${BENCH_OUT:-bin/bench-cluster} scripts/cluster.sh in bin/ramus-bench

release: ## make programs, packages, an image, checksums and version.json in dist (ARCHS, NFPM; see scripts/release.sh)
	@scripts/release.sh $(VERSION)

clean: ## remove bin and dist
	rm -rf bin dist
