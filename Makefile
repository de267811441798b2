# Targets for people: make, make demo, make test, make lint, make bench,
# make install PREFIX=/usr/local DESTDIR=. Works with GNU make 3.81.

GO      ?= go
PREFIX  ?= /usr/local
DESTDIR ?=
BIN     := build/bin
TOOLS   := sb-synth sb-calibrate sb-plan sb-feasible sb-pack sb-run sb-trace
# How often each fuzz target runs in `make fuzz`.
FUZZ    ?= 5000x

.PHONY: all build demo demo-tiers test test-race test-crash test-cap test-nocgo lint fuzz bench install clean schema man mlx test-mlx bench-mlx mac-build

all: build

# One directory of binaries; go build decides what is out of date.
build:
	@mkdir -p $(BIN)
	$(GO) build -trimpath -o $(BIN)/ ./cmd/...

# MODEL=models/tiny, MODEL_FILE=model.gguf or MODEL=DIR choose the model,
# CAP the memory cap of the run; see scripts/demo.
demo: build $(filter mlx,$(BACKEND))
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/demo

# Scripted disagreement: tiers up at the next token, and back; a plot.
demo-tiers: build
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/demo-tiers

test:
	$(GO) vet ./...
	$(GO) test ./...

test-race:
	$(GO) test -race -timeout 20m ./pkg/run/... ./pkg/stream/... ./pkg/store/... ./internal/mem/...

# Stores survive 200 killed writers, 200 failing calls, 50 power cuts; the tests
# do a few of each. Takes minutes.
test-crash:
	$(GO) test ./pkg/store -count=1 -timeout 30m -run 'Kill|Faults|PowerCut' -v -crashes 200

# Needs root (it makes memory cgroups); says SKIP elsewhere.
test-cap: build
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/test-cap

test-nocgo:
	CGO_ENABLED=0 $(GO) build ./...
	CGO_ENABLED=0 $(GO) test ./...

# The shim of the mlx backend, build/lib/libsbmlx.so: see scripts/build-mlx for
# where MLX comes from (MLX_DIR, Python, Homebrew, a download).
mlx:
	@scripts/build-mlx

# Tests of the mlx backend; without the shim, `make test` skips them.
test-mlx: mlx
	@export SB_MLX_LIB="$$(ls $(CURDIR)/build/lib/libsbmlx.so $(CURDIR)/build/lib/libsbmlx.dylib 2>/dev/null)"; \
	$(GO) test -count=1 ./pkg/backend/mlx && $(GO) test -count=1 -run MLX ./pkg/calib

# A token through the backend beside the same calls of MLX in C++.
bench-mlx: mlx
	@scripts/bench-mlx

# Compiles and links everything for macOS, with Zig: needs no Mac.
mac-build:
	@scripts/mac-build

lint:
	@test -z "$$(gofmt -l cmd pkg internal)" || { gofmt -l cmd pkg internal; echo 'lint: run gofmt -w on these'; exit 1; }
	$(GO) vet ./...
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 $(GO) vet ./...
	$(GO) test ./internal/lint

fuzz:
	@scripts/fuzz $(FUZZ)

bench:
	$(GO) test -run '^$$' -bench . ./...

schema:
	$(GO) generate ./schema

# Manual pages and completions, from man/src and the flags of the tools.
man:
	$(GO) test ./internal/clitest -run TestPipelines/manuals/files -update

install: build
	install -d $(DESTDIR)$(PREFIX)/bin
	cd $(BIN) && install -m 755 $(TOOLS) $(DESTDIR)$(PREFIX)/bin
	install -d $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	install -d $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	install -m 644 man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 completions/bash/* $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	install -m 644 completions/zsh/* $(DESTDIR)$(PREFIX)/share/zsh/site-functions
	install -m 644 completions/fish/* $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	@scripts/install-mlx $(DESTDIR)$(PREFIX)/lib

clean:
	rm -rf build
