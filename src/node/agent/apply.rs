//! Executes a daemon's plan: dumb effects, in the plan's order, stopping at the first that fails.
//!
//! Owns the effects on manifests, volume data and records. Must not decide anything.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::core::model::ObjectKey;
use crate::core::plan::Action;
use crate::core::plan::DaemonPlan;
use crate::core::record::DaemonRecord;
use crate::core::rendering::RenderResult;
use crate::core::rendering::Rendered;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::checkpoint;
use crate::node::checkpoint::Store;
use crate::node::fsx::Shared;
use crate::node::fsx::Unsynced;
use crate::node::manifests::ManifestDir;
use crate::node::manifests::ManifestError;
use crate::node::volumes::Cleared;
use crate::node::volumes::Volumes;
use crate::node::volumes::VolumesRoot;

/// How long the kubelet is given to clear an ended pod's folder itself.
const CLEAR_AFTER: Span = Span::from_secs(10);

/// Something that an effect did or could not do, in words for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// What failed, with its causes.
    pub(super) message: String,
    /// What to do about it.
    pub(super) hint: Option<String>,
}

/// The node's disk as the agent writes it.
pub(super) struct Disk {
    pub(super) files: Shared,
    /// `None` while the folder cannot be used.
    pub(super) manifests: Option<ManifestDir>,
    pub(super) volumes: Volumes,
    /// `None` while the state folder cannot be used: then nothing is removed or replaced.
    pub(super) records_store: Option<Store>,
    /// The checkpoint of inputs, likewise.
    pub(super) inputs_store: Option<Store>,
    pub(super) records: BTreeMap<ObjectKey, DaemonRecord>,
    /// The number that a daemon without a record begins at.
    pub(super) floor: u64,
    /// Whether that number is on disk.
    pub(super) floor_saved: bool,
    /// Instances whose manifests went with the disk, and nobody removed.
    pub(super) lost: BTreeSet<String>,
    /// Records that are newer than what is on disk.
    pub(super) unsaved: BTreeSet<ObjectKey>,
    /// Records that are written and not yet synced.
    pub(super) unsynced: Vec<(ObjectKey, checkpoint::UnsyncedRecord)>,
    /// Daemons whose manifests are written; the manifest folder is not yet synced.
    pub(super) pending_dir_sync: Vec<ObjectKey>,
    /// Digest of the data that was last written, by pod UID.
    pub(super) written: BTreeMap<String, String>,
    /// Folders of ended pods that could not be cleared, and when to try again.
    pub(super) clear_again: BTreeMap<String, Timestamp>,
}

impl Disk {
    /// The disk below `kubelet_root` before anything of it has been read.
    pub(super) fn new(
        files: Shared,
        kubelet_root: &Path,
        inputs_store: Option<Store>,
        records_store: Option<Store>,
    ) -> Self {
        Self {
            manifests: None,
            volumes: Volumes::new(Arc::clone(&files), VolumesRoot::kubelet(kubelet_root)),
            files,
            records_store,
            inputs_store,
            records: BTreeMap::new(),
            floor: 0,
            floor_saved: true,
            lost: BTreeSet::new(),
            unsaved: BTreeSet::new(),
            unsynced: Vec::new(),
            pending_dir_sync: Vec::new(),
            written: BTreeMap::new(),
            clear_again: BTreeMap::new(),
        }
    }

    /// Stages the manifests and writes the volume data of all instances of `plans` that are new on this disk, and
    /// waits for the disk once for all of them: [`Disk::apply`] finds it done. A boot has many of them.
    ///
    /// No more than a hint: nothing takes its name, and what fails is done again by [`Disk::apply`], which tells it.
    pub(super) fn prewrite(&mut self, plans: &[DaemonPlan]) {
        let news = || plans.iter().filter_map(|plan| new_here(plan, &self.lost)).map(|new| (&new.identity.uid, new));
        let news: Vec<_> = news().filter_map(|(uid, new)| Some((uid.as_str(), rendered(new)?))).collect();
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

    /// Does what `plan` says. Gives what was done before the first failure.
    pub(super) fn apply(&mut self, plan: &DaemonPlan) -> Result<(), Failure> {
        for action in &plan.actions {
            match action {
                Action::End { uid, pod, .. } => self.end(plan, uid, pod)?,
                Action::Finish { uid, .. } => drop(self.written.remove(uid)),
                Action::Start { rendering, .. } => {
                    let Some(rendered) = rendered(rendering) else { continue };
                    if let Some(manifests) = self.manifests.as_mut().filter(|m| !m.has_prepared(&rendered.file)) {
                        // Its place is taken when the data is there; the disk can take it with the data.
                        manifests.prepare(&rendered.file, rendered.text.as_bytes(), None);
                    }
                    self.write_volumes(rendering, rendered)?;
                    self.start(plan, rendered)?;
                    self.pending_dir_sync.push(plan.key.clone());
                }
                Action::Refresh { rendering, volumes, manifest } => {
                    let Some(rendered) = rendered(rendering) else { continue };
                    if *volumes {
                        self.write_volumes(rendering, rendered)?;
                    }
                    if *manifest {
                        self.rewrite_manifest(&rendering.identity.uid, rendered)?;
                        self.pending_dir_sync.push(plan.key.clone());
                    }
                }
                Action::Confirm { .. } | Action::Keep { .. } => {}
            }
        }
        self.persist(&plan.record).inspect_err(|_| {
            // What has been done is remembered all the same: a number that was used is used up.
            self.records.insert(plan.record.key.clone(), plan.record.clone());
            self.unsaved.insert(plan.record.key.clone());
        })
    }

    /// The record first: an agent that dies after the manifest must find its number used up, or it would
    /// use it again if somebody removed the manifest meanwhile. A record that cannot be saved holds no
    /// daemon up; the end of the plan says it.
    ///
    /// It is put, which outlives the agent, and waited for when the manifest is in place ([`Disk::sync`]). A
    /// pod UID whose manifest was removed is never used again, whatever a loss of power takes in between:
    /// * the manifest is there: its number is read from it (`adopt`), and so is used up;
    /// * the record is there: it is used up;
    /// * neither is there: the kubelet and the runtime that may have seen the manifest, even its removal by
    ///   somebody else, went with the power, and the kubelet that starts has never seen it go;
    /// * we removed the manifest ourselves: the record was saved, not put, before ([`Disk::end`]).
    fn start(&mut self, plan: &DaemonPlan, rendered: &Rendered) -> Result<(), Failure> {
        let key = &plan.record.key;
        let before = self.records.get(key).cloned().unwrap_or_else(|| self.new_record(key));
        let saved = self.write_unsynced(&plan.record);
        self.write_manifest(rendered).inspect_err(|_| {
            if saved.is_ok() {
                // The instance is not there, and its number is still free.
                let _ = self.save(&before);
            }
        })
    }

    /// The record first: its incarnation number must be on disk before the manifest goes.
    fn end(&mut self, plan: &DaemonPlan, uid: &str, pod: &str) -> Result<(), Failure> {
        if self.unsynced.iter().any(|(key, _)| *key == plan.record.key) {
            self.unsaved.insert(plan.record.key.clone());
        }
        self.save(&plan.record)?;
        let file = crate::core::manifest::file_name(&plan.key.namespace, pod);
        let Some(manifests) = &mut self.manifests else { return Err(unusable("manifest")) };
        let scan = manifests.scan().map_err(|e| failure(&e, e.hint()))?;
        // A copy under another name would keep the pod alive.
        let mut found: Vec<&str> = scan.ours.values().filter(|m| m.uid == uid).map(|m| m.file.as_str()).collect();
        if found.is_empty() {
            found.push(&file);
        }
        for file in found {
            manifests.remove(file).map_err(|e| failure(&e, e.hint()))?;
        }
        Ok(())
    }

    fn write_volumes(&mut self, rendering: &RenderResult, rendered: &Rendered) -> Result<(), Failure> {
        let uid = &rendering.identity.uid;
        self.volumes.write(uid, &rendered.pod.volumes).map_err(|e| failure(&e, e.hint()))?;
        self.written.insert(uid.clone(), rendered.data_digest.clone());
        Ok(())
    }

    /// One that has just been removed is for the next pass, which finds it missing; one that went with the disk
    /// is put back.
    fn rewrite_manifest(&mut self, uid: &str, rendered: &Rendered) -> Result<(), Failure> {
        if self.lost.contains(uid) {
            return self.write_manifest(rendered);
        }
        let Some(manifests) = &mut self.manifests else { return Err(unusable("manifest")) };
        match manifests.rewrite(&rendered.file, rendered.text.as_bytes(), &rendered.pod.pod) {
            Ok(()) | Err(ManifestError::Gone { .. }) => Ok(()),
            Err(e) => Err(failure(&e, e.hint())),
        }
    }

    fn write_manifest(&mut self, rendered: &Rendered) -> Result<(), Failure> {
        let Some(manifests) = &mut self.manifests else { return Err(unusable("manifest")) };
        manifests.write(&rendered.file, rendered.text.as_bytes(), &rendered.pod.pod).map_err(|e| failure(&e, e.hint()))
    }

    /// Whether a record says more than what is on disk.
    fn is_news(&self, record: &DaemonRecord) -> bool {
        match self.records.get(&record.key) {
            Some(known) => known != record || self.unsaved.contains(&record.key),
            None => !record.is_empty(self.floor),
        }
    }

    /// Puts a record that differs from the one on disk: nothing that is done before [`Disk::sync`] needs it, and no
    /// other daemon's manifest waits for it.
    fn persist(&mut self, record: &DaemonRecord) -> Result<(), Failure> {
        if self.is_news(record) {
            return self.write_unsynced(record);
        }
        // Equal definitions become one: it is in memory once, and compared by its address.
        if let Some(known) = self.records.get_mut(&record.key) {
            for (known, equal) in known.instances.iter_mut().zip(&record.instances) {
                known.daemon_set.clone_from(&equal.daemon_set);
            }
        }
        Ok(())
    }

    /// Saves a record that differs from the one on disk.
    pub(super) fn save(&mut self, record: &DaemonRecord) -> Result<(), Failure> {
        if !self.is_news(record) {
            return Ok(());
        }
        let Some(store) = &self.records_store else { return Err(unusable("state")) };
        store.save(&name(&record.key), record).map_err(|e| failure(&e, e.hint()))?;
        self.unsynced.retain(|(key, _)| *key != record.key);
        self.records.insert(record.key.clone(), record.clone());
        self.unsaved.remove(&record.key);
        Ok(())
    }

    /// As [`Disk::save`], for a loss of power only after [`Disk::sync`].
    fn write_unsynced(&mut self, record: &DaemonRecord) -> Result<(), Failure> {
        let Some(store) = &self.records_store else { return Err(unusable("state")) };
        let unsynced = store.write_unsynced(&name(&record.key), record).map_err(|e| failure(&e, e.hint()))?;
        self.records.insert(record.key.clone(), record.clone());
        self.unsaved.remove(&record.key);
        self.unsynced.retain(|(key, _)| *key != record.key);
        self.unsynced.push((record.key.clone(), unsynced));
        Ok(())
    }

    /// Waits until the manifests' names and the records that were put are on stable storage. What fails is put and not
    /// saved.
    pub(super) fn sync(&mut self) -> Vec<(ObjectKey, Failure)> {
        let mut failures = Vec::new();
        let pending_dir_sync = std::mem::take(&mut self.pending_dir_sync);
        if let Some(Err(e)) = self.manifests.as_mut().map(ManifestDir::sync) {
            failures.extend(pending_dir_sync.into_iter().map(|key| (key, failure(&e, e.hint()))));
        }
        let Some(store) = &self.records_store else { return failures };
        let renamed = |(key, unsynced)| {
            let renamed = store.rename(&unsynced);
            (key, unsynced, renamed)
        };
        let renamed: Vec<_> = std::mem::take(&mut self.unsynced).into_iter().map(renamed).collect();
        // Who was the last to be placed is waited for, and all the others with it.
        let last = renamed.iter().rev().find(|(_, _, renamed)| renamed.is_ok());
        let synced = last.map_or(Ok(()), |(_, unsynced, _)| store.sync_dir(unsynced));
        for (key, _, renamed) in renamed {
            if let Err(e) = renamed.as_ref().and(synced.as_ref()) {
                self.unsaved.insert(key.clone());
                failures.push((key, failure(e, e.hint())));
            }
        }
        failures
    }

    /// When the next folder of an ended pod is to be cleared: the kubelet is given time to do it itself.
    pub(super) fn clear_at(&self) -> Option<Timestamp> {
        let ended = self.records.values().flat_map(|r| &r.ended);
        ended.map(|(uid, since)| self.clear_again.get(uid).copied().unwrap_or(*since + CLEAR_AFTER)).min()
    }

    /// Clears folders of ended pods whose time has come; what is still mounted is tried again later.
    pub(super) fn clear_ended(&mut self, now: Timestamp) -> Vec<Failure> {
        if self.clear_at().is_none_or(|at| at > now) {
            return Vec::new();
        }
        let mut failures = Vec::new();
        let records: Vec<DaemonRecord> = self.records.values().filter(|r| !r.ended.is_empty()).cloned().collect();
        for mut record in records {
            let again = &mut self.clear_again;
            let volumes = &mut self.volumes;
            record.ended.retain(|uid, since| {
                if again.get(uid).copied().unwrap_or(*since + CLEAR_AFTER) > now {
                    return true;
                }
                match volumes.clear(uid) {
                    Ok(Cleared::Gone | Cleared::Foreign { .. }) => {
                        again.remove(uid);
                        false
                    }
                    Ok(Cleared::Mounted { .. }) => {
                        again.insert(uid.clone(), now + CLEAR_AFTER);
                        true
                    }
                    Err(e) => {
                        again.insert(uid.clone(), now + CLEAR_AFTER * 6);
                        failures.push(failure(&e, e.hint()));
                        true
                    }
                }
            });
            if let Err(failed) = self.save(&record) {
                let ended = self.records.get(&record.key).into_iter().flat_map(|r| r.ended.keys().cloned());
                self.clear_again.extend(ended.map(|uid| (uid, now + CLEAR_AFTER * 6)));
                failures.push(failed);
            }
        }
        failures
    }
}

/// The instance that `plan` puts on this disk as the first thing that it does.
fn new_here<'a>(plan: &'a DaemonPlan, lost: &BTreeSet<String>) -> Option<&'a RenderResult> {
    match plan.actions.first()? {
        Action::Start { rendering, .. } => Some(rendering),
        Action::Refresh { rendering, volumes: true, manifest: true } if lost.contains(&rendering.identity.uid) => {
            Some(rendering)
        }
        _ => None,
    }
}

fn rendered(rendering: &RenderResult) -> Option<&Rendered> {
    rendering.result.as_ref().ok()
}

/// A record's name in the state folder; a namespace has no underscore.
pub(super) fn name(key: &ObjectKey) -> String {
    format!("{}_{}", key.namespace, key.name)
}

fn unusable(folder: &str) -> Failure {
    Failure { message: format!("the {folder} folder cannot be used: nothing is changed"), hint: None }
}

/// An error with its causes, as one line.
pub(super) fn failure(error: &dyn std::error::Error, hint: Option<String>) -> Failure {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message.push_str(": ");
        message.push_str(&cause.to_string());
        source = cause.source();
    }
    Failure { message, hint }
}
