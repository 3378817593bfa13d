//! The effects of one daemon's plan, in the plan's order, stopping at the first that fails.

use std::collections::BTreeSet;

use crate::config::Config;
use crate::core::identity::Identity;
use crate::core::local_failure::LocalFailure;
use crate::core::manifest;
use crate::core::plan::Action;
use crate::core::plan::DaemonPlan;
use crate::core::record::DaemonRecord;
use crate::core::render::GATE;
use crate::core::rendering::RenderResult;
use crate::core::rendering::Rendered;
use crate::node::agent::decision::Decision;
use crate::node::agent::failure;
use crate::node::agent::failure::EffectFailure;
use crate::node::agent::outcome::EffectOutcome;
use crate::node::agent::outcome::RecordFate;
use crate::node::checkpoint;
use crate::node::fsx::Unsynced;
use crate::node::manifests::ManifestError;

use super::Executor;

impl Executor {
    /// Stages the manifests and writes the volume data of all instances that are new on this disk, and
    /// waits for the disk once for all of them: [`Executor::apply`] finds it done. A boot has many of them.
    ///
    /// No more than a hint: nothing takes its name, and what fails is done again by [`Executor::apply`], which reports it.
    pub(super) fn prewrite(&mut self, decision: &Decision) {
        decision.plan.daemons.iter().filter_map(|plan| plan.actions.first()).for_each(|first| self.distrust(first));
        let lost: BTreeSet<&str> = decision.state.concerns.manifests_lost_at_boot.uids().collect();
        let news = decision.plan.daemons.iter().filter_map(|plan| new_here(plan, &lost));
        let news: Vec<_> = news.filter_map(|new| Some((new.identity.uid.as_str(), rendered(new)?))).collect();
        let Some(manifests) = self.manifests.as_mut().filter(|_| news.len() > 1) else { return };
        let mut unsynced = Unsynced::default();
        for (_, rendered) in &news {
            manifests.prepare(&rendered.file, rendered.text.as_bytes(), Some(&mut unsynced));
        }
        let pods: Vec<_> = news.iter().map(|(uid, rendered)| (*uid, rendered.pod.volumes.as_slice())).collect();
        let texts = news.iter().map(|(_, new)| (new.file.as_str(), new.text.as_bytes(), &new.pod.pod));
        let are = self.volumes.write_together(&pods, unsynced, || manifests.decode(texts));
        manifests.are_synced(are);
    }

    /// Does what `plan` says.
    ///
    /// # Errors
    /// The first effect that failed; what came before it was done.
    pub(super) fn apply(
        &mut self,
        plan: &DaemonPlan,
        decision: &Decision,
        config: &Config,
        outcome: &mut EffectOutcome,
    ) -> Result<(), EffectFailure> {
        self.refuse_second(plan)?;
        let mut kept_old = Ok(());
        for (index, action) in plan.actions.iter().enumerate() {
            match action {
                Action::End { uid, pod, successor, .. } => {
                    self.try_room(uid, successor.as_deref())?;
                    self.end(plan, uid, pod, decision, outcome)?;
                    outcome.counts.ends += 1;
                }
                Action::Finish { uid, .. } => drop(outcome.finished.insert(uid.clone())),
                Action::Start { rendering, .. } => {
                    let Some(rendered) = rendered(rendering) else { continue };
                    if self.state.is_none() && plan.needs_record(action) {
                        return Err(LocalFailure::NoStateFolder.into());
                    }
                    if let Some(manifests) = self.manifests.as_mut().filter(|m| !m.has_prepared(&rendered.file)) {
                        // Renamed into place when the data is there; the disk can write both together.
                        manifests.prepare(&rendered.file, rendered.text.as_bytes(), None);
                    }
                    self.distrust(action);
                    self.write_volumes(rendering, &BTreeSet::new(), outcome)?;
                    let uid = &rendering.identity.uid;
                    if decision.gates.closes(uid) && !outcome.left_open.contains(uid) {
                        self.close_new(rendering, config, outcome)?;
                    }
                    let ends_another = plan.actions[index..].iter().any(|action| matches!(action, Action::End { .. }));
                    if ends_another {
                        // Else both manifests would stay: no removal without a record.
                        self.save_record(&plan.record)?;
                        outcome.records.insert(plan.key.clone(), RecordFate::OnDisk);
                    }
                    self.start(plan, rendered, decision, outcome)?;
                    self.renamed.push(plan.key.clone());
                    outcome.counts.starts += 1;
                }
                Action::Refresh { rendering, volumes, manifest, kept } => {
                    let mut is_news = false;
                    if *volumes {
                        let written = self.write_volumes(rendering, kept, outcome);
                        is_news |= matches!(written, Ok(true));
                        let written = written.map(drop);
                        // A failure with the data of an instance that ends does not keep it from ending.
                        match plan.record.ending().any(|instance| instance.uid == rendering.identity.uid) {
                            true => kept_old = kept_old.and(written),
                            false => written?,
                        }
                    }
                    if let Some(rendered) = rendered(rendering).filter(|_| *manifest) {
                        self.rewrite_manifest(plan, &rendering.identity, rendered, decision)?;
                        self.renamed.push(plan.key.clone());
                        is_news = true;
                    }
                    if is_news {
                        outcome.refreshed.insert(rendering.identity.uid.clone());
                        outcome.counts.refreshes += 1;
                    }
                }
                Action::Verify { rendering, kept } => drop(self.write_volumes(rendering, kept, outcome)?),
                // Done before anything else.
                Action::CloseGate { .. } | Action::OpenGate { .. } => {}
                Action::Confirm { .. } | Action::Keep { .. } => {}
            }
        }
        let persisted = self.persist(plan, decision, outcome).inspect_err(|_| {
            // The completed effects are remembered nevertheless: a number that was used is used up.
            outcome.records.insert(plan.key.clone(), RecordFate::InMemory);
        });
        persisted.and(kept_old)
    }

    /// The record first: an agent that dies after the manifest must find its number used up, or it would
    /// use it again if the manifest was removed meanwhile. A record that the disk does not take holds no
    /// daemon up; the end of the plan reports it. One that cannot be put in JSON does, as it would never be there.
    ///
    /// It is written without fsync, which survives the agent, and synced when the manifest is in place
    /// ([`Executor::sync`]). A pod UID whose manifest was removed is never used again, whatever a loss of power takes in
    /// between:
    /// * the manifest is there: its number is read from it (`adopt`), and so is used up;
    /// * the record is there: it is used up;
    /// * neither is there: the kubelet and the runtime that may have seen the manifest, even its removal by
    ///   another process, went with the power, and the kubelet that starts has never seen it go;
    /// * the agent removed the manifest itself: the record was saved and synced before ([`Executor::end`]).
    fn start(
        &mut self,
        plan: &DaemonPlan,
        rendered: &Rendered,
        decision: &Decision,
        outcome: &mut EffectOutcome,
    ) -> Result<(), EffectFailure> {
        let state = &decision.state;
        let before = state.records.get(&plan.key).cloned().unwrap_or_else(|| state.new_record(&plan.key));
        let written = match outcome.records.contains_key(&plan.key) {
            true => Ok(()),
            false => self.write_record(&plan.record, outcome),
        };
        if let Err(failure) = &written
            && !checkpoint::can_encode(&plan.record)
        {
            // It would never be written, and the number would be used again.
            return Err(failure.clone());
        }
        self.write_manifest(&rendered.file, rendered).inspect_err(|_| {
            if written.is_ok() && self.save_record(&before).is_ok() {
                // The instance is not there, and its number is still free.
                outcome.records.remove(&plan.key);
            }
        })
    }

    /// Refuses to start an instance in the place of one whose manifest cannot be removed.
    fn refuse_second(&self, plan: &DaemonPlan) -> Result<(), EffectFailure> {
        let starts = plan.actions.iter().any(|action| matches!(action, Action::Start { .. }));
        let Some(manifests) = self.manifests.as_ref().filter(|_| starts) else { return Ok(()) };
        for action in &plan.actions {
            let Action::End { uid, pod, .. } = action else { continue };
            manifests.refuse_foreign_pod(uid).map_err(|e| failure::of(&e, e.hint()))?;
            if manifests.last_scan().is_unreadable(&plan.key.namespace, pod) {
                return Err(LocalFailure::ManifestUnreadable.into());
            }
        }
        Ok(())
    }

    /// Whether the disk takes what comes in the place of the instance `uid`; that stays otherwise.
    fn try_room(&mut self, uid: &str, successor: Option<&RenderResult>) -> Result<(), EffectFailure> {
        let Some(rendered) = successor.and_then(rendered) else { return Ok(()) };
        let kept = |EffectFailure { cause, hint }| EffectFailure { cause: LocalFailure::NoRoom(Box::new(cause)), hint };
        let room = self.volumes.try_room(uid, &rendered.pod.volumes);
        room.map_err(|e| kept(failure::of(&e, e.hint())))?;
        let Some(manifests) = &mut self.manifests else { return Err(LocalFailure::NoManifestFolder.into()) };
        manifests.try_room(&rendered.file, rendered.text.as_bytes()).map_err(|e| kept(failure::of(&e, e.hint())))
    }

    /// The record first: its incarnation number must be on disk before the manifest goes.
    fn end(
        &mut self,
        plan: &DaemonPlan,
        uid: &str,
        pod: &str,
        decision: &Decision,
        outcome: &mut EffectOutcome,
    ) -> Result<(), EffectFailure> {
        let is_written = outcome.records.contains_key(&plan.key);
        if self.is_unsynced(&plan.key) || !is_written && is_news(&plan.record, decision, outcome) {
            self.save_record(&plan.record)?;
        }
        outcome.records.insert(plan.key.clone(), RecordFate::OnDisk);
        let Some(manifests) = &mut self.manifests else { return Err(LocalFailure::NoManifestFolder.into()) };
        let scan = manifests.scan().map_err(|e| failure::of(&e, e.hint()))?;
        let file = manifest::file_name(&plan.key.namespace, pod);
        // A copy under another name would keep the pod alive.
        let mut found: Vec<&str> = scan.ours.values().filter(|m| m.uid == uid).map(|m| m.file.as_str()).collect();
        if found.is_empty() {
            found.push(&file);
        }
        for file in found {
            manifests.remove(file).map_err(|e| failure::of(&e, e.hint()))?;
        }
        manifests.refuse_foreign_pod(uid).map_err(|e| failure::of(&e, e.hint()))
    }

    /// An existing folder of an instance that starts was written by an agent that died before it wrote the manifest.
    fn distrust(&self, action: &Action) {
        if let Action::Start { rendering, .. } = action {
            self.volumes.distrust(&rendering.identity.uid, rendering.volumes());
        }
    }

    /// Gives whether the disk did not have it all.
    fn write_volumes(
        &mut self,
        rendering: &RenderResult,
        kept: &BTreeSet<String>,
        outcome: &mut EffectOutcome,
    ) -> Result<bool, EffectFailure> {
        let uid = &rendering.identity.uid;
        let volumes = rendering.volumes_without(kept);
        let written = self.volumes.write(uid, volumes.iter().map(|volume| &**volume)).map_err(|e| {
            outcome.unwritten.insert(uid.clone());
            failure::of(&e, e.hint())
        })?;
        outcome.written.insert(uid.clone(), rendering.data.without(kept));
        Ok(!written.is_empty())
    }

    /// Closes the gate of a new instance before its manifest is written.
    fn close_new(
        &mut self,
        rendering: &RenderResult,
        config: &Config,
        outcome: &mut EffectOutcome,
    ) -> Result<(), EffectFailure> {
        let uid = &rendering.identity.uid;
        self.close_gate(uid, config)?;
        outcome.written.insert(uid.clone(), rendering.data.without(&BTreeSet::from([GATE.to_owned()])));
        Ok(())
    }

    /// A manifest that has just been removed is left to the next pass, which finds it missing; one that was lost with the disk
    /// is written again.
    fn rewrite_manifest(
        &mut self,
        plan: &DaemonPlan,
        identity: &Identity,
        rendered: &Rendered,
        decision: &Decision,
    ) -> Result<(), EffectFailure> {
        let Some(manifests) = &mut self.manifests else { return Err(LocalFailure::NoManifestFolder.into()) };
        // The manifest may have been renamed. A rename after this pass looked is seen by the next pass.
        let file = match manifests.last_scan().ours.values().find(|manifest| manifest.uid == identity.uid) {
            Some(manifest) => manifest.file.clone(),
            None => {
                manifests.refuse_foreign_pod(&identity.uid).map_err(|e| failure::of(&e, e.hint()))?;
                manifest::file_name(&plan.key.namespace, &identity.pod_name)
            }
        };
        if decision.state.concerns.manifests_lost_at_boot.uids().any(|lost| lost == identity.uid) {
            return self.write_manifest(&file, rendered);
        }
        match manifests.rewrite(&file, rendered.text.as_bytes(), &rendered.pod.pod) {
            Ok(()) | Err(ManifestError::Gone { .. }) => Ok(()),
            Err(e) => Err(failure::of(&e, e.hint())),
        }
    }

    fn write_manifest(&mut self, file: &str, rendered: &Rendered) -> Result<(), EffectFailure> {
        let Some(manifests) = &mut self.manifests else { return Err(LocalFailure::NoManifestFolder.into()) };
        let written = manifests.write(file, rendered.text.as_bytes(), &rendered.pod.pod);
        written.map_err(|e| failure::of(&e, e.hint()))
    }

    /// Writes a record that differs from the one on disk: no effect before [`Executor::sync`] needs it, and no other daemon's
    /// manifest waits for it.
    fn persist(
        &mut self,
        plan: &DaemonPlan,
        decision: &Decision,
        outcome: &mut EffectOutcome,
    ) -> Result<(), EffectFailure> {
        if outcome.records.contains_key(&plan.key) {
            return Ok(());
        }
        if self.state.is_none() {
            // That is reported once, and not by every daemon.
            outcome.records.insert(plan.key.clone(), RecordFate::InMemory);
            return Ok(());
        }
        if is_news(&plan.record, decision, outcome) {
            return self.write_record(&plan.record, outcome);
        }
        outcome.records.insert(plan.key.clone(), RecordFate::OnDisk);
        Ok(())
    }
}

/// Whether a record says more than what is on disk.
fn is_news(record: &DaemonRecord, decision: &Decision, outcome: &EffectOutcome) -> bool {
    let state = &decision.state;
    match state.records.get(&record.key) {
        Some(known) => known != record || state.unsaved.contains(&record.key) || outcome.state_folder_is_new,
        None => !record.is_empty(state.floor),
    }
}

/// The instance that `plan` puts on this disk as the first thing that it does.
fn new_here<'a>(plan: &'a DaemonPlan, lost: &BTreeSet<&str>) -> Option<&'a RenderResult> {
    match plan.actions.first()? {
        Action::Start { rendering, .. } => Some(rendering),
        Action::Refresh { rendering, volumes: true, manifest: true, .. }
            if lost.contains(rendering.identity.uid.as_str()) =>
        {
            Some(rendering)
        }
        _ => None,
    }
}

fn rendered(rendering: &RenderResult) -> Option<&Rendered> {
    rendering.result.as_ref().ok()
}

#[cfg(test)]
mod tests;
