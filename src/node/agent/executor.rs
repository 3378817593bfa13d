//! Carries out the effects of a decision on this node's disk.
//!
//! Owns the handles on manifest folder, volume data and state folder, and the one order of effects
//! ([`Executor::execute`]). Must not decide anything: what became of each effect goes back as a value.

pub(super) mod costs;
mod daemon;
pub(super) mod gates;
mod inputs;
pub(super) mod records;
pub(super) mod state_folder;
mod touch;
pub(super) mod withdraw;

use crate::config::Config;
use crate::core::local_failure::LocalFailure;
use crate::core::model::ObjectKey;
use crate::core::plan::Action;
use crate::core::set_aside::SetAside;
use crate::core::status::Problem;
use crate::node::checkpoint::UnsyncedRecord;
use crate::node::fsx::Dir;
use crate::node::fsx::Shared;
use crate::node::manifests::ManifestDir;
use crate::node::manifests::ManifestLock;
use crate::node::notify::Watchdog;
use crate::node::volumes::Cleared;
use crate::node::volumes::Volumes;

use super::decision::Decision;
use super::decision::SaveInputs;
use super::failure;
use super::failure::EffectFailure;
use super::floor::Floor;
use super::observation::Observation;
use super::outcome::ClearResult;
use super::outcome::EffectOutcome;
use super::sealing::Sealing;

use super::error::AgentError;
use state_folder::StateFolder;

/// The node's disk as the agent writes it.
pub(super) struct Executor {
    pub(super) files: Shared,
    /// `None` while the folder cannot be used.
    pub(super) manifests: Option<ManifestDir>,
    /// The lock of the manifest folder, while that is closed.
    pub(super) manifest_lock: Option<ManifestLock>,
    pub(super) volumes: Volumes,
    /// The state folder; `None` while it cannot be used: then nothing is removed or replaced.
    pub(super) state: Option<StateFolder>,
    /// Held for the agent's life: the state folder is its own. `None`: it could not be opened, or was opened to look at.
    pub(super) lock: Option<Dir>,
    /// Whether what the state folder remembers was read, or there was nothing: else it is not written either.
    pub(super) is_recalled: bool,
    /// Whether a state folder that could not be read can be read now: the agent is to start over.
    pub(super) is_readable_again: bool,
    pub(super) sealing: Sealing,
    /// The floor as it is on disk.
    pub(super) floor: Floor,
    /// The definitions that are set aside, as on disk.
    set_aside: SetAside,
    /// The mark on disk of the definitions that are being worked on.
    mark: Option<UnsyncedRecord>,
    /// Records that were written without waiting for the disk.
    unsynced: Vec<(ObjectKey, UnsyncedRecord)>,
    /// Daemons whose manifests were renamed into place without waiting for the disk.
    renamed: Vec<ObjectKey>,
}

/// The problem of a part of the disk.
pub(super) fn problem(object: &str, failure: EffectFailure) -> Problem {
    Problem { object: object.to_owned(), reason: failure.cause.to_string(), hint: failure.hint }
}

/// The problem of a state folder that is not used.
pub(super) fn unused(error: &(dyn std::error::Error + 'static), hint: Option<String>) -> Problem {
    let EffectFailure { cause, hint } = failure::of(error, hint);
    problem("checkpoint", EffectFailure { cause: LocalFailure::StateFolderUnused(Box::new(cause)), hint })
}

impl Executor {
    /// A disk of which nothing has been read.
    pub(super) fn new(files: Shared, volumes: Volumes, state: Option<StateFolder>, sealing: Sealing) -> Self {
        Self {
            files,
            manifests: None,
            manifest_lock: None,
            volumes,
            state,
            lock: None,
            is_recalled: true,
            is_readable_again: false,
            sealing,
            floor: Floor::default(),
            set_aside: SetAside::default(),
            mark: None,
            unsynced: Vec::new(),
            renamed: Vec::new(),
        }
    }

    /// Does what `decision` says, in this order:
    ///
    /// 1. gates: those that close do so before the kubelet starts, whatever the disk does, and a process opens the others
    ///    in its first pass;
    /// 2. the state folder is made anew where it was removed; what is set aside is saved; the floor is raised before a
    ///    number beyond it is used;
    /// 3. data for a roll-back and the other remembered inputs, where what runs is changed by them; records of daemons that
    ///    adopt instances of others;
    /// 4. mode and owner of manifests, where another process changed them; manifests and volume data that are new on this
    ///    disk, staged together;
    /// 5. daemon by daemon: record before a removal; volume data, record, manifest at a start. Whoever acts goes first:
    ///    no manifest waits for what is only noted of other daemons;
    /// 6. one wait for the disk;
    /// 7. manifests that are touched so that the kubelet tries again;
    /// 8. folders of ended pods;
    /// 9. the floor, then the records that it covers;
    /// 10. the remembered inputs, where some time has passed since they changed.
    ///
    /// Writes outside this order: at the start, what is set aside because it killed an agent; while inputs are collected, the
    /// manifest folder itself and a test of the disk; around each pass, the mark of definitions that are worked on for the
    /// first time; when the agent ends, the remembered inputs and the removal of sealed data and of the socket.
    pub(super) fn execute(
        &mut self,
        decision: &Decision,
        observation: &Observation,
        config: &Config,
        watchdog: &mut Watchdog,
    ) -> EffectOutcome {
        let mut outcome = EffectOutcome::default();
        self.move_gates(&decision.gates, config, &mut outcome);
        self.keep_state_folder(config, &mut outcome);
        self.save_set_aside(decision, &mut outcome);
        self.raise_floor(decision, &mut outcome);
        match decision.save_inputs {
            SaveInputs::Before => self.save_inputs(decision, observation, &mut outcome),
            SaveInputs::BootBefore => self.write_boot(decision, observation, &mut outcome),
            SaveInputs::No | SaveInputs::After => {}
        }
        self.save_adopters(decision, &mut outcome);
        self.restore_attributes(&mut outcome);
        self.prewrite(decision);
        let daemons = &decision.plan.daemons;
        let (acting, noting): (Vec<_>, Vec<_>) = daemons.iter().partition(|d| !d.actions.is_empty());
        for daemon in acting.into_iter().chain(noting) {
            // Many daemons on a slow disk take long; the loop does not hang then.
            watchdog.ping();
            let ended = outcome.counts.ends;
            if let Err(failure) = self.apply(daemon, decision, config, &mut outcome) {
                let ends = daemon.actions.iter().filter(|action| matches!(action, Action::End { .. })).count() as u64;
                let needs_record = daemon.done_without_record().len() < daemon.actions.len();
                if outcome.counts.ends - ended < ends || self.state.is_none() && needs_record {
                    outcome.held_up.insert(daemon.key.clone());
                }
                outcome.failures.insert(daemon.key.clone(), failure);
            }
        }
        self.sync(&mut outcome);
        self.touch(decision, observation.now, &mut outcome);
        self.clear(decision, &mut outcome);
        self.forget(decision, &mut outcome);
        if decision.save_inputs == SaveInputs::After {
            self.save_inputs(decision, observation, &mut outcome);
        }
        outcome
    }

    /// Creates the state folder again if it was removed or replaced: the agent's memory describes what runs. A folder that
    /// has not been read yet is left as it is.
    fn keep_state_folder(&mut self, config: &Config, outcome: &mut EffectOutcome) {
        if self.state.as_ref().is_some_and(StateFolder::is_in_place) {
            return;
        }
        // The open folder may be at no path any more, or other users may write to it.
        self.state = None;
        let opened = match self.is_recalled {
            true => state_folder::lock(&self.files, config, self.lock.take()).and_then(|lock| {
                self.lock = lock;
                Ok(Some(state_folder::open_state(&self.files, config)?))
            }),
            false => state_folder::check_state(&self.files, config).map(|()| None).map_err(AgentError::from),
        };
        match opened {
            Ok(Some(state)) => {
                tracing::warn!("the state folder is another one, or can be used again: all records are written anew");
                self.state = Some(state);
                self.floor = Floor::default();
                self.set_aside = SetAside::default();
                outcome.state_folder_is_new = true;
            }
            Ok(None) => self.is_readable_again = true,
            Err(AgentError::State(error)) => outcome.problems.push(unused(&error, error.hint())),
            Err(error) => outcome.problems.push(unused(&error, error.hint())),
        }
    }

    fn restore_attributes(&mut self, outcome: &mut EffectOutcome) {
        for (file, restored) in self.manifests.iter_mut().flat_map(ManifestDir::restore_attributes) {
            match restored {
                Ok(had) => {
                    tracing::warn!(
                        file,
                        "another process gave the manifest {had}: its owner and mode 0600 are set again"
                    )
                }
                Err(error) => outcome.problems.push(problem("manifest folder", failure::of(&error, error.hint()))),
            }
        }
    }

    /// Clears folders of ended pods; a folder with a mount is tried again later.
    fn clear(&mut self, decision: &Decision, outcome: &mut EffectOutcome) {
        for uid in &decision.to_clear {
            let result = match self.volumes.clear(uid) {
                Ok(Cleared::Gone | Cleared::Foreign { .. }) => ClearResult::Gone,
                Ok(Cleared::Mounted { .. }) => ClearResult::Mounted,
                Err(error) => {
                    outcome.problems.push(problem("volume data", failure::of(&error, error.hint())));
                    ClearResult::Failed
                }
            };
            outcome.cleared.insert(uid.clone(), result);
        }
    }
}
