"""The rules of identity, modes and evidence: what makes an instance another one, and what ends it."""

import json
import random
import re
import time
import unittest

from kit.agent import grant
from kit.control_plane import ControlPlane
from kit.wait import never
from kit.wait import until
from suite.bare import SOON
from suite.bare import STATIC
from suite.bare import WORLD
from suite.bare import Story

OFF = {"metadata": {"labels": {"daemonlet.dev/mode": None}}}
ON = {"metadata": {"labels": STATIC}}


def setUpModule():  # noqa: N802 (unittest's name)
    """One API server for all, without any controller, and the agents' rights as they are packaged."""
    WORLD.cluster = unittest.enterModuleContext(ControlPlane())
    grant(WORLD.cluster)


class Identity(Story):
    """What makes an instance another one, and what does not."""

    def test_a_daemon_goes_from_file_to_api_and_back_without_coming_back_by_itself(self):
        agent = self.start_agent()
        file = agent.folder / "walker.yaml"
        body = self.daemon("walker", labels={})
        file.write_text(as_yaml(body), encoding="utf-8")
        first = self.instance(agent, "walker")
        self.admin.apply(file)
        until(lambda: self.status(agent, "walker")["source"] == "api", SOON, "the API's version is in force")
        self.keeps(agent, first, "walker")
        self.assertEqual(self.instance(agent, "walker").file, first.file)
        agent.restart()
        self.keeps(agent, first, "walker")
        self.remove("walker")
        self.wait_gone(agent, "walker")
        never(lambda: self.instances(agent, "walker"), 4, "a daemon that was deleted in the API came back from its file")
        agent.restart()
        file.touch()
        never(lambda: self.instances(agent, "walker"), 3, "it came back from a file that did not change")
        file.write_text(as_yaml(self.daemon("walker", labels={}, hostNetwork=True)), encoding="utf-8")
        again = self.instance(agent, "walker")
        self.assertNotEqual((again.uid, again.file), (first.uid, first.file))

    def test_every_replacement_is_another_instance(self):
        agent = self.start_agent()
        self.put(self.daemon("phoenix"))
        seen = [self.instance(agent, "phoenix")]

        def next_one():
            seen.append(self.instance(agent, "phoenix", other_than=seen[-1]))

        self.admin.patch("daemonsets", "phoenix", OFF, self.namespace)
        self.wait_gone(agent, "phoenix")
        self.admin.patch("daemonsets", "phoenix", ON, self.namespace)
        next_one()
        self.remove("phoenix")
        self.wait_gone(agent, "phoenix")
        self.put(self.daemon("phoenix"))
        next_one()
        (agent.node.manifests / seen[-1].file).unlink()
        next_one()
        agent.kill()
        (agent.node.manifests / seen[-1].file).unlink()
        agent.start()
        next_one()
        self.change("phoenix", "two")
        next_one()
        self.change("phoenix", None)
        next_one()
        self.assertEqual(seen[0].revision, seen[-1].revision, "the template is as at first")
        self.assertEqual(len({one.uid for one in seen}), len(seen), "a UID was used again")
        self.assertEqual(len({one.file for one in seen}), len(seen), "a pod's name was used again")
        self.assertEqual([one.number for one in seen], sorted({one.number for one in seen}), "the numbers do not rise")

    def test_no_crash_makes_a_uid_come_back(self):
        agent = self.start_agent()
        self.put(self.daemon("crashed"))
        order, ended = [], set()

        def look():
            there = {one.uid: one.number for one in self.instances(agent, "crashed")}
            self.assertLessEqual(len(there), 1, "two instances of a daemon that did not ask for surge")
            back = ended & set(there)
            self.assertFalse(back, f"a UID came back: {back} of {order}")
            for uid in there:
                if uid not in order:
                    order.append(uid)
            ended.update(uid for uid in order if uid not in there)
            return order

        until(look, SOON, "the first instance")
        dice = random.Random(7)
        for round_ in range(8):
            before = len(order)
            if round_ % 2:
                self.change("crashed", str(round_))
            else:
                for one in self.instances(agent, "crashed"):
                    (agent.node.manifests / one.file).unlink(missing_ok=True)
            until_ = time.monotonic() + dice.random() * (0.4 if round_ < 6 else 3)
            while time.monotonic() < until_:
                look()
            agent.kill()
            look()
            agent.start()
            until(lambda: len(look()) > before, SOON, f"an instance after crash {round_}")
        self.assertGreater(len(order), 8)

    def test_a_lost_state_takes_over_what_runs(self):
        agent = self.start_agent()
        self.put(self.daemon("orphaned-state"))
        first = self.instance(agent, "orphaned-state")
        self.remove_manifest(agent, first)
        second = self.instance(agent, "orphaned-state", other_than=first)
        agent.kill()
        for file in sorted((agent.home / "state").rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()
        agent.start()
        self.settled(agent)
        self.keeps(agent, second, "orphaned-state")
        self.remove_manifest(agent, second)
        third = self.instance(agent, "orphaned-state", other_than=second)
        self.assertEqual(len({first.uid, second.uid, third.uid}), 3)

    def remove_manifest(self, agent, instance):
        """As an operator would."""
        (agent.node.manifests / instance.file).unlink()


class Modes(Story):
    """Which DaemonSets are ours."""

    def test_labels_default_mode_and_namespaces_decide(self):
        self.put(self.daemon("labelled"))
        self.put(self.daemon("plain", labels={}))
        self.put(self.daemon("wrong", labels={"daemonlet.dev/mode": "yes"}))
        careful = self.start_agent(self.node("-careful"))
        eager = self.start_agent(self.node("-eager"), default_mode="static")
        foreign = self.start_agent(self.node("-foreign"), default_mode="static", policy={"namespaces": ["elsewhere"]})
        self.instance(careful, "labelled")
        self.instance(eager, "labelled")
        self.instance(eager, "plain")
        self.settled(foreign)
        never(lambda: self.instances(careful, "plain") + self.instances(foreign, "labelled") + self.instances(eager, "wrong"), 2,
              "a DaemonSet that is not covered runs")
        explained = careful.cli("explain", f"{self.namespace}/plain")
        self.assertIn("no label daemonlet.dev/mode", explained.stdout)
        self.assertEqual(explained.returncode, 0, explained.stdout)
        self.assertIn(f"{self.namespace}/plain on {careful.node.name}: left alone (mode: labelled)\n", explained.stdout)
        selects = f"kubectl -n {self.namespace} label --overwrite daemonset plain daemonlet.dev/mode=static"
        self.assertIn(f"hint: to run it here: {selects}\n", explained.stdout)
        # Not one daemon here, and yet no riddle.
        for shown, code in ((foreign.cli("status"), 0), (foreign.cli("plan"), 0)):
            self.assertEqual(shown.returncode, code, shown.stdout)
            # Other stories of this file may have left some, too.
            self.assertRegex(shown.stdout, r"(?m)^left alone \(policy.namespaces\): \d+ DaemonSets of the API: \S+/\S+, ")
            self.assertRegex(shown.stdout, r'(?m)^hint: \S+/\S+: to run it here: add "\S+" to policy.namespaces')
        alone = json.loads(foreign.cli("status", "--json").stdout)["leftAlone"]
        self.assertIn("namespace", [one["cause"] for one in alone])
        explained = foreign.cli("explain", f"{self.namespace}/labelled").stdout
        self.assertIn(f"namespace {self.namespace} is not among policy.namespaces (elsewhere)", explained)
        self.assertIn("neither static nor bootstrap", eager.cli("explain", f"{self.namespace}/wrong").stdout)

    def test_the_folder_stays_in_force_where_policy_refuses_the_api(self):
        agent = self.start_agent(policy={"namespaces": ["elsewhere"]})
        (agent.folder / "own.yaml").write_text(as_yaml(self.daemon("own", labels={})), encoding="utf-8")
        first = self.instance(agent, "own")
        self.put(self.daemon("own", labels={}))
        until(lambda: any("the folder's stays in force" in note for note in self.status(agent, "own")["notes"]), SOON,
              f"status says so: {self.status(agent, 'own')}")
        self.change("own", "other")
        self.keeps(agent, first, "own", 3)
        self.remove("own")
        self.keeps(agent, first, "own", 3)
        (agent.folder / "own.yaml").unlink()
        self.wait_gone(agent, "own")

    def test_a_class_that_no_kubelet_takes_changes_nothing_of_what_runs(self):
        agent = self.start_agent()
        file, name = agent.folder / "classy.yaml", f"{self.namespace}-class"

        def write(policy, overhead):
            body = self.daemon("classy", labels={}, priorityClassName=name, runtimeClassName=name)
            priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 5,
                        "preemptionPolicy": policy}
            runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": "runc",
                       "overhead": {"podFixed": overhead}}
            file.write_text("\n---\n".join(map(as_yaml, (body, priority, runtime))), encoding="utf-8")

        write("Never", {"cpu": "10m"})
        # What the environment says of Services comes with the API server.
        until(lambda: "KUBERNETES_SERVICE_HOST" in self.instance(agent, "classy").text, SOON, "the whole environment is written")
        self.settled(agent)
        first = self.instance(agent, "classy")
        for policy, overhead, words in (
                ("never", {"cpu": "10m"}, f"preemptionPolicy of PriorityClass {name}: must be"),
                ("Never", {"cpu": "10m", "gpu": 1}, rf"overhead\.podFixed\[gpu\] of RuntimeClass {name}: must be")):
            write(policy, overhead)
            self.says(agent, words)
            self.assertEqual(self.instance(agent, "classy"), first, "the manifest was written anew")
            write("Never", {"cpu": "10m"})
            until(lambda: not re.search("of (Priority|Runtime)Class", agent.cli("status").stdout), SOON, "it is taken again")
        write("PreemptLowerPriority", {"cpu": "20m"})
        changed = lambda: "PreemptLowerPriority" in self.instance(agent, "classy").text  # noqa: E731
        until(changed, SOON, "a good class is written in place")
        self.assertEqual(self.instance(agent, "classy").uid, first.uid)

    def test_a_missing_namespace_is_default_and_nothing_is_made_for_it(self):
        agent = self.start_agent()
        body = self.daemon("homeless", labels={})
        del body["metadata"]["namespace"]
        (agent.folder / "homeless.yaml").write_text(as_yaml(body), encoding="utf-8")
        self.assertTrue(self.instance(agent, "homeless").file.startswith("default_homeless-"))
        lonely = self.daemon("lonely", labels={}, serviceAccountName="nobody", automountServiceAccountToken=True)
        lonely["metadata"]["namespace"] = "nowhere"
        (agent.folder / "lonely.yaml").write_text(as_yaml(lonely), encoding="utf-8")
        self.says(agent, "nowhere/lonely.*waiting.*nowhere/nobody")
        self.assertIsNone(self.admin.get("namespaces", "nowhere"))
        self.assertIsNone(self.admin.get("serviceaccounts", "nobody", "nowhere"))


class Gone(Story):
    """What is evidence enough to end what runs."""

    def down(self, agent):
        """Stops an agent with all it knows on disk."""
        self.settled(agent)
        agent.stop()

    def test_a_deletion_seen_live_ends_it(self):
        agent = self.start_agent()
        self.put(self.daemon("seen"))
        self.instance(agent, "seen")
        self.settled(agent)
        self.remove("seen")
        self.wait_gone(agent, "seen")

    def test_a_deletion_that_no_agent_saw_ends_it(self):
        agent = self.start_agent()
        self.put(self.daemon("unseen"))
        self.instance(agent, "unseen")
        self.down(agent)
        self.remove("unseen")
        agent.start()
        self.wait_gone(agent, "unseen")

    def test_without_the_right_to_ask_nothing_ends(self):
        agent = self.start_agent(kubeconfig=str(self.cluster.kubeconfig(f"blind-{self.namespace}", ["blind"])))
        role = self.admin.get("clusterroles", "daemonlet-agent")
        rules = [rule | {"verbs": [verb for verb in rule["verbs"] if "daemonsets" not in rule["resources"] or verb != "get"]} for rule in role["rules"]]
        self.admin.apply(
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "blind"}, "rules": rules},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "blind"},
             "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "blind"},
             "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "blind"}]})
        self.put(self.daemon("kept"))
        self.put(self.daemon("switched"))
        kept, switched = self.instance(agent, "kept"), self.instance(agent, "switched")
        self.remove("kept")
        self.admin.patch("daemonsets", "switched", OFF, self.namespace)
        self.says(agent, "kept.*could not be confirmed.*forbidden")
        self.says(agent, "switched.*could not be confirmed.*forbidden")
        self.keeps(agent, kept, "kept", 6)
        self.keeps(agent, switched, "switched", 1)
        self.admin.apply({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "blind"}, "rules": role["rules"]})
        self.wait_gone(agent, "kept")
        self.wait_gone(agent, "switched")

    def test_the_label_taken_away_ends_it(self):
        agent = self.start_agent()
        self.put(self.daemon("unlabelled"))
        first = self.instance(agent, "unlabelled")
        self.down(agent)
        self.admin.patch("daemonsets", "unlabelled", OFF, self.namespace)
        agent.start()
        self.wait_gone(agent, "unlabelled")
        self.admin.patch("daemonsets", "unlabelled", ON, self.namespace)
        self.instance(agent, "unlabelled", other_than=first)

    def test_a_namespace_that_is_not_allowed_any_more_ends_it_once_it_is_released(self):
        agent = self.start_agent()
        self.put(self.daemon("banned"))
        first = self.instance(agent, "banned")
        self.down(agent)
        agent.config["policy"] = {"namespaces": ["elsewhere"]}
        agent.start()
        self.says(agent, "no longer selects it")
        self.keeps(agent, first, "banned", 1)
        done = agent.cli("release", f"{self.namespace}/banned")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.wait_gone(agent, "banned")

    def test_a_selector_that_does_not_match_any_more_ends_it(self):
        agent = self.start_agent(selector="tier=node")
        self.put(self.daemon("tiered", labels=STATIC | {"tier": "node"}))
        self.instance(agent, "tiered")
        self.settled(agent)
        self.admin.patch("daemonsets", "tiered", {"metadata": {"labels": {"tier": "other"}}}, self.namespace)
        self.wait_gone(agent, "tiered")

    def test_a_foreground_deletion_ends_it_while_the_object_is_still_there(self):
        agent = self.start_agent()
        self.put(self.daemon("foreground"))
        self.instance(agent, "foreground")
        self.remove("foreground", propagationPolicy="Foreground")
        self.wait_gone(agent, "foreground")
        left = self.admin.get("daemonsets", "foreground", self.namespace)
        self.assertEqual(left["metadata"]["finalizers"], ["foregroundDeletion"])
        self.admin.patch("daemonsets", "foreground", {"metadata": {"finalizers": None}}, self.namespace)
        never(lambda: self.instances(agent, "foreground"), 1, "it came back")

    def test_an_orphaned_daemon_stays(self):
        agent = self.start_agent()
        self.put(self.daemon("child"))
        first = self.instance(agent, "child")
        self.remove("child", propagationPolicy="Orphan")
        until(lambda: self.status(agent, "child")["state"] == "orphaned", SOON, "status says that it is orphaned")
        self.admin.patch("daemonsets", "child", {"metadata": {"finalizers": None}}, self.namespace)
        until(lambda: self.admin.get("daemonsets", "child", self.namespace) is None, 5, "the DaemonSet is gone")
        self.keeps(agent, first, "child", 4)
        self.assertEqual(self.status(agent, "child")["state"], "orphaned")
        agent.restart()
        self.settled(agent)
        self.keeps(agent, first, "child", 2)
        self.assertEqual(self.status(agent, "child")["state"], "orphaned")
        self.put(self.daemon("child"))
        until(lambda: self.status(agent, "child")["state"] != "orphaned", SOON, "the new DaemonSet takes it")
        self.keeps(agent, first, "child", 1)

    def test_another_finalizer_is_waited_for(self):
        agent = self.start_agent()
        body = self.daemon("held")
        body["metadata"]["finalizers"] = ["tests.example/hold"]
        self.put(body)
        first = self.instance(agent, "held")
        self.remove("held")
        self.says(agent, "held.*waits for its finalizers")
        self.keeps(agent, first, "held", 1)
        self.admin.patch("daemonsets", "held", {"metadata": {"finalizers": None}}, self.namespace)
        self.wait_gone(agent, "held")

    def test_placement_ends_it(self):
        agent = self.start_agent(self.node(labels={"disk": "fast"}))
        self.put(self.daemon("picky", nodeSelector={"disk": "fast"}))
        first = self.instance(agent, "picky")
        agent.node.label(disk="slow")
        self.wait_gone(agent, "picky")
        agent.node.label(disk="fast")
        self.instance(agent, "picky", other_than=first)
        agent.stop()
        agent.node.label(disk="slow")
        agent.start()
        self.wait_gone(agent, "picky")

    def test_a_node_object_that_is_gone_ends_nothing(self):
        agent = self.start_agent(self.node(labels={"disk": "fast"}))
        self.put(self.daemon("rooted", nodeSelector={"disk": "fast"}))
        first = self.instance(agent, "rooted")
        self.settled(agent)
        self.admin.delete("nodes", agent.node.name)
        self.keeps(agent, first, "rooted", 3)
        agent.restart()
        self.keeps(agent, first, "rooted", 3)
        agent.node.register()
        self.keeps(agent, first, "rooted", 2)

    def test_a_file_that_is_gone_ends_its_daemon_and_a_missing_folder_does_not(self):
        agent = self.start_agent()
        file = agent.folder / "filed.yaml"
        file.write_text(as_yaml(self.daemon("filed", labels={})), encoding="utf-8")
        first = self.instance(agent, "filed")
        self.settled(agent)
        aside = agent.folder.with_name("aside")
        agent.folder.rename(aside)
        self.keeps(agent, first, "filed", 2)
        agent.restart()
        self.keeps(agent, first, "filed", 2)
        aside.rename(agent.folder)
        self.keeps(agent, first, "filed", 1)
        file.unlink()
        self.wait_gone(agent, "filed")


def as_yaml(body):
    """A DaemonSet as a file; JSON is YAML."""
    return json.dumps(body, indent=1)


if __name__ == "__main__":
    unittest.main()
