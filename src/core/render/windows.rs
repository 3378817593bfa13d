//! Pods that can only run on Windows, which a Linux node refuses.

use serde_json::Value;

use crate::core::render::containers;
use crate::core::render::context::RenderContext;
use crate::core::render::json;
use crate::core::render::json::Object;

const OS_LABELS: [&str; 2] = ["kubernetes.io/os", "beta.kubernetes.io/os"];
const WINDOWS: &str = "windows";
const REASON: &str = "this daemon is for Windows nodes, and this program runs Linux nodes";

/// Refuses `spec`, once for every field that requires Windows.
pub(super) fn refuse(ctx: &mut RenderContext<'_>, spec: &Object) {
    if json::member(spec, "os").and_then(|os| json::text(os, "name")) == Some(WINDOWS) {
        ctx.refuse("spec.template.spec.os.name", REASON, "");
    }
    for label in OS_LABELS {
        let selected = json::member(spec, "nodeSelector").and_then(|selector| json::text(selector, label));
        if selected == Some(WINDOWS) {
            ctx.refuse(format!("spec.template.spec.nodeSelector[{label}]"), REASON, "");
        }
    }
    let terms = json::member(spec, "affinity").and_then(|affinity| {
        json::at(affinity, &["nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"])
    });
    if let Some(terms) = terms.and_then(Value::as_array)
        && !terms.is_empty()
        && terms.iter().all(term_is_windows)
    {
        ctx.refuse("spec.template.spec.affinity.nodeAffinity", REASON, "");
    }
    let of_pod = json::member(spec, "securityContext").is_some_and(host_process);
    if of_pod {
        ctx.refuse("spec.template.spec.securityContext.windowsOptions.hostProcess", REASON, "");
    }
    for (field, container) in containers::all(spec) {
        if json::at(container, &["securityContext"]).is_some_and(host_process) {
            ctx.refuse(format!("{field}.securityContext.windowsOptions.hostProcess"), REASON, "");
        }
    }
}

fn host_process(context: &Value) -> bool {
    json::at(context, &["windowsOptions"]).is_some_and(|options| json::flag(options, "hostProcess"))
}

/// Whether an expression of the term requires Windows.
fn term_is_windows(term: &Value) -> bool {
    json::list(term, "matchExpressions").iter().any(|expression| {
        let values = json::list(expression, "values");
        json::text(expression, "key").is_some_and(|key| OS_LABELS.contains(&key))
            && json::text(expression, "operator") == Some("In")
            && !values.is_empty()
            && values.iter().all(|value| value.as_str() == Some(WINDOWS))
    })
}

#[cfg(test)]
mod tests;
