"""Whole machines: systemd, containerd, a kubelet and daemonlet as units, a power switch.

A machine is a Debian root (made once, shared, read-only) under a layer of what every machine of the
tests has (kubelet, images, CNI plugins) under a layer of its own, run by systemd-nspawn in a
network namespace of its own. It is laid out as kubeadm lays a node out.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from datetime import datetime
from pathlib import Path

from . import agent
from . import cgroups
from . import images
from . import tools
from .kubelet import Cri
from .kubelet import containerd_config
from .kubelet import is_ready
from .kubelet import kubelet_config
from .net import GATEWAY
from .process import Process
from .sandbox import scratch
from .wait import until

_KUBELET_UNIT = """
[Unit]
Description=kubelet
Wants=containerd.service
After=containerd.service images.service
[Service]
ExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml --kubeconfig=/etc/kubernetes/kubelet.conf --node-ip={address} --v=2
Restart=always
RestartSec=1
[Install]
WantedBy=multi-user.target
"""

# First boot only: an image is imported under its name, there is no registry.
_IMAGES_UNIT = """
[Unit]
Description=Import the images of the tests
ConditionPathExists=!/var/lib/containerd/.imported
After=containerd.service
Requires=containerd.service
Before=kubelet.service
[Service]
Type=oneshot
ExecStart=/bin/sh -ec 'for archive in /opt/images/*.tar; do ctr -n k8s.io images import "$archive"; done; touch /var/lib/containerd/.imported'
[Install]
WantedBy=multi-user.target
"""

# Not everybody may lower an OOM score (CAP_SYS_RESOURCE), containers least of all.
_CONTAINERD_DROP_IN = "[Service]\nOOMScoreAdjust=0\nExecStartPre=\n"


def _write(path, text, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def _enable(root, unit):
    wants = root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / unit).unlink(missing_ok=True)
    (wants / unit).symlink_to(f"/etc/systemd/system/{unit}")


def common_layer(pod_images=()):
    """The layer that the machines of a run share; gives its folder."""
    layer = scratch() / "machines" / "common"
    (layer / "usr/bin").mkdir(parents=True)
    shutil.copy(tools.program("kubelet"), layer / "usr/bin/kubelet")
    (layer / "opt/images").mkdir(parents=True)
    for number, image in enumerate([images.pause(), images.box(), *pod_images]):
        image.save(layer / f"opt/images/{number:02}.tar")
    plugins = layer / "opt/cni/bin"
    plugins.mkdir(parents=True)
    for plugin in ("bridge", "host-local", "loopback", "portmap"):
        (plugins / plugin).symlink_to(f"/usr/lib/cni/{plugin}")
    _write(layer / "etc/containerd/config.toml",
           containerd_config("/var/lib", "/run/containerd/containerd.sock", "/opt/cni/bin")
           .replace("/var/lib/containerd-run", "/run/containerd"))
    units = layer / "etc/systemd/system"
    _write(units / "containerd.service.d/50-tests.conf", _CONTAINERD_DROP_IN)
    _write(units / "images.service", _IMAGES_UNIT)
    for unwanted in ("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer"):
        (units / unwanted).symlink_to("/dev/null")
    (layer / "etc/kubernetes/manifests").mkdir(parents=True)
    (layer / "var/log/journal").mkdir(parents=True)
    _enable(layer, "images.service")
    return layer


class Machine:
    """One machine of a cluster: `power_on`, `run`, `power_off`, `kill`, `journal`.

    It has the attributes of a `kubelet.Node` that tests share: `name`, `cluster`, `cri`.
    """

    def __init__(self, cluster, lan, name, common, daemonlet=None):
        self.cluster, self.lan, self.name = cluster, lan, name
        self.address = lan.plug(name)
        self.home = scratch() / "machines" / name
        self.root = self.home / "root"
        self._layers = [common, tools.machine_root()]
        self._nspawn = None
        self.powered = self.powered_wall = 0.0
        self._prepare()
        if daemonlet is not None:
            self.install_daemonlet(**daemonlet)

    def _prepare(self):
        for folder in ("upper", "work", "root", "containerd", "kubelet"):
            (self.home / folder).mkdir(parents=True)
        layers = ":".join(map(str, self._layers))
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o",
                        f"lowerdir={layers},upperdir={self.home}/upper,workdir={self.home}/work", self.root], check=True)
        root, user = self.root, f"system:node:{self.name}"
        _write(root / "etc/hostname", self.name + "\n")
        _write(root / "etc/hosts", f"127.0.0.1 localhost\n{self.address} {self.name}\n{GATEWAY} control-plane\n")
        (root / "etc/resolv.conf").unlink(missing_ok=True)
        _write(root / "etc/resolv.conf", "")
        _write(root / "etc/machine-id", hashlib.md5(self.name.encode(), usedforsecurity=False).hexdigest() + "\n")
        pki = self.cluster.pki
        cert, key = pki.certificate(user, ["system:nodes"], [f"IP:{self.address}", f"DNS:{self.name}"])
        for source, target in ((pki.ca, "ca.crt"), (cert, "kubelet.crt"), (key, "kubelet.key")):
            _write(root / "etc/kubernetes/pki" / target, source.read_text(encoding="ascii"), 0o600)
        _write(root / "etc/kubernetes/kubelet.conf", self.cluster.kubeconfig(user, ["system:nodes"]).read_text(encoding="utf-8"), 0o600)
        # /var/lib/kubelet is a plain folder bound over the root: containers and volumes do not go on overlays.
        _write(self.home / "kubelet/config.yaml", kubelet_config(
            self.name, containerRuntimeEndpoint="unix:///run/containerd/containerd.sock",
            tlsCertFile="/etc/kubernetes/pki/kubelet.crt", tlsPrivateKeyFile="/etc/kubernetes/pki/kubelet.key",
            # The host's control groups are what a machine has; groups per pod would need them delegated.
            cgroupsPerQOS=False, cgroupRoot=f"/{self.name}",
            authentication={"anonymous": {"enabled": False}, "webhook": {"enabled": True}, "x509": {"clientCAFile": "/etc/kubernetes/pki/ca.crt"}}))
        _write(root / "etc/systemd/system/kubelet.service", _KUBELET_UNIT.format(address=self.address))
        _enable(root, "kubelet.service")

    def install_daemonlet(self, binary=None, **config):
        """Installs daemonlet as its packages would: program, units, tmpfiles, configuration, credentials."""
        root = self.root
        shutil.copy(binary or agent.binary(), root / "usr/bin/daemonlet")
        for unit in (tools.REPO / "systemd").glob("*.service"):
            shutil.copy(unit, root / "etc/systemd/system" / unit.name)
            _enable(root, unit.name)
        for file in (tools.REPO / "packaging/tmpfiles.d").glob("*.conf"):
            (root / "usr/lib/tmpfiles.d").mkdir(parents=True, exist_ok=True)
            shutil.copy(file, root / "usr/lib/tmpfiles.d" / file.name)
        _write(root / "etc/daemonlet/kubeconfig", agent.kubeconfig(self.cluster, self.name).read_text(encoding="utf-8"), 0o600)
        self.configure(**config)

    def configure(self, **config):
        """Writes daemonlet's configuration; keys as in the file, `_` for `-`."""
        _write(self.root / "etc/daemonlet/daemonlet.toml", agent.toml({
            "kubeconfig": "/etc/daemonlet/kubeconfig", "runtime-endpoint": "unix:///run/containerd/containerd.sock",
            "update-jitter": "0s",
        } | {key.replace("_", "-"): value for key, value in config.items()}), 0o600)

    def enable_daemonlet(self, on):
        """Whether its units start with the machine from the next boot on."""
        for unit in (tools.REPO / "systemd").glob("*.service"):
            if on:
                _enable(self.root, unit.name)
            else:
                (self.root / "etc/systemd/system/multi-user.target.wants" / unit.name).unlink(missing_ok=True)

    def put(self, path, text):
        """Writes a file on the machine, whether it is on or off."""
        _write(self.root / path.lstrip("/"), text)

    @property
    def cri(self):
        """The container runtime of this machine."""
        return Cri("/run/containerd/containerd.sock", self._enter())

    def _enter(self):
        return ["nsenter", "--target", str(self.leader()), "--all", "--"]

    def leader(self):
        """The process id of the machine's init."""
        children = Path(f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children").read_text(encoding="ascii").split()
        if not children:
            raise ProcessLookupError(f"{self.name} has no init")
        return int(children[0])

    def power_on(self):
        """Presses the power button; returns at once. `powered` is when, on the clock since boot."""
        logs = scratch() / "logs"
        logs.mkdir(exist_ok=True)
        self.lan.reset(self.name)
        self.powered, self.powered_wall = time.clock_gettime(time.CLOCK_BOOTTIME), time.time()
        self._nspawn = Process(self.name, [
            "systemd-nspawn", "--directory", self.root, "--boot", "--register=no", "--keep-unit", f"--machine={self.name}",
            "--capability=all", "--resolv-conf=off", "--system-call-filter=@keyring bpf", f"--network-namespace-path=/run/netns/{self.name}",
            "--bind=/sys/fs/cgroup", "--bind=/dev/kmsg", f"--bind={self.home}/containerd:/var/lib/containerd",
            f"--bind={self.home}/kubelet:/var/lib/kubelet", "--console=pipe"], logs / f"{self.name}-console.log",
            env=os.environ | {"SYSTEMD_NSPAWN_API_VFS_WRITABLE": "1"})

    def wait_up(self, seconds=60):
        """Waits until the units that were to start have started; gives systemd's word for the state."""
        def up():
            state = self.run("systemctl", "is-system-running", check=False).strip()
            return state if state in ("running", "degraded") else None
        return until(up, seconds, f"{self.name} is up", pause=0.1)

    def wait_ready(self, seconds=60):
        """Waits until its Node is Ready."""
        self.cluster.admin.wait("nodes", lambda seen: is_ready(seen.get(("", self.name))), seconds, f"{self.name} is Ready")

    def run(self, *argv, check=True, seconds=60):
        """Runs a command on the machine; gives its output."""
        done = subprocess.run([*self._enter(), *map(str, argv)], capture_output=True, text=True, check=False, timeout=seconds)
        if check and done.returncode:
            raise AssertionError(f"{self.name}: {' '.join(map(str, argv))}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def power_off(self, seconds=60):
        """Shuts the machine down in order."""
        self.run("systemctl", "poweroff", "--no-block", check=False)
        self._nspawn.wait(seconds)
        self._nspawn = None

    def kill(self):
        """Pulls the plug: everything on it is dead at once, nothing is notified, nothing is flushed."""
        os.kill(self.leader(), signal.SIGKILL)
        self._nspawn.wait(20)
        self._nspawn = None
        until(lambda: cgroups.sweep() or True, 5, "the dead machine's groups are gone")

    def cut(self):
        """Pulls the network cable."""
        self.lan.cut(self.name)

    def mend(self):
        """Plugs the network cable in again."""
        self.lan.mend(self.name)

    def journal(self, *args):
        """Entries of this boot's journal, as dicts; `args` as for journalctl."""
        text = self.run("journalctl", "--boot", "--output=json", "--no-pager", *args)
        return [json.loads(line) for line in text.splitlines()]

    def started(self, pid):
        """When a process of the machine started, in seconds after `powered` (to 10 ms)."""
        fields = self.run("cat", f"/proc/{pid}/stat").rsplit(")", 1)[1].split()
        return int(fields[19]) / os.sysconf("SC_CLK_TCK") - self.powered

    def first_output(self, pod, container):
        """A container's first line of output since power-on: (seconds after `powered`, text), None while there is none."""
        for log in sorted(self.root.glob(f"var/log/pods/*_{pod}*/{container}/*.log")):
            for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
                stamp, _, _, text = line.split(" ", 3)
                after = datetime.fromisoformat(stamp).timestamp() - self.powered_wall
                if after > 0:
                    return after, text
        return None

    def save_logs(self):
        """Keeps the journal with the run's logs."""
        if self._nspawn and self._nspawn.alive:
            text = self.run("journalctl", "--no-pager", "--output=short-precise", check=False)
            (scratch() / "logs" / f"{self.name}-journal.log").write_text(text, encoding="utf-8")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Off, hard: what is left of it ends with the sandbox."""
        if self._nspawn and self._nspawn.alive:
            self.save_logs()
            self.kill()
