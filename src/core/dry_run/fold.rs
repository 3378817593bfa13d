//! From an answered pod to what a new instance is made from, in the form of a template.
//!
//! Owns which parts of an answer are left out: those that only that one pod has, those that rendering sets itself, and those
//! that differ from answer to answer by chance.

use std::collections::BTreeSet;

use serde_json::Value;
use serde_json::json;

use crate::core::json::Json;
use crate::core::model::DaemonSet;
use crate::core::model::GENERATION_LABEL;
use crate::core::model::HASH_LABEL;
use crate::core::validate;

/// Admission's own token volume: this and five characters by chance.
const TOKEN_PREFIX: &str = "kube-api-access-";
/// The same name each time. Rendering takes a volume of that prefix for the token's, as upstream does.
const TOKEN_VOLUME: &str = "kube-api-access-token";

/// What of `pod`, which the API server answered, an instance of `daemon_set` is made from.
///
/// # Errors
/// The answer is no pod that a kubelet can decode.
pub(super) fn template(daemon_set: &DaemonSet, pod: &Value) -> Result<Value, String> {
    let map = |value: Option<&Value>| value.and_then(Value::as_object).cloned();
    let mut spec = map(pod.at("spec")).ok_or("what it answered is no pod")?;
    let mut labels = map(pod.at(["metadata", "labels"])).unwrap_or_default();
    // The revision's labels are each rendering's own: a generation may change without the template.
    for label in [HASH_LABEL, GENERATION_LABEL] {
        match daemon_set.template.at(["metadata", "labels", label]) {
            Some(own) => labels.insert(label.to_owned(), own.clone()),
            None => labels.remove(label),
        };
    }
    // Where it runs is decided.
    spec.remove("nodeName");
    let mut spec = Value::Object(spec);
    name_token_volume(daemon_set, &mut spec);
    let template = json!({
        "metadata": {"labels": labels, "annotations": map(pod.at(["metadata", "annotations"])).unwrap_or_default()},
        "spec": spec,
    });
    validate::pod_template_types(&template).map_err(|error| format!("what it answered is no pod: {error}"))?;
    Ok(template)
}

/// Gives the token volume that admission added a name that does not change.
fn name_token_volume(daemon_set: &DaemonSet, spec: &mut Value) {
    let names = |spec: Option<&Value>| -> BTreeSet<String> {
        let volumes = spec.and_then(|spec| spec.get("volumes")).and_then(Value::as_array).into_iter().flatten();
        volumes.filter_map(|volume| volume.get("name")?.as_str().map(str::to_owned)).collect()
    };
    let own = names(daemon_set.patched_template().get("spec"));
    let all = names(Some(spec));
    let added = all.iter().find(|name| name.starts_with(TOKEN_PREFIX) && !own.contains(*name));
    let Some(added) = added.filter(|_| !all.contains(TOKEN_VOLUME)) else { return };
    let rename = |named: &mut Value| {
        if named["name"] == added.as_str() {
            named["name"] = TOKEN_VOLUME.into();
        }
    };
    let list = |value: &mut Value, name: &str, each: &dyn Fn(&mut Value)| {
        value.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten().for_each(each);
    };
    list(spec, "volumes", &rename);
    for containers in ["initContainers", "containers"] {
        list(spec, containers, &|container| list(container, "volumeMounts", &rename));
    }
}
