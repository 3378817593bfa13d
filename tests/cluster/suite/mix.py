"""Random changes over many daemons, each with its weight (no tests of its own)."""

import json
import os
import time
from collections import Counter

from kit.api import Refused
from kit.daemons import daemonset
from kit.wait import until
from suite.bare import STATIC

NAMESPACE = "soak"
DAEMONS = 50
LONG = os.environ.get("DAEMONLET_LONG") == "1"
SETTLE = 150
DATA = 10
TAINT = "soak.test/taint"


class Mix:
    """What the daemons are made of, and the random changes; the API server and the folders are its only memory."""

    def __init__(self, cluster, agents, dice):
        self.cluster, self.admin, self.agents, self.dice = cluster, cluster.admin, agents, dice
        self.made = self.version = 0
        self.counts = Counter()
        self.taints = {agent: [] for agent in agents}
        # Each with its weight.
        self.changes = {
            self.create: 10, self.delete: 10, self.template: 20, self.config: 12, self.secret: 8, self.strategy: 6, self.mode: 5,
            self.label: 4, self.taint: 4, self.write_file: 6, self.remove_file: 4, self.delete_pod: 4, self.remove_manifest: 3,
            self.remove_config: 2, self.restart_agent: 1, self.kill_agent: 1, self.restart_api: 0.7, self.silent_api: 0.5}

    def begin(self):
        """The daemons and the data that they name."""
        for number in range(DATA):
            self.admin.create("configmaps", _config(number, 0))
            self.admin.create("secrets", _secret(number, 0))
        for _ in range(DAEMONS):
            self.create()

    def once_each(self):
        """Every change once."""
        return self.dice.sample(list(self.changes), len(self.changes))

    def any(self):
        """A change by its weight."""
        return self.dice.choices(list(self.changes), list(self.changes.values()))[0]

    def do(self, change):
        """A change, counted; one that the API server refuses (it is gone, it is there already) is none."""
        self.version += 1
        try:
            change()
            self.counts[change.__name__] += 1
        except Refused as refused:
            if refused.code not in (404, 409):
                raise

    def body(self, name, **fields):
        """A DaemonSet with a bit of everything."""
        dice = self.dice
        container = {"env": [{"name": "VERSION", "value": str(self.version)}]}
        pod = {"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": dice.random() < 0.2}
        mounts, volumes = [], []
        if dice.random() < 0.5:
            mounts.append({"name": "config", "mountPath": "/config"})
            volumes.append({"name": "config", "configMap": {"name": f"config-{dice.randrange(DATA)}"}})
        if dice.random() < 0.3:
            mounts.append({"name": "secret", "mountPath": "/secret"})
            volumes.append({"name": "secret", "secret": {"secretName": f"secret-{dice.randrange(DATA)}"}})
        if dice.random() < 0.3:
            number = dice.randrange(DATA)
            container["env"].append({"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": f"secret-{number}", "key": "value"}}})
        if dice.random() < 0.2:
            pod["nodeSelector"] = {"soak": dice.choice("ab")}
        if dice.random() < 0.6:
            pod["tolerations"] = [{"operator": "Exists", **dice.choice([{}, {"key": TAINT}, {"key": TAINT, "effect": "NoSchedule"}])}]
        if dice.random() < 0.1:
            pod["hostNetwork"] = True
        body = daemonset(name, NAMESPACE, container | {"volumeMounts": mounts}, spec={"updateStrategy": self.a_strategy()}, volumes=volumes, **pod, **fields)
        if dice.random() < 0.2:
            body["metadata"]["annotations"] = {"daemonlet.dev/restart-on": "config"}
        return body

    def a_strategy(self):
        """An update strategy."""
        return self.dice.choice([
            {"type": "OnDelete", "rollingUpdate": None}, {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}])

    def names(self):
        """The daemons that the API server has."""
        return sorted(item["metadata"]["name"] for item in self.admin.list("daemonsets", NAMESPACE))

    def a_name(self):
        """One of them."""
        return self.dice.choice(self.names() or ["none"])

    def files(self):
        """The files of the folders."""
        return sorted(path.name for path in self.agents[0].folder.glob("*.json"))

    # The changes.

    def create(self):
        """One more, unless there are many."""
        if len(self.names()) >= DAEMONS * 1.1:
            return self.delete()
        self.made += 1
        body = self.body(f"d-{self.made}")
        body["metadata"]["labels"] = STATIC
        return self.admin.create("daemonsets", body)

    def delete(self):
        """One less, unless there are few."""
        if len(self.names()) <= DAEMONS * 0.9:
            return self.create()
        return self.admin.delete("daemonsets", self.a_name(), NAMESPACE, propagationPolicy=self.dice.choice(["Background", "Foreground"]))

    def template(self):
        """Another template; now and then one that was there before."""
        value = str(self.dice.randrange(3) if self.dice.random() < 0.3 else self.version)
        self.admin.patch("daemonsets", self.a_name(), {"spec": {"template": {"metadata": {"annotations": {"turn": value}}}}}, NAMESPACE)

    def config(self):
        """Other data in a ConfigMap, which is made anew where it is gone."""
        self._data("configmaps", _config)

    def secret(self):
        """Other data in a Secret."""
        self._data("secrets", _secret)

    def _data(self, kind, make):
        body = make(self.dice.randrange(DATA), self.version)
        try:
            self.admin.patch(kind, body["metadata"]["name"], body, NAMESPACE)
        except Refused:
            self.admin.create(kind, body)

    def remove_config(self):
        """A ConfigMap goes."""
        self.admin.delete("configmaps", f"config-{self.dice.randrange(DATA)}", NAMESPACE)

    def strategy(self):
        """Another update strategy."""
        self.admin.patch("daemonsets", self.a_name(), {"spec": {"updateStrategy": self.a_strategy()}}, NAMESPACE)

    def mode(self):
        """The mode label goes, or comes back."""
        name = self.a_name()
        found = self.admin.get("daemonsets", name, NAMESPACE) or {"metadata": {}}
        there = "daemonlet.dev/mode" in found["metadata"].get("labels", {})
        self.admin.patch("daemonsets", name, {"metadata": {"labels": {"daemonlet.dev/mode": None if there else "static"}}}, NAMESPACE)

    def label(self):
        """Another label on a Node."""
        node = self.dice.choice(self.agents).node
        self.admin.patch("nodes", node.name, {"metadata": {"labels": {"soak": self.dice.choice(["a", "b", None])}}})

    def taint(self):
        """A taint comes or goes."""
        agent = self.dice.choice(self.agents)
        self.set_taint(agent, [] if self.taints[agent] else [{"key": TAINT, "effect": self.dice.choice(["NoSchedule", "NoExecute"])}])

    def set_taint(self, agent, taints):
        """The taints of an agent's Node."""
        self.admin.patch("nodes", agent.node.name, {"spec": {"taints": taints}})
        self.taints[agent] = taints

    def is_ready(self, agent):
        """Whether the Node has no other taints than ours: a silent API server looks to its controllers like dead nodes."""
        taints = self.admin.get("nodes", agent.node.name)["spec"].get("taints", [])
        return all(taint["key"] == TAINT for taint in taints)

    def write_file(self):
        """A file, sometimes of a daemon that the API server has too, comes or changes."""
        name = self.dice.choice([f"f-{self.dice.randrange(8)}", self.a_name()])
        if len(self.files()) > 10:
            return self.remove_file()
        return self._write(json.dumps(self.body(name)), f"{name}.json")

    def _write(self, text, name):
        for agent in self.agents:
            staged = agent.home / "staged"
            staged.write_text(text, encoding="utf-8")
            staged.rename(agent.folder / name)

    def remove_file(self):
        """A file goes."""
        name = self.dice.choice(self.files() or ["none"])
        for agent in self.agents:
            (agent.folder / name).unlink(missing_ok=True)

    def delete_pod(self):
        """An operator restarts a daemon."""
        pods = [item for item in self.admin.list("pods", NAMESPACE) if "deletionTimestamp" not in item["metadata"]]
        if pods:
            self.admin.delete("pods", self.dice.choice(pods)["metadata"]["name"], NAMESPACE)

    def remove_manifest(self):
        """An operator removes a manifest."""
        agent = self.dice.choice(self.agents)
        manifests = list(agent.manifests())
        if manifests:
            (agent.node.manifests / self.dice.choice(manifests)).unlink(missing_ok=True)

    def restart_agent(self):
        """The second node's agent is stopped for a while."""
        self.agents[1].stop()
        self._meanwhile()
        self.agents[1].start()

    def kill_agent(self):
        """The second node's agent crashes."""
        self.agents[1].kill()
        self._meanwhile()
        self.agents[1].start()

    def _meanwhile(self):
        for change in self.dice.sample([self.create, self.delete, self.template, self.config, self.write_file, self.remove_file, self.remove_manifest, self.mode], 3):
            self.do(change)

    def restart_api(self):
        """The API server crashes and comes back."""
        self.cluster.stop("api")
        self.remove_manifest()
        self.remove_file()
        time.sleep(self.dice.uniform(0, 3))
        self.cluster.start_api()

    def silent_api(self):
        """The API server is silent for a while."""
        self.cluster.freeze()
        self.remove_manifest()
        time.sleep(self.dice.uniform(0.5, 25 if LONG else 3))
        self.cluster.thaw()

    def end(self):
        """What a fresh agent can know too: nothing depends on what once was."""
        for item in self.admin.list("daemonsets", NAMESPACE):
            # OnDelete keeps what ran, and a label that went speaks louder than a file that a fresh agent would follow.
            body = {"metadata": {"labels": STATIC}, "spec": {"updateStrategy": {"type": "RollingUpdate"}}}
            self.do(lambda item=item, body=body: self.admin.patch("daemonsets", item["metadata"]["name"], body, NAMESPACE))
        for number in range(DATA):
            self._data_is_there(number)
        for agent in self.agents:
            # NoSchedule keeps what runs, and lets nothing begin.
            self.set_taint(agent, [taint | {"effect": "NoExecute"} for taint in self.taints[agent]])
        for agent in self.agents:
            until(lambda agent=agent: self._knows_deletions(agent), SETTLE, "what is being deleted is gone, and is known to be")
        for name in self.files():
            # A file whose daemon was deleted in the API is followed again when it changes, which is after the deletion.
            body = json.loads((self.agents[0].folder / name).read_text(encoding="utf-8"))
            body["metadata"].setdefault("annotations", {})["end"] = str(self.version)
            body["spec"]["updateStrategy"] = {"type": "RollingUpdate"}
            self._write(json.dumps(body), name)

    def _knows_deletions(self, agent):
        """Whether the agent knows of every deletion, and each has ended."""
        output, names = agent.cli("status", "--json").stdout, self.names()
        report = json.loads(output)
        of_api = {daemon["name"] for daemon in report["daemons"] if daemon["source"] == "api"}
        return report["agent"]["api"] == "connected" and "is being deleted" not in output and of_api <= set(names)

    def _data_is_there(self, number):
        for kind, make in (("configmaps", _config), ("secrets", _secret)):
            if not self.admin.get(kind, f"{kind[:6]}-{number}", NAMESPACE):
                try:
                    self.admin.create(kind, make(number, 0))
                except Refused:
                    pass


def _config(number, version):
    return {"metadata": {"name": f"config-{number}", "namespace": NAMESPACE}, "data": {"value": f"{version}", "more": "line\n" * (version % 200)}}


def _secret(number, version):
    return {"metadata": {"name": f"secret-{number}", "namespace": NAMESPACE}, "stringData": {"value": f"secret {version}"}}
