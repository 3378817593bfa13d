//! The state folder: its content, its lock, and its owner.
//!
//! Owns its lock: one agent works on it at a time. Must not decide from its content; a check reads all of it to report
//! damage.

use std::path::Path;

use crate::config::Config;
use crate::node::agent::error::AgentError;
use crate::node::agent::noted_state;
use crate::node::checkpoint::CheckpointError;
use crate::node::checkpoint::CheckpointStore;
use crate::node::checkpoint::DAEMONS;
use crate::node::fsx::Dir;
use crate::node::fsx::DiskHandle;
use crate::node::fsx::Shared;

/// The state folder, opened for work.
pub(in crate::node::agent) struct StateFolder {
    pub(in crate::node::agent) inputs: CheckpointStore,
    pub(in crate::node::agent) records: CheckpointStore,
}

impl StateFolder {
    /// Whether it is still the folder at its path, and no other user may write to it.
    pub(in crate::node::agent) fn is_in_place(&self) -> bool {
        self.inputs.is_in_place() && self.records.is_in_place()
    }
}

/// Opens the state folder, made if it is not there.
///
/// # Errors
/// When it cannot be opened, or others could write to it.
pub(in crate::node::agent) fn open_state(files: &Shared, config: &Config) -> Result<StateFolder, CheckpointError> {
    let inputs = CheckpointStore::open(files, &config.state_dir)?;
    let records = inputs.folder(DAEMONS)?;
    Ok(StateFolder { inputs, records })
}

/// Opens the state folder to look at; `None`: there is none.
pub(in crate::node::agent) fn look_at_state(
    files: &Shared,
    config: &Config,
) -> Result<Option<StateFolder>, CheckpointError> {
    let Some(inputs) = CheckpointStore::open_read_only(files, &config.state_dir)? else { return Ok(None) };
    let records = inputs.folder_read_only(DAEMONS)?;
    Ok(Some(StateFolder { inputs, records }))
}

/// Whether an agent that starts could use the state folder.
pub(in crate::node::agent) fn check_state(files: &Shared, config: &Config) -> Result<(), CheckpointError> {
    open_state(files, config)?.records.load_all(|_: &serde::de::IgnoredAny| None).map(drop)
}

/// Makes sure that an agent could work on the state folder of `config`, which is to take the place of the one `in_force`,
/// and leaves nothing new there.
///
/// # Errors
/// When it cannot be used, or another agent has it.
pub(in crate::node::agent) fn try_other(files: &Shared, config: &Config, in_force: &Path) -> Result<(), AgentError> {
    let path = &config.state_dir;
    let at = |path: &Path| files.look(path).ok().map(|stat| stat.stamp);
    if at(path).zip(at(in_force)).is_some_and(|(new, old)| new.is_same_file(&old)) {
        return Ok(());
    }
    let unusable = |source| CheckpointError::Folder { path: path.clone(), source };
    let (dir, is_new) = Dir::open_or_create(files, path, 0o700).map_err(unusable)?;
    let tried = match dir.lock() {
        Ok(true) => check_state(files, config).map_err(AgentError::from),
        Ok(false) => Err(AgentError::Locked { path: path.clone() }),
        Err(error) => Err(AgentError::Lock { path: path.clone(), source: error.source }),
    };
    if is_new {
        let _ = dir.remove_dir(DAEMONS);
        let _ = files.remove_folder(&DiskHandle::Start, path);
    }
    tried
}

/// Locks the state folder for this process, if it is not the one that it holds. `None`: it cannot be opened.
///
/// # Errors
/// When another agent has it.
pub(in crate::node::agent) fn lock(
    files: &Shared,
    config: &Config,
    held: Option<Dir>,
) -> Result<Option<Dir>, AgentError> {
    let path = config.state_dir.clone();
    let there = files.look(&path).ok().map(|stat| stat.stamp);
    let is_held = |dir: &Dir| dir.own_stat().ok().zip(there).is_some_and(|(own, there)| own.stamp.is_same_file(&there));
    if held.as_ref().is_some_and(is_held) {
        return Ok(held);
    }
    let Ok((dir, _)) = Dir::open_or_create(files, &path, 0o700) else { return Ok(None) };
    match dir.lock() {
        Ok(true) => {
            noted_state::note(files, std::env::var_os("STATE_DIRECTORY").as_deref(), &path);
            Ok(Some(dir))
        }
        Ok(false) => Err(AgentError::Locked { path }),
        Err(error) => Err(AgentError::Lock { path, source: error.source }),
    }
}
