//! Visiting the containers of a pod, and facts about all of them together.
//!
//! Must not change anything but what the visitor changes.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::core::json::Json;
use crate::core::render::json::Object;

/// The lists that hold containers, in the order in which upstream visits them.
pub(super) const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Every container of `spec` with its field path.
pub(super) fn all(spec: &Object) -> impl Iterator<Item = (String, &Value)> {
    LISTS.into_iter().flat_map(|list| {
        spec.list_at(list)
            .iter()
            .enumerate()
            .map(move |(index, container)| (format!("spec.template.spec.{list}[{index}]"), container))
    })
}

/// Calls `visit` with list name, index and every container of `spec`.
pub(super) fn for_each_mut(spec: &mut Object, mut visit: impl FnMut(&'static str, usize, &mut Object)) {
    for list in LISTS {
        let Some(containers) = spec.get_mut(list).and_then(Value::as_array_mut) else { continue };
        for (index, container) in containers.iter_mut().enumerate() {
            if let Some(container) = container.as_object_mut() {
                visit(list, index, container);
            }
        }
    }
}

/// The one user that all containers run as, if they all set the same (upstream's `FsUserFrom`).
pub(super) fn common_run_as_user(spec: &Object) -> Option<u32> {
    let of_pod = spec.at("securityContext").and_then(|context| context.get("runAsUser"));
    let mut common = None;
    for (_, container) in all(spec) {
        let own = container.at(["securityContext", "runAsUser"]);
        let user = own.or(of_pod).and_then(Value::as_u64).and_then(|user| u32::try_from(user).ok())?;
        if common.is_some_and(|common| common != user) {
            return None;
        }
        common = Some(user);
    }
    common
}

/// The pod's `securityContext.fsGroup`.
pub(super) fn fs_group(spec: &Object) -> Option<u32> {
    let group = spec.at("securityContext").and_then(|context| context.get("fsGroup"));
    group.and_then(Value::as_u64).and_then(|group| u32::try_from(group).ok())
}

/// Folders inside the volume `name` that other volumes are mounted on, relative to its root
/// (upstream's `getNestedMountpoints`).
pub(super) fn nested_mount_points(spec: &Object, name: &str) -> BTreeSet<String> {
    let mut nested = BTreeSet::new();
    for (_, container) in all(spec) {
        let mounts = container.list_at("volumeMounts");
        if mounts.len() < 2 || !mounts.iter().any(|mount| mount.text_at("name") == Some(name)) {
            continue;
        }
        let mut points: Vec<_> = mounts.iter().filter_map(mount_point).collect();
        points.sort();
        for own in mounts.iter().filter(|mount| mount.text_at("name") == Some(name)).filter_map(mount_point) {
            let prefix = format!("{own}/");
            let mut found: Vec<String> = Vec::new();
            for point in points.iter().filter(|point| point.starts_with(&prefix)) {
                if !found.iter().any(|outer| point.starts_with(outer.as_str())) {
                    found.push(format!("{point}/"));
                    nested.extend(point.get(prefix.len()..).map(str::to_owned));
                }
            }
        }
    }
    nested
}

fn mount_point(mount: &Value) -> Option<String> {
    mount.text_at("mountPath").map(clean_path)
}

/// `path` without empty, `.` and resolvable `..` elements (Go's `filepath.Clean`).
pub(super) fn clean_path(path: &str) -> String {
    if is_clean(path) {
        return path.to_owned();
    }
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if rooted => {}
            other => parts.push(other),
        }
    }
    match (rooted, parts.is_empty()) {
        (true, _) => format!("/{}", parts.join("/")),
        (false, true) => ".".to_owned(),
        (false, false) => parts.join("/"),
    }
}

/// Whether `path` looks clean: between slashes nothing is empty or starts with a dot.
fn is_clean(path: &str) -> bool {
    let relative = path.strip_prefix('/').unwrap_or(path);
    !relative.starts_with(['/', '.'])
        && !relative.contains("/.")
        && !relative.contains("//")
        && !path.ends_with('/')
        && !path.is_empty()
}

#[cfg(test)]
mod tests;
