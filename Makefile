SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
.PHONY: build test fuzz lint e2e soak bench bench-check demo check setup fmt

# The race detector needs a C compiler. `make check` insists on it; `make test` says so where there is none.
RACE ?= $(if $(shell command -v $${CC:-cc} gcc clang 2>/dev/null),-race,$(info no C compiler: tests run without the race detector))
FUZZTIME ?= 10s
SOAK ?= 30m
STATICCHECK := go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOFILES := find . -name '*.go' -not -path '*/.*'
export GOFLAGS := $(GOFLAGS) -buildvcs=false
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

build: ; go build -trimpath -ldflags "-X main.version=$(VERSION)" -o bin/switchback ./cmd/switchback

test: ; go test $(RACE) -timeout 4m ./...

fuzz: # every fuzz target in turn, FUZZTIME each
	grep -rhoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' -H . | sed -E 's|^(.*)/[^/]*:func (.*)$$|\1 \2|' | sort -u | \
	while read -r dir name; do echo "$$dir $$name"; go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$dir" </dev/null; done

lint: # format, vet, staticcheck (with the end-to-end tests), and our own rules
	@unformatted=$$($(GOFILES) -exec gofmt -l {} +); [ -z "$$unformatted" ] || { echo "run make fmt:"; echo "$$unformatted"; exit 1; }
	go vet ./... && go vet -tags e2e ./... && $(STATICCHECK) -tags e2e ./... && go test -count=1 ./internal/lint

fmt: ; $(GOFILES) -exec gofmt -w {} +

setup: ; ./test/setup.sh

e2e: build setup # real brokers, unmodified clients; the whole output is in .cache/e2e.log
	mkdir -p .cache && go test -tags e2e -p 1 -count=1 -timeout 40m -v ./test/... 2>&1 | tee .cache/e2e.log || \
	{ echo "=== what failed, in short; the rest is in .cache/e2e.log:"; ./test/digest.sh .cache/e2e.log; exit 1; }

soak: build setup # fails if there is no such test
	mkdir -p .cache && SWITCHBACK_SOAK=$(SOAK) go test -tags e2e -count=1 -timeout 0 -v -run Soak ./test/... 2>&1 | tee .cache/soak.log && grep -q '^=== RUN' .cache/soak.log

bench: setup # BENCH=full for the whole matrix; BENCHFLAGS="-o results.json" and others, see test/bench
	go run ./test/bench $(BENCHFLAGS)

bench-check: ; go run ./test/bench check # the walkers against test/bench/baseline.json

demo: build ; ./bin/switchback demo

check: # the gate before a merge; .ci/run runs it on a clean checkout
	@for step in lint "test RACE=-race" e2e demo; do begin=$$SECONDS; $(MAKE) $$step; echo "=== $$step: $$((SECONDS - begin)) s"; done
