//! Why the agent cannot work at all.

use std::path::PathBuf;

use crate::config::ConfigError;
use crate::node::checkpoint::CheckpointError;
use crate::node::manifests::ManifestError;
use crate::node::socket::SocketError;

/// Why the agent cannot work at all.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The state folder cannot be used.
    #[error("state-dir")]
    State(#[from] CheckpointError),
    /// Another agent has it.
    #[error("state-dir {}: another daemonlet has it", path.display())]
    Locked {
        /// The state folder.
        path: PathBuf,
    },
    /// The state folder cannot be locked.
    #[error("state-dir {}: cannot lock it", path.display())]
    Lock {
        /// The state folder.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// Another agent, with another state folder, writes manifests where this one would end pods.
    #[error("manifest-dir")]
    ManifestFolder(#[from] ManifestError),
    /// The socket cannot be made.
    #[error("run-dir")]
    Socket(#[from] SocketError),
    /// The runtime endpoint is not valid.
    #[error(transparent)]
    Runtime(#[from] crate::node::cri::CriError),
    /// The kubelet's endpoint is not valid.
    #[error(transparent)]
    Kubelet(#[from] crate::node::kubelet::KubeletError),
    /// The kubelet's configuration file cannot be used, and it is not known what it said.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The label selector is not valid.
    #[error("selector: {0}")]
    Selector(String),
    /// The event loop cannot be made.
    #[error("cannot start the event loop")]
    Loop(#[source] std::io::Error),
    /// Signals cannot be received.
    #[error("cannot receive signals")]
    Signals(#[source] std::io::Error),
}

impl AgentError {
    /// What to do about it, if there is something to do.
    pub fn hint(&self) -> Option<String> {
        match self {
            AgentError::State(error) => error.hint(),
            AgentError::ManifestFolder(error) => error.hint(),
            AgentError::Runtime(error) => error.hint(),
            AgentError::Kubelet(error) => error.hint(),
            AgentError::Socket(error) => error.hint(),
            AgentError::Config(error) => error.problems.first().and_then(|problem| problem.hint.clone()),
            AgentError::Locked { .. } => {
                Some("the agent runs: `daemonlet status` asks it, `systemctl stop daemonlet` ends it".to_owned())
            }
            _ => None,
        }
    }
}
