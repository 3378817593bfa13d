//! Fields of a pod that one supported version of Kubernetes refuses and another takes.
//!
//! Judged for a rendered pod alone: only then is it known which kubelet reads it.

mod strict;

use ::core::net::IpAddr;

use serde_json::Value;

use super::container::is_sidecar;
use super::rules::POD_SPEC;
use crate::core::json::Json;
use crate::core::model::FieldError;

pub use strict::is_env_var_name;

/// The first version whose file source judges a pod with the options that the API server has. The file source of an older
/// one has none of them on (`PodValidationOptions{}`).
pub const AS_THE_API: (u32, u32) = (1, 35);

/// The first version that takes no ambiguous addresses (`StrictIPCIDRValidation`), takes the action
/// `RestartAllContainers` and a sidecar's rules (`RestartAllContainersOnContainerExits`).
const CHANGED: (u32, u32) = (1, 36);

/// Checks the pod's `spec` for a kubelet of `version`; `None`: for the newest.
pub(super) fn check(spec: &Value, version: Option<(u32, u32)>, errors: &mut Vec<FieldError>) {
    let is_before = |other| version.is_some_and(|version| version < other);
    if is_before(AS_THE_API) {
        strict::check(spec, errors);
    }
    if is_before(CHANGED) {
        restart_rules(spec, errors);
    } else {
        addresses(spec, errors);
    }
    resizes(spec, errors);
}

/// `validateResizePolicy` of an init container that ends; a release of 1.35 may be older than the check, and ignores the value.
fn resizes(spec: &Value, errors: &mut Vec<FieldError>) {
    for (index, container) in spec.list_at("initContainers").iter().enumerate().filter(|(_, it)| !is_sidecar(it)) {
        for (at, policy) in container.list_at("resizePolicy").iter().enumerate() {
            if policy.str_at("restartPolicy") == "RestartContainer" {
                let field = format!("{POD_SPEC}.initContainers[{index}].resizePolicy[{at}].restartPolicy");
                let reason = "must be NotRequired in an init container without restartPolicy Always";
                let hint = Some("write NotRequired".to_owned());
                errors.push(FieldError { field, reason: reason.to_owned(), hint });
            }
        }
    }
}

/// `IsValidIPForLegacyField`.
fn addresses(spec: &Value, errors: &mut Vec<FieldError>) {
    let mut judge = |address: &str, place: String| {
        if !is_strict_ip(address) {
            let reason = "must have no leading zeros and be no IPv4-mapped IPv6 address: Kubernetes 1.36 refuses both";
            let hint = Some("write it as 10.9.8.7 or 2001:db8::1".to_owned());
            errors.push(FieldError { field: place, reason: reason.to_owned(), hint });
        }
    };
    let servers = spec.at("dnsConfig").map_or(&[][..], |config| config.list_at("nameservers"));
    for (index, server) in servers.iter().enumerate() {
        judge(server.as_str().unwrap_or_default(), format!("{POD_SPEC}.dnsConfig.nameservers[{index}]"));
    }
    for (index, alias) in spec.list_at("hostAliases").iter().enumerate() {
        judge(alias.str_at("ip"), format!("{POD_SPEC}.hostAliases[{index}].ip"));
    }
}

fn is_strict_ip(text: &str) -> bool {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => true,
        Ok(IpAddr::V6(address)) => address.to_ipv4_mapped().is_none(),
        Err(_) => false,
    }
}

/// `validateContainerRestartPolicy` and `validateInitContainerRestartPolicy`, without `AllowRestartAllContainers`.
fn restart_rules(spec: &Value, errors: &mut Vec<FieldError>) {
    let mut refuse = |field: String, reason: &str, hint: &str| {
        errors.push(FieldError { field, reason: reason.to_owned(), hint: Some(hint.to_owned()) });
    };
    for list in ["initContainers", "containers"] {
        for (index, container) in spec.list_at(list).iter().enumerate() {
            let place = format!("{POD_SPEC}.{list}[{index}].restartPolicyRules");
            let rules = container.list_at("restartPolicyRules");
            if list == "initContainers" && is_sidecar(container) && !rules.is_empty() {
                let reason = "with restartPolicy Always it needs a kubelet of 1.36 or later";
                refuse(place, reason, "leave it out, or update the kubelet");
                continue;
            }
            for (rule, written) in rules.iter().enumerate() {
                if written.str_at("action") == "RestartAllContainers" {
                    let reason = "RestartAllContainers needs a kubelet of 1.36 or later";
                    refuse(format!("{place}[{rule}].action"), reason, "write Restart, or update the kubelet");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(spec: &Value, version: Option<(u32, u32)>) -> Vec<String> {
        let mut errors = Vec::new();
        check(spec, version, &mut errors);
        errors.into_iter().map(|error| error.field.trim_start_matches("spec.template.spec.").to_owned()).collect()
    }

    #[test]
    fn ambiguous_addresses_are_refused_from_1_36_on() {
        let spec = json!({
            "dnsConfig": {"nameservers": ["1.2.3.4", "01.2.3.4"]},
            "hostAliases": [{"ip": "::1"}, {"ip": "::ffff:1.2.3.4"}, {"ip": "00001::"}],
        });
        assert_eq!(fields(&spec, Some((1, 35))), [""; 0]);
        for version in [Some((1, 36)), None] {
            let wrong = ["dnsConfig.nameservers[1]", "hostAliases[1].ip", "hostAliases[2].ip"];
            assert_eq!(fields(&spec, version), wrong, "{version:?}");
        }
    }

    #[test]
    fn an_init_container_that_ends_restarts_for_no_resize() {
        let with = |kind: Option<&str>, policy: &str| json!({"restartPolicy": kind, "resizePolicy": [{"resourceName": "cpu", "restartPolicy": policy}]});
        let ends = with(None, "RestartContainer");
        let spec =
            json!({"initContainers": [with(None, "NotRequired"), ends, with(Some("Always"), "RestartContainer")]});
        for version in [Some((1, 35)), Some((1, 36)), None] {
            assert_eq!(fields(&spec, version), ["initContainers[1].resizePolicy[0].restartPolicy"], "{version:?}");
        }
    }

    #[test]
    fn to_restart_all_containers_needs_1_36() {
        let rules = json!([{"action": "Restart"}, {"action": "RestartAllContainers"}]);
        let spec = json!({"containers": [{"restartPolicyRules": rules}]});
        assert_eq!(fields(&spec, Some((1, 35))), ["containers[0].restartPolicyRules[1].action"]);
        assert_eq!(fields(&spec, Some((1, 36))), [""; 0]);
    }

    #[test]
    fn the_rules_of_a_sidecar_need_1_36() {
        let with = |policy: &str| json!({"restartPolicy": policy, "restartPolicyRules": [{"action": "Restart"}]});
        let spec = json!({"initContainers": [with("Never"), with("Always")], "containers": [with("Always")]});
        assert_eq!(fields(&spec, Some((1, 35))), ["initContainers[1].restartPolicyRules"]);
        assert_eq!(fields(&spec, Some((1, 36))), [""; 0]);
        let without = json!({"initContainers": [{"restartPolicy": "Always"}]});
        assert_eq!(fields(&without, Some((1, 35))), [""; 0]);
    }
}
