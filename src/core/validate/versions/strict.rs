//! Fields that the file source of a kubelet before 1.35 refuses and the API server of the same version takes.
//!
//! That file source validates with `PodValidationOptions{}`: each option that relaxes a rule is off.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::core::dns;
use crate::core::json::Json;
use crate::core::model::FieldError;
use crate::core::validate::rules::POD_SPEC;

const UPDATE: &str = "or update the kubelet to 1.35 or later";

/// Checks the pod's `spec`.
pub(super) fn check(spec: &Value, errors: &mut Vec<FieldError>) {
    let mut refuse = |field: String, reason: &str, hint: &str| {
        let reason = format!("{reason}: a kubelet before 1.35 refuses such a static pod");
        errors.push(FieldError { field, reason, hint: Some(format!("{hint}, {UPDATE}")) });
    };
    for list in ["initContainers", "containers"] {
        for (index, container) in spec.list_at(list).iter().enumerate() {
            let place = |field: String| format!("{POD_SPEC}.{list}[{index}].{field}");
            // Their places in the pod are not those in the template.
            let names = container.list_at("env").iter().map(|variable| variable.str_at("name"));
            for name in names.filter(|name| !is_env_var_name(name)) {
                let reason = format!(
                    "the name {name:?} must be letters, digits, '-', '_' and '.', and begin with no digit and no '..'"
                );
                refuse(place("env".to_owned()), &reason, "choose another name");
            }
            for hook in ["postStart", "preStop"] {
                let sleep = container.at(["lifecycle", hook, "sleep"]);
                if sleep.is_some_and(|sleep| sleep.at("seconds").and_then(Value::as_i64).unwrap_or(0) == 0) {
                    let field = place(format!("lifecycle.{hook}.sleep.seconds"));
                    refuse(field, "must be more than 0", "leave the hook out");
                }
            }
            if list == "initContainers" && !container.list_at("resizePolicy").is_empty() {
                refuse(place("resizePolicy".to_owned()), "not allowed in an init container", "leave it out");
            }
        }
    }
    let searches = spec.at("dnsConfig").map_or(&[][..], |config| config.list_at("searches"));
    for (index, search) in searches.iter().enumerate() {
        let search = search.as_str().unwrap_or_default();
        if let Some(reason) = dns::subdomain(search.strip_suffix('.').unwrap_or(search)) {
            refuse(format!("{POD_SPEC}.dnsConfig.searches[{index}]"), reason, "leave it out");
        }
    }
    for (index, constraint) in spec.list_at("topologySpreadConstraints").iter().enumerate() {
        let selected = selected(constraint);
        for (at, key) in constraint.list_at("matchLabelKeys").iter().enumerate() {
            if let Some(key) = key.as_str().filter(|key| selected.contains(key)) {
                let field = format!("{POD_SPEC}.topologySpreadConstraints[{index}].matchLabelKeys[{at}]");
                refuse(field, &format!("{key} is in labelSelector, too"), "leave it out");
            }
        }
    }
}

/// The labels that the `labelSelector` of `constraint` names.
fn selected(constraint: &Value) -> BTreeSet<&str> {
    let labels = constraint.at(["labelSelector", "matchLabels"]).and_then(Value::as_object);
    let expressions = constraint.at("labelSelector").map_or(&[][..], |selector| selector.list_at("matchExpressions"));
    let expressions = expressions.iter().map(|expression| expression.str_at("key"));
    labels.into_iter().flatten().map(|(key, _)| key.as_str()).chain(expressions).collect()
}

/// Whether `name` is a variable's name by the rule without relaxation (`IsEnvVarName`).
pub fn is_env_var_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    name.bytes().all(plain)
        && name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit())
        && name != "."
        && !name.starts_with("..")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::check;
    use super::*;

    /// The fields of `spec` that a kubelet of 1.34 refuses; one of 1.35 refuses none.
    fn refused(spec: &Value) -> Vec<String> {
        let fields = |version| {
            let mut errors = Vec::new();
            check(spec, Some(version), &mut errors);
            errors.into_iter().map(|error| error.field.trim_start_matches("spec.template.spec.").to_owned()).collect()
        };
        let newer: Vec<String> = fields((1, 35));
        assert_eq!(newer, [""; 0]);
        fields((1, 34))
    }

    #[test]
    fn names_of_variables() {
        let names = ["A", "a.b-c", "_1", "1A", "..x", ".", "a b"].map(|name| json!({"name": name}));
        let spec = json!({"containers": [{"env": names}]});
        assert_eq!(refused(&spec), ["containers[0].env"; 4]);
        let mut errors = Vec::new();
        check(&spec, Some((1, 34)), &mut errors);
        assert!(errors[0].reason.starts_with("the name \"1A\" must be letters"), "{}", errors[0].reason);
    }

    #[test]
    fn search_domains() {
        let spec = json!({"dnsConfig": {"searches": ["a.b", "a.b.", ".", "_tcp.example.com", "a_b"]}});
        assert_eq!(refused(&spec), ["dnsConfig.searches[2]", "dnsConfig.searches[3]", "dnsConfig.searches[4]"]);
    }

    #[test]
    fn a_hook_that_sleeps_for_no_time() {
        let hooks =
            |post: Value, pre: Value| json!({"lifecycle": {"postStart": {"sleep": post}, "preStop": {"sleep": pre}}});
        let spec = json!({
            "containers": [hooks(json!({"seconds": 1}), json!({"seconds": 0}))],
            "initContainers": [hooks(json!({}), json!({"seconds": 2}))],
        });
        let wrong =
            ["initContainers[0].lifecycle.postStart.sleep.seconds", "containers[0].lifecycle.preStop.sleep.seconds"];
        assert_eq!(refused(&spec), wrong);
    }

    #[test]
    fn a_resize_policy_of_an_init_container() {
        let policy = json!([{"resourceName": "cpu", "restartPolicy": "NotRequired"}]);
        let with = |kind: Option<&str>| json!({"restartPolicy": kind, "resizePolicy": policy});
        let spec = json!({
            "containers": [with(None)],
            "initContainers": [{}, with(None), with(Some("Always"))],
        });
        assert_eq!(refused(&spec), ["initContainers[1].resizePolicy", "initContainers[2].resizePolicy"]);
    }

    #[test]
    fn a_key_that_a_spread_constraint_selects_twice() {
        let selector = json!({"matchLabels": {"a": ""}, "matchExpressions": [{"key": "b", "operator": "Exists"}]});
        let constraint = json!({"matchLabelKeys": ["c", "a", "b"], "labelSelector": selector});
        let place = |at: usize| format!("topologySpreadConstraints[0].matchLabelKeys[{at}]");
        assert_eq!(refused(&json!({"topologySpreadConstraints": [constraint]})), [place(1), place(2)]);
    }
}
