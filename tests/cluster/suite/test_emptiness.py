"""Views of the API that are wrong, one kind a story: none of them ends what runs, and each is reported."""

import json
import shutil
import socket
import subprocess
import time
import unittest
from contextlib import contextmanager

from kit import tools
from kit.agent import GROUP
from kit.agent import grant
from kit.agent import user
from kit.api import Refused
from kit.control_plane import ControlPlane
from kit.process import Process
from kit.sandbox import scratch
from kit.wait import until
from suite.bare import SOON
from suite.bare import WORLD
from suite.bare import Story

# A watch that has nothing to resume is found out when its connection is.
PATIENCE = 75
# The liar's port.
LIAR = 6444
# Daemons that the backup lacks.
NEW = ("new1", "new2", "new3")


def setUpModule():  # noqa: N802 (unittest's name)
    """One API server for all, without any controller."""
    WORLD.cluster = unittest.enterModuleContext(ControlPlane())
    grant(WORLD.cluster)


class Backup:
    """A copy of what etcd holds, to be put back later: its revision goes back with it."""

    def __init__(self, cluster):
        self.cluster, self.copy = cluster, cluster.home / "etcd-backup"
        self._with_etcd_down(lambda: shutil.copytree(cluster.home / "etcd", self.copy))

    def restore(self):
        """Puts the copy back."""
        def put_back():
            shutil.rmtree(self.cluster.home / "etcd")
            shutil.move(self.copy, self.cluster.home / "etcd")
        self._with_etcd_down(put_back)

    def _with_etcd_down(self, act):
        self.cluster.stop("api")
        self.cluster.stop("etcd")
        act()
        self.cluster.start_etcd()
        self.cluster.start_api()


class Restored(Story):
    """etcd goes back to an old backup under a running agent."""

    def prepare(self, **config):
        """A daemon that the backup has, and three that it lacks."""
        agent = self.start_agent(**config)
        self.config("settings", level="one")
        self.put(self.daemon("old", {"volumeMounts": [{"name": "settings", "mountPath": "/settings"}]}, volumes=[{"name": "settings", "configMap": {"name": "settings"}}]))
        first = {"old": self.instance(agent, "old")}
        self.settled(agent)
        backup = Backup(self.cluster)
        for name in NEW:
            self.put(self.daemon(name))
            first[name] = self.instance(agent, name, seconds=PATIENCE)
        self.admin.patch("configmaps", "settings", {"data": {"level": "two"}}, self.namespace)
        until(lambda: agent.node.data(first["old"], "settings", "level") == "two", SOON, "the change arrives")
        # More versions than all clients write until the agent looks: a history that is as long again shows no gap.
        for number in range(400):
            self.admin.patch("daemonsets", "new1", {"metadata": {"annotations": {"round": str(number)}}}, self.namespace)
        self.settled(agent)
        return agent, first, backup

    def vanished_are_held(self, agent, first):
        """What the backup lacks is missed, and kept."""
        self.says(agent, "API: its history went back", PATIENCE)
        for name in NEW:
            self.says(agent, f"{name}.*not in the API any more; kept until a second complete list agrees", PATIENCE)
        for name, one in first.items():
            self.keeps(agent, one, name, 0.3)

    def test_a_restored_backup_is_noticed_and_what_it_lacks_is_held(self):
        agent, first, backup = self.prepare(removals_delay="600s")
        backup.restore()
        began = time.monotonic()
        # Every watch would have to wait for its resource version to come by.
        until(lambda: agent.node.data(first["old"], "settings", "level") == "one", PATIENCE, f"the restored data arrives\n{agent.process.tail(20)}")
        print(f"          what the backup has was in force {time.monotonic() - began:.1f} s after the API server was back")
        self.vanished_are_held(agent, first)
        agent.restart()
        self.vanished_are_held(agent, first)
        # What is applied again is the same daemon; after that a removal counts again.
        for name in NEW:
            self.put(self.daemon(name))
        until(lambda: "went back" not in agent.cli("status").stdout, SOON, "nothing is missing any more")
        for name, one in first.items():
            self.keeps(agent, one, name, 0.5)
        self.put(self.daemon("later"))
        self.instance(agent, "later")
        self.remove("later")
        self.wait_gone(agent, "later")

    def test_one_that_the_backup_lacks_is_held_though_it_is_one_of_many(self):
        agent, first, backup = self.prepare(removals_delay="600s")
        agent.stop()
        backup.restore()
        for name in NEW[1:]:
            self.put(self.daemon(name))
        agent.start()
        self.says(agent, f"{NEW[0]}.*kept until a second complete list agrees", PATIENCE)
        for name, one in first.items():
            self.keeps(agent, one, name, 0.5)

    def test_what_a_second_list_lacks_too_goes(self):
        agent, first, backup = self.prepare(removals_delay="20s")
        backup.restore()
        self.vanished_are_held(agent, first)
        for name in NEW:
            self.wait_gone(agent, name, PATIENCE)
        self.keeps(agent, first["old"], "old", 1)
        until(lambda: "went back" not in agent.cli("status").stdout, SOON, "nothing is missing any more")


class Liar(Story):
    """A proxy between agent and API server shows DaemonSets that are not so."""

    def setUp(self):
        super().setUp()
        self.lies = scratch() / f"lies-{self.namespace}"
        self.lies.mkdir()
        self.enterContext(self.proxy())
        config = json.loads(self.cluster.kubeconfig("admin", ["system:masters"]).read_text(encoding="utf-8"))
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{LIAR}"
        self.way = scratch() / f"{self.namespace}.kubeconfig"
        self.way.write_text(json.dumps(config), encoding="utf-8")
        self.way.chmod(0o600)

    @contextmanager
    def proxy(self):
        """The liar."""
        pki = self.cluster.pki
        cert, key = pki.certificate("liar", names=["IP:127.0.0.1"])
        own, own_key = pki.certificate("admin", ["system:masters"])
        process = Process("liar", [tools.program("liar"), f"127.0.0.1:{LIAR}", self.cluster.url, pki.ca, cert, key, own, own_key, self.lies],
                          scratch() / "logs" / f"liar-{self.namespace}.log")
        try:
            until(self.listens, 10, "the liar listens")
            yield
        finally:
            process.stop()

    def listens(self):
        """Whether the liar takes connections."""
        try:
            socket.create_connection(("127.0.0.1", LIAR), 1).close()
            return True
        except OSError:
            return False

    def lie(self, what, is_on=True):
        """Lies from now on, or not any more."""
        file = self.lies / what
        file.touch() if is_on else file.unlink()

    def test_an_empty_list_ends_nothing(self):
        agent = self.start_agent(kubeconfig=str(self.way))
        names = [f"many{number}" for number in range(4)]
        for name in names:
            self.put(self.daemon(name))
        first = {name: self.instance(agent, name) for name in names}
        self.settled(agent)
        self.lie("empty-lists")
        for restart in (agent.process.hang_up, agent.restart, self.agent_killed(agent)):
            restart()
            self.says(agent, f"{names[0]}.*not in the API any more.*a direct look still shows it")
            for name in names:
                self.keeps(agent, first[name], name, 0.5)
        # One that is deleted all the same is found to be gone by the same look.
        self.remove(names[0])
        self.says(agent, f"{names[1]}.*a direct look still shows it")
        self.lie("empty-lists", False)
        agent.process.hang_up()
        self.wait_gone(agent, names[0])
        self.settled(agent)
        for name in names[1:]:
            self.keeps(agent, first[name], name, 0.3)

    def agent_killed(self, agent):
        """A crash."""
        def crash():
            agent.kill()
            agent.start()
        return crash

    def test_a_deletion_that_the_watch_skips_is_found_by_the_next_list(self):
        agent = self.start_agent(kubeconfig=str(self.way))
        for name in ("skipped", "other"):
            self.put(self.daemon(name))
        skipped, other = self.instance(agent, "skipped"), self.instance(agent, "other")
        self.settled(agent)
        self.lie("skip-deletes")
        self.remove("skipped")
        self.keeps(agent, skipped, "skipped", 2)
        # Another one of that name is the same daemon, as its template is; its own deletion is seen.
        self.put(self.daemon("skipped"))
        self.keeps(agent, skipped, "skipped", 1)
        self.remove("skipped")
        self.keeps(agent, skipped, "skipped", 1)
        agent.process.hang_up()
        self.wait_gone(agent, "skipped")
        self.keeps(agent, other, "other", 0.5)


class Forbidden(Story):
    """RBAC changes under a running agent."""

    def refused(self):
        """Whether another agent may not list DaemonSets."""
        try:
            self.cluster.user(user("somebody"), [GROUP]).list("daemonsets")
        except Refused:
            return True
        return False

    def test_rights_that_are_lost_while_it_runs_end_nothing(self):
        agent = self.start_agent()
        names = [f"kept{number}" for number in range(4)]
        for name in names:
            self.put(self.daemon(name))
        first = {name: self.instance(agent, name) for name in names}
        self.settled(agent)
        self.admin.delete("clusterrolebindings", "daemonlet-agents")
        self.addCleanup(grant, self.cluster)
        until(self.refused, SOON, "the rights are gone")
        agent.process.hang_up()
        self.says(agent, "API: .*forbidden.*403")
        for name in names:
            self.keeps(agent, first[name], name, 0.5)
        self.remove(names[0])
        agent.restart()
        self.says(agent, "API: .*forbidden.*403")
        for name in names:
            self.keeps(agent, first[name], name, 0.5)
        grant(self.cluster)
        self.wait_gone(agent, names[0], PATIENCE)
        for name in names[1:]:
            self.keeps(agent, first[name], name, 0.3)


class Unmounted(Story):
    """A folder that is a file system of its own."""

    def test_a_folder_that_is_not_mounted_ends_nothing(self):
        agent = self.start_agent(kubeconfig="")
        agent.stop()
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", agent.folder], check=True)
        body = json.dumps(self.daemon("mounted", labels={}))
        (agent.folder / "mounted.json").write_text(body, encoding="utf-8")
        agent.start()
        first = self.instance(agent, "mounted")
        until(lambda: b"origins\":[[" in (agent.home / "state/inputs.json").read_bytes(), SOON, "its origin is saved")
        subprocess.run(["umount", "-l", agent.folder], check=True)
        agent.process.hang_up()
        # What its file last said stays in force, however often the folder is looked at.
        for _ in range(3):
            self.keeps(agent, first, "mounted", 1)
            agent.process.hang_up()
        agent.restart()
        self.says(agent, "mounted.*nothing shows that it was removed")
        self.keeps(agent, first, "mounted", 1)
        # What is then put into the bare folder is no word about what the file system had.
        (agent.folder / "other.json").write_text(json.dumps(self.daemon("other", labels={})), encoding="utf-8")
        self.instance(agent, "other")
        self.keeps(agent, first, "mounted", 1)


if __name__ == "__main__":
    unittest.main()
