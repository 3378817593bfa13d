"""The control groups of one sandbox: a subtree of its own, in v1, v2 and hybrid layouts alike.

Made and removed from outside, since a sandbox that was killed cannot clean up after itself; the
folder's name, which carries the sandbox's, identifies the remains of an earlier run.
"""

import os
import subprocess
from pathlib import Path

from .wait import until

ROOT = Path("/sys/fs/cgroup")


def _unified():
    return (ROOT / "cgroup.controllers").exists()


def _hierarchies():
    """(controllers, mount point, own group) of every mounted v1 hierarchy."""
    groups = {}
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        groups[controllers] = path
    found = []
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        fields = line.split()
        kind, _, options = fields[fields.index("-") + 1:]
        if kind == "cgroup":
            for controllers, path in groups.items():
                if controllers and set(controllers.split(",")) <= set(options.split(",")):
                    found.append((controllers, Path(fields[4]), path))
        elif kind == "cgroup2" and "" in groups:
            found.append(("", Path(fields[4]), groups[""]))
    return found


def controllers():
    """The controllers that a run can have."""
    if _unified():
        return set((ROOT / "cgroup.controllers").read_text(encoding="ascii").split())
    return {word for names, _, _ in _hierarchies() for word in names.split(",")}


def create(name):
    """Makes the subtree; gives the `cgroup.procs` files that a process writes itself into to enter it."""
    if _unified():
        (ROOT / name / "init").mkdir(parents=True)
        _delegate(ROOT)
        return [ROOT / name / "cgroup.procs"]
    entries = []
    for controllers, mount, path in _hierarchies():
        parent = mount / path.lstrip("/")
        group = parent / name
        group.mkdir()
        if "cpuset" in controllers.split(","):
            for file in ("cpuset.cpus", "cpuset.mems"):
                (group / file).write_text((parent / file).read_text(encoding="ascii"), encoding="ascii")
        entries.append(group / "cgroup.procs")
    return entries


def _delegate(group):
    for controller in (group / "cgroup.controllers").read_text(encoding="ascii").split():
        try:
            (group / "cgroup.subtree_control").write_text(f"+{controller}", encoding="ascii")
        except OSError:
            pass  # one that this machine cannot delegate; the kubelet names it if it needs it


def follow(name, pid):
    """From outside: moves the starter of the run, `pid`, after the run's init into the leaf (v2 only).

    In v2 a group with processes of its own can hand nothing to its children; the namespace's root
    has to be the group above the leaf, so this must wait until the namespace exists.
    """
    if _unified():
        leaf = ROOT / name / "init" / "cgroup.procs"
        until(lambda: leaf.read_text(encoding="ascii"), 10, "the run's init is in its control group")
        leaf.write_text(str(pid), encoding="ascii")


def processor_seconds(name):
    """What the processors worked for a run so far, None where that was not counted."""
    if _unified():
        fields = dict(line.split() for line in (ROOT / name / "cpu.stat").read_text(encoding="ascii").splitlines())
        return int(fields["usage_usec"]) / 1e6
    for controllers, mount, path in _hierarchies():
        if "cpuacct" in controllers.split(","):
            return int((mount / path.lstrip("/") / name / "cpuacct.usage").read_text(encoding="ascii")) / 1e9
    return None


def mount_inside():
    """Within the sandbox's cgroup namespace: mounts /sys/fs/cgroup so that the subtree is the root."""
    if _unified_inside():
        _mount("-t", "cgroup2", "none", ROOT)
        (ROOT / "init" / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
        until(lambda: not (ROOT / "cgroup.procs").read_text(encoding="ascii"), 10, "the run's root group is empty")
        _delegate(ROOT)
        return
    hierarchies = [line.split(":", 2)[1] for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()]
    _mount("-t", "tmpfs", "-o", "mode=755", "none", ROOT)
    for controllers in hierarchies:
        if not controllers:
            folder, options = ROOT / "unified", ["-t", "cgroup2"]
        elif controllers.startswith("name="):
            folder, options = ROOT / controllers[5:], ["-t", "cgroup", "-o", f"none,{controllers}"]
        else:
            folder, options = ROOT / controllers, ["-t", "cgroup", "-o", controllers]
        folder.mkdir()
        _mount(*options, "none", folder)


def _unified_inside():
    lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    return len(lines) == 1 and lines[0].startswith("0::")


def _mount(*args):
    subprocess.run(["mount", *map(str, args)], check=True)


def sweep():
    """Within the sandbox: removes the empty groups that a machine left whose plug was pulled.

    cAdvisor waits three seconds for each of them when the next kubelet starts.
    """
    for mount in {ROOT, *(path for path in ROOT.iterdir() if path.is_dir())}:
        _remove_empty(mount / "k8s.io", keep_top=True)


def remove(name):
    """Removes the subtree of a sandbox whose processes are gone."""
    for _, mount, path in _hierarchies() if not _unified() else [("", ROOT, "/")]:
        group = mount / path.lstrip("/") / name
        if group.exists():
            until(lambda group=group: _remove_empty(group), 10, f"cgroup {group} is empty")


def _remove_empty(top, keep_top=False):
    for folder, _, _ in os.walk(top, topdown=False):
        if keep_top and folder == str(top):
            continue
        try:
            os.rmdir(folder)
        except OSError:
            pass
    return not top.exists()
