//! Volumes of files that the kubelet writes: secrets, ConfigMaps, fields of the pod, and several of them in one.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::core::json::Json;
use crate::core::model::FieldError;
use crate::core::validate::downward;
use crate::core::validate::rules::file_mode;
use crate::core::validate::rules::path_in_volume;
use crate::core::validate::rules::required;
use crate::core::validate::wrong;

const FIELDS: [&str; 5] =
    ["metadata.name", "metadata.namespace", "metadata.labels", "metadata.annotations", "metadata.uid"];
/// Those of the projections that the API has by default; the others, it drops.
const PROJECTIONS: [&str; 4] = ["secret", "configMap", "downwardAPI", "serviceAccountToken"];

/// `validateSecretVolumeSource` and `validateConfigMapVolumeSource`, but for their names.
pub(super) fn keys(source: &Value, place: &str, errors: &mut Vec<FieldError>) {
    file_mode(source, "defaultMode", place, errors);
    items(source, place, key_to_path, errors);
}

/// `validateDownwardAPIVolumeSource`.
pub(super) fn downward_api(source: &Value, place: &str, errors: &mut Vec<FieldError>) {
    file_mode(source, "defaultMode", place, errors);
    items(source, place, field_file, errors);
}

fn items(source: &Value, place: &str, check: fn(&Value, &str, &mut Vec<FieldError>), errors: &mut Vec<FieldError>) {
    for (index, item) in source.list_at("items").iter().enumerate() {
        let place = format!("{place}.items[{index}]");
        check(item, &place, errors);
        required(item, "path", &place, errors);
        path_in_volume(item.str_at("path"), format!("{place}.path"), errors);
        file_mode(item, "mode", &place, errors);
    }
}

/// `validateKeyToPath`.
fn key_to_path(item: &Value, place: &str, errors: &mut Vec<FieldError>) {
    required(item, "key", place, errors);
}

/// `validateDownwardAPIVolumeFile`.
fn field_file(item: &Value, place: &str, errors: &mut Vec<FieldError>) {
    match (item.at("fieldRef"), item.at("resourceFieldRef")) {
        (Some(field), resource) => {
            downward::field_ref(field, &FIELDS, &format!("{place}.fieldRef"), errors);
            if resource.is_some() {
                errors.push(wrong(format!("{place}.resourceFieldRef"), "may not be set beside fieldRef"));
            }
        }
        (None, Some(resource)) => {
            downward::resource_field_ref(resource, true, &format!("{place}.resourceFieldRef"), errors);
        }
        (None, None) => errors.push(wrong(place, "must have fieldRef or resourceFieldRef")),
    }
}

/// `validateProjectedVolumeSource` and `validateProjectionSources`.
pub(super) fn projected(volume: &Value, place: &str, errors: &mut Vec<FieldError>) {
    file_mode(volume, "defaultMode", place, errors);
    let mut paths = BTreeSet::new();
    for (index, source) in volume.list_at("sources").iter().enumerate() {
        let place = format!("{place}.sources[{index}]");
        let set = PROJECTIONS.iter().filter_map(|kind| Some((*kind, source.at(*kind)?)));
        for (at, (kind, found)) in set.enumerate() {
            if at == 1 {
                errors.push(wrong(place.clone(), "must have only one type"));
            }
            let place = format!("{place}.{kind}");
            match kind {
                "serviceAccountToken" => token(found, &place, errors),
                "downwardAPI" => items(found, &place, field_file, errors),
                _ => {
                    required(found, "name", &place, errors);
                    items(found, &place, key_to_path, errors);
                }
            }
            for (index, item) in found.list_at("items").iter().enumerate() {
                let path = item.str_at("path");
                if !path.is_empty() && !paths.insert(path) {
                    errors.push(wrong(format!("{place}.items[{index}].path"), format!("{path} is used twice")));
                }
            }
        }
    }
}

/// The token of a service account; its path may be one that another source has, too.
fn token(found: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let seconds = found.at("expirationSeconds").and_then(Value::as_i64);
    if seconds.is_some_and(|seconds| !(600..=1 << 32).contains(&seconds)) {
        errors.push(wrong(format!("{place}.expirationSeconds"), "must be from 600 to 4294967296"));
    }
    required(found, "path", place, errors);
    path_in_volume(found.str_at("path"), format!("{place}.path"), errors);
}
