"""The programs that a test cluster is made of, and where they lie.

Owns the cache folder: Kubernetes and etcd built from the module in `k8s/`, our own Go programs, the
Debian root of whole machines. Each is made once and kept between runs, under a name that is a hash
of everything it was made from. Must run before the sandbox is entered: only this module needs the
outside world (the Go module proxy, the Debian mirror).
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

CLUSTER = Path(__file__).resolve().parent.parent
REPO = CLUSTER.parent.parent
MODULE = CLUSTER / "k8s"

KUBERNETES = "1.36.2"
CONTAINERD = "2.2.1"
_VERSION = "k8s.io/component-base/version"
# One set of flags for all: other flags would compile the same packages again.
_FLAGS = ["-trimpath", "-buildvcs=false", "-ldflags",
          f"-s -w -X {_VERSION}.gitVersion=v{KUBERNETES} -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=36"]

# The kubelet first: it compiles most of what the others share.
UPSTREAM = {"etcd": "go.etcd.io/etcd/server/v3"} | {
    name: f"k8s.io/kubernetes/cmd/{name}"
    for name in ("kubelet", "kube-apiserver", "kube-controller-manager", "kube-scheduler",
                 "kube-proxy", "kubemark", "kubectl")}

# Debian package -> a file that tells that it is there.
PACKAGES = {
    "busybox-static": "/bin/busybox",
    "conntrack": "/usr/sbin/conntrack",
    "containerd": "/usr/bin/containerd",
    "containernetworking-plugins": "/usr/lib/cni/host-local",
    "curl": "/usr/bin/curl",
    "debootstrap": "/usr/sbin/debootstrap",
    "gcc": "/usr/bin/gcc",
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
    return cache() / _digest(*pinned, repr((_FLAGS, sorted(UPSTREAM.items()))).encode()) / "bin"


def program(name):
    """The path of a built program."""
    path = bin_dir() / name
    if not path.exists():
        raise FileNotFoundError(f"{path} is not built: run `make cluster-tools`")
    return str(path)


@contextmanager
def _locked(name):
    """One builder at a time, whoever else runs a test on this machine."""
    cache().mkdir(parents=True, exist_ok=True)
    with open(cache() / f"{name}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install_packages():
    """Installs the Debian packages that are missing; nothing when none is."""
    missing = [name for name, path in PACKAGES.items() if not Path(path).exists()]
    if not missing:
        return
    say(f"installing {' '.join(missing)}")
    root = [] if os.geteuid() == 0 else ["sudo"]
    apt = root + ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    subprocess.run(apt + ["update"], check=True)
    subprocess.run(apt + ["install", "-y", "--no-install-recommends", *missing], check=True, stdout=subprocess.DEVNULL)


def own_programs():
    """Our own Go programs: every folder of the module with a main.go, by the name of the folder."""
    return {file.parent.name: file.parent for file in sorted(MODULE.glob("*/main.go"))}


def build():
    """Builds what is not yet built: Kubernetes once per version, our own programs when they changed."""
    out = bin_dir()
    with _locked("build"):
        out.mkdir(parents=True, exist_ok=True)
        for name, package in UPSTREAM.items():
            if not (out / name).exists():
                _go_build(name, package, out)
        for name, folder in own_programs().items():
            sources = sorted(folder.rglob("*.go"))
            stamp = out / f".{name}.{_digest(*(file.read_bytes() for file in sources))}"
            if not stamp.exists():
                for old in out.glob(f".{name}.*"):
                    old.unlink()
                _go_build(name, f"./{folder.name}", out)
                stamp.touch()
        _build_pause(out)
        _build_containerd()
        _fetch_promtool(out)
        subprocess.run([sys.executable, REPO / "packaging/packages.py", "--tools"], check=True)
    return out


def _fetch_promtool(out):
    """promtool out of Debian's package, without the server that installing it would start."""
    if (out / "promtool").exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        # apt's own user downloads; it may not write where root works.
        subprocess.run(["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", "prometheus"], cwd=folder, check=True)
        package = next(Path(folder).glob("prometheus_*.deb"))
        subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
        shutil.copy2(Path(folder) / "usr/bin/promtool", out / "promtool")


def newer_containerd():
    """The folder of a containerd of today; Debian's own is of 2022."""
    return cache() / f"containerd-{CONTAINERD}"


def _build_containerd():
    """containerd and its shim, from their own module."""
    out = newer_containerd()
    if (out / "containerd-shim-runc-v2").exists():
        return
    began = time.monotonic()
    module = "github.com/containerd/containerd/v2/cmd"
    for name in ("containerd", "containerd-shim-runc-v2"):
        subprocess.run(["go", "install", "-trimpath", "-ldflags", "-s -w", "-tags", "no_btrfs,no_devmapper,no_zfs,no_aufs",
                        f"{module}/{name}@v{CONTAINERD}"], check=True, env=os.environ | {"GOBIN": str(out)})
    say(f"built containerd {CONTAINERD} in {time.monotonic() - began:.0f} s")


def _go_build(name, package, out):
    began = time.monotonic()
    fresh = out / f".{name}.new"
    subprocess.run(["go", "build", *_FLAGS, "-o", fresh, package], cwd=MODULE, check=True,
                   env=os.environ | {"CGO_ENABLED": "0"})
    fresh.rename(out / name)
    say(f"built {name} in {time.monotonic() - began:.0f} s")


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


def machine_root():
    """The Debian root that whole machines share (read-only to them), made once."""
    root = cache() / f"root-{_digest(repr(MACHINE_PACKAGES).encode())}"
    with _locked("root"):
        if root.exists():
            return root
        began = time.monotonic()
        fresh = root.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        with open(cache() / "debootstrap.log", "wb") as log:
            done = subprocess.run(["debootstrap", "--variant=minbase", f"--include={','.join(MACHINE_PACKAGES)}",
                                   "bookworm", fresh], stdout=log, stderr=log, check=False)
        if done.returncode:
            raise RuntimeError(f"debootstrap failed: see {log.name}")
        fresh.rename(root)
        say(f"made the machines' root in {time.monotonic() - began:.0f} s")
    return root
