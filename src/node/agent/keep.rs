//! What is watched for the daemons, and what is remembered of it on disk.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::core::model::DaemonSet;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::model::Source;
use crate::core::model::TokenRequest;
use crate::core::plan::Action;
use crate::core::plan::DaemonPlan;
use crate::node::api::Scope;
use crate::node::api::Snapshot;
use crate::node::checkpoint::Store;
use crate::node::fsx::Handle;

use super::Agent;
use super::AgentError;
use super::SAVE_AFTER;
use super::apply;
use super::now;
use super::pass::report_problem;
use super::remembered_inputs::INPUTS;
use super::setup;

/// How long events that wait for others are sent when the agent ends.
const LAST_WORDS: Duration = Duration::from_secs(1);

impl Agent {
    /// Watches and asks for exactly what the daemons name.
    pub(super) fn want(&mut self, snapshot: Option<&Snapshot>) {
        let daemons = &self.plan.daemons;
        let references: BTreeSet<ObjectRef> = daemons.iter().flat_map(|d| d.references.iter().cloned()).collect();
        let tokens: BTreeSet<TokenRequest> = daemons.iter().flat_map(|d| d.tokens.iter().cloned()).collect();
        let (Some(api), Some(snapshot)) = (&self.api, snapshot) else { return };
        api.set_wanted(&references);
        self.tokens.set_wanted(&tokens);
        let mut ours: BTreeMap<ObjectKey, Arc<DaemonSet>> = BTreeMap::new();
        for key in daemons.iter().filter(|d| d.summary.source == Some(Source::Api)).map(|d| &d.key) {
            if let Some(daemon_set) = self.definitions.get(key) {
                ours.insert(key.clone(), Arc::clone(daemon_set));
            }
        }
        let runs: BTreeSet<&ObjectKey> =
            daemons.iter().filter(|d| d.record.live().next().is_some()).map(|d| &d.key).collect();
        let unlisted = snapshot.lists(&Scope::DaemonSets) == 0;
        self.remembered_inputs.follow(snapshot, &ours, &references, |key| unlisted || runs.contains(key));
        let remembered: BTreeSet<&ObjectKey> =
            daemons.iter().filter(|d| !d.record.is_empty(self.disk.floor)).map(|d| &d.key).collect();
        self.definitions.forget_answers(|key| remembered.contains(key));
    }

    /// Saves the inputs before what runs is changed by them, its data or itself: after a crash and without an
    /// API server it would go back to what it was, or come back from the dead. So is from which file a first instance
    /// comes: an agent that dies and forgot it would keep the instance when the file goes.
    pub(super) fn checkpoint_before(&mut self) {
        let changes_what_runs = |daemon: &DaemonPlan| {
            daemon.actions.iter().any(|action| match action {
                Action::End { .. } | Action::Refresh { volumes: true, .. } => true,
                // The first one of all replaces nothing, and need not wait.
                Action::Start { .. } => daemon.record.next_incarnation > 1,
                _ => false,
            })
        };
        let started = self.plan.daemons.iter().filter(|daemon| starts(daemon)).map(|daemon| &daemon.key);
        let are_new = self.folders.note_origins(&mut self.remembered_inputs.origins, started);
        if !are_new && !self.plan.daemons.iter().any(changes_what_runs) {
            return;
        }
        let fingerprint = self.remembered_inputs.fingerprint(&self.tokens);
        if fingerprint != self.saved && self.saved_but_for_boot.take() == Some(fingerprint) {
            self.put_boot();
        } else {
            self.save_inputs();
        }
    }

    /// Puts the inputs, which are those on disk, with the name of this boot: an agent that dies finds it there. It is
    /// not waited for: a loss of power that takes it ends this boot, and the name on disk is another's as before.
    /// [`Agent::save_inputs`] follows when the manifests are in place.
    fn put_boot(&mut self) {
        let Some(store) = &self.disk.inputs_store else { return };
        let mut inputs = self.remembered_inputs.to_save(&self.tokens);
        if self.sealing.is_on() {
            // They are as they were sealed.
            drop(inputs.take_secrets(&self.remembered_inputs.rollback_data));
        }
        if let Err(error) = store.write_unsynced(INPUTS, &inputs) {
            self.problems.push(report_problem("checkpoint", apply::failure(&error, error.hint())));
        }
    }

    /// Makes a state folder that somebody removed or replaced anew, and saves all of it again: what the agent
    /// remembers is what runs.
    pub(super) fn keep_state_folder(&mut self) {
        let stores = [&self.disk.inputs_store, &self.disk.records_store];
        if self.offline || stores.iter().all(|store| store.as_ref().is_some_and(Store::is_in_place)) {
            return;
        }
        match setup::open_state(&self.disk.files, &self.config) {
            Ok(state) => {
                tracing::warn!("the state folder was removed or replaced: all that is remembered is saved anew");
                self.disk.inputs_store = Some(state.inputs);
                self.disk.records_store = Some(state.records);
                self.lock = Some(state.lock);
                self.disk.unsaved.extend(self.disk.records.keys().cloned());
                self.disk.floor_saved = self.disk.floor == 0;
                self.saved = 0;
            }
            Err(error) => {
                // What was opened may be a folder that nobody finds any more.
                self.disk.inputs_store = None;
                self.disk.records_store = None;
                let hint = match &error {
                    AgentError::State(cause) => cause.hint(),
                    _ => None,
                };
                self.problems.push(report_problem("checkpoint", apply::failure(&error, hint)));
            }
        }
    }

    /// Saves the inputs some time after they changed, so that a burst is one write.
    pub(super) fn checkpoint(&mut self) {
        // Of one that could not be started, too: the next try is no news.
        let starting = self.plan.daemons.iter().filter(|daemon| starts(daemon)).map(|daemon| &daemon.key);
        self.folders.follow_origins(&mut self.remembered_inputs.origins, self.disk.records.values(), starting);
        let at = now();
        if self.sealing.due(at) {
            // What is sealed comes back before it is sealed anew.
            match self.sealing.is_closed() {
                true => self.reopen_secrets(),
                false => self.saved = 0,
            }
        }
        if self.save_at.is_none() && self.remembered_inputs.fingerprint(&self.tokens) != self.saved {
            self.save_at = Some(at + SAVE_AFTER);
        }
        if self.save_at.is_some_and(|due| at >= due) {
            self.save_inputs();
        }
    }

    /// Saves the inputs now, if they differ from what is on disk.
    pub(super) fn save_inputs(&mut self) {
        self.save_at = None;
        let fingerprint = self.remembered_inputs.fingerprint(&self.tokens);
        let Some(store) = &self.disk.inputs_store else { return };
        if fingerprint == self.saved {
            return;
        }
        let mut inputs = self.remembered_inputs.to_save(&self.tokens);
        if self.sealing.is_on() {
            self.sealing.save(store, &inputs.take_secrets(&self.remembered_inputs.rollback_data));
        } else {
            // What waits to be opened is not in it, and is not to be forgotten.
            inputs.sealed = self.sealing.is_closed();
        }
        match store.save(INPUTS, &inputs) {
            Ok(()) => {
                self.saved = fingerprint;
                self.sealing.drop_sealed(store);
            }
            Err(error) => {
                let failure = apply::failure(&error, error.hint());
                self.problems.push(report_problem("checkpoint", failure));
            }
        }
    }

    /// Leaves all as the next agent, or nobody, shall find it.
    pub(super) async fn put_away(&mut self) {
        // With what alone is not worth a write: how far the API server's history had come.
        self.follow_history();
        self.saved = 0;
        self.save_inputs();
        self.withdraw_secrets();
        let _ = self.disk.files.unlink(&Handle::Start, &self.config.socket());
        if let Some(api) = &self.api {
            api.flush_events(LAST_WORDS).await;
        }
    }
}

/// Whether an instance is to start.
fn starts(daemon: &DaemonPlan) -> bool {
    daemon.actions.iter().any(|action| matches!(action, Action::Start { .. }))
}
