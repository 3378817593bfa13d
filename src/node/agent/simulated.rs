//! The agent's life in a simulated world: all of it but signals, the socket, the server of its metrics and systemd.
//!
//! Exists with the feature `simulation` alone. Must not do what the agent does not do.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::sync::oneshot;

use crate::config::Config;
use crate::config::ConfigError;
use crate::node::fsx::Shared;
use crate::node::fsx::Simulated;
use crate::node::metrics::MetricsRecorder;
use crate::node::metrics::server::Exposed;
use crate::node::notify::Notifier;
use crate::node::socket::RequestLine;
use crate::node::socket::SocketRequest;

use super::Agent;
use super::Ended;
use super::error::AgentError;
use super::executor::gates::open_listed;
use super::signals::SignalCommand;
use super::signals::Signals;
use super::wake::Callers;

/// One life of the agent's process on a simulated disk.
pub struct Simulation {
    agent: Agent,
    stopped: mpsc::UnboundedReceiver<()>,
    stop: mpsc::UnboundedSender<()>,
    asked: mpsc::Receiver<SocketRequest>,
    ask: mpsc::Sender<SocketRequest>,
    metrics: Option<MetricsRecorder>,
}

/// The signals and requests that a running agent takes.
#[derive(Clone)]
pub struct AgentHandle {
    stop: mpsc::UnboundedSender<()>,
    ask: mpsc::Sender<SocketRequest>,
    metrics: Option<MetricsRecorder>,
}

impl Simulation {
    /// As [`Agent::new`], with a configuration in its own words.
    ///
    /// # Errors
    /// As [`Agent::new`].
    pub fn new(config: Config, disk: Arc<Simulated>) -> Result<Self, AgentError> {
        let mut agent = Agent::on(disk, config, Arc::new(Notifier::from_environment()))?;
        let (stop, stopped) = mpsc::unbounded_channel();
        let (ask, asked) = mpsc::channel(8);
        let metrics = agent.reporter.keep_metrics(&agent.config, &agent.state);
        Ok(Self { agent, stopped, stop, asked, ask, metrics })
    }

    /// As [`super::open_gates`], on a simulated disk.
    ///
    /// # Errors
    /// As [`super::open_gates`].
    pub fn open_gates(disk: Arc<Simulated>, run_dir: &Path) -> Result<(), String> {
        let disk: Shared = disk;
        open_listed(&disk, run_dir)
    }

    /// A configuration of the agent.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn config(toml: &str) -> Result<Config, ConfigError> {
        Config::from_toml(toml.to_owned())
    }

    /// Speaks to the agent while it runs.
    pub fn handle(&self) -> AgentHandle {
        AgentHandle { stop: self.stop.clone(), ask: self.ask.clone(), metrics: self.metrics.clone() }
    }

    /// As [`Agent::run`]: until it is stopped, or is to start over.
    pub async fn run(self) -> Ended {
        let Self { mut agent, stopped, asked, stop, ask, .. } = self;
        // Whoever has no handle any more lets it run.
        let _kept = (stop, ask);
        let mut callers =
            Callers { signals: Some(Signals::simulated(stopped)), asked: Some(asked), ..Callers::default() };
        agent.live(&mut callers, None, |_| {}).await
    }
}

impl AgentHandle {
    /// As SIGTERM.
    pub fn stop(&self) {
        let _ = self.stop.send(());
    }

    /// As a line on the agent's socket; `None`: the agent has ended.
    pub async fn ask(&self, request: &str) -> Option<Value> {
        let line: RequestLine = serde_json::from_str(request).ok()?;
        let (reply, replied) = oneshot::channel();
        self.ask.send(SocketRequest { line, reply }).await.ok()?;
        replied.await.ok()
    }

    /// What Prometheus would read; `None`: no pass has ended, or the configuration has no metrics.
    pub fn metrics(&self) -> Option<String> {
        self.metrics.as_ref()?.exposition()
    }
}

impl Signals {
    /// A stop for each message.
    fn simulated(mut stopped: mpsc::UnboundedReceiver<()>) -> Self {
        let stopped = async move {
            match stopped.recv().await {
                Some(()) => SignalCommand::Stop,
                None => std::future::pending().await,
            }
        };
        Self::Simulated(Box::pin(stopped))
    }
}
