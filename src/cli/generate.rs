//! `daemonlet generate`: what an administrator applies or installs, on standard output.

mod rbac;
mod unit_dropin;

use clap::Args;
use clap::Subcommand;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::cli::output;
use crate::core::cluster::node_daemons;

/// Print objects for `kubectl apply -f -`, or what goes with the units
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    what: GenerateCommand,
}

#[derive(Debug, Subcommand)]
enum GenerateCommand {
    /// The resource NodeDaemons: with it rollouts go by the coordinator's approval
    Crd,
    /// A drop-in for the unit: with it the agent may write to the folders that its configuration names
    UnitDropin(unit_dropin::Arguments),
    Rbac(rbac::Arguments),
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CommandFailure> {
    match &arguments.what {
        GenerateCommand::Crd => output::data(node_daemons::CRD)?,
        GenerateCommand::UnitDropin(arguments) => output::data(&unit_dropin::text(arguments)?)?,
        GenerateCommand::Rbac(arguments) => return rbac::run(arguments),
    }
    Ok(Exit::Success)
}
