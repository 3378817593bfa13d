//! `daemonlet restart`: a new instance in a running one's place.

use clap::Args;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::cli::order::OrderArguments;
use crate::cli::output;
use crate::core::model::ObjectKey;
use crate::core::replies::RestartReport;
use crate::node::socket::SocketOperation;

/// Replace a daemon's pod on this node by a new one of the same revision; also without an API server
///
/// It does what `kubectl delete pod` does to a pod of a DaemonSet: the old pod ends with its grace
/// period, then a new one starts under a new name. Needs root, and the agent. Exit code: 0 it is
/// restarted, 1 it is not, or not yet, or no agent runs.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    order: OrderArguments,
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CommandFailure> {
    let report: RestartReport =
        arguments.order.carry_out(|namespace, name| SocketOperation::Restart { namespace, name }, human)?;
    Ok(if report.new.is_some() && report.unsure.is_none() { Exit::Success } else { Exit::Refused })
}

fn human(report: &RestartReport, key: &ObjectKey) -> String {
    let report = &output::printable(report);
    let old = report.old.join(", ");
    match &report.new {
        Some(new) if let Some(why) = &report.unsure => {
            format!("{key} on {}: {old} ends; {new} starts once {old} is confirmed gone: {why}\n", report.node)
        }
        Some(new) => format!("{key} on {}: {old} ends, then {new} starts\n", report.node),
        None if report.old.is_empty() => {
            format!("{key} on {}: the restart waits, the old pod runs on: {}\n", report.node, report.reason)
        }
        None => format!("{key} on {}: {old} ends, and no new one starts yet: {}\n", report.node, report.reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_the_old_and_the_new_pod_or_says_why_not() {
        let report = |old: &[&str], new: Option<&str>| RestartReport {
            schema_version: 1,
            node: "n1".into(),
            old: old.iter().map(|&pod| pod.into()).collect(),
            new: new.map(Into::into),
            reason: "why".into(),
            unsure: None,
        };
        let key = ObjectKey::new("a", "b");
        assert_eq!(human(&report(&["b-1"], Some("b-2")), &key), "a/b on n1: b-1 ends, then b-2 starts\n");
        let unsure = RestartReport { unsure: Some("who knows".into()), ..report(&["b-1"], Some("b-2")) };
        let expected = "a/b on n1: b-1 ends; b-2 starts once b-1 is confirmed gone: who knows\n";
        assert_eq!(human(&unsure, &key), expected);
        assert_eq!(human(&report(&[], None), &key), "a/b on n1: the restart waits, the old pod runs on: why\n");
        assert_eq!(human(&report(&["b-1"], None), &key), "a/b on n1: b-1 ends, and no new one starts yet: why\n");
    }
}
