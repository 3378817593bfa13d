//! Visiting the containers of a pod, and facts about all of them together.
//!
//! Must not change anything by itself: the visitor does.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::Value;

use crate::core::json::Json;
use crate::core::render::context::RenderContext;
use crate::core::render::json::Object;

/// The lists that hold containers, in the order in which upstream visits them.
pub(super) const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Refuses mounts above the root: a runtime takes them for other places than their text says, and what is mounted inside a
/// volume is found by the text.
pub(super) fn refuse_mounts_above(ctx: &mut RenderContext<'_>, spec: &Object) {
    for (field, container) in all(spec) {
        for (index, mount) in container.list_at("volumeMounts").iter().enumerate() {
            let path = mount.str_at("mountPath");
            if clean_path(path).split('/').next() == Some("..") {
                let field = format!("{field}.volumeMounts[{index}].mountPath");
                ctx.refuse(field, format!("{path:?} leads above the root of the container"), "write an absolute path");
            }
        }
    }
}

/// Every container of `spec` with its field path.
pub(super) fn all(spec: &impl Json) -> impl Iterator<Item = (String, &Value)> {
    LISTS.into_iter().flat_map(|list| {
        spec.list_at(list)
            .iter()
            .enumerate()
            .map(move |(index, container)| (format!("spec.template.spec.{list}[{index}]"), container))
    })
}

/// Containers by name.
pub(super) type ByName<'a> = BTreeMap<&'a str, &'a Value>;

/// The containers of `spec` that have a name.
pub(super) fn by_name(spec: &Object) -> ByName<'_> {
    all(spec).filter_map(|(_, container)| Some((container.text_at("name")?, container))).collect()
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

/// By volume, the folders inside it that other volumes are mounted on, relative to its root (upstream's
/// `getNestedMountpoints`), each with the field of the first mount there.
pub(super) fn nested_mount_points(spec: &Object) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut nested: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for (field, container) in all(spec) {
        let mounts = container.list_at("volumeMounts").iter().enumerate();
        let points: BTreeMap<_, Vec<_>> = mounts.fold(BTreeMap::new(), |mut points, (index, mount)| {
            if let Some(point) = mount_point(mount) {
                points.entry(ByFolder(point)).or_insert_with(Vec::new).push((index, mount.str_at("name")));
            }
            points
        });
        let mut above: Vec<(&str, &[(usize, &str)])> = Vec::new();
        for (ByFolder(point), mounts) in &points {
            while above.pop_if(|(outer, _)| below(point, outer).is_none()).is_some() {}
            if let Some((outer, volumes)) = above.last() {
                let inner = below(point, outer).unwrap_or_default();
                for (_, volume) in *volumes {
                    let index = mounts.first().map_or(0, |(index, _)| *index);
                    let inside = nested.entry((*volume).to_owned()).or_default();
                    let field = || format!("{field}.volumeMounts[{index}].mountPath");
                    inside.entry(inner.to_owned()).or_insert_with(field);
                }
            }
            above.push((point.as_str(), mounts.as_slice()));
        }
    }
    nested
}

/// What `path` has below the folder `outer`; `None` if it is not below it.
pub(super) fn below<'a>(path: &'a str, outer: &str) -> Option<&'a str> {
    path.strip_prefix(outer)?.strip_prefix('/')
}

/// A path, ordered so that what is below it comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ByFolder<T>(pub(super) T);

impl<T: AsRef<str> + Eq> Ord for ByFolder<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |byte: u8| (byte != b'/', byte);
        let [one, other] = [self, other].map(|path| path.0.as_ref().bytes().map(key));
        one.cmp(other)
    }
}

impl<T: AsRef<str> + Eq> PartialOrd for ByFolder<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
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
