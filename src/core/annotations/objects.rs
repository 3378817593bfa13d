//! The annotations and labels of daemonlet on other objects than DaemonSets: one annotation means something there.

use serde_json::Value;

use super::KNOWN;
use super::MOST_REPORTED;
use super::OURS;
use super::annotation;
use super::did_you_mean;
use crate::core::json::Json;
use crate::core::knowledge::OVERRIDE_ANNOTATION;
use crate::core::model::FieldError;
use crate::core::model::Kind;
use crate::core::model::MODE_LABEL;

/// The annotations and labels of ours on `object` that are not understood. Those that mean something on a DaemonSet are not
/// mentioned: tools such as kustomize write what is common to all objects on each of them.
pub fn mistakes_on(kind: Kind, object: &Value) -> Vec<FieldError> {
    // The coordinator writes its own on these.
    if kind == Kind::ControllerRevision {
        return Vec::new();
    }
    let ours = |map: &'static str| {
        let names = object.at(["metadata", map]).and_then(Value::as_object).into_iter().flatten();
        names.filter(|(name, _)| name.starts_with(OURS)).map(move |(name, value)| (map, name, value))
    };
    let mistake = |(map, name, value): (&str, &String, &Value)| {
        let is_override = name == OVERRIDE_ANNOTATION;
        if is_override && map == "annotations" {
            return annotation(name, value.as_str().unwrap_or_default());
        }
        let is_of_daemon_sets = name == MODE_LABEL || KNOWN.iter().any(|(known, ..)| known == name);
        let (reason, hint) = match is_override {
            true => {
                ("it is an annotation, and is ignored here".to_owned(), "write it into metadata.annotations".to_owned())
            }
            false => (format!("it has no meaning on a {kind}"), did_you_mean(name, &[OVERRIDE_ANNOTATION])),
        };
        let field = format!("metadata.{map}[{name}]");
        (is_override || !is_of_daemon_sets).then_some(FieldError { field, reason, hint: Some(hint) })
    };
    ours("annotations").chain(ours("labels")).filter_map(mistake).take(MOST_REPORTED).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_override_that_is_not_understood_is_named_on_each_kind_of_object() {
        let said = |kind: Kind, metadata: Value| -> Vec<String> {
            mistakes_on(kind, &json!({"metadata": metadata})).iter().map(FieldError::with_hint).collect()
        };
        let wrong = "metadata.annotations[daemonlet.dev/override]: \"yes\" is not true; what the API server last said counts \
                     before a folder's (hint: write true)";
        assert_eq!(said(Kind::Secret, json!({"annotations": {OVERRIDE_ANNOTATION: "yes"}})), [wrong]);
        let slip = "metadata.annotations[daemonlet.dev/overide]: it has no meaning on a ConfigMap (hint: did you mean \
                    daemonlet.dev/override?)";
        assert_eq!(said(Kind::ConfigMap, json!({"annotations": {"daemonlet.dev/overide": "true"}})), [slip]);
        let label = "metadata.labels[daemonlet.dev/override]: it is an annotation, and is ignored here (hint: write it into \
                     metadata.annotations)";
        assert_eq!(said(Kind::ServiceAccount, json!({"labels": {OVERRIDE_ANNOTATION: "true"}})), [label]);
        let other = "metadata.labels[daemonlet.dev/x]: it has no meaning on a ConfigMap (hint: known names: daemonlet.dev/override)";
        assert_eq!(said(Kind::ConfigMap, json!({"labels": {"daemonlet.dev/x": "true"}})), [other]);
        let common = json!({
            "annotations": {OVERRIDE_ANNOTATION: "true", "daemonlet.dev/paused": "x", "other.dev/overide": "true"},
            "labels": {MODE_LABEL: "static"},
        });
        assert_eq!(said(Kind::ConfigMap, common), [""; 0]);
        let own = json!({"annotations": {"daemonlet.dev/released": "x"}});
        assert_eq!(said(Kind::ControllerRevision, own), [""; 0]);
        let many: serde_json::Map<String, Value> =
            (0..40).map(|n| (format!("daemonlet.dev/{n}"), json!("x"))).collect();
        assert_eq!(said(Kind::ConfigMap, json!({"annotations": many})).len(), MOST_REPORTED);
    }
}
