//! `spec.os`, and what a pod of that operating system must not have.

use serde_json::Value;

use super::security::containers;
use crate::core::json::Json;
use crate::core::model::FieldError;
use crate::core::validate::rules::POD_SPEC;
use crate::core::validate::rules::required_one_of;
use crate::core::validate::wrong;

const NOT_ON_WINDOWS: &str = "not allowed in a Windows pod";
const OF_LINUX_CONTAINERS: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];
const OF_LINUX_PODS: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
];

/// `validateOS`, `validateLinux` and `validateWindows`.
pub(super) fn check(spec: &Value, errors: &mut Vec<FieldError>) {
    let Some(os) = spec.at("os") else { return };
    required_one_of(os, "name", &["linux", "windows"], &format!("{POD_SPEC}.os"), errors);
    match os.str_at("name") {
        "linux" => linux(spec, errors),
        "windows" => windows(spec, errors),
        _ => {}
    }
}

fn linux(spec: &Value, errors: &mut Vec<FieldError>) {
    for (place, holder) in std::iter::once((POD_SPEC.to_owned(), spec)).chain(containers(spec)) {
        if holder.at(["securityContext", "windowsOptions"]).is_some() {
            errors.push(wrong(format!("{place}.securityContext.windowsOptions"), "not allowed in a Linux pod"));
        }
    }
}

fn windows(spec: &Value, errors: &mut Vec<FieldError>) {
    let mut forbid = |place: String| errors.push(wrong(place, NOT_ON_WINDOWS));
    for field in ["hostUsers", "shareProcessNamespace"].into_iter().filter(|field| spec.at(*field).is_some()) {
        forbid(format!("{POD_SPEC}.{field}"));
    }
    for field in ["hostPID", "hostIPC"].into_iter().filter(|field| spec.flag_at(*field)) {
        forbid(format!("{POD_SPEC}.{field}"));
    }
    if !spec.list_at(["securityContext", "sysctls"]).is_empty() {
        forbid(format!("{POD_SPEC}.securityContext.sysctls"));
    }
    let of_pod = OF_LINUX_PODS.iter().filter(|field| spec.at(["securityContext", **field]).is_some());
    of_pod.for_each(|field| forbid(format!("{POD_SPEC}.securityContext.{field}")));
    for (place, container) in containers(spec) {
        let own = OF_LINUX_CONTAINERS.iter().filter(|field| container.at(["securityContext", **field]).is_some());
        own.for_each(|field| forbid(format!("{place}.securityContext.{field}")));
    }
}
