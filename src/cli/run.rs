//! `daemonlet run`: the agent.

use std::os::unix::process::CommandExt;
use std::sync::Arc;
use std::thread::JoinHandle;

use clap::Args;
use tokio::sync::oneshot;

use crate::cli::CommandFailure;
use crate::cli::ConfigArgument;
use crate::cli::Exit;
use crate::cli::ask;
use crate::cli::coordinator;
use crate::cli::enroll;
use crate::cli::event_loop;
use crate::cli::output;
use crate::cli::output::Colour;
use crate::cli::start_log;
use crate::cli::status;
use crate::cluster;
use crate::config;
use crate::config::Config;
use crate::core::status::DaemonStatus;
use crate::core::status::State;
use crate::core::status::StatusReport;
use crate::log::StateOutput;
use crate::node::agent;
use crate::node::agent::Agent;
use crate::node::agent::AgentError;
use crate::node::agent::Ended;
use crate::node::agent::block_sighup;
use crate::node::fsx;
use crate::node::notify::Notifier;
use crate::node::notify::READY_WITHIN;
use crate::node::notify::ReadyGuard;
use crate::node::socket;
use crate::node::socket::SocketOperation;

/// The environment variable with the node's name, where the process goes on as another program.
const NODE_NAME_IN_FORCE: &str = "DAEMONLET_NODE_NAME_IN_FORCE";

/// Run the agent of this node
///
/// Exit code: 0 stopped by a signal, or what an option asks for is done, 1 it cannot start, it can no longer write
/// where the kubelet reads, or a gate cannot be opened, with --once also if something is refused, failing, not
/// accepted, held, stale or still to be replaced, or there is a problem, 3 the configuration is invalid, or has no
/// node-name for --once.
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
    /// Read the configuration and say what is wrong with it, then exit: 0 nothing, 3 something
    #[arg(long, conflicts_with_all = ["once", "print_config"])]
    check_config: bool,
    /// Open the gates of pods that start after others, which a killed agent left closed, then exit
    #[arg(long, conflicts_with_all = ["once", "print_config", "check_config"])]
    open_gates: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CommandFailure> {
    if arguments.open_gates {
        // Without a valid configuration, too: nothing is to stay closed for that.
        let config = arguments.config.load().ok();
        let run_dir = config.map_or_else(|| config::DEFAULT_RUN_DIR.into(), |config| config.run_dir);
        return match agent::open_gates(&run_dir) {
            Ok(()) => Ok(Exit::Success),
            Err(message) => Err(CommandFailure::new(Exit::Refused, message)),
        };
    }
    let is_start = !arguments.print_config && !arguments.check_config;
    let mut config = if is_start { arguments.config.load_to_start()? } else { arguments.config.load()? };
    if let Ok(name) = std::env::var(NODE_NAME_IN_FORCE) {
        config.keep_node_name(&name);
    }
    if arguments.print_config {
        output::data(&config.print())?;
        return Ok(Exit::Success);
    }
    if arguments.check_config {
        return check(config);
    }
    if arguments.once && !config.is_written("node-name") {
        let message = "node-name: `run --once` needs it written: every pod's UID contains the node's name";
        return Err(CommandFailure::new(Exit::Unreadable, message).hint("set node-name in the configuration"));
    }
    start_log(&config, if arguments.once { StateOutput::AtEnd } else { StateOutput::InLog })?;
    let node_name = config.node_name.clone();
    match start(config, arguments)? {
        AfterRun::End(exit) => Ok(exit),
        AfterRun::Again => again(&node_name),
    }
}

/// Says that no agent could have its socket, what has no effect in a configuration that has no mistakes, that the
/// running agent keeps the node's name, and what the agent would hold with it: what it no longer selects.
fn check(mut config: Config) -> Result<Exit, CommandFailure> {
    let invalid = |error| CommandFailure { exit: Exit::Unreadable, ..CommandFailure::from(AgentError::from(error)) };
    socket::check(&config.run_dir).map_err(invalid)?;
    let remark = |one: config::ConfigProblem| {
        let hint = one.hint.map(|hint| output::line(format!("hint: {hint}"))).unwrap_or_default();
        output::line(format!("note: {}", one.message)) + &hint
    };
    output::remarks(&config.remarks().into_iter().map(remark).collect::<String>());
    output::remarks(&enroll::kubeconfig_note(&config));
    if !config.is_written("node-name")
        // One that does not answer says nothing about the configuration.
        && let Ok(Some(StatusReport { node, .. })) = ask::try_agent(&config, &SocketOperation::Status)
    {
        config.keep_node_name(&node);
    }
    let kept =
        agent::kept_node_name(&config).map(|kept| config::ConfigProblem { message: kept.reason, hint: kept.hint });
    output::remarks(&kept.map(remark).unwrap_or_default());
    match agent::offline::held_by(config) {
        Ok(held) => output::lines(held)?,
        Err(error) => {
            let message =
                format!("note: what the agent would hold is unknown: {}", CommandFailure::from(error).errors[0].0);
            output::remarks(&output::line(message));
        }
    }
    Ok(Exit::Success)
}

/// Stands for the Lease where the configuration has an identity for that, in a thread of its own: a pass
/// over thousands of nodes holds no daemon up.
fn coordinate(config: &Config) -> Result<Option<Coordinating>, CommandFailure> {
    let Some(options) = coordinator::options(config) else { return Ok(None) };
    let failed = |error| CommandFailure::new(Exit::Refused, format!("cannot start the coordinator: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let thread = std::thread::Builder::new().name("coordinator".to_owned());
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async move {
        if stopped.await.is_err() {
            // The sender is gone without a stop: this ends with the process.
            std::future::pending::<()>().await;
        }
    };
    let thread = thread.spawn(move || runtime.block_on(cluster::run(options, stopped))).map_err(failed)?;
    Ok(Some(Coordinating { stop, thread }))
}

/// The coordinator beside the agent.
struct Coordinating {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Coordinating {
    /// Waits until it has given the Lease back, or has given up on that.
    fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

/// What comes after the agent.
enum AfterRun {
    /// The process ends.
    End(Exit),
    /// It goes on with the configuration as it is now.
    Again,
}

/// Starts the agent and waits for its end.
fn start(config: Config, arguments: &Arguments) -> Result<AfterRun, CommandFailure> {
    fsx::widen_descriptors();
    let notifier = Arc::new(Notifier::from_environment());
    let ready = ReadyGuard::start(Arc::clone(&notifier), READY_WITHIN)
        .map_err(|error| CommandFailure::new(Exit::Refused, format!("cannot start a thread: {error}")))?;
    let runtime = event_loop()?;
    let coordinating = if arguments.once { None } else { coordinate(&config)? };
    let next: Result<AfterRun, CommandFailure> = runtime.block_on(async {
        let agent = Agent::new(config, notifier)?;
        if arguments.once {
            let report = agent.run_once().await?;
            output::data(&status::human(&report, Colour::new(&std::io::stdout()), None))?;
            // Readiness is not known yet, and need not be: the manifests have only just been written.
            let bad = |daemon: &DaemonStatus| {
                // What is being replaced has ended, and no process is left that starts the next instance.
                matches!(daemon.state, State::Replacing)
                    || daemon.state.is_bad() && daemon.state != State::Unknown
                    || !daemon.stale_volumes.is_empty()
            };
            let is_bad = report.daemons.iter().any(bad) || !report.problems.is_empty();
            return Ok(AfterRun::End(if is_bad { Exit::Refused } else { Exit::Success }));
        }
        match agent.run(ready, arguments.config.config.as_deref()).await? {
            Ended::Stopped => Ok(AfterRun::End(Exit::Success)),
            Ended::Reconfigured => Ok(AfterRun::Again),
            // The journal has the reason; systemd starts it again.
            Ended::Outdated => Ok(AfterRun::End(Exit::Refused)),
        }
    });
    // The same process goes on under the same name with another configuration: it keeps the Lease.
    if let (Ok(AfterRun::End(_)) | Err(_), Some(coordinating)) = (&next, coordinating) {
        coordinating.stop();
    }
    next
}

/// Becomes this program anew, in the same process: a changed configuration takes effect in all its parts
/// just as at a start, and systemd sees one service that reloads. Only the name `node` stays where none is written.
/// Comes back only when that fails.
fn again(node: &str) -> Result<Exit, CommandFailure> {
    let mut words = std::env::args_os();
    let mut program = std::process::Command::new("/proc/self/exe");
    if let Some(name) = words.next() {
        program.arg0(name);
    }
    block_sighup();
    let error = program.args(words).env(NODE_NAME_IN_FORCE, node).exec();
    Err(CommandFailure::new(Exit::Refused, format!("cannot start again with the new configuration: {error}")))
}
