//! The rules for a pod of a namespace that is not trusted.
//!
//! Owns what of such a pod would reach the host, another namespace or the cloud's metadata, and what it could take from
//! others: the kubelet treats every static pod as critical, and never evicts it.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use serde_json::json;

use super::Grant;
use super::Listed;
use super::NODE_WIDE;
use super::PodRules;
use super::broad::leads_to_sockets;
use super::containers;
use super::error;
use super::grant::FREE_TYPES;
use super::grant::below;
use super::is_like;
use super::runtime_annotations;
use super::trusting;
use crate::core::json::Json;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::SYSTEM_CLASS;
use crate::core::policy::pod_security;
use crate::core::policy::pod_security::Enforced;
use crate::core::policy::pod_security::PodSecurityVersion;
use crate::core::quantity;
use crate::core::render;
use crate::core::validate::patch_fields;

/// The highest priority of a class that is not the system's (`HighestUserDefinablePriority`).
const HIGHEST_PRIORITY: i64 = 1_000_000_000;
/// What a `hostPath` volume below a granted path may be: nothing that the kubelet would make, no socket, no device.
const PATH_TYPES: [&str; 3] = ["", "Directory", "File"];
/// The folders of the containers' logs. Whoever makes a folder where a log is to be stops that container.
const LOGS: [&str; 2] = ["/var/log/pods", "/var/log/containers"];
const MAKES_LOGS: &str = "the kubelet makes what is missing of such a path, and where a container's log is to be that stops \
                          the container: a part of the folder of logs is only for trusted namespaces";
const GRACE_PERIOD: &str = "terminationGracePeriodSeconds";

/// Adds what the pod of `daemon_set` does against `rules`.
pub(super) fn violations(rules: &PodRules, daemon_set: &DaemonSet, found: &mut Vec<FieldError>) {
    let (namespace, template) = (&daemon_set.key.namespace, daemon_set.pod_template());
    let none = Grant::default();
    let pod = Confined {
        rules,
        namespace,
        grant: rules.grants.get(namespace).unwrap_or(&none),
        spec: &template["spec"],
        trust: trusting(namespace),
    };
    pod.level(template, found);
    pod.priority(found);
    pod.ports(found);
    pod.volumes(found);
    pod.limits(found);
    pod.grace_periods(found);
    pod.unknown_fields(template, found);
    pod.env_files(found);
    pod.pulls(&daemon_set.patched_template()["spec"], found);
    pod.annotations(daemon_set.patched_template(), found);
}

struct Confined<'a> {
    rules: &'a PodRules,
    namespace: &'a str,
    grant: &'a Grant,
    spec: &'a Value,
    /// The hint that lifts all of these rules.
    trust: String,
}

impl Confined<'_> {
    /// PodSecurity at its newest version, whatever version the namespace asks for. Host ports and volumes have rules of
    /// their own, which grants lift.
    fn level(&self, template: &Value, found: &mut Vec<FieldError>) {
        let enforced = Enforced { level: self.rules.pod_security, version: PodSecurityVersion::Latest };
        let judged = without_granted(template);
        let violations = pod_security::violations(enforced, &judged);
        let reason = |violation| format!("policy.pod-security forbids it (\"{enforced}\"): {violation}");
        let errors = violations.iter().map(|violation| FieldError {
            field: "spec.template".to_owned(),
            reason: reason(violation),
            hint: Some(format!("change the template, or {}", self.trust)),
        });
        found.extend(errors);
    }

    fn priority(&self, found: &mut Vec<FieldError>) {
        let class = self.spec.str_at("priorityClassName");
        if class.starts_with(SYSTEM_CLASS) {
            let reason = format!("{class:?} is only for trusted namespaces");
            found.push(error("priorityClassName", reason, format!("use a class of your own, or {}", self.trust)));
        }
        if self.spec["priority"].as_i64().is_some_and(|priority| priority > HIGHEST_PRIORITY) {
            let reason = format!("more than {HIGHEST_PRIORITY} is only for trusted namespaces");
            found.push(error("priority", reason, format!("use a lower one, or {}", self.trust)));
        }
    }

    fn ports(&self, found: &mut Vec<FieldError>) {
        for (field, container) in containers(self.spec) {
            let ports = container.list_at("ports").iter().map(|port| &port["hostPort"]);
            for port in ports.filter(|port| !port.is_null() && **port != 0) {
                let number = port.as_i64();
                if number.is_some_and(|number| self.grant.host_ports.iter().any(|range| range.has(number))) {
                    continue;
                }
                let listed = Listed(&self.grant.host_ports);
                let reason = format!("{port} is not one of {} {listed}", self.key("host-ports"));
                let hint = format!("add {port} to {}, or {}", self.key("host-ports"), self.trust);
                found.push(error(&format!("{field}.ports.hostPort"), reason, hint));
            }
        }
    }

    fn volumes(&self, found: &mut Vec<FieldError>) {
        for volume in self.spec.list_at("volumes") {
            let name = volume.str_at("name");
            let of_type = |(kind, value): &(&String, &Value)| kind.as_str() != "name" && !value.is_null();
            let mut kinds = volume.as_object().into_iter().flatten().filter(of_type).peekable();
            if kinds.peek().is_none() {
                // It is an emptyDir. The API server writes that type into a template, but not into an overlay.
                self.empty_dir(&format!("volumes[{name}].emptyDir"), &Value::Null, found);
            }
            for (kind, source) in kinds {
                let field = format!("volumes[{name}].{kind}");
                match kind.as_str() {
                    "hostPath" => self.host_path(&field, name, source, found),
                    "emptyDir" => self.empty_dir(&field, source, found),
                    free if FREE_TYPES.contains(&free) => {}
                    // Rendering reports that for every namespace.
                    never if render::cannot_mount(never) => {}
                    granted if self.grant.volume_types.iter().any(|kind| kind == granted) => {}
                    other => {
                        let listed = Listed(&self.grant.volume_types);
                        let reason = format!("{other} is not one of {} {listed}", self.key("volume-types"));
                        let hint = format!("add {other:?} to {}, or {}", self.key("volume-types"), self.trust);
                        found.push(error(&field, reason, hint));
                    }
                }
            }
        }
    }

    /// The path has to lie in a granted one; the pod gets that one, and the kubelet resolves the rest beneath it.
    fn host_path(&self, field: &str, name: &str, source: &Value, found: &mut Vec<FieldError>) {
        let (path, kind) = (source.str_at("path"), source.str_at("type"));
        let Some((prefix, rest)) = below(path, &self.grant.host_paths) else {
            let listed = Listed(&self.grant.host_paths);
            let reason = format!("{path:?} is not below a path of {} {listed}", self.key("host-paths"));
            let hint = match leads_to_sockets(path) {
                true => format!(
                    "no grant makes a path of sockets and credentials safe: change the template, or {}",
                    self.trust
                ),
                false => format!("add {path:?} to {}, or {}", self.key("host-paths"), self.trust),
            };
            return found.push(error(&format!("{field}.path"), reason, hint));
        };
        if kind == "File" && !rest.is_empty() {
            let reason = format!(
                "a file below the granted {prefix:?} may be missing, and the kubelet would make a folder there"
            );
            let hint = format!("mount the folder that it lies in and leave the type out, or {}", self.trust);
            found.push(error(&format!("{field}.type"), reason, hint));
        }
        if !PATH_TYPES.contains(&kind) {
            let reason = format!("{kind:?} is only for trusted namespaces");
            found.push(error(&format!("{field}.type"), reason, format!("leave it out, or {}", self.trust)));
        }
        for (place, container) in containers(self.spec) {
            let mounts = container.list_at("volumeMounts").iter().filter(|mount| mount["name"] == name);
            for mount in mounts.filter(|m| !matches!(m.str_at("mountPropagation"), "" | "None")) {
                let place = format!("{place}.volumeMounts[{}].mountPropagation", mount.str_at("mountPath"));
                let reason = "a path of the host is mounted without propagation".to_owned();
                found.push(error(&place, reason, format!("leave it out, or {}", self.trust)));
            }
            for mount in container.list_at("volumeMounts").iter().filter(|mount| mount["name"] == name) {
                let (part, expanded) = (mount.str_at("subPath"), mount.str_at("subPathExpr"));
                if makes_logs(path, part) || makes_logs(path, expanded) {
                    let place = format!("{place}.volumeMounts[{}]", mount.str_at("mountPath"));
                    found.push(error(
                        &place,
                        MAKES_LOGS.to_owned(),
                        format!("mount the whole folder, or {}", self.trust),
                    ));
                }
            }
        }
    }

    fn empty_dir(&self, field: &str, source: &Value, found: &mut Vec<FieldError>) {
        let is_bounded = source["medium"] == "Memory" && is_positive(&source["sizeLimit"]);
        if !self.rules.local_storage && !is_bounded {
            let reason = "must have medium Memory and a sizeLimit: nothing evicts a static pod that fills the disk";
            found.push(error(field, reason.to_owned(), format!("set both, or {}", self.lift())));
        }
    }

    fn limits(&self, found: &mut Vec<FieldError>) {
        let pod = std::iter::once(("pod".to_owned(), self.spec));
        for (field, holder) in pod.chain(containers(self.spec)) {
            let names =
                ["limits", "requests"].into_iter().filter_map(|list| holder.at(["resources", list])?.as_object());
            let others: BTreeSet<&str> = names.flat_map(|list| list.keys()).map(String::as_str).collect();
            for name in others.into_iter().filter(|name| !["cpu", "memory"].contains(name)) {
                let reason = format!("{name} is only for trusted namespaces: the kubelet takes it from other pods");
                found.push(error(&format!("{field}.resources"), reason, format!("leave it out, or {}", self.trust)));
            }
        }
        for (field, container) in containers(self.spec) {
            if !container.at(["resources", "limits", "memory"]).is_some_and(is_positive) {
                let reason =
                    "is missing or 0: the kubelet evicts no static pod that takes the node's memory".to_owned();
                let hint = format!("set a limit, or {}", self.trust);
                found.push(error(&format!("{field}.resources.limits.memory"), reason, hint));
            }
            if !self.rules.local_storage && container["securityContext"]["readOnlyRootFilesystem"] != true {
                let reason = "must be true: nothing evicts a static pod that fills the disk".to_owned();
                let hint = format!("set it, or {}", self.lift());
                found.push(error(&format!("{field}.securityContext.readOnlyRootFilesystem"), reason, hint));
            }
        }
    }

    /// The end of a static pod cannot be shortened: no request deletes it, and its ports, its requests and its place are
    /// taken until then.
    fn grace_periods(&self, found: &mut Vec<FieldError>) {
        let probes = ["livenessProbe", "startupProbe"];
        let of_probes = containers(self.spec).flat_map(|(field, container)| {
            probes.map(|probe| (format!("{field}.{probe}.{GRACE_PERIOD}"), &container[probe][GRACE_PERIOD]))
        });
        let most = self.rules.max_grace_period.as_secs();
        for (field, period) in std::iter::once((GRACE_PERIOD.to_owned(), &self.spec[GRACE_PERIOD])).chain(of_probes) {
            if let Some(seconds) = period.as_i64().and_then(|seconds| u64::try_from(seconds).ok()).filter(|s| *s > most)
            {
                let reason = format!(
                    "{seconds} s is more than policy.max-grace-period ({most} s): nothing ends a static pod sooner"
                );
                found.push(error(
                    &field,
                    reason,
                    format!("shorten it, raise policy.max-grace-period ({NODE_WIDE}), or {}", self.trust),
                ));
            }
        }
    }

    /// The kubelet reads such a file whole at each start, and a container of the pod writes it, as long as it likes.
    fn env_files(&self, found: &mut Vec<FieldError>) {
        for (field, container) in containers(self.spec) {
            for variable in container.list_at("env") {
                if variable.at(["valueFrom", "fileKeyRef"]).is_some_and(|reference| !reference.is_null()) {
                    let field = format!("{field}.env[{}].valueFrom.fileKeyRef", variable.str_at("name"));
                    let reason = "is only for trusted namespaces: the kubelet reads what a container wrote".to_owned();
                    found.push(error(&field, reason, format!("use a ConfigMap, or {}", self.trust)));
                }
            }
        }
    }

    /// `written`: without what admission adds, which is the cluster's own decision.
    fn annotations(&self, written: &Value, found: &mut Vec<FieldError>) {
        let annotations = written.at(["metadata", "annotations"]).and_then(Value::as_object).into_iter().flatten();
        for (name, _) in annotations.filter(|(name, _)| runtime_annotations::has(name)) {
            if self.grant.annotations.iter().any(|pattern| is_like(name, pattern)) {
                continue;
            }
            let key = self.key("annotations");
            let listed = Listed(&self.grant.annotations);
            found.push(FieldError {
                field: format!("spec.template.metadata.annotations[{name:?}]"),
                reason: format!("container runtimes or their plugins obey it, and it matches none of {key} {listed}"),
                hint: Some(format!("leave it out, add {name:?} to {key}, or {}", self.trust)),
            });
        }
    }

    /// Once an image is on the node, every pod may use it: a static pod cannot restrict that.
    /// `written`: without what admission adds, such as the ServiceAccount's.
    fn pulls(&self, written: &Value, found: &mut Vec<FieldError>) {
        let names: Vec<&str> = written.list_at("imagePullSecrets").iter().map(|secret| secret.str_at("name")).collect();
        if !self.rules.shared_pulls && !names.is_empty() {
            let reason =
                format!("an image that needs a Secret ({}) would be every pod's on this node", names.join(", "));
            let hint = format!("set policy.shared-pulls = true ({NODE_WIDE}), or {}", self.trust);
            found.push(error("imagePullSecrets", reason, hint));
        }
    }

    /// Fields that this version does not know: no rule judges them, and a newer kubelet may obey them.
    fn unknown_fields(&self, template: &Value, found: &mut Vec<FieldError>) {
        let hint = || Some(format!("leave it out, or {}", self.trust));
        found.extend(patch_fields(template, "spec.template").into_iter().map(|e| FieldError { hint: hint(), ..e }));
    }

    fn lift(&self) -> String {
        format!("set policy.local-storage = true ({NODE_WIDE}), or {}", self.trust)
    }

    fn key(&self, key: &str) -> String {
        format!("policy.grants.{:?}.{key}", self.namespace)
    }
}

/// Whether a mount of `part` of the host's `path` may be of what lies in a folder of logs.
fn makes_logs(path: &str, part: &str) -> bool {
    let whole = Path::new(path).join(part.trim_start_matches('/'));
    let is_inside = |logs: &&str| whole.strip_prefix(logs).is_ok_and(|rest| rest.components().next().is_some());
    let may_be = |logs: &&str| Path::new(logs).starts_with(path) || Path::new(path).starts_with(logs);
    LOGS.iter().any(is_inside) || part.contains("$(") && LOGS.iter().any(may_be)
}

/// Whether a quantity is more than 0.
fn is_positive(value: &Value) -> bool {
    quantity::parse_json(value).is_some_and(|amount| amount.milli_value() > 0)
}

/// The template without what [`Confined::ports`] and [`Confined::volumes`] judge.
fn without_granted(template: &Value) -> Value {
    let mut template = template.clone();
    for volume in template.pointer_mut("/spec/volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        *volume = without_source(volume.take());
    }
    for kind in ["/spec/initContainers", "/spec/containers"] {
        for container in template.pointer_mut(kind).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(container) = container.as_object_mut() {
                container.remove("ports");
            }
        }
    }
    template
}

/// The volume, or an empty one in place of one whose type needs a grant.
fn without_source(volume: Value) -> Value {
    let kinds = volume.as_object().map(|volume| volume.keys().filter(|key| *key != "name"));
    match kinds.into_iter().flatten().any(|kind| !FREE_TYPES.contains(&kind.as_str())) {
        true => json!({"name": volume["name"], "emptyDir": {}}),
        false => volume,
    }
}
