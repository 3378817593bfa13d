//! Who else is in the cluster: tenants, and a DaemonSet controller that acts on what is ours.
//!
//! Owns what they put there. Must not judge.

use std::path::Path;

use daemonlet::simulation::Disk;
use serde_json::Value;
use serde_json::json;

use super::api;
use super::api::Etcd;
use super::api::Refusal;
use super::api::Server;
use super::moves::Tenant;
use super::node::Heal;
use super::node::NAMESPACES;
use super::node::Node;
use super::node::SPACE;
use super::node::STATE;
use super::node::base64;

/// A namespace that policy covers and does not trust, and one that it does not cover.
pub(crate) const GUESTS: &str = "guests";
pub(crate) const OUTSIDERS: &str = "outsiders";

/// The revision of all that another cluster defines, and the version of its data: neither ever counts.
pub(crate) const THEIRS: u64 = 900_000;

impl Node {
    /// Whether the state folder, which can be used, says which cluster the node belongs to.
    pub(crate) fn knows_cluster(&self) -> bool {
        let server = self.server.lock().unwrap();
        let uid = server.get("namespaces", "", SPACE).and_then(|space| space["metadata"]["uid"].as_str());
        let inputs = (&*self.disk as &dyn Disk).text(Path::new(STATE).join("inputs.json")).unwrap_or_default();
        !self.is_state_open && uid.is_some_and(|uid| inputs.contains(uid))
    }

    /// Whether the agent may not ask which cluster answers.
    pub(crate) fn is_cluster_hidden(&self) -> bool {
        self.server.lock().unwrap().refusals.get(NAMESPACES) == Some(&Refusal::Forbidden)
    }

    /// Another cluster has a Node with this one's name, and for each daemon a DaemonSet and its objects.
    pub(crate) fn put_theirs(&self, server: &mut Server, true_one: &Etcd) {
        for (index, daemon) in self.daemons.iter().enumerate() {
            let name = &daemon.name;
            server.put("daemonsets", self.definition(index, THEIRS, true));
            let metadata = |prefix: &str| json!({"name": format!("{prefix}-{name}"), "namespace": SPACE});
            let value = format!("V={THEIRS}");
            let data = json!({"k": value, "l": value});
            server.put("configmaps", json!({"kind": "ConfigMap", "metadata": metadata("c"), "data": data}));
            let data = json!({"k": base64(value)});
            server.put("secrets", json!({"kind": "Secret", "metadata": metadata("s"), "data": data}));
        }
        server.put(
            "serviceaccounts",
            json!({"kind": "ServiceAccount", "metadata": {"name": "default", "namespace": SPACE}}),
        );
        let node = true_one.objects.get(&api::id("nodes", "", &self.name)).cloned();
        if let Some(mut node) = node {
            node["metadata"] = json!({"name": self.name, "labels": node["metadata"]["labels"]});
            node["metadata"]["labels"]["size"] = if self.is_big { "small" } else { "big" }.into();
            server.put("nodes", node);
        }
    }

    /// A tenant's DaemonSet comes, changes or goes; it has the name of one of ours.
    pub(crate) fn change_tenant(&self, number: u8, tenant: Tenant) {
        if !self.is_reachable() {
            return;
        }
        let name = format!("d{number}");
        let namespace = if tenant == Tenant::Untrusted { GUESTS } else { OUTSIDERS };
        let mut server = self.server.lock().unwrap();
        if tenant == Tenant::Gone {
            for namespace in [GUESTS, OUTSIDERS] {
                server.delete(&api::id("daemonsets", namespace, &name));
            }
            return;
        }
        let mut labels = json!({"app": name});
        if tenant != Tenant::Unlabelled {
            labels["daemonlet.dev/mode"] = "static".into();
        }
        let mut spec = json!({"containers": [{"name": "main", "image": "img:1"}]});
        match tenant {
            Tenant::Impossible => spec["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]),
            Tenant::Untrusted => spec["hostPID"] = true.into(),
            Tenant::Unlabelled | Tenant::Outside | Tenant::Gone => {}
        }
        let selector = json!({"matchLabels": {"app": name}});
        server.put(
            "daemonsets",
            json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": name, "namespace": namespace, "labels": labels,
                "annotations": {"daemonlet.dev/after": format!("{SPACE}/d1, {SPACE}/d2")}},
            "spec": {"selector": selector, "template": {"metadata": {"labels": {"app": name}}, "spec": spec}}}),
        );
    }

    /// A DaemonSet controller's pod of one of our DaemonSets is bound to this node, until a heal ends that.
    pub(crate) fn put_stock_pod(&mut self, daemon: usize, seconds: u16) {
        let name = self.daemons[daemon].name.clone();
        if !self.is_reachable() || self.daemons[daemon].api.is_none() {
            return;
        }
        let mut server = self.server.lock().unwrap();
        let Some(owner) = server.get("daemonsets", SPACE, &name).map(|object| object["metadata"]["uid"].clone()) else {
            return;
        };
        server.put(
            "pods",
            json!({"kind": "Pod", "metadata": {"name": format!("{name}-stock"), "namespace": SPACE,
                "labels": {"app": name}, "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet",
                    "name": name, "uid": owner, "controller": true}]},
            "spec": {"nodeName": self.name, "containers": [{"name": "main", "image": "img:1"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True",
                "lastTransitionTime": Value::Null}]}}),
        );
        drop(server);
        self.heal_after(seconds, Heal::StockPod(daemon as u8));
    }

    pub(crate) fn end_stock_pod(&self, daemon: u8) {
        // The controller's own way to the API server is another one than the agent's.
        let key = api::id("pods", SPACE, &format!("d{daemon}-stock"));
        self.server.lock().unwrap().delete(&key);
    }
}
