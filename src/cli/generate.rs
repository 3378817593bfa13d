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
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The resource NodeDaemons: with it rollouts go by the coordinator's approval
    Crd,
    /// A drop-in for the unit: with it the agent may write to the folders that its configuration names
    UnitDropin(unit_dropin::Arguments),
    Rbac(rbac::Arguments),
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CommandFailure> {
    match &arguments.what {
        What::Crd => output::data(node_daemons::CRD)?,
        What::UnitDropin(arguments) => output::data(&unit_dropin::text(arguments)?)?,
        What::Rbac(arguments) => return rbac::run(arguments),
    }
    Ok(Exit::Success)
}
