"""Rollouts over thousands of nodes whose agents are one stand-in: what they cost the API server, etcd and the coordinator.

The stand-in writes its NodeDaemons as agents do: it claims an approval, reports the new instance, and reports that this
is ready, each by a patch of the one entry. It makes no pods and renews no Leases: those have rows of their own.
"""

import http.client
import json
import re
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from benches import figures
from benches.swarm import Metrics
from kit.api import path_of
from kit.swarm import Pool
from kit.swarm import memory_of
from kit.swarm import processor_of
from kit.wait import until

ROLLOUTS = 3
QUIET = 30
LEASES = "daemonlet-node-lease"


def now():
    """The time as agents write it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Agents:
    """`with Agents(cluster):`; answers each approval of each node."""

    def __init__(self, cluster):
        self.pool, self.admin = Pool(cluster.admin), cluster.admin
        self.threads = ThreadPoolExecutor(6)
        self.known, self.made, self.lock = {}, {}, threading.Lock()
        self.thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.threads.shutdown(cancel_futures=True)

    def _follow(self):
        version = None
        while True:
            try:
                if version is None:
                    version = self._list()
                for event in self._watch(version):
                    if event["type"] == "ERROR":
                        version = None
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    self._look(event["object"])
            except (OSError, ValueError, http.client.HTTPException):
                continue  # it was cut; the same version goes on

    def _list(self):
        _, found = self.pool.request("GET", path_of("nodedaemons"))
        for one in found["items"]:
            self._look(one)
        return found["metadata"]["resourceVersion"]

    def _watch(self, version):
        server = urlsplit(self.admin.server)
        context: ssl.SSLContext = self.admin._tls
        connection = http.client.HTTPSConnection(server.hostname, server.port, timeout=600, context=context)
        connection.request("GET", f"{path_of('nodedaemons')}?watch=1&resourceVersion={version}")
        for line in connection.getresponse():
            yield json.loads(line)

    def _look(self, node):
        for approval in node.get("spec", {}).get("approvals", []):
            key = (node["metadata"]["name"], approval["name"], approval["revision"])
            with self.lock:
                is_new = self.made.get(key[:2]) != approval["revision"]
                if is_new:
                    self.made[key[:2]] = approval["revision"]
            if is_new:
                self.threads.submit(self._replace, node, approval)

    def _replace(self, node, approval):
        name, revision = node["metadata"]["name"], approval["revision"]
        index = next(i for i, d in enumerate(node["status"]["daemons"]) if d["name"] == approval["name"])
        entry = f"/status/daemons/{index}"
        version = {"op": "test", "path": "/metadata/resourceVersion", "value": node["metadata"]["resourceVersion"]}
        at = now()
        instance = {"pod": f"{approval['name']}-{revision[:5]}-{name}", "revision": revision, "created": at}
        steps = [[version, {"op": "add", "path": f"{entry}/replacing", "value": revision}],
                 [{"op": "replace", "path": f"{entry}/instances", "value": [instance]}],
                 [{"op": "replace", "path": f"{entry}/instances", "value": [instance | {"readySince": at}]}, {"op": "remove", "path": f"{entry}/replacing"}]]
        for patch in steps:
            code, answer = self.pool.request("PATCH", path_of("nodedaemons", name=name, sub="status"), patch, "application/json-patch+json")
            if code >= 300:
                with self.lock:
                    self.made.pop((name, approval["name"]), None)
                if code in (409, 422):
                    _, fresh = self.pool.request("GET", path_of("nodedaemons", name=name))
                    self._look(fresh)
                    return
                raise AssertionError(f"{code}: {answer}")


class Etcd:
    """How large etcd's file is, in bytes."""

    def __init__(self, cluster):
        text = cluster.admin.request("GET", "/metrics", seconds=30)
        sizes = re.findall(r"^apiserver_storage_size_bytes\{[^}]*\} (\S+)$", text, re.M)
        self.bytes = sum(float(size) for size in sizes)


def measure(cluster, leader, nodes, daemons):
    """Idle, three rollouts, and the agents' Leases."""
    what = f"{nodes} stand-ins x {daemons} daemons"
    admin, pid = cluster.admin, leader.process.pid
    idle(cluster, what, pid)
    with Agents(cluster):
        for number in range(1, ROLLOUTS + 1):
            rollout(cluster, f"{what}, rollout {number}", nodes, number)
            resident, own = memory_of(pid)
            figures.show(f"{what}, rollout {number}: the coordinator's memory", f"{resident:.0f} MiB resident, {own:.0f} of its own", "≤ 128 MiB", resident <= 128)
    events = [e for e in admin.list("events", "kube-system") if e.get("regarding", {}).get("kind") == "DaemonSet"]
    figures.show(f"{what}: events on the DaemonSet of {ROLLOUTS} rollouts", f"{len(events)}", f"≤ {20 * ROLLOUTS}", len(events) <= 20 * ROLLOUTS)
    leases(cluster, what, nodes)


def idle(cluster, what, pid):
    """What the coordinator does while nothing happens."""
    # That the stand-ins write no Leases is reported after a minute, and half a minute later in events.
    time.sleep(110)
    before, processor = Metrics(cluster), processor_of(pid)
    time.sleep(QUIET)
    share = 100 * (processor_of(pid) - processor) / QUIET
    figures.show(f"{what}: idle for {QUIET} s: the coordinator's processor", f"{share:.2f} % of a core", "≤ 1 %", share <= 1)
    figures.show(f"{what}: idle for {QUIET} s: requests of all", Metrics(cluster).since(before), "its Lease")


def rollout(cluster, what, nodes, number):
    """One rollout with a budget of a tenth."""
    admin = cluster.admin
    update = {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}}}
    before, size = Metrics(cluster), Etcd(cluster).bytes
    began = time.monotonic()
    container = admin.get("daemonsets", "daemon-0", "kube-system")["spec"]["template"]["spec"]["containers"][0]["name"]
    spec = update | {"template": {"spec": {"containers": [{"name": container, "image": f"example.org/it:{number}"}]}}}
    admin.request("PATCH", path_of("daemonsets", "kube-system", "daemon-0"), {"spec": spec}, "application/strategic-merge-patch+json")

    def done():
        found = admin.get("daemonsets", "daemon-0", "kube-system")
        status = found["status"]
        return (status.get("observedGeneration") == found["metadata"]["generation"] and status.get("updatedNumberScheduled") == nodes
                and status.get("numberAvailable") == nodes)
    until(done, 900, "it is rolled out", pause=5)
    took = time.monotonic() - began
    # Approvals are withdrawn a while after.
    approved = lambda: any(one.get("spec", {}).get("approvals") for one in admin.list("nodedaemons"))
    until(lambda: not approved(), 200, "no approval stands", pause=10)
    after = Metrics(cluster)
    count = sum(after.verbs.get(key, 0) - before.verbs.get(key, 0) for key in after.verbs if key[0] in ("GET", "LIST", "POST", "PATCH", "PUT", "DELETE"))
    sent = (after.bytes - before.bytes) / 1e6
    figures.show(f"{what}: time", f"{took:.0f} s")
    figures.show(f"{what}: requests", after.since(before), "≤ 40,000", count <= 40_000)
    figures.show(f"{what}: bytes to watches", f"{sent:.0f} MB", "≤ 500 MB", sent <= 500)
    grown = (Etcd(cluster).bytes - size) / 1e6
    figures.show(f"{what}: growth of etcd", f"{grown:.0f} MB", "≤ 500 MB", grown <= 500)


def leases(cluster, what, nodes):
    """What the agents' Leases cost, as many a second as the agents renew."""
    pool, admin = Pool(cluster.admin), cluster.admin
    # The namespace is one of the shipped objects.
    admin.request("POST", "/api/v1/namespaces", {"metadata": {"name": LEASES}}) if admin.get("namespaces", LEASES) is None else None
    second = nodes // 20
    body = lambda name: {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": {"holderIdentity": name}}
    names = [f"node-{number:04}" for number in range(second)]
    pool.all(lambda name: pool.request("POST", path_of("leases", LEASES), body(name)), names)
    parts = {who: cluster.parts[who].pid for who in ("api", "etcd")}
    before, began, count = {who: processor_of(pid) for who, pid in parts.items()}, time.monotonic(), 0
    while time.monotonic() - began < QUIET:
        due = began + count / second
        time.sleep(max(0.0, due - time.monotonic()))
        stamp = {"spec": {"renewTime": time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())}}
        pool.all(lambda name: pool.patch("leases", name, stamp, LEASES), names)
        count += second
    took = time.monotonic() - began
    used = ", ".join(f"{who} {100 * (processor_of(pid) - before[who]) / took:.0f} %" for who, pid in parts.items())
    figures.show(f"{what}: the agents' Leases", f"{count / took:.0f} writes a second of {second}: of a core {used}")
