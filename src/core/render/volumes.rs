//! Volumes: references to API objects become an emptyDir with files; sources that a static pod cannot have are refused.
//!
//! Owns the choice for each volume source (upstream's `HasAPIObjectReference`). `payload` owns the files.

use std::collections::BTreeSet;

use serde_json::Value;
use serde_json::json;

use crate::core::escape;
use crate::core::json::Json;
use crate::core::model::Kind;
use crate::core::policy::VOLUME_TYPES;
use crate::core::render::Part;
use crate::core::render::containers;
use crate::core::render::containers::ByName;
use crate::core::render::context::RenderContext;
use crate::core::render::downward;
use crate::core::render::json;
use crate::core::render::json::Object;
use crate::core::render::payload;
use crate::core::render::payload::FileOwnership;
use crate::core::render::payload::Payload;
use crate::core::volume::VolumeData;
use crate::core::volume::unwritable;

/// Sources that the kubelet accepts in a static pod, besides those of its drivers ([`VOLUME_TYPES`], which may name no
/// Secret).
const KEPT: [&str; 5] = ["downwardAPI", "emptyDir", "hostPath", "image", "projected"];

/// How many bytes of a path are quoted.
const QUOTED: usize = 300;

const HOST_STORAGE: &str = "use a hostPath volume on the node's own disk, or let the DaemonSet controller run it (kubectl apply it without the label daemonlet.dev/mode; where default-mode is not labelled, also leave it out by selector)";

/// Sources that need an API server: why they are refused, and what to use instead.
const REFUSED: [(&str, &str, &str); 5] = [
    ("persistentVolumeClaim", "a static pod cannot claim a persistent volume", HOST_STORAGE),
    (
        "ephemeral",
        "a static pod cannot have a generic ephemeral volume: it is a persistent volume claim",
        "use an emptyDir volume, or let the DaemonSet controller run it (kubectl apply it without the label daemonlet.dev/mode; where default-mode is not labelled, also leave it out by selector)",
    ),
    (
        "csi",
        "a static pod cannot have an inline CSI volume: its driver is looked up in the API",
        "mount the driver's data with hostPath, or let the DaemonSet controller run it (kubectl apply it without the label daemonlet.dev/mode; where default-mode is not labelled, also leave it out by selector)",
    ),
    ("azureFile", "a static pod cannot mount azureFile: its credentials are a Secret", HOST_STORAGE),
    ("glusterfs", "a static pod cannot mount glusterfs: its servers are Endpoints in the API", HOST_STORAGE),
];

/// Whether no static pod can have a volume of this type.
pub fn cannot_mount(kind: &str) -> bool {
    REFUSED.iter().any(|(refused, _, _)| *refused == kind)
}

/// Converts the volumes of `spec` and makes their mounts read-only.
pub(super) fn convert(ctx: &mut RenderContext<'_>, pod: &downward::PodView<'_>, spec: &mut Object) {
    let owner = FileOwnership { fs_group: containers::fs_group(spec), fs_user: containers::common_run_as_user(spec) };
    let mut volumes = json::take_list(spec, "volumes");
    let mut converted = BTreeSet::new();
    let containers = containers::by_name(spec);
    for (index, volume) in volumes.iter_mut().enumerate() {
        let field = format!("spec.template.spec.volumes[{index}]");
        let Some(volume) = volume.as_object_mut() else { continue };
        let name = volume.str_at("name").to_owned();
        ctx.begin(Part::Volume(name.clone()));
        let Some((files, tokens)) = files(ctx, pod, &containers, volume, owner, &field) else { continue };
        volume.retain(|member, _| member == "name");
        volume.insert("emptyDir".to_owned(), json!({}));
        let fs_group = owner.fs_group;
        ctx.volumes.push(VolumeData { name: name.clone(), files, tokens, fs_group, ..VolumeData::default() });
        converted.insert(name);
    }
    ctx.begin(Part::Pod);
    json::put_list(spec, "volumes", volumes);
    mount_read_only(spec, &converted);
}

/// Notes the folders that other volumes are mounted on inside the converted ones, and refuses those that cannot be made
/// there.
pub(super) fn nest(ctx: &mut RenderContext<'_>, spec: &Object) {
    let mut nested = containers::nested_mount_points(spec);
    let mut refused = Vec::new();
    for volume in &mut ctx.volumes {
        for (path, field) in nested.remove(&volume.name).unwrap_or_default() {
            match unwritable(&path) {
                Some(why) => refused.push((volume.name.clone(), path, field, why)),
                None => drop(volume.nested_mount_points.insert(path)),
            }
        }
    }
    // A path that leads above the root of its container is reported already.
    refused.retain(|(_, _, field, _)| ctx.errors.iter().all(|error| error.field != *field));
    for (volume, path, field, why) in refused {
        ctx.begin(Part::Volume(volume.clone()));
        let path = escape::short(&path, QUOTED);
        let reason = format!("the path {path:?} inside the volume {volume} {why}: nothing can be mounted there");
        ctx.refuse(field, reason, "mount it elsewhere");
    }
    ctx.begin(Part::Pod);
}

/// The files of `volume`, if it is converted.
fn files(
    ctx: &mut RenderContext<'_>,
    pod: &downward::PodView<'_>,
    containers: &ByName<'_>,
    volume: &Object,
    owner: FileOwnership,
    field: &str,
) -> Option<(payload::VolumeFiles, BTreeSet<String>)> {
    let mut set = volume.iter().filter(|(member, value)| *member != "name" && !value.is_null());
    let (kind, source) = set.next()?;
    if set.next().is_some() {
        ctx.refuse(field, "the volume has more than one source", "name one source, as the API requires");
        return None;
    }
    let field = format!("{field}.{kind}");
    let sources = source.list_at("sources");
    let kept = match kind.as_str() {
        "configMap" | "secret" => false,
        "projected" => sources.iter().all(|source| source_kind(source) == Some("downwardAPI")),
        kind => {
            judge(ctx, kind, source, &field);
            true
        }
    };
    if kept {
        for source in sources
            .iter()
            .filter_map(|source| source.get("downwardAPI"))
            .chain((kind == "downwardAPI").then_some(source))
        {
            downward::spend(ctx, pod, source, &field);
        }
        return None;
    }
    let (files, tokens) = (payload::VolumeFiles::new(), BTreeSet::new());
    let has_token = sources.iter().any(|source| source_kind(source) == Some("serviceAccountToken"));
    let mut payload = Payload { ctx, files, tokens, has_token, mode: payload::default_mode(source), owner };
    match kind.as_str() {
        "configMap" => payload.object(Kind::ConfigMap, source.str_at("name"), source, &field),
        "secret" => payload.object(Kind::Secret, source.str_at("secretName"), source, &field),
        _ => {
            for (index, source) in sources.iter().enumerate() {
                project(&mut payload, pod, containers, source, &format!("{field}.sources[{index}]"));
            }
        }
    }
    Some(payload.finish(&field))
}

/// The only member that is set in a projected source; `None` unless it is exactly one.
pub(super) fn source_kind(source: &Value) -> Option<&str> {
    let mut set = source.as_object()?.iter().filter(|(_, value)| !value.is_null());
    set.next().map(|(kind, _)| kind.as_str()).filter(|_| set.next().is_none())
}

/// Adds one source of a projected volume.
fn project(
    payload: &mut Payload<'_, '_>,
    pod: &downward::PodView<'_>,
    containers: &ByName<'_>,
    source: &Value,
    field: &str,
) {
    let kind = source_kind(source).unwrap_or_default();
    // A source without any type adds nothing, as upstream.
    let Some(inner) = source.get(kind) else { return };
    let field = format!("{field}.{kind}");
    let name = inner.str_at("name");
    match kind {
        "configMap" => payload.object(Kind::ConfigMap, name, inner, &field),
        "secret" => payload.object(Kind::Secret, name, inner, &field),
        "serviceAccountToken" => payload.token(pod.service_account, inner, &field),
        "downwardAPI" => downward::project(payload, pod, containers, inner, &field),
        "clusterTrustBundle" => payload.ctx.refuse(
            field,
            "a static pod cannot project a ClusterTrustBundle",
            "put the certificates into a ConfigMap and project that",
        ),
        "podCertificate" => payload.ctx.refuse(
            field,
            "a static pod cannot have a pod certificate: the API refuses the request for its mirror pod",
            "use a service-account token, or a Secret that a certificate controller fills",
        ),
        _ => payload.ctx.refuse(
            field,
            "this kind of projected source is not known to work in a static pod",
            "let the DaemonSet controller run it (kubectl apply it without the label daemonlet.dev/mode; where default-mode is not labelled, also leave it out by selector)",
        ),
    }
}

/// Refuses a source that is passed through but that the kubelet would not accept.
fn judge(ctx: &mut RenderContext<'_>, kind: &str, source: &Value, field: &str) {
    if let Some((_, reason, hint)) = REFUSED.iter().find(|(refused, _, _)| *refused == kind) {
        ctx.refuse(field, *reason, hint);
    } else if !KEPT.contains(&kind) && !VOLUME_TYPES.contains(&kind) {
        let reason = "this kind of volume is not known to work in a static pod";
        ctx.refuse(
            field,
            reason,
            "let the DaemonSet controller run it (kubectl apply it without the label daemonlet.dev/mode; where default-mode is not labelled, also leave it out by selector)",
        );
    } else if source.get("secretRef").is_some_and(|secret| secret.text_at("name").is_some()) {
        let reason = format!("a static pod cannot mount {kind} with credentials from a Secret");
        ctx.refuse(format!("{field}.secretRef"), reason, HOST_STORAGE);
    }
}

/// Makes every mount of the `converted` volumes read-only, as the kubelet does.
fn mount_read_only(spec: &mut Object, converted: &BTreeSet<String>) {
    containers::for_each_mut(spec, |_, _, container| {
        let Some(mounts) = container.get_mut("volumeMounts").and_then(Value::as_array_mut) else { return };
        for mount in mounts {
            let name = mount.str_at("name");
            if converted.contains(name)
                && let Some(mount) = mount.as_object_mut()
            {
                mount.insert("readOnly".to_owned(), Value::Bool(true));
            }
        }
    });
}

#[cfg(test)]
mod tests;
