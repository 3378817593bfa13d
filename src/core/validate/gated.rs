//! Fields of a pod template that an API server may drop before it validates, because their feature gates are off by default
//! in a supported version.
//!
//! Owns which ones of a file are not judged when it is read. Rendering drops or keeps them by the version of the node's kubelet,
//! and judges what it keeps ([`super::rendered_pod`]).

use std::collections::BTreeSet;

use serde_json::Map;
use serde_json::Value;

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
    without_images(spec);
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

/// Takes the volumes of images out of a pod's spec, and all mounts of them; gives their indices.
pub fn without_images(spec: &mut Map<String, Value>) -> Vec<usize> {
    let is_image = |volume: &Value| volume.get("image").is_some_and(Value::is_object);
    let Some(volumes) = spec.get_mut("volumes").and_then(Value::as_array_mut) else { return Vec::new() };
    let indices: Vec<usize> = (0..volumes.len()).filter(|index| is_image(&volumes[*index])).collect();
    let names: BTreeSet<String> = indices.iter().map(|index| volumes[*index].str_at("name").to_owned()).collect();
    volumes.retain(|volume| !is_image(volume));
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let mounts = container.get_mut("volumeMounts").and_then(Value::as_array_mut);
            mounts.into_iter().for_each(|mounts| mounts.retain(|mount| !names.contains(mount.str_at("name"))));
        }
    }
    indices
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
    use serde_json::json;

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
        let expected = json!({"spec": {"hostname": "a", "containers": [{"name": "c", "volumeMounts": [{"name": "e"}]}],
            "initContainers": [{"name": "s", "restartPolicy": "Always"}, {}],
            "volumes": [{"name": "v", "projected": {"sources": [{}, {}, {"secret": {"name": "s"}}]}}, {"name": "e"}]}});
        assert_eq!(without(&template), expected);
        for odd in [json!({}), json!({"spec": 1}), json!({"spec": {"containers": [1], "volumes": [{"projected": 1}]}})]
        {
            assert_eq!(without(&odd), odd);
        }
    }
}
