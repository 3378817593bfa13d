"""Every transition of a daemon on a node that only pretends to run it, each with its beginning and its end.

Owns what the fault tests share: a node with an agent under the shim, and what is to happen on it. A
test says what goes wrong on the way.
"""

import os
import time

from kit.agent import Agent
from kit.api import Refused
from kit.daemons import daemonset
from kit.shim import Shim
from kit.standin import StandIn
from kit.wait import until

SEED = int(os.environ.get("DAEMONLET_SEED", "7"))
# Whether there is time for more rounds of everything.
LONG = bool(os.environ.get("DAEMONLET_LONG"))
STATIC = {"daemonlet.dev/mode": "static"}
NAME = "daemon"
# What a runtime has never listed before its manifest was removed counts as gone after its grace period and 30 s.
PATIENCE = 45


class World:
    """One namespace, one node, one agent; `with World(cluster, "n1") as world:`."""

    def __init__(self, cluster, name, node=None):
        self.cluster, self.admin, self.namespace = cluster, cluster.admin, name
        self.owner = f"{name}/{NAME}"
        self.node = node or StandIn(cluster, name)
        self.shim = Shim(name, [self.node.manifests, self.node.root, self.node.state])
        self.round = 0
        self.agent = None
        # A program in front of the agent.
        self.prefix = []

    def __enter__(self):
        self.admin.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})
        self.admin.create("serviceaccounts", {"metadata": {"name": "default", "namespace": self.namespace}})
        self.write_config("0")
        self.node.__enter__()
        self.agent = Agent(self.node, policy={"namespaces": [self.namespace]}, state_dir=str(self.node.state))
        self.agent.env, self.agent.prefix = self.shim.env, self.prefix
        self.agent.__enter__()
        return self

    def __exit__(self, *_):
        self.agent.kill()
        self.node.__exit__()

    # What a user does.

    def write_config(self, text):
        """The data of the daemon: two keys of one content."""
        body = {"metadata": {"name": "settings", "namespace": self.namespace}, "data": {"a": text, "b": text}}
        try:
            self.admin.create("configmaps", body)
        except Refused:
            self.admin.patch("configmaps", "settings", body, self.namespace)

    def body(self, surge=False, **metadata):
        """The DaemonSet in this round."""
        template = {"annotations": {"round": str(self.round)} | ({"standin/surge": "yes"} if surge else {})}
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}} if surge else {"type": "RollingUpdate"}
        body = daemonset(NAME, self.namespace, {"volumeMounts": [{"name": "c", "mountPath": "/c"}]}, STATIC, {"updateStrategy": strategy},
                         automountServiceAccountToken=False, terminationGracePeriodSeconds=1,
                         volumes=[{"name": "c", "configMap": {"name": "settings"}}])
        body["spec"]["template"]["metadata"] |= template
        body["metadata"] |= metadata
        return body

    def put(self, **options):
        """Creates the DaemonSet, or changes its template to the next round."""
        self.round += 1
        body = self.body(**options)
        try:
            self.admin.create("daemonsets", body)
        except Refused:
            self.admin.patch("daemonsets", NAME, {"spec": {key: body["spec"][key] for key in ("template", "updateStrategy")}}, self.namespace)

    def remove(self):
        """Deletes the DaemonSet."""
        try:
            self.admin.delete("daemonsets", NAME, self.namespace)
        except Refused:
            pass

    def skip(self, seconds):
        """Lets so much time go by on the agent's clock, and has it look."""
        self.shim.shift(seconds)
        self.agent.process.hang_up()

    # What is to be seen.

    def record(self):
        """The daemon's record on disk."""
        return self.node.record(self.namespace, NAME) or {"instances": [], "ended": {}}

    def runs(self):
        """The one instance, when it is the one of this round and nothing is left to be done about it; else None."""
        pods, record = self.node.pods(self.owner), self.record()
        here = [pod for pod in pods if pod["running"] and not pod["ending"] and pod["round"] == str(self.round)]
        one = len(pods) == len(here) == len(record["instances"]) == 1
        return here[0] if one and record["instances"][0]["uid"] == here[0]["uid"] and record["instances"][0]["phase"]["state"] == "live" else None

    def gone(self):
        """Whether nothing of the daemon is left."""
        return not self.node.pods(self.owner) and not self.record()["instances"] and not list(self.node.manifests.glob("[!.]*"))

    def data(self, uid):
        """What the instance reads."""
        volume = self.node.root / "pods" / uid / "volumes/kubernetes.io~empty-dir/c"
        try:
            return {key: (volume / key).read_text(encoding="utf-8") for key in ("a", "b")}
        except OSError:
            return {}

    def wait(self, check, what):
        """Waits for an end; says what there is instead."""
        try:
            return until(check, PATIENCE, what, pause=0.005)
        except AssertionError as error:
            files = "\n".join(sorted(str(path.relative_to(self.node.disk)) for path in self.node.disk.rglob("*")))
            raise AssertionError(f"{error}\nnode: {self.node.ask()}\nrecord: {self.record()}\n{files}\n"
                                 f"{self.agent.cli('status').stdout}\nthe agent's exit status: {self.agent.process.status}\n{self.agent.process.tail(25)}") from None


class Transition:
    """One thing that happens to a daemon. `steady`: it is not interrupted by it; `final`: nor does it come back."""

    steady = final = False

    def before(self, world):
        """Brings about what it begins with: by default a daemon that runs."""
        if not world.runs():
            world.put()
            world.wait(world.runs, "the daemon runs")

    def trigger(self, world):
        """Makes it happen."""
        raise NotImplementedError

    def done(self, world):
        """Whether its end is reached."""
        return world.runs()

    @classmethod
    def name(cls):
        """Its name, for people."""
        return cls.__name__.lower()


class Install(Transition):
    """A DaemonSet appears."""

    def before(self, world):
        world.remove()
        world.wait(world.gone, "nothing runs")

    def trigger(self, world):
        world.put()


class Update(Transition):
    """A template changes."""

    def trigger(self, world):
        world.put()


class Surge(Transition):
    """A template changes, and the new instance comes beside the old one."""

    steady = True

    def before(self, world):
        if not world.runs() or not self.surges(world):
            world.put(surge=True)
            world.wait(world.runs, "the daemon runs")

    def surges(self, world):
        """Whether what runs allows another beside it."""
        return "standin/surge" in next(iter(world.agent.manifests().values()))

    def trigger(self, world):
        world.put(surge=True)


class Refresh(Transition):
    """The data of a ConfigMap changes."""

    steady = True
    number = 0

    def trigger(self, world):
        self.number += 1
        world.write_config(f"data {self.number}")

    def done(self, world):
        pod = world.runs()
        return pod and world.data(pod["uid"]) == {key: f"data {self.number}" for key in ("a", "b")}


class Checkpoint(Transition):
    """The node's labels change, which the checkpoint has to remember."""

    steady = True
    number = 0

    def trigger(self, world):
        self.number += 1
        world.admin.patch("nodes", world.node.name, {"metadata": {"labels": {"number": str(self.number)}}})
        time.sleep(0.03)
        world.skip(2)

    def done(self, world):
        return f'"number":"{self.number}"' in (world.node.state / "inputs.json").read_text(encoding="utf-8") and world.runs()


class Delete(Transition):
    """The DaemonSet is deleted."""

    final = True

    def trigger(self, world):
        world.remove()

    def done(self, world):
        return world.gone()


class Clear(Transition):
    """What an ended instance left is cleared away."""

    steady = True

    def before(self, world):
        super().before(world)
        if not world.record().get("ended"):
            world.put()
            world.wait(world.runs, "the daemon runs")
        for uid in world.record()["ended"]:
            # Without a kubelet nothing else would.
            (world.node.root / "pods" / uid / "volumes").mkdir(parents=True, exist_ok=True)

    def trigger(self, world):
        world.skip(12)

    def done(self, world):
        pod = world.runs()
        return pod and not world.record().get("ended") and [folder.name for folder in (world.node.root / "pods").iterdir()] == [pod["uid"]]


class Lost(Transition):
    """An operator removes the manifest: a new instance takes over."""

    uid = None

    def trigger(self, world):
        self.uid = world.runs()["uid"]
        for file in world.node.manifests.glob("[!.]*"):
            file.unlink()

    def done(self, world):
        pod = world.runs()
        return pod and pod["uid"] != self.uid


class Damage(Transition):
    """An operator changes the data of a volume: it is repaired."""

    steady = True

    def trigger(self, world):
        volume = world.node.root / "pods" / world.runs()["uid"] / "volumes/kubernetes.io~empty-dir/c"
        (volume / "a").unlink()
        world.skip(40)

    def done(self, world):
        pod = world.runs()
        data = world.data(pod["uid"]) if pod else {}
        return len(data) == 2 and data["a"] == data["b"]


class Edit(Transition):
    """An operator changes a manifest without its marks: it is put back in place."""

    steady = True
    meant = None

    def trigger(self, world):
        (file,) = world.node.manifests.glob("[!.]*")
        self.meant = file.read_bytes()
        new = world.node.manifests / ".edited"
        new.write_bytes(self.meant.replace(b"    daemonlet.dev/incarnation", b"    edited: \"yes\"\n    daemonlet.dev/incarnation"))
        assert new.read_bytes() != self.meant, self.meant
        new.rename(file)

    def done(self, world):
        pod = world.runs()
        return pod and [file.read_bytes() for file in world.node.manifests.glob("[!.]*")] == [self.meant]


class Banish(Transition):
    """The node gets a taint that the daemon does not tolerate."""

    final = True

    def trigger(self, world):
        world.admin.patch("nodes", world.node.name, {"spec": {"taints": [{"key": "away", "effect": "NoExecute"}]}})

    def done(self, world):
        return world.gone()

    def before(self, world):
        world.admin.patch("nodes", world.node.name, {"spec": {"taints": None}})
        if not world.round:
            world.put()
        world.wait(world.runs, "the daemon runs")


# Those that end an instance and start another take longest.
REPLACING = [Update, Surge, Lost, Install]
TRANSITIONS = [*REPLACING, Banish, Delete, Refresh, Checkpoint, Clear, Damage, Edit]
# Those whose end is on the disk.
DURABLE = [Update, Surge, Install, Delete, Refresh, Checkpoint, Clear]


def report(**figures):
    """One line for people, as `12 kills, 0 losses`."""
    print("          " + ", ".join(f"{value} {what}" for what, value in figures.items()).replace(" and, ", " and "), flush=True)
