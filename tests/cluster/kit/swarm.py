"""Many nodes at once: a real agent process each, and one stand-in for all their kubelets.

Owns what a thousand nodes on one machine need: users by token, so that no thousand certificates are
made; connections that are kept; a program that makes, readies and removes mirror pods as manifests come
and go. No container runs.
"""

import base64
import ctypes
import http.client
import json
import os
import queue
import re
import resource
import select
import struct
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from .agent import GROUP
from .agent import binary
from .agent import toml
from .agent import user
from .api import path_of
from .sandbox import scratch

VERSION = "v1.36.2"
CONNECTIONS = 6
# A kubelet's own time from a file to its mirror pod.
LAG = 0.25
_CLOSE_WRITE, _GONE_FROM, _MOVED_TO, _CREATE, _DELETE, _OVERFLOW = 0x8, 0x40, 0x80, 0x100, 0x200, 0x4000
_INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")


class Pool:
    """Requests of the administrator over a few connections that are kept."""

    def __init__(self, api):
        self._api = api
        self._free = queue.SimpleQueue()
        for _ in range(CONNECTIONS):
            self._free.put(None)
        self._threads = ThreadPoolExecutor(CONNECTIONS)

    def request(self, method, path, body=None, content="application/json"):
        """One request; gives (status, decoded answer). A connection that was cut is made anew once."""
        connection = self._free.get()
        try:
            for attempt in (1, 2):
                try:
                    if connection is None:
                        server = urlsplit(self._api.server)
                        connection = http.client.HTTPSConnection(server.hostname, server.port, timeout=60, context=self._api._tls)
                    connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": content})
                    answer = connection.getresponse()
                    return answer.status, json.loads(answer.read())
                except (OSError, http.client.HTTPException):
                    connection = None
                    if attempt == 2:
                        raise
        finally:
            self._free.put(connection)

    def all(self, act, items):
        """Calls `act` for each item, a few at a time; gives the results."""
        return list(self._threads.map(act, items))

    def patch(self, kind, name, body, namespace=None, sub=None):
        """Merges `body` into an object."""
        return self.request("PATCH", path_of(kind, namespace, name, sub), body, "application/merge-patch+json")


class SwarmNode:
    """One node: its folders, its agent's configuration and, once started, its agent's process."""

    def __init__(self, name, server, ca, config):
        self.name = name
        self.home = scratch() / "swarm" / name
        self.manifests = self.home / "manifests"
        for folder in (self.manifests, self.home / "kubelet", self.home / "daemonsets.d"):
            folder.mkdir(parents=True)
        kubeconfig = self.home / "kubeconfig"
        kubeconfig.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority-data": ca}}],
            "users": [{"name": "c", "user": {"token": f"token-{name}"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]}), encoding="utf-8")
        kubeconfig.chmod(0o600)
        self.config_file = self.home / "daemonlet.toml"
        self.config_file.write_text(toml({
            "node-name": name, "kubeconfig": str(kubeconfig), "manifest-dir": str(self.manifests),
            "kubelet-root": str(self.home / "kubelet"), "state-dir": str(self.home / "state"), "run-dir": str(self.home / "run"),
            "runtime-endpoint": "", "kubelet-endpoint": "", "folders": [str(self.home / "daemonsets.d")]} | config), encoding="utf-8")
        self.process, self._files = None, {}

    def start(self, env):
        """Starts its agent."""
        with open(self.home / "log", "ab") as log:
            self.process = subprocess.Popen([binary(), "run", "--config", self.config_file], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=subprocess.STDOUT, env=os.environ | env)

    def body(self, labels):
        """Its Node object."""
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name, "labels": labels | {"kubernetes.io/hostname": self.name}}}

    def note(self, file):
        """Something happened to a name in its manifest folder."""
        if file.startswith("."):
            return
        try:
            self._files[file] = (self.manifests / file).stat().st_ctime
        except FileNotFoundError:
            self._files.pop(file, None)

    def look(self):
        """Anything may have happened in its manifest folder."""
        for file in set(self._files) | set(os.listdir(self.manifests)):
            self.note(file)

    def files(self):
        """Its manifests: {file name: seconds since the epoch when it took its name}, as inotify reported."""
        return dict(self._files)

    def memory(self):
        """Its agent's memory: (resident, of its own) in MiB."""
        return memory_of(self.process.pid)


def memory_of(pid):
    """A process's memory: (resident, of its own) in MiB."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return tuple(int(re.search(rf"{key}:\s+(\d+)", text).group(1)) / 1024 for key in ("VmRSS", "RssAnon"))


def processor_of(pid):
    """Seconds of processor that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def token_file(names):
    """The file of tokens that the API server is started with: one user a node."""
    file = scratch() / "tokens.csv"
    file.write_text("".join(f'token-{name},{user(name)},{name},"{GROUP}"\n' for name in names), encoding="ascii")
    file.chmod(0o600)
    return file


class Swarm:
    """`with Swarm(cluster, names, **config) as swarm:`; Node objects and folders, then `start()`."""

    def __init__(self, cluster, names, labels=None, **config):
        self.cluster, self.pool = cluster, Pool(cluster.admin)
        ca = base64.b64encode(cluster.pki.ca.read_bytes()).decode()
        self.nodes = [SwarmNode(name, cluster.url, ca, {k.replace("_", "-"): v for k, v in config.items()}) for name in names]
        self.labels = labels or {}
        self.kubelets = Kubelets(self)
        self._undo = None

    def __enter__(self):
        with ExitStack() as undo:
            # Each agent watches two folders; the count is kept for the whole machine.
            instances = _INOTIFY.read_text(encoding="ascii")
            undo.callback(_INOTIFY.write_text, instances, encoding="ascii")
            _INOTIFY.write_text(str(max(int(instances), 8 * len(self.nodes) + 1024)), encoding="ascii")
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            undo.callback(self._kill)
            self.pool.all(self._register, self.nodes)
            self.kubelets.start()
            undo.callback(self.kubelets.stop)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_):
        self._undo.close()

    def _kill(self):
        running = [node.process for node in self.nodes if node.process]
        for process in running:
            process.kill()
        for process in running:
            process.wait()

    def _register(self, node):
        self.pool.request("POST", path_of("nodes"), node.body(self.labels))
        ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}]
        self.pool.patch("nodes", node.name, {"spec": {"taints": None}})
        self.pool.patch("nodes", node.name, {"status": {"nodeInfo": {"kubeletVersion": VERSION}, "conditions": ready}}, sub="status")

    def start(self, env=None):
        """Starts all agents."""
        for node in self.nodes:
            node.start(env or {"DAEMONLET_LOG": "warn"})

    def since(self, name, began):
        """Seconds from `began` (since the epoch) to each node's manifest of the daemon, for the nodes that have one from then."""
        times = []
        for node in self.nodes:
            times += [at - began for file, at in node.files().items() if name in file and at >= began]
        return times

    def until_all(self, name, began, seconds, count=None):
        """Waits until as many nodes have a manifest of the daemon that is newer than `began`; gives the times."""
        count = count or len(self.nodes)
        deadline = time.monotonic() + seconds
        while len(times := self.since(name, began)) < count:
            if time.monotonic() > deadline:
                raise AssertionError(f"{len(times)} of {count} nodes have {name} after {seconds} s")
            time.sleep(0.1)
        return times


class Kubelets:
    """All the kubelets, in two threads and a pool: a mirror pod for each manifest, ready at once, gone with it.

    inotify notifies them, as it does kubelets: looking at a thousand folders takes a processor of its own.
    """

    def __init__(self, swarm):
        self.swarm = swarm
        self._known = {node.name: {} for node in swarm.nodes}
        self._stop = threading.Event()
        self._changed, self._lock = set(), threading.Lock()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._inotify = -1
        self._threads = [threading.Thread(target=act, daemon=True) for act in (self._follow, self._run)]

    def start(self):
        """Begins to look."""
        self._inotify = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        mask, self._watched = _CLOSE_WRITE | _GONE_FROM | _MOVED_TO | _CREATE | _DELETE, {}
        for node in self.swarm.nodes:
            watch = self._libc.inotify_add_watch(self._inotify, os.fsencode(node.manifests), mask)
            if watch < 0:
                raise OSError(ctypes.get_errno(), f"cannot watch {node.manifests}")
            self._watched[watch] = node
        for thread in self._threads:
            thread.start()

    def stop(self):
        """Stops looking; the mirror pods stay."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        os.close(self._inotify)

    def _follow(self):
        while not self._stop.is_set():
            if not select.select([self._inotify], [], [], LAG)[0]:
                continue
            data = os.read(self._inotify, 1 << 20)
            while data:
                watch, mask, _, length = struct.unpack_from("iIII", data)
                if mask & _OVERFLOW:
                    # What was lost may be anything: each folder is looked at.
                    for node in self.swarm.nodes:
                        node.look()
                    with self._lock:
                        self._changed.update(self.swarm.nodes)
                elif length:
                    node = self._watched[watch]
                    node.note(data[16:16 + length].rstrip(b"\0").decode())
                    with self._lock:
                        self._changed.add(node)
                data = data[16 + length:]

    def _run(self):
        while not self._stop.wait(LAG):
            with self._lock:
                changed, self._changed = self._changed, set()
            steps = []
            for node in changed:
                files, known = node.files(), self._known[node.name]
                steps += [(self._remove, node, file) for file in known.keys() - files.keys()]
                steps += [(self._add, node, file) for file in files if file not in known]
            for (act, node, file), done in zip(steps, self.swarm.pool.all(_act, steps)):
                if done is None:
                    with self._lock:
                        self._changed.add(node)  # to be tried again
                elif act == self._add:
                    self._known[node.name][file] = done
                else:
                    del self._known[node.name][file]

    def _add(self, node, file):
        text = (node.manifests / file).read_text(encoding="utf-8")
        pod = mirror_pod(text, node.name)
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        code, _ = self.swarm.pool.request("POST", path_of("pods", namespace), pod)
        if code not in (201, 409):
            return None
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        conditions = [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")]
        states = [{"name": c["name"], "image": c["image"], "imageID": "", "ready": True, "started": True, "restartCount": 0,
                   "containerID": "fake://" + name, "state": {"running": {"startedAt": now}}} for c in pod["spec"]["containers"]]
        status = {"phase": "Running", "conditions": conditions, "containerStatuses": states, "startTime": now}
        self.swarm.pool.patch("pods", name, {"status": status}, namespace, "status")
        return namespace, name

    def _remove(self, node, file):
        namespace, name = self._known[node.name][file]
        code, _ = self.swarm.pool.request("DELETE", path_of("pods", namespace, name), {"gracePeriodSeconds": 0})
        return True if code in (200, 404) else None


def _act(step):
    act, node, file = step
    try:
        return act(node, file)
    except (OSError, ValueError, http.client.HTTPException):
        return None  # the API server is away, or the file went: the next look finds what is to be done


def mirror_pod(text, node):
    """The mirror pod of a manifest of ours, as the kubelet makes it, with as much as agents and users look at."""
    metadata = text.split("\nspec:", 1)[0]
    one = lambda key: re.search(rf"^  {key}: (\S+)$", metadata, re.M).group(1).strip("\"'")
    labels, annotations = (_pairs(metadata, key) for key in ("labels", "annotations"))
    image = re.search(r"^ +(?:- )?image: (\S+)$", text, re.M).group(1).strip("\"'")
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {
        "name": f"{one('name')}-{node}", "namespace": one("namespace"), "labels": labels,
        "annotations": annotations | {"kubernetes.io/config.mirror": one("uid"), "kubernetes.io/config.hash": one("uid"), "kubernetes.io/config.source": "file"}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": image}], "terminationGracePeriodSeconds": 0,
                 "enableServiceLinks": False, "automountServiceAccountToken": False, "tolerations": [{"operator": "Exists"}]}}


def _pairs(metadata, key):
    """The labels or annotations of a manifest; what takes more than a line is left out."""
    block = re.search(rf"^  {key}:\n((?:    .*\n?)+)", metadata, re.M)
    lines = block.group(1).splitlines() if block else []
    return {name: value.strip("\"'") for name, _, value in (line.strip().partition(": ") for line in lines) if value}
