//! What this node has too little of for an instance, by what the API server shows of its pods.
//!
//! Owns which pods count: those that have not ended, but for an instance's own predecessor, which ends as it starts. Must not
//! say what the kubelet does about it.

use serde_json::Value;

use crate::core::insufficient;
use crate::core::insufficient::Amounts;
use crate::core::insufficient::Lack;
use crate::core::insufficient::PodResources;
use crate::core::json::Json;
use crate::core::model::ObjectKey;
use crate::core::record::Instance;
use crate::node::api::Scope;

use super::super::observation::Observation;
use super::mirror_key;

/// The pods of this node and what it has for them.
pub(in crate::node::agent) struct NodeRoom<'a> {
    node: &'a str,
    allocatable: Amounts,
    /// Each with the name of its DaemonSet, if it is being deleted.
    holders: Vec<(PodResources<'a>, Option<&'a str>)>,
}

impl<'a> NodeRoom<'a> {
    /// `None`: the API server has not listed the pods of the node `node`.
    pub(in crate::node::agent) fn of(observation: &'a Observation, node: &'a str) -> Option<Self> {
        let api = observation.snapshot().filter(|api| api.lists(&Scope::Pods) > 0)?;
        let list = api.node.as_ref().and_then(|node| node.value.at(["status", "allocatable"]));
        let is_there = |pod: &Value| !matches!(pod.str_at(["status", "phase"]), "Failed" | "Succeeded");
        let pods = api.pods.iter().filter(|(_, pod)| is_there(&pod.value));
        let holders = pods.map(|(key, pod)| (PodResources::new(key, &pod.value), ends(&pod.value))).collect();
        Some(Self { node, allocatable: Amounts::of_list(list.unwrap_or(&Value::Null)), holders })
    }

    /// What there is too little of for `instance` of the DaemonSet `key`.
    pub(in crate::node::agent) fn lacks(&self, key: &ObjectKey, instance: &Instance) -> Vec<Lack> {
        let Some(definition) = &instance.daemon_set else { return Vec::new() };
        let own = mirror_key(&key.namespace, &instance.pod_name, self.node);
        let is_other = |(holder, ends): &&(PodResources<'_>, Option<&str>)| {
            *holder.key() != own && (holder.key().namespace != key.namespace || *ends != Some(key.name.as_str()))
        };
        let others: Vec<&PodResources<'_>> = self.holders.iter().filter(is_other).map(|(holder, _)| holder).collect();
        insufficient::lacks(definition.pod_template(), &self.allocatable, &others)
    }
}

/// The name of the DaemonSet of a pod that is being deleted.
fn ends(pod: &Value) -> Option<&str> {
    let metadata = pod.at("metadata").filter(|metadata| metadata.at("deletionTimestamp").is_some())?;
    let owner = metadata.list_at("ownerReferences").iter().find(|owner| owner.str_at("kind") == "DaemonSet")?;
    owner.text_at("name")
}
