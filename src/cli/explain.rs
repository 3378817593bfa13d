//! `daemonlet explain`: why a DaemonSet does or does not run on this node.

use clap::Args;

use crate::cli::CommandFailure;
use crate::cli::ConfigArgument;
use crate::cli::Exit;
use crate::cli::JsonArgument;
use crate::cli::ask;
use crate::cli::output;
use crate::cli::output::Colour;
use crate::core::model::ObjectKey;
use crate::core::replies::ExplainReport;
use crate::core::status::State;
use crate::node::socket::SocketOperation;

/// What to look at on a node that has seen no DaemonSet of a name.
const UNSEEN: &str = "`daemonlet status` lists what this node knows, `daemonlet help sources` says what it reads";

/// Show why a DaemonSet does or does not run on this node
///
/// Exit code: 0 it runs or does not belong here, 1 it, or a newer version of it, is refused, failing, not accepted,
/// held, stale or unknown, or there is no such DaemonSet.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// The DaemonSet
    #[arg(value_name = "NAMESPACE/NAME", value_parser = key)]
    daemon_set: ObjectKey,
    #[command(flatten)]
    json: JsonArgument,
}

pub(super) fn key(text: &str) -> Result<ObjectKey, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(ObjectKey::new(namespace, name))
        }
        _ => Err("expected NAMESPACE/NAME, such as kube-system/kube-proxy".to_owned()),
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CommandFailure> {
    let ObjectKey { namespace, name } = arguments.daemon_set.clone();
    let request = SocketOperation::Explain { namespace, name };
    let answer: ask::Answer<ExplainReport> = ask::ask_with(&arguments.config, &request)?;
    let report = &answer.report;
    let text = if arguments.json.is_wanted() {
        output::json(report)?
    } else {
        human(report, &arguments.daemon_set, UNSEEN, Colour::new(&std::io::stdout()))
    };
    output::data(&text)?;
    let good = report.problems.is_empty() && report.status.as_ref().is_some_and(|status| !status.is_bad());
    Ok(answer.end(if good { Exit::Success } else { Exit::Refused }))
}

/// The report as people read it; `unseen`: the hint if no DaemonSet of this name has been seen.
pub(super) fn human(report: &ExplainReport, key: &ObjectKey, unseen: &str, colour: Colour) -> String {
    let report = &output::printable(report);
    let state = match &report.status {
        Some(status) if status.reason.is_empty() => status.state.as_str().to_owned(),
        Some(status) if status.state == State::LeftAlone => format!("{} ({})", status.state.as_str(), status.reason),
        Some(status) => format!("{}: {}", status.state.as_str(), status.reason),
        None if report.problems.is_empty() => "unknown: no such DaemonSet has been seen".to_owned(),
        None => "unknown: no such DaemonSet could be read".to_owned(),
    };
    let mut text = format!("{key} on {}: {state}\n", report.node);
    if report.status.is_none() && report.problems.is_empty() {
        text.push_str(&output::line(format!("       hint: {unseen}")));
    }
    for term in &report.terms {
        let mark = match term.holds {
            Some(true) => colour.green("yes"),
            Some(false) => colour.red("no "),
            None => "   ".to_owned(),
        };
        text.push_str(format!("  {mark}  {}: {}", term.subject, term.text).trim_end());
        text.push('\n');
    }
    if let Some(failed) = report.status.as_ref().and_then(|status| status.failed.as_ref()) {
        let why = format!("{}: {}", failed.cause.as_str(), failed.message);
        let since = if failed.since.is_empty() { String::new() } else { format!(" {}", failed.since) };
        text.push_str(&format!("  {}  revision {} failed{since}: {why}\n", colour.red("no "), failed.revision));
    }
    if let Some(status) = &report.status {
        text.extend(status.notes.iter().map(|note| format!("       note: {note}\n")));
        text.extend(status.hints.iter().map(|hint| format!("       hint: {hint}\n")));
    }
    for problem in &report.problems {
        text.push_str(&format!("  {}  {}: {}\n", colour.red("no "), problem.object, problem.reason));
        text.extend(problem.hint.iter().map(|hint| format!("       hint: {hint}\n")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::replies::Term;
    use crate::core::status::Problem;

    #[test]
    fn keys_have_two_parts() {
        assert_eq!(key("a/b"), Ok(ObjectKey::new("a", "b")));
        for text in ["a", "/b", "a/", "a/b/c", ""] {
            assert_eq!(key(text).unwrap_err(), "expected NAMESPACE/NAME, such as kube-system/kube-proxy", "{text}");
        }
    }

    #[test]
    fn each_term_says_yes_or_no() {
        let term = |subject: &str, holds, text: &str| Term { subject: subject.into(), holds, text: text.into() };
        let report = ExplainReport {
            schema_version: 1,
            node: "n1".into(),
            agent_running: true,
            terms: vec![
                term("source", None, "API"),
                term("node selector", Some(true), "a = b"),
                term("taint", Some(false), "x=y:NoSchedule: no toleration matches"),
            ],
            status: None,
            problems: vec![Problem {
                object: "f.yaml:3".into(),
                reason: "not an object".into(),
                hint: Some("make it one".into()),
            }],
        };
        let key = ObjectKey::new("kube-system", "cni");
        output::assert_unforgeable(&report, |report| human(report, &key, UNSEEN, Colour::none()));
        assert_eq!(
            human(&report, &key, UNSEEN, Colour::none()),
            "kube-system/cni on n1: unknown: no such DaemonSet could be read\n       source: API\n  \
             yes  node selector: a = b\n  no   taint: x=y:NoSchedule: no toleration matches\n  \
             no   f.yaml:3: not an object\n       hint: make it one\n"
        );
    }
}
