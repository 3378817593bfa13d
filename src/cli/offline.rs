//! Answers without an agent: computed from checkpoint and folders.

use serde_json::Value;

use crate::cli::CommandFailure;
use crate::config::Config;
use crate::node::agent;
use crate::node::socket::SocketOperation;

/// The answer to `request`, as the agent would give it, from what is on disk. Changes nothing.
pub(super) fn answer(config: &Config, request: &SocketOperation) -> Result<Value, CommandFailure> {
    Ok(agent::offline::answer_offline(config.clone(), request)?)
}
