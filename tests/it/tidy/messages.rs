//! Nothing is decided by the text of a message.

use super::*;

/// What reads texts of others, and knows no message of ours: the place, and what it reads.
const READERS: [(&str, &str); 13] = [
    ("src/cli/help", "a manual"),
    ("src/config/check.rs", "values of the configuration"),
    ("src/config/kinds.rs", "values of the configuration"),
    ("src/config/listen.rs", "an address"),
    ("src/core/annotations.rs", "values of annotations"),
    ("src/core/enrolment/certificate.rs", "PEM"),
    ("src/core/policy/rules", "values of the configuration"),
    ("src/core/render/env_file.rs", "a file of variables"),
    ("src/core/render/self_check.rs", "fields of a pod"),
    ("src/core/start_order.rs", "the value of an annotation"),
    ("src/core/upstream", "what upstream says only in words"),
    ("src/core/validate", "fields of a DaemonSet"),
    ("src/core/yaml", "YAML"),
];

/// Lines that look at a text and decide nothing by a message: the file, a part of the line, and what it is.
const LOOKS_AT_TEXT: [(&str, &str, &str); 59] = [
    ("src/cli/explain.rs", "status.reason.is_empty()", "words of an answer"),
    ("src/cli/kubectl/explain.rs", "text.is_empty()", "a cell of a table"),
    ("src/cli/kubectl/overview.rs", "!said.is_empty()", "words of an answer"),
    ("src/cli/kubectl/overview.rs", "place.reason.is_empty()", "what is as it should be has no reason"),
    ("src/cli/kubectl/overview.rs", "text.is_empty()", "a cell of a table"),
    ("src/cli/kubectl/overview.rs", "match place.reason.as_str()", "words of an answer"),
    ("src/cli/order.rs", "change.reason.is_empty()", "joins words"),
    ("src/cli/plan.rs", "change.reason.is_empty()", "joins words"),
    ("src/cli/plan.rs", "held.reason.is_empty()", "joins words"),
    ("src/cli/plan.rs", "!reason.is_empty()", "words of an answer"),
    ("src/cli/policy.rs", "said.is_empty()", "a list"),
    ("src/cli/release.rs", "text.is_empty()", "words of an answer"),
    ("src/cli/render/report.rs", "!hints.contains(&hint)", "says each thing once"),
    ("src/cli/status.rs", "text.is_empty()", "a cell of a table"),
    ("src/cli/status.rs", "!daemon.reason.is_empty()", "words of an answer"),
    ("src/cluster/watch.rs", "words != reported", "says each thing once"),
    ("src/config/read.rs", "!text.is_empty()", "a list of missing keys"),
    ("src/config/resolve.rs", "!text.is_empty()", "a field of the kubelet's configuration"),
    ("src/core/cluster/conditions.rs", "!message.is_empty()", "the API server drops an empty field"),
    ("src/core/cluster/history.rs", "text.contains(character)", "JSON as upstream writes it"),
    ("src/core/cluster/overview/reason.rs", "report.message.is_empty()", "joins words"),
    ("src/core/cluster/released.rs", "!text.is_empty()", "a name in our own condition, read back"),
    ("src/core/cluster/released.rs", "message.strip_prefix(OF_REVISION)", "our own condition, read back"),
    ("src/core/cluster/released.rs", "message.split_once(\": \")", "our own condition, read back"),
    ("src/core/cluster/retries.rs", "known.why != why", "an enum"),
    ("src/core/cluster/snapshot/objects.rs", "(!text.is_empty())", "a name"),
    ("src/core/convert.rs", "text.is_empty()", "a field of a pod"),
    ("src/core/doctor/kubelet.rs", "!text.is_empty()", "a field of the kubelet's configuration"),
    ("src/core/enrolment.rs", "\"client auth\"", "a usage of a certificate"),
    ("src/core/enrolment.rs", "\"key encipherment\"", "a usage of a certificate"),
    ("src/core/enrolment/certificate_state.rs", "message.is_empty()", "joins words"),
    ("src/core/enrolment/certificate_state.rs", "words.is_empty()", "joins words"),
    ("src/core/health.rs", "self.reason.is_empty()", "joins words"),
    ("src/core/health.rs", "self.message.is_empty()", "joins words"),
    ("src/core/health/status.rs", "message.is_empty()", "joins words"),
    ("src/core/images/reference.rs", "!text.is_empty()", "a digest"),
    ("src/core/json.rs", "!text.is_empty()", "a field of an object"),
    ("src/core/placement/namespace.rs", "!text.is_empty()", "a selector"),
    ("src/core/policy/pod_security.rs", "text.strip_prefix(\"v1.\")", "a version"),
    ("src/core/policy/rules.rs", "text.strip_prefix(first)", "a pattern of images"),
    ("src/core/record/order.rs", "message.is_empty()", "joins words"),
    ("src/core/render/context.rs", "!hint.is_empty()", "no hint"),
    ("src/core/render/hostname.rs", "!text.is_empty()", "a field of a pod"),
    ("src/core/rendering.rs", "!rendered.text.is_empty()", "a manifest"),
    ("src/guard/server.rs", "why != complaint", "says each thing once"),
    ("src/node/agent/concerns/claims/status.rs", "!report.message.is_empty()", "words in the place of others"),
    ("src/node/agent/concerns/claims/status.rs", "if message.is_empty()", "joins words"),
    ("src/node/agent/report.rs", "!text.is_empty()", "a selector"),
    ("src/node/agent/report/changes.rs", "!hint.is_empty()", "joins words"),
    ("src/node/api/confirm.rs", "status.message.is_empty()", "words in the place of others"),
    ("src/node/api/error.rs", "message.is_empty()", "words in the place of others"),
    ("src/node/api/error.rs", "!text.contains(&part)", "says each thing once"),
    ("src/node/api/kubeconfig.rs", "!text.is_empty()", "a field of a kubeconfig"),
    ("src/node/api/kubeconfig/file.rs", "text.rsplit_once(", "serde's words, without the value"),
    ("src/node/api/kubeconfig/file.rs", "text.starts_with(", "serde's words, without the value"),
    ("src/node/doctor/kubelet.rs", "!words.is_empty()", "the words of a command line"),
    ("src/node/enrolment.rs", "if message.is_empty()", "joins words"),
    ("src/node/fsx.rs", "said.contains(", "says each thing once"),
    ("src/node/images.rs", "!said.contains(&words)", "says each thing once"),
];

/// How text is compared.
const COMPARES: [&str; 12] = [
    ".contains(",
    ".eq(",
    ".starts_with(",
    ".ends_with(",
    ".strip_prefix(",
    ".strip_suffix(",
    ".split_once(",
    ".rsplit_once(",
    ".find(",
    ".is_empty()",
    " == ",
    " != ",
];

/// Names of what holds a message.
const MESSAGES: [&str; 11] =
    ["error", "held", "hint", "hints", "message", "object", "reason", "said", "text", "why", "words"];

/// What gives the same text in another type.
const SAME_TEXT: [&str; 8] = [
    ".as_ref()",
    ".as_str()",
    ".as_deref()",
    ".as_bytes()",
    ".clone()",
    ".trim()",
    ".to_string()",
    ".unwrap_or_default()",
];

/// The last name of an expression, without what only changes its type.
fn last_name(expression: &str) -> &str {
    match SAME_TEXT.iter().find_map(|same| expression.strip_suffix(same)) {
        Some(rest) => last_name(rest),
        None => expression.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default(),
    }
}

/// Whether a line compares a message with something, or anything with a sentence.
fn compares_text(line: &str) -> bool {
    COMPARES.iter().flat_map(|operator| line.match_indices(operator)).any(|(at, operator)| {
        let (name, right) = (last_name(&line[..at]), &line[at + operator.len()..]);
        let is_equality = operator.ends_with("= ");
        let literal = right.strip_prefix('"').and_then(|rest| rest.split('"').next());
        let is_code = literal.is_some_and(|literal| !literal.is_empty() && !literal.contains(' '));
        // A separator of a value, which no message is.
        if ["'", "['", "|c: char|", "|first: char|"].iter().any(|character| right.starts_with(character)) {
            return false;
        }
        // A number, a variant, or what holds a Lease.
        let is_value = right.starts_with(|c: char| c.is_ascii_digit()) || right.contains("::") || name == "held";
        let right = right.trim_start_matches("Some(").trim_start_matches(['&', '*']);
        let right = right.split([')', ' ', ',', ';']).next().unwrap_or_default();
        let is_field = right.rsplit_once('.').is_some_and(|(_, field)| field != "held" && MESSAGES.contains(&field));
        MESSAGES.contains(&name) && !(is_equality && (is_code || is_value))
            || is_equality && is_field
            || literal.is_some_and(|literal| literal.trim().contains(' '))
    })
}

/// Whether a line begins to match a message, and the next one with a text that is no code.
fn matches_text(line: &str, next: &str) -> bool {
    let of = line.rsplit_once("match ").and_then(|(_, of)| of.strip_suffix(" {"));
    let literal = next.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next());
    let is_text = literal.is_some_and(|literal| literal.is_empty() || literal.contains(' '));
    of.is_some_and(|of| MESSAGES.contains(&last_name(of))) && is_text
}

#[test]
fn nothing_is_decided_by_the_text_of_a_message() {
    for bad in [
        "if summary.reason.contains(NOT_APPROVED) {",
        "let hint = note.strip_prefix(\"see also \");",
        "failure.message == other.message",
        "failure.message.eq(&other)",
        "matches!(x, y if y.ends_with(\"has been modified\"))",
        "if said.as_ref() == Some(&failure.message) {",
        "if before == failure.message {",
        "problems.retain(|problem| problem.object != CONFIGURATION);",
        "if plan.held.is_empty() {",
        "summary.reason == \"\"",
        "let (_, halt) = rollout.message.split_once(\": \").unwrap_or_default();",
        "summary.hint.as_deref().unwrap_or_default() == known",
    ] {
        assert!(compares_text(bad), "{bad}");
    }
    assert!(
        matches_text("match facts.reason.as_str() {", "    \"\" => 1,") && !matches_text("match a {", "\"\" => 1,")
    );
    for good in [
        "uids.contains(uid)",
        "status.reason == \"NotFound\"",
        "trouble.reason == TroubleReason::Halted",
        "report.said == 0",
        "name.starts_with(\"kube-\")",
        "text.strip_suffix('%')",
        "a == b",
    ] {
        assert!(!compares_text(good), "{good}");
    }
    let (mut wrong, mut used) = (Vec::new(), Vec::new());
    for (path, text) in sources().iter().filter(|(path, _)| !is_test(path)) {
        if READERS.iter().any(|(place, _)| path.starts_with(root().join(place))) {
            continue;
        }
        let lines: Vec<_> = code(text).collect();
        for (index, (number, line)) in lines.iter().enumerate() {
            let next = lines.get(index + 1).map_or("", |(_, next)| next);
            if !compares_text(line) && !matches_text(line, next) {
                continue;
            }
            let is_it = |(file, part, _): &&(&str, &str, &str)| path.ends_with(file) && line.contains(part);
            match LOOKS_AT_TEXT.iter().find(is_it) {
                Some(listed) => used.push(listed),
                None => wrong.push(format!("{}:{number}: {}", path.display(), line.trim())),
            }
        }
    }
    let is_there = |place: &str| root().join(place).exists() || root().join(format!("{place}.rs")).exists();
    wrong.extend(READERS.iter().filter(|(place, _)| !is_there(place)).map(|reader| format!("idle: {reader:?}")));
    wrong
        .extend(LOOKS_AT_TEXT.iter().filter(|listed| !used.contains(listed)).map(|listed| format!("idle: {listed:?}")));
    assert!(
        wrong.is_empty(),
        "decide by an enum; what upstream says in words is read in core::upstream\n{}",
        wrong.join("\n")
    );
}
