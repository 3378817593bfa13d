"""What is held stays held, whatever is taken away: rights of the agents, NodeDaemons, the object of the coordinator's Lease.

On hollow nodes; the DaemonSet controller and the scheduler do not run.
"""

import json

from kit import coordinator
from kit.agent import ROLE
from kit.agent import Agent
from kit.budget import Observer
from kit.coordinator import Coordinator
from kit.hollow import crowd
from kit.wait import never
from kit.wait import until

from .rolled_out import SOON
from .rolled_out import RolledOut

NODES = 3
CRD = "nodedaemons.daemonlet.dev"
LEASES = "daemonlet-node-lease"
# So long nothing may happen that an agent or the coordinator would do within a second.
QUIET = 5


class TakenTest(RolledOut):
    """One DaemonSet on three nodes."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.one = cls.stack.enter_context(Coordinator(cls.cluster, "one"))
        nodes = crowd(cls.cluster, NODES, cls.stack)
        cls.agents = {node.name: cls.stack.enter_context(Agent(node, runtime_endpoint="", kubelet_endpoint="")) for node in nodes}
        cls.observer = cls.stack.enter_context(Observer(cls.admin, "net", [node.name for node in nodes]))

    def restart_agents(self):
        """Each agent dies and starts."""
        for one in self.agents.values():
            one.kill()
            one.start()

    def stays(self, before, when):
        """No node changes."""
        never(lambda: self.images() != before, QUIET, f"a node changes {when}: {before}")

    def test_1_without_the_right_to_read_approvals_an_agent_that_starts_changes_nothing(self):
        self.create("1")
        self.all_have("1")
        # What follows of this takes a minute.
        self.admin.kubectl("delete", "role", "-n", LEASES, ROLE)
        self.admin.kubectl("delete", "leases", "-n", LEASES, "--all")
        self.annotate(partition="2")
        self.change("2")
        until(lambda: len(self.having("2")) == 1, SOON, "one node has it")
        before = self.images()
        rules = self.admin.get("clusterroles", ROLE)["rules"]
        self.admin.patch("clusterroles", ROLE, {"rules": [rule for rule in rules if "nodedaemons" not in rule["resources"]]})
        self.restart_agents()
        self.annotate(partition=None)
        self.stays(before, "without the right to read its approvals")
        self.admin.patch("clusterroles", ROLE, {"rules": rules})
        self.restart_agents()
        self.all_have("2")

    def test_2_the_object_of_the_coordinators_lease_is_deleted_in_the_middle_of_a_rollout(self):
        self.observer.expect(1)
        self.change("3")
        until(lambda: self.having("3"), SOON, "it has begun")
        self.admin.delete("leases", "daemonlet-coordinator", "kube-system")
        self.all_have("3")
        self.assertEqual(self.observer.wrong, [])

    def test_3_agents_that_may_write_no_lease_are_named(self):
        until(lambda: self.condition("Degraded")[2] == f"agent writes no Lease on {NODES} nodes: hollow-0, hollow-1, hollow-2", SOON,
              f"it is reported: {self.status()}")
        until(lambda: "this node's Lease is not written" in self.agents["hollow-0"].cli("status").stdout, SOON, "its own status says why")
        self.admin.kubectl("apply", "-f", str(coordinator.RIGHTS.with_name("rbac.yaml")))
        self.restart_agents()
        until(lambda: self.condition("Degraded")[1] == "AsExpected", SOON, f"they write it: {self.status()}")

    def test_4_holds_outlive_a_resource_that_is_deleted(self):
        hold = {"partition": "2", "canary": "kubernetes.io/hostname=hollow-0", "canary_hold": "1h"}
        self.annotate(**hold)
        self.change("4")
        until(lambda: self.having("4") == ["hollow-0"], SOON, "one node has it")
        until(lambda: self.released("3") == "Held", SOON, "it is held")
        self.kubectl("annotate", "controllerrevision", f"net-{self.hash_of('4')}", "daemonlet.dev/halted=by hand")
        until(lambda: self.condition("Halted")[0] == "True", SOON, "it is halted")
        before = self.images()
        self.kubectl("delete", "crd", CRD)
        self.one.kill()
        # The halt alone holds it now.
        self.annotate(**dict.fromkeys(hold))
        self.restart_agents()
        self.stays(before, "without NodeDaemons")
        coordinator.install(self.cluster)
        self.one.start()
        until(lambda: len(self.admin.list("nodedaemons")) == NODES, SOON, "the nodes report again")
        self.stays(before, "with the halt that it had")
        self.annotate(**hold)
        self.kubectl("annotate", "controllerrevision", f"net-{self.hash_of('4')}", "daemonlet.dev/halted-")
        until(lambda: self.condition("Halted")[0] is None, SOON, "the halt has ended")
        self.stays(before, "in its canary phase")
        self.annotate(**dict.fromkeys(hold))
        self.all_have("4")

    def test_5_a_pause_outlives_a_resource_that_is_not_served(self):
        served = lambda it: self.admin.kubectl("patch", "crd", CRD, "--type=json", "-p", json.dumps(
            [{"op": "replace", "path": "/spec/versions/0/served", "value": it}]))
        self.annotate(paused="true")
        self.change("5")
        until(lambda: self.released("4") == "Held", SOON, "it is held")
        before = self.images()
        served(False)
        until(lambda: "hollow-" not in self.admin.kubectl("get", CRD, check=False), SOON, "NodeDaemons are not served")
        self.stays(before, "while NodeDaemons are not served")
        served(True)
        self.stays(before, "when they are served again")
        self.annotate(paused=None)
        self.all_have("5")
