//! `resources` of a container and of a pod.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;
use serde_json::json;

use crate::core::dns;
use crate::core::json::Json;
use crate::core::labels::is_label_key;
use crate::core::model::FieldError;
use crate::core::quantity::Quantity;
use crate::core::quantity::parse_json;
use crate::core::validate::rules::LABEL_KEY;
use crate::core::validate::rules::POD_SPEC;
use crate::core::validate::wrong;

const HUGE_PAGES: &str = "hugepages-";
const LISTS: [&str; 2] = ["limits", "requests"];
const MILLI: i128 = 1000;
const MOST: i128 = i64::MAX as i128;

/// `ValidateContainerResourceRequirements`.
pub(super) fn check(declared: &BTreeSet<&str>, container: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let Some(resources) = container.at("resources") else { return };
    let place = format!("{place}.resources");
    requirements(resources, no_name, &place, errors);
    claims(declared, resources, &format!("{place}.claims"), errors);
}

/// What a RuntimeClass takes on top, in the pod's `spec` at `place`; `validateOverhead`.
pub(in crate::core::validate) fn overhead(spec: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let Some(overhead) = spec.at("overhead") else { return };
    let mut found = Vec::new();
    requirements(&json!({"limits": overhead}), no_name, &format!("{place}.overhead"), &mut found);
    // The amounts are judged as limits are, but not written as such.
    errors.extend(found.into_iter().map(|error| FieldError { field: error.field.replacen(".limits", "", 1), ..error }));
}

/// What the pod has as a whole; `validatePodResources`, and `overhead`.
pub(in crate::core::validate) fn of_pod(spec: &Value, errors: &mut Vec<FieldError>) {
    overhead(spec, POD_SPEC, errors);
    let Some(resources) = spec.at("resources") else { return };
    let place = format!("{POD_SPEC}.resources");
    if resources.at("claims").is_some() {
        errors.push(wrong(format!("{place}.claims"), "not allowed for a whole pod"));
    }
    requirements(resources, no_name_of_pod, &place, errors);
    consistency(spec, resources, &place, errors);
}

/// `validatePodResourceConsistency`: no container has a higher limit than the pod, and all of them request no more.
fn consistency(spec: &Value, resources: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let total = |kind: &str, name: &str| {
        // A request that is not written is the limit.
        let of = |container: &&Value| {
            let written =
                container.at(["resources", kind, name]).or_else(|| container.at(["resources", "limits", name]));
            written.and_then(parse_json).map_or(0, Quantity::milli_value)
        };
        let (mut sidecars, mut most) = (0, 0);
        for container in spec.list_at("initContainers") {
            let own = of(&container);
            most = most.max(sidecars + own);
            sidecars += if container.str_at("restartPolicy") == "Always" { own } else { 0 };
        }
        most.max(sidecars + spec.list_at("containers").iter().map(|container| of(&container)).sum::<i128>())
    };
    for kind in LISTS {
        for (name, amount) in amounts(resources, kind) {
            let amount = amount.map(Quantity::milli_value);
            let is_summed = kind == "requests" || name.starts_with(HUGE_PAGES);
            if is_summed && amount.is_some_and(|amount| total(kind, name) > amount) {
                errors.push(wrong(
                    format!("{place}.{kind}[{name}]"),
                    "must not be less than its containers have together",
                ));
            }
            // Defaulting makes the pod's request of what its containers have.
            let is_derived = kind == "limits" && resources.at(["requests", name]).is_none();
            if is_derived && amount.is_some_and(|amount| total("requests", name) > amount) {
                errors.push(wrong(format!("{place}.{kind}[{name}]"), "must not be less than its containers request"));
            }
            for (index, container) in spec.list_at("containers").iter().enumerate().filter(|_| kind == "limits") {
                let own = container.at(["resources", "limits", name]).and_then(parse_json).map(Quantity::milli_value);
                if own > amount {
                    let place = format!("{POD_SPEC}.containers[{index}].resources.limits[{name}]");
                    errors.push(wrong(place, "must not be more than the limit of the pod"));
                }
            }
        }
    }
}

/// `validateResourceRequirements`; amounts are compared as defaulting rounds them.
fn requirements(
    resources: &Value,
    no_name: fn(&str) -> Option<&'static str>,
    place: &str,
    errors: &mut Vec<FieldError>,
) {
    for kind in LISTS {
        for (name, amount) in amounts(resources, kind) {
            let place = format!("{place}.{kind}[{name}]");
            errors.extend(no_name(name).map(|reason| wrong(&place, reason)));
            let reason = amount.and_then(|amount| no_amount(name, amount));
            errors.extend(reason.map(|reason| wrong(&place, reason)));
        }
    }
    for (name, amount) in amounts(resources, "requests") {
        let limit = resources.at("limits").and_then(|limits| limits.get(name)).map(parse_json);
        let place = |kind: &str| format!("{place}.{kind}[{name}]");
        match (amount, limit) {
            (_, None) if !may_exceed(name) => errors.push(wrong(place("limits"), "required with a request")),
            (Some(amount), Some(Some(limit))) => {
                let (amount, limit) = (amount.milli_value(), limit.milli_value());
                if amount != limit && !may_exceed(name) {
                    errors.push(wrong(place("requests"), "must be the limit"));
                } else if amount > limit && amount >= 0 {
                    errors.push(wrong(place("requests"), "must not be more than the limit"));
                }
            }
            _ => {}
        }
    }
    let names = || LISTS.into_iter().flat_map(|kind| amounts(resources, kind)).map(|(name, _)| name);
    if names().any(|name| name.starts_with(HUGE_PAGES)) && !names().any(|name| ["cpu", "memory"].contains(&name)) {
        errors.push(wrong(place, "hugepages need cpu or memory beside them"));
    }
}

/// The amounts of `limits` or `requests`; none where this program cannot count that far.
fn amounts<'a>(resources: &'a Value, kind: &str) -> impl Iterator<Item = (&'a str, Option<Quantity>)> {
    let amounts = resources.at(kind).and_then(Value::as_object);
    amounts.into_iter().flatten().map(|(name, amount)| (name.as_str(), parse_json(amount)))
}

/// Why `name` is no resource of a whole pod (`validatePodResourceName`).
fn no_name_of_pod(name: &str) -> Option<&'static str> {
    let known = ["cpu", "memory"].contains(&name) || name.starts_with(HUGE_PAGES);
    (!known).then_some("must be cpu, memory or hugepages-<size>")
}

/// Why `name` is no resource of a container (`validateContainerResourceName`).
fn no_name(name: &str) -> Option<&'static str> {
    let standard = ["cpu", "memory", "ephemeral-storage"].contains(&name) || name.starts_with(HUGE_PAGES);
    if !is_label_key(name) {
        Some(LABEL_KEY)
    } else if !name.contains('/') {
        (!standard)
            .then_some("must be cpu, memory, ephemeral-storage, hugepages-<size> or have a domain and '/' before it")
    } else {
        (!is_native(name) && !is_extended(name)).then_some("the domain must not begin with 'requests.' or be that long")
    }
}

/// `ValidateResourceQuantityValue` and `validateResourceQuantityHugePageValue`.
fn no_amount(name: &str, amount: Quantity) -> Option<&'static str> {
    if amount.milli_value() < 0 {
        return Some("must not be negative");
    }
    if is_extended(name) && amount.milli_value() % MILLI != 0 {
        return Some("must be a whole number");
    }
    // Upstream counts thousandths with 64 bits: of more, it takes some for whole numbers, and refuses others.
    if is_extended(name) && amount.milli_value() > MOST {
        return Some("must be at most 9223372036854775");
    }
    let size = name.strip_prefix(HUGE_PAGES)?.parse::<Quantity>().ok();
    // Upstream counts with 64 bits, and divides what is left of a larger amount by what is left of a larger size.
    let counts = |size: &Quantity| (1..=MOST).contains(&size.value());
    let size = size.filter(|size| counts(size) && size.milli_value() % MILLI == 0);
    if amount.value() > MOST {
        return Some("must be at most 9223372036854775807");
    }
    let fits = size.is_some_and(|size| amount.value() % size.value() == 0);
    (!fits).then_some("must be a multiple of the size in the name")
}

/// `IsNativeResource`.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// `IsExtendedResourceName`.
fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && is_label_key(&format!("requests.{name}"))
}

/// Whether the limit may exceed the request (`IsOvercommitAllowed`).
fn may_exceed(name: &str) -> bool {
    is_native(name) && !name.starts_with(HUGE_PAGES)
}

/// `validateResourceClaimNames`.
fn claims(declared: &BTreeSet<&str>, resources: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let mut seen: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (index, claim) in resources.list_at("claims").iter().enumerate() {
        let place = format!("{place}[{index}]");
        let (name, request) = (claim.str_at("name"), claim.str_at("request"));
        if name.is_empty() {
            errors.push(wrong(format!("{place}.name"), "required"));
            continue;
        }
        if !request.is_empty() {
            errors.extend(dns::label(request).map(|reason| wrong(format!("{place}.request"), reason)));
        }
        let parts = seen.entry(name).or_default();
        if !parts.is_empty() && (request.is_empty() || parts.contains("") || parts.contains(request)) {
            errors.push(wrong(&place, format!("{name} is used twice")));
        }
        parts.insert(request);
        if !declared.contains(name) {
            errors.push(wrong(format!("{place}.name"), format!("the pod has no resource claim {name}")));
        }
    }
}

#[cfg(test)]
mod tests;
