//! Fields behind a feature gate that the node's kubelet has off by default.
//!
//! The API server drops such a field before it validates and stores a DaemonSet. A file in a folder still has it, and
//! the kubelet's file source may refuse the pod for it. What the API stored is kept: there the gate was on. A kubelet of
//! unknown version counts as the newest; what runs is not rewritten for that.

use serde_json::Value;

use super::containers;
use super::context::RenderContext;
use super::json::Object;
use crate::core::json::Json;
use crate::core::validate::gated;

pub(super) use gated::remove_blanks;

/// The first version that has the gate on by default.
type Since = Option<(u32, u32)>;

const HOSTNAME_OVERRIDE: Since = Some((1, 35));
const RESTART_RULES: Since = Some((1, 35));
const STOP_SIGNAL: Since = None;
/// Without these a pod would not be the one that is meant: it is refused.
const FILE_KEY_REF: Since = Some((1, 35));
const IMAGE_VOLUME: Since = Some((1, 35));

const LEFT_OUT: &str = "is left out: its feature gate is off by default in the node's version of Kubernetes";

/// Takes those fields out of a definition from a folder, and out of every one what the node's kubelet would refuse. Gives the
/// indices of the volumes that are left out: what stands in their places goes last ([`remove_blanks`]).
pub(super) fn drop_fields(ctx: &mut RenderContext<'_>, spec: &mut Object) -> Vec<usize> {
    let is_from_folder = ctx.is_from_folder();
    let version = ctx.input.options.kubelet_version;
    let is_off = |since: Since| since.is_none_or(|since| version.is_some_and(|version| version < since));
    let mut dropped = Vec::new();
    let mut is_guess = false;
    let mut drop = |parent: &mut Object, place: &str, field: &str, since: Since| {
        if parent.get(field).is_none_or(Value::is_null) {
            return;
        }
        match is_off(since) {
            true => {
                parent.remove(field);
                dropped.push(format!("{place}.{field}"));
            }
            false => is_guess |= version.is_none(),
        }
    };
    if is_from_folder {
        drop(spec, "spec.template.spec", "hostnameOverride", HOSTNAME_OVERRIDE);
    }
    containers::for_each_mut(spec, |list, index, container| {
        let place = format!("spec.template.spec.{list}[{index}]");
        let is_sidecar = list == "initContainers" && container.str_at("restartPolicy") == "Always";
        if !is_sidecar {
            drop(container, &place, "restartPolicy", RESTART_RULES);
        }
        drop(container, &place, "restartPolicyRules", RESTART_RULES);
        let lifecycle = container.get_mut("lifecycle").and_then(Value::as_object_mut);
        if let Some(lifecycle) = lifecycle.filter(|_| is_from_folder) {
            drop(lifecycle, &format!("{place}.lifecycle"), "stopSignal", STOP_SIGNAL);
        }
        // An init container may not even have an empty one.
        if let Some(lifecycle) = container.get("lifecycle").and_then(Value::as_object)
            && is_from_folder
            && lifecycle.values().all(Value::is_null)
        {
            container.remove("lifecycle");
        }
    });
    // Without an API server no better answer will come.
    ctx.guesses_kubelet = is_guess && ctx.input.options.has_api;
    for field in dropped {
        ctx.note(field, LEFT_OUT, "");
    }
    if is_from_folder {
        drop_sources(ctx, spec);
    }
    let images = if is_from_folder && is_off(IMAGE_VOLUME) { drop_image_volumes(ctx, spec) } else { Vec::new() };
    let mut unset = Vec::new();
    for (place, container) in containers::all(spec).filter(|_| is_from_folder && is_off(FILE_KEY_REF)) {
        let own = container.list_at("env").iter().enumerate();
        let from_files =
            own.filter(|(_, variable)| variable.at(["valueFrom", "fileKeyRef"]).is_some_and(Value::is_object));
        unset.extend(from_files.map(|(index, _)| format!("{place}.env[{index}].valueFrom.fileKeyRef")));
    }
    for (index, volume) in spec.list_at("volumes").iter().enumerate().filter(|_| is_off(IMAGE_VOLUME)) {
        if volume.at("image").is_some_and(Value::is_object) {
            unset.push(format!("spec.template.spec.volumes[{index}].image"));
        }
    }
    for field in unset {
        ctx.refuse(field, "needs a kubelet of 1.35 or later", "leave it out on this node, or update its kubelet");
    }
    images
}

/// `dropDisabledClusterTrustBundleProjection` and `dropDisabledPodCertificateProjection`.
fn drop_sources(ctx: &mut RenderContext<'_>, spec: &mut Object) {
    let volumes = spec.get_mut("volumes").and_then(Value::as_array_mut);
    for (index, volume) in volumes.into_iter().flatten().enumerate() {
        for field in gated::without_sources(volume) {
            ctx.note(format!("spec.template.spec.volumes[{index}].{field}"), LEFT_OUT, "");
        }
    }
}

/// `dropImageVolumes`.
fn drop_image_volumes(ctx: &mut RenderContext<'_>, spec: &mut Object) -> Vec<usize> {
    let indices = gated::blank_images(spec);
    for index in &indices {
        ctx.note(format!("spec.template.spec.volumes[{index}].image"), LEFT_OUT, "");
    }
    indices
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::core::model::Kind;
    use crate::core::render::fixture::Fixture;
    use crate::core::render::fixture::files;
    use crate::core::render::fixture::spec;

    #[test]
    fn what_a_pod_cannot_do_without_is_refused_for_an_older_kubelet() {
        let reference = json!({"volumeName": "v", "path": "p", "key": "k"});
        let container = json!({"env": [{"name": "A", "valueFrom": {"fileKeyRef": reference}}]});
        let image = json!([{"name": "v", "image": {"reference": "i"}}]);
        let refused = |container: &serde_json::Value, volumes, in_folder, version| -> Vec<String> {
            let mut fixture = Fixture::container(container.clone());
            fixture.daemon_set.template["spec"]["volumes"] = volumes;
            if in_folder {
                fixture.in_folder();
            }
            fixture.options.kubelet_version = Some(version);
            let refused = fixture.render().err().map(|refused| refused.errors).unwrap_or_default();
            refused.into_iter().map(|error| error.field).collect()
        };
        let empty = json!([{"name": "v", "emptyDir": {}}]);
        let of_file = ["spec.template.spec.containers[0].env[0].valueFrom.fileKeyRef"];
        assert_eq!(refused(&container, empty.clone(), true, (1, 34)), of_file);
        assert_eq!(refused(&container, empty, true, (1, 35)), [""; 0]);
        let plain = json!({});
        assert_eq!(refused(&plain, image.clone(), false, (1, 34)), ["spec.template.spec.volumes[0].image"]);
        assert_eq!(refused(&plain, image, false, (1, 35)), [""; 0]);
    }

    #[test]
    fn a_file_loses_volumes_and_sources_of_volumes_that_the_api_server_would_drop() {
        let mounts = json!([{"name": "i", "mountPath": "/i"}, {"name": "p", "mountPath": "/p"}]);
        let sources = json!([{"clusterTrustBundle": {}}, {"podCertificate": {}}, {"configMap": {"name": "c"}}]);
        let mut fixture = Fixture::container(json!({"volumeMounts": mounts}));
        fixture.daemon_set.template["spec"]["volumes"] =
            json!([{"name": "i", "image": {"reference": "i"}}, {"name": "p", "projected": {"sources": sources}}]);
        fixture.in_folder();
        fixture.put(Kind::ConfigMap, "c", json!({"data": {"k": "v"}}));
        for (version, count) in [((1, 34), 1), ((1, 35), 2), ((1, 36), 2)] {
            fixture.options.kubelet_version = Some(version);
            let pod = fixture.rendered();
            let mounted = spec(&pod, "/containers/0/volumeMounts").as_array().map(Vec::len);
            assert_eq!(mounted, Some(count), "{version:?}");
            assert_eq!(files(&pod, "p").len(), 1, "{version:?}");
            let notes = pod.notes.iter().filter(|note| note.to_string().contains("is left out")).count();
            assert_eq!(notes, 4 - count, "{version:?}: {:?}", pod.notes);
        }
        fixture.daemon_set.template["spec"]["volumes"] =
            json!([{"name": "i", "image": {"reference": "i"}}, {"name": "p", "csi": {"driver": "d"}}]);
        for version in [(1, 34), (1, 36)] {
            fixture.options.kubelet_version = Some(version);
            let refused = fixture.render().err().map(|refused| refused.errors).unwrap_or_default();
            assert_eq!(refused[0].field, "spec.template.spec.volumes[1].csi", "of the file, for {version:?}");
        }
    }

    #[test]
    fn what_depends_on_an_unknown_version_is_a_guess_while_an_api_server_may_tell_it() {
        let with_rules = json!({"restartPolicy": "Never"});
        let guesses = |container: &serde_json::Value, version, has_api| {
            let mut fixture = Fixture::container(container.clone());
            fixture.in_folder();
            (fixture.options.kubelet_version, fixture.options.has_api) = (version, has_api);
            fixture.rendered().guesses_kubelet
        };
        assert!(guesses(&with_rules, None, true));
        assert!(!guesses(&with_rules, None, false), "no API server is configured");
        assert!(!guesses(&with_rules, Some((1, 34)), true) && !guesses(&with_rules, Some((1, 36)), true));
        assert!(!guesses(&json!({}), None, true), "it has no such field");
    }

    #[test]
    fn an_init_container_keeps_no_empty_lifecycle() {
        let mut fixture = Fixture::container(json!({}));
        let init = json!({"name": "i", "image": "i", "lifecycle": {"stopSignal": "SIGTERM", "preStop": null}});
        fixture.daemon_set.template["spec"]["initContainers"] = json!([init]);
        fixture.in_folder();
        assert!(spec(&fixture.rendered(), "/initContainers/0").get("lifecycle").is_none());
    }

    #[test]
    fn what_a_kubelet_has_off_by_default_is_left_out_of_a_folders_pod_alone() {
        let container = json!({
            "lifecycle": {"stopSignal": "SIGUSR1"}, "restartPolicy": "Always",
            "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}],
        });
        for (from_folder, version, fields) in [
            (true, (1, 34), ["lifecycle.stopSignal", "restartPolicy", "restartPolicyRules"].as_slice()),
            (true, (1, 36), &["lifecycle.stopSignal"]),
            (false, (1, 34), &["restartPolicy", "restartPolicyRules"]),
            (false, (1, 35), &[]),
        ] {
            let mut fixture = Fixture::container(container.clone());
            if from_folder {
                fixture.in_folder();
            }
            fixture.options.kubelet_version = Some(version);
            let rendered = fixture.rendered();
            for field in ["lifecycle.stopSignal", "restartPolicy", "restartPolicyRules"] {
                let pointer = format!("/{}", field.replace('.', "/"));
                let is_there = spec(&rendered, "/containers/0").pointer(&pointer).is_some();
                assert_eq!(is_there, !fields.contains(&field), "{from_folder} {version:?} {field}");
            }
            let place = |field: &&str| format!("spec.template.spec.containers[0].{field}");
            let noted = fields.iter().map(place).filter(|field| rendered.notes.iter().any(|note| note.field == *field));
            assert_eq!(noted.count(), fields.len(), "{from_folder} {version:?}");
        }
    }
}
