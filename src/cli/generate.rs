//! `daemonlet generate`: what a cluster administrator applies, on standard output.

use clap::Args;
use clap::Subcommand;

use crate::cli::Exit;
use crate::cli::Failure;
use crate::cli::output;
use crate::core::cluster::node_daemons;

/// Print objects for `kubectl apply -f -`
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The resource NodeDaemons: with it rollouts go by the coordinator's approval
    Crd,
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, Failure> {
    match &arguments.what {
        What::Crd => output::data(node_daemons::CRD)?,
    }
    Ok(Exit::Success)
}
