"""Folders that the unit writes to, mounted over or made anew while it runs, on a whole machine with systemd."""

import json
import unittest
from types import SimpleNamespace

from kit.wait import never
from kit.wait import until
from suite import one_machine

WORLD = SimpleNamespace()


def setUpModule():  # noqa: N802 (unittest's name)
    """One machine with a daemon that has run."""
    _, _, WORLD.machine = one_machine.begin()


class Mounts(unittest.TestCase):
    """The mount namespace of daemonlet.service"""

    def setUp(self):
        self.machine = WORLD.machine

    def running(self):
        """Waits for the daemon and gives it."""
        return until(lambda: self.machine.cri.of("steady-"), 90, "the daemon runs")[0]

    def agent(self):
        """The process id of the agent."""
        return self.machine.run("systemctl", "show", "--value", "--property=MainPID", "daemonlet.service").strip()

    def assert_manifest_comes_to(self, seconds, before):
        """Asserts that the daemon gets a manifest in the folder that the kubelet reads, and another instance runs by it."""
        until(lambda: self.machine.run("sh", "-c", "ls /etc/kubernetes/manifests").strip(), seconds, "the agent writes a manifest")
        until(lambda: [one for one in self.machine.cri.of("steady-") if one != before], 90, "another instance runs")
        status = json.loads(self.machine.run("daemonlet", "status", "--json"))
        self.assertEqual(status["problems"], [], status)

    def test_a_file_system_that_is_mounted_at_the_manifest_folder_is_seen(self):
        for path in ("/etc/kubernetes/manifests", "/etc/kubernetes"):
            with self.subTest(path):
                before, agent_before = self.running(), self.agent()
                self.machine.run("sh", "-ec", f"mkdir -p /srv/late; cp -a {path}/. /srv/late; find /srv/late -path '*/.daemonlet*' -prune -o "
                                 f"-name 'kube-system_*' -exec rm {{}} +; mount --bind /srv/late {path}")
                self.assert_manifest_comes_to(70, before)
                self.assertEqual(self.agent(), agent_before, "the agent started again")
                # The agent has it open.
                self.machine.run("sh", "-c", f"umount --lazy {path}; rm -rf /srv/late")
                self.running()

    def test_a_manifest_folder_that_is_made_anew_is_written_to_by_an_agent_that_starts_again(self):
        before, agent_before = self.running(), self.agent()
        self.machine.run("sh", "-ec", "rm -rf /etc/kubernetes/manifests; mkdir -m 0755 /etc/kubernetes/manifests")
        until(lambda: self.agent() not in ("0", agent_before), 60, "the agent starts again")
        self.assert_manifest_comes_to(60, before)
        said = [entry["MESSAGE"] for entry in self.machine.journal("_SYSTEMD_UNIT=daemonlet.service", "--priority=warning")]
        self.assertTrue([line for line in said if "the folder was moved or made anew; the agent starts again" in line], said)
        agent_now = self.agent()
        never(lambda: self.agent() != agent_now, 12, "the agent started once more")

    def test_a_folder_that_the_unit_never_opened_is_reported_and_ends_no_agent(self):
        self.machine.run("mkdir", "-p", "/srv/manifests")
        self.machine.configure(default_mode="static", manifest_dir="/srv/manifests")
        self.addCleanup(self.machine.run, "systemctl", "restart", "daemonlet.service")
        self.addCleanup(self.machine.configure, default_mode="static")
        self.machine.run("systemctl", "restart", "daemonlet.service")
        agent_before = self.agent()

        def reported():
            status = json.loads(self.machine.run("daemonlet", "status", "--json", check=False))
            return [one for one in status["problems"] if one["object"] == "/srv/manifests"]

        problems = until(reported, 20, "the problem is reported")
        self.assertIn("ReadWritePaths=", problems[0]["hint"])
        never(lambda: self.agent() != agent_before, 15, "the agent started again for what another start does not mend")


if __name__ == "__main__":
    unittest.main()
