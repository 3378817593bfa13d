//! `kubectl daemonlet`: the whole cluster, with the rights and the kubeconfig of the user.
//!
//! Owns the plugin's command line: the same binary under the name `kubectl-daemonlet`. Needs no agent; reads
//! DaemonSets, Nodes, NodeDaemons, Leases and the mirror pods of silent agents' nodes, changes annotations on request, and tries policies.

mod cluster;
mod complete;
mod diff;
mod doctor;
mod explain;
mod named;
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
use crate::cli::output;
use crate::cli::parse;
use crate::cli::plugin;
use crate::core::dns;

use named::OneDaemonSet;
use named::Steered;

/// The name under which the binary is this plugin.
const NAME: &str = "kubectl-daemonlet";

/// The name under which kubectl asks for completions.
const COMPLETION: &str = "kubectl_complete-daemonlet";

/// Show what daemonlet runs in the cluster: each DaemonSet's rollout, and the nodes to look at
///
/// Exit code: 0 all is well, 1 something is refused, failing, missing or unknown, a rollout is halted, no coordinator
/// holds the Lease, or the cluster does not answer, 2 bad usage, 3 no usable kubeconfig.
#[derive(Debug, Parser)]
#[command(name = "kubectl daemonlet", bin_name = "kubectl daemonlet", version)]
struct Arguments {
    #[command(subcommand)]
    command: Option<KubectlCommand>,
    /// The kubeconfig [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: the current one]
    #[arg(long, global = true)]
    context: Option<String>,
    /// DaemonSets of this namespace only; where one is named, the namespace of a name without one
    #[arg(short, long, global = true, value_parser = namespace)]
    namespace: Option<String>,
    /// The form of the output, of commands that show something. On a terminal tables fit 120 columns
    #[arg(short, long, value_enum, global = true)]
    output: Option<KubectlOutputFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KubectlOutputFormat {
    /// Whole names and reasons, also on a terminal
    Wide,
    /// JSON (schemaVersion 1)
    Json,
}

#[derive(Debug, Subcommand)]
enum KubectlCommand {
    /// Show what runs on a node and why, or why not
    ///
    /// Exit code: 0 all is well there, 1 something is not, there is no such node or DaemonSet, or the cluster does not
    /// answer, 2 bad usage, 3 no usable kubeconfig.
    Explain {
        /// The node's name
        node: String,
        #[command(flatten)]
        only: OneDaemonSet,
    },
    /// Show what overlays make differ between two nodes
    ///
    /// Exit code: 0 compared, 1 a DaemonSet cannot be compared, there is no such node or DaemonSet, or the cluster does
    /// not answer, 2 bad usage, 3 no usable kubeconfig.
    Diff {
        /// One node's name
        #[arg(value_name = "NODE")]
        node: String,
        /// The other node's name
        #[arg(value_name = "NODE")]
        other: String,
        #[command(flatten)]
        only: OneDaemonSet,
    },
    /// Prove as a cluster admin that each admission policy holds agents and coordinators
    ///
    /// Each is tried by a dry run of a write that it has to refuse, in the name of an agent and of whoever may approve
    /// certificates as a coordinator: it takes the right to impersonate users and groups. To try an approval, it makes a
    /// CertificateSigningRequest that no controller signs, and deletes it. Exit code: 0 each policy that there is something
    /// to try on refuses it, or could not be tried, 1 one is not in force, the user may not impersonate, or the cluster
    /// does not answer, 2 bad usage, 3 no usable kubeconfig.
    Doctor,
    /// Hold the rollout of a DaemonSet: no more nodes follow
    ///
    /// Exit code: 0 it is paused, 1 nothing would obey, or the API server refuses the write or does not answer, 2 bad usage,
    /// 3 no usable kubeconfig.
    Pause(Steered),
    /// Let a paused rollout go on
    ///
    /// Exit code: 0 it is not paused, 1 the API server refuses the write or does not answer, 2 bad usage, 3 no usable
    /// kubeconfig.
    Resume(Steered),
    /// End the hold of the step or canary phase that a rollout is in
    ///
    /// Exit code: 0 it goes on, 1 there is nothing to promote, or the API server refuses the write or does not answer, 2 bad
    /// usage, 3 no usable kubeconfig.
    Promote(Steered),
    /// Take a rollout back to the released revision
    ///
    /// Exit code: 0 it goes back, 1 there is nothing to abort, or the API server refuses the write or does not answer, 2 bad
    /// usage, 3 no usable kubeconfig.
    Abort(Steered),
    /// End the halt of a rollout that failed, or its abort
    ///
    /// Exit code: 0 it is tried again, 1 there is nothing to retry, or the API server refuses the write or does not answer,
    /// 2 bad usage, 3 no usable kubeconfig.
    Retry(Steered),
}

/// Options of every command that mean nothing to one.
const REFUSED: [(&str, &str); 6] = [
    ("doctor", "namespace"),
    ("pause", "output"),
    ("resume", "output"),
    ("promote", "output"),
    ("abort", "output"),
    ("retry", "output"),
];

impl Arguments {
    /// Refuses what means nothing to the command.
    fn check(&self) -> Result<(), CommandFailure> {
        let namespace = self.namespace.as_deref();
        let refused = |message: &str| Err(CommandFailure::new(Exit::Usage, message));
        match &self.command {
            None => Ok(()),
            Some(KubectlCommand::Doctor) if namespace.is_some() => {
                refused("doctor takes no --namespace: admission policies are the whole cluster's")
            }
            Some(KubectlCommand::Doctor) => Ok(()),
            Some(KubectlCommand::Explain { only, .. } | KubectlCommand::Diff { only, .. }) => {
                only.key(namespace).map(drop)
            }
            Some(
                KubectlCommand::Pause(steered)
                | KubectlCommand::Resume(steered)
                | KubectlCommand::Promote(steered)
                | KubectlCommand::Abort(steered)
                | KubectlCommand::Retry(steered),
            ) => match self.output {
                Some(_) => refused("--output is for what shows something: this prints what was changed as text"),
                None => steered.key(namespace).map(drop),
            },
        }
    }
}

/// The name of a namespace as an argument.
fn namespace(text: &str) -> Result<String, String> {
    match dns::label(text) {
        Some(why) => Err(format!("{text:?} is no namespace's name: {why}")),
        None => Ok(text.to_owned()),
    }
}

/// Its command line, without examples. The help of a command does not show the options that [`Arguments::check`] refuses.
pub(super) fn command() -> clap::Command {
    let command = <Arguments as clap::CommandFactory>::command();
    let hidden: Vec<(&str, clap::Arg)> = REFUSED
        .iter()
        .filter_map(|(name, option)| {
            let argument = command.get_arguments().find(|argument| argument.get_id() == option)?;
            Some((*name, argument.clone().hide(true)))
        })
        .collect();
    hidden.into_iter().fold(command, |command, (name, option)| command.mut_subcommand(name, |one| one.arg(option)))
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
    arguments.check()?;
    let runtime = event_loop()?;
    let kubeconfig = user::kubeconfig(arguments.kubeconfig.as_deref(), arguments.context.as_deref())?;
    let json = arguments.output == Some(KubectlOutputFormat::Json);
    let width = output::table_width(arguments.output == Some(KubectlOutputFormat::Wide));
    let _entered = runtime.enter();
    let client = cluster::client(kubeconfig)?;
    let read = || runtime.block_on(cluster::read(&client));
    let namespace = arguments.namespace.as_deref();
    let steered = match &arguments.command {
        None => return overview::print(&read()?.overview(namespace), namespace, (json, width)),
        Some(KubectlCommand::Explain { node, only }) => {
            return match only.key(namespace)? {
                Some(key) => explain::one(&read()?, node, &key, json),
                None => explain::all(&read()?, node, namespace, (json, width)),
            };
        }
        Some(KubectlCommand::Doctor) => return runtime.block_on(doctor::print(&client, json)),
        Some(KubectlCommand::Diff { node, other, only }) => {
            let key = only.key(namespace)?;
            return runtime.block_on(diff::print(&client, [node, other], (key.as_ref(), namespace), json));
        }
        Some(KubectlCommand::Pause(one)) => runtime.block_on(steer::pause(&client, &one.key(namespace)?, true)),
        Some(KubectlCommand::Resume(one)) => runtime.block_on(steer::pause(&client, &one.key(namespace)?, false)),
        Some(KubectlCommand::Promote(one)) => runtime.block_on(steer::promote(&client, &one.key(namespace)?)),
        Some(KubectlCommand::Abort(one)) => runtime.block_on(steer::abort(&client, &one.key(namespace)?)),
        Some(KubectlCommand::Retry(one)) => runtime.block_on(steer::retry(&client, &one.key(namespace)?)),
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
