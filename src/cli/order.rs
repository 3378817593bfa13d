//! What `restart`, `retry` and `approve` share: one DaemonSet of this node, and an agent that has to be there.

use clap::Args;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cli::CommandFailure;
use crate::cli::ConfigArgument;
use crate::cli::JsonArgument;
use crate::cli::ask;
use crate::cli::explain;
use crate::cli::output;
use crate::core::model::ObjectKey;
use crate::core::replies::ExplainReport;
use crate::core::replies::PlannedChange;
use crate::node::socket::SocketOperation;

/// The arguments of such a command.
#[derive(Debug, Args)]
pub(super) struct OrderArguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// The DaemonSet
    #[arg(value_name = "NAMESPACE/NAME", value_parser = explain::key)]
    daemon_set: ObjectKey,
    #[command(flatten)]
    json: JsonArgument,
}

impl OrderArguments {
    /// The revision that the agent shows as waiting for `daemonlet approve`.
    pub(super) fn awaits_approve(&self) -> Result<Option<String>, CommandFailure> {
        let ObjectKey { namespace, name } = self.daemon_set.clone();
        let report: ExplainReport = ask::running(&self.config.load()?, &SocketOperation::Explain { namespace, name })?;
        Ok(report.status.and_then(|status| status.awaits_approve))
    }

    /// Has the agent do it, and prints its report.
    pub(super) fn carry_out<R: DeserializeOwned + Serialize>(
        &self,
        request: impl Fn(String, String) -> SocketOperation,
        human: impl Fn(&R, &ObjectKey) -> String,
    ) -> Result<R, CommandFailure> {
        let config = self.config.load()?;
        let ObjectKey { namespace, name } = self.daemon_set.clone();
        let report = ask::running(&config, &request(namespace, name))?;
        output::data(&if self.json.is_wanted() { output::json(&report)? } else { human(&report, &self.daemon_set) })?;
        Ok(report)
    }
}

/// A line for each change that the next pass makes.
pub(super) fn next_changes(changes: &[PlannedChange]) -> String {
    let line = |change: &PlannedChange| match change.reason.is_empty() {
        true => format!("  next: {}\n", change.action),
        false => format!("  next: {} ({})\n", change.action, change.reason),
    };
    changes.iter().map(line).collect()
}
