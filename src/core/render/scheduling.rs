//! What scheduler and admission would have added: placement fields, tolerations, priority, overhead.
//!
//! Follows upstream's Priority and RuntimeClass admission. `placement` owns the placement itself.

use serde_json::Value;
use serde_json::json;

use crate::core::bounds;
use crate::core::canonical;
use crate::core::json::Json;
use crate::core::model::Kind;
use crate::core::model::Lookup;
use crate::core::model::SYSTEM_CLASSES;
use crate::core::placement::automatic_tolerations;
use crate::core::render::context;
use crate::core::render::context::RenderContext;
use crate::core::render::json::Object;
use crate::core::validate;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const BY_SCHEDULER: &str = "only a scheduler enforces this: here it keeps the daemon from no node";

/// The group of pods that a scheduler places at once, of 1.36 and of 1.35.
const GROUPS: [&str; 2] = ["schedulingGroup", "workloadRef"];

/// The highest number of any other class, as the API server has it (upstream's `HighestUserDefinablePriority`).
const HIGHEST_OF_USERS: f64 = 1_000_000_000.0;

/// Refuses claims for devices, which only the scheduler can allocate.
pub(super) fn refuse_claims(ctx: &mut RenderContext<'_>, spec: &Object) {
    if !spec.list_at("resourceClaims").is_empty() {
        ctx.refuse(
            "spec.template.spec.resourceClaims",
            "a static pod cannot have resource claims: the scheduler allocates them through the API",
            "use a device plugin or hostPath devices, or let the DaemonSet controller run it (kubectl apply it without the label daemonlet.dev/mode; where default-mode is not labelled, also leave it out by selector)",
        );
    }
}

/// Removes placement fields, which are decided already and which the kubelet would judge again at a boot without API.
pub(super) fn drop_placement(ctx: &mut RenderContext<'_>, spec: &mut Object) {
    for field in enforced_by_scheduler(spec) {
        ctx.note(format!("spec.template.spec.{field}"), BY_SCHEDULER, "");
    }
    for member in ["nodeSelector", "nodeName", "schedulingGates"].into_iter().chain(GROUPS) {
        spec.remove(member);
    }
    let Some(affinity) = spec.get_mut("affinity").and_then(Value::as_object_mut) else { return };
    affinity.remove("nodeAffinity");
    if affinity.values().all(Value::is_null) {
        spec.remove("affinity");
    }
}

/// The fields of `spec` that keep a pod from a node, or from all, by what only a scheduler compares it with.
fn enforced_by_scheduler(spec: &Object) -> Vec<String> {
    let is_set = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
    let required = |kind: &&str| spec.at(["affinity", kind, REQUIRED]).is_some_and(is_set);
    let affinities = ["podAffinity", "podAntiAffinity"].into_iter().filter(required);
    let mut fields: Vec<String> = affinities.map(|kind| format!("affinity.{kind}.{REQUIRED}")).collect();
    let spreads = |constraint: &Value| constraint.str_at("whenUnsatisfiable") == "DoNotSchedule";
    if spec.list_at("topologySpreadConstraints").iter().any(spreads) {
        fields.push("topologySpreadConstraints".to_owned());
    }
    if spec.get("schedulingGates").is_some_and(is_set) {
        fields.push("schedulingGates".to_owned());
    }
    let is_written = |field: &&str| spec.at(*field).is_some();
    fields.extend(GROUPS.into_iter().filter(is_written).map(str::to_owned));
    fields
}

/// Adds the tolerations that upstream adds to every daemon.
pub(super) fn tolerate(spec: &mut Object) {
    let host_network = spec.flag_at("hostNetwork");
    let tolerations = automatic_tolerations(spec.list_at("tolerations"), host_network);
    spec.insert("tolerations".to_owned(), Value::Array(tolerations));
}

/// Sets the numeric priority of the priority class, as the kubelet does not know classes.
pub(super) fn priority(ctx: &mut RenderContext<'_>, spec: &mut Object) {
    let Some(class) = spec.text_at("priorityClassName").map(str::to_owned) else {
        if spec.at("priority").is_some_and(|priority| priority.as_i64() != Some(0)) {
            let reason = "left out: the API accepts no priority without a class";
            ctx.note("spec.template.spec.priority", reason, "set priorityClassName");
            spec.remove("priority");
        }
        if spec.remove("preemptionPolicy").is_some_and(|policy| policy != "PreemptLowerPriority" && !policy.is_null()) {
            let reason = "left out: the API accepts none without a class";
            ctx.note("spec.template.spec.preemptionPolicy", reason, "set priorityClassName");
        }
        return;
    };
    let built_in = SYSTEM_CLASSES.iter().find(|(name, _)| **name == class);
    let (value, policy) = match built_in {
        Some((_, value)) => (Some(Value::from(*value)), None),
        None => match ctx.look_up(Kind::PriorityClass, &class) {
            Lookup::Present(object) => {
                let given = |field| object.get(field).filter(|value| !value.is_null());
                (given("value").map(canonical::untouched), given("preemptionPolicy").cloned())
            }
            Lookup::Absent | Lookup::Deleted(_) => return ctx.lack("", Kind::PriorityClass, &class, ""),
            Lookup::Unknown => return ctx.miss_in(Kind::PriorityClass.as_str(), "", &class, ""),
        },
    };
    let policy = policy.unwrap_or_else(|| "PreemptLowerPriority".into());
    let highest = if built_in.is_some() { f64::INFINITY } else { HIGHEST_OF_USERS };
    if let Some(above) = value.as_ref().filter(|value| value.as_f64().is_some_and(|number| number > highest)) {
        // It would preempt other daemons under a name that policy lets pass.
        let reason = format!(
            "value of PriorityClass {class}: {above} is above {HIGHEST_OF_USERS}, which only the classes system-… may have"
        );
        ctx.refuse("spec.template.spec.priorityClassName", reason, "correct value of the PriorityClass");
        return;
    }
    let value = value.unwrap_or_else(|| 0.into());
    if context::bound(ctx.input) == &bounds::TENANT && value.as_f64().is_some_and(|number| number > 0.0) {
        // Two static pods of which both have a priority preempt each other by it (`kubelet/types.Preemptable`).
        let reason =
            format!("left out: with the priority {value} it could end daemons of other namespaces on a full node");
        ctx.note(
            "spec.template.spec.priorityClassName",
            reason,
            "add the namespace to policy.trusted-namespaces (root on the node)",
        );
        ["priorityClassName", "priority", "preemptionPolicy"].iter().for_each(|field| drop(spec.remove(*field)));
        return;
    }
    take_over(ctx, spec, Kind::PriorityClass, &class, json!({"priority": value, "preemptionPolicy": policy}));
}

/// Writes `fields` that the object `name` gives into `spec`. A value that no kubelet takes is refused: in the manifest it would
/// end the running instance.
fn take_over(ctx: &mut RenderContext<'_>, spec: &mut Object, kind: Kind, name: &str, fields: Value) {
    let field = match kind {
        Kind::PriorityClass => "spec.template.spec.priorityClassName",
        _ => "spec.template.spec.runtimeClassName",
    };
    let errors = validate::class_fields(&fields);
    for error in &errors {
        let place = error.field.trim_start_matches("spec.").replacen("overhead", "overhead.podFixed", 1);
        let hint = format!("correct {place} of the {kind}");
        ctx.refuse(field, format!("{place} of {kind} {name}: {}", error.reason), &hint);
    }
    if let Value::Object(fields) = fields
        && errors.is_empty()
    {
        for (written, value) in &fields {
            if spec.get(written).is_some_and(|other| !other.is_null() && other != value) {
                let reason = format!("replaced by that of {kind} {name}: the API accepts no other");
                ctx.note(format!("spec.template.spec.{written}"), reason, "remove the field");
            }
        }
        spec.extend(fields);
    }
}

/// Sets the overhead of the runtime class.
pub(super) fn overhead(ctx: &mut RenderContext<'_>, spec: &mut Object) {
    let class = spec.text_at("runtimeClassName");
    let fixed = match class.map(|class| (class, ctx.look_up(Kind::RuntimeClass, class))) {
        Some((class, Lookup::Present(object))) => {
            if object.at(["scheduling", "nodeSelector"]).is_some_and(|nodes| *nodes != json!({})) {
                let reason = format!("scheduling.nodeSelector of RuntimeClass {class}: {BY_SCHEDULER}");
                ctx.note("spec.template.spec.runtimeClassName", reason, "write it into the template's nodeSelector");
            }
            object.at(["overhead", "podFixed"])
        }
        Some((class, Lookup::Absent | Lookup::Deleted(_))) => return ctx.lack("", Kind::RuntimeClass, class, ""),
        Some((class, Lookup::Unknown)) => return ctx.miss_in(Kind::RuntimeClass.as_str(), "", class, ""),
        None => None,
    };
    match fixed {
        Some(fixed) => {
            let (class, fields) =
                (class.unwrap_or_default().to_owned(), json!({"overhead": canonical::untouched(fixed)}));
            take_over(ctx, spec, Kind::RuntimeClass, &class, fields);
        }
        None if spec.at("overhead").is_some() => {
            let reason = "left out: the API accepts only the overhead of the runtime class";
            ctx.note("spec.template.spec.overhead", reason, "set it in the RuntimeClass");
            spec.remove("overhead");
        }
        None => {}
    }
}

#[cfg(test)]
mod tests;
