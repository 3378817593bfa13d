//! The remembered inputs on disk, sealed where the node's owner wants that.

use crate::config::Config;
use crate::core::model::Kind;
use crate::core::status::Problem;
use crate::node::agent::decision::Decision;
use crate::node::agent::failure;
use crate::node::agent::inputs_on_disk::SavedInputsMark;
use crate::node::agent::observation::Observation;
use crate::node::agent::outcome::EffectOutcome;
use crate::node::agent::remembered_inputs::INPUTS;
use crate::node::agent::remembered_inputs::SavedInputs;
use crate::node::agent::state::AgentState;
use crate::node::checkpoint::CheckpointError;
use crate::node::checkpoint::Loaded;

use super::Executor;
use super::problem;
use super::state_folder;

impl Executor {
    /// Saves the remembered inputs.
    pub(super) fn save_inputs(&mut self, decision: &Decision, observation: &Observation, outcome: &mut EffectOutcome) {
        self.save_inputs_of(&decision.state, observation, outcome);
    }

    /// Saves what `state` remembers for the next start.
    pub(in crate::node::agent) fn save_inputs_of(
        &mut self,
        state: &AgentState,
        observation: &Observation,
        outcome: &mut EffectOutcome,
    ) {
        let Some(folder) = &self.state else { return };
        let fingerprint = state.inputs.fingerprint(observation.tokens.fingerprint);
        let mut inputs = state.inputs.to_save(&observation.tokens.issued);
        if self.sealing.is_on() {
            let secrets = inputs.take_secrets(&state.inputs.rollback_data);
            let is_superseded = observation.api_answers()
                && observation.snapshot().is_some_and(|api| api.has_listed_all(Kind::Secret))
                && !observation.folders.view.is_incomplete();
            self.sealing.save(&folder.inputs, &secrets, is_superseded, observation.now);
        } else {
            // Sealed data that waits to be opened is not in it, and must not be lost.
            inputs.sealed = self.sealing.is_closed();
        }
        match encodable(&mut inputs, outcome, |inputs| folder.inputs.save(INPUTS, inputs)) {
            Ok(bytes) => {
                outcome.inputs_saved = Some(SavedInputsMark { fingerprint, bytes });
                self.sealing.drop_sealed(&folder.inputs);
            }
            Err(error) => outcome.problems.push(problem("checkpoint", failure::of(&error, error.hint()))),
        }
    }

    /// The state folder can be used again: the API server's view since then takes precedence over what is remembered there.
    pub(in crate::node::agent) fn add_to_inputs(&self, config: &Config, state: &AgentState) {
        let Ok(folder) = state_folder::open_state(&self.files, config) else { return };
        let later = state.inputs.to_save(&[]);
        let inputs = match folder.inputs.load::<SavedInputs>(INPUTS) {
            Loaded::Present(mut inputs) => {
                inputs.overlay(later);
                inputs
            }
            // Data that has to be sealed is not written unsealed.
            Loaded::Damaged(_) | Loaded::Absent if self.sealing.is_on() => return,
            Loaded::Damaged(_) | Loaded::Absent => later,
        };
        if let Err(error) = folder.inputs.save(INPUTS, &inputs) {
            tracing::warn!("later changes of the API server cannot be remembered: {error}");
        }
    }

    /// Writes the inputs, which are those on disk, with the name of this boot: an agent that dies finds it there. The
    /// disk is not waited for: a loss of power that takes it ends this boot, and the name on disk is another's as before.
    pub(super) fn write_boot(&mut self, decision: &Decision, observation: &Observation, outcome: &mut EffectOutcome) {
        let Some(folder) = &self.state else { return };
        let remembered = &decision.state.inputs;
        let mut inputs = remembered.to_save(&observation.tokens.issued);
        if self.sealing.is_on() {
            // They are as they were sealed.
            drop(inputs.take_secrets(&remembered.rollback_data));
        }
        if let Err(error) = encodable(&mut inputs, outcome, |inputs| folder.inputs.write_unsynced(INPUTS, inputs)) {
            outcome.problems.push(problem("checkpoint", failure::of(&error, error.hint())));
        }
    }
}

/// Saves `inputs`; where they cannot be put in JSON, without what is the cause.
fn encodable<T>(
    inputs: &mut SavedInputs,
    outcome: &mut EffectOutcome,
    save: impl Fn(&SavedInputs) -> Result<T, CheckpointError>,
) -> Result<T, CheckpointError> {
    match save(inputs) {
        Err(CheckpointError::Encode { .. }) => {
            let reason =
                format!("cannot be put in JSON, and is not remembered: {}", inputs.drop_unencodable().join(", "));
            outcome.problems.push(Problem { object: "checkpoint".to_owned(), reason, hint: None });
            save(inputs)
        }
        saved => saved,
    }
}
