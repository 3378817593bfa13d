//! What this node has too little of for an instance, by what the API server shows of its pods.
//!
//! Owns which pods count: those that have not ended. Must not say what the kubelet does about it.

use serde_json::Value;

use crate::core::insufficient;
use crate::core::insufficient::Amounts;
use crate::core::insufficient::Holder;
use crate::core::insufficient::Lack;
use crate::core::json::Json;
use crate::core::model::ObjectKey;
use crate::core::record::Instance;
use crate::node::api::Scope;

use super::evidence;
use super::observation::Observation;

/// The pods of this node and what it has for them.
pub(super) struct Room<'a> {
    node: &'a str,
    allocatable: Amounts,
    holders: Vec<Holder<'a>>,
}

impl<'a> Room<'a> {
    /// `None`: the API server has not said which pods the node `node` has.
    pub(super) fn of(observation: &'a Observation, node: &'a str) -> Option<Self> {
        let api = observation.snapshot().filter(|api| api.lists(&Scope::Pods) > 0)?;
        let list = api.node.as_ref().and_then(|node| node.value.at(["status", "allocatable"]));
        let is_there = |pod: &Value| !matches!(pod.str_at(["status", "phase"]), "Failed" | "Succeeded");
        let pods = api.pods.iter().filter(|(_, pod)| is_there(&pod.value));
        let holders = pods.map(|(key, pod)| Holder::new(key, &pod.value)).collect();
        Some(Self { node, allocatable: Amounts::of_list(list.unwrap_or(&Value::Null)), holders })
    }

    /// What there is too little of for `instance` of the DaemonSet `key`.
    pub(super) fn lacks(&self, key: &ObjectKey, instance: &Instance) -> Vec<Lack> {
        let Some(definition) = &instance.daemon_set else { return Vec::new() };
        let own = evidence::mirror_key(&key.namespace, &instance.pod_name, self.node);
        let others: Vec<&Holder<'_>> = self.holders.iter().filter(|holder| *holder.key() != own).collect();
        insufficient::lacks(definition.pod_template(), &self.allocatable, &others)
    }
}
