//! The final check: nothing may remain that the kubelet refuses in a static pod.
//!
//! A port of upstream's `HasAPIObjectReference` to JSON, independent of the passes that should have removed every
//! reference; then the validation of the whole pod, whatever object a part of it came from. What it finds is refused
//! with its field name; written to a file, it would end the running pod. Where the template is not to blame, that is a fault of ours.

use serde_json::Value;

use crate::core::json::Json;
use crate::core::render::containers;
use crate::core::render::context::RenderContext;
use crate::core::validate;

const HINT: &str = "report this as a bug, and until it is fixed let the DaemonSet controller run it (kubectl apply it without the \
                    label daemonlet.dev/mode; where default-mode is not labelled, also leave it out by selector)";

/// Refuses everything in `pod` that refers to an object of the API; if nothing does, all that the kubelet does not take. Looks at
/// no pod of which something is refused already.
pub(super) fn check(ctx: &mut RenderContext<'_>, pod: &Value) {
    let Some(spec) = pod.at("spec").filter(|_| ctx.errors.is_empty()) else { return };
    references(ctx, spec);
    if ctx.errors.is_empty() {
        let errors = validate::rendered_pod(pod, ctx.input.options.kubelet_version);
        // What a file's template has of fields that feature gates may drop is judged here first.
        let of_template = match errors.is_empty() {
            true => Vec::new(),
            false => validate::pod_template(ctx.input.daemon_set.pod_template()),
        };
        for error in errors {
            let is_written = of_template.iter().any(|written| written.field == error.field);
            let hint = error.hint.as_deref().unwrap_or(if is_written { "" } else { HINT });
            ctx.refuse(error.field, error.reason, hint);
        }
    }
}

fn references(ctx: &mut RenderContext<'_>, spec: &Value) {
    let members = ["serviceAccountName", "serviceAccount", "imagePullSecrets", "schedulingGates", "resourceClaims"];
    for member in members {
        if spec.at(member).is_some_and(|value| !is_empty(value)) {
            refuse(ctx, format!("spec.template.spec.{member}"));
        }
    }
    for (field, container) in containers::all(spec) {
        for (index, source) in container.list_at("envFrom").iter().enumerate() {
            if source.at("configMapRef").or(source.at("secretRef")).is_some() {
                refuse(ctx, format!("{field}.envFrom[{index}]"));
            }
        }
        for (index, variable) in container.list_at("env").iter().enumerate() {
            let from = |member| variable.at(["valueFrom", member]);
            if from("configMapKeyRef").or_else(|| from("secretKeyRef")).is_some() {
                refuse(ctx, format!("{field}.env[{index}]"));
            }
        }
    }
    for (index, volume) in spec.list_at("volumes").iter().enumerate() {
        if volume.as_object().is_some_and(|volume| volume.iter().any(|(kind, source)| is_of_api(kind, source))) {
            refuse(ctx, format!("spec.template.spec.volumes[{index}]"));
        }
    }
}

/// Whether a volume's source needs the API.
fn is_of_api(kind: &str, source: &Value) -> bool {
    match kind {
        _ if source.is_null() => false,
        "configMap" | "secret" | "csi" | "persistentVolumeClaim" | "ephemeral" | "azureFile" | "glusterfs" => true,
        "projected" => source.list_at("sources").iter().any(|source| source.at("downwardAPI").is_none()),
        _ => source.at("secretRef").is_some_and(|secret| secret.text_at("name").is_some()),
    }
}

fn refuse(ctx: &mut RenderContext<'_>, field: String) {
    ctx.refuse(field, "this still refers to an object of the API; the kubelet refuses such a static pod", HINT);
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
