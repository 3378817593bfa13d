"""Without a container runtime to ask: the kubelet's own API says what runs."""

import unittest

from kit import agent
from kit.agent import Agent
from kit.control_plane import ControlPlane
from kit.daemons import daemonset
from kit.kubelet import Node
from kit.wait import until

NAMESPACE = "kube-system"
# Without the kubelet's answer the agent would wait for the whole grace period.
GRACE = 60


class PodStatusSource(unittest.TestCase):
    """One kubelet, and an agent that may ask it and no other component."""

    def test_a_replacement_waits_for_the_kubelets_answer_and_no_longer(self):
        cluster = self.enterContext(ControlPlane())
        cluster.start_controllers()
        cluster.wait_namespace(NAMESPACE)
        agent.grant(cluster)
        cluster.admin.apply(
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "pod-status-source"},
             "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:kubelet-api-admin"},
             "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": agent.GROUP}]})
        node = self.enterContext(Node(cluster))
        self.enterContext(Agent(node, **{"runtime-endpoint": "", "kubelet-endpoint": "https://127.0.0.1:10250"}))
        manifest = daemonset("swapped", namespace=NAMESPACE, labels={"daemonlet.dev/mode": "static"}, hostNetwork=True,
                             terminationGracePeriodSeconds=GRACE)
        cluster.admin.apply(manifest)
        first = node.cri.wait_running("swapped-", 30)
        cluster.admin.patch("daemonsets", "swapped", {"spec": {"template": {"metadata": {"annotations": {"round": "two"}}}}}, NAMESPACE)
        seen = []

        def replaced():
            pods = [pod for pod, _, _, _ in node.cri.of("swapped-")]
            seen.append(len(pods))
            return len(pods) == 1 and pods != [first[0]]
        until(replaced, GRACE / 2, "the new instance runs long before the grace period is over")
        self.assertLessEqual(max(seen), 1, "two instances ran at once")


if __name__ == "__main__":
    unittest.main()
