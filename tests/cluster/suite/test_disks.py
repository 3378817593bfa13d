"""A node whose disk, clock, folders or limits are against it: reported in words, nothing lost, and over when it is over."""

import errno
import json
import os
import re
import resource
import subprocess
import time
import unittest
from pathlib import Path

from kit import agent
from kit.control_plane import ControlPlane
from kit.shim import FAIL_ON
from kit.shim import FAIL_ONCE
from kit.wait import never
from kit.wait import until
from suite import transitions
from suite.transitions import LONG
from suite.transitions import World

DAY = 24 * 3600
WORLD = {}
COUNTS = {"faults injected": 0, "losses": 0}


def setUpModule():  # noqa: N802 (unittest's name)
    """One API server."""
    WORLD["cluster"] = unittest.enterModuleContext(ControlPlane())
    agent.grant(WORLD["cluster"])
    unittest.addModuleCleanup(lambda: transitions.report(**COUNTS))


def mount(*argv):
    """`mount`, or an error."""
    subprocess.run(["mount", *map(str, argv)], check=True)


class Disks(unittest.TestCase):
    """Each test has a node of its own with a daemon that runs."""

    number = 0

    def world(self, prepare=None):
        """A node, `prepare` before its agent starts."""
        Disks.number += 1
        world = World(WORLD["cluster"], f"disk-{Disks.number}")
        self.enterContext(world)
        if prepare:
            prepare(world)
        world.put()
        self.first = world.wait(world.runs, "the daemon runs")
        return world

    def keeps(self, world, seconds=2):
        """What ran goes on running."""
        never(lambda: self.first["uid"] not in {pod["uid"] for pod in world.node.pods(world.owner) if not pod["ending"]}, seconds, "it ended")

    def says(self, world, words, seconds=20):
        """`status` says so."""
        try:
            return until(lambda: re.search(words, world.agent.cli("status").stdout), seconds, f"status says {words!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{world.agent.cli('status').stdout}\n{world.agent.process.tail(20)}") from None

    def over(self, world):
        """It is over: the wanted round runs, and nothing was ever as it must not be."""
        world.agent.process.wait_line("agent running", 10)
        world.agent.process.hang_up()
        world.wait(world.runs, "the wanted round runs")
        self.assertTrue(world.agent.process.alive)
        bad = world.node.bad()
        COUNTS["losses"] += len(bad)
        self.assertEqual(bad, [])

    def test_a_full_disk_and_one_without_inodes(self):
        for part in ("manifests", "state", "kubelet"):
            for limit, options in (("bytes", "size=256k"), ("inodes", "size=1m,nr_inodes=80")):
                def small(world, part=part, options=options):
                    world.agent.stop()
                    mount("-t", "tmpfs", "-o", f"mode=700,{options}", "tmpfs", world.node.disk / part)
                    world.node.make_folders()
                    world.node.watch()
                    world.agent.start()
                world = self.world(small)
                folder = world.node.disk / part
                fill(folder / ".filling", limit)
                COUNTS["faults injected"] += 1
                world.put()
                world.write_config("x" * 20000)
                # The room of what ended may be just enough.
                until(lambda world=world: world.runs() or "no space left" in world.agent.cli("status").stdout.lower(), 20, "status says that the disk is full")
                if part == "state":
                    self.keeps(world, 1)
                subprocess.run(["rm", "-r", folder / ".filling"], check=True)
                self.over(world)
                subprocess.run(["umount", "-l", folder], check=True)

    def test_a_manifest_folder_that_is_read_only(self):
        def own(world):
            world.agent.stop()
            mount("-t", "tmpfs", "-o", "mode=700", "tmpfs", world.node.manifests)
            world.node.watch()
            world.agent.start()
        world = self.world(own)
        mount("-o", "remount,ro", world.node.manifests)
        COUNTS["faults injected"] += 1
        world.put()
        self.says(world, "[Rr]ead-only")
        self.keeps(world)
        world.agent.restart()
        self.says(world, "[Rr]ead-only")
        self.keeps(world, 1)
        mount("-o", "remount,rw", world.node.manifests)
        self.over(world)

    def test_every_step_that_fails(self):
        """EIO and ENOSPC at every step of an update and of a refresh, once and from there on."""
        world = self.world()
        for transition in (transitions.Update, transitions.Refresh):
            number = injected = 0
            failed = True
            while failed:
                # By default a few of them, each time others.
                number += 1 if LONG else 4
                case = transition()
                case.number = number
                world.shim.disarm()
                case.before(world)
                world.shim.arm(number, (FAIL_ONCE, FAIL_ON)[number // 4 % 2], (errno.EIO, errno.ENOSPC)[number // 8 % 2])
                case.trigger(world)
                began = time.monotonic()
                world.wait(lambda began=began, case=case: case.done(world) or world.shim.steps >= number and time.monotonic() > began + 0.3, "something happens")
                failed = world.shim.steps >= number
                step = world.shim.name(number)
                world.shim.disarm()
                injected += failed
                self.assertTrue(world.agent.process.alive, f"it died of {step}\n{world.agent.process.tail(30)}")
                world.agent.process.hang_up()
                world.wait(lambda case=case: case.done(world) or world.agent.process.hang_up() or time.sleep(0.05), f"the end after step {number} failed ({step})")
                self.assertEqual(world.node.bad(), [], f"step {number} failed ({step})\n{world.agent.process.tail(30)}")
            COUNTS["faults injected"] += injected
            transitions.report(**{f"steps of {transition.name()} that failed": injected, "losses": len(world.node.bad())})

    def test_a_clock_that_jumps_by_a_day(self):
        world = self.world()
        for seconds in (DAY, -DAY, -DAY, DAY):
            COUNTS["faults injected"] += 1
            world.shim.shift(seconds)
            self.keeps(world, 1)
            self.assertEqual(world.runs()["uid"], self.first["uid"])
            # In the middle of a replacement too; the certificates are of today, so the watch goes on and a new connection may not.
            world.put()
            world.shim.shift(-seconds)
            self.first = world.wait(world.runs, "the wanted round runs")
            world.shim.shift(seconds)
        world.shim.shift(-world.shim.clock / 1e9)
        world.put()
        self.over(world)

    def test_a_manifest_folder_that_is_not_safe(self):
        world = self.world()
        folder, aside = world.node.manifests, world.node.disk / "aside"
        folder.chmod(0o770)
        COUNTS["faults injected"] += 1
        world.put()
        self.says(world, "can be written to by others than its owner")
        self.keeps(world)
        world.agent.restart()
        self.says(world, "can be written to by others than its owner")
        self.keeps(world, 1)
        folder.chmod(0o700)
        self.over(world)
        self.first = world.runs()
        # In one moment for the agent: between the two it would make the folder again.
        world.agent.process.freeze()
        folder.rename(aside)
        folder.symlink_to(aside)
        world.agent.process.thaw()
        COUNTS["faults injected"] += 1
        before = sorted(file.name for file in aside.iterdir())
        world.put()
        self.says(world, "is a symbolic link")
        never(lambda: sorted(file.name for file in aside.iterdir()) != before, 2, "something was changed behind the link")
        world.agent.process.freeze()
        folder.unlink()
        aside.rename(folder)
        world.agent.process.thaw()
        self.over(world)

    def test_inotify_at_its_limit(self):
        def limited(world):
            world.agent.stop()
            world.agent.prefix = ["unshare", "--user", "--map-root-user", "sh", "-c", 'echo 0 > /proc/sys/user/max_inotify_instances; exec "$@"', "sh"]
            world.agent.start()
        world = self.world(limited)
        COUNTS["faults injected"] += 1
        self.says(world, r"(?s)manifest folder: .*(looked at|polled).*inotify")
        self.says(world, r"folders: .*polled every")
        (file,) = world.node.manifests.glob("[!.]*")
        file.unlink()
        until(lambda: world.runs() and world.runs()["uid"] != self.first["uid"], 20, "a manifest that was removed is missed without inotify")
        self.over(world)

    def test_file_descriptors_used_up(self):
        world = self.world()
        pid = world.agent.process.pid
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        for count in (0, 6, 10, 14):
            COUNTS["faults injected"] += 1
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (count, limits[1]))
            world.put()
            world.agent.process.hang_up()
            time.sleep(0.5)
            self.assertTrue(world.agent.process.alive, world.agent.process.tail(20))
            self.assertEqual(world.node.bad(), [])
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
            self.over(world)
        for count in (8, 12, 16, 20):
            # From its start: it may refuse to start, and then starts when it can.
            COUNTS["faults injected"] += 1
            world.agent.stop()
            world.agent.prefix = ["prlimit", f"--nofile={count}"]
            world.agent.start()
            time.sleep(0.5)
            self.assertEqual(world.node.bad(), [])
            world.agent.stop()
            world.agent.prefix = []
            world.agent.start()
            self.over(world)

    def test_what_is_no_file_in_the_place_of_one(self):
        """A folder, a device or a FIFO where a file was: nothing ends, nothing hangs, and `status` says which file it is."""
        world = self.world()
        file = world.agent.folder / "beside.json"
        body = {"apiVersion": "apps/v1", "kind": "DaemonSet"} | world.body()
        body["metadata"] = {"name": "beside", "namespace": world.namespace}
        file.write_text(json.dumps(body), encoding="utf-8")
        beside, _ = world.agent.wait_manifest("beside")
        put = {
            "a folder": lambda path: path.mkdir(),
            "a link to a folder": lambda path: path.symlink_to("/"),
            "an endless device": lambda path: path.symlink_to("/dev/zero"),
            "a FIFO": os.mkfifo,
            "a file of comments": lambda path: path.write_text("# nothing\n", encoding="utf-8"),
        }
        for what, make in put.items():
            COUNTS["faults injected"] += 1
            file.unlink()
            make(file)
            self.says(world, "no document" if what == "a file of comments" else r"beside\.json: cannot be read")
            never(lambda: beside not in world.agent.manifests("beside"), 3, f"{what} ends the daemon")
            world.agent.restart()
            world.agent.process.wait_line("agent running", 10)
            never(lambda: beside not in world.agent.manifests("beside"), 2, f"{what} ends the daemon at a start")
            if file.is_dir() and not file.is_symlink():
                file.rmdir()
                file.touch()
        kubeconfig = Path(world.agent.config["kubeconfig"])
        aside = kubeconfig.rename(kubeconfig.with_name("aside"))
        os.mkfifo(kubeconfig)
        COUNTS["faults injected"] += 1
        self.says(world, "kubeconfig.*it is not a regular file", 60)
        world.agent.restart()
        self.says(world, "kubeconfig.*it is not a regular file")
        self.keeps(world)
        self.assertIn(beside, world.agent.manifests("beside"))
        aside.rename(kubeconfig)
        self.over(world)
        file.unlink()
        until(lambda: not world.agent.manifests("beside"), 20, "a removed file ends its daemon")


def fill(folder, limit):
    """Takes all bytes, or all inodes, of a file system."""
    folder.mkdir()
    try:
        for number in range(100000):
            with open(folder / str(number), "wb", buffering=0) as file:
                while limit == "bytes":
                    file.write(bytes(4096))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
    os.sync()
