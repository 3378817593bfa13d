//! Answers without an agent: computed from checkpoint and folders.

use serde_json::Value;

use crate::cli::Exit;
use crate::cli::Failure;
use crate::config::Config;
use crate::node::socket::Request;

/// The answer to `request`, as the agent would give it, from what is on disk. Changes nothing.
pub(super) fn answer(config: &Config, _request: &Request) -> Result<Value, Failure> {
    let message = format!("{}: no agent listens there", config.socket().display());
    Err(Failure::new(Exit::Refused, message).hint("start it with `daemonlet run`, or name its file with --config"))
}
