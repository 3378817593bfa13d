"""A path of the host that is granted, on a real kubelet: whoever may write below it makes no link that leads out of it."""

import ctypes
import os
import threading
import unittest
from collections import Counter
from types import SimpleNamespace

from kit.agent import Agent
from kit.daemons import daemonset
from kit.kubelet import Node
from kit.sandbox import scratch
from kit.wait import until
from suite import story
from suite.bare import STATIC
from suite.test_tenant import BOUNDED

TENANT = "tenant"
# Each container reads once and ends; the kubelet starts it again.
READ = ["sh", "-c", "cat /v/word"]
CONTAINERS = 8
EXCHANGE, AT_CWD = 2, -100
LONG = 120

WORLD = SimpleNamespace()


def setUpModule():  # noqa: N802 (unittest's name)
    """One node whose kubelet starts containers again after a second, and a folder of it that a namespace may read."""
    WORLD.cluster = story.cluster("kube-system")
    WORLD.granted, WORLD.outside = scratch() / "granted", scratch() / "outside"
    for folder, word in ((WORLD.granted / "logs", "INSIDE"), (WORLD.outside, "OUTSIDE")):
        folder.mkdir(parents=True)
        (folder / "word").write_text(word + "\n", encoding="utf-8")
    (WORLD.granted / "link").symlink_to(WORLD.outside)
    often = {"crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}}
    WORLD.node = unittest.enterModuleContext(Node(WORLD.cluster, config=often))
    policy = {"namespaces": ["kube-system", TENANT], "trusted-namespaces": ["kube-system"], "grants": {TENANT: {"host-paths": [str(WORLD.granted)]}}}
    WORLD.agent = unittest.enterModuleContext(Agent(WORLD.node, policy=policy))
    WORLD.cluster.admin.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}})
    WORLD.cluster.wait_namespace(TENANT)


class Grants(unittest.TestCase):
    """Readers of a folder that another process writes to."""

    def setUp(self):
        self.read = {}

    def reader(self, name, namespace, path):
        """A DaemonSet whose containers read a file of a path of the host, over and over."""
        body = daemonset(name, namespace, BOUNDED, dict(STATIC), automountServiceAccountToken=False, terminationGracePeriodSeconds=0,
                         volumes=[{"name": "v", "hostPath": {"path": str(path)}}])
        pod = body["spec"]["template"]["spec"]
        (one,) = pod["containers"]
        pod["containers"] = [one | {"name": f"c{number}", "command": READ, "volumeMounts": [{"name": "v", "mountPath": "/v"}]} for number in range(CONTAINERS)]
        WORLD.cluster.admin.create("daemonsets", body)
        self.addCleanup(WORLD.cluster.admin.delete, "daemonsets", name, namespace)

    def words(self, name):
        """What the containers of a daemon have read so far: {word: how often}. The kubelet keeps no log for long."""
        for log in (WORLD.node.home / "pod-logs").glob(f"*_{name}-*/*/*.log"):
            try:
                said = log.read_text(encoding="utf-8").split()
            except FileNotFoundError:
                continue
            if said:
                self.read.setdefault(name, {})[log] = said[-1]
        return dict(Counter(self.read.get(name, {}).values()))

    def swap(self):
        """Exchanges the folder and the link, over and over, until the test ends."""
        one, other = (os.fsencode(WORLD.granted / name) for name in ("logs", "link"))
        ended, libc = threading.Event(), ctypes.CDLL(None, use_errno=True)
        def run():
            pauses = [0.001, 0.005, 0.02, 0.1]
            while not ended.is_set():
                for pause in pauses:
                    if libc.renameat2(AT_CWD, one, AT_CWD, other, EXCHANGE):
                        raise OSError(ctypes.get_errno(), "renameat2")
                    ended.wait(pause)
        swapper = threading.Thread(target=run)
        swapper.start()
        self.addCleanup(swapper.join)
        self.addCleanup(ended.set)

    def test_a_link_that_is_swapped_in_while_containers_restart_leads_nowhere(self):
        self.swap()
        self.reader("trusted", "kube-system", WORLD.granted / "logs")
        self.reader("tenant", TENANT, WORLD.granted / "logs")
        def enough():
            tenant, trusted = self.words("tenant"), self.words("trusted")
            self.assertNotIn("OUTSIDE", tenant, "it was led out of the granted path")
            # The same volume of a namespace that is trusted shows that the attempt works.
            return tenant.get("INSIDE", 0) >= 50 and trusted.get("OUTSIDE", 0) >= 10
        try:
            until(enough, LONG, "both were started often")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.words('tenant')} {self.words('trusted')}\n{WORLD.agent.cli('status').stdout}") from None
        print(f"\n          read by the tenant: {self.words('tenant')}; by one that is trusted: {self.words('trusted')}")

    def test_a_link_that_stands_there_is_not_followed(self):
        (WORLD.granted / "away").symlink_to("../outside")
        self.reader("linked", TENANT, WORLD.granted / "away")
        def is_refused():
            statuses = [pod.get("status", {}) for pod in WORLD.cluster.admin.list("pods", TENANT) if pod["metadata"]["name"].startswith("linked-")]
            why = [one["state"].get("waiting", {}).get("message", "") for status in statuses for one in status.get("containerStatuses", [])]
            return len(why) == CONTAINERS and all("failed to prepare subPath" in one for one in why)
        try:
            until(is_refused, LONG, "the kubelet refuses the path")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{WORLD.agent.cli('status').stdout}") from None
        self.assertEqual(self.words("linked"), {})
