//! `volumeMounts` and `volumeDevices` of a container.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;

use crate::core::json::Json;
use crate::core::model::FieldError;
use crate::core::validate::rules::BACKSTEPS;
use crate::core::validate::rules::goes_back;
use crate::core::validate::rules::not_below;
use crate::core::validate::rules::written_one_of;
use crate::core::validate::wrong;

/// `ValidateVolumeMounts`; [`devices`] tells what a mount shares with a device.
pub(super) fn check(container: &Value, volumes: &BTreeMap<&str, &Value>, place: &str, errors: &mut Vec<FieldError>) {
    let mut paths = BTreeSet::new();
    let privileged = container.flag_at(["securityContext", "privileged"]);
    for (index, mount) in container.list_at("volumeMounts").iter().enumerate() {
        let place = format!("{place}.volumeMounts[{index}]");
        let name = mount.str_at("name");
        if name.is_empty() {
            errors.push(wrong(format!("{place}.name"), "required"));
        } else if !volumes.contains_key(name) {
            errors.push(wrong(format!("{place}.name"), format!("the pod has no volume {name}")));
        }
        let path = mount.str_at("mountPath");
        if path.is_empty() {
            errors.push(wrong(format!("{place}.mountPath"), "required"));
        } else if !paths.insert(path) {
            errors.push(wrong(format!("{place}.mountPath"), format!("another volume is mounted at {path}")));
        }
        for field in ["subPath", "subPathExpr"] {
            if let Some(reason) = not_below(mount.str_at(field)) {
                errors.push(wrong(format!("{place}.{field}"), reason));
            }
        }
        if mount.text_at("subPath").is_some() && mount.text_at("subPathExpr").is_some() {
            errors.push(wrong(format!("{place}.subPathExpr"), "may not be set beside subPath"));
        }
        written_one_of(mount, "mountPropagation", &["None", "HostToContainer", "Bidirectional"], &place, errors);
        if mount.str_at("mountPropagation") == "Bidirectional" && !privileged {
            errors.push(wrong(format!("{place}.mountPropagation"), "Bidirectional needs a privileged container"));
        }
        recursive_read_only(mount, &place, errors);
    }
}

/// `validateMountRecursiveReadOnly`.
fn recursive_read_only(mount: &Value, place: &str, errors: &mut Vec<FieldError>) {
    const FIELD: &str = "recursiveReadOnly";
    written_one_of(mount, FIELD, &["Disabled", "IfPossible", "Enabled"], place, errors);
    if !["IfPossible", "Enabled"].contains(&mount.str_at(FIELD)) {
        return;
    }
    if !mount.flag_at("readOnly") {
        errors.push(wrong(format!("{place}.{FIELD}"), "needs readOnly"));
    }
    if mount.at("mountPropagation").is_some_and(|propagation| propagation != "None") {
        errors.push(wrong(format!("{place}.{FIELD}"), "may not be set with mountPropagation"));
    }
}

/// `ValidateVolumeDevices`.
pub(super) fn devices(container: &Value, volumes: &BTreeMap<&str, &Value>, place: &str, errors: &mut Vec<FieldError>) {
    let mounts = container.list_at("volumeMounts").iter();
    let (mounted, used): (BTreeSet<_>, BTreeSet<_>) =
        mounts.map(|mount| (mount.str_at("name"), mount.str_at("mountPath"))).unzip();
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for (index, device) in container.list_at("volumeDevices").iter().enumerate() {
        let place = format!("{place}.volumeDevices[{index}]");
        let name = device.str_at("name");
        let reason = match volumes.get(name) {
            _ if name.is_empty() => Some("required".to_owned()),
            _ if !names.insert(name) => Some(format!("{name} is used twice")),
            None => Some(format!("the pod has no volume {name}")),
            Some(volume) if volume.at("persistentVolumeClaim").or_else(|| volume.at("ephemeral")).is_none() => {
                Some("must be a persistentVolumeClaim or ephemeral volume".to_owned())
            }
            _ if mounted.contains(name) => Some(format!("{name} is also mounted")),
            _ => None,
        };
        errors.extend(reason.map(|reason| wrong(format!("{place}.name"), reason)));
        let path = device.str_at("devicePath");
        let reason = match path {
            "" => Some("required".to_owned()),
            _ if goes_back(path) => Some(BACKSTEPS.to_owned()),
            _ if !paths.insert(path) => Some(format!("another device is at {path}")),
            _ if used.contains(path) => Some(format!("a volume is mounted at {path}")),
            _ => None,
        };
        errors.extend(reason.map(|reason| wrong(format!("{place}.devicePath"), reason)));
    }
}

#[cfg(test)]
mod tests;
