//! `daemonlet approve`: starts a revision that waits for this command on this node.

use clap::Args;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::cli::order;
use crate::cli::order::OrderArguments;
use crate::cli::output;
use crate::core::model::ObjectKey;
use crate::core::replies::ApproveReport;
use crate::node::socket::SocketOperation;

/// Let a revision start on this node that waits for this command (daemonlet.dev/update: manual)
///
/// It replaces what runs once its images are here. A rollout with a coordinator has to have reached this node: the
/// agent claims the coordinator's approval. Needs root, and the agent. Exit code: 0 approved, 1 nothing waits for it,
/// another revision does, or no agent runs.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    order: OrderArguments,
    /// Approve only this revision, as `daemonlet status` shows it; otherwise the one that waits now
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CommandFailure> {
    // Where one is known to wait, another one that comes meanwhile is not approved with it.
    let revision = match &arguments.revision {
        Some(revision) => Some(revision.clone()),
        None => arguments.order.awaits_approve()?,
    };
    let request = |namespace, name| SocketOperation::Approve { namespace, name, revision: revision.clone() };
    arguments.order.carry_out(request, human)?;
    Ok(Exit::Success)
}

fn human(report: &ApproveReport, key: &ObjectKey) -> String {
    let report = &output::printable(report);
    let mut text = format!("{key}: revision {} is approved on {}\n", report.revision, report.node);
    text.push_str(&order::next_changes(&report.changes));
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
