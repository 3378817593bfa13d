//! The checks themselves, one function each.
//!
//! Owns what each check looks at and its wording, both as in upstream's `policy/check_*.go`. Must not know levels or
//! versions: the table does.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Violation;
use super::pod::CheckedPod;
use super::pod::list;
use super::pod::name;
use super::pod::number;
use super::pod::text;
use super::values::DEFAULT_CAPABILITIES;
use super::values::OTHER_VOLUME_TYPES;
use super::values::SELINUX_TYPES;
use super::values::SYSCTLS;
use super::values::VOLUME_TYPES;

use crate::core::json::Json;

type CheckResult = Option<Violation>;

pub(super) fn app_armor(pod: &CheckedPod<'_>) -> CheckResult {
    let mut values = BTreeSet::new();
    let mut setters = setters(pod, |context| {
        let Some(profile) = object(&context["appArmorProfile"]) else { return false };
        let kind = profile.str_at("type");
        let bad = !matches!(kind, "RuntimeDefault" | "Localhost");
        if bad {
            values.insert(kind.to_owned());
        }
        bad
    });
    let allowed = |v: &str| v.is_empty() || v == "runtime/default" || v.starts_with("localhost/");
    let annotations = pod.annotations().into_iter();
    let annotations: Vec<String> = annotations
        .filter(|(key, value)| key.starts_with("container.apparmor.security.beta.kubernetes.io/") && !allowed(value))
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    if !annotations.is_empty() {
        setters.push(plural(annotations.len(), "annotation", "annotations").to_owned());
    }
    let values: Vec<String> = values.into_iter().chain(annotations).collect();
    let reason = plural(values.len(), "forbidden AppArmor profile", "forbidden AppArmor profiles");
    let detail = || format!("{} must not set AppArmor profile type to {}", setters.join(" and "), quoted(&values));
    (!setters.is_empty()).then(|| violation(reason, detail()))
}

pub(super) fn added_capabilities(pod: &CheckedPod<'_>) -> CheckResult {
    let (bad, added) = adding(pod, |capability| DEFAULT_CAPABILITIES.contains(&capability));
    let detail = || must_not_include(&bad, &added);
    (!bad.is_empty()).then(|| violation("non-default capabilities", detail()))
}

pub(super) fn dropped_capabilities(pod: &CheckedPod<'_>) -> CheckResult {
    let (adding, added) = adding(pod, |capability| capability == "NET_BIND_SERVICE");
    let keeps = |c: &&Value| !c.list_at(["securityContext", "capabilities", "drop"]).iter().any(|drop| drop == "ALL");
    let keeping: Vec<&str> = pod.containers().filter(keeps).map(name).collect();
    let mut details = Vec::new();
    if !keeping.is_empty() {
        details.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", containers(&keeping)));
    }
    if !adding.is_empty() {
        details.push(must_not_include(&adding, &added));
    }
    (!details.is_empty()).then(|| violation("unrestricted capabilities", details.join("; ")))
}

pub(super) fn dropped_capabilities_but_windows(pod: &CheckedPod<'_>) -> CheckResult {
    if pod.is_windows() { None } else { dropped_capabilities(pod) }
}

pub(super) fn host_namespaces(pod: &CheckedPod<'_>) -> CheckResult {
    let fields = ["hostNetwork", "hostPID", "hostIPC"];
    let used: Vec<String> = fields.iter().filter(|f| pod.spec()[**f] == true).map(|f| format!("{f}=true")).collect();
    (!used.is_empty()).then(|| violation("host namespaces", used.join(", ")))
}

pub(super) fn host_paths(pod: &CheckedPod<'_>) -> CheckResult {
    let volumes = list(&pod.spec()["volumes"]).iter();
    let bad: Vec<&str> = volumes.filter(|volume| !volume["hostPath"].is_null()).map(name).collect();
    let detail = || format!("{} {}", plural(bad.len(), "volume", "volumes"), quoted(&bad));
    (!bad.is_empty()).then(|| violation("hostPath volumes", detail()))
}

pub(super) fn host_ports(pod: &CheckedPod<'_>) -> CheckResult {
    let mut ports = BTreeSet::new();
    let host_port = |port: &Value| number(&port["hostPort"]).filter(|port| *port != 0);
    let bad = bad_containers(pod, |container| {
        let found: Vec<i64> = container.list_at("ports").iter().filter_map(host_port).collect();
        ports.extend(found.iter().map(ToString::to_string));
        !found.is_empty()
    });
    let uses = plural(bad.len(), "uses", "use");
    let (what, ports) =
        (plural(ports.len(), "hostPort", "hostPorts"), ports.into_iter().collect::<Vec<_>>().join(", "));
    (!bad.is_empty()).then(|| violation("hostPort", format!("{} {uses} {what} {ports}", containers(&bad))))
}

pub(super) fn probe_hosts(pod: &CheckedPod<'_>) -> CheckResult {
    let mut hosts = BTreeSet::new();
    // Upstream collects these containers in a set: sorted, each once.
    let bad: BTreeSet<&str> = bad_containers(pod, |container| {
        let probes = ["livenessProbe", "readinessProbe", "startupProbe"].map(|probe| &container[probe]);
        let hooks = ["postStart", "preStop"].map(|hook| &container["lifecycle"][hook]);
        let handlers = probes.into_iter().chain(hooks);
        let found: Vec<&str> = handlers
            .flat_map(|handler| ["httpGet", "tcpSocket"].map(|kind| text(&handler[kind]["host"])))
            .filter(|host| !host.is_empty())
            .collect();
        hosts.extend(found.iter().map(|host| (*host).to_owned()));
        !found.is_empty()
    })
    .into_iter()
    .collect();
    let bad: Vec<&str> = bad.into_iter().collect();
    let uses = plural(bad.len(), "uses", "use");
    let what = plural(hosts.len(), "probe or lifecycle host", "probe or lifecycle hosts");
    let detail = || format!("{} {uses} {what} {}", containers(&bad), quoted(&hosts.iter().collect::<Vec<_>>()));
    (!bad.is_empty()).then(|| violation("probe or lifecycle host", detail()))
}

pub(super) fn privileged(pod: &CheckedPod<'_>) -> CheckResult {
    let bad = bad_containers(pod, |container| container["securityContext"]["privileged"] == true);
    let detail = || format!("{} must not set securityContext.privileged=true", containers(&bad));
    (!bad.is_empty()).then(|| violation("privileged", detail()))
}

pub(super) fn proc_mount(pod: &CheckedPod<'_>) -> CheckResult {
    let mut values = BTreeSet::new();
    let bad = bad_containers(pod, |container| {
        let Some(value) = container["securityContext"]["procMount"].as_str() else { return false };
        let bad = value != "Default";
        if bad {
            values.insert(value.to_owned());
        }
        bad
    });
    let values: Vec<String> = values.into_iter().collect();
    let detail = || format!("{} must not set securityContext.procMount to {}", containers(&bad), quoted(&values));
    (!bad.is_empty()).then(|| violation("procMount", detail()))
}

pub(super) fn proc_mount_of_host_users(pod: &CheckedPod<'_>) -> CheckResult {
    if pod.has_own_users() { None } else { proc_mount(pod) }
}

pub(super) fn selinux_1_0(pod: &CheckedPod<'_>) -> CheckResult {
    selinux(pod, &SELINUX_TYPES[..4])
}

pub(super) fn selinux_1_31(pod: &CheckedPod<'_>) -> CheckResult {
    selinux(pod, &SELINUX_TYPES)
}

fn selinux(pod: &CheckedPod<'_>, allowed: &[&str]) -> CheckResult {
    let mut types = BTreeSet::new();
    let (mut user, mut role) = (false, false);
    let setters = setters(pod, |context| {
        let Some(options) = object(&context["seLinuxOptions"]) else { return false };
        let kind = options.str_at("type");
        let bad = (!allowed.contains(&kind), !options.str_at("user").is_empty(), !options.str_at("role").is_empty());
        if bad.0 {
            types.insert(kind.to_owned());
        }
        user |= bad.1;
        role |= bad.2;
        bad.0 || bad.1 || bad.2
    });
    let mut data = Vec::new();
    if !types.is_empty() {
        let what = plural(types.len(), "type", "types");
        data.push(format!("{what} {}", quoted(&types.into_iter().collect::<Vec<_>>())));
    }
    data.extend(user.then(|| "user may not be set".to_owned()));
    data.extend(role.then(|| "role may not be set".to_owned()));
    let detail =
        || format!("{} set forbidden securityContext.seLinuxOptions: {}", setters.join(" and "), data.join("; "));
    (!setters.is_empty()).then(|| violation("seLinuxOptions", detail()))
}

pub(super) fn seccomp_annotations(pod: &CheckedPod<'_>) -> CheckResult {
    let allowed = |v: &str| v == "runtime/default" || v == "docker/default" || v.starts_with("localhost/");
    let mut keys = BTreeSet::from(["seccomp.security.alpha.kubernetes.io/pod".to_owned()]);
    keys.extend(pod.containers().map(|c| format!("container.seccomp.security.alpha.kubernetes.io/{}", name(c))));
    let bad: Vec<String> = pod
        .annotations()
        .into_iter()
        .filter(|(key, value)| keys.contains(*key) && !allowed(value))
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    let detail = || format!("forbidden {} {}", plural(bad.len(), "annotation", "annotations"), bad.join(", "));
    (!bad.is_empty()).then(|| violation("seccompProfile", detail()))
}

pub(super) fn seccomp(pod: &CheckedPod<'_>) -> CheckResult {
    let mut values = BTreeSet::new();
    let setters = setters(pod, |context| {
        let Some(profile) = object(&context["seccompProfile"]) else { return false };
        let kind = profile.str_at("type");
        let bad = !is_confined(kind);
        if bad {
            values.insert(kind.to_owned());
        }
        bad
    });
    let values: Vec<String> = values.into_iter().collect();
    let words = || {
        let who = setters.join(" and ");
        format!("{who} must not set securityContext.seccompProfile.type to {}", quoted(&values))
    };
    (!setters.is_empty()).then(|| violation("seccompProfile", words()))
}

pub(super) fn required_seccomp(pod: &CheckedPod<'_>) -> CheckResult {
    if let Some(violation) = seccomp(pod) {
        return Some(violation);
    }
    if object(&pod.spec()["securityContext"]["seccompProfile"]).is_some() {
        return None;
    }
    let bad = bad_containers(pod, |container| object(&container["securityContext"]["seccompProfile"]).is_none());
    let must = "must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"";
    let detail = || format!("pod or {} {must}", containers(&bad));
    (!bad.is_empty()).then(|| violation("seccompProfile", detail()))
}

pub(super) fn required_seccomp_but_windows(pod: &CheckedPod<'_>) -> CheckResult {
    if pod.is_windows() { None } else { required_seccomp(pod) }
}

fn is_confined(profile: &str) -> bool {
    matches!(profile, "RuntimeDefault" | "Localhost")
}

pub(super) fn sysctls_1_0(pod: &CheckedPod<'_>) -> CheckResult {
    sysctls(pod, &SYSCTLS[..5])
}

pub(super) fn sysctls_1_27(pod: &CheckedPod<'_>) -> CheckResult {
    sysctls(pod, &SYSCTLS[..6])
}

pub(super) fn sysctls_1_29(pod: &CheckedPod<'_>) -> CheckResult {
    sysctls(pod, &SYSCTLS[..10])
}

pub(super) fn sysctls_1_32(pod: &CheckedPod<'_>) -> CheckResult {
    sysctls(pod, &SYSCTLS)
}

fn sysctls(pod: &CheckedPod<'_>, allowed: &[&str]) -> CheckResult {
    let names = list(&pod.spec()["securityContext"]["sysctls"]).iter().map(name);
    let bad: Vec<&str> = names.filter(|name| !allowed.contains(name)).collect();
    (!bad.is_empty()).then(|| violation("forbidden sysctls", bad.join(", ")))
}

pub(super) fn host_process(pod: &CheckedPod<'_>) -> CheckResult {
    let setters = setters(pod, |context| context["windowsOptions"]["hostProcess"] == true);
    let detail = || format!("{} must not set securityContext.windowsOptions.hostProcess=true", setters.join(" and "));
    (!setters.is_empty()).then(|| violation("hostProcess", detail()))
}

pub(super) fn privilege_escalation(pod: &CheckedPod<'_>) -> CheckResult {
    let bad = bad_containers(pod, |container| container["securityContext"]["allowPrivilegeEscalation"] != false);
    let detail = || format!("{} must set securityContext.allowPrivilegeEscalation=false", containers(&bad));
    (!bad.is_empty()).then(|| violation("allowPrivilegeEscalation != false", detail()))
}

pub(super) fn privilege_escalation_but_windows(pod: &CheckedPod<'_>) -> CheckResult {
    if pod.is_windows() { None } else { privilege_escalation(pod) }
}

pub(super) fn volume_types(pod: &CheckedPod<'_>) -> CheckResult {
    let has = |volume: &Value, types: &[&'static str]| types.iter().copied().find(|kind| !volume[*kind].is_null());
    let volumes = list(&pod.spec()["volumes"]).iter();
    let bad: Vec<&Value> = volumes.filter(|volume| has(volume, &VOLUME_TYPES).is_none()).collect();
    let types: BTreeSet<&str> = bad.iter().map(|v| has(v, &OTHER_VOLUME_TYPES).unwrap_or("unknown")).collect();
    let names: Vec<&str> = bad.iter().map(|volume| name(volume)).collect();
    let (what, use_) = (plural(names.len(), "volume", "volumes"), plural(names.len(), "uses", "use"));
    let kinds = plural(types.len(), "restricted volume type", "restricted volume types");
    let detail = || format!("{what} {} {use_} {kinds} {}", quoted(&names), quoted(&types.iter().collect::<Vec<_>>()));
    (!bad.is_empty()).then(|| violation("restricted volume types", detail()))
}

pub(super) fn non_root(pod: &CheckedPod<'_>) -> CheckResult {
    let reason = "runAsNonRoot != true";
    let setters = setters(pod, |context| context["runAsNonRoot"] == false);
    if !setters.is_empty() {
        let detail = format!("{} must not set securityContext.runAsNonRoot=false", setters.join(" and "));
        return Some(violation(reason, detail));
    }
    let whole_pod = pod.spec()["securityContext"]["runAsNonRoot"] == true;
    let bad = bad_containers(pod, |container| !whole_pod && !container["securityContext"]["runAsNonRoot"].is_boolean());
    let detail = || format!("pod or {} must set securityContext.runAsNonRoot=true", containers(&bad));
    (!bad.is_empty()).then(|| violation(reason, detail()))
}

pub(super) fn non_root_of_host_users(pod: &CheckedPod<'_>) -> CheckResult {
    if pod.has_own_users() { None } else { non_root(pod) }
}

pub(super) fn root_user(pod: &CheckedPod<'_>) -> CheckResult {
    let setters = setters(pod, |context| number(&context["runAsUser"]) == Some(0));
    (!setters.is_empty())
        .then(|| violation("runAsUser=0", format!("{} must not set runAsUser=0", setters.join(" and "))))
}

pub(super) fn root_user_of_host_users(pod: &CheckedPod<'_>) -> CheckResult {
    if pod.has_own_users() { None } else { root_user(pod) }
}

/// Containers that add capabilities which are not `allowed`, and those capabilities.
fn adding<'p>(pod: &'p CheckedPod<'_>, allowed: impl Fn(&str) -> bool) -> (Vec<&'p str>, Vec<String>) {
    let mut forbidden = BTreeSet::new();
    let bad = bad_containers(pod, |container| {
        let added = container.list_at(["securityContext", "capabilities", "add"]).iter().map(text);
        let found: Vec<&str> = added.filter(|capability| !allowed(capability)).collect();
        forbidden.extend(found.iter().map(|capability| (*capability).to_owned()));
        !found.is_empty()
    });
    (bad, forbidden.into_iter().collect())
}

fn must_not_include(bad: &[&str], capabilities: &[String]) -> String {
    format!("{} must not include {} in securityContext.capabilities.add", containers(bad), quoted(capabilities))
}

/// Whose security context violates: the pod's, the containers', or both.
fn setters(pod: &CheckedPod<'_>, mut is_bad: impl FnMut(&Value) -> bool) -> Vec<String> {
    let mut setters = Vec::new();
    if is_bad(&pod.spec()["securityContext"]) {
        setters.push("pod".to_owned());
    }
    let bad = bad_containers(pod, |container| is_bad(&container["securityContext"]));
    if !bad.is_empty() {
        setters.push(containers(&bad));
    }
    setters
}

/// The names of the violating containers.
fn bad_containers<'p>(pod: &'p CheckedPod<'_>, mut is_bad: impl FnMut(&'p Value) -> bool) -> Vec<&'p str> {
    pod.containers().filter(|container| is_bad(container)).map(name).collect()
}

/// `container "a"`, or `containers "a", "b"`.
fn containers(names: &[&str]) -> String {
    format!("{} {}", plural(names.len(), "container", "containers"), quoted(names))
}

fn quoted(items: &[impl AsRef<str>]) -> String {
    let quoted: Vec<String> = items.iter().map(|item| format!("\"{}\"", item.as_ref())).collect();
    quoted.join(", ")
}

fn plural(count: usize, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

fn object(value: &Value) -> Option<&Value> {
    value.is_object().then_some(value)
}

fn violation(reason: &str, detail: String) -> Violation {
    Violation { reason: reason.to_owned(), detail }
}
