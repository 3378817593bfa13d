"""policy.admission = "dry-run": the API server's word on the pod of a new instance, as a real one gives it."""

import json
import re
import unittest

from kit import agent as agents
from kit.agent import grant
from kit.api import Refused
from kit.control_plane import ControlPlane
from kit.wait import never
from kit.wait import until
from suite.bare import SOON
from suite.bare import WORLD
from suite.bare import Story

KIND = "admissionregistration.k8s.io/v1"
RIGHTS = agents.PACKAGED / "rbac-dry-run.yaml"


def setUpModule():  # noqa: N802 (unittest's name)
    """One API server for all, without any controller, and the agents' rights as they are packaged."""
    WORLD.cluster = unittest.enterModuleContext(ControlPlane())
    grant(WORLD.cluster)


class Admission(Story):
    """What admission changes, what it refuses, and what happens where nothing answers."""

    def setUp(self):
        super().setUp()
        self.admin.apply(RIGHTS)
        until(self.may_ask, SOON, "agents may ask")

    def may_ask(self):
        """Whether agents have the right; the policy that holds them says otherwise."""
        one_agent = self.cluster.user(agents.user("somebody"), [agents.GROUP])
        try:
            one_agent.request("POST", f"/api/v1/namespaces/{self.namespace}/pods?dryRun=All", {"metadata": {"name": "a"}, "spec": {"containers": []}})
        except Refused as refused:
            return "cannot create resource" not in str(refused)
        return True

    def start(self, **policy):
        """An agent that asks."""
        return self.start_agent(policy={"namespaces": [self.namespace], "admission": "dry-run"} | policy)

    def rule(self, kind, name, **spec):
        """An admission policy for the pods of this story's namespace, in force; gives what removes it."""
        name = f"{self.namespace}-{name}"
        match = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
                 "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]}
        binding = {} if kind.startswith("Mutating") else {"validationActions": ["Deny"]}
        self.admin.apply({"apiVersion": KIND, "kind": kind, "metadata": {"name": name}, "spec": {"matchConstraints": match, "failurePolicy": "Fail"} | spec},
                         {"apiVersion": KIND, "kind": f"{kind}Binding", "metadata": {"name": name}, "spec": {"policyName": name} | binding})

        def remove():
            self.admin.kubectl("delete", "--ignore-not-found", kind.lower(), f"{kind}Binding".lower(), name)
        self.addCleanup(remove)
        return remove

    def judged(self, **metadata):
        """What the API server makes of a pod of this story's namespace."""
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"} | metadata, "spec": {"containers": [{"name": "a", "image": "a"}]}}
        return self.admin.request("POST", f"/api/v1/namespaces/{self.namespace}/pods?dryRun=All", pod)

    def about(self, agent, name):
        """The daemon's status; empty before there is one."""
        return self.status(agent, name) or {"state": "", "reason": "", "notes": [], "hints": []}

    def says_of(self, agent, name, words):
        """Waits until reason or notes of a daemon say `words`; gives its status."""
        def said():
            found = self.about(agent, name)
            return found if words in "\n".join([found["reason"], *found["notes"], *found["hints"]]) else None
        try:
            return until(said, 3 * SOON, f"{name}: {words}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.about(agent, name)}\n{agent.process.tail(25)}") from None

    def dry_runs(self):
        """How many dry runs of pods the API server has seen."""
        text = self.admin.request("GET", "/metrics")
        found = re.findall(r'^apiserver_request_total\{[^}]*dry_run="All"[^}]*resource="pods"[^}]*\} (\S+)$', text, re.M)
        return sum(int(float(number)) for number in found)

    def test_what_admission_makes_of_the_pod_is_what_runs_and_stays_the_instances(self):
        self.admin.create("limitranges", {"metadata": {"name": "least", "namespace": self.namespace},
                                          "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "7m"}}]}})
        sidecar = 'Object.spec.containers.item{name: "sidecar", image: "example.org/sidecar:1"}'
        patch = 'Object{metadata: Object.metadata{labels: {"injected": "yes"}}, spec: Object.spec{containers: [%s]}}' % sidecar
        remove = self.rule("MutatingAdmissionPolicy", "inject", reinvocationPolicy="Never", mutations=[
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": patch.replace("Object.spec.containers.item", "Object.spec.containers")}}])
        until(lambda: [c.get("resources") != {} for c in self.judged()["spec"]["containers"]] == [True, True], SOON, "policy and limits are in force")
        agent, before = self.start(), self.dry_runs()
        self.put(self.daemon("mesh"))
        first = self.instance(agent, "mesh")
        for words in ("example.org/sidecar:1", "injected: ", "cpu: 7m"):
            self.assertIn(words, first.text)
        self.assertNotRegex(first.text, r"kube-api-access-(?!token)")
        self.assertFalse(self.admin.list("pods", self.namespace), "nothing was created")
        explained = agent.cli("explain", f"{self.namespace}/mesh").stdout
        self.assertIn("yes  the API server's admission: it accepts the pod (revision ", explained)
        self.settled(agent)
        self.assertEqual(self.dry_runs() - before, 1, "one question for one instance")
        # It would answer otherwise now; what runs stays as it is, over a restart and without the API server, too.
        remove()
        until(lambda: len(self.judged()["spec"]["containers"]) == 1, SOON, "the policy is gone")
        self.admin.patch("daemonsets", "mesh", {"metadata": {"labels": {"changed": "yes"}}}, self.namespace)
        agent.restart()
        self.settled(agent)
        self.assertEqual(self.instance(agent, "mesh").text, first.text)
        self.cluster.freeze()
        try:
            agent.restart()
            never(lambda: [found.text for found in self.instances(agent, "mesh")] != [first.text], 2, "it changed without API server")
        finally:
            self.cluster.thaw()
        self.settled(agent)
        agent.cli("restart", f"{self.namespace}/mesh")
        second = self.instance(agent, "mesh", other_than=first)
        self.assertNotIn("sidecar", second.text, "the next one is asked about anew")
        self.assertEqual(second.revision, first.revision)

    def test_a_refusal_is_reported_in_the_api_servers_words_and_what_runs_stays(self):
        # No controller fills a quota in here.
        quota = {"hard": {"pods": "1"}, "used": {"pods": "1"}}
        self.admin.create("resourcequotas", {"metadata": {"name": "few", "namespace": self.namespace}, "spec": {"hard": quota["hard"]}})
        self.admin.patch("resourcequotas", "few", {"status": quota}, self.namespace, "status")
        agent = self.start()
        self.put(self.daemon("net"))
        found = self.says_of(agent, "net", "exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1")
        self.assertEqual(found["state"], "refused")
        self.assertIn("pod: the API server refuses it: pods ", found["reason"])
        self.assertFalse(self.instances(agent, "net"))
        notes = until(lambda: [e["note"] for e in self.admin.list("events", self.namespace) if e["reason"] == "Refused"], SOON, "an event")
        self.assertIn("exceeded quota: few", notes[0])
        # Its last answer holds while the API server cannot be asked.
        self.cluster.freeze()
        try:
            agent.restart()
            self.says_of(agent, "net", "exceeded quota: few")
            self.assertFalse(self.instances(agent, "net"))
        finally:
            self.cluster.thaw()
        self.admin.patch("resourcequotas", "few", {"status": {"used": {"pods": "0"}}}, self.namespace, "status")
        first = self.instance(agent, "net", seconds=60)
        self.rule("ValidatingAdmissionPolicy", "no-two", validations=[
            {"expression": "object.metadata.?annotations['image'].orValue('') != 'two'", "message": "two is not wanted here"}])
        until(lambda: self.refuses(annotations={"image": "two"}), SOON, "the policy is in force")
        self.change("net", "two")
        found = self.says_of(agent, "net", "denied request: two is not wanted here")
        self.assertIn("the old instance stays", found["reason"])
        explained = agent.cli("explain", f"{self.namespace}/net").stdout
        self.assertRegex(explained, r"no   the API server's admission: .*two is not wanted here")
        self.keeps(agent, first, "net")
        self.change("net", "three")
        self.instance(agent, "net", other_than=first)

    def refuses(self, **metadata):
        """Whether the API server refuses such a pod."""
        try:
            self.judged(**metadata)
        except Refused:
            return True
        return False

    def test_an_agent_that_may_not_ask_starts_what_is_new_and_says_what_to_grant(self):
        self.admin.delete("clusterrolebindings", "daemonlet-agents-dry-run")
        until(lambda: not self.may_ask(), SOON, "the right is gone")
        agent = self.start()
        self.put(self.daemon("net"))
        first = self.instance(agent, "net")
        self.says_of(agent, "net", "it started without the API server's check")
        found = agent.cli("doctor").stdout
        self.assertRegex(found, rf"bad +rights +may not create pods in {self.namespace}\n +hint: kubectl apply -f .*/rbac-dry-run.yaml")
        self.change("net", "two")
        found = self.says_of(agent, "net", 'cannot create resource "pods"')
        self.assertIn("what runs stays until then", found["reason"])
        self.assertRegex("\n".join(found["hints"]), "kubectl apply -f .*/rbac-dry-run.yaml")
        self.keeps(agent, first, "net")
        self.admin.apply(RIGHTS)
        until(self.may_ask, SOON, "the right is back")
        agent.cli("retry", f"{self.namespace}/net")
        self.instance(agent, "net", other_than=first, seconds=60)

    def test_a_webhook_that_is_not_served_holds_no_first_instance_up(self):
        agent = self.start()
        self.put(self.daemon("old"))
        old = self.instance(agent, "old")
        hook = {"name": "nobody.example.org", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
                "clientConfig": {"url": "https://127.0.0.1:9/nobody"}, "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}}
        self.admin.apply({"apiVersion": KIND, "kind": "ValidatingWebhookConfiguration", "metadata": {"name": self.namespace}, "webhooks": [hook]})
        self.addCleanup(self.admin.kubectl, "delete", "--ignore-not-found", "validatingwebhookconfiguration", self.namespace)
        until(self.refuses, SOON, "the webhook is in force")
        self.put(self.daemon("new"))
        self.change("old", "two")
        (agent.folder / "own.yaml").write_text(json.dumps(self.daemon("own", labels={})), encoding="utf-8")
        own = self.instance(agent, "own")
        self.instance(agent, "new", seconds=60)
        self.says_of(agent, "old", "failed calling webhook")
        self.keeps(agent, old, "old")
        # Before it goes: then the agent might ask by itself first.
        before = self.dry_runs()
        self.assertIn("ask the API server about its pod", agent.cli("retry", f"{self.namespace}/old").stdout)
        until(lambda: self.dry_runs() > before, SOON, "it asks at once")
        self.admin.kubectl("delete", "validatingwebhookconfiguration", self.namespace)
        until(lambda: not self.refuses(), SOON, "the webhook is gone")
        self.instance(agent, "old", other_than=old, seconds=120)
        self.assertEqual(self.instance(agent, "own").uid, own.uid)
