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
    if report.changes.is_empty() {
        return "nothing to do\n".to_owned();
    }
    let lines = report.changes.iter().map(|change| {
        let reason = if change.reason.is_empty() { String::new() } else { format!(" ({})", change.reason) };
        format!("{}/{}: {}{reason}\n", change.namespace, change.name, change.action)
    });
    lines.collect()
}
