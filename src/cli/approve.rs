//! `daemonlet approve`: a revision that waits for a word on this node starts.

use clap::Args;

use crate::cli::CommandFailure;
use crate::cli::ConfigArgument;
use crate::cli::Exit;
use crate::cli::ask;
use crate::cli::explain;
use crate::cli::output;
use crate::core::model::ObjectKey;
use crate::core::replies::ApproveReport;
use crate::node::socket::Request;

/// Let a revision start on this node that waits for this command (daemonlet.dev/update: manual)
///
/// It replaces what runs once its images are here. A rollout with a coordinator has to have reached this node: the
/// agent claims the coordinator's approval. Needs root, and the agent. Exit code: 0 approved, 1 nothing waits for it.
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
    let report: ApproveReport = ask::order(&config, &Request::Approve { namespace, name })?;
    output::data(&if arguments.json { output::json(&report)? } else { human(&report, &arguments.daemon_set) })?;
    Ok(Exit::Success)
}

fn human(report: &ApproveReport, key: &ObjectKey) -> String {
    let report = &output::printable(report);
    let mut text = format!("{key}: revision {} is approved on {}\n", report.revision, report.node);
    for change in &report.changes {
        let reason = if change.reason.is_empty() { String::new() } else { format!(" ({})", change.reason) };
        text.push_str(&format!("  next: {}{reason}\n", change.action));
    }
    if report.changes.is_empty() {
        text.push_str(&format!("  {}\n", report.reason));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::replies::PlannedChange;

    #[test]
    fn it_says_what_happens_next() {
        let mut report = ApproveReport {
            schema_version: 1,
            node: "n1".into(),
            revision: "5d5".into(),
            changes: Vec::new(),
            reason: "revision 5d5 waits: its approval is being claimed".into(),
        };
        let key = ObjectKey::new("a", "b");
        assert_eq!(
            human(&report, &key),
            "a/b: revision 5d5 is approved on n1\n  revision 5d5 waits: its approval is being claimed\n"
        );
        report.changes.push(PlannedChange {
            namespace: "a".into(),
            name: "b".into(),
            action: "get its images".into(),
            reason: String::new(),
        });
        assert_eq!(human(&report, &key), "a/b: revision 5d5 is approved on n1\n  next: get its images\n");
    }
}
