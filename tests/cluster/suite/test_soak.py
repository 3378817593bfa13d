"""Random changes over fifty daemons for a long time: memory stays flat, and at the end nothing has drifted.

Two hollow nodes. The agent of the first runs from beginning to end, so that its memory shows
leaks; the agent of the second is restarted and killed. DAEMONLET_LONG=1 makes it half an hour, else
it is a minute; DAEMONLET_SEED names the dice.
"""

import json
import os
import random
import statistics
import time
import unittest
from contextlib import ExitStack
from pathlib import Path

from kit.agent import Agent
from kit.agent import grant
from kit.control_plane import ControlPlane
from kit.hollow import HollowNode
from kit.wait import until
from suite.bare import BareNode
from suite.bare import Instance
from suite.mix import LONG
from suite.mix import NAMESPACE
from suite.mix import SETTLE
from suite.mix import Mix

SECONDS = 1800 if LONG else 50
WARM = 120 if LONG else 15
WINDOW = 300 if LONG else 15
# The one beat of the dice, in seconds.
PAUSE = (0.1, 0.9) if LONG else (0.02, 0.3)
# In the short form the caches of a young agent still fill: there it is only kept from running away.
BOUND = 1.10 if LONG else 1.35


def _memory(agent):
    """Memory of the agent's own and resident memory, in MiB."""
    lines = Path(f"/proc/{agent.process.pid}/status").read_text(encoding="ascii").splitlines()
    found = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if line.startswith(("VmRSS", "RssAnon"))}
    return found["RssAnon"], found["VmRSS"]


def _running(agent):
    """What the manifests say: {daemon: [instance]}."""
    found = {}
    for file, text in agent.manifests().items():
        one = Instance(file, text)
        found.setdefault(one.owner.split("/")[1], []).append(one)
    return found


class Soak(unittest.TestCase):
    """The one story."""

    def test_random_changes_for_a_long_time_leave_no_drift_and_take_no_memory(self):
        seed = int(os.environ.get("DAEMONLET_SEED") or random.SystemRandom().randrange(1 << 32))
        print(f"          DAEMONLET_SEED={seed}, {SECONDS} s", flush=True)
        with ExitStack() as stack:
            cluster = stack.enter_context(ControlPlane())
            cluster.start_controllers()
            grant(cluster)
            cluster.admin.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
            cluster.wait_namespace(NAMESPACE)
            agents = [stack.enter_context(_agent(stack.enter_context(_hollow(cluster, number)))) for number in range(2)]
            mix = Mix(cluster, agents, random.Random(seed))
            mix.begin()
            for agent in agents:
                self.settled(agent)
            self.changes(mix)
            for agent in agents:
                until(lambda agent=agent: mix.is_ready(agent), SETTLE, f"{agent.node.name} is ready", pause=0.5)
            mix.end()
            for agent in agents:
                self.settled(agent)
                self.nothing_has_drifted(stack, mix, agent)
                self.nothing_is_left_over(mix, agent)

    def settled(self, agent):
        """Waits until the agent has nothing to do and every daemon that belongs here has its one instance."""
        def done():
            plan = agent.cli("plan")
            self.assertEqual(plan.returncode, 0, plan.stdout + plan.stderr)
            states = json.loads(agent.cli("status", "--json").stdout)
            self.assertEqual(states["agent"]["api"], "connected")
            # Such a restart goes on by itself once the kubelet shows the mirror pod again, or half a minute later.
            ordered = [d["name"] for d in states["daemons"] if "its replacement waits (its pod was deleted)" in d.get("reason", "")]
            self.assertEqual(ordered, [])
            running = _running(agent)
            self.assertEqual({name: len(found) for name, found in running.items() if len(found) != 1}, {})
            self.assertEqual(sorted(d["name"] for d in states["daemons"] if d["state"] not in ("notSelected", "standingBy")), sorted(running))
            return True
        try:
            until(done, SETTLE, f"{agent.node.name} is settled", pause=0.5)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{agent.cli('status').stdout}\n{agent.process.tail(25)}") from None

    def changes(self, mix):
        """The changes, and what the first agent's memory is meanwhile."""
        began, samples = time.monotonic(), []
        queue = mix.once_each()
        while (now := time.monotonic() - began) < SECONDS:
            mix.do(queue.pop() if queue else mix.any())
            self.assertTrue(mix.agents[0].process.alive, "the first agent is gone")
            self.assertTrue(mix.agents[1].process.alive, "the second agent is gone")
            samples.append((now, *_memory(mix.agents[0])))
            time.sleep(mix.dice.uniform(*PAUSE))
        print(f"          {sum(mix.counts.values())} changes: " + ", ".join(f"{count} {name}" for name, count in sorted(mix.counts.items())))
        windows = [[sample for sample in samples if begin <= sample[0] < begin + WINDOW] for begin in range(WARM, SECONDS - WINDOW // 2, WINDOW)]
        # A change that took long can leave one empty.
        windows = [window for window in windows if window]
        steps = [tuple(statistics.median(column) for column in zip(*window)) for window in windows]
        print("          memory: " + "; ".join(f"at {at:.0f} s {own:.1f} MiB own, {resident:.1f} resident" for at, own, resident in steps), flush=True)
        for column in (1, 2):
            self.assertLessEqual(max(step[column] for step in steps), BOUND * steps[0][column], f"memory is not flat: {steps}")

    def nothing_has_drifted(self, stack, mix, agent):
        """What runs is what an agent without any past runs on a node of the same labels and taints."""
        admin, node = mix.admin, mix.admin.get("nodes", agent.node.name)
        labels = {"soak": node["metadata"]["labels"].get("soak")} if "soak" in node["metadata"]["labels"] else {}
        bare = stack.enter_context(BareNode(mix.cluster, f"{agent.node.name}-fresh", labels=labels))
        admin.patch("nodes", bare.name, {"spec": {"taints": mix.taints[agent]}})
        fresh = Agent(bare, policy={"namespaces": [NAMESPACE]})
        fresh.folder.mkdir(parents=True)
        fresh.start()
        stack.callback(fresh.stop)
        self.settled(fresh)
        # It reaches the API server first: a file's older template would run beside its successor for ever, because
        # nothing gets ready on a node without a kubelet.
        for name in mix.files():
            (fresh.folder / name).write_bytes((agent.folder / name).read_bytes())
        files = {name.removesuffix(".json") for name in mix.files()}
        until(lambda: files <= {d["name"] for d in json.loads(fresh.cli("status", "--json").stdout)["daemons"]}, SETTLE, "the files are read")
        self.settled(fresh)
        runs, wanted = _running(agent), _running(fresh)
        self.assertGreater(len(wanted), 5)
        self.assertEqual({name: one.revision for name, [one] in runs.items()}, {name: one.revision for name, [one] in wanted.items()})
        for name, [one] in runs.items():
            self.assertEqual(_data(agent, one), _data(fresh, wanted[name][0]), f"the data of {name} on {agent.node.name}")
        fresh.stop()

    def nothing_is_left_over(self, mix, agent):
        """No record, pod folder or mirror pod of what ended, and a restart changes nothing."""
        def quiet():
            running = [one for ones in _running(agent).values() for one in ones]
            mirrors = sorted(pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] for pod in mix.admin.list("pods", NAMESPACE, fields=f"spec.nodeName={agent.node.name}"))
            self.assertEqual(mirrors, sorted(one.uid for one in running))
            self.assertEqual(sorted(path.name for path in (agent.node.root / "pods").iterdir()), sorted(one.uid for one in running))
            return True
        until(quiet, SETTLE, f"nothing is left of what ended on {agent.node.name}", pause=0.5)
        before = agent.manifests()
        agent.restart()
        self.settled(agent)
        self.assertEqual(agent.manifests(), before, "a restart of the agent changed manifests")


def _hollow(cluster, number):
    node = HollowNode(cluster, f"soak-{number}", number)
    node.socket = ""
    return node


def _agent(node):
    return Agent(node, runtime_endpoint="", kubelet_root=str(node.root), policy={"namespaces": [NAMESPACE]})


def _data(agent, one):
    """The files of an instance's volumes that come from ConfigMaps and Secrets: {path: bytes}."""
    root = agent.node.root / "pods" / one.uid / "volumes" / "kubernetes.io~empty-dir"
    return {str(path.relative_to(root)): path.read_bytes() for name in ("config", "secret") for path in sorted(root.glob(f"{name}/..data/*"))}
