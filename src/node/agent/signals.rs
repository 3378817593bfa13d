//! The agent's signals.
//!
//! Owns their receivers. Must not decide what follows.

use futures::FutureExt;
use tokio::signal::unix::Signal;
use tokio::signal::unix::SignalKind;
use tokio::signal::unix::signal;

use super::error::AgentError;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignalCommand {
    /// To stop (SIGTERM, SIGINT).
    Stop,
    /// To read the configuration again (SIGHUP).
    Reload,
}

/// The signals from now on.
pub(super) enum Signals {
    Real {
        terminate: Signal,
        interrupt: Signal,
        hangup: Signal,
    },
    /// One stop at most.
    #[cfg(feature = "simulation")]
    Simulated(std::pin::Pin<Box<dyn Future<Output = SignalCommand> + Send>>),
}

impl Signals {
    /// # Errors
    /// When the kernel does not give them.
    pub(super) fn listen() -> Result<Self, AgentError> {
        let listen = |kind| signal(kind).map_err(AgentError::Signals);
        Ok(Self::Real {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// The next one; a stop goes before a reload.
    pub(super) async fn next(&mut self) -> SignalCommand {
        match self {
            Self::Real { terminate, interrupt, hangup } => tokio::select! {
                biased;
                _ = terminate.recv() => SignalCommand::Stop,
                _ = interrupt.recv() => SignalCommand::Stop,
                _ = hangup.recv() => SignalCommand::Reload,
            },
            #[cfg(feature = "simulation")]
            Self::Simulated(stop) => stop.await,
        }
    }

    /// Whether a stop signal waits to be received.
    pub(super) fn is_stop_waiting(&mut self) -> bool {
        match self {
            Self::Real { terminate, interrupt, .. } => {
                terminate.recv().now_or_never().is_some() || interrupt.recv().now_or_never().is_some()
            }
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => false,
        }
    }
}
