//! On disk: which definitions are set aside, and which are being worked on for the first time.
//!
//! Owns the two files. The mark is for the next agent, where this one is killed: it is written without waiting for the
//! disk, and a loss of power may lose it.

use crate::core::set_aside::DefinitionVersion;
use crate::core::set_aside::SetAside;
use crate::node::agent::decision::Decision;
use crate::node::agent::failure;
use crate::node::agent::outcome::EffectOutcome;
use crate::node::checkpoint::CheckpointError;
use crate::node::checkpoint::CheckpointStore;
use crate::node::checkpoint::Damaged;
use crate::node::checkpoint::Loaded;

use super::Executor;
use super::problem;

/// The file of the definitions that are set aside, in the state folder.
const SET_ASIDE: &str = "set-aside";
/// The file of the mark.
const AT_WORK: &str = "at-work";

impl Executor {
    /// Notes on disk that `versions` are about to be worked on. If that fails, they are worked on nevertheless.
    pub(in crate::node::agent) fn mark(&mut self, versions: &[DefinitionVersion]) {
        if let Some(state) = self.state.as_ref().filter(|_| !versions.is_empty()) {
            self.mark = state.inputs.write_unsynced(AT_WORK, &versions).ok();
        }
    }

    /// Removes the mark: the work is done.
    pub(in crate::node::agent) fn unmark(&mut self) {
        if let Some((mark, state)) = self.mark.take().zip(self.state.as_ref()) {
            state.inputs.withdraw(mark);
        }
    }

    /// Saves the definitions that are set aside, if they have changed.
    pub(super) fn save_set_aside(&mut self, decision: &Decision, outcome: &mut EffectOutcome) {
        let set_aside = &decision.state.set_aside;
        let Some(state) = self.state.as_ref().filter(|_| self.set_aside != *set_aside) else { return };
        match state.inputs.save(SET_ASIDE, set_aside) {
            Ok(_) => self.set_aside = set_aside.clone(),
            Err(error) => outcome.problems.push(problem("checkpoint", failure::of(&error, error.hint()))),
        }
    }

    /// What is set aside as the state folder has it. If an agent was killed while it worked on definitions, that is in it,
    /// and on disk before its mark goes.
    pub(in crate::node::agent) fn recall_set_aside(
        &mut self,
        store: &CheckpointStore,
        damaged: &mut Vec<Damaged>,
        keeps: Keeps,
    ) -> Result<SetAside, CheckpointError> {
        let mut set_aside = match store.load::<SetAside>(SET_ASIDE) {
            Loaded::Present(set_aside) => set_aside,
            Loaded::Absent => SetAside::default(),
            Loaded::Damaged(why) => {
                damaged.push(why);
                SetAside::default()
            }
        };
        self.set_aside = set_aside.clone();
        let marked = match store.load::<Vec<DefinitionVersion>>(AT_WORK) {
            Loaded::Present(marked) => marked,
            // A truncated mark does not count.
            Loaded::Absent | Loaded::Damaged(_) => return Ok(set_aside),
        };
        let line = set_aside.note_killed(marked);
        if keeps == Keeps::OnDisk {
            tracing::warn!("{line}");
            store.save(SET_ASIDE, &set_aside)?;
            self.set_aside = set_aside.clone();
            store.remove(AT_WORK)?;
        }
        Ok(set_aside)
    }
}

/// Whether the findings are kept for the next agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node::agent) enum Keeps {
    OnDisk,
    /// This process only answers questions.
    Nothing,
}
