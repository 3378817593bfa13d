//! `daemonlet completion`: the script with which a shell completes this program's command line.

use clap::Args;
use clap_complete::Shell;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::cli::output;

/// Print the completions of a shell; the packages install those of bash, zsh and fish
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CommandFailure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut super::command(), "daemonlet", &mut script);
    output::as_it_is(&String::from_utf8_lossy(&script)).map(|_| Exit::Success)
}
