"""The agent killed in the middle of a swap that a coordinator has approved: at every second step to its end, with
`DAEMONLET_LONG=1` at each.

On a node that only pretends to run pods and sees what must never be. Every second time the rollout is paused before the agent
starts again: what was claimed finishes, and a node that is between its two manifests is not left without a pod.
"""

import unittest
from concurrent.futures import ThreadPoolExecutor

from kit import agent
from kit import coordinator
from kit.control_plane import ControlPlane
from kit.coordinator import Coordinator
from kit.shim import KILL
from kit.standin import StandIn
from kit.wait import never
from suite import transitions
from suite.transitions import World

from .test_kills import until_death_or_end

PAUSED = "daemonlet.dev/paused"
# So long nothing may happen that an agent would do within a second.
QUIET = 3
WORLD = {}


def setUpModule():  # noqa: N802 (unittest's name)
    """One API server with a coordinator. Both ways to swap go on side by side."""
    WORLD["cluster"] = unittest.enterModuleContext(ControlPlane())
    agent.grant(WORLD["cluster"])
    coordinator.install(WORLD["cluster"])
    unittest.enterModuleContext(Coordinator(WORLD["cluster"], "one"))
    pool = unittest.enterModuleContext(ThreadPoolExecutor(2))
    WORLD["runs"] = {transition: pool.submit(kill_in_the_swap, transition) for transition in (transitions.Update, transitions.Surge)}


class Selected(World):
    """A world whose DaemonSet is for its own node alone."""

    def __init__(self, cluster, name):
        super().__init__(cluster, name, StandIn(cluster, name, {"swap": name}))

    def body(self, **options):
        body = super().body(**options)
        body["spec"]["template"]["spec"]["nodeSelector"] = {"swap": self.node.name}
        return body


class Swap:
    """One node, its coordinator, and a DaemonSet that changes."""

    def __init__(self, world, transition):
        self.world, self.case, self.surges = world, transition(), transition is transitions.Surge

    def report(self):
        """What the agent says of the daemon."""
        daemons = (self.world.admin.get("nodedaemons", self.world.node.name) or {}).get("status", {}).get("daemons", [])
        return next((daemon for daemon in daemons if daemon["namespace"] == self.world.namespace), {})

    def is_over(self):
        """Whether the swap is over, and the coordinator has said so."""
        it = self.world.admin.get("daemonsets", transitions.NAME, self.world.namespace)
        status = it.get("status", {})
        counted = [status.get(name) for name in ("updatedNumberScheduled", "numberAvailable")] == [1, 1]
        approvals = self.world.admin.get("nodedaemons", self.world.node.name).get("spec", {}).get("approvals", [])
        return (counted and status.get("observedGeneration") == it["metadata"]["generation"] and self.case.done(self.world)
                and not approvals and "replacing" not in self.report())

    def rounds(self):
        """The rounds of what runs and does not end."""
        return {int(pod["round"]) for pod in self.world.node.pods(self.world.owner) if pod["running"] and not pod["ending"]}

    def pause(self, value):
        """Pauses the rollout, or lets it go on (None)."""
        self.world.admin.patch("daemonsets", transitions.NAME, {"metadata": {"annotations": {PAUSED: value}}}, self.world.namespace)

    def finish_while_paused(self, step):
        """The agent starts while the rollout is paused; gives whether what was claimed was finished all the same."""
        world = self.world
        self.pause("true")
        old_serves = world.round - 1 in self.rounds()
        world.agent.start()
        world.wait(self.rounds, f"something runs though it is paused, after a kill before {step}")
        if not old_serves:
            world.wait(lambda: self.rounds() == {world.round}, f"what was claimed starts though it is paused, after a kill before {step}")
        # What is claimed may end the old pod first, unless it surges.
        never(lambda: not self.rounds() and self.surges, QUIET, f"nothing serves after a kill before {step}")
        world.wait(self.rounds, f"something runs though it is paused, after a kill before {step}")
        is_new = world.round in self.rounds()
        self.pause(None)
        return is_new


def kill_in_the_swap(transition):
    """A swap as often as it has steps after its claim; gives the figures."""
    kills = finished = between = 0
    with Selected(WORLD["cluster"], f"swap-{transition.name()}") as world:
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        world.admin.patch("nodes", world.node.name, {"status": ready}, sub="status")
        swap, number, died = Swap(world, transition), 0, True
        while died:
            number += 1 if transitions.LONG else 2
            world.node.ask(steady=[])
            swap.case.before(world)
            world.wait(swap.is_over, "nothing is left to do")
            world.node.ask(steady=[world.owner] if swap.surges else [])
            world.shim.arm(number, KILL)
            swap.case.trigger(world)
            died = until_death_or_end(world, swap.case, f"step {number} of {transition.name()}")
            if died:
                step = f"step {number} ({world.shim.name(number)}) of {transition.name()}"
                kills += 1
                between += swap.rounds() != {world.round - 1} or len(list(world.node.manifests.glob("[!.]*"))) != 1
                if kills % 2:
                    finished += swap.finish_while_paused(step)
                else:
                    world.agent.start()
                world.wait(swap.is_over, f"the swap is over and reported after a kill before {step}")
            node = world.node.ask()
            if node["bad"]:
                raise AssertionError(f"killed before step {number}: {node['bad']}\n{world.agent.process.tail(40)}")
    return {"kills": kills, "in the middle of the swap": between, "finished though paused": finished, "losses": len(node["bad"])}


class Swaps(unittest.TestCase):
    """One test a way to swap."""

    def check(self, transition):
        """The figures of one."""
        figures = WORLD["runs"][transition].result()
        transitions.report(**figures)
        self.assertGreater(figures["in the middle of the swap"], 2, "it was never killed between the two manifests")
        self.assertGreater(figures["finished though paused"], 0, "nothing that was claimed was finished while paused")

    def test_a_replacement_that_is_cut_short_ends_with_the_new_pod(self):
        self.check(transitions.Update)

    def test_a_surge_that_is_cut_short_never_leaves_the_node_without_a_pod(self):
        self.check(transitions.Surge)
