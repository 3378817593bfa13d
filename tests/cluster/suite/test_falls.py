"""An API server that falls over and over, with three agents on it: what changes in between arrives, nothing is lost."""

import random
import time
import unittest

from kit import agent
from kit.control_plane import ControlPlane
from kit.wait import until
from suite import transitions
from suite.transitions import LONG
from suite.transitions import SEED
from suite.transitions import World

FLAPS = 180 if LONG else 30
PATIENCE = 90
WORLD = {}


def setUpModule():  # noqa: N802 (unittest's name)
    """One API server, three nodes."""
    WORLD["cluster"] = unittest.enterModuleContext(ControlPlane())
    agent.grant(WORLD["cluster"])
    WORLD["nodes"] = [unittest.enterModuleContext(World(WORLD["cluster"], f"fall-{number}")) for number in range(3)]
    for world in WORLD["nodes"]:
        world.put()
        world.wait(world.runs, "the daemon runs")


class Falls(unittest.TestCase):
    """What is lost: nothing."""

    def test_an_api_server_that_falls_over_and_over(self):
        cluster, chance = WORLD["cluster"], random.Random(SEED)
        nodes = WORLD["nodes"]
        falls, began = 0, time.monotonic()
        changes = 0
        while time.monotonic() - began < FLAPS:
            cluster.stop("api")
            falls += 1
            time.sleep(chance.random() * 2)
            cluster.start_api(60)
            for world in nodes:
                if chance.random() < 0.5:
                    world.put()
                    changes += 1
            time.sleep(chance.random() * 2)
        for world in nodes:
            until(world.runs, PATIENCE, f"{world.namespace} has the last round\n{world.agent.process.tail(20)}")
            self.assertEqual(world.node.bad(), [])
        transitions.report(**{"API servers killed": falls, "changes in between": changes, "losses": sum(len(world.node.bad()) for world in nodes), "s": f"{time.monotonic() - began:.0f}"})
