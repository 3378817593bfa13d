"""A sandbox: one run of a cluster, with nothing of it left behind however it ends.

A run lives in namespaces of its own (processes, mounts, network, control groups) under an init of
its own. When that init ends, by itself, by Ctrl-C or by the crash of whoever started it, the kernel
ends every process in it, and takes its mounts, network namespaces and interfaces along. What is
left is a scratch folder and a control group, named `dl-…` and locked while the run lives: the
starter removes them, else the next run does.

The network has no way out: what a run does, it does on loopback and between its own machines.
"""

import ctypes
import fcntl
import os
import secrets
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from . import cgroups
from .tools import CLUSTER

RUNS = Path(os.environ.get("DAEMONLET_SCRATCH", "/var/tmp/daemonlet-cluster"))
_PR_SET_PDEATHSIG = 1
_SCRATCH = "DAEMONLET_RUN_SCRATCH"


def scratch():
    """The scratch folder of the run that this process is in."""
    return Path(os.environ[_SCRATCH])


def inside():
    """Whether this process is in a sandbox."""
    return _SCRATCH in os.environ


class Sandbox:
    """From outside: makes a run and starts a program in it."""

    def __init__(self, name=None):
        self.name = name or f"dl-{secrets.token_hex(3)}"
        self.scratch = RUNS / self.name
        self.child = None
        RUNS.mkdir(parents=True, exist_ok=True)
        # Between its folder and its lock a run looks like what an earlier one left.
        with open(RUNS / "lock", "w", encoding="utf-8") as all_runs:
            fcntl.flock(all_runs, fcntl.LOCK_EX)
            sweep()
            self.scratch.mkdir()
            self._lock = open(self.scratch / "lock", "w", encoding="utf-8")  # noqa: SIM115 (held while the run lives)
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def start(self, argv, survive=False, **popen):
        """Starts `argv` (a Python program and its arguments) as the run's only task.

        With `survive` the run goes on when this process ends.
        """
        entries = cgroups.create(self.name)

        def enter():
            if not survive:
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            for entry in entries:
                entry.write_text(str(os.getpid()), encoding="ascii")

        unshare = ["unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup", "--fork",
                   "--kill-child=SIGKILL", "--mount-proc", "--propagation", "private"]
        init = [sys.executable, "-m", "kit.sandbox", *argv]
        path = os.pathsep.join([str(CLUSTER), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        self.child = subprocess.Popen(unshare + init, preexec_fn=enter, pass_fds=[self._lock.fileno()],
                                      env=os.environ | {_SCRATCH: str(self.scratch), "PYTHONPATH": path}, **popen)
        cgroups.follow(self.name, self.child.pid)
        return self.child

    def run(self, argv):
        """Starts `argv`, waits for its end and removes the run; gives the exit status."""
        try:
            return self.start(argv).wait()
        finally:
            self.end()

    def end(self):
        """Ends the run, if it has not ended, and removes what it left."""
        if self.child and self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        _remove(self.name)
        self._lock.close()


def sweep():
    """Removes what earlier runs left: those whose lock no process holds any more."""
    for folder in RUNS.glob("dl-*"):
        try:
            with open(folder / "lock", encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        _remove(folder.name)


def _remove(name):
    cgroups.remove(name)
    shutil.rmtree(RUNS / name, ignore_errors=True)


def _sh(*args):
    subprocess.run([str(arg) for arg in args], check=True)


def _settle():
    """Makes the fresh namespaces a place to live in."""
    home = scratch()
    # A peer group of the run's own: mounts of a kubelet reach its containers, and nothing else.
    _sh("mount", "--make-rshared", "/")
    _sh("umount", "-R", "/sys")
    _sh("mount", "-t", "sysfs", "sysfs", "/sys")
    cgroups.mount_inside()
    for folder in ("/run", "/var/log"):
        _sh("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", folder)
    for folder in ("/etc", "/opt", "/var/lib"):
        layers = home / "overlay" / folder.strip("/").replace("/", "-")
        (layers / "upper").mkdir(parents=True)
        (layers / "work").mkdir()
        _sh("mount", "-t", "overlay", "-o", f"lowerdir={folder},upperdir={layers}/upper,workdir={layers}/work", "overlay", folder)
    for folder in ("/run/netns", "/run/lock", "/var/log/pods"):
        os.makedirs(folder)
    _sh("ip", "link", "set", "lo", "up")
    _sh("hostname", "dl-host")
    Path("/etc/hosts").write_text("127.0.0.1 localhost dl-host\n", encoding="ascii")
    Path("/etc/resolv.conf").unlink(missing_ok=True)
    Path("/etc/resolv.conf").write_text("", encoding="ascii")


def _init(argv):
    """Process 1 of a run: starts the task, reaps what is orphaned to it, ends with the task."""
    _settle()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    task = os.fork()
    if task == 0:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        os.execv(sys.executable, [sys.executable, *argv])
    while True:
        pid, status = os.wait()
        if pid == task:
            sys.exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    _init(sys.argv[1:])
