"""Tests that stand on each other (no tests of its own)."""

import unittest
from contextlib import ExitStack

from kit import agent
from kit import coordinator
from kit.control_plane import ControlPlane


class Story(unittest.TestCase):
    """Its tests are told in order; after one that failed the rest are skipped."""

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
