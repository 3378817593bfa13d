//! `daemonlet release`: what this node's configuration no longer selects ends.

use clap::ArgGroup;
use clap::Args;

use crate::cli::CommandFailure;
use crate::cli::ConfigArgument;
use crate::cli::Exit;
use crate::cli::JsonArgument;
use crate::cli::ask;
use crate::cli::explain;
use crate::cli::output;
use crate::core::model::ObjectKey;
use crate::core::replies::ReleaseReport;
use crate::core::replies::ReleasedDaemon;
use crate::node::socket::SocketOperation;

/// End a daemon that is held on this node: its configuration no longer selects it
///
/// Also ends what stays because its folder or file cannot be looked at. If the configuration selects it
/// again, it starts again. Needs root. Without a running agent the daemon ends when the agent starts.
/// Exit code: 0 released, 1 something is not.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true)))]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// The DaemonSets
    #[arg(value_name = "NAMESPACE/NAME", value_parser = explain::key, group = "what")]
    daemon_sets: Vec<ObjectKey>,
    /// Release everything that is held
    #[arg(long, group = "what")]
    all: bool,
    #[command(flatten)]
    json: JsonArgument,
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CommandFailure> {
    let config = arguments.config.load()?;
    let request = SocketOperation::Release { daemons: arguments.daemon_sets.clone() };
    let report: ReleaseReport = match ask::try_agent(&config, &request)? {
        Some(report) => report,
        None => ask::release_offline(&config, &arguments.daemon_sets)?,
    };
    output::data(&if arguments.json.is_wanted() { output::json(&report)? } else { human(&report) })?;
    Ok(if report.refused.is_empty() { Exit::Success } else { Exit::Refused })
}

fn human(report: &ReleaseReport) -> String {
    let report = &output::printable(report);
    let line = |daemon: &ReleasedDaemon, what: &str| {
        format!("{}/{} on {}: {what}: {}\n", daemon.namespace, daemon.name, report.node, daemon.what)
    };
    let mut text: String = report.released.iter().map(|daemon| line(daemon, "released")).collect();
    text.extend(report.refused.iter().map(|daemon| line(daemon, "not released")));
    if text.is_empty() {
        text = format!("nothing is held on {}\n", report.node);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_what_ends_and_why_the_rest_does_not() {
        let daemon = |name: &str, what: &str| ReleasedDaemon {
            namespace: "a".to_owned(),
            name: name.to_owned(),
            what: what.to_owned(),
        };
        let mut report = ReleaseReport {
            schema_version: 1,
            node: "n1".to_owned(),
            agent_running: true,
            released: vec![daemon("b", "remove manifest a-b-x.yaml")],
            refused: vec![daemon("c", "it is not held, it is running")],
        };
        assert_eq!(
            human(&report),
            "a/b on n1: released: remove manifest a-b-x.yaml\na/c on n1: not released: it is not held, it is running\n"
        );
        output::assert_unforgeable(&report, human);
        (report.released, report.refused) = (Vec::new(), Vec::new());
        assert_eq!(human(&report), "nothing is held on n1\n");
    }
}
