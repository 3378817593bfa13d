//! The Node of the API as decisions see it.
//!
//! Owns which of its fields they go by. Must not remember it.

use serde_json::Value;

use crate::core::model::NodeView;

/// The Node of the API as decisions see it.
pub(in crate::node::agent) fn node_view(value: &Value) -> NodeView {
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let labels = value.pointer("/metadata/labels").and_then(Value::as_object);
    let taints = value.pointer("/spec/taints").cloned().unwrap_or_default();
    NodeView {
        name: text("/metadata/name").unwrap_or_default(),
        uid: text("/metadata/uid"),
        labels: labels.into_iter().flatten().filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect(),
        taints: serde_json::from_value(taints).unwrap_or_default(),
        kubelet_version: text("/status/nodeInfo/kubeletVersion").filter(|v| !v.is_empty()),
        allocatable: value.pointer("/status/allocatable").and_then(crate::core::node::allocatable),
        unschedulable: value.pointer("/spec/unschedulable").is_some_and(|is| is == true),
        registered: true,
    }
}

/// Major and minor of a version such as `v1.36.2`.
pub(in crate::node::agent) fn major_minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split('.');
    let number = |part: Option<&str>| part?.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok();
    Some((number(parts.next())?, number(parts.next())?))
}
