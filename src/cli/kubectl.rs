//! `kubectl daemonlet`: the whole cluster, with the rights and the kubeconfig of whoever asks.
//!
//! Owns the plugin's command line: the same binary under the name `kubectl-daemonlet`. Needs no agent; reads
//! DaemonSets, Nodes, NodeDaemons, Leases and the mirror pods of silent agents' nodes, changes annotations where it is told to, and tries policies.

mod cluster;
mod complete;
mod diff;
mod doctor;
mod explain;
mod overview;
mod steer;
mod user;

use std::ffi::OsStr;
use std::ffi::OsString;
use std::path::Path;
use std::path::PathBuf;

use clap::Parser;
use clap::Subcommand;
use clap::ValueEnum;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::cli::event_loop;
use crate::cli::explain::key;
use crate::cli::output;
use crate::cli::parse;
use crate::cli::plugin;
use crate::core::model::ObjectKey;

/// The name under which the binary is this plugin.
const NAME: &str = "kubectl-daemonlet";

/// The name under which kubectl asks for completions.
const COMPLETION: &str = "kubectl_complete-daemonlet";

/// Show what daemonlet runs in the cluster: each DaemonSet's rollout, and the nodes to look at
///
/// Exit code: 0 all is well, 1 something is refused, failing, missing or unknown, a rollout is halted, no coordinator
/// holds the Lease, or the cluster does not answer, 2 bad usage, 3 no usable kubeconfig.
#[derive(Debug, Parser)]
#[command(name = "kubectl daemonlet", bin_name = "kubectl daemonlet", version, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<KubectlCommand>,
    /// The kubeconfig [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: the current one]
    #[arg(long, global = true)]
    context: Option<String>,
    /// DaemonSets of this namespace only
    #[arg(short, long, global = true)]
    namespace: Option<String>,
    /// The form of the output
    #[arg(short, long, value_enum, global = true)]
    output: Option<KubectlOutputFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KubectlOutputFormat {
    /// JSON (schemaVersion 1)
    Json,
}

#[derive(Debug, Subcommand)]
enum KubectlCommand {
    /// Show what runs on a node and why, or why not
    Explain {
        /// The node's name
        node: String,
        /// One DaemonSet
        #[arg(value_name = "NAMESPACE/NAME", value_parser = key)]
        daemon_set: Option<ObjectKey>,
    },
    /// Show what overlays make differ between two nodes
    Diff {
        #[arg(value_name = "NODE")]
        node: String,
        #[arg(value_name = "NODE")]
        other: String,
        /// One DaemonSet
        #[arg(value_name = "NAMESPACE/NAME", value_parser = key)]
        daemon_set: Option<ObjectKey>,
    },
    /// Prove as a cluster admin that each admission policy holds agents and coordinators
    ///
    /// Each is tried by a dry run of a write that it has to refuse, in the name of an agent and of whoever may approve
    /// certificates as a coordinator: it takes the right to impersonate users and groups. To try an approval, it makes a
    /// CertificateSigningRequest that nobody signs, and deletes it.
    Doctor,
    /// Hold the rollout of a DaemonSet: no more nodes follow
    Pause {
        #[arg(value_name = "NAMESPACE/NAME", value_parser = key)]
        daemon_set: ObjectKey,
    },
    /// Let a paused rollout go on
    Resume {
        #[arg(value_name = "NAMESPACE/NAME", value_parser = key)]
        daemon_set: ObjectKey,
    },
    /// End the hold of the step or canary phase that a rollout is in
    Promote {
        #[arg(value_name = "NAMESPACE/NAME", value_parser = key)]
        daemon_set: ObjectKey,
    },
    /// Take a rollout back to the released revision
    Abort {
        #[arg(value_name = "NAMESPACE/NAME", value_parser = key)]
        daemon_set: ObjectKey,
    },
    /// End the halt of a rollout that failed, or its abort
    Retry {
        #[arg(value_name = "NAMESPACE/NAME", value_parser = key)]
        daemon_set: ObjectKey,
    },
}

/// Its command line, without examples.
pub(super) fn command() -> clap::Command {
    <Arguments as clap::CommandFactory>::command()
}

/// Whether the program was called as the plugin.
pub(super) fn is_called(program: &OsStr) -> bool {
    Path::new(program).file_name().is_some_and(|name| name == NAME || name == COMPLETION)
}

/// Runs the plugin's command line.
pub(super) fn main(arguments: Vec<OsString>) -> Exit {
    if let Some((program, words)) = arguments.split_first()
        && Path::new(program).file_name().is_some_and(|name| name == COMPLETION)
    {
        let printed = output::as_it_is(&complete::candidates(words));
        return printed.map_or_else(|failure| failure.exit, |_| Exit::Success);
    }
    let arguments: Arguments = match parse(plugin(), arguments) {
        Ok(arguments) => arguments,
        Err(exit) => return exit,
    };
    run(&arguments).unwrap_or_else(|failure| {
        output::errors(&failure.errors);
        failure.exit
    })
}

fn run(arguments: &Arguments) -> Result<Exit, CommandFailure> {
    let runtime = event_loop()?;
    let kubeconfig = user::kubeconfig(arguments.kubeconfig.as_deref(), arguments.context.as_deref())?;
    let json = arguments.output == Some(KubectlOutputFormat::Json);
    let _entered = runtime.enter();
    let client = cluster::client(kubeconfig)?;
    let read = || runtime.block_on(cluster::read(&client));
    let namespace = arguments.namespace.as_deref();
    let steered = match &arguments.command {
        None => return overview::print(&read()?.overview(namespace), json),
        Some(KubectlCommand::Explain { node, daemon_set: Some(key) }) => {
            return explain::one(&read()?, node, key, json);
        }
        Some(KubectlCommand::Explain { node, daemon_set: None }) => {
            return explain::all(&read()?, node, namespace, json);
        }
        Some(KubectlCommand::Doctor) => return runtime.block_on(doctor::print(&client, json)),
        Some(KubectlCommand::Diff { node, other, daemon_set }) => {
            return runtime.block_on(diff::print(&client, [node, other], (daemon_set.as_ref(), namespace), json));
        }
        Some(KubectlCommand::Pause { daemon_set }) => runtime.block_on(steer::pause(&client, daemon_set, true)),
        Some(KubectlCommand::Resume { daemon_set }) => runtime.block_on(steer::pause(&client, daemon_set, false)),
        Some(KubectlCommand::Promote { daemon_set }) => runtime.block_on(steer::promote(&client, daemon_set)),
        Some(KubectlCommand::Abort { daemon_set }) => runtime.block_on(steer::abort(&client, daemon_set)),
        Some(KubectlCommand::Retry { daemon_set }) => runtime.block_on(steer::retry(&client, daemon_set)),
    };
    output::lines(steered?)?;
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binarys_name_makes_it_a_plugin() {
        for (program, plugin) in
            [("kubectl-daemonlet", true), ("/usr/local/bin/kubectl-daemonlet", true), ("daemonlet", false), ("", false)]
        {
            assert_eq!(is_called(OsStr::new(program)), plugin, "{program}");
        }
    }
}
