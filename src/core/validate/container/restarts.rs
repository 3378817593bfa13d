//! `restartPolicy`, `restartPolicyRules` and `resizePolicy` of a container.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::core::json::Json;
use crate::core::model::FieldError;
use crate::core::validate::rules::required_one_of;
use crate::core::validate::rules::written_one_of;
use crate::core::validate::wrong;

/// Whether an init container runs beside the containers (`isRestartableInitContainer`).
pub(in super::super) fn is_sidecar(container: &Value) -> bool {
    container.str_at("restartPolicy") == "Always"
}

/// `validateContainerRestartPolicy`, `validateInitContainerRestartPolicy` and `validateResizePolicy`.
pub(super) fn check(container: &Value, place: &str, errors: &mut Vec<FieldError>) {
    written_one_of(container, "restartPolicy", &["Always", "Never", "OnFailure"], place, errors);
    let rules = container.list_at("restartPolicyRules");
    if !rules.is_empty() && container.at("restartPolicy").is_none() {
        errors.push(wrong(format!("{place}.restartPolicy"), "required with restartPolicyRules"));
    }
    if rules.len() > 20 {
        errors.push(wrong(format!("{place}.restartPolicyRules"), "must be no more than 20"));
    }
    for (index, rule) in rules.iter().enumerate() {
        self::rule(rule, &format!("{place}.restartPolicyRules[{index}]"), errors);
    }
    let mut names = BTreeSet::new();
    for (index, policy) in container.list_at("resizePolicy").iter().enumerate() {
        let place = format!("{place}.resizePolicy[{index}]");
        required_one_of(policy, "resourceName", &["cpu", "memory"], &place, errors);
        let name = policy.str_at("resourceName");
        if !name.is_empty() && !names.insert(name) {
            errors.push(wrong(format!("{place}.resourceName"), format!("{name} is used twice")));
        }
        required_one_of(policy, "restartPolicy", &["NotRequired", "RestartContainer"], &place, errors);
    }
}

fn rule(rule: &Value, place: &str, errors: &mut Vec<FieldError>) {
    required_one_of(rule, "action", &["Restart", "RestartAllContainers"], place, errors);
    let place = format!("{place}.exitCodes");
    let Some(codes) = rule.at("exitCodes") else {
        errors.push(wrong(place, "required"));
        return;
    };
    required_one_of(codes, "operator", &["In", "NotIn"], &place, errors);
    if codes.list_at("values").len() > 255 {
        errors.push(wrong(format!("{place}.values"), "must be no more than 255"));
    }
}
