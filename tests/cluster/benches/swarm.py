"""A swarm: real agent processes, a thousand and more on one machine, against a real etcd and API server.

Says how long it takes until the last node has what it should, what it costs the API server, and how both
grow with the number of nodes. `DAEMONLET_SWARM` names the numbers, `100,300,1000` by default.
"""

import os
import re
import time
from contextlib import ExitStack

from benches import figures
from kit import agent
from kit import coordinator
from kit.control_plane import ControlPlane
from kit.coordinator import Coordinator
from kit.daemons import daemonset
from kit.swarm import Swarm
from kit.swarm import memory_of
from kit.swarm import processor_of
from kit.swarm import token_file
from kit.wait import until

NAMESPACE = "kube-system"
CREATED_WITHIN = 3.0
COORDINATOR_WITHIN = 15.0
COUNTED = ("GET", "LIST", "WATCH", "POST", "PATCH", "PUT", "APPLY", "DELETE")


def main():
    """One swarm for each number, or, called for one number, that swarm."""
    numbers = [int(number) for number in os.environ.get("DAEMONLET_SWARM", "100,300,1000").split(",")]
    for number in numbers:
        with ExitStack() as stack:
            Story(number, stack).play()


class Metrics:
    """What the API server has counted so far."""

    def __init__(self, cluster):
        text = cluster.admin.request("GET", "/metrics", seconds=30)
        self.verbs, self.lists, self.bytes = {}, {}, 0.0
        for line in text.splitlines():
            if line.startswith("apiserver_request_total{"):
                labels, value = dict(re.findall(r'(\w+)="([^"]*)"', line)), float(line.rsplit(" ", 1)[1])
                verb, of = labels["verb"], "/".join(filter(None, (labels["resource"], labels["subresource"])))
                self.verbs[verb, of] = self.verbs.get((verb, of), 0) + value
                # One that was refused listed nothing.
                if verb == "LIST" and labels["code"] == "200":
                    self.lists[labels["resource"]] = self.lists.get(labels["resource"], 0) + value
            elif line.startswith("apiserver_watch_events_sizes_sum"):
                self.bytes += float(line.rsplit(" ", 1)[1])

    def since(self, before):
        """Requests by verb and resource and bytes of watch events since an earlier look, in words."""
        found = {key: count - before.verbs.get(key, 0) for key, count in self.verbs.items() if key[0] in COUNTED}
        counts = sorted(((count, *key) for key, count in found.items() if count > 0), reverse=True)
        words = ", ".join(f"{count:.0f} {verb} {of}" for count, verb, of in counts)
        return (f"{sum(count for count, *_ in counts):.0f}: {words or 'no requests'}; "
                f"{(self.bytes - before.bytes) / 1e6:.1f} MB to watches")


class Processors:
    """Processor time that everybody has used so far."""

    def __init__(self, story):
        parts = story.cluster.parts
        self.seconds = {"agents": sum(processor_of(node.process.pid) for node in story.swarm.nodes), "API server": processor_of(parts["api"].pid),
                        "etcd": processor_of(parts["etcd"].pid), "coordinator": processor_of(story.one.process.pid), "this story": processor_of(os.getpid())}

    def since(self, before):
        """What was used since an earlier look, in words."""
        return ", ".join(f"{who} {seconds - before.seconds[who]:.2f} s" for who, seconds in self.seconds.items())


class Story:
    """One swarm from its start to the loss of its coordinator."""

    def __init__(self, number, stack):
        self.number = number
        names = [f"swarm-{index:04}" for index in range(number)]
        self.cluster = stack.enter_context(ControlPlane(extra=[f"--token-auth-file={token_file(names)}"]))
        self.admin = self.cluster.admin
        self.admin.create("serviceaccounts", {"metadata": {"name": "default", "namespace": NAMESPACE}})
        self.admin.create("configmaps", {"metadata": {"name": "kube-root-ca.crt", "namespace": NAMESPACE},
                                         "data": {"ca.crt": self.cluster.pki.ca.read_text(encoding="ascii")}})
        agent.grant(self.cluster)
        coordinator.install(self.cluster)
        self.one = stack.enter_context(Coordinator(self.cluster, "one"))
        self.swarm = stack.enter_context(Swarm(self.cluster, names))
        self.pool = self.swarm.pool
        self.stack = stack

    def show(self, what, figure, goal="", met=None):
        figures.show(f"{self.number} nodes: {what}", figure, goal, met)

    def spread(self, what, times, goal=None):
        last = max(times)
        self.show(what, f"median {figures.median(times):.2f} s, p99 {figures.quantile(times, 0.99):.2f} s, last node {last:.2f} s",
                  f"≤ {goal:.0f} s" if goal else "", None if goal is None else last <= goal)

    def metered(self, what, act):
        """Does it and says what it cost the API server."""
        before = Metrics(self.cluster)
        act()
        self.show(f"requests, {what}", Metrics(self.cluster).since(before))

    def create(self, name, **pod):
        """Creates a DaemonSet; gives when."""
        body = daemonset(name, NAMESPACE, labels={"daemonlet.dev/mode": "static"}, hostNetwork=True, terminationGracePeriodSeconds=0,
                         automountServiceAccountToken=False, tolerations=[{"operator": "Exists"}], **pod)
        body["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}}
        began = time.time()
        self.admin.create("daemonsets", body)
        return began

    def status(self, name):
        return self.admin.get("daemonsets", name, NAMESPACE).get("status", {})

    def change(self, name, image):
        patch = {"spec": {"template": {"spec": {"containers": [{"name": self.container(name), "image": image}]}}}}
        self.admin.request("PATCH", f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{name}", patch, "application/strategic-merge-patch+json")

    def container(self, name):
        return self.admin.get("daemonsets", name, NAMESPACE)["spec"]["template"]["spec"]["containers"][0]["name"]

    def wait_rolled_out(self, name, seconds):
        """Waits until the status says that all nodes run the newest revision; gives how many were unavailable at most."""
        most = 0

        def done():
            nonlocal most
            status = self.status(name)
            most = max(most, status.get("numberUnavailable", 0))
            generation = self.admin.get("daemonsets", name, NAMESPACE)["metadata"]["generation"]
            return (status.get("observedGeneration") == generation and status.get("updatedNumberScheduled") == self.number
                    and status.get("numberAvailable") == self.number)
        until(done, seconds, f"{name} is rolled out: {self.status(name)}", pause=0.5)
        return most

    def play(self):
        """The whole story."""
        self.metered("start", self.start)
        self.metered("create", self.created)
        self.metered("labels", self.labels)
        self.metered("rollout", self.rollout)
        self.memory()
        self.restart()
        self.lose_coordinator()

    def start(self):
        began = time.monotonic()
        self.swarm.start()
        reported = lambda: sum(bool(one.get("status", {}).get("agentVersion")) for one in self.admin.list("nodedaemons"))
        until(lambda: reported() == self.number, 600, "every agent has reported", pause=0.5)
        self.show("agents started → all have written their first status", f"{time.monotonic() - began:.1f} s")

    def created(self):
        metrics, processors = Metrics(self.cluster), Processors(self)
        began = self.create("net")
        times = self.swarm.until_all("net", began, 120)
        used = Processors(self).since(processors)
        self.spread("DaemonSet created → manifest", times, CREATED_WITHIN if self.number <= 1000 else None)
        self.show("processors until then", used)
        self.show("requests until then", Metrics(self.cluster).since(metrics))
        self.wait_rolled_out("net", 300)

    def labels(self):
        began = self.create("flip", nodeSelector={"swarm/flip": "yes"})
        chosen = self.swarm.nodes[: max(1, self.number // 10)]
        until(lambda: self.status("flip").get("observedGeneration"), 30, "it is known")
        flip = lambda value: lambda node: (time.time(), self.pool.patch("nodes", node.name, {"metadata": {"labels": {"swarm/flip": value}}}))[0]
        at = self.pool.all(flip("yes"), chosen)
        self.swarm.until_all("flip", began, 60, len(chosen))
        appeared = [max(t for file, t in node.files().items() if "flip" in file) - when for node, when in zip(chosen, at)]
        self.spread(f"label set on {len(chosen)} → manifest", appeared)
        at = self.pool.all(flip(None), chosen)
        gone = {}
        def all_gone():
            for node, when in zip(chosen, at):
                if node.name not in gone and not any("flip" in file for file in node.files()):
                    gone[node.name] = node.manifests.stat().st_mtime - when
            return len(gone) == len(chosen)
        until(all_gone, 60, "it goes where the label went")
        self.spread(f"label taken from {len(chosen)} → no manifest", list(gone.values()))

    def rollout(self):
        began = time.monotonic()
        self.change("net", "example.org/net:2")
        most = self.wait_rolled_out("net", 900)
        budget = -(-self.number // 10)
        self.show("rollout, maxUnavailable 10%", f"{time.monotonic() - began:.1f} s, at most {most} unavailable", f"≤ {budget} unavailable", most <= budget)

    def memory(self):
        both = [node.memory() for node in self.swarm.nodes]
        resident, own = [r for r, _ in both], [o for _, o in both]
        self.show("an agent's memory", f"resident median {figures.median(resident):.1f}, most {max(resident):.1f} MiB; of its own median {figures.median(own):.1f} MiB")
        for name, pid in (("API server", self.cluster.parts["api"].pid), ("etcd", self.cluster.parts["etcd"].pid), ("coordinator", self.one.process.pid)):
            self.show(f"memory of the {name}", f"{memory_of(pid)[0]:.0f} MiB")

    def restart(self):
        self.cluster.stop("api")
        self.cluster.start_api()
        began = self.create("after")
        self.spread("API server restarted, DaemonSet created → manifest", self.swarm.until_all("after", began, 300))
        self.wait_rolled_out("after", 300)
        metrics = Metrics(self.cluster)
        lists = {kind: count / self.number for kind, count in metrics.lists.items() if count >= self.number / 2}
        # An agent has one watch of each kind here; the coordinator and this story list a time or two.
        spare = 0.02 + 3 / self.number
        self.show("lists per agent after the restart", ", ".join(f"{kind} {count:.2f}" for kind, count in sorted(lists.items())) or "none",
                  "≤ 1 a watch", max(lists.values(), default=0) <= 1 + spare)
        self.show("requests, restart", metrics.since(Empty()))

    def lose_coordinator(self):
        two = self.stack.enter_context(Coordinator(self.cluster, "two"))
        self.one.kill()
        began, at = time.monotonic(), time.time()
        self.change("net", "example.org/net:3")
        self.swarm.until_all("net", at, 60, 1)
        took = time.monotonic() - began
        self.show("coordinator killed → another goes on with the rollout", f"{took:.1f} s", f"≤ {COORDINATOR_WITHIN:.0f} s and one replacement", took <= COORDINATOR_WITHIN + 5)
        self.wait_rolled_out("net", 900)
        self.show("… and ends it", f"{time.monotonic() - began:.1f} s; it writes as {two.name}")


class Empty:
    """Counters of a server that has just started."""

    verbs, lists, bytes = {}, {}, 0.0
