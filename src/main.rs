//! The binary: parses arguments, runs one command, chooses the exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    daemonlet::cli::main(std::env::args_os()).into()
}
