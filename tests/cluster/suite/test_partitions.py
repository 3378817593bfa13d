"""Nodes cut off from their API server, in one direction or both.

Three nodes with an agent in a network namespace each; what changes meanwhile arrives afterwards, and
what runs goes on running.
"""

import json
import subprocess
import time
import unittest

from kit import agent
from kit.control_plane import ControlPlane
from kit.net import GATEWAY
from kit.net import Lan
from kit.wait import until
from suite import transitions
from suite.transitions import LONG
from suite.transitions import World

# A connection that is dead is noticed after 45 s.
CUT = 300 if LONG else 55
PATIENCE = 90
WAYS = {"both": ("input", "output"), "in": ("input",), "out": ("output",)}
WORLD = {}


def setUpModule():  # noqa: N802 (unittest's name)
    """One API server on the switch, a node a way to be cut off."""
    WORLD["lan"] = Lan()
    WORLD["cluster"] = unittest.enterModuleContext(ControlPlane(GATEWAY))
    agent.grant(WORLD["cluster"])
    WORLD["nodes"] = {}
    for way in WAYS:
        world = World(WORLD["cluster"], f"cut-{way}")
        WORLD["lan"].plug(f"cut-{way}")
        world.prefix = ["ip", "netns", "exec", f"cut-{way}"]
        unittest.enterModuleContext(world)
        world.put()
        world.wait(world.runs, "the daemon runs")
        WORLD["nodes"][way] = world


def nft(world, script):
    """Rules in a node's network."""
    subprocess.run(["ip", "netns", "exec", world.namespace, "nft", "-f", "-"], check=True, text=True, input=script)


class Partitions(unittest.TestCase):
    """What is lost: nothing."""

    def check(self, world, uid, what):
        """The same instance all the time, and nothing as it must not be."""
        self.assertEqual([pod["uid"] for pod in world.node.pods(world.owner)], [uid], what)
        self.assertEqual(world.node.bad(), [], what)

    def test_cut_off_in_both_directions_and_in_one(self):
        nodes = WORLD["nodes"]
        uids = {way: world.runs()["uid"] for way, world in nodes.items()}
        for way, world in nodes.items():
            world.node.ask(steady=[world.owner])
            chains = " ".join(f"chain {hook} {{ type filter hook {hook} priority 0; drop; }};" for hook in WAYS[way])
            nft(world, f"table inet cut {{ {chains} }}")
        began = time.monotonic()
        for world in nodes.values():
            world.write_config("meanwhile")
        for way, world in nodes.items():
            until(lambda world=world: json.loads(world.agent.cli("status", "--json").stdout)["agent"]["api"] != "connected", PATIENCE,
                  f"it knows that it is cut off ({way})", pause=0.5)
        # One that starts in the middle of it runs what ran.
        nodes["both"].agent.kill()
        nodes["both"].agent.start()
        while time.monotonic() - began < CUT:
            time.sleep(1)
            for way, world in nodes.items():
                self.check(world, uids[way], way)
        for world in nodes.values():
            nft(world, "delete table inet cut")
        back = time.monotonic()
        for way, world in nodes.items():
            until(lambda way=way, world=world: world.data(uids[way]) == {"a": "meanwhile", "b": "meanwhile"}, PATIENCE, f"what changed meanwhile arrives ({way})")
            self.check(world, uids[way], way)
        transitions.report(**{f"partitions of {CUT} s": len(nodes), "losses": 0, "s until all was known": f"{time.monotonic() - back:.1f}"})
        for world in nodes.values():
            world.node.ask(steady=[])
            world.put()
            world.wait(world.runs, "the next round runs")
