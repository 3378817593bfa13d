//! The manifest folder as a pass reads it, and the watch on it.
//!
//! Opens the folder for the executor, which makes it where it is missing and clears what an earlier agent has staged. Must
//! not write a manifest.

use std::sync::Arc;

use crate::config::Config;
use crate::core::knowledge::Knowledge;
use crate::core::record::DaemonRecord;
use crate::core::status::Problem;
use crate::core::time::Timestamp;
use crate::node::agent::executor::Executor;
use crate::node::agent::executor::problem;
use crate::node::agent::failure;
use crate::node::agent::failure::EffectFailure;
use crate::node::agent::state::AgentState;
use crate::node::agent::state::Purpose;
use crate::node::manifests::Manifest;
use crate::node::manifests::ManifestDir;
use crate::node::manifests::Scan;

use super::Inputs;
use super::node;

impl Inputs {
    pub(super) fn read_manifests(
        &self,
        state: &AgentState,
        config: &Config,
        (executor, now): (&mut Executor, Timestamp),
        problems: &mut Vec<Problem>,
    ) -> Knowledge<Arc<Scan>> {
        let unreadable = |failure: EffectFailure, problems: &mut Vec<Problem>| {
            problems.push(problem("manifest folder", failure.clone()));
            Knowledge::Unreadable(failure.cause)
        };
        if executor.manifests.is_none() {
            if let Some(why) = node::has_moved(&self.files, state, config, &self.boot, now) {
                return unreadable(why, problems);
            }
            let opened = match state.purpose {
                Purpose::Work => {
                    ManifestDir::open(&self.files, &config.manifest_dir, &mut executor.manifest_lock).map(Some)
                }
                Purpose::Answer => ManifestDir::open_read_only(&self.files, &config.manifest_dir),
            };
            match opened {
                Ok(mut manifests) => {
                    let instances = state.records.values().flat_map(|record| {
                        record.instances.iter().map(|instance| Manifest::recorded(&record.key, instance))
                    });
                    manifests.iter_mut().for_each(|folder| folder.remember(instances.clone()));
                    executor.manifests = manifests;
                }
                Err(error) => return unreadable(failure::of(&error, error.hint()), problems),
            }
        }
        // Nothing is watched before the manifests of a boot are there: they come first.
        if state.passes > 0 {
            self.watch_manifests(executor, problems);
        }
        let Some(manifests) = &mut executor.manifests else { return Knowledge::Current(Arc::default()) };
        match manifests.scan() {
            Ok(scan) => {
                let unreadable = scan.unreadable.iter();
                problems.extend(unreadable.map(|(file, error)| problem(file, failure::of(error, error.hint()))));
                problems.extend(copies(&scan));
                problems.extend(foreign_pods(&scan, state));
                Knowledge::Current(scan)
            }
            Err(error) => {
                executor.manifest_lock = executor.manifests.take().and_then(ManifestDir::into_lock);
                unreadable(failure::of(&error, error.hint()), problems)
            }
        }
    }

    /// Watches the manifest folder where it is not watched yet; failing that, the next pass tries again.
    fn watch_manifests(&self, executor: &mut Executor, problems: &mut Vec<Problem>) {
        let wake = Arc::clone(&self.wake);
        let manifests = executor.manifests.as_mut();
        let Some(manifests) = manifests.filter(|manifests| !manifests.is_watched()) else { return };
        if let Err(error) = manifests.watch(move || wake.notify_one()) {
            problems.push(problem("manifest folder", failure::of(&error, error.hint())));
        }
    }
}

/// Copies of our manifests: the kubelet takes one of them by chance.
fn copies(scan: &Scan) -> impl Iterator<Item = Problem> {
    let twins = |m: &Manifest| scan.ours.values().any(|other| other.uid == m.uid && other.file != m.file);
    scan.ours.values().filter(move |m| m.is_copy() && twins(m)).map(|m| Problem {
        object: m.file.clone(),
        reason: format!("a copy of the manifest of pod {}: the kubelet takes only one of them", m.pod_name),
        hint: Some("remove the copy from the manifest folder".to_owned()),
    })
}

/// Files of other programs that have pods of ours.
fn foreign_pods(scan: &Scan, state: &AgentState) -> impl Iterator<Item = Problem> {
    let daemon = |uid: &String| {
        let has_it = |record: &&DaemonRecord| record.instance(uid).is_some() || record.ended.contains_key(uid);
        state.records.values().find(has_it).map(|record| record.key.clone())
    };
    scan.foreign.iter().filter_map(move |(uid, file)| {
        let daemon = daemon(uid)?;
        Some(Problem {
            object: file.clone(),
            reason: format!(
                "it is not daemonlet's, and its pod has the UID of a pod of {daemon}, which runs on from it"
            ),
            hint: Some(format!("move {file} out of the manifest folder")),
        })
    })
}
