//! The node lifecycle controller: a Node that is not Ready has taints for that, until it is.
//!
//! Owns what it writes on the Node. Must not judge.

use serde_json::Value;
use serde_json::json;

use super::api;
use super::moves::NotReady;
use super::node::Heal;
use super::node::Node;

/// Taints that a Node has for its condition.
const KEYS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

impl Node {
    /// The Node stops being Ready, for so long. The controller reaches the API server on its own way.
    pub(crate) fn end_ready(&mut self, why: NotReady, seconds: u16) {
        if self.not_ready.is_none() && self.other.is_none() {
            self.not_ready = Some(why);
            self.write_condition();
            self.heal_after(seconds, Heal::Ready);
        }
    }

    /// What the API server shows of it, the agent of this boot knows.
    pub(crate) fn show_readiness(&mut self) {
        if self.has_agent && self.is_reachable() {
            self.seems_unready = self.not_ready.is_some();
        }
    }

    pub(crate) fn be_ready(&mut self) {
        self.not_ready = None;
        // What the controller of another cluster knows of is another Node.
        if self.other.is_none() {
            self.write_condition();
        }
    }

    /// The condition of the Node in the API server, and its taints.
    pub(crate) fn write_condition(&self) {
        let status = match self.not_ready {
            None => "True",
            Some(NotReady::Unwell) => "False",
            Some(NotReady::Unreachable) => "Unknown",
        };
        let taints = self.condition_taints();
        let key = api::id("nodes", "", &self.name);
        self.server.lock().unwrap().change(&key, |node| {
            let conditions = node["status"]["conditions"].as_array_mut().into_iter().flatten();
            conditions.filter(|it| it["type"] == "Ready").for_each(|ready| ready["status"] = status.into());
            let mut all = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
            all.retain(|taint| !KEYS.iter().any(|key| taint["key"] == *key));
            all.extend(taints);
            node["spec"]["taints"] = all.into();
        });
    }

    fn condition_taints(&self) -> Vec<Value> {
        let [unwell, unreachable] = KEYS;
        let key = match self.not_ready {
            None => return Vec::new(),
            Some(NotReady::Unwell) => unwell,
            Some(NotReady::Unreachable) => unreachable,
        };
        ["NoSchedule", "NoExecute"].map(|effect| json!({"key": key, "effect": effect})).into()
    }
}
