//! `daemonlet run`: the agent.

use clap::Args;

use crate::cli::ConfigArgument;
use crate::cli::Exit;
use crate::cli::Failure;
use crate::cli::output;
use crate::config::Config;
use crate::log;

/// Run the agent of this node
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// One complete pass from what is there (the API if it answers in time), then exit
    #[arg(long)]
    once: bool,
    /// Print the configuration and where each value came from, then exit
    #[arg(long, conflicts_with = "once")]
    print_config: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, Failure> {
    let config = arguments.config.load()?;
    if arguments.print_config {
        output::data(&config.print())?;
        return Ok(Exit::Success);
    }
    if arguments.once && !config.node_name_explicit {
        let message = "node-name: `run --once` needs it written: every pod's UID contains the node's name";
        return Err(Failure::new(Exit::Usage, message).hint("set node-name in the configuration"));
    }
    log::init(&config.log_level, config.log_target).map_err(|error| {
        let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        Failure::new(Exit::Unreadable, format!("{error}{source}"))
    })?;
    start(config, arguments.once)
}

/// Starts the agent.
fn start(_config: Config, _once: bool) -> Result<Exit, Failure> {
    Ok(Exit::Success)
}
