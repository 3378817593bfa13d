//! `daemonlet retry`: a failed revision gets another try.

use clap::Args;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::cli::order;
use crate::cli::order::OrderArguments;
use crate::cli::output;
use crate::core::model::ObjectKey;
use crate::core::replies::RetryReport;
use crate::node::socket::SocketOperation;

/// Try a failed revision again on this node, now; also without an API server
///
/// The agent forgets that the revision failed here or was set aside, and any wait before the next try. Needs root, and the
/// agent. Exit code: 0 there was something to retry, 1 there was not, or no agent runs.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    order: OrderArguments,
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CommandFailure> {
    let report: RetryReport =
        arguments.order.carry_out(|namespace, name| SocketOperation::Retry { namespace, name }, human)?;
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
    text.push_str(&order::next_changes(&report.changes));
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
