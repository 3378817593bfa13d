"""The programs that a test cluster is made of, and where they lie.

Owns the cache folder: Kubernetes and etcd built from the module in `k8s/`, our own Go programs, the
Debian root of whole machines. Each is made once and kept between runs, under a name that is a hash
of everything it was made from. `build` is the only one that needs the outside world (the Go module
proxy, the Debian mirror, the crate registry); it runs before any sandbox is entered. Everything else
only looks up, and says what to run where something is not there.
"""

import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

CLUSTER = Path(__file__).resolve().parent.parent
REPO = CLUSTER.parent.parent
MODULE = CLUSTER / "k8s"

KUBERNETES = "1.36.2"
CONTAINERD = "2.2.1"
_SHIM = "containerd-shim-runc-v2"
_VERSION = "k8s.io/component-base/version"
# One set of flags for all: other flags would compile the same packages again.
FLAGS = ["-trimpath", "-buildvcs=false", "-ldflags",
          f"-s -w -X {_VERSION}.gitVersion=v{KUBERNETES} -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=36"]

# The kubelet first: it compiles most of what the others share.
UPSTREAM = {"etcd": "go.etcd.io/etcd/server/v3"} | {
    name: f"k8s.io/kubernetes/cmd/{name}"
    for name in ("kubelet", "kube-apiserver", "kube-controller-manager", "kube-scheduler",
                 "kube-proxy", "kubemark", "kubectl")}

# Debian package -> a file that shows that it is there.
PACKAGES = {
    "busybox-static": "/bin/busybox",
    "conntrack": "/usr/sbin/conntrack",
    "containerd": "/usr/bin/containerd",
    "containernetworking-plugins": "/usr/lib/cni/host-local",
    "createrepo-c": "/usr/bin/createrepo_c",
    "curl": "/usr/bin/curl",
    "debootstrap": "/usr/sbin/debootstrap",
    "dnf": "/usr/bin/dnf",
    "dpkg-dev": "/usr/bin/dpkg-scanpackages",
    "gcc": "/usr/bin/gcc",
    "gpg": "/usr/bin/gpg",
    "iproute2": "/sbin/ip",
    "iptables": "/usr/sbin/iptables-nft",
    "jq": "/usr/bin/jq",
    "libc6-dev": "/usr/include/stdlib.h",
    "nftables": "/usr/sbin/nft",
    "openssl": "/usr/bin/openssl",
    "rpm": "/usr/bin/rpm",
    "runc": "/usr/sbin/runc",
    "systemd": "/usr/bin/systemd-creds",
    "systemd-container": "/usr/bin/systemd-nspawn",
    "util-linux": "/usr/bin/unshare",
}

# File -> Debian's package that has it, and where. These packages are not installed: they would start a server, or
# give every kubelet here a network. The libraries that podman needs besides come with dnf and systemd.
UNPACKED = {
    "promtool": ("prometheus", "usr/bin/promtool"),
    "node-exporter": ("prometheus-node-exporter", "usr/bin/prometheus-node-exporter"),
    "podman": ("podman", "usr/bin/podman"),
    "conmon": ("conmon", "usr/bin/conmon"),
    "libsubid.so.4": ("libsubid4", "usr/lib/*/libsubid.so.4"),
}

# What people install daemonlet with. Go takes minutes for these: `make test-long` alone has them made.
INSTALLERS = {"helm": "helm.sh/helm/v3/cmd/helm@v3.18.4", "krew": "sigs.k8s.io/krew/cmd/krew@v0.4.3"}

# What a whole machine's Debian has beyond the minimum.
MACHINE_PACKAGES = ["systemd", "systemd-sysv", "dbus", "procps", "containerd", "runc", "iproute2", "iptables",
                    "nftables", "conntrack", "ca-certificates", "containernetworking-plugins"]


def say(text):
    """Progress, for the person who watches."""
    print(f"--- {text}", file=sys.stderr, flush=True)


def cache():
    """The folder kept between runs."""
    folder = os.environ.get("DAEMONLET_CACHE") or Path.home() / ".cache" / "daemonlet"
    return Path(folder)


def _digest(*parts):
    """A short name for what was made from these bytes."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "big") + part)
    return whole.hexdigest()[:16]


def bin_dir():
    """Where the Kubernetes programs and our own Go programs are (`DAEMONLET_TOOLS` overrides)."""
    given = os.environ.get("DAEMONLET_TOOLS")
    if given:
        return Path(given)
    pinned = [(MODULE / name).read_bytes() for name in ("go.mod", "go.sum")]
    return cache() / _digest(*pinned, repr((FLAGS, sorted(UPSTREAM.items()))).encode()) / "bin"


@functools.cache
def target_dir():
    """Where cargo builds; asked of cargo, since environment and configuration can move it."""
    metadata = subprocess.run(["cargo", "metadata", "--format-version=1", "--no-deps", "--offline"], cwd=REPO, stdout=subprocess.PIPE, check=True).stdout
    return Path(json.loads(metadata)["target_directory"])


def _there(path):
    """A path that `build` has made."""
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there: run `make cluster-tools`")
    return path


def program(name):
    """The path of a built program."""
    return str(_there(bin_dir() / name))


@contextmanager
def _locked(name):
    """One builder at a time, whoever else runs a test on this machine."""
    cache().mkdir(parents=True, exist_ok=True)
    with open(cache() / f"{name}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _as_root():
    """What stands before a command that needs root."""
    return [] if os.geteuid() == 0 else ["sudo"]


def install_packages():
    """Installs the Debian packages that are missing; nothing when none is."""
    missing = [name for name, path in PACKAGES.items() if not Path(path).exists()]
    if not missing:
        return
    say(f"installing {' '.join(missing)}")
    apt = [*_as_root(), "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    subprocess.run(apt + ["update"], check=True)
    subprocess.run(apt + ["install", "-y", "--no-install-recommends", *missing], check=True, stdout=subprocess.DEVNULL)


def own_programs():
    """Our own Go programs: every folder of the module with a main.go, by the name of the folder."""
    return {file.parent.name: file.parent for file in sorted(MODULE.glob("*/main.go"))}


def build():
    """Makes all that is not yet there, what waits (links, unpacks, downloads) beside what computes."""
    out = bin_dir()
    with _locked("build"), ThreadPoolExecutor() as pool:
        out.mkdir(parents=True, exist_ok=True)
        jobs = [pool.submit(job) for job in (
            lambda: _build_go(out), _make_root, lambda: _unpack(out), lambda: _build_pause(out), _install_packagers)]
        for job in jobs:
            job.result()
    return out


def missing():
    """What `build` would make, as a list of paths that are not there."""
    names = [*UPSTREAM, *own_programs(), "pause", *UNPACKED]
    installers = map(_installer, INSTALLERS) if os.environ.get("DAEMONLET_LONG") else []
    return [path for path in [*(bin_dir() / name for name in names), newer_containerd() / _SHIM, _root(), *installers] if not path.exists()]


def _build_go(out):
    """Kubernetes once per version, our own programs when they changed, containerd."""
    wanted = {name: package for name, package in UPSTREAM.items() if not (out / name).exists()}
    stamps = []
    for name, folder in own_programs().items():
        stamp = out / f".{name}.{_digest(*(file.read_bytes() for file in sorted(folder.rglob('*.go'))))}"
        if not stamp.exists():
            for old in out.glob(f".{name}.*"):
                old.unlink()
            wanted[name] = f"./{folder.name}"
            stamps.append(stamp)
    if wanted:
        _go_build(wanted, out)
    for stamp in stamps:
        stamp.touch()
    _build_containerd()
    if os.environ.get("DAEMONLET_LONG"):
        _build_installers()


def _install_packagers():
    """What makes the .deb and the .rpm, and every crate that anything here is built from."""
    for manifest in (REPO / "Cargo.toml", REPO / "fuzz" / "Cargo.toml"):
        subprocess.run(["cargo", "fetch", "--quiet", "--locked", "--manifest-path", manifest], check=True)
    subprocess.run([sys.executable, REPO / "packaging/packages.py", "--tools"], check=True)


def _unpack(out):
    """Files out of Debian's packages."""
    for name, (package, path) in UNPACKED.items():
        if (out / name).exists():
            continue
        with tempfile.TemporaryDirectory() as folder:
            # apt's own user downloads; it may not write where root works.
            download = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", package]
            if subprocess.run(download, cwd=folder, stderr=subprocess.DEVNULL, check=False).returncode:
                subprocess.run([*_as_root(), "apt-get", "-qq", "update"], check=True)
                subprocess.run(download, cwd=folder, check=True)
            archive = next(Path(folder).glob(f"{package}_*.deb"))
            subprocess.run(["dpkg-deb", "--extract", archive, folder], check=True)
            shutil.copy2(next(Path(folder).glob(path)), out / name)


def newer_containerd():
    """The folder of a containerd of today; Debian's own is of 2022."""
    return cache() / f"containerd-{CONTAINERD}"


def _build_containerd():
    """containerd and its shim, from their own module."""
    out = newer_containerd()
    if (out / _SHIM).exists():
        return
    began = time.monotonic()
    module = "github.com/containerd/containerd/v2/cmd"
    for name in ("containerd", _SHIM):
        subprocess.run(["go", "install", "-trimpath", "-ldflags", "-s -w", "-tags", "no_btrfs,no_devmapper,no_zfs,no_aufs",
                        f"{module}/{name}@v{CONTAINERD}"], check=True, env=os.environ | {"GOBIN": str(out), "CGO_ENABLED": "0"})
    say(f"built containerd {CONTAINERD} in {time.monotonic() - began:.0f} s")


def _installer(name):
    """Where one of `INSTALLERS` is, or will be."""
    return cache() / f"{name}-{INSTALLERS[name].rpartition('@v')[2]}" / name


def installer(name):
    """The path of one of `INSTALLERS`; none where it was not made."""
    return str(_installer(name)) if _installer(name).exists() else None


def _build_installers():
    """Those of `INSTALLERS` that are not there, from their own modules."""
    for name, package in INSTALLERS.items():
        if installer(name):
            continue
        began = time.monotonic()
        subprocess.run(["go", "install", "-trimpath", "-ldflags", "-s -w", package], check=True,
                       env=os.environ | {"GOBIN": str(_installer(name).parent), "CGO_ENABLED": "0"})
        say(f"built {name} in {time.monotonic() - began:.0f} s")


def _go_build(packages, out):
    """Builds {name: package}: one call, so that one program is linked while the next is compiled."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=".new-", dir=out) as fresh:
        subprocess.run(["go", "build", *FLAGS, "-o", f"{fresh}/", *packages.values()], cwd=MODULE, check=True, env=os.environ | {"CGO_ENABLED": "0"})
        for name, package in packages.items():
            (Path(fresh) / _output(package)).rename(out / name)
    say(f"built {', '.join(packages)} in {time.monotonic() - began:.0f} s")


def _output(package):
    """What `go build` calls a package's program: its last part that is no version."""
    parts = package.split("/")
    return parts[-2] if re.fullmatch(r"v\d+", parts[-1]) else parts[-1]


def _build_pause(out):
    """The program of the sandbox image. It ends on SIGTERM, or each pod would take 30 s to stop."""
    if (out / "pause").exists():
        return
    source = b"""
#include <signal.h>
#include <unistd.h>
static void end(int signal) { (void)signal; _exit(0); }
int main(void) { signal(SIGTERM, end); signal(SIGINT, end); for (;;) pause(); }
"""
    subprocess.run(["gcc", "-static", "-O2", "-x", "c", "-o", out / "pause", "-"], input=source, check=True)


def _root():
    """Where the machines' root is, or will be."""
    return cache() / f"root-{_digest(repr(MACHINE_PACKAGES).encode())}"


def machine_root():
    """The Debian root that whole machines share (read-only to them)."""
    return _there(_root())


def _make_root():
    """Makes the machines' root, from Debian's packages."""
    if _root().exists():
        return
    began = time.monotonic()
    fresh = _root().with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    log = cache() / "debootstrap.log"
    with open(log, "wb") as out:
        done = subprocess.run([*_as_root(), "debootstrap", "--variant=minbase", f"--include={','.join(MACHINE_PACKAGES)}",
                               "bookworm", fresh], stdout=out, stderr=out, check=False)
    if done.returncode:
        raise RuntimeError(f"debootstrap failed: see {log}")
    fresh.rename(_root())
    say(f"made the machines' root in {time.monotonic() - began:.0f} s")
