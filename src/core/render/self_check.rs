//! The final check: nothing may remain that the kubelet refuses in a static pod.
//!
//! A port of upstream's `HasAPIObjectReference` to JSON, independent of the passes that should have removed every
//! reference; then the validation of the whole pod, whatever object a part of it came from. What it finds is refused
//! with its field name; written to a file, it would end the running pod.

use serde_json::Value;

use crate::core::json::Json;
use crate::core::render::containers;
use crate::core::render::context::RenderContext;
use crate::core::validate;

const HINT: &str = "report this as a bug, and until it is fixed let the DaemonSet controller run it (kubectl apply it without the \
                    label daemonlet.dev/mode; where default-mode is not labelled, also leave it out by selector)";

/// Refuses everything in `pod` that refers to an object of the API; if nothing does, all that the kubelet does not take.
pub(super) fn check(ctx: &mut RenderContext<'_>, pod: &Value) {
    let Some(spec) = pod.at("spec") else { return };
    references(ctx, spec);
    if ctx.errors.is_empty() {
        for error in validate::rendered_pod(pod, ctx.input.options.kubelet_version) {
            ctx.refuse(error.field, error.reason, error.hint.as_deref().unwrap_or(HINT));
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
