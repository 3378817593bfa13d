"""Power lost: before every step of every transition, on a disk that keeps only what reached it.

The agent is stopped at the step, everything on the node dies, and the node boots on the disk as it
is without what was not synced. It must find nothing half written, and reach the end.
"""

import random
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from kit import agent
from kit.control_plane import ControlPlane
from kit.disk import Disk
from kit.shim import STOP
from kit.standin import StandIn
from kit.wait import until
from suite import transitions
from suite.transitions import LONG
from suite.transitions import SEED
from suite.transitions import World

WORLD = {}


class FragileNode(StandIn):
    """A node that can lose its power."""

    drive = None

    def mount(self):
        self.drive = Disk(self.home / "drive")
        self.drive.mount(self.disk)

    def lose_power(self):
        """Everything on it is dead at once; gives what it finds when it boots: nothing runs yet."""
        self.reboot()
        self.drive.lose_power()
        self.watch()
        # A pod that the stand-in has read and not begun is in no answer of its runtime: the agent starts after that.
        until(lambda: all(pod["running"] or pod["ending"] for pod in self.ask()["pods"]), 5, "what has a manifest runs")

    def __exit__(self, *_):
        self.process.kill()
        self.drive.remove()


def setUpModule():  # noqa: N802 (unittest's name)
    """One API server, all transitions side by side."""
    WORLD["cluster"] = unittest.enterModuleContext(ControlPlane())
    agent.grant(WORLD["cluster"])
    pool = unittest.enterModuleContext(ThreadPoolExecutor(4))
    WORLD["runs"] = {transition: pool.submit(pull_at_every_step, transition) for transition in transitions.DURABLE}


def pull_at_every_step(transition):
    """A transition, as often as it has steps (by default every third of them); gives the figures."""
    chance = random.Random(SEED)
    plugs, longest, number, node = 0, 0.0, 0, None
    name = f"plug-{transition.name()}"
    with World(WORLD["cluster"], name, FragileNode(WORLD["cluster"], name)) as world:
        case = transition()
        stopped = True
        while stopped:
            number += 1 if LONG else chance.randint(1, 5)
            case.before(world)
            world.shim.arm(number, STOP)
            case.trigger(world)
            world.wait(lambda: world.shim.acted or case.done(world), f"step {number} of {transition.name()}")
            world.shim.disarm()
            # One that was just about to stop goes on where it finds itself disarmed.
            until(lambda: not world.shim.acted or is_stopped(world.agent.process.pid), 10, "it stands still or goes on")
            stopped = world.shim.acted
            if not stopped:
                world.wait(lambda: case.done(world), f"the end of {transition.name()}")
                # It ends where there is no such step; one that was only just disarmed in time is passed over.
                stopped = world.shim.steps >= number
                continue
            step = f"step {number} ({world.shim.name(number)}) of {transition.name()}"
            plugs += 1
            began = time.monotonic()
            world.agent.kill()
            world.node.lose_power()
            world.agent.start()
            world.wait(lambda: case.done(world), f"the end after power was lost before {step}")
            longest = max(longest, time.monotonic() - began)
            node = world.node.ask()
            if node["bad"]:
                raise AssertionError(f"power lost before {step}: {node['bad']}\n{world.agent.process.tail(40)}")
    return {"pulled plugs": plugs, "losses": len(node["bad"]), "s at the longest to the end": f"{longest:.1f}"}


def is_stopped(pid):
    """Whether every thread of a process is stopped."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] == "T"


class Plugs(unittest.TestCase):
    """One test a transition."""

    @classmethod
    def tearDownClass(cls):
        done = [run.result() for run in WORLD["runs"].values() if not run.exception()]
        transitions.report(**{"plugs pulled in all": sum(run["pulled plugs"] for run in done), "losses": sum(run["losses"] for run in done), "is the seed": SEED})


def _story(transition):
    def test(self):
        figures = WORLD["runs"][transition].result()
        transitions.report(**figures)
        self.assertGreater(figures["pulled plugs"], 0)
    return test


for _transition in transitions.DURABLE:
    setattr(Plugs, f"test_{_transition.name()}", _story(_transition))
