//! `daemonlet boot-guard`: the boot guard's process.

use std::io;

use clap::Args;

use crate::cli::CommandFailure;
use crate::cli::ConfigArgument;
use crate::cli::Exit;
use crate::cli::event_loop;
use crate::cli::start_log;
use crate::guard;
use crate::guard::GuardError;
use crate::guard::TableError;
use crate::log::StateOutput;
use crate::node::api::words;
use crate::node::notify::Notifier;

/// Refuse connections in a silent API server's stead while this node boots
///
/// A kubelet mounts no volume before one request to the API server has failed. Where the server's
/// address neither answers nor refuses, this program refuses for it: one nftables rule (table
/// inet daemonlet-boot-guard) for connections of this node to that address and port. The rule goes when the
/// address answers or refuses by itself, after boot-guard-max, and with this program however it
/// ends. It acts once in a boot, before the kubelet runs; daemonlet-boot-guard.service starts it.
///
/// Exit code: 0 its rule is gone again, or there was nothing to do, 1 the kernel has no nftables or refuses the
/// change, 3 the configuration is invalid.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// Remove what a killed boot guard left, then exit
    #[arg(long)]
    clean: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CommandFailure> {
    if arguments.clean {
        return match guard::clean() {
            Ok(()) => Ok(Exit::Success),
            Err(error) => Err(CommandFailure { exit: Exit::Refused, errors: vec![(words(&error), hint(&error))] }),
        };
    }
    let config = arguments.config.load()?;
    start_log(&config, StateOutput::InLog)?;
    let runtime = event_loop()?;
    let result = runtime.block_on(guard::run(&config, &Notifier::from_environment()));
    // A name server that does not answer must not hold up the end.
    runtime.shutdown_background();
    result?;
    Ok(Exit::Success)
}

impl From<GuardError> for CommandFailure {
    fn from(error: GuardError) -> Self {
        let hint = match &error {
            GuardError::Table(error) => hint(error),
            GuardError::System { .. } => None,
        };
        Self { exit: Exit::Refused, errors: vec![(words(&error), hint)] }
    }
}

fn hint(error: &TableError) -> Option<String> {
    match error {
        TableError::Set(why) | TableError::Remove(why) if why.kind() == io::ErrorKind::PermissionDenied => {
            Some("run this as root, with CAP_NET_ADMIN, as the unit daemonlet-boot-guard does".to_owned())
        }
        _ => None,
    }
}
