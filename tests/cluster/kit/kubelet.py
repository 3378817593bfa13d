"""A kubelet with containerd beside the test, in the sandbox's own namespaces.

Owns one node: its images, its manifest folder, its container runtime. Looks into containers through
the runtime, never through the API, so that it also sees what the API does not.
"""

import json
import os
import subprocess
import threading
import time
from datetime import datetime

from . import images, tools
from .api import Api
from .process import Process
from .sandbox import scratch
from .wait import until

_CONTAINERD = """
version = 2
root = "{home}/containerd"
state = "{home}/containerd-run"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  # The test may lack the right to lower a score (CAP_SYS_RESOURCE), as in a container.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni_bin}"
    conf_dir = "/etc/cni/net.d"
"""

# A pod network of one node.
BRIDGE = {
    "cniVersion": "0.4.0", "name": "pods",
    "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False,
                 "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}],
}


def containerd_config(home, socket, cni_bin):
    """containerd's configuration for the tests."""
    return _CONTAINERD.format(home=home, socket=socket, pause=images.PAUSE, cni_bin=cni_bin)


def kubelet_config(name, **fields):
    """The kubelet's configuration that holds on every node of the tests; `fields` add and override."""
    return json.dumps({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "staticPodPath": "/etc/kubernetes/manifests",
        "cgroupDriver": "cgroupfs", "failCgroupV1": False, "failSwapOn": False, "enforceNodeAllocatable": [],
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}},
        "authorization": {"mode": "Webhook"},
        "readOnlyPort": 0, "resolvConf": "", "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "50Mi"},
        # A ConfigMap's or Secret's change is to show without waiting for a minute's turn.
        "syncFrequency": "10s",
    } | fields)


# A command in a shell that waits, when it has ended, until its input is closed.
_ENDED = "ended with "
_HELD = f'"$@" </dev/null; printf "\\n{_ENDED}%s\\n" "$?"; read _'


class Cri:
    """What the container runtime says, by way of `ctr` on its socket."""

    def __init__(self, socket, prefix=()):
        self._ctr = [*prefix, "ctr", "--address", str(socket), "--namespace", "k8s.io"]

    def ctr(self, *args, check=True, **options):
        """One call of `ctr`; gives its standard output."""
        return subprocess.run([*self._ctr, *map(str, args)], capture_output=True, text=True, check=check, timeout=60, **options).stdout

    def containers(self):
        """The running containers: {(namespace, pod, container): (id, pid)}; sandboxes are not counted."""
        running = {}
        for line in self.ctr("tasks", "ls").splitlines()[1:]:
            fields = line.split()
            if len(fields) == 3 and fields[2] == "RUNNING":
                running[fields[0]] = int(fields[1])
        found = {}
        for container, pid in running.items():
            labels = self._labels(container)
            if labels.get("io.cri-containerd.kind") == "container":
                found[(labels["io.kubernetes.pod.namespace"], labels["io.kubernetes.pod.name"], labels["io.kubernetes.container.name"])] = (container, pid)
        return found

    def _info(self, container):
        try:
            return json.loads(self.ctr("containers", "info", container))
        except subprocess.CalledProcessError:
            return {"Labels": {}, "CreatedAt": "1970-01-01T00:00:00Z"}  # gone in between

    def _labels(self, container):
        return self._info(container)["Labels"]

    def image(self, container):
        """The image that a container was made from, as its pod names it."""
        return self._info(container).get("Image")

    def created(self, prefix, since):
        """The containers, running or ended, made for pods of that prefix since a wall-clock time: [(seconds after it, name)]."""
        found = []
        for container in self.ctr("containers", "ls", "--quiet").split():
            info = self._info(container)
            labels, after = info["Labels"], datetime.fromisoformat(info["CreatedAt"]).timestamp() - since
            if labels.get("io.cri-containerd.kind") == "container" and labels["io.kubernetes.pod.name"].startswith(prefix) and after > 0:
                found.append((after, labels["io.kubernetes.container.name"]))
        return sorted(found)

    def of(self, prefix, namespace=None):
        """The running containers of pods whose name begins with `prefix`: [(pod, container, id, pid)]."""
        return sorted((pod, container, *ids) for (where, pod, container), ids in self.containers().items()
                      if pod.startswith(prefix) and namespace in (None, where))

    def wait_running(self, prefix, seconds=30, namespace=None):
        """Waits for exactly one running container of pods of that prefix; gives (pod, container, id, pid)."""
        def one():
            found = self.of(prefix, namespace)
            return found[0] if len(found) == 1 else None
        return until(one, seconds, f"one container of {prefix} runs")

    def wait_gone(self, prefix, seconds=45):
        """Waits until no container of pods of that prefix runs."""
        until(lambda: not self.of(prefix), seconds, f"no container of {prefix} runs")

    def execute(self, container, *argv, check=True):
        """Runs a command in a container with a shell; gives its output."""
        self._execs = getattr(self, "_execs", 0) + 1
        command = [*self._ctr, "tasks", "exec", "--exec-id", f"dl{os.getpid()}-{self._execs}", container, "sh", "-c", _HELD, "sh", *argv]
        # When a command ends, `ctr` drops what it has not read yet: this one ends when all of it is here.
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            late = threading.Timer(60, child.kill)
            late.start()
            said = ""
            for line in child.stdout:
                said += line
                if line.startswith(_ENDED):
                    break
            # `ctr` may never end if the container did meanwhile; all that it has to say is here.
            late.cancel()
            late = threading.Timer(5, child.kill)
            late.start()
            child.stdin.close()
            why = child.stderr.read()
        late.cancel()
        output, ended, code = said.rpartition("\n" + _ENDED)
        code = int(code) if ended else child.returncode or 1
        if check and code:
            raise subprocess.CalledProcessError(code, command, output, why)
        return output

    def events(self, log):
        """Follows the runtime's events (a `Process` whose lines are events), to see order and overlap."""
        return Process("events", [*self._ctr, "events"], log)


class Node:
    """`with Node(cluster, "node-1") as node:`; containerd and a kubelet run and the Node is registered."""

    def __init__(self, cluster, name="node-1", pod_images=(), network=True, labels=None, config=None, containerd=None):
        self.cluster, self.name = cluster, name
        self.home = scratch() / name
        self.manifests = self.home / "manifests"
        self.root = self.home / "kubelet"
        self.images = [images.pause(), images.box(), *pod_images]
        self.network, self.labels, self.config = network, labels or {}, config or {}
        self.socket = self.home / "containerd.sock"
        self.cri = Cri(self.socket)
        self.containerd = self.kubelet = None
        # A folder with another containerd than the system's; `make matrix` gives one to every node.
        self.programs = containerd or os.environ.get("DAEMONLET_CONTAINERD")

    def __enter__(self):
        for folder in (self.manifests, self.root):
            folder.mkdir(parents=True)
        if self.network:
            os.makedirs("/etc/cni/net.d", exist_ok=True)
            with open("/etc/cni/net.d/10-pods.conflist", "w", encoding="utf-8") as file:
                json.dump(BRIDGE, file)
        self.start_containerd()
        self.start_kubelet()
        return self

    def __exit__(self, *_):
        """Stops the kubelet and every container. (What escapes this ends with the sandbox.)"""
        if self.kubelet:
            self.kubelet.stop()
        for line in self.cri.ctr("tasks", "ls", check=False).splitlines()[1:]:
            self.cri.ctr("tasks", "rm", "--force", line.split()[0], check=False)
        self.containerd.stop()

    def _log(self, name):
        folder = scratch() / "logs"
        folder.mkdir(exist_ok=True)
        return folder / f"{self.name}-{name}.log"

    def start_containerd(self, load=True):
        """Starts the runtime and, with `load`, imports the images."""
        config = self.home / "containerd.toml"
        config.write_text(containerd_config(self.home, self.socket, "/usr/lib/cni"), encoding="utf-8")
        path = f"{self.programs}:{os.environ['PATH']}" if self.programs else os.environ["PATH"]
        program = f"{self.programs}/containerd" if self.programs else "containerd"
        self.containerd = Process("containerd", [program, "--config", config, "--log-level", "warn"], self._log("containerd"),
                                  env=os.environ | {"PATH": path})
        until(lambda: self.socket.exists() and self.cri.ctr("version"), 20, "containerd answers")
        for image in self.images if load else ():
            self.load(image)

    def load(self, image):
        """Imports an image."""
        archive = image.save(self.home / "image.tar")
        self.cri.ctr("images", "import", archive)
        archive.unlink()

    def start_kubelet(self):
        """Starts the kubelet and waits until the Node is registered (when the API answers)."""
        user = f"system:node:{self.name}"
        cert, key = self.cluster.pki.certificate(user, ["system:nodes"], ["IP:127.0.0.1", f"DNS:{self.name}"])
        config = self.home / "kubelet.yaml"
        config.write_text(kubelet_config(
            self.name, staticPodPath=str(self.manifests), containerRuntimeEndpoint=f"unix://{self.socket}",
            address="127.0.0.1", tlsCertFile=str(cert), tlsPrivateKeyFile=str(key),
            authentication={"anonymous": {"enabled": False}, "webhook": {"enabled": True}, "x509": {"clientCAFile": str(self.cluster.pki.ca)}},
            podLogsDir=str(self.home / "pod-logs"), **self.config), encoding="utf-8")
        labels = ",".join(f"{key}={value}" for key, value in self.labels.items())
        self.kubelet = Process("kubelet", [
            tools.program("kubelet"), f"--config={config}", f"--kubeconfig={self.cluster.kubeconfig(user, ['system:nodes'])}",
            f"--hostname-override={self.name}", f"--root-dir={self.root}", "--node-ip=127.0.0.1", "--v=2",
            *([f"--node-labels={labels}"] if labels else [])], self._log("kubelet"))
        self.config_file = config
        if self.cluster.alive("api"):
            self.cluster.admin.wait("nodes", lambda seen: ("", self.name) in seen, 30, f"{self.name} is registered")

    def wait_ready(self, seconds=40):
        """Waits until the Node is Ready."""
        self.cluster.admin.wait("nodes", lambda seen: is_ready(seen.get(("", self.name))), seconds, f"{self.name} is Ready")

    def api(self):
        """The API as this node's kubelet sees it."""
        return Api(self.cluster.kubeconfig(f"system:node:{self.name}", ["system:nodes"]))


def is_ready(item):
    """Whether a Node or a Pod is Ready."""
    conditions = (item or {}).get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def now():
    """Seconds on the clock that all measurements use."""
    return time.monotonic()
