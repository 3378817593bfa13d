#!/usr/bin/env python3
"""`make systemds`: under which versions of systemd the units work, by booting a small root of each distribution.

    systemd.py                    every row: one table at the end, as docs/versioning.md has it
    systemd.py --row "Ubuntu 22"  only rows that begin so

Each root is made once by debootstrap and kept in the cache folder; it has systemd, dbus and nothing else. A row is skipped, and
that is said, where the distribution's keys are not here (for Ubuntu: the package ubuntu-keyring; DAEMONLET_UNVERIFIED=1 goes
on without). Needs root, systemd-nspawn and a built program.
"""

import argparse
import datetime
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from kit import tools  # noqa: E402

KEYS = Path("/usr/share/keyrings")
DEBIAN = ("http://deb.debian.org/debian", KEYS / "debian-archive-keyring.gpg", "sid")
UBUNTU = ("http://archive.ubuntu.com/ubuntu", KEYS / "ubuntu-archive-keyring.gpg", "gutsy")
# Its name, its suite, where it comes from.
ROWS = [("Ubuntu 22.04", "jammy", UBUNTU), ("Debian 12", "bookworm", DEBIAN), ("Ubuntu 24.04", "noble", UBUNTU), ("Debian 13", "trixie", DEBIAN)]
UNITS = ("daemonlet.service", "daemonlet-boot-guard.service")
CONFIG = 'node-name = "n1"\nkubeconfig = ""\nruntime-endpoint = ""\n[node]\nkubelet-version = "v1.36.2"\n'
# A host with control groups of the old kind: systemd 256 and later want this word.
OLD_GROUPS = "SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1 systemd.unified_cgroup_hierarchy=0"


def base(suite, where):
    """The root of a distribution; None where it cannot be had."""
    mirror, keys, script = where
    out = tools.cache() / "systemd" / suite
    if out.exists():
        return out
    if keys.exists():
        words = [f"--keyring={keys}"]
    elif os.environ.get("DAEMONLET_UNVERIFIED"):
        words = ["--no-check-gpg"]
    else:
        return None
    fresh = out.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.parent.mkdir(parents=True, exist_ok=True)
    tools.say(f"making a root of {suite}")
    argv = ["debootstrap", *words, "--variant=minbase", "--include=systemd,systemd-sysv", suite, fresh, mirror, f"/usr/share/debootstrap/scripts/{script}"]
    if subprocess.run(argv, stdout=subprocess.DEVNULL, check=False).returncode:
        return None
    fresh.rename(out)
    return out


def prepare(root, program):
    """Puts onto a root what a package has."""
    shutil.copy(program, root / "usr/bin/daemonlet")
    wants = root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    for unit in UNITS:
        shutil.copy(tools.REPO / "systemd" / unit, root / "etc/systemd/system" / unit)
        (wants / unit).symlink_to(f"/etc/systemd/system/{unit}")
    shutil.copy(tools.REPO / "packaging/tmpfiles.d/daemonlet.conf", root / "usr/lib/tmpfiles.d/daemonlet.conf")
    (root / "etc/daemonlet/daemonsets.d").mkdir(parents=True)
    (root / "etc/daemonlet/daemonlet.toml").write_text(CONFIG, encoding="utf-8")
    shutil.copy(tools.REPO / "examples/demo/daemonset.yaml", root / "etc/daemonlet/daemonsets.d")
    (root / "etc/machine-id").write_text("b08dfa6083e7567a1921a715000001fb\n", encoding="ascii")


class Booted:
    """A root that runs."""

    def __init__(self, root, log):
        groups = [] if Path("/sys/fs/cgroup/cgroup.controllers").exists() else [f"--setenv=SYSTEMD_PROC_CMDLINE={OLD_GROUPS}"]
        self._log = open(log, "wb")
        self._nspawn = subprocess.Popen(
            ["systemd-nspawn", "--directory", root, "--boot", "--register=no", "--keep-unit", "--machine=daemonlet-systemd", "--capability=all",
             "--private-network", "--system-call-filter=@keyring bpf", "--console=pipe", *groups],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, env=os.environ | {"SYSTEMD_NSPAWN_API_VFS_WRITABLE": "1"})

    def run(self, *argv):
        """Runs a command; gives its exit status and its output."""
        children = Path(f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children").read_text(encoding="ascii").split()
        if not children:
            return 1, ""
        done = subprocess.run(["nsenter", "--target", children[0], "--all", "--", *argv], capture_output=True, text=True, check=False, timeout=60)
        return done.returncode, done.stdout + done.stderr

    def wait(self, seconds=60):
        """Waits until it is up; whether it is."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self._nspawn.poll() is None:
            if self.run("systemctl", "is-system-running")[1].strip() in ("running", "degraded"):
                return True
            time.sleep(0.5)
        return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._nspawn.poll() is None:
            self.run("systemctl", "poweroff", "--no-block")
            try:
                self._nspawn.wait(30)
            except subprocess.TimeoutExpired:
                self._nspawn.kill()
        self._log.close()


def row(root, program):
    """The cells of a root, and what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for name in ("upper", "work", "root"):
            (home / name).mkdir()
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", f"lowerdir={root},upperdir={home}/upper,workdir={home}/work", home / "root"], check=True)
        try:
            prepare(home / "root", program)
            with Booted(home / "root", home / "console.log") as booted:
                if not booted.wait():
                    return ["?", "**does not boot**"], [(home / "console.log").read_text(encoding="utf-8", errors="replace")[-2000:]]
                return looked_at(booted)
        finally:
            subprocess.run(["umount", "--lazy", home / "root"], check=False)


def looked_at(booted):
    """What the units do there."""
    version, wrong = booted.run("systemctl", "--version")[1].split()[1], []

    def cell(what, *argv, wanted=""):
        status, said = booted.run(*argv)
        if status or wanted not in said:
            wrong.append(f"{what}: {said.strip() or status}")
            return "**no**"
        return "yes"

    verified = cell("verify", "systemd-analyze", "verify", *(f"/etc/systemd/system/{unit}" for unit in UNITS))
    log = booted.run("journalctl", "--boot", "--no-pager")[1]
    not_known = [line for line in log.splitlines() if "daemonlet" in line and ("Unknown key" in line or "Unknown lvalue" in line)]
    wrong += not_known
    start = cell("start", "systemctl", "is-active", *UNITS)
    manifest = cell("manifest", "ls", "/etc/kubernetes/manifests", wanted="kube-system_demo-cni-")
    reload = cell("reload", "systemctl", "reload", "daemonlet")
    if reload == "yes":
        time.sleep(1)
        reload = cell("reload", "journalctl", "--boot", "--unit=daemonlet", "--no-pager", wanted="the configuration is the same")
    again = cell("restart", "sh", "-c", "systemctl restart daemonlet && systemctl is-active daemonlet")
    return [version, "**no**" if not_known else verified, start, manifest, reload, again], wrong


def main():
    """The command; the exit status is 1 if anything does not work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", action="append", default=[])
    asked = parser.parse_args()
    program = os.environ.get("DAEMONLET_BIN") or tools.target_dir() / "debug" / "daemonlet"
    rows, bad = [], False
    for name, suite, where in ROWS:
        if asked.row and not any(name.startswith(row) for row in asked.row):
            continue
        root = base(suite, where)
        if root is None:
            print(f"{name}: skipped: no keys of the distribution, or its mirror does not answer", file=sys.stderr)
            continue
        cells, wrong = row(root, program)
        rows.append([cells[0], name, *cells[1:]])
        bad |= bool(wrong)
        for line in wrong:
            print(f"{name}: {line}", file=sys.stderr)
    print(f"{datetime.date.today()}\n")
    heads = ["systemd", "of", "the units are understood", "agent and boot guard start", "first manifest", "reload", "restart"]
    for cells in (heads, ["---"] * len(heads), *rows):
        print(f"| {' | '.join(cells)} |")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
