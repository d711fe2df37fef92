# Berth: build the guest, boot it, prove what it enforces.
#   make demo    everything from source to a denied write
#   make test    every test, also those that boot the VM

GO         ?= go
ARCH       ?= x86_64
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOTESTSUM   = gotest.tools/gotestsum@v1.13.0
GOFLAGS_    = -trimpath -buildvcs=false

.PHONY: help setup build image test-image demo test check bench work attacks reproduce kernel-update fuzz clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install the Debian packages that everything below needs
	@scripts/setup

build: setup ## programs into bin/
	CGO_ENABLED=0 $(GO) build $(GOFLAGS_) -ldflags '-s -w' -o bin/ ./host/berth
	$(GO) build $(GOFLAGS_) -o bin/ ./tools/mkimage ./tools/mkkernel

image: build ## kernel, root filesystem and index into build/image, where bin/berth finds them
	bin/mkimage -arch $(ARCH) -o build/image

test-image: build # the image whose enforcer accepts ablations; berth refuses it for apps
	bin/mkimage -arch $(ARCH) -kind test -o build/test-image

demo: image ## boot a microVM, one allowed write, one denied write, and what enforced it
	@scripts/demo

test: check image test-image ## every test
	$(GO) run $(GOTESTSUM) --format pkgname-and-test-fails -- -timeout 40m ./...

check: setup ## gofmt, go vet, staticcheck
	@files=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$files" ] || { echo "not formatted: $$files"; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

bench: image ## figures and ratios as a table; raw numbers in build/bench.json
	$(GO) run ./tools/bench -o build/bench.json

RUNS ?= 1000
work: image ## ordinary work inside a sandbox, RUNS=1000 times: none may be refused
	BERTH_TEST_WORK_RUNS=$(RUNS) $(GO) test ./host/sandbox -run '^TestWorkManyTimes$$' -count=1 -v -timeout 2h

attacks: test-image image ## attack three times on each machine; rewrites docs/attacks.md
	$(GO) test ./host/attack -run '^TestSuite$$' -count=1 -v -timeout 1h -update

reproduce: build ## build everything twice in different folders and compare
	bin/mkimage -arch $(ARCH) -reproduce

kernel-update: build ## move the kernel pin: make kernel-update VERSION=7.3.5-1~bpo13+1
	bin/mkkernel -update $(VERSION)

fuzz: ## fuzz every parser of foreign bytes, a minute each, and compile 10^6 random manifests
	$(GO) test ./apps/compile -run 'TestWorkersGrantDeclared|TestGrantedIsDeclared' -timeout 1h -rapid.checks 1000000
	@grep -roE '^func Fuzz\w+' --include=*_test.go . | sed 's/func //' | while IFS=: read -r file target; do \
		$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime 1m "$$(dirname "$$file")" || exit 1; done

clean: ## remove bin/ and build/; the build cache outside the checkout stays
	rm -rf bin build
