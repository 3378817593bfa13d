//! `securityContext` of a container and of the pod, and the namespaces that a pod shares with its node.

use std::collections::BTreeSet;

use serde_json::Value;

use super::os;
use super::profiles;
use super::windows;
use crate::core::json::Json;
use crate::core::model::FieldError;
use crate::core::validate::rules::POD_SPEC;
use crate::core::validate::rules::written_one_of;
use crate::core::validate::wrong;

/// `nameToNamespace`, those of the IPC namespace.
const IPC_SYSCTLS: [&str; 10] = [
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
    "kernel.shm",
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.msg",
];

/// `ValidateSecurityContext`.
pub(super) fn check(spec: &Value, container: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let Some(context) = container.at("securityContext") else { return };
    let place = format!("{place}.securityContext");
    for field in ["runAsUser", "runAsGroup"] {
        id(context.at(field), &format!("{place}.{field}"), errors);
    }
    written_one_of(context, "procMount", &["Default", "Unmasked"], &place, errors);
    if context.str_at("procMount") == "Unmasked" && !has_own_users(spec) {
        errors.push(wrong(format!("{place}.procMount"), "Unmasked needs hostUsers to be false"));
    }
    profiles::seccomp(context, &place, errors);
    if context.at("allowPrivilegeEscalation") == Some(&Value::Bool(false)) {
        let field = format!("{place}.allowPrivilegeEscalation");
        if context.flag_at("privileged") {
            errors.push(wrong(&field, "must not be false in a privileged container"));
        }
        if context.list_at(["capabilities", "add"]).iter().any(|capability| capability == "CAP_SYS_ADMIN") {
            errors.push(wrong(field, "must not be false with the capability CAP_SYS_ADMIN"));
        }
    }
    windows::options(context, &place, errors);
    profiles::app_armor(context, &place, errors);
}

/// `validatePodSpecSecurityContext`, `validateHostUsers`, `validateWindowsHostProcessPod`, and what `spec.os` forbids.
pub(in crate::core::validate) fn pod_security(spec: &Value, errors: &mut Vec<FieldError>) {
    if let Some(context) = spec.at("securityContext") {
        let place = format!("{POD_SPEC}.securityContext");
        for field in ["fsGroup", "runAsUser", "runAsGroup"] {
            id(context.at(field), &format!("{place}.{field}"), errors);
        }
        for (index, group) in context.list_at("supplementalGroups").iter().enumerate() {
            id(Some(group), &format!("{place}.supplementalGroups[{index}]"), errors);
        }
        sysctls(spec, context, &format!("{place}.sysctls"), errors);
        for (field, words) in [
            ("fsGroupChangePolicy", &["Always", "OnRootMismatch"][..]),
            ("supplementalGroupsPolicy", &["Merge", "Strict"]),
            ("seLinuxChangePolicy", &["Recursive"]),
        ] {
            written_one_of(context, field, words, &place, errors);
        }
        profiles::seccomp(context, &place, errors);
        windows::options(context, &place, errors);
        profiles::app_armor(context, &place, errors);
    }
    if spec.flag_at("shareProcessNamespace") && spec.flag_at("hostPID") {
        errors.push(wrong(format!("{POD_SPEC}.shareProcessNamespace"), "may not be set with hostPID"));
    }
    windows::host_process(spec, errors);
    host_users(spec, errors);
    os::check(spec, errors);
}

/// `IsValidUserID` and `IsValidGroupID`.
fn id(number: Option<&Value>, place: &str, errors: &mut Vec<FieldError>) {
    const MAX: i64 = i32::MAX as i64;
    if number.and_then(Value::as_i64).is_some_and(|number| !(0..=MAX).contains(&number)) {
        errors.push(wrong(place, format!("must be a number from 0 to {MAX}")));
    }
}

/// `validateSysctls` and `ValidateHostSysctl`.
fn sysctls(spec: &Value, context: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let mut names = BTreeSet::new();
    for (index, sysctl) in context.list_at("sysctls").iter().enumerate() {
        let name = sysctl.str_at("name");
        let dotted = dotted(name);
        let of_ipc = || IPC_SYSCTLS.contains(&dotted.as_str()) || dotted.starts_with("fs.mqueue.");
        let reason = if name.is_empty() {
            "required".to_owned()
        } else if !is_sysctl(name) {
            "must be lower case letters, digits, '-' and '_' (at most 253), in parts with '.' or '/' between".to_owned()
        } else if !names.insert(name) {
            format!("{name} is used twice")
        } else if spec.flag_at("hostNetwork") && dotted.starts_with("net.") {
            format!("{name} may not be set with hostNetwork")
        } else if spec.flag_at("hostIPC") && of_ipc() {
            format!("{name} may not be set with hostIPC")
        } else {
            continue;
        };
        errors.push(wrong(format!("{place}[{index}].name"), reason));
    }
}

/// `IsValidSysctlName`.
fn is_sysctl(name: &str) -> bool {
    let end = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let inner = |byte: &u8| end(Some(byte)) || matches!(byte, b'-' | b'_');
    let part = |part: &[u8]| end(part.first()) && end(part.last()) && part.iter().all(inner);
    name.len() <= 253 && name.as_bytes().split(|byte| matches!(byte, b'.' | b'/')).all(part)
}

/// The name with '.' between its parts (`NormalizeName`).
fn dotted(name: &str) -> String {
    let swap = |char| match char {
        '.' => '/',
        '/' => '.',
        char => char,
    };
    match name.find(['.', '/']) {
        Some(at) if name[at..].starts_with('/') => name.chars().map(swap).collect(),
        _ => name.to_owned(),
    }
}

/// Whether the pod has a user namespace of its own.
fn has_own_users(spec: &Value) -> bool {
    spec.at("hostUsers") == Some(&Value::Bool(false))
}

/// `validateHostUsers`.
fn host_users(spec: &Value, errors: &mut Vec<FieldError>) {
    const REASON: &str = "may not be set when hostUsers is false";
    if !has_own_users(spec) {
        return;
    }
    for field in ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|field| spec.flag_at(*field)) {
        errors.push(wrong(format!("{POD_SPEC}.{field}"), REASON));
    }
    for (place, container) in containers(spec) {
        if !container.list_at("volumeDevices").is_empty() {
            errors.push(wrong(format!("{place}.volumeDevices"), REASON));
        }
    }
}

/// All containers and where they are (`VisitContainersWithPath`).
pub(super) fn containers(spec: &Value) -> impl Iterator<Item = (String, &Value)> {
    ["initContainers", "containers"].into_iter().flat_map(move |field| {
        let places = (0..).map(move |index| format!("{POD_SPEC}.{field}[{index}]"));
        places.zip(spec.list_at(field))
    })
}

#[cfg(test)]
mod tests;
