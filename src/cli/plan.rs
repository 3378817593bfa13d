//! `daemonlet plan`: what one pass would change, and why.

use clap::Args;

use crate::cli::ConfigArgument;
use crate::cli::Exit;
use crate::cli::Failure;
use crate::cli::ask;
use crate::cli::output;
use crate::core::replies::PlanReport;
use crate::node::socket::Request;

/// Show what one pass would change on this node; changes nothing
///
/// Exit code: 0 nothing to do, 4 changes pending.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// Print JSON (schemaVersion 1)
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, Failure> {
    let config = arguments.config.load()?;
    let report: PlanReport = ask::ask(&config, &Request::Plan)?;
    output::data(&if arguments.json { output::json(&report)? } else { human(&report) })?;
    Ok(if report.changes.is_empty() { Exit::Success } else { Exit::Pending })
}

fn human(report: &PlanReport) -> String {
    let mut text = String::new();
    if report.changes.is_empty() {
        text.push_str("nothing to do\n");
    }
    for change in &report.changes {
        let reason = if change.reason.is_empty() { String::new() } else { format!(" ({})", change.reason) };
        text.push_str(&format!("{}/{}: {}{reason}\n", change.namespace, change.name, change.action));
    }
    for held in &report.held {
        let reason = if held.reason.is_empty() { String::new() } else { format!(": {}", held.reason) };
        text.push_str(&format!("{}/{}: nothing, it is {}{reason}\n", held.namespace, held.name, held.state.as_str()));
    }
    text
}

#[cfg(test)]
mod tests {
    use crate::core::replies::Change;
    use crate::core::replies::Held;
    use crate::core::status::State;

    use super::*;

    #[test]
    fn what_is_held_is_said_whether_there_is_something_to_do_or_not() {
        let held = |name: &str, state, reason: &str| Held {
            namespace: "a".to_owned(),
            name: name.to_owned(),
            state,
            reason: reason.to_owned(),
        };
        let mut report = PlanReport {
            schema_version: 1,
            node: "n".to_owned(),
            agent_running: true,
            changes: Vec::new(),
            held: vec![held("b", State::Refused, "spec: no"), held("c", State::Waiting, "waits for Secret a/s")],
        };
        let lines = "a/b: nothing, it is refused: spec: no\na/c: nothing, it is waiting: waits for Secret a/s\n";
        assert_eq!(human(&report), format!("nothing to do\n{lines}"));
        let [namespace, name, action] = ["a", "d", "write manifest x"].map(str::to_owned);
        report.changes.push(Change { namespace, name, action, reason: String::new() });
        assert_eq!(human(&report), format!("a/d: write manifest x\n{lines}"));
    }
}
