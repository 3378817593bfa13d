"""What the node's owner and the namespaces allow: [policy], PodSecurity, node selectors of namespaces."""

import json
import unittest

from kit.agent import grant
from kit.api import Refused
from kit.control_plane import ControlPlane
from kit.wait import never
from kit.wait import until
from suite.bare import SOON
from suite.bare import WORLD
from suite.bare import Story

LEVEL = "pod-security.kubernetes.io/enforce"
SELECTOR = "openshift.io/node-selector"
PRIVILEGED = {"securityContext": {"privileged": True}}


def setUpModule():  # noqa: N802 (unittest's name)
    """One API server for all, without any controller, and the agents' rights as they are packaged."""
    WORLD.cluster = unittest.enterModuleContext(ControlPlane())
    grant(WORLD.cluster)


class Policy(Story):
    """What may start, and what is said where it may not."""

    def enforce(self, level):
        """Sets the PodSecurity level of the story's namespace, None removes it."""
        self.admin.patch("namespaces", self.namespace, {"metadata": {"labels": {LEVEL: level}}})
        # An agent that has not looked yet takes it from the API server's cache, as admission does.
        cached = f"/api/v1/namespaces?resourceVersion=0&fieldSelector=metadata.name%3D{self.namespace}"
        until(lambda: self.admin.request("GET", cached)["items"][0]["metadata"]["labels"].get(LEVEL) == level, SOON, "the cache has it")

    def select(self, text):
        """Sets the node selector of the story's namespace, None removes it."""
        self.admin.patch("namespaces", self.namespace, {"metadata": {"annotations": {SELECTOR: text}}})

    def about(self, agent, name):
        """The daemon's status; empty before there is one."""
        return self.status(agent, name) or {"state": "", "reason": "", "notes": [], "hints": []}

    def refused(self, agent, name, words):
        """Waits until the daemon is refused with these words; gives its status."""
        found = until(lambda: next((s for s in [self.about(agent, name)] if s["state"] == "refused"), None), SOON, f"{name} is refused")
        self.assertIn(words, found["reason"])
        self.assertFalse(self.instances(agent, name))
        return found

    def test_the_namespaces_level_refuses_a_pod_as_the_api_server_would(self):
        agent = self.start_agent()
        self.enforce("baseline")
        self.put(self.daemon("mighty", PRIVILEGED))
        status = self.refused(agent, "mighty", 'violates PodSecurity "baseline:latest": privileged (container')
        self.assertIn(f"kubectl label --overwrite namespace {self.namespace} {LEVEL}=privileged", "\n".join(status["hints"]))
        explained = agent.cli("explain", f"{self.namespace}/mighty").stdout
        self.assertIn(f"no   pod: namespace {self.namespace}: violates PodSecurity", explained)
        # The API server says the same of the pod that its own controller would create.
        template = self.daemon("mighty", PRIVILEGED)["spec"]["template"]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "same", "namespace": self.namespace}, "spec": template["spec"]}
        with self.assertRaises(Refused) as refusal:
            self.admin.create("pods", pod)
        said = status["reason"].split("violates PodSecurity ")[1]
        self.assertIn(f"violates PodSecurity {said}", str(refusal.exception).replace('\\"', '"'))
        # A folder's daemon is the node owner's word; what becomes of its mirror pod is said.
        folder = agent.folder / "own.yaml"
        folder.write_text(json.dumps(self.daemon("own", PRIVILEGED, labels={})), encoding="utf-8")
        self.instance(agent, "own")
        self.assertIn("the API refuses its mirror pod", "\n".join(self.about(agent, "own")["notes"]))
        # Without the level it starts; with it again it stays, and a change of it is refused.
        self.enforce(None)
        first = self.instance(agent, "mighty")
        self.enforce("restricted")
        until(lambda: "a new instance would be refused" in "\n".join(self.about(agent, "mighty")["notes"]), SOON, "it is said of what runs")
        self.change("mighty", "two")
        until(lambda: "violates PodSecurity" in self.about(agent, "mighty")["reason"], SOON, "the change is refused")
        never(lambda: self.instance(agent, "mighty").uid != first.uid, 3, "what ran was replaced")

    def test_the_nodes_rules_bind_the_api_and_not_the_folders(self):
        agent = self.start_agent(policy={"namespaces": [self.namespace], "trusted-namespaces": []})
        self.put(self.daemon("mighty", PRIVILEGED, hostNetwork=True))
        status = self.refused(agent, "mighty", 'policy.pod-security forbids it ("baseline:latest"): privileged')
        self.assertIn("host namespaces (hostNetwork=true)", status["reason"])
        self.assertIn(f'change the template, or add "{self.namespace}" to policy.trusted-namespaces', "\n".join(status["hints"]))
        (agent.folder / "own.yaml").write_text(json.dumps(self.daemon("own", PRIVILEGED, labels={})), encoding="utf-8")
        own = self.instance(agent, "own")
        # A change through the API of what the folder has is checked; the folder's stays in force.
        self.put(self.daemon("own", PRIVILEGED, labels={}, hostPID=True))
        until(lambda: "the folder's stays in force" in "\n".join(self.about(agent, "own")["notes"]), SOON, "the API's version is refused")
        self.assertEqual(self.instance(agent, "own").uid, own.uid)
        agent.stop()
        agent.config["policy"] |= {"trusted-namespaces": [self.namespace]}
        agent.start()
        self.instance(agent, "mighty")
        self.instance(agent, "own", other_than=own)

    def test_the_namespaces_node_selector_takes_part_in_placement(self):
        agent = self.start_agent(policy={"namespaces": [self.namespace], "default-node-selector": "disk=hdd"})
        self.put(self.daemon("choosy"))
        until(lambda: "policy.default-node-selector" in self.about(agent, "choosy")["reason"], SOON, "the default keeps it away")
        self.select("")
        first = self.instance(agent, "choosy")
        self.select("disk=ssd")
        self.wait_gone(agent, "choosy")
        explained = agent.cli("explain", f"{self.namespace}/choosy").stdout
        self.assertIn(f"node selector of the namespace: disk=ssd ({SELECTOR} of namespace {self.namespace}): the node does not match", explained)
        agent.node.label(disk="ssd")
        self.instance(agent, "choosy", other_than=first)
