//! The Node object as decisions see it.
//!
//! Owns the conversion of a Node's JSON to a [`NodeView`], and when a Node has all its labels. Must not decide what
//! follows from that.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::core::model::FieldError;
use crate::core::model::NodeView;
use crate::core::model::Taint;
use crate::core::policy::Resources;
use crate::core::time::Span;
use crate::core::time::Timestamp;

/// The taint of a Node that the cloud's controller has not labelled yet.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// The labels that the API server copies from a Node to its pods (`PodTopologyLabels`).
const TOPOLOGY: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];
/// How long after a Node was registered anew it may lack labels that it had.
pub const LABELS_WITHIN: Span = Span::from_secs(300);
/// How long it may lack them at least once the API server shows it again: while that was away, no component could add one.
pub const LABELS_AGAIN: Span = Span::from_secs(60);

/// The view of the Node object `node`; it is registered if it has a UID.
///
/// # Errors
/// An object of another kind (items of a list have none, which is fine), or a field of the wrong type.
pub fn view(node: &Value) -> Result<NodeView, FieldError> {
    if !node["kind"].is_null() && node["kind"] != "Node" {
        let kind = node["kind"].as_str().unwrap_or("nothing");
        return Err(wrong("kind", format!("expected a Node, not {kind}")));
    }
    let name = text(&node["metadata"]["name"]).filter(|name| !name.is_empty());
    let uid = text(&node["metadata"]["uid"]);
    Ok(NodeView {
        name: name.ok_or_else(|| wrong("metadata.name", "a Node needs a name"))?,
        registered: uid.is_some(),
        uid,
        labels: labels(&node["metadata"]["labels"])?,
        taints: taints(&node["spec"]["taints"])?,
        kubelet_version: text(&node["status"]["nodeInfo"]["kubeletVersion"]).filter(|version| !version.is_empty()),
        allocatable: allocatable(&node["status"]["allocatable"]),
        unschedulable: node["spec"]["unschedulable"] == true,
    })
}

/// Whether `node` has all its labels, as far as is known: other components add some of them once the kubelet has registered
/// the Node. `since`: what [`awaits_labels_since`] gives.
pub fn has_its_labels(node: &NodeView, since: Option<Timestamp>) -> bool {
    let is_uninitialized = node.taints.iter().any(|taint| taint.key == UNINITIALIZED);
    node.registered && !is_uninitialized && since.is_none()
}

/// Since when a Node may lack labels, after the API server showed it at `now`; `None`: it has them all. `before`: the same
/// before that. `is_new`: the Node has another UID than the last one. A Node that the API server has shown some minutes after
/// it was registered anew has its labels; while the API server is silent, that is not known. After the clock was set back the
/// minutes begin again.
pub fn awaits_labels_since(before: Option<Timestamp>, is_new: bool, now: Timestamp) -> Option<Timestamp> {
    let since = before.filter(|since| *since <= now).unwrap_or(now);
    let awaits = is_new || before.is_some() && now < since + LABELS_WITHIN;
    awaits.then_some(if is_new { now } else { since })
}

/// Since when a Node may lack labels that the API server shows again at `now`, after it did not.
pub fn awaits_labels_again(since: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    since.map(|since| since.max(now - (LABELS_WITHIN - LABELS_AGAIN)))
}

/// When a Node that may lack labels since `since` is to be looked at again.
pub fn labels_due(since: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    since.map(|since| since + LABELS_WITHIN).filter(|due| now < *due)
}

/// The labels of `node` that the API server copies to its pods.
pub fn topology(node: &NodeView) -> BTreeMap<String, String> {
    let labels = TOPOLOGY.iter().filter_map(|name| node.labels.get_key_value(*name));
    labels.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Major and minor number of a version such as `v1.36.2` or `v1.36.2+k3s1`.
pub fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.strip_prefix('v').unwrap_or(text).split('.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?;
    let digits = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
    Some((major, minor[..digits].parse().ok()?))
}

/// What `status.allocatable` says; `None` before the kubelet has written it.
pub fn allocatable(list: &Value) -> Option<Resources> {
    list.as_object().filter(|list| !list.is_empty())?;
    let known = Resources::of_list(list);
    Some(if list["pods"].is_null() { Resources { pods: u64::MAX, ..known } } else { known })
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn labels(value: &Value) -> Result<BTreeMap<String, String>, FieldError> {
    let field = "metadata.labels";
    match value {
        Value::Null => Ok(BTreeMap::new()),
        Value::Object(labels) => labels
            .iter()
            .map(|(key, value)| match value.as_str() {
                Some(value) => Ok((key.clone(), value.to_owned())),
                None => Err(wrong(&format!("{field}[{key}]"), "expected a string")),
            })
            .collect(),
        _ => Err(wrong(field, "expected a mapping")),
    }
}

fn taints(value: &Value) -> Result<Vec<Taint>, FieldError> {
    let field = "spec.taints";
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(taints) => taints
            .iter()
            .enumerate()
            .map(|(index, taint)| match (text(&taint["key"]), text(&taint["effect"])) {
                (Some(key), Some(effect)) => {
                    Ok(Taint { key, value: text(&taint["value"]).unwrap_or_default(), effect })
                }
                _ => Err(wrong(&format!("{field}[{index}]"), "a taint needs key and effect")),
            })
            .collect(),
        _ => Err(wrong(field, "expected a list")),
    }
}

fn wrong(field: &str, reason: impl Into<String>) -> FieldError {
    FieldError { field: field.to_owned(), reason: reason.into(), hint: None }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_decisions_need_is_taken() {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n1", "uid": "u", "labels": {"a": "b"}},
            "spec": {"taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": null}], "unschedulable": true},
            "status": {"nodeInfo": {"kubeletVersion": "v1.36.2"}},
        });
        let expected = NodeView {
            name: "n1".to_owned(),
            uid: Some("u".to_owned()),
            labels: [("a".to_owned(), "b".to_owned())].into(),
            taints: vec![Taint { key: "k".to_owned(), value: String::new(), effect: "NoSchedule".to_owned() }],
            kubelet_version: Some("v1.36.2".to_owned()),
            allocatable: None,
            unschedulable: true,
            registered: true,
        };
        assert_eq!(view(&node), Ok(expected));
    }

    #[test]
    fn little_is_enough() {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
        assert_eq!(view(&node), Ok(NodeView { name: "n1".to_owned(), ..NodeView::default() }));
    }

    #[test]
    fn what_is_no_node_is_named() {
        let base = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
        for (path, value, message) in [
            ("/kind", json!("Pod"), "kind: expected a Node, not Pod"),
            ("/metadata", json!({}), "metadata.name: a Node needs a name"),
            ("/metadata", json!({"name": "a", "labels": {"x": 1}}), "metadata.labels[x]: expected a string"),
            ("/metadata", json!({"name": "a", "labels": []}), "metadata.labels: expected a mapping"),
        ] {
            let mut node = base.clone();
            *node.pointer_mut(path).unwrap() = value;
            assert_eq!(view(&node).unwrap_err().to_string(), message);
        }
        for (taints, message) in [
            (json!([{"key": "k"}]), "spec.taints[0]: a taint needs key and effect"),
            (json!("k"), "spec.taints: expected a list"),
        ] {
            let mut node = base.clone();
            node["spec"] = json!({"taints": taints});
            assert_eq!(view(&node).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn versions_have_two_numbers_that_count() {
        for (text, numbers) in [
            ("v1.36.2", Some((1, 36))),
            ("1.36", Some((1, 36))),
            ("v1.36+", Some((1, 36))),
            ("v1.36.2+k3s1", Some((1, 36))),
            ("v1", None),
            ("", None),
            ("v1.x", None),
        ] {
            assert_eq!(version(text), numbers, "{text}");
        }
    }

    #[test]
    fn labels_count_once_the_node_is_initialized_and_some_minutes_after_it_was_registered_anew() {
        let node = NodeView { registered: true, ..NodeView::default() };
        let (now, since) = (Timestamp::from_millis(1_000_000), Some(Timestamp::from_millis(900_000)));
        assert!(has_its_labels(&node, None));
        assert!(!has_its_labels(&NodeView { registered: false, ..node.clone() }, None));
        let taint = Taint { key: UNINITIALIZED.to_owned(), value: "true".to_owned(), effect: "NoSchedule".to_owned() };
        assert!(!has_its_labels(&NodeView { taints: vec![taint], ..node.clone() }, None));
        assert!(!has_its_labels(&node, since));
        let due = labels_due(since, now).expect("they count later");
        assert_eq!(awaits_labels_since(since, false, now), since);
        assert_eq!((awaits_labels_since(since, false, due), labels_due(since, due)), (None, None));
        assert_eq!(awaits_labels_since(None, false, now), None);
        let silent_until = due + LABELS_WITHIN;
        let again = awaits_labels_again(since, silent_until);
        assert_eq!(awaits_labels_since(again, false, silent_until), again);
        assert_eq!(labels_due(again, silent_until), Some(silent_until + LABELS_AGAIN));
        assert_eq!((awaits_labels_again(since, now), awaits_labels_again(None, now)), (since, None));
        assert_eq!(
            (awaits_labels_since(None, true, now), awaits_labels_since(since, true, now)),
            (Some(now), Some(now))
        );
        let earlier = Timestamp::from_millis(0);
        assert_eq!(awaits_labels_since(since, false, earlier), Some(earlier), "the clock was set back");
    }
}
