"""Tests that stand on each other (no tests of its own)."""

import unittest
from contextlib import ExitStack

from kit import agent
from kit import coordinator
from kit.control_plane import ControlPlane


class Story(unittest.TestCase):
    """Its tests run in order; after one that failed the rest are skipped."""

    broken = None

    def run(self, result=None):
        """Runs the test unless an earlier one failed."""
        cls = type(self)
        if cls.broken:
            result.startTest(self)
            result.addSkip(self, f"{cls.broken} failed")
            result.stopTest(self)
            return result
        before = result.failed_so_far()
        super().run(result)
        if result.failed_so_far() > before:
            cls.broken = self._testMethodName.removeprefix("test_").replace("_", " ")
        return result


class Coordinated(Story):
    """A cluster for coordinators and agents, who have their rights in it."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(ControlPlane())
        cls.cluster.start_controllers()
        cls.admin = cls.cluster.admin
        agent.grant(cls.cluster)
        coordinator.install(cls.cluster)
        cls.stack = cls.enterClassContext(ExitStack())

    def kubectl(self, *args):
        """Output of kubectl in the namespace of the coordinator."""
        return self.admin.kubectl("-n", "kube-system", *args)


def cluster(namespace):
    """A cluster for a module's tests, without scheduler and DaemonSet controller, whose nodes' agents have their rights."""
    made = unittest.enterModuleContext(ControlPlane())
    made.start_controllers()
    made.wait_namespace(namespace)
    agent.grant(made)
    return made


def loses_power(agent, node, cri):
    """Agent, kubelet and all containers are gone; what is on disk stays."""
    agent.stop()
    node.kubelet.stop()
    for line in cri.ctr("tasks", "ls").splitlines()[1:]:
        cri.ctr("tasks", "rm", "--force", line.split()[0], check=False)


def boots(agent):
    """Shows the agent another boot than the one of its record: in its own mount namespace the kernel's file is another."""
    other = agent.home / "boot_id"
    other.write_text("00000000-0000-0000-0000-00000000b007\n", encoding="ascii")
    agent.prefix = ["unshare", "--mount", "sh", "-c", f'mount --bind {other} /proc/sys/kernel/random/boot_id && exec "$@"', "sh"]
