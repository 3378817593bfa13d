"""One daemon of one real node through all modes and back, by the steps of docs/installation.md, removal.md: what runs, and what is told."""

import re
import subprocess
import threading
import time

from kit.agent import binary
from kit.sandbox import scratch
from kit.wait import never
from kit.wait import until

from .bare import STATIC
from .mirror_world import NAMESPACE
from .mirror_world import SOON
from .mirror_world import World
from .mirror_world import body
from .mirror_world import is_mirror
from .story import Story
from .story import boots
from .story import loses_power

# Both run together no longer than the instance takes to end: its two seconds, and a kubelet's and a runtime's steps.
GRACE = 2
OVERLAP = GRACE + 6
# The controller's pod is bound and its images are there: what a kubelet takes to start it.
GAP = 10
# How `daemonlet status` and `kubectl daemonlet` say that all is well; nothing stands after it.
RUNS = r" running +yes +\S+Z *$"
DONE = r" 1/1 +1/1 +1 running$"


class ContainerWatch:
    """Which containers of a daemon run, from instant to instant."""

    def __init__(self, cri, prefix):
        self.cri, self.prefix, self.seen = cri, prefix, []
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join(60)

    def _run(self):
        while not self.ends.wait(0.1):
            before = time.monotonic()
            ids = tuple(container[2] for container in self.cri.of(self.prefix))
            self.seen.append((before, time.monotonic(), ids))

    def longest(self, count, since):
        """For how long, at least, so many ran without a break since an instant: from a look's end to a later one's begin."""
        longest, began = 0, None
        for before, after, ids in [look for look in self.seen if look[0] >= since]:
            if not count(len(ids)):
                began = None
                continue
            began = began or after
            longest = max(longest, before - began)
        return longest

    def least(self, since):
        """The fewest that ran at once since an instant."""
        return min(len(ids) for before, _, ids in self.seen if before >= since)


class Modes(Story):
    """From static through bootstrap to the DaemonSet controller, and back."""

    @classmethod
    def setUpClass(cls):
        cls.world = cls.enterClassContext(World(0))
        cls.cluster, cls.admin, cls.kubectl = cls.world.cluster, cls.world.admin, cls.world.kubectl
        cls.agent, cls.cri, cls.node = cls.world.agent, cls.world.node.cri, cls.world.node
        cls.plugin = scratch() / "plugin" / "kubectl-daemonlet"
        cls.plugin.parent.mkdir()
        cls.plugin.symlink_to(binary())
        cls.watch = cls.enterClassContext(ContainerWatch(cls.cri, "net-"))

    def setUp(self):
        self.began = time.monotonic()

    def status(self):
        """The daemon's line of `daemonlet status`; empty if it has none."""
        found = re.search(rf"(?m)^{NAMESPACE}/net .*$", self.agent.cli("status").stdout)
        return found.group() if found else ""

    def counters(self):
        """The numbers of `kubectl get ds`: desired, current, ready, updated, available."""
        return [int(word) for word in self.kubectl("get", "ds", "net", "--no-headers").split()[1:6]]

    def plugged(self):
        """The daemon's line of `kubectl daemonlet`; empty if it has none."""
        argv = [self.plugin, "--kubeconfig", self.admin.kubeconfig, "-n", NAMESPACE]
        out = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30).stdout
        found = re.search(r"(?m)^(?:\S+/)?net .*$", out)
        return found.group() if found else ""

    def pods(self):
        """The daemon's pods in the API: (name, whether it is ours)."""
        return [(pod["metadata"]["name"], is_mirror(pod)) for pod in self.world.pods("net")]

    def told(self, what, *, status, plugged, counters=(1, 1, 1, 1, 1)):
        """Waits until the three that a person asks say so."""
        seen = {}
        def all_say_it():
            seen.update(ds=self.counters(), status=self.status(), plugged=self.plugged())
            return seen["ds"] == list(counters) and re.search(status, seen["status"]) and re.search(plugged, seen["plugged"])
        try:
            until(all_say_it, SOON, what, pause=0.5)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{seen}\n{self.pods()}\n{self.agent.process.tail(20)}") from None
        for name, line in seen.items():
            print(f"          {name}: {line}")

    def without_a_gap(self):
        """That one ran at every look since the test began, and that there was one."""
        until(lambda: self.watch.seen[-1][0] >= self.began, 5, "somebody looks")
        self.assertGreaterEqual(self.watch.least(self.began), 1, "the daemon was away")

    def test_1_static(self):
        self.admin.create("configmaps", {"metadata": {"name": "settings", "namespace": NAMESPACE}, "data": {"key": "value"}})
        mount = {"volumeMounts": [{"name": "settings", "mountPath": "/settings"}]}
        self.admin.apply(body("net", STATIC, mount, volumes=[{"name": "settings", "configMap": {"name": "settings"}}]))
        self.told("it runs in mode static", status=RUNS, plugged=DONE)
        self.assertEqual([ours for _, ours in self.pods()], [True])
        self.assertEqual(len(self.cri.of("net-")), 1)
        # What the controller has to see before it is started: the coordinator's revision, and whose the pod is.
        self.world.owned("net", "DaemonSet")
        until(lambda: self.kubectl("get", "controllerrevisions", "-l", "app=net", "-o", "name"), SOON, "the revision is kept")

    def test_2_a_controller_that_is_started_replaces_nothing(self):
        before = self.cri.of("net-")
        self.cluster.stop("controllers")
        self.cluster.start_controllers(daemonset_controller=True)
        self.cluster.start_scheduler()
        never(lambda: self.cri.of("net-") != before or [ours for _, ours in self.pods()] != [True], 5, "the controller replaced ours")
        self.told("it still runs in mode static", status=RUNS, plugged=DONE)
        self.without_a_gap()

    def test_3_bootstrap_hands_over(self):
        self.kubectl("label", "ds/net", "daemonlet.dev/mode=bootstrap", "--overwrite")
        self.told("the controller's pod has taken over", status="standing by", plugged=r" 0/0 +0/0 +1 standing by$")
        until(lambda: [ours for _, ours in self.pods()] == [False], SOON, "the controller's pod alone is in the API")
        until(lambda: len(self.cri.of("net-")) == 1, SOON, "one runs")
        both, none = (self.watch.longest(count, self.began) for count in (lambda count: count > 1, lambda count: count == 0))
        print(f"          both ran together for {both:.1f} s, none for {none:.1f} s")
        self.assertLess(both, OVERLAP)
        self.assertLess(none, GAP)
        self.kubectl("rollout", "status", "ds/net", "--timeout=30s")

    def test_4_without_the_label_it_is_the_controllers_alone(self):
        before = self.cri.of("net-")
        self.kubectl("label", "ds/net", "daemonlet.dev/mode-")
        self.told("nobody here minds it", status=r"^$", plugged=r"^$")
        self.assertEqual(self.cri.of("net-"), before)
        self.without_a_gap()
        self.assertEqual(self.agent.manifests("net"), {})
        (stock,) = self.world.pods("net")
        folders = lambda: sorted(path.name for path in (self.node.root / "pods").iterdir())
        until(lambda: folders() == [stock["metadata"]["uid"]], SOON, "the node has the folder of the controller's pod alone")
        told = self.admin.get("nodedaemons", self.node.name)["status"]
        self.assertEqual((told["daemons"], told["ready"]), ([], "0/0"))
        self.assertNotIn("daemonlet", str(self.admin.get("daemonsets", "net", NAMESPACE)["metadata"].get("labels", {})))

    def test_5_and_stays_so_at_a_cold_boot_without_an_api_server(self):
        self.cluster.stop("api")
        self.addCleanup(self.cluster.start_api)
        loses_power(self.agent, self.node, self.cri)
        boots(self.agent)
        self.agent.start()
        self.node.start_kubelet()
        until(lambda: self.agent.cli("status").returncode == 0 or "API" in self.agent.cli("status").stdout, SOON, "the agent has looked")
        never(lambda: self.agent.manifests("net"), 5, "ours came back without its label")

    def test_6_static_again(self):
        self.node.wait_ready()
        until(lambda: len(self.cri.of("net-")) == 1, SOON, "the controller's pod runs")
        self.began = time.monotonic()
        self.cluster.stop("controllers")
        self.cluster.start_controllers()
        self.kubectl("label", "ds/net", "daemonlet.dev/mode=static")
        both = r" running +yes .*pod (\S+) of a DaemonSet controller is here too"
        until(lambda: re.search(both, self.status()), SOON, "ours is Ready beside it, and a conflict is told")
        (stock,) = [name for name, ours in self.pods() if not ours]
        self.assertEqual(re.search(both, self.status()).group(1), stock)
        degraded = lambda: self.world.conditions("net").get("Degraded", {})
        until(lambda: degraded().get("reason") == "Conflict", SOON, "the condition says it, too")
        self.kubectl("delete", "pod", stock)
        self.told("ours alone", status=RUNS, plugged=DONE)
        self.assertEqual([ours for _, ours in self.pods()], [True])
        until(lambda: len(self.cri.of("net-")) == 1, SOON, "one runs")
        self.without_a_gap()
        until(lambda: degraded().get("status") == "False", SOON, "no condition says otherwise")
