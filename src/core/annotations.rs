//! The annotations and labels of daemonlet that users write on DaemonSets, and on the objects beside them.
//!
//! Owns their values, and the warnings about what is not understood: a misspelt name, an invalid value, a wrong place.
//! Must not refuse anything: what is not understood is ignored with a warning, or holds rollouts.

mod objects;

use std::collections::BTreeMap;

use crate::core::cluster::rollout::RolloutHold;
use crate::core::cluster::steps;
use crate::core::duration;
use crate::core::escape;
use crate::core::json::Json;
use crate::core::knowledge::OVERRIDE_ANNOTATION;
use crate::core::labels;
use crate::core::labels::Selector;
use crate::core::model::ABORTED;
use crate::core::model::AFTER;
use crate::core::model::AFTER_TIMEOUT;
use crate::core::model::CANARY;
use crate::core::model::CANARY_HOLD;
use crate::core::model::COORDINATION;
use crate::core::model::DaemonSet;
use crate::core::model::FIRST_INSTALL;
use crate::core::model::FieldError;
use crate::core::model::IntOrPercent;
use crate::core::model::MAX_FAILED;
use crate::core::model::MAX_UNREACHABLE;
use crate::core::model::MODE_LABEL;
use crate::core::model::NODE_CONDITION;
use crate::core::model::OVERLAYS;
use crate::core::model::PARTITION;
use crate::core::model::PAUSED;
use crate::core::model::PRE_PULL;
use crate::core::model::PROGRESS_DEADLINE;
use crate::core::model::PROMOTED;
use crate::core::model::RESTART_ON;
use crate::core::model::RETRY;
use crate::core::model::ROLLBACK;
use crate::core::model::SPREAD_KEY;
use crate::core::model::STARTUP_TAINT;
use crate::core::model::STARTUP_TAINT_TIMEOUT;
use crate::core::model::STEPS;
use crate::core::model::TOPOLOGY_KEY;
use crate::core::model::UPDATE;
use crate::core::model::WINDOW;
use crate::core::nearest;
use crate::core::node_conditions;
use crate::core::overlays;
use crate::core::start_order;
use crate::core::startup_taint;
use crate::core::time::Span;
use crate::core::update_trigger::UpdateTrigger;
use crate::core::window::Window;

pub use objects::mistakes_on;

/// The prefix of all our names.
pub const OURS: &str = "daemonlet.dev/";

/// An annotation: its name, whether a value is valid, what a valid value is, and what applies instead of an invalid
/// one.
type KnownAnnotation = (&'static str, fn(&str) -> bool, &'static str, &'static str);

/// What applies instead of a value that steers a rollout.
const HELD: &str = "nothing is rolled out";

const KNOWN: [KnownAnnotation; 27] = [
    (
        PROGRESS_DEADLINE,
        |text| progress_deadline(text).is_some(),
        "a Go duration above 0, such as 10m",
        "10m is used, and nothing is rolled out",
    ),
    (ROLLBACK, |text| matches!(text, "auto" | "off"), "auto or off", "off is used, and nothing is rolled out"),
    (RESTART_ON, |text| text == "config", "config", "changed data restarts nothing"),
    (PAUSED, |text| matches!(text, "true" | "false"), "true or false", "it is paused"),
    (PARTITION, |text| int_or_percent(text).is_some(), "a number of nodes or a percentage up to 100%", HELD),
    (CANARY, |text| canary(text).is_some(), "a label selector of at most 32 requirements and 4096 bytes", HELD),
    (CANARY_HOLD, |text| duration::parse(text).is_some(), "a Go duration, such as 10m", HELD),
    (MAX_FAILED, |text| int_or_percent(text).is_some(), "a number of nodes or a percentage up to 100%", HELD),
    (MAX_UNREACHABLE, |text| int_or_percent(text).is_some(), "a number of nodes or a percentage up to 100%", HELD),
    (STEPS, |text| steps::parse(text).is_some(), "steps that grow, such as 1, 10m; 5%, 30m; 100%", HELD),
    (
        FIRST_INSTALL,
        |text| first_install(text).is_some(),
        "a number of nodes or a percentage, above 0",
        "it starts on no node that never ran it",
    ),
    (TOPOLOGY_KEY, labels::is_label_key, "the name of a label of Nodes, such as topology.kubernetes.io/zone", HELD),
    (SPREAD_KEY, labels::is_label_key, "the name of a label of Nodes, such as example.org/rack", HELD),
    (
        WINDOW,
        |text| Window::parse(text).is_ok(),
        "days, times and a zone, such as Mon-Fri 02:00-04:00 Europe/Berlin; Sun",
        HELD,
    ),
    (UPDATE, |text| UpdateTrigger::parse(text).is_some(), "drain, boot or manual", "nothing is replaced"),
    (
        PROMOTED,
        |text| text.contains('/'),
        "a ControllerRevision and a step, as kubectl daemonlet promote writes it",
        "it is void",
    ),
    (ABORTED, |text| !text.is_empty(), "a ControllerRevision, as kubectl daemonlet abort writes it", "it is void"),
    (RETRY, |text| text.contains('/'), "a revision and a mark, as kubectl daemonlet retry writes it", "it is void"),
    (PRE_PULL, |text| duration::parse(text).is_some(), "a Go duration, such as 10m", "10m is used"),
    (
        AFTER,
        |text| start_order::daemons(text).is_ok(),
        "a list of DaemonSets, such as kube-system/cilium, kube-system/node-local-dns",
        "it waits for none",
    ),
    (AFTER_TIMEOUT, |text| start_order::timeout(text).is_some(), "a Go duration above 0, such as 2m", "2m is used"),
    (STARTUP_TAINT, |text| matches!(text, "true" | "false"), "true or false", "no node waits for it"),
    (
        STARTUP_TAINT_TIMEOUT,
        |text| start_order::timeout(text).is_some(),
        "a Go duration above 0, such as 10m",
        "10m is used",
    ),
    (
        NODE_CONDITION,
        node_conditions::is_name,
        "a name of letters, digits, -, _ and ., such as NetworkReady",
        "no Node has a condition for it",
    ),
    (
        OVERLAYS,
        overlays::is_name,
        "the name of a ConfigMap of its namespace",
        "no instance starts, or what applied last stays",
    ),
    (COORDINATION, |text| text == "none", "none", "it changes by approval alone"),
    (OVERRIDE_ANNOTATION, |text| text == "true", "true", "what the API server last said counts before a folder's"),
];

/// As many characters of a value are shown.
const SHOWN: usize = 128;

/// Annotations that bound how far and how fast a rollout goes: one that is not understood holds it, since what its owner
/// meant by it may be less than what would go on without.
const STEERING: [&str; 11] = [
    PAUSED,
    PARTITION,
    CANARY,
    CANARY_HOLD,
    MAX_FAILED,
    MAX_UNREACHABLE,
    TOPOLOGY_KEY,
    SPREAD_KEY,
    STEPS,
    PROGRESS_DEADLINE,
    ROLLBACK,
];

/// That one of these annotations of a DaemonSet holds its rollouts, because its value or name is not understood. One whose
/// name is unknown does: it is misspelt, or of a later version, and may bound a rollout that would go on without it.
pub fn not_understood(annotations: &BTreeMap<String, String>) -> Option<RolloutHold> {
    let is_value = |name: &str, text: &str| KNOWN.iter().any(|(known, is_value, ..)| *known == name && is_value(text));
    let value = STEERING.into_iter().find_map(|annotation| {
        let text = annotations.get(annotation).filter(|text| !is_value(annotation, text))?;
        Some(RolloutHold::Value { annotation, value: text.chars().take(SHOWN).collect() })
    });
    let is_known = |name: &str| name == MODE_LABEL || KNOWN.iter().any(|(known, ..)| *known == name);
    let name = || annotations.keys().find(|name| name.starts_with(OURS) && !is_known(name));
    let unknown = |name: &String| RolloutHold::UnknownAnnotation {
        name: name.clone(),
        near: near(name, &KNOWN.map(|(known, ..)| known)).map(|near| format!("{OURS}{near}")),
    };
    value.or_else(|| name().map(unknown))
}

/// Why these annotations of a DaemonSet do not say how far its rollouts may go: one is not understood, or [`STEPS`] excludes
/// another, and which of the two counts is not known.
pub fn unbounded(annotations: &BTreeMap<String, String>) -> Option<RolloutHold> {
    not_understood(annotations).or_else(|| excluded_by_steps(annotations).map(RolloutHold::ExcludedBySteps))
}

fn excluded_by_steps(annotations: &BTreeMap<String, String>) -> Option<&'static str> {
    annotations.get(STEPS)?;
    [CANARY, PARTITION, FIRST_INSTALL].into_iter().find(|name| annotations.contains_key(*name))
}

/// A selector of canary nodes has no more bytes, and no more requirements: all of it is compared with each node.
const CANARY_BYTES: usize = 4096;
const CANARY_REQUIREMENTS: usize = 32;

/// The nodes that go first; `None`: it is not understood.
pub fn canary(text: &str) -> Option<Selector> {
    let is_short = !text.trim().is_empty() && text.len() <= CANARY_BYTES;
    let selector = is_short.then(|| labels::parse(text).ok()).flatten()?;
    (selector.requirements().len() <= CANARY_REQUIREMENTS).then_some(selector)
}

/// Whether people have paused the rollouts of a DaemonSet: any value but `false` does.
pub fn is_paused(daemon_set: &DaemonSet) -> bool {
    daemon_set.annotations.get(PAUSED).is_some_and(|value| value != "false")
}

/// Whether each node follows a DaemonSet by itself, as its owner wrote: no node waits for an approval.
pub fn is_uncoordinated(daemon_set: &DaemonSet) -> bool {
    daemon_set.annotations.get(COORDINATION).is_some_and(|value| value == "none")
}

/// The progress deadline as the annotation has it.
pub fn progress_deadline(text: &str) -> Option<Span> {
    duration::parse(text).filter(|span| *span > Span::ZERO)
}

/// A number of nodes, or a percentage up to 100.
pub fn int_or_percent(text: &str) -> Option<IntOrPercent> {
    match text.strip_suffix('%') {
        Some(percent) => percent.parse().ok().filter(|p| *p <= 100).map(IntOrPercent::Percent),
        None => text.parse().ok().map(IntOrPercent::Int),
    }
}

/// On how many nodes at a time a DaemonSet starts that was never released.
pub fn first_install(text: &str) -> Option<IntOrPercent> {
    int_or_percent(text).filter(|nodes| !matches!(nodes, IntOrPercent::Int(0) | IntOrPercent::Percent(0)))
}

/// How many are reported at most, and each in how many bytes: a DaemonSet may have thousands, and each node reports them
/// in its log and its status.
const MOST_REPORTED: usize = 16;
const REPORTED_BYTES: usize = 512;

/// The annotations and labels of ours on `daemon_set` that are not understood, and whether there are more of them.
pub fn unknown_fields(daemon_set: &DaemonSet) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = unknown(daemon_set).take(MOST_REPORTED + 1).collect();
    if errors.len() > MOST_REPORTED {
        errors[MOST_REPORTED] = FieldError {
            field: "metadata".to_owned(),
            reason: format!("has more annotations and labels {OURS}… that are not understood"),
            hint: Some("correct these first".to_owned()),
        };
    }
    errors
}

/// The first of them that are mistakes: the annotation or label is unknown, in the wrong place, or its value is wrong.
pub fn mistakes(daemon_set: &DaemonSet) -> Vec<FieldError> {
    mistaken(daemon_set).take(MOST_REPORTED).collect()
}

fn unknown(daemon_set: &DaemonSet) -> impl Iterator<Item = FieldError> {
    mistaken(daemon_set).chain(without_effect(daemon_set))
}

fn mistaken(daemon_set: &DaemonSet) -> impl Iterator<Item = FieldError> {
    let annotations = ours(&daemon_set.annotations).filter_map(|(n, v)| annotation(n, v));
    let labels = ours(&daemon_set.labels).filter_map(|(n, v)| label(n, v));
    let excluded = excluded_by_steps(&daemon_set.annotations).map(|excluded| FieldError {
        field: format!("metadata.annotations[{STEPS}]"),
        reason: format!("it excludes {excluded}; the rollout is held"),
        hint: Some("write one of them".to_owned()),
    });
    // Annotations written on the pod template instead of the DaemonSet.
    let template = daemon_set.template.at(["metadata", "annotations"]).and_then(serde_json::Value::as_object);
    let misplaced =
        KNOWN.iter().map(|(name, ..)| name).filter(move |name| template.is_some_and(|t| t.contains_key(**name)));
    let misplaced = misplaced.map(|name| FieldError {
        field: format!("spec.template.metadata.annotations[{name}]"),
        reason: "it is ignored on the pod template".to_owned(),
        hint: Some("write it into the DaemonSet's own metadata.annotations".to_owned()),
    });
    annotations.chain(labels).chain(excluded).chain(misplaced)
}

/// The names of a map with our prefix. Every pass reads them, and a map may have thousands of other names.
fn ours(map: &BTreeMap<String, String>) -> impl Iterator<Item = (&String, &String)> {
    map.range(OURS.to_owned()..).take_while(|(name, _)| name.starts_with(OURS))
}

/// Annotations that are understood and do less than their author expects.
fn without_effect(daemon_set: &DaemonSet) -> Vec<FieldError> {
    let value = |name: &str| daemon_set.annotations.get(name).map(String::as_str);
    let problem = |name: &str, reason: String, hint: &str| FieldError {
        field: format!("metadata.annotations[{name}]"),
        reason,
        hint: Some(hint.to_owned()),
    };
    let needs = [(AFTER_TIMEOUT, AFTER), (STARTUP_TAINT_TIMEOUT, STARTUP_TAINT), (CANARY_HOLD, CANARY)];
    let is_understood = |name: &str| value(name).is_some_and(|value| annotation(name, value).is_none());
    let alone = needs.into_iter().filter(|(name, of)| is_understood(name) && value(of).is_none());
    let alone =
        alone.map(|(name, of)| problem(name, format!("it has no effect without {of}"), "write both, or neither"));
    let is_awaited = startup_taint::is_asked(daemon_set);
    let has_probe = |container: &serde_json::Value| container.at(["readinessProbe"]).is_some_and(|p| !p.is_null());
    let is_unprobed = is_awaited && !daemon_set.template.list_at(["spec", "containers"]).iter().any(has_probe);
    let unprobed = is_unprobed.then(|| {
        let reason = "no container has a readinessProbe: workload comes as soon as its containers run".to_owned();
        problem(STARTUP_TAINT, reason, "give it a readinessProbe that says when the node can serve")
    });
    let [waits, carries] =
        [(AFTER, AFTER_TIMEOUT, start_order::TIMEOUT), (STARTUP_TAINT, STARTUP_TAINT_TIMEOUT, startup_taint::TIMEOUT)]
            .map(|(of, name, otherwise)| {
                value(of).map(|_| value(name).and_then(start_order::timeout).unwrap_or(otherwise))
            });
    let is_early = is_awaited && waits.zip(carries).is_some_and(|(waits, carries)| carries <= waits);
    let early = is_early.then(|| {
        let reason = format!("the taint may go before the daemon may start: it waits as long ({AFTER_TIMEOUT})");
        problem(STARTUP_TAINT_TIMEOUT, reason, "make it longer than after-timeout and the daemon's start together")
    });
    alone.chain(unprobed).chain(early).collect()
}

fn annotation(name: &str, value: &str) -> Option<FieldError> {
    let field = format!("metadata.annotations[{name}]");
    match KNOWN.iter().find(|(known, ..)| *known == name) {
        Some((_, is_value, ..)) if is_value(value) => None,
        Some((_, _, wanted, instead)) => {
            let part = match name {
                AFTER => start_order::daemons(value).err(),
                STEPS => steps::misfit(value),
                _ => None,
            };
            let reason = match part {
                Some(part) => escape::short(&part, REPORTED_BYTES).into_owned(),
                None => format!("{:?} is not {wanted}", escape::short(value, REPORTED_BYTES)),
            };
            let (reason, hint) = (format!("{reason}; {instead}"), Some(format!("write {wanted}")));
            Some(FieldError { field, reason, hint })
        }
        None if name == MODE_LABEL => Some(misplaced(field, "it is a label", "metadata.labels")),
        None => Some(FieldError {
            field,
            reason: format!("unknown annotation; {HELD}"),
            hint: Some(did_you_mean(name, &KNOWN.map(|(known, ..)| known))),
        }),
    }
}

fn label(name: &str, value: &str) -> Option<FieldError> {
    let field = format!("metadata.labels[{name}]");
    match name {
        MODE_LABEL if matches!(value, "static" | "bootstrap") => None,
        MODE_LABEL => Some(FieldError {
            field,
            reason: format!("{:?} is neither static nor bootstrap", escape::short(value, REPORTED_BYTES)),
            hint: Some("write one of the two".to_owned()),
        }),
        _ if KNOWN.iter().any(|(known, ..)| *known == name) => {
            Some(misplaced(field, "it is an annotation", "metadata.annotations"))
        }
        _ => Some(FieldError {
            field,
            reason: "unknown label, ignored".to_owned(),
            hint: Some(did_you_mean(name, &[MODE_LABEL])),
        }),
    }
}

fn misplaced(field: String, what: &str, place: &str) -> FieldError {
    FieldError {
        field,
        reason: format!("{what}, and is ignored here"),
        hint: Some(format!("write it into the DaemonSet's {place}")),
    }
}

fn did_you_mean(name: &str, candidates: &[&'static str]) -> String {
    match near(name, candidates) {
        Some(near) => format!("did you mean {OURS}{near}?"),
        None => format!("known names: {}", candidates.join(", ")),
    }
}

fn near<'a>(name: &str, candidates: &[&'a str]) -> Option<&'a str> {
    nearest::of(name.trim_start_matches(OURS), candidates.iter().map(|candidate| candidate.trim_start_matches(OURS)))
}

#[cfg(test)]
mod tests;
