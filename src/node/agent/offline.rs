//! An agent that only looks: for answers, and dry runs, while none runs or beside one that does.
//!
//! Must not change anything, nor lock the state folder.

use std::sync::Arc;

use serde_json::Value;

use crate::config::Config;
use crate::core::status::Problem;
use crate::node::checkpoint;
use crate::node::fsx::Real;
use crate::node::manifests::ManifestDir;
use crate::node::notify::Notifier;
use crate::node::socket::Request;

use super::Agent;
use super::AgentError;
use super::apply;
use super::apply::Disk;
use super::setup::DAEMONS;

/// The answer to `request` while no agent runs: from checkpoint, folders and manifests. Changes
/// nothing. The data of volumes is not compared.
///
/// # Errors
/// When the state folder cannot be read.
pub fn answer_offline(config: Config, request: &Request) -> Result<Value, AgentError> {
    let mut agent = offline(config)?;
    agent.look();
    Ok(agent.answer(request))
}

/// An agent that only looks: it may run beside the one that works.
///
/// # Errors
/// When the state folder cannot be read.
pub(super) fn offline(config: Config) -> Result<Agent, AgentError> {
    let files = Real::shared();
    let inputs_store = checkpoint::Store::open_read_only(&files, &config.state_dir)?;
    let records_store = inputs_store.as_ref().and_then(|store| store.folder(DAEMONS).ok());
    let opened = ManifestDir::open_read_only(&files, &config.manifest_dir);
    let disk = Disk::new(files, &config.kubelet_root, inputs_store, records_store);
    let mut agent = Agent::with(config, disk, Arc::new(Notifier::from_environment()))?;
    agent.offline = true;
    agent.recall()?;
    match opened {
        Ok(manifests) => agent.disk.manifests = manifests,
        Err(error) => agent.startup_problems.push(Problem {
            object: "manifest folder".to_owned(),
            reason: apply::failure(&error, None).message,
            hint: error.hint(),
        }),
    }
    Ok(agent)
}
