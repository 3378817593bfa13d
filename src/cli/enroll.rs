//! `daemonlet enroll`: an identity of the node's agent own.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::cli::CommandFailure;
use crate::cli::ConfigArgument;
use crate::cli::Exit;
use crate::cli::duration;
use crate::cli::event_loop;
use crate::cli::output;
use crate::config::Config;
use crate::node::api;
use crate::node::api::words;
use crate::node::enrolment;
use crate::node::enrolment::EnrollWait;
use crate::node::enrolment::EnrolmentError;

/// Where the agent looks for its kubeconfig when none is configured.
const KUBECONFIG: &str = "/etc/daemonlet/kubeconfig";

/// Get a client certificate for this node's agent, and write the kubeconfig that uses it
///
/// Asks the cluster for a client certificate named daemonlet:node:<node-name> and waits until a person
/// approves it (or the coordinator, if it is configured so). The running agent renews it. Exit code: 0 there is
/// one (also: there was one), 1 not approved, refused or not reachable, 3 no usable kubeconfig to ask with, or a file
/// cannot be written.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// The kubeconfig to ask with: the kubelet's, or one with a bootstrap token
    /// [default: the first of boot.kubeconfig that exists]
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// How long to wait for the approval
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    timeout: Duration,
    /// Ask for another certificate though there is a good one
    #[arg(long)]
    force: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CommandFailure> {
    let config = arguments.config.load()?;
    let options = enrolment::EnrollOptions {
        node: config.node_name.clone(),
        sources: arguments.from.clone().map_or_else(|| config.boot_kubeconfig.clone(), |from| vec![from]),
        kubeconfig: config.kubeconfig.clone().unwrap_or_else(|| PathBuf::from(KUBECONFIG)),
        state_dir: config.state_dir.clone(),
        timeout: arguments.timeout,
        force: arguments.force,
    };
    let is_first = !options.kubeconfig.exists();
    let runtime = event_loop()?;
    let seconds = options.timeout.as_secs();
    let waits = |what: EnrollWait<'_>| {
        output::remarks(&output::line(match what {
            EnrollWait::Request(request, awaited) => format!("{}: {}", awaited.words(request), awaited.hint(request)),
            EnrollWait::ApiServer { server, why } => {
                format!("the API server {server} cannot be reached: {why}; trying again, for {seconds} s in all")
            }
        }));
    };
    let enrolled = runtime.block_on(enrolment::enroll(&options, waits)).map_err(failure)?;
    let until = enrolled.certificate.not_after;
    let what = if enrolled.already { "is enrolled already" } else { "is enrolled" };
    let kubeconfig = options.kubeconfig.display();
    output::lines([format!("{} {what}, until {until}; kubeconfig {kubeconfig}", enrolled.certificate.user)])?;
    if enrolled.corrected {
        output::remarks("the kubeconfig named another server or certificate authority, and was written anew\n");
    }
    match (enrolled.already, is_first) {
        (true, _) => {}
        (false, false) => output::remarks("an agent that runs takes the new certificate by itself\n"),
        (false, true) => output::remarks("an agent that runs takes it with: systemctl reload daemonlet\n"),
    }
    Ok(Exit::Success)
}

fn failure(error: EnrolmentError) -> CommandFailure {
    let exit = if error.is_of_files() { Exit::Unreadable } else { Exit::Refused };
    let failure = CommandFailure::new(exit, words(&error));
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Says, for the terminal, why the agent's kubeconfig is of no use yet, and what to do; empty if it can be used or none is
/// configured.
pub(super) fn kubeconfig_note(config: &Config) -> String {
    let Some(path) = &config.kubeconfig else { return String::new() };
    let Err(error) = api::check_kubeconfig(path) else { return String::new() };
    let is_missing = std::fs::symlink_metadata(path).err().is_some_and(|error| error.kind() == io::ErrorKind::NotFound);
    let (message, hint) = match is_missing {
        true => (format!("kubeconfig {} does not exist yet", path.display()), "`daemonlet enroll` makes it"),
        false => (words(&error), "correct it, or name another file: the agent reads it again by itself"),
    };
    output::line(format!("note: {message}")) + &output::line(format!("hint: {hint}"))
}
