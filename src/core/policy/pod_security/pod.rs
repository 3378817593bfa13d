//! A pod as the checks see it.
//!
//! Owns the few API defaults that matter to a check. Must not judge.

use std::borrow::Cow;

use serde_json::Value;
use serde_json::json;

use crate::core::json::Json;

/// A pod's metadata and spec.
pub(super) struct CheckedPod<'a> {
    template: Cow<'a, Value>,
}

impl<'a> CheckedPod<'a> {
    /// The pod that the API makes of a template: with `hostNetwork`, ports become host ports; a volume without a
    /// source becomes an `emptyDir`.
    pub(super) fn of_template(template: &'a Value) -> Self {
        let spec = &template["spec"];
        let bare =
            |volume: &Value| volume.as_object().is_some_and(|v| v.iter().all(|(k, v)| k == "name" || v.is_null()));
        let ports = spec["hostNetwork"] == true;
        if !ports && !spec.list_at("volumes").iter().any(bare) {
            return Self { template: Cow::Borrowed(template) };
        }
        let mut template = template.clone();
        let spec = &mut template["spec"];
        for volume in list_mut(spec, "volumes").filter(|volume| bare(volume)) {
            volume["emptyDir"] = json!({});
        }
        for containers in ["initContainers", "containers"].into_iter().filter(|_| ports) {
            for container in list_mut(spec, containers) {
                for port in list_mut(container, "ports").filter(|port| number(&port["hostPort"]).unwrap_or(0) == 0) {
                    port["hostPort"] = port["containerPort"].clone();
                }
            }
        }
        Self { template: Cow::Owned(template) }
    }

    pub(super) fn spec(&self) -> &Value {
        &self.template["spec"]
    }

    /// `metadata.annotations`, in the order of their names.
    pub(super) fn annotations(&self) -> Vec<(&str, &str)> {
        let annotations = self.template["metadata"]["annotations"].as_object();
        let mut found: Vec<_> =
            annotations.into_iter().flatten().map(|(k, v)| (k.as_str(), v.as_str().unwrap_or_default())).collect();
        found.sort_unstable();
        found
    }

    /// Every container, in upstream's order.
    pub(super) fn containers(&self) -> impl Iterator<Item = &Value> {
        let kinds = ["initContainers", "containers", "ephemeralContainers"];
        kinds.into_iter().flat_map(|kind| list(&self.spec()[kind]))
    }

    /// Whether the pod says that it is for Windows.
    pub(super) fn is_windows(&self) -> bool {
        self.spec()["os"]["name"] == "windows"
    }

    /// Whether the pod has its own user namespace, where root is unprivileged on the host.
    pub(super) fn has_own_users(&self) -> bool {
        self.spec()["hostUsers"] == false
    }
}

/// The items of a list; empty for anything else.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The name of a container or volume.
pub(super) fn name(value: &Value) -> &str {
    value.str_at("name")
}

/// A text; empty for anything else.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A whole number, also one that is written as `8080.0`.
pub(super) fn number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_f64().filter(|n| n.fract() == 0.0).map(|n| n as i64))
}

fn list_mut<'v>(value: &'v mut Value, key: &str) -> impl Iterator<Item = &'v mut Value> {
    value.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
}
