//! `spec.template.spec.volumes`: names and sources.
//!
//! Follows `ValidateVolumes` as it is for a pod template, whose pods have no name yet.

mod claim;
mod disks;
mod files;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde_json::Value;

use super::rules::BACKSTEPS;
use super::rules::descending_path;
use super::rules::goes_back;
use super::rules::one_of;
use super::rules::required;
use super::rules::sign;
use super::rules::within;
use super::wrong;
use crate::core::dns;
use crate::core::json::Json;
use crate::core::model::FieldError;

const PLACE: &str = "spec.template.spec.volumes";
const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const HOST_PATH_TYPES: [&str; 7] =
    ["DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"];
const PARTITIONS: RangeInclusive<i64> = 0..=255;

/// The types of volumes in upstream's order, each with the fields that have to be set.
const SOURCES: &[(&str, &[&str])] = &[
    ("emptyDir", &[]),
    ("hostPath", &["path"]),
    ("gitRepo", &["repository"]),
    ("gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("secret", &["secretName"]),
    ("nfs", &["server", "path"]),
    ("iscsi", &["targetPortal", "iqn"]),
    ("glusterfs", &["endpoints", "path"]),
    ("flocker", &[]),
    ("persistentVolumeClaim", &["claimName"]),
    ("rbd", &["monitors", "image"]),
    ("cinder", &["volumeID"]),
    ("cephfs", &["monitors"]),
    ("quobyte", &["registry", "volume"]),
    ("downwardAPI", &[]),
    ("fc", &[]),
    ("flexVolume", &["driver"]),
    ("configMap", &["name"]),
    ("azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("storageos", &["volumeName"]),
    ("projected", &[]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("csi", &["driver"]),
    ("ephemeral", &["volumeClaimTemplate"]),
    ("image", &[]),
];

/// Checks the volumes of a pod's `spec` and gives them by name, `ValidateVolumes`.
pub(super) fn check<'a>(spec: &'a Value, errors: &mut Vec<FieldError>) -> BTreeMap<&'a str, &'a Value> {
    let mut volumes = BTreeMap::new();
    for (index, volume) in spec.list_at("volumes").iter().enumerate() {
        let place = format!("{PLACE}[{index}]");
        let name = volume.str_at("name");
        if let Some(reason) = dns::label(name) {
            errors.push(wrong(format!("{place}.name"), reason));
        } else if volumes.contains_key(name) {
            errors.push(wrong(format!("{place}.name"), format!("{name} is used twice")));
        }
        sources(volume, &place, errors);
        volumes.entry(name).or_insert(volume);
    }
    volumes
}

/// `validateVolumeSource`: at most one type of volume, and that one valid; with none it is an emptyDir.
fn sources(volume: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let set = SOURCES.iter().filter_map(|(kind, needs)| Some((*kind, *needs, volume.at(*kind)?)));
    for (at, (kind, needs, found)) in set.enumerate() {
        let place = format!("{place}.{kind}");
        if at > 0 {
            errors.push(wrong(place, "a volume can have only one type"));
            continue;
        }
        for field in needs {
            required(found, field, &place, errors);
        }
        source(kind, volume, found, &place, errors);
    }
}

/// What is more to a `volume` with the source `found` of type `kind` than the fields that have to be set.
fn source(kind: &str, volume: &Value, found: &Value, place: &str, errors: &mut Vec<FieldError>) {
    match kind {
        "emptyDir" if found.at("sizeLimit").is_some_and(|limit| sign(limit) < 0) => {
            errors.push(wrong(format!("{place}.sizeLimit"), "must not be negative"));
        }
        "hostPath" => host_path(found, place, errors),
        "gitRepo" => descending_path(found.str_at("directory"), format!("{place}.directory"), errors),
        "gcePersistentDisk" | "awsElasticBlockStore" => within(found, "partition", &PARTITIONS, place, errors),
        "secret" | "configMap" => files::keys(found, place, errors),
        "downwardAPI" => files::downward_api(found, place, errors),
        "projected" => files::projected(found, place, errors),
        "nfs" if found.text_at("path").is_some_and(|path| !path.starts_with('/')) => {
            errors.push(wrong(format!("{place}.path"), "must be an absolute path"));
        }
        "iscsi" => disks::iscsi(found, volume.str_at("name"), place, errors),
        "flocker" => disks::flocker(found, place, errors),
        "quobyte" => disks::quobyte(found, place, errors),
        "fc" => disks::fc(found, place, errors),
        "flexVolume" => disks::flex_volume(found, place, errors),
        "azureDisk" => disks::azure_disk(found, place, errors),
        "cinder" => disks::secret_ref(found, "secretRef", place, errors),
        "storageos" => disks::storageos(found, place, errors),
        "csi" => disks::csi(found, place, errors),
        "ephemeral" => claim::ephemeral(found, place, errors),
        // Its reference may come with the pod.
        "image" => one_of(found, "pullPolicy", &PULL_POLICIES, place, errors),
        _ => {}
    }
}

/// `validateHostPathVolumeSource`.
fn host_path(found: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let path = found.str_at("path");
    if path.is_empty() {
        return;
    }
    if goes_back(path) {
        errors.push(wrong(format!("{place}.path"), BACKSTEPS));
    }
    one_of(found, "type", &HOST_PATH_TYPES, place, errors);
}

#[cfg(test)]
mod tests;
