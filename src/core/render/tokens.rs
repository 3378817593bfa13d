//! The tokens of a pod alone, for an instance whose template is not rendered.
//!
//! Owns what that may cost: each volume, container and mount is read once. Must not read a ConfigMap or a Secret.

use serde_json::Value;

use crate::core::json::Json;
use crate::core::render::Part;
use crate::core::render::containers;
use crate::core::render::context::RenderContext;
use crate::core::render::json;
use crate::core::render::json::Object;
use crate::core::render::payload;
use crate::core::render::payload::FileOwnership;
use crate::core::render::payload::Payload;
use crate::core::render::payload::VolumeFiles;
use crate::core::render::service_account;
use crate::core::render::volumes;
use crate::core::volume::VolumeData;

/// Members of a pod's spec that decide which tokens it has, who may read them, and what is mounted inside their volumes.
const OF_POD: [&str; 3] = ["automountServiceAccountToken", "securityContext", "volumes"];
/// The same of a container.
const OF_CONTAINER: [&str; 2] = ["securityContext", "volumeMounts"];

/// Adds the volumes with tokens of `template`, a pod's spec, each with its tokens alone.
pub(super) fn project(ctx: &mut RenderContext<'_>, template: &Value) {
    let account = service_account::name(template);
    let mut spec = copy(template, &OF_POD);
    for list in ["initContainers", "containers"] {
        let containers = template.list_at(list).iter().map(|container| copy(container, &OF_CONTAINER).into());
        json::put_list(&mut spec, list, containers.collect());
    }
    service_account::mount(ctx, account, &mut spec);
    let owner = FileOwnership { fs_group: containers::fs_group(&spec), fs_user: containers::common_run_as_user(&spec) };
    for (index, volume) in spec.list_at("volumes").iter().enumerate() {
        let Some(projected) = volume.get("projected") else { continue };
        let name = volume.str_at("name").to_owned();
        ctx.begin(Part::Volume(name.clone()));
        let mode = payload::default_mode(projected);
        let (files, tokens) = (VolumeFiles::new(), Default::default());
        let mut payload = Payload { ctx: &mut *ctx, files, tokens, has_token: true, mode, owner };
        for (at, source) in projected.list_at("sources").iter().enumerate() {
            if volumes::source_kind(source) == Some("serviceAccountToken")
                && let Some(source) = source.get("serviceAccountToken")
            {
                let field = format!("spec.template.spec.volumes[{index}].projected.sources[{at}].serviceAccountToken");
                payload.token(account, source, &field);
            }
        }
        let Payload { files, tokens, .. } = payload;
        if !tokens.is_empty() {
            let fs_group = owner.fs_group;
            ctx.volumes.push(VolumeData { name, files, tokens, fs_group, ..VolumeData::default() });
        }
    }
    volumes::nest(ctx, &spec);
}

/// The `members` of `object` that it has.
fn copy(object: &Value, members: &[&str]) -> Object {
    let had = members.iter().filter_map(|member| Some(((*member).to_owned(), object.get(member)?.clone())));
    had.collect()
}
