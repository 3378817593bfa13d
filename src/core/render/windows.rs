//! Pods that can only run on Windows, which a Linux node refuses.

use serde_json::Value;

use crate::core::json::Json;
use crate::core::render::containers;
use crate::core::render::context::RenderContext;
use crate::core::render::json::Object;

const OS_LABELS: [&str; 2] = ["kubernetes.io/os", "beta.kubernetes.io/os"];
const WINDOWS: &str = "windows";
const REASON: &str = "this daemon is for Windows nodes, and this program runs Linux nodes";

/// Refuses `spec`, once for every field that requires Windows.
pub(super) fn refuse(ctx: &mut RenderContext<'_>, spec: &Object) {
    if spec.at("os").and_then(|os| os.text_at("name")) == Some(WINDOWS) {
        ctx.refuse("spec.template.spec.os.name", REASON, "");
    }
    for label in OS_LABELS {
        let selected = spec.at("nodeSelector").and_then(|selector| selector.text_at(label));
        if selected == Some(WINDOWS) {
            ctx.refuse(format!("spec.template.spec.nodeSelector[{label}]"), REASON, "");
        }
    }
    let terms = spec.at("affinity").and_then(|affinity| {
        affinity.at(["nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"])
    });
    if let Some(terms) = terms.and_then(Value::as_array)
        && !terms.is_empty()
        && terms.iter().all(term_is_windows)
    {
        ctx.refuse("spec.template.spec.affinity.nodeAffinity", REASON, "");
    }
    let of_pod = spec.at("securityContext").is_some_and(host_process);
    if of_pod {
        ctx.refuse("spec.template.spec.securityContext.windowsOptions.hostProcess", REASON, "");
    }
    for (field, container) in containers::all(spec) {
        if container.at("securityContext").is_some_and(host_process) {
            ctx.refuse(format!("{field}.securityContext.windowsOptions.hostProcess"), REASON, "");
        }
    }
}

fn host_process(context: &Value) -> bool {
    context.at("windowsOptions").is_some_and(|options| options.flag_at("hostProcess"))
}

/// Whether an expression of the term requires Windows.
fn term_is_windows(term: &Value) -> bool {
    term.list_at("matchExpressions").iter().any(|expression| {
        let values = expression.list_at("values");
        expression.text_at("key").is_some_and(|key| OS_LABELS.contains(&key))
            && expression.text_at("operator") == Some("In")
            && !values.is_empty()
            && values.iter().all(|value| value.as_str() == Some(WINDOWS))
    })
}

#[cfg(test)]
mod tests;
