"""The agent killed before every externally visible step of every transition, and started again.

What it is about to do is counted by the shim, step by step: file system and sockets. For each
number there is one transition in which the agent dies before that step, and every second time it
dies once more while it recovers. The node watches all the time that nothing is ever as it must not be.
"""

import json
import random
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

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


class File(unittest.TestCase):
    """DaemonSets that only a folder has, and each of which is new."""

    def test_a_file_that_goes_while_its_agent_is_dead_leaves_nothing(self):
        kills, number, died = 0, 0, True
        with World(WORLD["cluster"], "kill-file") as world:
            while died:
                number += 1
                name, file = f"file-{number}", world.agent.folder / f"{number}.json"
                world.shim.arm(number, KILL)
                staged = file.with_name(".staged")
                staged.write_text(json.dumps(world.body(name=name)), encoding="utf-8")
                staged.rename(file)
                saved = lambda world, name=name: world.node.record(world.namespace, name) and world.node.pods(f"{world.namespace}/{name}")
                died = until_death_or_end(world, SimpleNamespace(done=saved), f"step {number} of a file")
                step = world.shim.name(number)
                file.unlink()
                if died:
                    kills += 1
                    world.agent.start()
                pods = lambda name=name: world.node.pods(f"{world.namespace}/{name}") or list(world.node.manifests.glob("[!.]*"))
                world.wait(lambda: not pods(), f"nothing is left after a kill before step {number} ({step})")
        transitions.report(kills=kills)
        self.assertGreater(kills, 0)


for _transition in LONGEST_FIRST:
    setattr(Kills, f"test_{_transition.name()}", _story(_transition))
