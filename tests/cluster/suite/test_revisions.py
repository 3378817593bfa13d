"""One real kubelet: a revision that does not become available gives way to the last good one."""

import json
import os
import time
import unittest
from types import SimpleNamespace

from kit import agent
from kit.agent import Agent
from kit.daemons import SLEEP
from kit.daemons import daemonset
from kit.kubelet import Node
from kit.wait import TooLong
from kit.wait import never
from kit.wait import until
from suite import story

NAMESPACE = "kube-system"
MODE = {"daemonlet.dev/mode": "static"}
DEADLINE = 8
AUTO = {"daemonlet.dev/rollback": "auto", "daemonlet.dev/progress-deadline": f"{DEADLINE}s"}
# It reads its data when it starts, as a daemon does.
READS = ["sh", "-c", "cat /data/word > /tmp/word; echo started; trap exit TERM; while :; do sleep 3600 & wait; done"]
CRASHES = ["sh", "-c", "echo no such device >&2; exit 3"]

WORLD = SimpleNamespace()


def setUpModule():  # noqa: N802 (unittest's name)
    """One cluster of one node for all."""
    WORLD.cluster = story.cluster(NAMESPACE)
    WORLD.node = unittest.enterModuleContext(Node(WORLD.cluster))
    WORLD.node.wait_ready()
    WORLD.agent = unittest.enterModuleContext(Agent(WORLD.node, policy={"namespaces": ["*"]}))


class Revisions(unittest.TestCase):
    """What the stories share."""

    def setUp(self):
        self.cluster, self.node, self.agent = WORLD.cluster, WORLD.node, WORLD.agent
        self.admin, self.cri = self.cluster.admin, self.node.cri

    def run_daemon(self, name, annotations=None, spec=None, **pod):
        """As `start`, and waits until its revision is good."""
        first = self.start(name, annotations, spec, **pod)
        self.soon(lambda: self.record(name).get("good"), 75, f"{name} is good")
        return first

    def start(self, name, annotations=None, spec=None, **pod):
        """Applies a daemon that rolls back, with a ConfigMap and a Secret, and waits until it runs."""
        self.node.wait_ready(90)
        self.admin.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE}, "data": {"word": "old"}},
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE}, "stringData": {"key": "old"}})
        body = daemonset(name, NAMESPACE, labels=MODE, spec=spec, container={
            "command": READS, "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": name, "key": "key"}}}]},
            **({"hostNetwork": True, "terminationGracePeriodSeconds": 1, "volumes": [{"name": "data", "configMap": {"name": name}}]} | pod))
        body["metadata"]["annotations"] = AUTO | (annotations or {})
        self.admin.apply(body)
        self.addCleanup(self.remove, name)
        return self.cri.wait_running(f"{name}-", 30)

    def soon(self, check, seconds, what):
        """As `until`; a failure also shows what the agent says."""
        try:
            return until(check, seconds, what, 0.2)
        except TooLong as error:
            raise TooLong(f"{error}\n{self.agent.cli('status').stdout}") from None

    def remove(self, name):
        """Deletes it, and waits until nothing of it runs.

        A kubelet that starts forgets a removal which it sees before its sources are ready; the agent stops that sandbox after a minute.
        """
        self.admin.delete("daemonsets", name, NAMESPACE)
        self.cri.wait_gone(f"{name}-", 100)

    def stop_api(self):
        """Stops the API server; when the story has ended, it is there again, and all who watch it."""
        self.cluster.stop("api")
        self.addCleanup(self.everybody_watches)

    def everybody_watches(self):
        """After an outage the kubelet and the controllers open their watches again within a minute and
        more. Until then no Pod gets a status and the Node is not ready. New ones open them at once."""
        for process in (self.cluster.parts.pop("controllers"), self.node.kubelet):
            process.stop()
        if not self.cluster.alive("api"):
            self.cluster.start_api()
        self.cluster.start_controllers()
        self.node.start_kubelet()

    def record(self, name):
        """What the agent remembers of it on disk."""
        file = self.agent.home / f"state/daemons/{NAMESPACE}_{name}.json"
        return json.loads(file.read_text(encoding="utf-8").split("\n", 1)[1]) if file.exists() else {}

    def status(self, name):
        """Its entry in `status --json`."""
        report = json.loads(self.agent.cli("status", "--json").stdout)
        return next((one for one in report["daemons"] if one["name"] == name), None)

    def change(self, name, container, data="new"):
        """Another template, and other data with it."""
        self.admin.patch("configmaps", name, {"data": {"word": data}}, NAMESPACE)
        self.admin.patch("secrets", name, {"stringData": {"key": data}}, NAMESPACE)
        body = self.admin.get("daemonsets", name, NAMESPACE)
        body["spec"]["template"]["spec"]["containers"][0].update(container)
        self.admin.patch("daemonsets", name, {"spec": {"template": {"spec": {"containers": body["spec"]["template"]["spec"]["containers"]}}}}, NAMESPACE)

    def changed(self, name, revision):
        """Waits until an instance of another revision has been written; gives the revision."""
        return self.soon(lambda: next((i["revision"] for i in self.record(name)["instances"] if i["revision"] != revision), None), 45,
                     f"the new revision of {name} arrives")

    def rolled_back(self, name, revision, seconds=45):
        """Waits until the good revision runs again; gives its container."""
        def back():
            now = self.status(name)
            found = self.cri.of(f"{name}-")
            good = now and now.get("failed") and now["revision"] == revision and len(found) == 1
            return found[0] if good and self.word(found[0]) else None
        return self.soon(back, seconds, f"{name} is rolled back\n{self.agent.cli('status').stdout}")

    def word(self, container):
        """What the container read when it started, and its environment's."""
        word = self.cri.execute(container[2], "cat", "/tmp/word", check=False)
        return word and (word, self.cri.execute(container[2], "sh", "-c", "echo $KEY").strip())

    def not_again(self, name, container, seconds=4):
        """The container stays the very same."""
        never(lambda: [one[2] for one in self.cri.of(f"{name}-")] != [container[2]], seconds, "what failed was tried again")

    def test_with_the_api_a_crash_loop_is_rolled_back_with_its_data_and_reported(self):
        self.run_daemon("looping")
        good = self.status("looping")["revision"]
        self.change("looping", {"command": CRASHES})
        bad = self.changed("looping", good)
        back = self.rolled_back("looping", good)
        self.assertEqual(self.word(back), ("old", "old"))
        failed = self.status("looping")["failed"]
        self.assertEqual((failed["revision"], failed["cause"]), (bad, "crashLoop"))
        self.assertEqual(failed["message"], "container main ends with exit code 3, its last line: no such device")
        self.assertIn(f"revision {bad} failed", self.agent.cli("explain", f"{NAMESPACE}/looping").stdout)
        reasons = lambda: {event["reason"] for event in self.admin.list("events", NAMESPACE) if event.get("regarding", {}).get("name") == "looping"}
        self.soon(lambda: {"ProgressDeadlineExceeded", "RolledBack"} <= reasons(), 15, "events report it")
        self.not_again("looping", back)
        # The template changes: it is followed again, with the data of today.
        self.change("looping", {"command": READS, "env": []}, "newer")
        self.soon(lambda: not self.status("looping").get("failed") and self.status("looping")["state"] == "running" and self.status("looping")["revision"] not in (good, bad), 30,
              "another template is tried")
        self.assertEqual(self.word(self.cri.wait_running("looping-"))[0], "newer")

    def test_without_an_api_it_is_rolled_back_and_not_tried_again_until_an_operator_retries_it(self):
        self.run_daemon("alone")
        good = self.status("alone")["revision"]
        self.change("alone", {"command": CRASHES})
        bad = self.changed("alone", good)
        self.stop_api()
        back = self.rolled_back("alone", good)
        self.assertEqual(self.word(back), ("old", "old"))
        failed = self.status("alone")["failed"]
        self.assertEqual((failed["revision"], failed["cause"]), (bad, "crashLoop"))
        self.assertIn("exit code 3, its last line: no such device", failed["message"])
        self.agent.kill()
        self.agent.start()
        self.not_again("alone", back)
        said = self.agent.cli("retry", f"{NAMESPACE}/alone")
        self.assertEqual((said.returncode, said.stderr), (0, ""))
        self.assertRegex(said.stdout, f"revision {bad} is tried again on {self.node.name}\n  next: (remove manifest|get its images)")
        self.soon(lambda: any(i["revision"] == bad for i in self.record("alone")["instances"]), 20, "it is tried again")
        again = self.rolled_back("alone", good)
        self.assertEqual(self.word(again), ("old", "old"))
        self.cluster.start_api()
        self.not_again("alone", again, 25)
        self.assertEqual(self.agent.cli("retry", f"{NAMESPACE}/nobody").returncode, 1)

    def test_data_that_is_restarted_for_is_rolled_back_under_the_same_template(self):
        picky = ["sh", "-c", "grep -q bad /data/word && { echo bad word; exit 4; }; " + READS[2]]
        self.run_daemon("data", {"daemonlet.dev/restart-on": "config"})
        first = self.status("data")["revision"]
        self.change("data", {"command": picky}, "old")
        self.soon(lambda: (self.record("data").get("good") or {}).get("revision") not in (None, first), 30, "the picky one is good")
        revision = self.record("data")["good"]["revision"]
        self.admin.patch("configmaps", "data", {"data": {"word": "bad"}}, NAMESPACE)
        back = self.rolled_back("data", revision)
        self.assertEqual(self.word(back)[0], "old")
        self.assertIn("bad word", self.status("data")["failed"]["message"])
        self.admin.patch("configmaps", "data", {"data": {"word": "better"}}, NAMESPACE)
        self.soon(lambda: (found := self.cri.of("data-")) and len(found) == 1 and (self.word(found[0]) or [""])[0] == "better", 30, "other data is another try")

    def test_in_a_surge_the_old_instance_stays_and_a_later_one_takes_over_without_an_api(self):
        surge = {"minReadySeconds": 5, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}
        first = self.run_daemon("surge", spec=surge)
        good = self.status("surge")["revision"]
        self.change("surge", {"command": CRASHES})
        self.changed("surge", good)
        self.stop_api()
        self.soon(lambda: (self.status("surge") or {}).get("failed"), 45, "it has failed")
        self.soon(lambda: [one[2] for one in self.cri.of("surge-")] == [first[2]], 20, "the new instance goes")
        self.assertEqual(self.cri.execute(first[2], "cat", "/data/word"), "old")
        self.soon(lambda: len(self.record("surge")["instances"]) == 1, 20, "the one that failed is forgotten")
        self.cluster.start_api()
        # A server that has just started refuses what its rules allow, for a moment.
        self.soon(lambda: json.loads(self.agent.cli("status", "--json").stdout)["agent"]["api"] == "connected", 60, "the agent is connected")
        self.change("surge", {"command": READS, "env": []})
        revision = self.changed("surge", good)
        self.cluster.stop("api")
        started = time.monotonic()
        self.soon(lambda: [one[2] for one in self.cri.of("surge-")] not in ([], [first[2]]) and len(self.cri.of("surge-")) == 1, 60, "the new one takes over")
        self.assertGreater(time.monotonic() - started, 15, "it ran steadily first")
        self.assertEqual(self.status("surge")["revision"], revision)

    def test_a_probe_is_named_and_on_delete_rolls_back_at_once(self):
        self.run_daemon("probed", spec={"updateStrategy": {"type": "OnDelete"}})
        good = self.status("probed")["revision"]
        self.change("probed", {"readinessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 1}})
        self.soon(lambda: self.status("probed")["reason"], 15, "it waits")
        (self.node.manifests / next(iter(self.agent.manifests("probed")))).unlink()
        self.changed("probed", good)
        back = self.rolled_back("probed", good, 60)
        self.assertEqual(self.word(back), ("old", "old"))
        failed = self.status("probed")["failed"]
        self.assertEqual((failed["cause"], failed["message"]), ("probe", "the readiness probe of container main fails"))

    def test_an_image_that_cannot_be_had_is_named_and_a_first_revision_is_left_alone(self):
        body = daemonset("nowhere", NAMESPACE, labels=MODE, container={"image": "registry.invalid/nowhere:1", "command": SLEEP}, hostNetwork=True)
        body["metadata"]["annotations"] = AUTO
        self.admin.apply(body)
        self.addCleanup(self.remove, "nowhere")
        now = self.soon(lambda: (found := self.status("nowhere")) and found.get("failed") and found, 60, "it has failed")
        self.assertEqual(now["failed"]["cause"], "image")
        self.assertIn("nowhere:1", now["failed"]["message"])
        self.assertIn("no revision has been good here", now["reason"])

    def test_a_wrong_hash_label_is_corrected_without_a_restart(self):
        first = self.run_daemon("label")
        file = self.node.manifests / next(iter(self.agent.manifests("label")))
        revision, text = self.status("label")["revision"], file.read_text(encoding="utf-8")
        self.assertIn(f"controller-revision-hash: {revision}", text)
        file.write_text(text.replace(f"controller-revision-hash: {revision}", "controller-revision-hash: wrong"), encoding="utf-8")
        mirror = f"{first[0]}"
        self.admin.patch("pods", mirror, {"metadata": {"labels": {"controller-revision-hash": "wrong"}}}, NAMESPACE)
        self.soon(lambda: file.read_text(encoding="utf-8") == text, 15, "the manifest is corrected")
        self.soon(lambda: self.admin.get("pods", mirror, NAMESPACE)["metadata"]["labels"]["controller-revision-hash"] == revision, 15, "the mirror pod is corrected")
        self.assertEqual([one[2] for one in self.cri.of("label-")], [first[2]])

    def test_volume_data_that_was_changed_or_removed_is_repaired(self):
        spoils = {
            "changed": lambda folder: (folder / "..data/word").write_text("foreign", encoding="utf-8"),
            "unlinked": lambda folder: os.unlink((folder / "..data").resolve() / "word"),
            "without-link": lambda folder: (folder / "word").unlink(),
            "without-version": lambda folder: (folder / "..data").unlink(),
        }
        first = {name: self.start(name) for name in spoils}
        for name, spoil in spoils.items():
            spoil(self.node.root / "pods" / self.status(name)["uid"] / "volumes/kubernetes.io~empty-dir/data")
        for name in spoils:
            with self.subTest(name):
                self.soon(lambda name=name: self.cri.execute(first[name][2], "cat", "/data/word", check=False) == "old", 45, f"data {name} is repaired")
                self.assertEqual([one[2] for one in self.cri.of(f"{name}-")], [first[name][2]])


if __name__ == "__main__":
    unittest.main()
