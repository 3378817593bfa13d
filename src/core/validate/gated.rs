//! Fields of a pod template that an API server may drop before it validates, because their feature gates are off by default
//! in a supported version.
//!
//! Owns which ones of a file are not judged when it is read. Rendering drops or keeps them by the version of the node's kubelet,
//! and judges what it keeps ([`super::rendered_pod`]).

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use super::container::is_sidecar;
use crate::core::json::Json;

/// Sources of a projected volume whose feature gates are off in every version (`ClusterTrustBundleProjection`,
/// `PodCertificateRequest`).
pub const PROJECTED: [&str; 2] = ["clusterTrustBundle", "podCertificate"];

/// The template without those fields.
pub(super) fn without(template: &Value) -> Value {
    let mut template = template.clone();
    let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) else { return template };
    spec.remove("hostnameOverride");
    blank_images(spec);
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let keeps_policy = list == "initContainers" && is_sidecar(container);
            let Some(container) = container.as_object_mut() else { continue };
            container.remove("restartPolicyRules");
            if !keeps_policy {
                container.remove("restartPolicy");
            }
        }
    }
    for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        without_sources(volume);
    }
    template
}

/// Puts an empty volume in the place of each volume of an image, and a mount of it in the place of each of its mounts, so that
/// all others keep their indices; gives the indices of these volumes.
pub fn blank_images(spec: &mut Map<String, Value>) -> Vec<usize> {
    let Some(volumes) = spec.get_mut("volumes").and_then(Value::as_array_mut) else { return Vec::new() };
    let images: BTreeMap<String, usize> = volumes
        .iter()
        .enumerate()
        .filter(|(_, volume)| volume.get("image").is_some_and(Value::is_object))
        .map(|(index, volume)| (volume.str_at("name").to_owned(), index))
        .collect();
    for index in images.values() {
        volumes[*index] = json!({"name": blank(*index), "emptyDir": {}});
    }
    for mounts in mounts_of(spec) {
        for (at, mount) in mounts.iter_mut().enumerate() {
            if let Some(index) = images.get(mount.str_at("name")) {
                // No path of a definition has this character.
                *mount = json!({"name": blank(*index), "mountPath": format!("/\0{at}")});
            }
        }
    }
    images.into_values().collect()
}

/// Takes out what [`blank_images`] has put in the place of the volumes `indices`.
pub fn remove_blanks(spec: &mut Map<String, Value>, indices: &[usize]) {
    let names: BTreeSet<String> = indices.iter().map(|index| blank(*index)).collect();
    let is_kept = |named: &Value| !names.contains(named.str_at("name"));
    if let Some(volumes) = spec.get_mut("volumes").and_then(Value::as_array_mut) {
        volumes.retain(is_kept);
    }
    mounts_of(spec).for_each(|mounts| mounts.retain(is_kept));
}

fn blank(index: usize) -> String {
    format!("left-out-image-{index}")
}

fn mounts_of(spec: &mut Map<String, Value>) -> impl Iterator<Item = &mut Vec<Value>> {
    let is_list = |(key, _): &(&String, &mut Value)| matches!(key.as_str(), "initContainers" | "containers");
    let lists = spec.iter_mut().filter(is_list).filter_map(|(_, list)| list.as_array_mut());
    lists.flatten().filter_map(|container| container.get_mut("volumeMounts")?.as_array_mut())
}

/// Takes the sources of [`PROJECTED`] out of a projected volume; gives their fields.
pub fn without_sources(volume: &mut Value) -> Vec<String> {
    let mut dropped = Vec::new();
    let Some(sources) = volume.pointer_mut("/projected/sources").and_then(Value::as_array_mut) else { return dropped };
    for (index, source) in sources.iter_mut().enumerate() {
        let Some(source) = source.as_object_mut() else { continue };
        for kind in PROJECTED {
            if source.get(kind).is_some_and(Value::is_object) {
                source.remove(kind);
                dropped.push(format!("projected.sources[{index}].{kind}"));
            }
        }
    }
    dropped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_gate_may_drop_is_taken_out_and_nothing_else() {
        let rules = json!([{"action": "Restart"}]);
        let template = json!({"spec": {"hostnameOverride": "A", "hostname": "a", "containers": [
            {"name": "c", "restartPolicy": "X", "restartPolicyRules": rules, "volumeMounts": [{"name": "i"}, {"name": "e"}]}],
            "initContainers": [{"name": "s", "restartPolicy": "Always", "restartPolicyRules": rules}, {"restartPolicy": "X"}],
            "volumes": [{"name": "v", "projected": {"sources": [
                {"clusterTrustBundle": {}}, {"podCertificate": {}}, {"secret": {"name": "s"}}]}}, {"name": "e"},
                {"name": "i", "image": {}}]}});
        let blank = json!({"name": "left-out-image-2", "mountPath": "/\u{0}0"});
        let mut expected = json!({"spec": {"hostname": "a",
            "containers": [{"name": "c", "volumeMounts": [blank, {"name": "e"}]}],
            "initContainers": [{"name": "s", "restartPolicy": "Always"}, {}],
            "volumes": [{"name": "v", "projected": {"sources": [{}, {}, {"secret": {"name": "s"}}]}}, {"name": "e"},
                {"name": "left-out-image-2", "emptyDir": {}}]}});
        assert_eq!(without(&template), expected);
        let spec = expected["spec"].as_object_mut().unwrap();
        remove_blanks(spec, &[2]);
        assert_eq!(spec["containers"][0]["volumeMounts"], json!([{"name": "e"}]));
        assert_eq!(spec["volumes"].as_array().unwrap().len(), 2);
        for odd in [json!({}), json!({"spec": 1}), json!({"spec": {"containers": [1], "volumes": [{"projected": 1}]}})]
        {
            assert_eq!(without(&odd), odd);
        }
    }
}
