//! Adoption: manifests and sandboxes that no record knows, and instances whose DaemonSet is gone.
//!
//! Owns which record they go to; [`crate::core::adopt`] owns whether they may.

use std::collections::BTreeMap;
use std::collections::HashSet;

use crate::core::adopt;
use crate::core::adopt::AdoptableManifest;
use crate::core::knowledge::Knowledge;
use crate::core::manifest::file_name;
use crate::core::model::Mode;
use crate::core::model::ObjectKey;
use crate::core::policy::Covered;
use crate::core::record::DaemonRecord;
use crate::core::record::Instance;
use crate::core::time::Span;
use crate::node::agent::floor::Floor;
use crate::node::agent::log::Log;
use crate::node::agent::observation::Observation;
use crate::node::agent::runtime_pods::DescribedInstance;
use crate::node::agent::runtime_pods::RuntimePod;

use super::AgentState;
use super::FloorSource;

/// No agent has made so many instances: a manifest with such a number was tampered with.
const MOST: u64 = 1 << 48;
/// How long an agent that is started beside a kubelet waits for a runtime that does not answer, and for the kubelet's where
/// another one answers: the kubelet can start nothing meanwhile, either, or has ended what has no manifest.
const SILENCE: Span = Span::from_secs(30);

impl AgentState {
    /// Where the floor is lost: one that is above every number seen in records and manifests, with room for those that
    /// were lost with it.
    pub(super) fn find_floor(&mut self, observation: &Observation) {
        let Some(scan) = observation.manifests.current() else { return };
        let numbers = scan.ours.values().filter_map(|manifest| manifest.incarnation).filter(|number| *number < MOST);
        let seen = self.records.values().map(|record| record.next_incarnation).chain(numbers.map(|number| number + 1));
        let highest = seen.max();
        self.floor = match (std::mem::take(&mut self.floor_source), highest) {
            (FloorSource::Disk, _) | (FloorSource::New, None) => return,
            (FloorSource::New | FloorSource::Lost, highest) => self.floor.max(Floor::above(highest.unwrap_or(0))),
            // The next agent would find the same: the time makes their numbers differ.
            (FloorSource::NoStateFolder, highest) => {
                let seconds = u64::try_from(observation.now.as_millis() / 1_000).unwrap_or(0);
                self.floor.max(Floor::above(highest.unwrap_or(0)).saturating_add(seconds))
            }
        };
    }

    /// Takes over manifests of ours that no record knows.
    pub(super) fn adopt_manifests(&mut self, observation: &Observation, log: &mut Log) {
        let Some(scan) = observation.manifests.current() else { return };
        let known: BTreeMap<String, ObjectKey> =
            self.records.values().flat_map(|r| r.instances.iter().map(|i| (i.uid.clone(), r.key.clone()))).collect();
        let remembers = !self.records.is_empty();
        // One whose owner was changed is still that daemon's, and is repaired with its other content.
        let strays = |uid: &str, owner: &ObjectKey| known.get(uid).is_some_and(|key| key != owner);
        for manifest in scan.ours.values().filter(|m| !m.uid.is_empty() && !strays(&m.uid, &m.owner)) {
            let floor = self.floor;
            let new = || DaemonRecord::new(manifest.owner.clone(), floor);
            let record = self.records.entry(manifest.owner.clone()).or_insert_with(new);
            let found = AdoptableManifest {
                uid: &manifest.uid,
                pod_name: &manifest.pod_name,
                incarnation: manifest.incarnation.filter(|number| *number < MOST).unwrap_or(0),
                revision: &manifest.revision,
            };
            let is_later = found.incarnation >= record.next_incarnation;
            if adopt::adopt(record, &found, observation.now, |uid| scan.has(uid)) {
                let pod = &manifest.pod_name;
                let line = format!("took over the manifest of {pod}, which is ours and which no record knows");
                log.info(line).daemonset(&manifest.owner).pod(pod);
                // A number is on disk before its manifest: all that is remembered may be as old as what does not know it. That
                // a record is lost does not concern the others: the floor is above its numbers.
                self.inputs.incomplete |= remembers && is_later;
                // Its definition was remembered and is lost; on a new disk there is nothing older to compare it with.
                if self.has_no_inputs && !observation.empty_volumes.contains_key(&manifest.uid) {
                    self.inputs.lost();
                }
            }
        }
    }

    /// Takes over what runs without a manifest and that no record knows, so that no second instance starts beside it.
    pub(super) fn adopt_sandboxes(&mut self, observation: &Observation, node: &str, log: &mut Log) {
        let is_first = self.passes == 0;
        self.may_run_unrecorded &= match &observation.runtime {
            Knowledge::NeverHeard | Knowledge::Remembered(..) => !is_first || observation.may_have_run,
            Knowledge::Unreadable(_) => observation.steady < SILENCE,
            Knowledge::Current(pods) => observation.steady < SILENCE && self.is_contradicted(observation, pods),
            Knowledge::Absent(_) => false,
        };
        let (Some(pods), Some(scan)) = (observation.runtime.current(), observation.manifests.current()) else { return };
        let known: HashSet<&str> = {
            let recorded = self.records.values().flat_map(|record| &record.instances).map(|i| i.uid.as_str());
            recorded.chain(scan.ours.values().map(|manifest| manifest.uid.as_str())).collect()
        };
        let alive = pods.iter().filter(|pod| pod.alive && !known.contains(pod.uid.as_str()));
        let unknown: Vec<_> = alive.filter_map(|pod| Some((pod, pod.instance.as_ref()?))).collect();
        let suffix = format!("-{}", node.to_lowercase());
        let name = |found: &'_ DescribedInstance| found.pod.strip_suffix(&suffix).unwrap_or(&found.pod).to_owned();
        let names = unknown.iter().map(|(_, found)| file_name(&found.owner.namespace, &name(found)));
        let names: HashSet<String> = names.collect();
        // What cannot be read may be the manifest of any of them.
        if scan.unreadable.keys().any(|file| !names.contains(file)) {
            return;
        }
        for (pod, found) in unknown.into_iter().filter(|(_, found)| found.incarnation < MOST) {
            let (floor, pod_name) = (self.floor, name(found));
            let new = || DaemonRecord::new(found.owner.clone(), floor);
            let record = self.records.entry(found.owner.clone()).or_insert_with(new);
            let ending =
                AdoptableManifest { uid: &pod.uid, pod_name: &pod_name, incarnation: found.incarnation, revision: "" };
            if scan.is_unreadable(&found.owner.namespace, &pod_name) {
                // It goes on, as the kubelet may read its manifest.
                adopt::adopt(record, &ending, observation.now, |_| true);
            } else if adopt::adopt_ending(record, &ending, observation.now, &observation.boot.id) {
                let line =
                    format!("{} runs and has no manifest, and no record knows it: waiting for its end", found.pod);
                log.warn(line).daemonset(&found.owner).pod(ending.pod_name);
            }
        }
    }

    /// Whether a runtime may be another than that of the kubelet, which has run pods in this boot: it lists nothing of ours.
    fn is_contradicted(&self, observation: &Observation, pods: &[RuntimePod]) -> bool {
        let mut live = self.records.values().flat_map(DaemonRecord::live).peekable();
        let is_listed = |instance: &Instance| pods.iter().any(|pod| pod.uid == instance.uid);
        observation.may_have_run && live.peek().is_some() && !live.any(is_listed)
    }

    /// Gives orphans to a DaemonSet of the API that selects them. Gives those that have new ones.
    pub(super) fn adopt_orphans(&mut self, observation: &Observation, log: &mut Log) -> Vec<ObjectKey> {
        adopt::drop_adopted(&mut self.records);
        let mut adopters = Vec::new();
        let are_there = self.records.values().any(|r| r.live().any(|i| i.orphaned));
        if !observation.api_answers() || !are_there {
            return adopters;
        }
        let definitions = &self.definitions;
        for key in definitions.ours(&self.policy) {
            let Some(daemon_set) = definitions.get(key).filter(|d| !d.deleting) else { continue };
            if self.policy.covers(daemon_set, None) != Covered::Yes(Mode::Static)
                || !adopt::adopt_orphans(&mut self.records, daemon_set, self.floor, |key| {
                    definitions.get(key).is_some()
                })
            {
                continue;
            }
            let pods = self.records.get(key).into_iter().flat_map(|r| r.live().map(|i| i.pod_name.as_str()));
            log.info(format!("adopts {}", pods.collect::<Vec<_>>().join(", "))).daemonset(key);
            adopters.push(key.clone());
        }
        adopters
    }
}
