//! `daemonlet coordinator`: history, status and rollouts of the cluster, without an agent.

use clap::Args;
use tokio::signal::unix::SignalKind;
use tokio::signal::unix::signal;

use crate::cli::CommandFailure;
use crate::cli::ConfigArgument;
use crate::cli::Exit;
use crate::cli::event_loop;
use crate::cli::start_log;
use crate::cluster;
use crate::config::Config;
use crate::core::cluster::pass::Settings;
use crate::log::StateOutput;
use crate::node::api;

/// Coordinate the cluster's rollouts without running an agent (one Deployment of it does)
///
/// It works while it holds the Lease, stands by while another one does, and runs until SIGTERM or SIGINT. While the
/// API server does not answer, it tries again. Exit code: 0 stopped by such a signal, 1 it cannot start,
/// 3 the configuration is invalid, or coordinator.kubeconfig is missing or cannot be used.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CommandFailure> {
    let config = arguments.config.load()?;
    let Some(options) = options(&config) else {
        return Err(CommandFailure::new(Exit::Unreadable, "coordinator.kubeconfig: `coordinator` needs it written")
            .hint(
                "name a kubeconfig of the coordinator's own, not an agent's: /usr/share/doc/daemonlet/docs/coordinator.md",
            ));
    };
    // This process works with the kubeconfig alone; later changes of it are read again.
    api::check_kubeconfig(&options.kubeconfig).map_err(|error| {
        CommandFailure::new(Exit::Unreadable, format!("coordinator.kubeconfig: {}", api::words(&error)))
            .hint("make it as /usr/share/doc/daemonlet/docs/coordinator.md says, or correct the key or the file")
    })?;
    start_log(&config, StateOutput::InLog)?;
    let runtime = event_loop()?;
    runtime.block_on(async {
        let signals = |error| CommandFailure::new(Exit::Refused, format!("cannot receive signals: {error}"));
        let mut terminate = signal(SignalKind::terminate()).map_err(signals)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(signals)?;
        let stop = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        cluster::run(options, stop).await;
        Ok(Exit::Success)
    })
}

/// The process by a name that no other one has on this host, and that it keeps when it begins anew with another
/// configuration: containers have process numbers of their own.
fn process() -> String {
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let namespace: String = namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    format!("{namespace}_{}", std::process::id())
}

/// The coordinator's options; `None`: this configuration has no identity for it.
pub(super) fn options(config: &Config) -> Option<cluster::CoordinatorOptions> {
    Some(cluster::CoordinatorOptions {
        kubeconfig: config.coordinator_kubeconfig.clone()?,
        lease_namespace: config.lease_namespace.clone(),
        lease_name: config.lease_name.clone(),
        identity: format!("{}_{}", config.node_name, process()),
        settings: Settings {
            default_node_selector: config.default_node_selector.clone(),
            exact_rollouts: config.exact_rollouts,
        },
        trusted_namespaces: config.trusted_namespaces.clone(),
        approve_nodes: config.approve_nodes,
        metrics_listen: config.coordinator_metrics_listen.clone(),
    })
}
