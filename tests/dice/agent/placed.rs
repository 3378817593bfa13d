//! The Node of a node: whether it is ready, and whether the DaemonSet selects it.

use daemonlet::core::cluster::snapshot::WatchedKind;
use daemonlet::core::json::Json;
use daemonlet::core::model::ObjectKey;
use daemonlet::core::time::Span;
use daemonlet::core::time::Timestamp;
use serde_json::Value;
use serde_json::json;

use super::SEEN_AFTER;
use crate::api::Api;

/// The label by which the DaemonSet selects its Nodes.
pub(crate) const ROLE: &str = "role";

/// What a Node is and has been.
#[derive(Default)]
pub(crate) struct Placed {
    /// Since when it is NotReady, and until when.
    pub(crate) not_ready: Option<(Timestamp, Timestamp)>,
    /// Until when the DaemonSet does not select it.
    pub(crate) elsewhere: Option<Timestamp>,
    /// When it was Ready again, and selected again.
    ready_again: Timestamp,
    selected_again: Timestamp,
    /// What the agent has read: whether it is elsewhere, and whether a taint keeps new instances from it.
    read: (bool, bool),
}

impl Placed {
    pub(crate) fn is_ready(&self) -> bool {
        self.not_ready.is_none()
    }

    pub(crate) fn is_selected(&self) -> bool {
        self.elsewhere.is_none()
    }

    /// Whether the DaemonSet should run there: it tolerates no taint.
    pub(crate) fn should_run(&self, name: &str) -> bool {
        self.is_selected() && (self.is_ready() || zone(name) == "a")
    }

    /// It is Ready again, and selected, where that is to be so `by` then. Gives whether anything has changed.
    pub(crate) fn recover(&mut self, by: Timestamp, now: Timestamp) -> bool {
        let is_ready = self.not_ready.take_if(|(_, until)| *until <= by).is_some();
        if is_ready {
            self.ready_again = now;
        }
        let is_selected = self.elsewhere.take_if(|until| *until <= by).is_some();
        if is_selected {
            self.selected_again = now;
        }
        is_selected || is_ready
    }

    /// Whether coordinators knew that it was Ready when an approval was given, which has the time in whole seconds.
    pub(crate) fn was_known_ready(&self, approved_at: Timestamp) -> bool {
        let was_ready = self.not_ready.is_none_or(|(since, _)| approved_at + Span::from_secs(1) <= since);
        self.ready_again + SEEN_AFTER <= approved_at && was_ready
    }

    /// Whether a coordinator may have seen it with taints that the DaemonSet does not tolerate when an approval was given.
    pub(crate) fn may_have_had_taints(&self, name: &str, approved_at: Timestamp) -> bool {
        zone(name) == "b" && !self.was_known_ready(approved_at)
    }

    /// Whether a coordinator may have seen it while the DaemonSet did not select it, when an approval was given.
    pub(crate) fn may_have_been_elsewhere(&self, approved_at: Timestamp) -> bool {
        self.elsewhere.is_some() || approved_at < self.selected_again + SEEN_AFTER
    }

    /// Whether coordinators knew that it was NotReady, as it is now, when an approval was given.
    pub(crate) fn was_known_not_ready(&self, approved_at: Timestamp) -> bool {
        self.not_ready.is_some_and(|(since, _)| since + SEEN_AFTER <= approved_at)
    }

    /// The agent reads the Node.
    pub(super) fn read(&mut self, api: &Api, name: &str) {
        if let Some(node) = api.get(WatchedKind::Nodes, &ObjectKey::new("", name)) {
            let is_elsewhere = node["metadata"]["labels"][ROLE] != "net";
            self.read = (is_elsewhere, !node["spec"].list_at("taints").is_empty());
        }
    }

    pub(super) fn is_read_elsewhere(&self) -> bool {
        self.read.0
    }

    pub(super) fn is_read_tainted(&self) -> bool {
        self.read.1
    }

    /// The Node, as Kubernetes writes it. In one zone it has the taints that the DaemonSet does not tolerate, in the other
    /// none, as if that tolerated them.
    pub(crate) fn node(&self, (name, uid): (&str, &str), is_unreachable: bool) -> Value {
        let (ready, taint) = match (is_unreachable, self.is_ready()) {
            (true, _) => ("Unknown", "unreachable"),
            (false, false) => ("False", "not-ready"),
            (false, true) => ("True", ""),
        };
        let zone = zone(name);
        let is_tainted = zone == "b" && ready != "True";
        let taint = json!({"key": format!("node.kubernetes.io/{taint}"), "effect": "NoSchedule"});
        let taints: Vec<Value> = is_tainted.then_some(taint).into_iter().collect();
        let role = if self.is_selected() { "net" } else { "other" };
        json!({"metadata": {"name": name, "uid": uid, "labels": {"zone": zone, ROLE: role}}, "spec": {"taints": taints},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    }
}

fn zone(name: &str) -> &'static str {
    if name.ends_with(['0', '2', '4', '6', '8']) { "a" } else { "b" }
}
