# daemonlet: the commands of daily work. `make test` is the whole truth, `make check` its quick part.

.PHONY: build demo loc check test test-long sim mutants fuzz bench swarm showcase packages static deploy krew repo release docs deny matrix systemds cluster-tools cluster-test

build:
	cargo build --release

# The main job in one minute: a folder with a DaemonSet becomes a static pod, and a changed
# ConfigMap becomes changed data. Needs nothing but the checkout and Rust.
demo:
	cargo build --quiet --bin daemonlet
	cargo run --quiet --example demo

# Format, lints, cargo's tests and 200 simulated lives: under four minutes once warm.
check:
	python3 tests/cluster/everything.py --fast

# Everything, real clusters and 600 simulated lives too: 40 minutes on two cores the first time, half an hour then.
# Installs what it needs (as root or through sudo); the first run builds Kubernetes, which is kept in
# $$DAEMONLET_CACHE (default ~/.cache/daemonlet).
test:
	python3 tests/cluster/everything.py

# The same with more random cases, more steps and half an hour of soak (DAEMONLET_LONG), with 20,000 simulated lives,
# with Helm and krew, with fuzzing, and with what `make docs` and `make deny` check: some hours.
test-long:
	python3 tests/cluster/everything.py --long

# What the cluster tests need: Debian packages, Kubernetes, our own Go programs.
cluster-tools:
	python3 tests/cluster/run.py --build

# The cluster tests alone: make cluster-test FILES="node" or FILES="-k secret".
cluster-test: cluster-tools
	cargo build
	python3 tests/cluster/run.py $(FILES)

# The simulator: the whole agent on a node in memory, in thousands of lives. make sim SECONDS=60 SEED=1; a life that
# breaks a law is printed. tests/sim/main.rs says what else can be asked.
sim:
	python3 tests/sim/run.py $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED))

# Whether the simulator sees: puts known faults into a copy of the tree, one at a time, and prints the first seed that
# finds each. Some minutes a fault: make mutants FILES="n01 o05" for some of them.
mutants:
	python3 tests/sim/mutants/run.py $(if $(LIMIT),--limit $(LIMIT)) $(FILES)

# The fuzz targets: make fuzz TARGETS="files yaml" SECONDS=600. A finding is kept and said.
fuzz:
	python3 fuzz/run.py $(if $(SECONDS),--seconds $(SECONDS)) $(TARGETS)

# How fast it is, in one table: functions, the running agent, real nodes beside the DaemonSet controller.
# make bench WHAT=functions (or agent, manifest, apply, power, cold, hundred, foreign) measures a part. As root.
bench:
	python3 tests/bench.py $(WHAT)

# Lines of Rust code in src/, without tests, comments and blank lines.
loc:
	python3 tests/loc.py

# The .deb and the .rpm, in target/packages; cargo-deb and cargo-generate-rpm are installed, pinned, into
# the cache folder. Checked by lintian and rpmlint where those are installed. For another machine: ARCH=aarch64.
packages:
	python3 packaging/packages.py $(if $(ARCH),--arch $(ARCH))

# One file that needs no library, for whoever bakes images: target/x86_64-unknown-linux-musl/release/daemonlet. For
# another machine: make static ARCH=aarch64.
static:
	python3 packaging/static.py $(if $(ARCH),--arch $(ARCH))

# The kustomizations and the Helm chart in deploy, from the objects in packaging/k8s.
deploy:
	python3 packaging/deploy.py

# The kubectl plugin for krew, from the binary of `make static`: make krew URL=https://where.the/archive/will/be.
krew: static
	python3 packaging/krew.py --url $(URL)

# Folders for apt and dnf around the packages of `make packages`, in target/repo: make repo KEY=who.signs@example.org.
repo:
	python3 packaging/release.py repo $(if $(KEY),--key $(KEY))

# All that is published of a version, from a clean checkout: make release VERSION=0.1.0 URL=https://where.it/will/be,
# signed with KEY. The same sources give the same bytes.
release:
	python3 packaging/release.py all --version $(VERSION) --url $(URL) $(if $(KEY),--key $(KEY))

# The pages as a book, in target/book, with every link looked at. Installs mdbook, pinned, into the cache folder.
docs:
	python3 docs/book.py

# What the program is linked with: licences, sources, duplicates and advisories by cargo-deny, and the page of the crates
# with unsafe code or a build script. Installs cargo-deny, pinned, into the cache folder.
deny:
	python3 packaging/dependencies.py

# Which kubelets, API servers and containerds it works with, by running each: the table in docs/versioning.md. As root;
# the first run builds them, some ten minutes a version.
matrix: cluster-tools
	cargo build
	python3 tests/cluster/matrix.py

# Under which versions of systemd the units work, by booting a small root of each distribution. As root.
systemds:
	cargo build
	python3 tests/cluster/systemd.py

# A swarm of N real agents on this machine, against a real etcd and API server: make swarm N=1000. As root;
# a thousand take some 8 GB. Without N: 100, 300 and 1,000 one after the other, to see what grows how.
swarm: cluster-tools
	cargo build --release
	DAEMONLET_SWARM=$(or $(N),100$(comma)300$(comma)1000) python3 tests/cluster/bench.py swarm
comma := ,

# Three baked machines from power-on to a pod network, updates good and bad, power lost without an API
# server, and the same steps with the DaemonSet controller and scheduler. As root; some seven minutes. With the
# repository's own CNI, or a published file: make showcase MANIFEST=kube-flannel.yml.
showcase: cluster-tools
	cargo build --release
	cargo build --example manuals
	python3 tests/cluster/showcase.py
