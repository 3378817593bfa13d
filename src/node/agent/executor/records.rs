//! Records of daemons on disk, the floor below their numbers, and which of them are forgotten.

use crate::core::local_failure::LocalFailure;
use crate::core::model::ObjectKey;
use crate::core::record;
use crate::core::record::DaemonRecord;
use crate::core::record::MAX_BARE;
use crate::node::agent::decision::Decision;
use crate::node::agent::failure;
use crate::node::agent::failure::EffectFailure;
use crate::node::agent::outcome::EffectOutcome;
use crate::node::agent::outcome::RecordFate;
use crate::node::manifests::ManifestDir;

use super::Executor;
use super::problem;

/// A record's name in the state folder; a namespace has no underscore.
pub(in crate::node::agent) fn record_name(key: &ObjectKey) -> String {
    format!("{}_{}", key.namespace, key.name)
}

/// The name under which a record is saved.
pub(in crate::node::agent) fn name_of(record: &DaemonRecord) -> Option<String> {
    Some(record_name(&record.key))
}

impl Executor {
    /// Writes a record and waits for the disk.
    pub(in crate::node::agent) fn save_record(&mut self, record: &DaemonRecord) -> Result<(), EffectFailure> {
        let Some(state) = &self.state else { return Err(LocalFailure::NoStateFolder.into()) };
        state.records.save(&record_name(&record.key), record).map_err(|e| failure::of(&e, e.hint()))?;
        self.unsynced.retain(|(key, _)| *key != record.key);
        Ok(())
    }

    /// As [`Executor::save_record`], for a loss of power only after [`Executor::sync`].
    pub(super) fn write_record(
        &mut self,
        record: &DaemonRecord,
        outcome: &mut EffectOutcome,
    ) -> Result<(), EffectFailure> {
        let Some(state) = &self.state else { return Err(LocalFailure::NoStateFolder.into()) };
        let written = state.records.write_unsynced(&record_name(&record.key), record);
        let written = written.map_err(|e| failure::of(&e, e.hint()))?;
        self.unsynced.retain(|(key, _)| *key != record.key);
        self.unsynced.push((record.key.clone(), written));
        outcome.records.insert(record.key.clone(), RecordFate::OnDisk);
        Ok(())
    }

    /// Whether the record of `key` has been written in this pass without waiting for the disk.
    pub(super) fn is_unsynced(&self, key: &ObjectKey) -> bool {
        self.unsynced.iter().any(|(unsynced, _)| unsynced == key)
    }

    /// Saves the records of daemons that adopt instances of others. What fails is tried again with the daemon's plan.
    pub(super) fn save_adopters(&mut self, decision: &Decision, outcome: &mut EffectOutcome) {
        for key in &decision.adopters {
            let Some(record) = decision.state.records.get(key) else { continue };
            if let Err(failure) = self.save_record(record) {
                outcome.problems.push(problem("checkpoint", failure));
            }
        }
    }

    /// Waits until the manifests' names and the records that were written are on stable storage.
    pub(super) fn sync(&mut self, outcome: &mut EffectOutcome) {
        let renamed = std::mem::take(&mut self.renamed);
        if let Some(Err(e)) = self.manifests.as_mut().map(ManifestDir::sync) {
            let failed = failure::of(&e, e.hint());
            outcome.failures.extend(renamed.into_iter().map(|key| (key, failed.clone())));
        }
        let Some(state) = &self.state else { return };
        let renamed = |(key, written)| {
            let renamed = state.records.rename(&written);
            (key, written, renamed)
        };
        let renamed: Vec<_> = std::mem::take(&mut self.unsynced).into_iter().map(renamed).collect();
        // Who was the last to be renamed is waited for, and all the others with it.
        let last = renamed.iter().rev().find(|(_, _, renamed)| renamed.is_ok());
        let synced = last.map_or(Ok(()), |(_, written, _)| state.records.sync_dir(written));
        for (key, _, renamed) in renamed {
            if let Err(e) = renamed.as_ref().and(synced.as_ref()) {
                outcome.records.insert(key.clone(), RecordFate::InMemory);
                outcome.failures.insert(key, failure::of(e, e.hint()));
            }
        }
    }

    /// Raises the floor before anything with a number beyond it is used, and before the cluster's silence counts.
    pub(super) fn raise_floor(&mut self, decision: &Decision, outcome: &mut EffectOutcome) {
        let numbers = decision.plan.daemons.iter().map(|daemon| daemon.record.next_incarnation);
        if let Err(failure) = self.save_floor(decision, decision.state.floor, numbers.max().unwrap_or(0)) {
            outcome.problems.push(problem("checkpoint", failure));
        }
    }

    fn save_floor(&mut self, decision: &Decision, next: u64, top: u64) -> Result<(), EffectFailure> {
        let Some(state) = &self.state else { return Ok(()) };
        let cluster = decision.state.inputs.cluster_uid.as_ref();
        self.floor.raise(&state.inputs, next, top, cluster).map_err(|e| failure::of(&e, e.hint()))
    }

    /// Forgets daemons that are gone: writes the floor first, then removes the records that it covers. [`record::forget`]
    /// decides which may go.
    pub(super) fn forget(&mut self, decision: &Decision, outcome: &mut EffectOutcome) {
        if let Err(failure) = self.try_forget(decision, outcome) {
            outcome.problems.push(problem("checkpoint", failure));
        }
    }

    fn try_forget(&mut self, decision: &Decision, outcome: &mut EffectOutcome) -> Result<(), EffectFailure> {
        let records = decision.plan.daemons.iter().filter(|d| outcome.records.contains_key(&d.key)).map(|d| &d.record);
        let floor = decision.state.floor;
        let forgotten = record::forget(records, floor, MAX_BARE);
        if forgotten.keys.is_empty() {
            return Ok(());
        }
        self.save_floor(decision, forgotten.floor, 0)?;
        let Some(state) = &self.state else { return Ok(()) };
        for key in &forgotten.keys {
            state.records.remove(&record_name(key)).map_err(|e| failure::of(&e, e.hint()))?;
        }
        outcome.forgotten = Some(forgotten);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
