//! Host paths of pods that are kept below granted prefixes: the volume is the prefix, and the kubelet resolves the rest.
//!
//! Owns the way around symbolic links: a process that can make one below the prefix would otherwise choose what is mounted. The
//! kubelet resolves a `subPath` beneath its volume without following links out of it, at each start of a container.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::core::json::Json;
use crate::core::model::Author;
use crate::core::policy::below;
use crate::core::render::containers;
use crate::core::render::context::RenderContext;
use crate::core::render::expansion;
use crate::core::render::json::Object;

/// The first kubelet that knows recursively read-only mounts without a feature gate.
const RECURSIVE_READ_ONLY: (u32, u32) = (1, 31);

/// Rewrites the `hostPath` volumes of a pod that is not trusted, and their mounts: to read only.
pub(super) fn confine(ctx: &mut RenderContext<'_>, spec: &mut Object) {
    let input = ctx.input;
    let Some(prefixes) = input.options.rules.confines(ctx.namespace()) else { return };
    if input.daemon_set.author() == Author::NodeOwner {
        return;
    }
    let (mut rests, mut unchecked) = (BTreeMap::new(), Vec::new());
    for volume in members(spec, "volumes") {
        let Some(path) = volume.get("hostPath").and_then(|source| source.text_at("path")) else { continue };
        // A running instance whose path was never granted stays as it is; a new one does not start.
        let Some((prefix, rest)) = below(path, prefixes) else { continue };
        let kind = volume.get("hostPath").and_then(|source| source.text_at("type")).unwrap_or_default().to_owned();
        let mut source = Object::new();
        source.insert("path".to_owned(), prefix.into());
        let name = volume.str_at("name").to_owned();
        match (rest.is_empty(), kind.as_str()) {
            (true, "Directory" | "File") => drop(source.insert("type".to_owned(), kind.into())),
            (false, "Directory") => unchecked.push(format!("spec.template.spec.volumes[{name}].hostPath.type")),
            _ => {}
        }
        rests.insert(name, rest);
        volume.insert("hostPath".to_owned(), source.into());
    }
    if rests.is_empty() {
        return;
    }
    let is_known = input.options.kubelet_version.is_none_or(|version| version >= RECURSIVE_READ_ONLY);
    let mut writing = Vec::new();
    containers::for_each_mut(spec, |list, index, container| {
        for mount in members(container, "volumeMounts") {
            let Some(rest) = rests.get(mount.str_at("name")) else { continue };
            if !mount.flag_at("readOnly") {
                writing.push(format!("spec.template.spec.{list}[{index}].volumeMounts[{}]", mount.str_at("mountPath")));
            }
            mount.insert("readOnly".to_owned(), true.into());
            if is_known && matches!(mount.str_at("mountPropagation"), "" | "None") {
                // Where the node's runtime cannot, the mount alone is read only.
                mount.insert("recursiveReadOnly".to_owned(), "IfPossible".into());
            }
            go_down(mount, rest);
        }
    });
    for field in unchecked {
        let reason = "is not checked below a granted path: the kubelet makes a folder that is missing";
        ctx.note(field, reason, "leave it out, or trust the namespace");
    }
    for field in writing {
        let reason = "is read only: paths of the host are granted to namespaces that are not trusted to read alone";
        ctx.note(field, reason, "set readOnly: true, or trust the namespace");
    }
}

fn members<'a>(object: &'a mut Object, list: &str) -> impl Iterator<Item = &'a mut Object> {
    object.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Puts `rest` in front of what the mount has of the volume.
fn go_down(mount: &mut Object, rest: &str) {
    if rest.is_empty() {
        return;
    }
    if let Some(own) = mount.text_at("subPathExpr") {
        let both = format!("{}/{own}", expansion::escape(rest));
        mount.insert("subPathExpr".to_owned(), both.into());
        return;
    }
    let own = mount.text_at("subPath").map(|own| format!("{rest}/{own}"));
    mount.insert("subPath".to_owned(), own.unwrap_or_else(|| rest.to_owned()).into());
}

#[cfg(test)]
mod tests;
