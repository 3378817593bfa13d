//! What the agent is told by signals.
//!
//! Owns their receivers. Must not decide what follows.

use futures::FutureExt;
use tokio::signal::unix::Signal;
use tokio::signal::unix::SignalKind;
use tokio::signal::unix::signal;

use super::AgentError;

/// What a signal tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignalCommand {
    /// To stop (SIGTERM, SIGINT).
    Stop,
    /// To read the configuration again (SIGHUP).
    Reload,
}

/// The signals from now on.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// # Errors
    /// When the kernel does not give them.
    pub(super) fn listen() -> Result<Self, AgentError> {
        let listen = |kind| signal(kind).map_err(AgentError::Signals);
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// The next one; a stop goes before a reload.
    pub(super) async fn next(&mut self) -> SignalCommand {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => SignalCommand::Stop,
            _ = self.interrupt.recv() => SignalCommand::Stop,
            _ = self.hangup.recv() => SignalCommand::Reload,
        }
    }

    /// Whether a stop waits to be heard.
    pub(super) fn is_stop_waiting(&mut self) -> bool {
        self.terminate.recv().now_or_never().is_some() || self.interrupt.recv().now_or_never().is_some()
    }
}
