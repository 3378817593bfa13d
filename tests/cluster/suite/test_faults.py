"""Faults on one real kubelet: the agent killed at random, a kubelet that forgets, files changed by hand, no room."""

import json
import random
import re
import shutil
import threading
import time
import unittest
from types import SimpleNamespace

from kit import agent
from kit.agent import Agent
from kit.api import Refused
from kit.daemons import daemonset
from kit.kubelet import Node
from kit.wait import never
from kit.wait import until
from suite import story

NAMESPACE = "kube-system"
MODE = {"daemonlet.dev/mode": "static"}
# A second between SIGTERM and the end, so that an overlap is there to be seen.
LINGERS = {"command": ["sh", "-c", "trap 'sleep 1; exit' TERM; while :; do sleep 3600 & wait; done"]}

WORLD = SimpleNamespace()


def labelled(name, **fields):
    """A DaemonSet that asks for static mode."""
    return daemonset(name, **({"namespace": NAMESPACE, "labels": MODE, "hostNetwork": True, "terminationGracePeriodSeconds": 3} | fields))


def setUpModule():  # noqa: N802 (unittest's name)
    """One cluster of one node for all."""
    WORLD.cluster = story.cluster(NAMESPACE)
    WORLD.node = unittest.enterModuleContext(Node(WORLD.cluster))
    WORLD.agent = unittest.enterModuleContext(Agent(WORLD.node, policy={"namespaces": ["*"]}))


class Faulty(unittest.TestCase):
    """What the stories share."""

    def setUp(self):
        self.cluster, self.node, self.agent = WORLD.cluster, WORLD.node, WORLD.agent
        self.admin, self.cri = self.cluster.admin, self.node.cri

    def run_daemon(self, manifest, *before):
        """Applies a DaemonSet and waits for its container; deletes it at the end."""
        name = manifest["metadata"]["name"]
        self.admin.apply(*before, manifest)
        self.addCleanup(self.delete_daemon, name)
        return self.cri.wait_running(f"{name}-", 40)

    def delete_daemon(self, name):
        """Deletes a DaemonSet and waits until nothing of it runs."""
        try:
            self.admin.delete("daemonsets", name, NAMESPACE)
        except Refused:
            pass
        self.cri.wait_gone(f"{name}-", 90)

    def uids(self, name):
        """The pod UIDs of a daemon's manifests, by file."""
        return {file: re.search(r"^  uid: (\S+)", text, re.M).group(1) for file, text in self.agent.manifests(name).items()}

    def replace(self, file, text):
        """Puts other content in a file's place at once, as an editor does."""
        new = self.node.manifests / ".new"
        new.write_text(text, encoding="utf-8")
        new.rename(self.node.manifests / file)


class Watcher:
    """Watches a daemon's manifests and containers from the side, and notes what must never be."""

    def __init__(self, story, name, volume):
        self.story, self.name, self.volume = story, name, volume
        self.bad, self.seen, self.over = [], set(), threading.Event()
        self.threads = [threading.Thread(target=look) for look in (self.look_at_files, self.look_at_containers)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()

    def look_at_files(self):
        """No UID twice, no manifest without its data, never two manifests."""
        present = set()
        while not self.over.wait(0.002):
            try:
                now = self.story.uids(self.name)
            except (FileNotFoundError, AttributeError):
                continue
            for file, uid in now.items():
                if uid in present:
                    continue
                if uid in self.seen:
                    self.bad.append(f"UID {uid} is used again")
                self.seen.add(uid)
                data = self.story.node.root / "pods" / uid / "volumes/kubernetes.io~empty-dir" / self.volume
                if not data.exists() and (self.story.node.manifests / file).exists():
                    self.bad.append(f"{file} is there before {data}")
            if len(now) > 1:
                self.bad.append(f"two manifests: {now}")
            present = set(now.values())

    def look_at_containers(self):
        """Never two instances."""
        while not self.over.wait(0.05):
            try:
                pods = {pod for pod, _, _, _ in self.story.cri.of(f"{self.name}-")}
            except Exception:  # noqa: BLE001  (a container that goes while it is looked at)
                continue
            if len(pods) > 1:
                self.bad.append(f"two instances run: {pods}")


class Faults(Faulty):
    """Each fault, and what must hold all the same."""

    def test_an_agent_killed_at_random_never_runs_two_nor_uses_a_uid_again(self):
        chance = random.Random(7)
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "churn", "namespace": NAMESPACE}, "data": {"k": "v"}}
        manifest = labelled("churn", volumes=[{"name": "c", "configMap": {"name": "churn"}}],
                            container=LINGERS | {"volumeMounts": [{"name": "c", "mountPath": "/c"}]})
        self.run_daemon(manifest, config)

        def change(number):
            self.admin.patch("daemonsets", "churn", {"spec": {"template": {"metadata": {"annotations": {"round": str(number)}}}}}, NAMESPACE)

        def recreate(_):
            self.admin.delete("daemonsets", "churn", NAMESPACE)
            time.sleep(chance.random())
            self.admin.apply(manifest)

        def remove_manifest(_):
            for file in self.agent.manifests("churn"):
                (self.node.manifests / file).unlink(missing_ok=True)

        with Watcher(self, "churn", "c/k") as watcher:
            deadline, number = time.monotonic() + 30, 0
            while time.monotonic() < deadline:
                number += 1
                chance.choice([change, change, change, recreate, remove_manifest])(number)
                time.sleep(chance.random() * chance.choice([0.02, 0.3, 2]))
                if chance.random() < 0.7:
                    self.agent.kill()
                    time.sleep(chance.random() * chance.choice([0.01, 0.5]))
                    self.agent.start()
            self.cri.wait_running("churn-", 60)
        self.assertEqual(watcher.bad, [])
        self.assertGreater(len(watcher.seen), 3, "too little happened")

    def test_a_daemon_that_goes_before_the_kubelet_has_reached_the_api_server_ends(self):
        self.agent.folder.joinpath("forgotten.json").write_text(json.dumps(labelled("forgotten")), encoding="utf-8")
        self.addCleanup(self.agent.folder.joinpath("forgotten.json").unlink, missing_ok=True)
        self.cri.wait_running("forgotten-", 40)
        self.node.kubelet.stop()
        self.cluster.stop("api")
        self.node.start_kubelet()
        self.node.kubelet.wait_line(r'SyncLoop ADD.*source="file".*forgotten', 20)
        self.agent.folder.joinpath("forgotten.json").unlink()
        self.node.kubelet.wait_line("skipping delete because sources aren't ready", 20)
        self.cluster.start_api()
        self.cri.wait_gone("forgotten-", 100)

    def test_a_uid_or_owner_changed_by_hand_is_repaired(self):
        daemon = self.run_daemon(labelled("edited"))
        file, text = self.agent.wait_manifest("edited")
        self.replace(file, text.replace("kube-system/edited", "kube-system/ghost"))
        until(lambda: self.agent.manifests("edited") == {file: text}, 5, "the owner is as it was")
        self.assertNotIn("ghost", self.agent.cli("status").stdout)
        self.assertEqual(self.cri.of("edited-"), [daemon])
        uid = self.uids("edited")[file]
        forged = uid[:-4] + ("abcd" if not uid.endswith("abcd") else "dcba")
        self.replace(file, text.replace(uid, forged))
        until(lambda: self.uids("edited") and not {uid, forged} & set(self.uids("edited").values()), 20, "a new instance")
        self.cri.wait_running("edited-")

    def test_a_copy_of_a_manifest_is_reported_and_goes_with_it(self):
        self.run_daemon(labelled("copied"))
        _, text = self.agent.wait_manifest("copied")
        self.replace("zz-copy.yaml", text + "# mine\n")
        until(lambda: "zz-copy.yaml: a copy of the manifest" in self.agent.cli("status").stdout, 5, "the copy is reported")
        self.delete_daemon("copied")
        self.assertFalse((self.node.manifests / "zz-copy.yaml").exists())

    def test_a_state_folder_that_was_removed_is_made_again(self):
        daemon = self.run_daemon(labelled("stately"))
        state, lines = self.agent.home / "state", len(self.agent.process.lines)
        self.agent.process.freeze()
        shutil.rmtree(state)
        self.agent.process.thaw()
        self.admin.patch("daemonsets", "stately", {"spec": {"template": {"metadata": {"annotations": {"round": "two"}}}}}, NAMESPACE)
        second = until(lambda: [one for one in self.cri.of("stately-") if one[0] != daemon[0]], 30, "it is replaced")[0]
        until((state / "inputs.json").exists, 10, "the inputs are saved again")
        self.assertTrue((state / f"daemons/{NAMESPACE}_stately.json").exists())
        self.assertLess(len(self.agent.process.lines) - lines, 100, "the log is flooded")
        self.agent.restart()
        never(lambda: self.cri.of("stately-") != [second], 3, "what was saved again is not what was remembered")

    def test_a_state_folder_that_cannot_be_used_holds_replacements_and_floods_nothing(self):
        daemon = self.run_daemon(labelled("stately"))
        state, lines = self.agent.home / "state", len(self.agent.process.lines)
        aside = state.with_name("aside")
        # In one moment for the agent: between the two it would make the folder again.
        self.agent.process.freeze()
        state.rename(aside)
        state.write_text("in the way", encoding="utf-8")
        self.agent.process.thaw()
        self.admin.patch("daemonsets", "stately", {"spec": {"template": {"metadata": {"annotations": {"round": "two"}}}}}, NAMESPACE)
        until(lambda: "until it can be used, nothing is ended" in self.agent.cli("status").stdout, 10, "status says so")
        never(lambda: self.cri.of("stately-") != [daemon], 3, "it was replaced without a record")
        self.assertLess(len(self.agent.process.lines) - lines, 100, "the log is flooded")
        state.unlink()
        until(lambda: self.cri.of("stately-") and self.cri.of("stately-")[0][0] != daemon[0], 30, "replaced when it can be used again")

    def test_a_runtime_that_hangs_holds_up_only_what_waits_for_it(self):
        self.run_daemon(labelled("frozen", container=LINGERS))
        first = list(self.agent.manifests("frozen"))
        self.node.containerd.freeze()
        self.addCleanup(self.node.containerd.thaw)
        self.admin.patch("daemonsets", "frozen", {"spec": {"template": {"metadata": {"annotations": {"round": "two"}}}}}, NAMESPACE)
        until(lambda: "has not answered" in self.agent.cli("status").stdout, 15, "status says so")
        self.admin.apply(labelled("meanwhile"))
        self.addCleanup(self.delete_daemon, "meanwhile")
        began = time.monotonic()
        until(lambda: self.agent.manifests("meanwhile"), 10, "another daemon's manifest")
        self.assertLess(time.monotonic() - began, 5)
        self.assertEqual(list(self.agent.manifests("frozen")), first, "the old instance stays while the new one's images are not known")
        self.node.containerd.thaw()
        until(lambda: list(self.agent.manifests("frozen")) not in ([], first), 60, "it is replaced")
        self.cri.wait_running("frozen-", 60)
