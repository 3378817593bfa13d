//! The gate of a pod that starts after others: a variable of the container that starts first, whose file the agent takes
//! away while the pod waits.
//!
//! Owns the volume with that file. The manifest is the same whether the gate is open or closed, and a node without an
//! agent finds it open.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::json;

use crate::core::json::Json;
use crate::core::model::AFTER;
use crate::core::model::StartGate;
use crate::core::render::context::RenderContext;
use crate::core::render::env_file;
use crate::core::render::json;
use crate::core::render::json::Object;
use crate::core::volume::VolumeData;
use crate::core::volume::VolumeFile;

/// The volume of the gate.
pub const GATE: &str = "daemonlet-gate";
const MOUNT_PATH: &str = "/.daemonlet-gate";
/// The file in that volume.
pub const FILE: &str = "gate";
const KEY: &str = "OPEN";
const VARIABLE: &str = "DAEMONLET_GATE";

/// Puts the gate before the first init container, else before all containers.
pub(super) fn add(ctx: &mut RenderContext<'_>, spec: &mut Object) {
    let gate = ctx.input.daemon_set.gate;
    if gate == StartGate::None {
        return;
    }
    let field = || format!("metadata.annotations[{AFTER}]");
    if spec.list_at("volumes").iter().any(|volume| volume.str_at("name") == GATE) {
        let reason = format!("the pod has a volume {GATE} of its own, so only first starts are ordered, and no boot");
        return ctx.note(field(), &reason, "give the volume another name");
    }
    match (ctx.input.options.kubelet_version, gate) {
        (Some(version), _) if version >= env_file::SINCE => {}
        // While the kubelet's version is not known, a running instance stays as it is.
        (None, StartGate::Has) => {}
        (Some(_), _) => {
            let reason = "this kubelet is older than 1.35, so only first starts are ordered, and no boot";
            return ctx.note(field(), reason, "upgrade the kubelet");
        }
        (None, _) => return,
    }
    ctx.has_gate = true;
    let (list, count) = match spec.list_at("initContainers").is_empty() {
        true => ("containers", usize::MAX),
        false => ("initContainers", 1),
    };
    let containers = json::list_mut(spec, list).into_iter().flatten();
    for container in containers.filter_map(Value::as_object_mut).take(count) {
        let Some(mounts) = json::list_mut(container, "volumeMounts") else { continue };
        let path = env_file::free_path(MOUNT_PATH, mounts);
        mounts.push(json!({"name": GATE, "mountPath": path, "readOnly": true}));
        let reference = json!({"volumeName": GATE, "path": FILE, "key": KEY});
        let Some(variables) = json::list_mut(container, "env") else { continue };
        let mut name = VARIABLE.to_owned();
        while variables.iter().any(|variable| variable.str_at("name") == name) {
            name.push('_');
        }
        variables.push(json!({"name": name, "valueFrom": {"fileKeyRef": reference}}));
    }
    if let Some(volumes) = json::list_mut(spec, "volumes") {
        volumes.push(json!({"name": GATE, "emptyDir": {}}));
        ctx.volumes.push(open());
    }
}

/// The data of an open gate; a closed one has none.
pub fn open() -> VolumeData {
    let file = VolumeFile { data: format!("{KEY}='1'\n").into_bytes().into(), mode: 0o400, uid: None };
    VolumeData { name: GATE.to_owned(), files: BTreeMap::from([(FILE.to_owned(), file)]), ..VolumeData::default() }
}

#[cfg(test)]
mod tests;
