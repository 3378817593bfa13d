//! The Pod Security Standards: what a namespace's labels enforce, and whether a pod complies.
//!
//! Owns the table of checks ([`CHECKS`]) and the selection by level and version, as in `k8s.io/pod-security-admission`
//! (`policy/registry.go`, `api/helpers.go`), with its wording. Must not decide what follows from a violation.

mod checks;
mod pod;
mod values;

use std::fmt;

use serde_json::Value;

use pod::CheckedPod;

use crate::core::named::named;

/// The label of a namespace with the level that is enforced.
pub const LEVEL_LABEL: &str = "pod-security.kubernetes.io/enforce";
/// The label of a namespace with the version of the level that is enforced.
pub const VERSION_LABEL: &str = "pod-security.kubernetes.io/enforce-version";

named! {
    /// What is not known is the strictest one.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
    pub enum PodSecurityLevel {
        /// Everything is allowed.
        Privileged = "privileged",
        /// Known ways to the host are forbidden.
        Baseline = "baseline",
        /// Current hardening practice is required.
        #[default]
        Restricted = "restricted",
    }
}

/// Which release's definition of a level applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodSecurityVersion {
    /// The newest known one.
    #[default]
    Latest,
    /// That of Kubernetes 1.n.
    Minor(u32),
}

/// What a namespace enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enforced {
    pub level: PodSecurityLevel,
    pub version: PodSecurityVersion,
}

impl Enforced {
    /// What the Namespace object `namespace` enforces; `default` applies without the label. An invalid level counts as
    /// `restricted`, an invalid version as `latest` (upstream's `PolicyToEvaluate`).
    pub fn of_namespace(namespace: &Value, default: PodSecurityLevel) -> Self {
        let label = |name: &str| namespace["metadata"]["labels"].get(name).and_then(Value::as_str);
        let level =
            label(LEVEL_LABEL).map(|text| PodSecurityLevel::from_name(text).unwrap_or(PodSecurityLevel::Restricted));
        Self { level: level.unwrap_or(default), version: label(VERSION_LABEL).map(version).unwrap_or_default() }
    }
}

/// `latest`, or `v1.` and a number without leading zeros.
fn version(text: &str) -> PodSecurityVersion {
    let minor = text.strip_prefix("v1.").filter(|minor| *minor == "0" || !minor.starts_with('0'));
    match minor.filter(|minor| minor.bytes().all(|b| b.is_ascii_digit())).and_then(|minor| minor.parse().ok()) {
        Some(minor) => PodSecurityVersion::Minor(minor),
        None => PodSecurityVersion::Latest,
    }
}

impl fmt::Display for Enforced {
    /// `baseline:latest`, as the API server prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            PodSecurityVersion::Latest => write!(f, "{}:latest", self.level.as_str()),
            PodSecurityVersion::Minor(minor) => write!(f, "{}:v1.{minor}", self.level.as_str()),
        }
    }
}

/// What a level does not allow a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// A short name.
    pub reason: String,
    /// Which containers, volumes or values, and what they must not do.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.reason, self.detail)
    }
}

/// One check, in its versions, oldest first.
struct Check {
    id: &'static str,
    level: PodSecurityLevel,
    versions: &'static [VersionedCheck],
}

/// A check since Kubernetes 1.`since`.
struct VersionedCheck {
    since: u32,
    run: fn(&CheckedPod<'_>) -> Option<Violation>,
    /// The baseline check that it replaces.
    instead_of: Option<&'static str>,
}

const fn since(since: u32, run: fn(&CheckedPod<'_>) -> Option<Violation>) -> VersionedCheck {
    VersionedCheck { since, run, instead_of: None }
}

const fn instead_of(id: &'static str, since: u32, run: fn(&CheckedPod<'_>) -> Option<Violation>) -> VersionedCheck {
    VersionedCheck { since, run, instead_of: Some(id) }
}

const fn baseline(id: &'static str, versions: &'static [VersionedCheck]) -> Check {
    Check { id, level: PodSecurityLevel::Baseline, versions }
}

const fn restricted(id: &'static str, versions: &'static [VersionedCheck]) -> Check {
    Check { id, level: PodSecurityLevel::Restricted, versions }
}

/// Every check, in the order in which upstream words the violations: by level, then by name.
const CHECKS: [Check; 19] = [
    baseline("appArmorProfile", &[since(0, checks::app_armor)]),
    baseline("capabilities_baseline", &[since(0, checks::added_capabilities)]),
    baseline("hostNamespaces", &[since(0, checks::host_namespaces)]),
    baseline("hostPathVolumes", &[since(0, checks::host_paths)]),
    baseline("hostPorts", &[since(0, checks::host_ports)]),
    baseline("hostProbesAndHostLifecycle", &[since(34, checks::probe_hosts)]),
    baseline("privileged", &[since(0, checks::privileged)]),
    baseline("procMount", &[since(0, checks::proc_mount), since(35, checks::proc_mount_of_host_users)]),
    baseline("seLinuxOptions", &[since(0, checks::selinux_1_0), since(31, checks::selinux_1_31)]),
    baseline("seccompProfile_baseline", &[since(0, checks::seccomp_annotations), since(19, checks::seccomp)]),
    baseline(
        "sysctls",
        &[
            since(0, checks::sysctls_1_0),
            since(27, checks::sysctls_1_27),
            since(29, checks::sysctls_1_29),
            since(32, checks::sysctls_1_32),
        ],
    ),
    baseline("windowsHostProcess", &[since(0, checks::host_process)]),
    restricted(
        "allowPrivilegeEscalation",
        &[since(8, checks::privilege_escalation), since(25, checks::privilege_escalation_but_windows)],
    ),
    restricted(
        "capabilities_restricted",
        &[
            instead_of("capabilities_baseline", 22, checks::dropped_capabilities),
            instead_of("capabilities_baseline", 25, checks::dropped_capabilities_but_windows),
        ],
    ),
    restricted("procMount_restricted", &[instead_of("procMount", 35, checks::proc_mount)]),
    restricted("restrictedVolumes", &[instead_of("hostPathVolumes", 0, checks::volume_types)]),
    restricted("runAsNonRoot", &[since(0, checks::non_root), since(35, checks::non_root_of_host_users)]),
    restricted("runAsUser", &[since(23, checks::root_user), since(35, checks::root_user_of_host_users)]),
    restricted(
        "seccompProfile_restricted",
        &[
            instead_of("seccompProfile_baseline", 19, checks::required_seccomp),
            instead_of("seccompProfile_baseline", 25, checks::required_seccomp_but_windows),
        ],
    ),
];

/// What the level does not allow of the pod of `template` (its `metadata` and `spec`), worded as the API server's
/// admission does; empty if it complies.
pub fn violations(enforced: Enforced, template: &Value) -> Vec<Violation> {
    if enforced.level == PodSecurityLevel::Privileged {
        return Vec::new();
    }
    let minor = match enforced.version {
        PodSecurityVersion::Latest => u32::MAX,
        PodSecurityVersion::Minor(minor) => minor,
    };
    let current = |check: &'static Check| {
        check.versions.iter().rev().find(|v| v.since <= minor).filter(|_| check.level <= enforced.level)
    };
    let in_force: Vec<(&Check, &VersionedCheck)> = CHECKS.iter().filter_map(|c| Some((c, current(c)?))).collect();
    let pod = CheckedPod::of_template(template);
    let replaced = |check: &Check| in_force.iter().any(|(_, v)| v.instead_of == Some(check.id));
    in_force.iter().filter(|(check, _)| !replaced(check)).filter_map(|(_, v)| (v.run)(&pod)).collect()
}

#[cfg(test)]
mod tests;
