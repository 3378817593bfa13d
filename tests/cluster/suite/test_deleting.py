"""Deleting: each way of deleting a DaemonSet, its namespace or its Node, and nodes that it no longer fits.

One real kubelet with its runtime, two hollow ones, the garbage collector and the namespace controller; kubectl
is the client.
"""

import json

from kit.wait import never
from kit.wait import until

from .bare import STATIC
from .mirror_world import NAMESPACE
from .mirror_world import SOON
from .mirror_world import World
from .mirror_world import body
from .mirror_world import owner
from .story import Story

# Says when it gets SIGTERM, and takes its time.
SLOW = ["sh", "-c", 'trap "sleep 3; exit 0" TERM; sleep 100000 & wait; wait']


class Deleting(Story):
    """One cluster, one DaemonSet after the other."""

    @classmethod
    def setUpClass(cls):
        cls.world = cls.enterClassContext(World(2))
        cls.admin, cls.kubectl, cls.cri = cls.world.admin, cls.world.kubectl, cls.world.node.cri

    def run_daemon(self, name, labels=STATIC, **fields):
        """Applies a DaemonSet and waits until all its pods are its own and run; gives the real node's container."""
        self.admin.apply(body(name, labels, **fields))
        self.world.owned(name, "DaemonSet")
        return self.cri.wait_running(f"{name}-")

    def gone(self, name):
        """Waits until nothing of a daemon is left on any node."""
        left = lambda: ([file for one in self.world.agents for file in one.manifests(f"_{name}-")], self.cri.of(f"{name}-"),
                        [pod["metadata"]["name"] for pod in self.admin.list("pods", labels=f"app={name}")])
        try:
            until(lambda: not any(left()), SOON, f"nothing of {name} is left")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{left()}\n{self.world.agent.process.tail(25)}") from None

    def status(self, name):
        """What the real node's agent says of a daemon."""
        status = json.loads(self.world.agent.cli("status", "--json").stdout)
        return next((d for d in status["daemons"] if d["name"] == name), {})

    def test_01_background_and_foreground(self):
        for how in ("background", "foreground"):
            with self.subTest(how):
                self.run_daemon(how)
                self.kubectl("delete", f"ds/{how}", f"--cascade={how}", "--timeout=50s")
                self.gone(how)

    def test_01b_what_goes_with_it_is_no_order_to_the_one_that_has_its_name(self):
        orders = lambda: [line for one in self.world.agents for _, line in one.process.lines
                          if "mirror pod of again-" in line and "a new instance takes its place" in line]
        for round in range(3):
            self.run_daemon("again")
            self.admin.delete("daemonsets", "again", NAMESPACE, propagationPolicy="Background")
            self.admin.create("daemonsets", body("again", STATIC))
            never(orders, 8, f"the garbage collector's deletion restarts the new one, in round {round}", pause=0.5)
        self.kubectl("delete", "ds/again", "--timeout=50s")
        self.gone("again")

    def test_02_orphans_run_on_and_are_reported(self):
        first = self.run_daemon("child", container={"command": SLOW})
        self.kubectl("delete", "ds/child", "--cascade=orphan", "--timeout=20s")
        until(lambda: self.status("child").get("state") == "orphaned", SOON, "status says that it is orphaned")
        until(lambda: {owner(pod) for pod in self.world.pods("child")} == {""}, SOON, "the mirror pods have no owner")
        never(lambda: self.cri.of("child-") != [first], 4, "it was restarted")
        self.assertIn("orphaned", self.world.agent.cli("status").stdout)

    def test_03_one_of_the_same_name_adopts_them(self):
        first = self.cri.wait_running("child-")
        self.admin.apply(body("child", STATIC, {"command": SLOW}))
        self.world.owned("child", "DaemonSet")
        until(lambda: self.status("child").get("state") == "running", SOON, "it is its own again")
        never(lambda: self.cri.of("child-") != [first], 3, "it was restarted")

    def test_04_orphaned_while_the_agent_was_down(self):
        first = self.cri.wait_running("child-")
        self.world.agent.stop()
        self.kubectl("delete", "ds/child", "--cascade=orphan", "--timeout=20s")
        until(lambda: {owner(pod) for pod in self.world.pods("child")} == {""}, SOON, "the mirror pods have no owner")
        self.world.agent.start()
        until(lambda: self.status("child").get("state") == "orphaned", SOON, "status says that it is orphaned")
        never(lambda: self.cri.of("child-") != [first], 4, "it was restarted")

    def test_05_one_of_another_name_with_a_matching_selector_adopts_them(self):
        first = self.cri.wait_running("child-")
        heir = body("heir", STATIC, {"command": SLOW})
        heir["spec"]["selector"]["matchLabels"] = {"app": "child"}
        heir["spec"]["template"]["metadata"]["labels"] = {"app": "child"}
        self.admin.apply(heir)
        pods = self.world.owned("child", "DaemonSet")
        self.assertEqual({ref["name"] for pod in pods for ref in pod["metadata"]["ownerReferences"]}, {"heir"})
        until(lambda: self.status("heir").get("state") == "running", SOON, "it is the other's")
        self.world.agent.restart()
        never(lambda: self.cri.of("child-") != [first] or self.cri.of("heir-"), 4, "it was restarted")
        until(lambda: "3 Running" in self.kubectl("describe", "ds/heir"), SOON, "describe counts them")
        self.kubectl("set", "image", "ds/heir", "*=dl.test/box:2")
        self.kubectl("delete", "ds/heir", "--timeout=20s")
        until(lambda: not self.cri.of("child-"), SOON, "they end with it")
        self.gone("heir")

    def test_06_a_node_that_it_no_longer_fits(self):
        name = self.world.node.name
        self.admin.patch("nodes", name, {"metadata": {"labels": {"disk": "fast"}}})
        self.admin.apply(body("picky", STATIC, {"command": SLOW}, nodeSelector={"disk": "fast"}, terminationGracePeriodSeconds=20))
        self.world.owned("picky", "DaemonSet", 1)
        first = self.cri.wait_running("picky-")
        self.admin.patch("nodes", name, {"metadata": {"labels": {"disk": "slow"}}})
        until(lambda: not self.world.agent.manifests("_picky-"), SOON, "its manifest goes")
        going = until(lambda: [p for p in self.world.pods("picky") if "deletionTimestamp" in p["metadata"]], 10, "the API server shows that it ends")
        self.assertGreaterEqual(going[0]["metadata"]["deletionGracePeriodSeconds"], 1)
        self.assertEqual(self.cri.of("picky-"), [first], "it has its grace period")
        self.gone("picky")
        self.kubectl("delete", "ds/picky")

    def test_07_taints(self):
        name = self.world.node.name
        first = self.run_daemon("plain")
        taint = lambda effect: self.kubectl("taint", "node", name, f"tests.example/keep-out=:{effect}")
        taint("NoSchedule")
        never(lambda: self.cri.of("plain-") != [first], 3, "a taint that only keeps new ones away ended one")
        self.admin.apply(body("newcomer", STATIC))
        self.world.owned("newcomer", "DaemonSet", 2)
        self.assertEqual(self.cri.of("newcomer-"), [], "it was started on the tainted node")
        taint("NoExecute")
        until(lambda: not self.cri.of("plain-"), SOON, "NoExecute removes it")
        self.kubectl("taint", "node", name, "tests.example/keep-out-")
        until(lambda: len(self.cri.of("plain-")) == 1 and len(self.cri.of("newcomer-")) == 1, SOON, "both run without the taint")
        self.kubectl("delete", "ds/plain", "ds/newcomer")
        self.gone("plain")

    def test_08_a_node_deleted_and_made_again(self):
        first = self.run_daemon("stays")
        name = self.world.node.name
        uid = self.admin.get("nodes", name)["metadata"]["uid"]
        self.admin.delete("nodes", name)
        self.world.node.kubelet.stop()
        self.world.node.start_kubelet()
        self.world.node.wait_ready(60)
        self.assertNotEqual(self.admin.get("nodes", name)["metadata"]["uid"], uid)
        self.world.owned("stays", "DaemonSet")
        never(lambda: self.cri.of("stays-") != [first], 5, "the Node's deletion restarted it")
        report = until(lambda: self.admin.get("nodedaemons", name), SOON, "its report is there again")
        until(lambda: [d["name"] for d in self.admin.get("nodedaemons", name).get("status", {}).get("daemons", [])] == ["stays"], SOON,
              f"and says what runs: {report}")
        self.kubectl("delete", "ds/stays")
        self.gone("stays")

    def test_09_a_namespace_goes_with_all_that_is_in_it(self):
        self.kubectl("create", "namespace", "doomed")
        self.world.cluster.wait_namespace("doomed")
        self.admin.apply(body("inmate", STATIC) | {"metadata": {"name": "inmate", "namespace": "doomed", "labels": STATIC}})
        self.cri.wait_running("inmate-")
        until(lambda: len(self.admin.list("pods", "doomed")) == 3, SOON, "all its mirror pods are there")
        self.kubectl("delete", "namespace", "doomed", "--timeout=55s")
        self.gone("inmate")

    def test_10_no_file_is_left(self):
        """Neither manifest nor record of what ended, nor a folder of a pod that is gone."""
        until(lambda: self.world.agent.manifests() == {}, SOON, "no manifest")
        running = {pod["metadata"]["annotations"]["kubernetes.io/config.hash"] for pod in self.admin.list("pods", NAMESPACE)}
        self.assertEqual(running, set())
        problems = json.loads(self.world.agent.cli("status", "--json").stdout)["problems"]
        self.assertEqual(problems, [])
