"""Whether `doctor` sees that the admission policies hold an agent: each by a dry run that this policy itself has to refuse."""

import json
import subprocess
import unittest

from kit import tools
from kit.agent import binary
from kit.agent import grant
from kit.control_plane import ControlPlane
from kit.sandbox import scratch
from kit.wait import until
from suite.bare import SOON
from suite.bare import WORLD
from suite.bare import Story

PACKAGED = tools.REPO / "packaging/k8s"
POLICIES, DRY_RUN = PACKAGED / "admission-policies.yaml", PACKAGED / "rbac-dry-run.yaml"
TOKENS = "daemonlet-agent-tokens"
BINDINGS = "validatingadmissionpolicybindings"
APPROVER = PACKAGED / "approver-rbac.yaml"
APPROVALS = "daemonlet-coordinator-approvals"
WELL = "each that this agent can try refuses what it must not write; not checked from here: daemonlet-agent-writes, "


def setUpModule():  # noqa: N802 (unittest's name)
    """One API server for all, without any controller, and the agents' rights as they are packaged."""
    WORLD.cluster = unittest.enterModuleContext(ControlPlane())
    grant(WORLD.cluster)
    WORLD.cluster.admin.apply(PACKAGED / "nodedaemons.yaml", DRY_RUN)


class Policies(Story):
    """An agent with a daemon that has a token, and the policies that are taken away from it."""

    def start(self, **config):
        """The agent, with its daemon and a pod that no agent may change."""
        agent = self.start_agent(**config)
        self.addCleanup(self.admin.apply, POLICIES, DRY_RUN)
        self.admin.create("pods", {"metadata": {"name": "ordinary", "namespace": self.namespace}, "spec": {
            "automountServiceAccountToken": False, "containers": [{"name": "a", "image": "example.org/a"}]}})
        self.put(self.daemon("net", automountServiceAccountToken=True))
        self.instance(agent, "net")
        return agent

    @staticmethod
    def found(agent):
        """What doctor finds of the policies: [(level, text)]."""
        done = agent.cli("doctor", "--json")
        return [(one["level"], one["text"]) for one in json.loads(done.stdout)["findings"] if one["check"] == "admission policies"]

    def says(self, agent, *expected):
        """Waits until doctor finds exactly this: [(level, how its text begins)]. The API server takes policies over with a delay."""
        def is_so():
            found = self.found(agent)
            return len(found) == len(expected) and all(level == is_level and text.startswith(begin) for (is_level, text), (level, begin) in zip(found, expected, strict=True))
        try:
            until(is_so, SOON, f"doctor says {expected}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{agent.cli('doctor').stdout}") from None

    def test_the_policy_for_tokens_is_in_force_only_where_it_refuses_by_itself(self):
        agent = self.start()
        self.says(agent, ("ok", WELL))
        binding = self.admin.request("GET", f"/apis/admissionregistration.k8s.io/v1/{BINDINGS}/{TOKENS}")
        # A binding that only writes refusals down.
        self.admin.request("PATCH", f"/apis/admissionregistration.k8s.io/v1/{BINDINGS}/{TOKENS}", {"spec": {"validationActions": ["Audit"]}}, "application/merge-patch+json")
        self.says(agent, ("warn", f"not in force for this agent: {TOKENS}; "))
        self.admin.request("PATCH", f"/apis/admissionregistration.k8s.io/v1/{BINDINGS}/{TOKENS}", {"spec": binding["spec"]}, "application/merge-patch+json")
        self.says(agent, ("ok", WELL))
        # None at all. The API server answers such a dry run with a token, which goes nowhere.
        self.admin.kubectl("delete", BINDINGS, TOKENS)
        self.says(agent, ("warn", f"not in force for this agent: {TOKENS}; "))
        self.assertNotIn("eyJ", agent.cli("doctor", "--json").stdout)
        # Another policy that refuses the same write shows nothing of ours.
        other = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "another"}, "spec": {
            "failurePolicy": "Fail", "validations": [{"expression": "false", "message": f"ValidatingAdmissionPolicy {TOKENS} denied request"}],
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["*"], "resources": ["serviceaccounts/token"], "operations": ["CREATE"]}]}}}
        bound = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "another"},
                 "spec": {"policyName": "another", "validationActions": ["Deny"]}}
        self.admin.apply(other, bound)
        self.addCleanup(self.admin.kubectl, "delete", "--ignore-not-found", "validatingadmissionpolicies,validatingadmissionpolicybindings", "another")
        self.says(agent, ("warn", f"could not be shown to be in force: {TOKENS}: "))
        self.assertIn("ValidatingAdmissionPolicy 'another'", self.found(agent)[0][1])
        self.admin.kubectl("delete", BINDINGS, "another")
        self.admin.apply(POLICIES)
        self.says(agent, ("ok", WELL))

    def test_each_policy_that_is_not_bound_is_named(self):
        agent = self.start(policy={"namespaces": [self.namespace], "admission": "dry-run"})
        self.says(agent, ("ok", WELL))
        names = [f"daemonlet-agent-{name}" for name in ("nodedaemons", "leases", "events", "certificates", "pods", "tokens", "dry-run")]
        self.admin.kubectl("delete", BINDINGS, *names)
        self.says(agent, ("warn", f"not in force for this agent: {', '.join(names)}; its identity can write what it must not"))
        self.admin.apply(POLICIES)
        self.says(agent, ("warn", "not in force for this agent: daemonlet-agent-dry-run; "))
        self.assertIn("rbac-dry-run.yaml", agent.cli("doctor").stdout)
        self.assertIsNone(self.admin.get("pods", "daemonlet-doctor", "kube-system"), "it was a dry run")
        self.admin.apply(DRY_RUN)
        self.says(agent, ("ok", WELL))

    def test_an_identity_that_no_policy_binds_is_reported(self):
        agent = self.start(kubeconfig=str(self.admin.kubeconfig))
        self.says(agent, ("warn", "not in force for this agent: daemonlet-agent-nodedaemons, "))
        self.assertIn("daemonlet enroll", agent.cli("doctor").stdout)

    def plugin(self, kubeconfig):
        """`kubectl daemonlet doctor` with this kubeconfig: its exit code, {policy: (levels, texts)}, and what else it says."""
        plugin = scratch() / "kubectl-daemonlet"
        if not plugin.exists():
            plugin.symlink_to(binary())
        done = subprocess.run([plugin, "--kubeconfig", kubeconfig, "doctor", "-o", "json"], capture_output=True, text=True, check=False, timeout=60)
        found = {}
        for one in json.loads(done.stdout or '{"findings": []}')["findings"]:
            found.setdefault(one["check"], []).append((one["level"], one["text"]))
        return done.returncode, found, done.stderr

    def test_a_cluster_admin_tries_each_policy_in_the_name_of_whom_it_holds(self):
        self.start()
        self.admin.create("serviceaccounts", {"metadata": {"name": "any", "namespace": self.namespace}})
        account, group = "system:serviceaccount:kube-system:daemonlet-coordinator", "daemonlet:coordinators"
        kinds = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"
        names = ("daemonlet-approver", "daemonlet-bootstrapper", APPROVALS)
        remove = lambda: self.admin.kubectl("delete", "--ignore-not-found", kinds, *names)
        self.addCleanup(remove)

        def says(code, **levels):
            """Waits until each policy has these levels, `ok` unless `levels` says otherwise."""
            expected = {one: ["ok"] for one in all_of_them} | {f"daemonlet-{name.replace('_', '-')}": level.split() for name, level in levels.items() if name != "who"}
            expected |= {"who may approve": levels["who"].split()} if "who" in levels else {}
            seen = []
            def is_so():
                seen[:] = self.plugin(self.admin.kubeconfig)
                return seen[0] == code and {policy: [level for level, _ in of] for policy, of in seen[1].items()} == expected
            try:
                until(is_so, SOON, f"it says {levels}")
            except AssertionError as error:
                raise AssertionError(f"{error}\n{seen}") from None
            return seen[1]

        packaged = "".join(file.read_text(encoding="utf-8") for file in (POLICIES, DRY_RUN, APPROVER))
        all_of_them = [line.split()[1] for line in packaged.splitlines() if line.startswith("  policyName: ")]
        self.assertEqual(len(all_of_them), 11)
        found = says(0)
        self.assertEqual(found[APPROVALS], [("ok", "not needed: no subject has the ClusterRole daemonlet-approver")])
        self.assertTrue(found["daemonlet-agent-writes"][0][1].startswith("refuses what daemonlet:node:"), found)
        # In place, for the group and for the Deployment's account.
        self.admin.apply(APPROVER)
        found = says(0, coordinator_approvals="ok ok")
        self.assertEqual([text for _, text in found[APPROVALS]], [f"refuses what {group} must not write", f"refuses what {account} must not write"])
        # A policy that names another account than RBAC does.
        self.admin.kubectl("apply", "-f", "-", stdin=APPROVER.read_text(encoding="utf-8").replace(account, "system:serviceaccount:elsewhere:daemonlet-coordinator"))
        found = says(1, coordinator_approvals="ok bad")
        self.assertIn(account, found[APPROVALS][1][1])
        # Not bound, and without any.
        self.admin.apply(APPROVER)
        says(0, coordinator_approvals="ok ok")
        # Others who may: by two ClusterRoles together, and as cluster admins. A RoleBinding gives nothing.
        rbac, certificates = "rbac.authorization.k8s.io", "certificates.k8s.io"
        def bind(name, role, user, kind="ClusterRoleBinding"):
            """Binds the user to a ClusterRole."""
            return {"apiVersion": f"{rbac}/v1", "kind": kind, "metadata": {"name": name, "namespace": "default"} if kind == "RoleBinding" else {"name": name},
                    "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role}, "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}]}
        role = lambda name, verb, resource: {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": name},
                                             "rules": [{"apiGroups": [certificates], "resources": [resource], "verbs": [verb]}]}
        others = [role("doctor-writes", "update", "certificatesigningrequests/approval"), role("doctor-signs", "approve", "signers"),
                  bind("doctor-writes", "doctor-writes", "mallory"), bind("doctor-signs", "doctor-signs", "mallory"),
                  bind("doctor-admin", "cluster-admin", "boss"), bind("doctor-nothing", "daemonlet-approver", "nobody", "RoleBinding")]
        everything = json.dumps({"apiVersion": "v1", "kind": "List", "items": others})
        take_away = lambda: self.admin.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=everything)
        self.addCleanup(take_away)
        self.admin.apply(everything)
        def may(user):
            """Whether RBAC lets the user approve for the signer."""
            asked = {"verb": "approve", "group": certificates, "resource": "signers", "name": "kubernetes.io/kube-apiserver-client"}
            review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": user, "resourceAttributes": asked}}
            return self.admin.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"]
        found = says(0, coordinator_approvals="ok ok warn", who="ok warn")
        self.assertEqual(found[APPROVALS][2][1], "does not hold mallory, which may approve a certificate in anybody's name (ClusterRole doctor-signs, doctor-writes)")
        who = [text for _, text in found["who may approve"]]
        self.assertIn("boss", who[0])
        self.assertIn("by the RoleBinding default/doctor-nothing of daemonlet-approver", who[1])
        self.assertEqual([may(user) for user in ("mallory", "boss", "nobody")], [True, True, False])
        take_away()
        self.admin.kubectl("delete", BINDINGS, APPROVALS, "daemonlet-agent-writes")
        says(1, coordinator_approvals="bad bad", agent_writes="bad")
        self.admin.kubectl("delete", "validatingadmissionpolicies", APPROVALS)
        self.admin.apply(POLICIES)
        says(1, coordinator_approvals="bad bad")
        remove()
        says(0)
        # Each of the others.
        others = [one for one in all_of_them if one != APPROVALS]
        self.admin.kubectl("delete", BINDINGS, *others)
        says(1, **{one.removeprefix("daemonlet-").replace("-", "_"): "bad" for one in others})
        self.admin.apply(POLICIES, DRY_RUN)
        says(0)
        left = self.admin.kubectl("get", "certificatesigningrequests,configmaps,pods,leases,events", "-A", "-o", "name")
        self.assertNotIn("daemonlet-doctor", left, "all but one request were dry runs, and that one is deleted")
        # A user who may not impersonate sees that nothing was checked.
        code, found, error = self.plugin(self.cluster.kubeconfig("somebody", ["daemonlet:nodes"]))
        self.assertEqual((code, found), (1, {}))
        self.assertIn("no policy is checked: run it as a cluster admin", error)
