"""What an agent takes from the API, how little it asks for it, and what it reports."""

import hashlib
import json
import re
import time
import unittest
from collections import Counter

from kit.agent import grant
from kit.control_plane import ControlPlane
from kit.sandbox import scratch
from kit.wait import never
from kit.wait import until
from suite.audit import AUDIT
from suite.audit import asked
from suite.audit import connections
from suite.audit import memory
from suite.bare import SOON
from suite.bare import STATIC
from suite.bare import WORLD
from suite.bare import Story


def setUpModule():  # noqa: N802 (unittest's name)
    """One API server that writes down what agents ask; no controller."""
    policy, WORLD.audit = scratch() / "audit.json", scratch() / "audit.log"
    policy.write_text(json.dumps(AUDIT), encoding="utf-8")
    WORLD.cluster = unittest.enterModuleContext(ControlPlane(extra=[f"--audit-policy-file={policy}", f"--audit-log-path={WORLD.audit}"]))
    grant(WORLD.cluster)


class Rollout(Story):
    """When a changed template replaces what runs."""

    def test_a_change_waits_for_the_nodes_turn(self):
        bound = 8.0
        agents = [self.start_agent(self.node(f"-{number}"), update_jitter=f"{int(bound)}s") for number in range(3)]
        self.put(self.daemon("rolling"))
        first = {agent: self.instance(agent, "rolling") for agent in agents}
        self.change("rolling", "two")
        began = time.monotonic()
        revision = re.search(r"revision (\S+) waits: its turn on this node comes in \d+ s", self.says(agents[1], r"revision \S+ waits: its turn.*update-jitter").string).group(1)
        due = {agent: share(agent.node.name, revision, bound) for agent in agents}
        agents[1].restart()  # a restart neither hurries nor delays it
        took = {}
        while len(took) < len(agents) and time.monotonic() - began < bound + SOON:
            for agent in agents:
                if agent not in took and not any(one.uid == first[agent].uid for one in self.instances(agent, "rolling")):
                    took[agent] = time.monotonic() - began
            time.sleep(0.02)
        delays = ", ".join(f"{took.get(agent, -1):.1f} of {due[agent]:.1f} s" for agent in agents)
        print(f"          update-jitter {bound:.0f} s: {delays}")
        for agent in agents:
            self.assertGreater(took[agent], due[agent] - 0.7, delays)
            self.assertLess(took[agent], due[agent] + 4, delays)
            self.assertEqual(self.instance(agent, "rolling", other_than=first[agent]).revision, revision)

    def test_a_change_of_a_file_does_not_wait(self):
        agent = self.start_agent(update_jitter="600s")
        file = agent.folder / "quick.json"
        file.write_text(json.dumps(self.daemon("quick", labels={})), encoding="utf-8")
        first = self.instance(agent, "quick")
        file.write_text(json.dumps(self.daemon("quick", labels={}, hostNetwork=True)), encoding="utf-8")
        self.instance(agent, "quick", other_than=first)

    def test_on_delete_keeps_the_old_revision_with_fresh_data(self):
        agent = self.start_agent()
        self.config("settings", level="one")
        mount = {"volumeMounts": [{"name": "settings", "mountPath": "/settings"}]}
        self.put(self.daemon("patient", mount, spec={"updateStrategy": {"type": "OnDelete"}}, volumes=[{"name": "settings", "configMap": {"name": "settings"}}]))
        first = self.instance(agent, "patient")
        self.change("patient", "two")
        self.says(agent, "patient.*OnDelete")
        self.admin.patch("configmaps", "settings", {"data": {"level": "two"}}, self.namespace)
        until(lambda: agent.node.data(first, "settings", "level") == "two", SOON, "the old revision's data follows")
        agent.restart()
        self.settled(agent)
        self.keeps(agent, first, "patient", 2)
        self.admin.patch("configmaps", "settings", {"data": {"level": "three"}}, self.namespace)
        until(lambda: agent.node.data(first, "settings", "level") == "three", SOON, "it follows after a restart of the agent too")
        late = self.start_agent(self.node("-late"))
        self.assertNotEqual(self.instance(late, "patient").revision, first.revision, "a new node gets the new revision")
        (agent.node.manifests / first.file).unlink()
        self.assertNotEqual(self.instance(agent, "patient", other_than=first).revision, first.revision, "what is deleted comes back new")

    def test_restart_on_config_gives_a_new_instance_when_data_changes_and_only_then(self):
        agent = self.start_agent()
        self.config("settings", level="one")
        pod = {"container": {"volumeMounts": [{"name": "settings", "mountPath": "/settings"}]}, "volumes": [{"name": "settings", "configMap": {"name": "settings"}}]}
        self.put(self.daemon("restarting", annotations={"daemonlet.dev/restart-on": "config"}, **pod))
        self.put(self.daemon("steady", **pod))
        first, steady = self.instance(agent, "restarting"), self.instance(agent, "steady")
        self.admin.patch("configmaps", "settings", {"metadata": {"labels": {"other": "change"}}}, self.namespace)
        agent.restart()
        self.keeps(agent, first, "restarting", 3)
        self.admin.patch("configmaps", "settings", {"data": {"level": "two"}}, self.namespace)
        second = self.instance(agent, "restarting", other_than=first)
        self.assertEqual(second.revision, first.revision)
        self.assertEqual(agent.node.data(second, "settings", "level"), "two")
        until(lambda: agent.node.data(steady, "settings", "level") == "two", SOON, "the other one follows in place")
        self.keeps(agent, second, "restarting", 2)
        self.keeps(agent, steady, "steady", 0.5)

    def test_restart_on_config_counts_what_happened_while_the_agent_was_down(self):
        agent = self.start_agent()
        self.config("settings", level="one")
        self.put(self.daemon("late", {"volumeMounts": [{"name": "settings", "mountPath": "/settings"}]}, annotations={"daemonlet.dev/restart-on": "config"},
                             volumes=[{"name": "settings", "configMap": {"name": "settings"}}]))
        first = self.instance(agent, "late")
        self.settled(agent)
        agent.stop()
        self.admin.patch("configmaps", "settings", {"data": {"level": "two"}}, self.namespace)
        agent.start()
        self.instance(agent, "late", other_than=first)


def share(node, revision, bound):
    """A node's share of `update-jitter`, in seconds."""
    digest = hashlib.sha256(f"{node}\n{revision}".encode()).hexdigest()
    return int(digest[:12], 16) % int(bound * 1000) / 1000


class Data(Story):
    """What daemons name, and what becomes of it."""

    def reader(self, name="reader", **config):
        """An agent with a daemon that reads a ConfigMap, a Secret and a token."""
        agent = self.start_agent(**config)
        self.config("settings", level="one")
        self.admin.create("secrets", {"metadata": {"name": "keys", "namespace": self.namespace}, "stringData": {"key": "first"}})
        names = {"settings": {"configMap": {"name": "settings"}}, "keys": {"secret": {"secretName": "keys"}},
                 "token": {"projected": {"sources": [{"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}]}}}
        self.put(self.daemon(name, {"volumeMounts": [{"name": volume, "mountPath": f"/{volume}"} for volume in names]},
                             volumes=[{"name": volume, **source} for volume, source in names.items()]))
        return agent, self.instance(agent, name)

    def test_what_is_deleted_is_kept_and_what_comes_back_is_followed(self):
        agent, first = self.reader()
        read = lambda volume, name: agent.node.data(first, volume, name)  # noqa: E731
        self.assertEqual((read("settings", "level"), read("keys", "key")), ("one", "first"))
        token = read("token", "token")
        self.admin.delete("configmaps", "settings", self.namespace)
        self.admin.delete("secrets", "keys", self.namespace)
        self.admin.delete("serviceaccounts", "default", self.namespace)
        self.notes(agent, f"ConfigMap {self.namespace}/settings: it was deleted; its last data stays in use")
        agent.restart()
        self.notes(agent, f"Secret {self.namespace}/keys: it was deleted; its last data stays in use")
        self.keeps(agent, first, "reader", 3)
        self.assertEqual((read("settings", "level"), read("keys", "key"), read("token", "token")), ("one", "first", token))
        self.config("settings", level="two")
        self.admin.create("secrets", {"metadata": {"name": "keys", "namespace": self.namespace}, "stringData": {"key": "second"}})
        until(lambda: (read("settings", "level"), read("keys", "key")) == ("two", "second"), SOON, "what came back is followed")
        self.keeps(agent, first, "reader", 1)

    def notes(self, agent, words):
        """Waits until `explain` has a note of those words."""
        until(lambda: f"note: {words}" in agent.cli("explain", f"{self.namespace}/reader").stdout, SOON, f"explain says {words!r}")

    def test_what_is_not_there_is_waited_for(self):
        agent = self.start_agent()
        self.put(self.daemon("waiting", {"volumeMounts": [{"name": "settings", "mountPath": "/settings"}]}, volumes=[{"name": "settings", "configMap": {"name": "settings"}}]))
        self.says(agent, f"waiting.*waits for ConfigMap {self.namespace}/settings")
        never(lambda: self.instances(agent, "waiting"), 1, "it started without its data")
        self.config("settings", level="one")
        self.assertEqual(agent.node.data(self.instance(agent, "waiting"), "settings", "level"), "one")

    def test_only_what_is_named_is_watched_by_few_connections(self):
        agent, idle = self.start_agent(), self.open_watches()
        self.config("nobodys", level="one")
        names = [f"config-{number}" for number in range(100)]
        for name in names:
            self.config(name, level="one")
        for number in range(20):
            own = names[number * 5:number * 5 + 5]
            self.put(self.daemon(f"many-{number}", {"volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in own]},
                                 volumes=[{"name": name, "configMap": {"name": name}} for name in own]))
        for number in range(20):
            self.instance(agent, f"many-{number}", seconds=60)
        self.settled(agent)
        # A moment after it was read. ServiceAccounts are read and not watched.
        objects = ("configmaps", "namespaces")
        read = lambda: {(kind, f"metadata.name={name}") for verb, kind, _, name, _ in asked(agent) if verb == "get" and kind in objects and name != "kube-system"}
        watches = lambda: {(kind, fields) for verb, kind, _, _, fields in asked(agent) if verb == "watch" and kind in objects}
        until(lambda: len(read()) > len(names) and read() == watches(), SOON, "what was read is watched")
        count, requests = connections(agent), asked(agent)
        verbs = Counter(request[0] for request in requests)
        print(f"          20 daemons, 100 ConfigMaps: {count} connections, {dict(verbs)}, {memory(agent):.1f} MiB resident (debug build)")
        self.assertLessEqual(count, 3)
        watched = Counter((resource, namespace, fields) for verb, resource, namespace, _, fields in requests if verb == "watch")
        for resource, namespace, fields in watched:
            if resource not in ("daemonsets",):
                self.assertIsNotNone(fields, f"{resource} in {namespace} are watched without a name")
        self.assertNotIn("serviceaccounts", {resource for resource, _, _ in watched})
        # 46 with 20 daemons that name one ConfigMap and one Secret each.
        self.assertLessEqual(len(watched), len(names) + 6, sorted(watched, key=str))
        of_config = {fields for resource, _, fields in watched if resource == "configmaps"}
        self.assertEqual(of_config, {f"metadata.name={name}" for name in names})
        # A change of one is followed, and asks for nothing.
        # Which cluster it is, is asked again of each new connection; events are asked for where a pod starts late.
        reads = lambda: [r for r in asked(agent) if r[0] in ("get", "list", "watch") and r[:2] not in (("get", "namespaces"), ("list", "events"))]
        before = reads()
        self.admin.patch("configmaps", "config-7", {"data": {"level": "two"}}, self.namespace)
        last = self.instances(agent, "many-1")[0]
        until(lambda: agent.node.data(last, "config-7", "level") == "two", SOON, "a change is followed")
        self.assertEqual(reads()[len(before):], [], "a change asked the API server for something")
        # What is not named any more is not watched any more.
        for number in range(20):
            self.remove(f"many-{number}")
        until(lambda: not agent.manifests(), 60, "all are gone")
        until(lambda: self.open_watches() == idle, SOON, "no ConfigMap is watched")

    def open_watches(self):
        """How many watches of ConfigMaps the API server has open, its own among them."""
        text = self.admin.request("GET", "/metrics")
        found = re.findall(r'^apiserver_longrunning_requests\{[^}]*resource="configmaps"[^}]*\} (\d+)', text, re.M)
        return sum(map(int, found))

    def test_an_agent_makes_nothing_but_tokens_and_events(self):
        writes = {(verb, resource) for line in WORLD.audit.read_text(encoding="utf-8").splitlines()
                  for event in [json.loads(line)]
                  for verb, resource in [(event["verb"], "/".join(filter(None, [event.get("objectRef", {}).get("resource"), event.get("objectRef", {}).get("subresource")])))]
                  if verb not in ("get", "list", "watch")}
        self.assertLessEqual(writes, {("create", "serviceaccounts/token"), ("create", "events"), ("patch", "events"), ("patch", "pods")})


class Values(Story):
    """Values that come from elsewhere."""

    def test_the_api_endpoint_is_the_kubeconfigs_or_as_configured(self):
        own = self.start_agent(self.node("-own"))
        other = self.start_agent(self.node("-other"), api_endpoint="api.example:7443")
        self.put(self.daemon("endpoint", hostNetwork=True))
        text = self.instance(own, "endpoint").text
        self.assertRegex(text, r'KUBERNETES_SERVICE_HOST\n +value: "?127.0.0.1')
        self.assertRegex(text, r'KUBERNETES_SERVICE_PORT\n +value: "?6443')
        text = self.instance(other, "endpoint").text
        self.assertRegex(text, r'KUBERNETES_SERVICE_HOST\n +value: "?api.example')
        self.assertRegex(text, r'KUBERNETES_SERVICE_PORT\n +value: "?7443')

    def test_secrets_in_the_environment_wait_for_the_kubelets_version(self):
        agent = self.start_agent(self.node(version=None))
        self.admin.create("secrets", {"metadata": {"name": "keys", "namespace": self.namespace}, "stringData": {"key": "hidden"}})
        self.put(self.daemon("secretive", {"env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "key"}}}]}))
        self.put(self.daemon("open"))
        self.instance(agent, "open")
        self.says(agent, "secretive.*waits for the kubelet.s version")
        never(lambda: self.instances(agent, "secretive"), 1, "it started though the kubelet's version is not known")
        agent.node.report_version("v1.36.2")
        first = self.instance(agent, "secretive")
        self.assertIn("fileKeyRef", first.text)
        self.assertNotIn("hidden", first.text)
        self.settled(agent)
        self.cluster_gone(agent, first)

    def cluster_gone(self, agent, first):
        """The checkpoint knows the version where the API server does not answer."""
        agent.stop()
        agent.config["kubeconfig"] = str(agent.home / "nowhere.kubeconfig")
        agent.start()
        self.keeps(agent, first, "secretive", 2)
        self.assertIsNotNone(self.status(agent, "secretive"))


class Reported(Story):
    """What is reported to people."""

    def events(self, name):
        """The events on a DaemonSet: {(type, reason): note}."""
        return {(event["type"], event["reason"]): event["note"] for event in self.admin.list("events", self.namespace)
                if event["regarding"]["kind"] == "DaemonSet" and event["regarding"]["name"] == name}

    def node_events(self, agent, name):
        """The events on the agent's Node about a DaemonSet: {(type, reason): note}."""
        return {(event["type"], event["reason"]): event["note"] for event in self.admin.list("events", "default")
                if (event["regarding"]["kind"], event["regarding"]["name"]) == ("Node", agent.node.name)
                and (event["related"]["namespace"], event["related"]["name"]) == (self.namespace, name)}

    def test_events_show_what_begins_and_ends_on_a_node(self):
        agent = self.start_agent()
        self.put(self.daemon("reported"))
        first = self.instance(agent, "reported")
        pod = first.file.removeprefix(f"{self.namespace}_").removesuffix(".yaml")
        events = lambda: self.node_events(agent, "reported")
        until(lambda: pod in events().get(("Normal", "Rendered"), ""), SOON, f"an event says that it was rendered: {events()}")
        described = self.admin.kubectl("describe", "node", agent.node.name)
        self.assertRegex(described, rf"Normal +Rendered .*daemonlet.*DaemonSet {self.namespace}/reported: Rendered static pod {pod}")
        self.admin.patch("daemonsets", "reported", {"metadata": {"labels": {"daemonlet.dev/mode": None}}}, self.namespace)
        self.wait_gone(agent, "reported")
        until(lambda: pod in events().get(("Normal", "Removed"), ""), SOON, f"an event says that it was removed: {events()}")
        self.assertIn("no label daemonlet.dev/mode", events()[("Normal", "Removed")])
        self.assertEqual(self.events("reported"), {}, "its DaemonSet has no event of what went as it should")

    def test_two_nodes_refuse_and_one_event_says_it(self):
        agents = [self.start_agent(), self.start_agent(self.node("-second"))]
        self.put(self.daemon("refused", volumes=[{"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}]))
        for agent in agents:
            self.says(agent, "refused +API.*refused.*persistentVolumeClaim")
        events = lambda: [e["reason"] for e in self.admin.list("events", self.namespace) if e["regarding"]["name"] == "refused"]
        until(events, SOON, "an event says so")
        never(lambda: len(events()) > 1, 5, "the other node says it, too")

    def test_what_is_refused_is_reported_by_field(self):
        agent = self.start_agent()
        self.put(self.daemon("refused", volumes=[{"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}]))
        self.says(agent, "refused +API.*refused.*persistentVolumeClaim")
        until(lambda: ("Warning", "Refused") in self.events("refused"), SOON, "an event says so")
        self.assertIn("persistentVolumeClaim", self.events("refused")[("Warning", "Refused")])
        self.assertEqual(agent.cli("status").returncode, 1)
        explained = agent.cli("explain", f"{self.namespace}/refused")
        self.assertEqual(explained.returncode, 1)
        self.assertIn("persistentVolumeClaim", explained.stdout)

    def test_what_is_not_understood_is_reported_to_its_author(self):
        agent = self.start_agent()
        self.put(self.daemon("misspelt", annotations={"daemonlet.dev/progres-deadline": "1m", "daemonlet.dev/partition": "half"}))
        self.instance(agent, "misspelt")
        until(lambda: ("Warning", "NotUnderstood") in self.events("misspelt"), SOON, "an event says so")
        note = self.events("misspelt")[("Warning", "NotUnderstood")]
        self.assertIn("did you mean daemonlet.dev/progress-deadline?", note)
        self.assertIn('"half" is not a number of nodes or a percentage', note)
        self.assertIn("did you mean daemonlet.dev/progress-deadline?", agent.cli("status").stdout)
        self.assertEqual(agent.cli("explain", f"{self.namespace}/misspelt").stdout.count("unknown annotation"), 1)

    def test_status_plan_and_explain_with_and_without_the_agent(self):
        agent = self.start_agent(update_jitter="600s")
        self.put(self.daemon("asked", labels=STATIC, nodeSelector={"kubernetes.io/os": "linux"}))
        never(lambda: self.instances(agent, "asked"), 1, "it runs where it does not belong")
        explained = until(lambda: (found := agent.cli("explain", f"{self.namespace}/asked")).returncode == 0 and found, SOON, "it is explained")
        self.assertRegex(explained.stdout, r"no +node selector.*kubernetes.io/os")
        agent.node.label(**{"kubernetes.io/os": "linux"})
        first = self.instance(agent, "asked")
        self.settled(agent)
        self.assertRegex(agent.cli("plan").stdout, r"^nothing to do\n(left alone|$)")
        report = self.report(agent)
        self.assertEqual((report["agent"]["running"], report["agent"]["api"], report["node"]), (True, "connected", agent.node.name))
        unknown = agent.cli("explain", "kube-system/nobody")
        self.assertEqual(unknown.returncode, 1)
        self.assertIn("no such DaemonSet has been seen", unknown.stdout)
        agent.stop()
        for command in (["status"], ["plan"], ["explain", f"{self.namespace}/asked"]):
            answer = agent.cli(*command)
            self.assertIn("agent not running", answer.stderr)
            if command != ["plan"]:
                self.assertIn("asked", answer.stdout)
        answer = agent.cli("plan")
        self.assertEqual((answer.returncode, answer.stdout), (0, "nothing to do\n"))
        (agent.node.manifests / first.file).unlink()
        answer = agent.cli("plan")
        self.assertEqual(answer.returncode, 4, answer.stdout)
        self.assertIn(f"{self.namespace}/asked: ", answer.stdout)
        never(lambda: self.instances(agent, "asked"), 1, "looking changed something")
        self.assertFalse(self.report(agent)["agent"]["running"])

    def test_run_once_makes_one_pass_with_the_api(self):
        self.config("settings", level="one")
        self.put(self.daemon("once", {"volumeMounts": [{"name": "settings", "mountPath": "/settings"}]}, volumes=[{"name": "settings", "configMap": {"name": "settings"}}]))
        agent = self.start_agent()
        agent.stop()
        for file in agent.node.manifests.glob("*.yaml"):
            file.unlink()
        fresh = self.start_agent(self.node("-once"))
        fresh.stop()
        began = time.monotonic()
        done = fresh.cli("run", "--once")
        took = time.monotonic() - began
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(fresh.node.data(self.instance(fresh, "once", seconds=0), "settings", "level"), "one")
        self.assertLess(took, 8, "a pass with nothing to wait for took until its bound")
        self.put(self.daemon("late"))
        self.cluster.freeze()
        try:
            began = time.monotonic()
            done = fresh.cli("run", "--once")
            took = time.monotonic() - began
        finally:
            self.cluster.thaw()
        self.assertLess(took, 15, "the bound of `run --once` does not hold")
        self.assertEqual(len(self.instances(fresh, "once")), 1)


if __name__ == "__main__":
    unittest.main()
