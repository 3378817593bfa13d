//! Nothing is decided by the text of a message.

use super::*;

/// Where nothing may be decided by the text of a message.
const DECIDES: [&str; 12] = [
    "src/cli/kubectl/steer.rs",
    "src/cluster",
    "src/cluster.rs",
    "src/config/resolve.rs",
    "src/core/cluster",
    "src/core/plan",
    "src/core/plan.rs",
    "src/core/sources",
    "src/core/sources.rs",
    "src/node/agent",
    "src/node/enrolment",
    "src/node/enrolment.rs",
];

/// Lines that look at a text and decide nothing by a message: the file, a part of the line, and what it is.
const LOOKS_AT_TEXT: [(&str, &str, &str); 20] = [
    ("src/cluster/watch.rs", "words != reported", "says each thing once"),
    ("src/config/resolve.rs", "!text.is_empty()", "a field of the kubelet's configuration"),
    ("src/core/cluster/conditions.rs", "!message.is_empty()", "the API server drops an empty field"),
    ("src/core/cluster/history.rs", "text.contains(character)", "JSON as upstream writes it"),
    ("src/core/cluster/overview/reason.rs", "report.message.is_empty()", "joins words"),
    ("src/core/cluster/released.rs", "!text.is_empty()", "a name in our own condition, read back"),
    ("src/core/cluster/retries.rs", "known.why != why", "an enum"),
    ("src/core/cluster/snapshot/objects.rs", "(!text.is_empty())", "a name"),
    ("src/core/plan.rs", "self.plan.summary.reason.is_empty()", "joins words"),
    ("src/core/plan.rs", "!reason.is_empty()", "joins words"),
    ("src/core/plan/ending.rs", "self.plan.summary.reason.is_empty()", "joins words"),
    ("src/node/agent/answers.rs", "if reason.is_empty()", "words of an answer"),
    ("src/node/agent/answers.rs", "!reason.is_empty()", "words of an answer"),
    ("src/node/agent/release.rs", "daemon.summary.reason.is_empty()", "joins words"),
    ("src/node/agent/teardown.rs", "!reason.is_empty()", "words of a report"),
    ("src/node/agent/report.rs", "!text.is_empty()", "a selector"),
    ("src/node/agent/report/changes.rs", "!hint.is_empty()", "joins words"),
    ("src/node/agent/concerns/claims/status.rs", "!report.message.is_empty()", "words in the place of others"),
    ("src/node/agent/concerns/claims/status.rs", "if message.is_empty()", "joins words"),
    ("src/node/enrolment.rs", "if message.is_empty()", "joins words"),
];

/// How text is compared.
const COMPARES: [&str; 8] =
    [".contains(", ".starts_with(", ".ends_with(", ".strip_prefix(", ".strip_suffix(", ".is_empty()", " == ", " != "];

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

/// Whether a line begins to match a message, and the next one with a text.
fn matches_text(line: &str, next: &str) -> bool {
    let of = line.rsplit_once("match ").and_then(|(_, of)| of.strip_suffix(" {"));
    of.is_some_and(|of| MESSAGES.contains(&last_name(of))) && next.trim_start().starts_with('"')
}

#[test]
fn nothing_is_decided_by_the_text_of_a_message() {
    for bad in [
        "if summary.reason.contains(NOT_APPROVED) {",
        "let hint = note.strip_prefix(\"see also \");",
        "failure.message == other.message",
        "matches!(x, y if y.ends_with(\"has been modified\"))",
        "if said.as_ref() == Some(&failure.message) {",
        "if before == failure.message {",
        "problems.retain(|problem| problem.object != CONFIGURATION);",
        "if plan.held.is_empty() {",
        "summary.reason == \"\"",
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
        "a == b",
    ] {
        assert!(!compares_text(good), "{good}");
    }
    let (mut wrong, mut used) = (Vec::new(), Vec::new());
    for (path, text) in sources().iter().filter(|(path, _)| !is_test(path)) {
        if !DECIDES.iter().any(|place| path.starts_with(root().join(place))) {
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
    wrong
        .extend(LOOKS_AT_TEXT.iter().filter(|listed| !used.contains(listed)).map(|listed| format!("idle: {listed:?}")));
    assert!(
        wrong.is_empty(),
        "decide by an enum; what upstream says in words is read in core::upstream\n{}",
        wrong.join("\n")
    );
}
