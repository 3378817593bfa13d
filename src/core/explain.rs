//! Why a daemon runs here or not, term by term.
//!
//! Owns the texts about placement, mode and policy. Must not decide: it prints the results of [`placement::judge`],
//! [`Covered`] and [`Admission`].

use std::fmt;

use serde_json::Value;

use crate::core::json::Json;
use crate::core::model::AFTER;
use crate::core::model::AFTER_TIMEOUT;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::Mode;
use crate::core::model::NodeView;
use crate::core::model::STARTING_TAINT;
use crate::core::model::Source;
use crate::core::overlays;
use crate::core::overlays::KnownList;
use crate::core::placement;
use crate::core::placement::ExpressionCheck;
use crate::core::placement::Judgement;
use crate::core::placement::NamespaceSelector;
use crate::core::placement::TaintCheck;
use crate::core::policy::Admission;
use crate::core::policy::Covered;
use crate::core::record::AdmissionAnswer;
use crate::core::record::AdmissionVerdict;
use crate::core::replies::Term;
use crate::core::start_order;
use crate::core::startup_taint;

/// What policy and namespace say about a DaemonSet.
pub struct ExplainRules<'a> {
    /// Whether it is ours ([`crate::core::policy::Policy::covers`]; for a folder's DaemonSet by its mode).
    pub covered: &'a Covered,
    /// Whether its pod may start.
    pub admission: &'a Admission,
    /// The node selector of its namespace.
    pub namespace_selector: Option<&'a NamespaceSelector>,
}

/// Everything that decides whether `daemon_set` runs on `node`, in the order of the decision: source, mode and policy,
/// each rule against its pod, node name, each nodeSelector entry, each expression of each affinity term, each taint,
/// the namespace's node selector, and the two results.
pub fn explain(daemon_set: &DaemonSet, node: &NodeView, rules: &ExplainRules<'_>) -> Vec<Term> {
    let judgement = placement::judge(node, daemon_set, rules.namespace_selector);
    let mut terms = vec![term("source", None, daemon_set.source.to_string()), policy(daemon_set, rules.covered)];
    overlays(daemon_set, &mut terms);
    start(daemon_set, &mut terms);
    if matches!(rules.covered, Covered::Yes(_)) {
        admission(rules.admission, &mut terms);
    }
    if let Some(check) = &judgement.node_name {
        terms.push(term("node name", Some(check.matches), check.to_string()));
    }
    for check in &judgement.node_selector {
        terms.push(term("node selector", (!check.ignored).then_some(check.matches), check.to_string()));
    }
    affinity(&judgement, &mut terms);
    terms.extend(judgement.taints.iter().map(taint));
    if let Some(check) = &judgement.namespace_selector {
        terms.push(term("node selector of the namespace", Some(check.matches), check.to_string()));
    }
    let placement = judgement.placement(node);
    let because = placement.misfit.map_or_else(String::new, |misfit| format!(": {misfit}"));
    let yes_or_no = |answer: bool| if answer { "yes" } else { "no" };
    let run = placement.should_run;
    terms.push(term("should run here", Some(run), format!("{}{because}", yes_or_no(run))));
    let stay = placement.should_continue_running;
    terms.push(term("may continue running here", Some(stay), yes_or_no(stay).to_owned()));
    terms
}

/// The same of a DaemonSet of the API that is not ours, and of which no more is read.
pub fn not_selected(reason: impl fmt::Display) -> Vec<Term> {
    vec![term("source", None, Source::Api.to_string()), not_covered(reason)]
}

/// Of a DaemonSet that no source shows, what the API server is not asked for; `selector`: that of the configuration.
pub fn not_seen(selector: Option<&str>) -> Vec<Term> {
    let text = |selector| format!("{selector:?} leaves out each DaemonSet of the API that it does not match");
    selector.map(|selector| term("selector of the configuration", None, text(selector))).into_iter().collect()
}

fn not_covered(reason: impl fmt::Display) -> Term {
    term("mode and policy", Some(false), reason.to_string())
}

fn policy(daemon_set: &DaemonSet, covered: &Covered) -> Term {
    match covered {
        Covered::Yes(mode) => {
            let mode = match mode {
                Mode::Static => "static: in place of the DaemonSet controller",
                Mode::Bootstrap => "bootstrap: until the DaemonSet controller's pod can run",
            };
            let why = match (daemon_set.mode_label(), &daemon_set.source) {
                (Some(_), _) => "from its label",
                (None, Source::File { .. }) => "from its folder",
                (None, Source::Api) => "from the folder's file of that name, or from default-mode",
            };
            term("mode and policy", Some(true), format!("{mode} ({why})"))
        }
        Covered::No(reason) => not_covered(reason),
    }
}

/// Which overlays apply here, and what each changes.
fn overlays(daemon_set: &DaemonSet, terms: &mut Vec<Term>) {
    let Some(overlays) = &daemon_set.overlays else {
        let named = overlays::config_map(daemon_set);
        return terms.extend(named.map(|config_map| term("overlays", None, config_map.to_string())));
    };
    let holds = match overlays.known {
        KnownList::Read | KnownList::Last(_) => Some(true),
        KnownList::Missing { .. } | KnownList::Refused(_) => Some(false),
    };
    terms.push(term("overlays", holds, overlays.to_string()));
    terms.extend(overlays.refused().iter().map(|error| term("overlays", Some(false), error.with_hint())));
    for (source, fields) in overlays.sources() {
        terms.push(term("overlay", None, format!("{source} patches {}", fields.join(", "))));
    }
}

/// What its DaemonSet says about its start, as far as that is understood; how far it is, its status says.
fn start(daemon_set: &DaemonSet, terms: &mut Vec<Term>) {
    let annotation = |name| daemon_set.annotations.get(name).map(String::as_str);
    if let Some(daemons) = annotation(AFTER).and_then(|text| start_order::daemons(text).ok()) {
        let names: Vec<String> = daemons.iter().map(ToString::to_string).collect();
        let timeout = annotation(AFTER_TIMEOUT).and_then(start_order::timeout).unwrap_or(start_order::TIMEOUT);
        let text = format!("after {}, or {} s ({AFTER_TIMEOUT})", names.join(", "), timeout.as_secs_ceil());
        terms.push(term("start order", None, text));
    }
    if startup_taint::is_asked(daemon_set) {
        terms.push(term(
            "startup taint",
            None,
            format!("the node is to carry {STARTING_TAINT} until it is Ready here"),
        ));
    }
}

/// The rules against the pod, each with what to do about it; notes have no verdict.
fn admission(admission: &Admission, terms: &mut Vec<Term>) {
    let text = FieldError::with_hint;
    match admission {
        Admission::Allowed(notes) => terms.extend(notes.iter().map(|e| term("pod", None, text(e)))),
        Admission::Refused(errors) => terms.extend(errors.iter().map(|e| term("pod", Some(false), text(e)))),
        Admission::Waits(missing) => {
            terms.push(term("pod", None, format!("{missing} has not been read yet, so its rules are unknown")));
        }
    }
}

/// The last result of the API server's dry run (`policy.admission`); `time` is a text.
pub fn answer(answer: &AdmissionAnswer, time: &str) -> Term {
    let (holds, text) = match &answer.said {
        AdmissionVerdict::Admitted(_) => (true, "it accepts the pod".to_owned()),
        AdmissionVerdict::Refused(words) => (false, words.clone()),
    };
    term("the API server's admission", Some(holds), format!("{text} (revision {}, {time})", answer.revision))
}

fn affinity(judgement: &Judgement, terms: &mut Vec<Term>) {
    let Some(alternatives) = &judgement.node_affinity else { return };
    let any = alternatives.iter().any(|alternative| alternative.matches);
    let verdict = match (alternatives.len(), any) {
        (0, _) => "it has no terms, so it matches no node".to_owned(),
        (_, true) => "one term matches, and one is enough".to_owned(),
        (count, false) => format!("none of its terms matches ({count})"),
    };
    terms.push(term("node affinity", Some(any), verdict));
    for (at, alternative) in alternatives.iter().enumerate() {
        let subject = format!("node affinity term {}", at + 1);
        if alternative.expressions.is_empty() {
            terms.push(term(&subject, Some(false), "empty, so it matches no node".to_owned()));
        }
        terms.extend(
            alternative.expressions.iter().map(|e: &ExpressionCheck| term(&subject, Some(e.matches), e.to_string())),
        );
    }
}

fn taint(check: &TaintCheck) -> Term {
    let text = match &check.tolerated_by {
        Some(toleration) => {
            let whose = if check.automatic { "every daemon's toleration" } else { "its toleration" };
            format!("{check}: tolerated by {whose} {}", toleration_text(toleration))
        }
        None if check.repels() && check.evicts() => format!("{check}: no toleration matches; running pods end"),
        None if check.repels() => format!("{check}: no toleration matches; running pods may stay"),
        None => format!("{check}: not tolerated, but without effect on daemons"),
    };
    let holds = if check.tolerated_by.is_none() && !check.repels() { None } else { Some(!check.repels()) };
    term("taint", holds, text)
}

/// A toleration on one line, formatted as by `kubectl describe`.
fn toleration_text(toleration: &Value) -> String {
    let mut text = toleration.text_at("key").unwrap_or("any key").to_owned();
    if let Some(value) = toleration.text_at("value") {
        text.push_str(&format!("={value}"));
    }
    if let Some(effect) = toleration.text_at("effect") {
        text.push_str(&format!(":{effect}"));
    }
    if toleration.text_at("operator") == Some("Exists") {
        text.push_str(" op=Exists");
    }
    text
}

fn term(subject: &str, holds: Option<bool>, text: String) -> Term {
    Term { subject: subject.to_owned(), holds, text }
}

#[cfg(test)]
mod tests;
