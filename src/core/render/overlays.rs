//! The overlays of a DaemonSet: without their ConfigMap nothing starts.

use crate::core::model::Kind;
use crate::core::model::ObjectRef;
use crate::core::overlays;
use crate::core::overlays::KnownList;
use crate::core::render::Part;
use crate::core::render::context::RenderContext;

/// Refers to the ConfigMap, waits for it, or refuses what cannot be applied.
pub(super) fn require(ctx: &mut RenderContext<'_>) {
    let Some(overlays) = &ctx.input.daemon_set.overlays else { return };
    let config_map = &overlays.config_map;
    if overlays::is_name(&config_map.name) {
        ctx.references.insert(ObjectRef { kind: Kind::ConfigMap, key: config_map.clone() });
    }
    match &overlays.known {
        KnownList::Read | KnownList::Last(_) => {}
        KnownList::Missing { unconfirmed } => {
            ctx.begin(Part::Everything);
            let missing = ctx.missing(Kind::ConfigMap.as_str(), &config_map.namespace, &config_map.name, "");
            match unconfirmed {
                true => ctx.not_known(missing),
                false => ctx.lack(ctx.namespace(), Kind::ConfigMap, &config_map.name, ""),
            }
            ctx.begin(Part::Pod);
        }
        KnownList::Refused(errors) => {
            for error in errors {
                ctx.refuse(error.field.clone(), error.reason.clone(), error.hint.as_deref().unwrap_or_default());
            }
        }
    }
}
