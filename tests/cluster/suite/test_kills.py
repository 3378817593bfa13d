"""The agent killed before every externally visible step of every transition, and started again.

What it is about to do is counted by the shim, step by step: file system and sockets. For each
number there is one transition in which the agent dies before that step, and every second time it
dies once more while it recovers. The node watches all the time that nothing is ever as it must not be.
"""

import random
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from kit import agent
from kit.control_plane import ControlPlane
from kit.shim import KILL
from kit.wait import until
from suite import transitions
from suite.transitions import LONG
from suite.transitions import SEED
from suite.transitions import World

WORLD = {}


def setUpModule():  # noqa: N802 (unittest's name)
    """One API server. The transitions go on side by side: most of their time is waiting."""
    WORLD["cluster"] = unittest.enterModuleContext(ControlPlane())
    agent.grant(WORLD["cluster"])
    pool = unittest.enterModuleContext(ThreadPoolExecutor(4))
    WORLD["runs"] = {transition: pool.submit(kill_at_every_step, transition) for transition in LONGEST_FIRST}


LONGEST_FIRST = sorted(transitions.TRANSITIONS, key=lambda transition: transition not in transitions.REPLACING)


def until_death_or_end(world, case, what):
    """Waits until the agent has been killed or the end is reached; gives whether it was killed."""
    world.wait(lambda: not world.agent.process.alive or case.done(world), what)
    world.shim.disarm()
    # It may be about to die when the end is seen.
    until(lambda: not world.agent.process.alive or not world.shim.acted, 10, "it dies or goes on")
    return not world.agent.process.alive


def kill_at_every_step(transition):
    """The whole of a transition, as often as it has steps; gives the figures."""
    kills = again = 0
    longest = 0.0
    with World(WORLD["cluster"], f"kill-{transition.name()}") as world:
        case = transition()
        # In the long run the recovery from each kill is cut short five times, at other steps each time.
        for chance, share in [(random.Random(SEED + turn), 1.0 if LONG else 0.5) for turn in range(5 if LONG else 1)]:
            number, died = 0, True
            while died:
                number += 1
                world.node.ask(steady=[], final=[])
                case.before(world)
                world.node.ask(steady=[world.owner] if case.steady else [])
                world.shim.arm(number, KILL, sockets=True)
                world.node.ask(final=[world.owner] if case.final else [])
                case.trigger(world)
                died = until_death_or_end(world, case, f"step {number} of {transition.name()}")
                step = f"step {number} ({world.shim.name(number)}) of {transition.name()}"
                if died:
                    kills += 1
                    began = time.monotonic()
                    if chance.random() < share:
                        world.shim.arm(chance.randint(1, 40), KILL, sockets=True)
                        world.agent.start()
                        again += until_death_or_end(world, case, f"recovery after a kill before {step}")
                    if not world.agent.process.alive:
                        world.agent.start()
                    world.wait(lambda: case.done(world), f"the end after a kill before {step}")
                    longest = max(longest, time.monotonic() - began)
                node = world.node.ask()
                if node["bad"]:
                    raise AssertionError(f"killed before {step}: {node['bad']}\n{world.agent.process.tail(40)}")
    return {"kills": kills, "kills in the recovery": again, "losses": len(node["bad"]), "changes and": node["events"],
            "reads looked at": node["reads"], "s at the longest to the end": f"{longest:.1f}"}


class Kills(unittest.TestCase):
    """One test a transition."""


def _story(transition):
    def test(self):
        figures = WORLD["runs"][transition].result()
        transitions.report(**figures)
        self.assertGreater(figures["kills"], 0)
    return test


for _transition in LONGEST_FIRST:
    setattr(Kills, f"test_{_transition.name()}", _story(_transition))
