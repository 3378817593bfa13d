//! `daemonlet retry`: a failed revision gets another try.

use clap::Args;

use crate::cli::CommandFailure;
use crate::cli::ConfigArgument;
use crate::cli::Exit;
use crate::cli::ask;
use crate::cli::explain;
use crate::cli::output;
use crate::core::model::ObjectKey;
use crate::core::replies::RetryReport;
use crate::node::socket::Request;

/// Try a failed revision again on this node, now; also without an API server
///
/// The agent forgets that the revision failed here or was set aside, and any wait before the next try. Needs root, and the
/// agent. Exit code: 0 there was something to retry, 1 there was not.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// The DaemonSet
    #[arg(value_name = "NAMESPACE/NAME", value_parser = explain::key)]
    daemon_set: ObjectKey,
    /// Print JSON (schemaVersion 1)
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CommandFailure> {
    let config = arguments.config.load()?;
    let ObjectKey { namespace, name } = arguments.daemon_set.clone();
    let report: RetryReport = ask::order(&config, &Request::Retry { namespace, name })?;
    output::data(&if arguments.json { output::json(&report)? } else { human(&report, &arguments.daemon_set) })?;
    Ok(if report.forgotten.is_some() || report.backoff { Exit::Success } else { Exit::Refused })
}

fn human(report: &RetryReport, key: &ObjectKey) -> String {
    let report = &output::printable(report);
    let mut text = match (&report.forgotten, report.backoff) {
        (Some(revision), _) => format!("{key}: revision {revision} is tried again on {}\n", report.node),
        (None, true) => format!("{key}: back-off on {} is cleared: it is tried again now\n", report.node),
        (None, false) => {
            return format!(
                "{key}: nothing to retry on {}: no revision failed, none is set aside and nothing waits\n",
                report.node
            );
        }
    };
    if report.changes.is_empty() {
        text.push_str("  the running pod already has this revision; its progress deadline starts again\n");
    }
    for change in &report.changes {
        let reason = if change.reason.is_empty() { String::new() } else { format!(" ({})", change.reason) };
        text.push_str(&format!("  next: {}{reason}\n", change.action));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::replies::PlannedChange;

    #[test]
    fn it_says_what_happens_next() {
        let mut report = RetryReport {
            schema_version: 1,
            node: "n1".into(),
            forgotten: Some("5d5".into()),
            backoff: false,
            changes: vec![PlannedChange {
                namespace: "a".into(),
                name: "b".into(),
                action: "remove manifest a-b-x.yaml".into(),
                reason: "it is replaced by revision 5d5".into(),
            }],
        };
        let key = ObjectKey::new("a", "b");
        assert_eq!(
            human(&report, &key),
            "a/b: revision 5d5 is tried again on n1\n  \
             next: remove manifest a-b-x.yaml (it is replaced by revision 5d5)\n"
        );
        report.changes.clear();
        assert!(human(&report, &key).ends_with("its progress deadline starts again\n"));
        report.forgotten = None;
        assert_eq!(
            human(&report, &key),
            "a/b: nothing to retry on n1: no revision failed, none is set aside and nothing waits\n"
        );
    }
}
