"""What the machine must have before a story starts: a line for each thing that it lacks.

Owns the settings of the whole machine that the stories need, and sets those it may. Without this a
story on such a machine says only that a node is not registered.
"""

import resource
import shutil
import subprocess
import sys
from pathlib import Path

from . import agent
from . import cgroups
from . import sandbox
from . import tools

GIB = 1 << 30
# What one story takes at the most, with room: whole machines, or two kubelets with hollow nodes.
LANE_MEMORY, LANE_DISK = 3 * GIB, 3 * GIB
# Below these a story fails for no reason of its own. All lanes share them with whatever else runs.
SYSCTLS = {"fs.inotify.max_user_instances": 2048, "fs.inotify.max_user_watches": 131072, "fs.aio-max-nr": 65536, "kernel.pid_max": 32768}
FILES = 16384
CONTROLLERS = {"cpu", "cpuset", "memory", "pids"}
NAMESPACES = ("mount", "pid", "net", "ipc", "uts", "cgroup")

# What a story's sandbox must be able to do: a command, and what is missing where it fails.
INSIDE = {
    "a bridge": "ip link add dl-bridge type bridge",
    "a pair of network interfaces": "ip link add dl-a type veth peer name dl-b",
    "a rule of nftables": "nft add table inet dl && nft add chain inet dl in '{ type filter hook input priority 0; }'",
    "an overlay": "d=$(mktemp -d -p {scratch}) && mkdir $d/l $d/u $d/w $d/m && mount -t overlay -o lowerdir=$d/l,upperdir=$d/u,workdir=$d/w overlay $d/m",
    "a loop device": "losetup --find",
    "/dev/fuse": "test -c /dev/fuse",
    "/dev/kmsg": "test -c /dev/kmsg",
}


def lanes(wanted):
    """How many of the wanted lanes this machine has memory for: at least one."""
    return max(1, min(wanted, available_memory() // LANE_MEMORY))


def available_memory():
    """Bytes that programs can have."""
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    return int(fields["MemAvailable"].split()[0]) << 10


def check():
    """Sets what may be set; gives a line for each thing that the machine lacks."""
    return [*_programs(), *_settings(), *_room(), *_namespaces()]


def _programs():
    absent = [str(path) for path in tools.missing()]
    if absent:
        more = f" and {len(absent) - 1} more" if absent[1:] else ""
        yield f"programs: {absent[0]}{more}: run `make cluster-tools`"
    try:
        agent.binary()
    except FileNotFoundError as error:
        yield f"daemonlet: {error}"


def _settings():
    for name, least in SYSCTLS.items():
        file = Path("/proc/sys", *name.split("."))
        found = int(file.read_text(encoding="ascii")) if file.exists() else least
        if found >= least:
            continue
        try:
            file.write_text(str(least), encoding="ascii")
            print(f"preflight: {name} raised from {found} to {least}")
        except OSError as error:
            yield f"{name} is {found} and cannot be raised ({error.strerror}): `sysctl {name}={least}` on the host"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES:
        yield f"open files: the limit is {hard}, below {FILES}: `ulimit -Hn {FILES}`"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, FILES)) if hard != resource.RLIM_INFINITY else max(soft, FILES), hard))


def _room():
    memory = available_memory()
    if memory < LANE_MEMORY:
        yield f"memory: {memory / GIB:.1f} GiB available, a story takes up to {LANE_MEMORY // GIB}"
    sandbox.RUNS.mkdir(parents=True, exist_ok=True)
    disk = shutil.disk_usage(sandbox.RUNS).free
    if disk < LANE_DISK:
        yield f"disk: {disk / GIB:.1f} GiB free at {sandbox.RUNS}, a story takes up to {LANE_DISK // GIB}: DAEMONLET_SCRATCH names another folder"


def _namespaces():
    """The last: a sandbox as the stories have it, and what is to be done in it."""
    lacks = []
    for kind in NAMESPACES:
        done = subprocess.run(["unshare", f"--{kind}", "--fork", "true"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            lacks.append(f"namespaces: no {kind} namespace can be made ({_first_line(done.stderr)}): as root, in a privileged container if in one")
    absent = CONTROLLERS - cgroups.controllers()
    if absent:
        lacks.append(f"control groups: no controller for {', '.join(sorted(absent))} at {cgroups.ROOT}")
    if lacks:
        return lacks
    run = None
    try:
        run = sandbox.Sandbox()
        child = run.start(["-m", "kit.preflight"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        said, why = child.communicate()
        lacks = said.splitlines()
        if child.returncode:
            lacks.append(f"sandbox: cannot be set up ({why.strip().splitlines()[-1] if why.strip() else child.returncode})")
    except (OSError, AssertionError) as error:
        lacks.append(f"control groups: a run's own group cannot be made ({error})")
    finally:
        if run:
            run.end()
    return lacks


def _first_line(text):
    return text.strip().partition("\n")[0]


def _inside():
    for what, command in INSIDE.items():
        shell = ["sh", "-c", command.replace("{scratch}", str(sandbox.scratch()))]
        done = subprocess.run(shell, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            print(f"sandbox: {what} cannot be had ({_first_line(done.stderr) or command})")


if __name__ == "__main__":
    sys.exit(_inside())
