//! `windowsOptions` of a security context.

use serde_json::Value;

use super::security::containers;
use crate::core::dns;
use crate::core::json::Json;
use crate::core::model::FieldError;
use crate::core::validate::rules::POD_SPEC;
use crate::core::validate::wrong;

const MAX_CREDENTIAL_SPEC: usize = 64 * 1024;
const MAX_DOMAIN: usize = 255;
const MAX_USER: usize = 104;
const HOST_PROCESS: [&str; 3] = ["securityContext", "windowsOptions", "hostProcess"];

/// `validateWindowsSecurityContextOptions`.
pub(super) fn options(context: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let Some(options) = context.at("windowsOptions") else { return };
    let given = |field: &str| options.at(field).and_then(Value::as_str);
    let size = |spec: &str| match spec.len() {
        0 => Some("must not be empty"),
        size => (size > MAX_CREDENTIAL_SPEC).then_some("must be no more than 64 KiB"),
    };
    for (field, reason) in [
        ("gmsaCredentialSpecName", given("gmsaCredentialSpecName").and_then(dns::subdomain)),
        ("gmsaCredentialSpec", given("gmsaCredentialSpec").and_then(size)),
        ("runAsUserName", given("runAsUserName").and_then(no_user)),
    ] {
        errors.extend(reason.map(|reason| wrong(format!("{place}.windowsOptions.{field}"), reason)));
    }
}

/// Why `name` is no `[domain\]user`.
fn no_user(name: &str) -> Option<&'static str> {
    let (domain, user) = match name.split_once('\\') {
        Some((domain, user)) => (Some(domain), user),
        None => (None, name),
    };
    if name.is_empty() {
        Some("must not be empty")
    } else if name.bytes().any(|byte| byte.is_ascii_control()) {
        Some("must not contain control characters")
    } else if user.contains('\\') {
        Some("must not contain more than one backslash")
    } else if domain.is_some_and(|domain| domain.len() > MAX_DOMAIN) {
        Some("the domain must be no more than 255 bytes")
    } else if domain.is_some_and(|domain| !is_net_bios(domain) && !is_dns(domain)) {
        Some("the domain must be a NetBIOS or a DNS name")
    } else if user.is_empty() {
        Some("must have a user after the domain")
    } else if user.len() > MAX_USER {
        Some("the user must be no more than 104 bytes")
    } else if user.chars().all(|char| matches!(char, '.' | ' ')) {
        Some("the user must not be only periods and spaces")
    } else {
        user.contains(['"', '/', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']'])
            .then_some("the user must not contain any of \"/\\:;|=,+*?<>@[]")
    }
}

/// A NetBIOS name (`validNetBiosRegex`).
fn is_net_bios(domain: &str) -> bool {
    (1..=15).contains(&domain.chars().count())
        && !domain.starts_with('.')
        && !domain.contains(['\\', '/', ':', '*', '?', '"', '<', '>', '|'])
}

/// A DNS name of lower and upper case letters (`validWindowsUserDomainDNSRegex`).
fn is_dns(domain: &str) -> bool {
    domain.to_ascii_lowercase().split('.').all(|label| dns::label(label).is_none())
}

/// `validateWindowsHostProcessPod`.
pub(super) fn host_process(spec: &Value, errors: &mut Vec<FieldError>) {
    let of_pod = spec.at(HOST_PROCESS).and_then(Value::as_bool);
    let (mut some, mut all) = (false, true);
    for (place, container) in containers(spec) {
        let own = container.at(HOST_PROCESS).and_then(Value::as_bool);
        if own.is_some_and(|own| of_pod.is_some_and(|of_pod| of_pod != own)) {
            let reason = "must be the same as in the pod's securityContext";
            errors.push(wrong(format!("{place}.{}", HOST_PROCESS.join(".")), reason));
        }
        let is = own.or(of_pod).unwrap_or(false);
        some |= is;
        all &= is;
    }
    if some && !all {
        errors.push(wrong(POD_SPEC, "either all containers must be hostProcess containers or none"));
    }
    if some && !spec.flag_at("hostNetwork") {
        errors.push(wrong(format!("{POD_SPEC}.hostNetwork"), "must be true with hostProcess containers"));
    }
}
