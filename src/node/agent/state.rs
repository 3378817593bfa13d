//! What the agent carries from pass to pass.
//!
//! Owns the way an observation goes into it ([`AgentState::absorb`]) and what is kept of a decision once its effects are
//! known ([`AgentState::commit`]). Pure: a value in, a value out.

mod adoption;
mod cleared;
mod follow;
pub(super) mod set_aside;

use crate::node::agent::failure::EffectFailure;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::config::Config;
use crate::core::knowledge::Unlinked;
use crate::core::model::NodeView;
use crate::core::model::ObjectKey;
use crate::core::pass::Plan;
use crate::core::plan::DaemonPlan;
use crate::core::policy::Policy;
use crate::core::record::DaemonRecord;
use crate::core::set_aside::SetAside;
use crate::core::status::Problem;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::concerns::Concerns;
use super::concerns::acceptance::RuntimeChoice;
use super::concerns::restart_orders;
use super::concerns::restart_orders::Surroundings;
use super::concerns::volume_checks::Instances;
use super::definitions::ApiDefinitions;
use super::ending;
use super::inputs_on_disk::InputsOnDisk;
use super::log::Log;
use super::observation::Observation;
use super::outcome::EffectOutcome;
use super::outcome::RecordFate;
use super::records::Records;
use super::remembered_inputs::RememberedInputs;
use super::render_cache::VersionedOptions;

/// What an agent may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) enum Purpose {
    Work,
    /// It answers one question and changes nothing.
    Answer,
}

/// The goal of the passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) enum Goal {
    /// The daemons that folders and API define run here.
    #[default]
    Run,
    /// The same, and this process ends then: what starts after others is not withheld.
    Once,
    /// Nothing of ours runs here any more.
    Teardown,
}

/// What the agent carries from pass to pass.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct AgentState {
    pub(super) purpose: Purpose,
    pub(super) goal: Goal,
    /// When the agent was started.
    pub(super) started: Timestamp,
    /// Passes made so far; in the first one nothing is known of API server and runtime.
    pub(super) passes: u64,
    pub(super) policy: Arc<Policy>,
    pub(super) records: Records,
    /// Records that differ from what is on disk.
    pub(super) unsaved: BTreeSet<ObjectKey>,
    /// Why effects of the last pass failed: of these daemons the cluster reads the record that is in force.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) failed: BTreeMap<ObjectKey, EffectFailure>,
    /// The number that a daemon without a record begins at.
    pub(super) floor: u64,
    #[serde(default)]
    pub(super) floor_source: FloorSource,
    pub(super) inputs: RememberedInputs,
    pub(super) inputs_on_disk: InputsOnDisk,
    pub(super) definitions: ApiDefinitions,
    pub(super) node: NodeView,
    pub(super) options: VersionedOptions,
    /// Digest of the volume data that this process last wrote, by pod UID.
    pub(super) written: BTreeMap<String, String>,
    /// Folders of ended pods that could not be cleared, and when to try again.
    pub(super) clear_again: BTreeMap<String, Timestamp>,
    /// Problems that no pass can mend, such as a damaged checkpoint.
    pub(super) startup_problems: Vec<Problem>,
    /// The problem of the configuration on disk, instead of which an earlier one stays in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) unusable_configuration: Vec<Problem>,
    pub(super) concerns: Concerns,
    /// Definitions of tenants that cost too much to work on.
    #[serde(default)]
    pub(super) set_aside: SetAside,
    /// Since when this process has seen instances end, by its steady clock.
    #[serde(default)]
    pub(super) ending_since: BTreeMap<String, Span>,
    /// Instances whose UIDs contain another name than the node's, and that name.
    #[serde(default)]
    pub(super) made_under: BTreeMap<String, String>,
    /// Whether a replacement waits for the container runtime's answer.
    #[serde(default)]
    pub(super) asks_runtime: bool,
    /// Whether the container runtime has listed an instance in this process: it is the one that the kubelet uses.
    #[serde(default)]
    pub(super) runtime_is_kubelets: bool,
    /// Whether it lists nothing of ours since then, though something of it was to run: another runtime answers.
    #[serde(default)]
    pub(super) runtime_has_lost_all: bool,
    /// Whether it listed pods of others that run, when it last listed any.
    #[serde(default)]
    pub(super) runtime_runs_others: bool,
    /// Whether something may run here that no record knows: this process has not asked the runtime yet.
    #[serde(default)]
    pub(super) may_run_unrecorded: bool,
    /// The last daemon of those that were written in turn, as not all had room: those behind it come first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rendered_last: Option<ObjectKey>,
    /// Whether the state folder had no remembered inputs at the start.
    #[serde(default)]
    pub(super) has_no_inputs: bool,
    clock: Clock,
    /// Whether the API server showed the Node in the last pass.
    #[serde(default)]
    node_was_shown: bool,
}

/// How the floor is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) enum FloorSource {
    /// As it was on disk, or computed from this node's records and manifests.
    #[default]
    Disk,
    /// There is no floor, and nothing else that an earlier agent remembered: only manifests could show one.
    New,
    /// It cannot be read, or not all records that it covers can.
    Lost,
    /// The same, and no record of a new instance can be written either.
    NoStateFolder,
}

/// The wall clock and a steady one, as of the last pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
struct Clock {
    last: Option<(Timestamp, Span)>,
}

impl AgentState {
    /// The state of an agent that has seen nothing yet.
    pub(super) fn new(
        config: &Config,
        policy: Policy,
        options: VersionedOptions,
        started: Timestamp,
        purpose: Purpose,
    ) -> Self {
        Self {
            purpose,
            goal: Goal::Run,
            started,
            passes: 0,
            policy: Arc::new(policy),
            records: Records::new(),
            unsaved: BTreeSet::new(),
            failed: BTreeMap::new(),
            floor: 0,
            floor_source: FloorSource::Disk,
            inputs: RememberedInputs::default(),
            inputs_on_disk: InputsOnDisk::default(),
            definitions: ApiDefinitions::default(),
            node: config.node_view(),
            options,
            written: BTreeMap::new(),
            clear_again: BTreeMap::new(),
            startup_problems: Vec::new(),
            unusable_configuration: Vec::new(),
            concerns: Concerns::default(),
            set_aside: SetAside::default(),
            ending_since: BTreeMap::new(),
            made_under: BTreeMap::new(),
            asks_runtime: false,
            runtime_is_kubelets: false,
            runtime_has_lost_all: false,
            runtime_runs_others: false,
            may_run_unrecorded: purpose == Purpose::Work,
            rendered_last: None,
            has_no_inputs: false,
            clock: Clock::default(),
            node_was_shown: false,
        }
    }

    /// From now on nothing is wanted: the pods that outlived their DaemonSet end too.
    pub(super) fn tear_down(&mut self) {
        self.goal = Goal::Teardown;
        for record in self.records.values_mut().filter(|r| r.instances.iter().any(|i| i.orphaned)) {
            record.instances.iter_mut().for_each(|i| i.orphaned = false);
            self.unsaved.insert(record.key.clone());
        }
    }

    /// Puts a record in the place of the one before; it is not on disk yet.
    pub(super) fn set_record(&mut self, record: DaemonRecord) {
        self.unsaved.insert(record.key.clone());
        self.records.insert(record.key.clone(), record);
    }

    /// A record for a daemon that has none.
    pub(super) fn new_record(&self, key: &ObjectKey) -> DaemonRecord {
        DaemonRecord::new(key.clone(), self.floor)
    }

    /// Why the API server cannot be asked now, if so.
    pub(super) fn unlinked(&self, observation: &Observation) -> Option<Unlinked> {
        match () {
            () if self.passes == 0 => Some(Unlinked::NotConnected),
            () if self.concerns.removal_guard.is_another_cluster() => Some(Unlinked::AnotherCluster),
            () if !observation.is_linked() => Some(Unlinked::NoConnection),
            () if self.concerns.removal_guard.is_unidentified(self.inputs.cluster_uid.as_ref()) => {
                Some(Unlinked::Unidentified)
            }
            () => None,
        }
    }

    /// Takes what was observed. Gives the daemons that adopt instances of others.
    pub(super) fn absorb(&mut self, observation: &Observation, config: &Config, log: &mut Log) -> Vec<ObjectKey> {
        self.follow_clock(observation, config, log);
        let concerns = &mut self.concerns;
        concerns.api_freshness.observe(observation.api_answers(), observation.now);
        concerns.kubelet_resync.observe(observation, log);
        self.follow_node(observation, config);
        if let Some(api) = observation.snapshot() {
            self.definitions.update(api);
        }
        if observation.manifests.current().is_some() {
            self.inputs.manifest_dir = Some(config.manifest_dir.clone());
        }
        self.follow_spent(observation, log);
        self.follow_inputs(observation, log);
        self.find_floor(observation);
        self.adopt_manifests(observation, log);
        // What is remembered of the Node may be older than what runs, too.
        self.node.registered &= !self.inputs.incomplete || observation.snapshot().is_none_or(|api| api.node.is_some());
        self.adopt_sandboxes(observation, &config.node_name, log);
        let adopters = self.adopt_orphans(observation, log);
        let started = self.follow_starts(observation, config);
        self.follow_ends(observation);
        let node = &config.node_name;
        restart_orders::note_mirrors(observation, &mut self.records, node);
        let concerns = &mut self.concerns;
        concerns.manifests_lost_at_boot.observe(observation, &self.records);
        concerns.mount_namespace.observe(observation, log);
        let instances = match self.records.values().flat_map(DaemonRecord::live).any(|instance| !instance.started) {
            _ if started => Instances::JustStarted,
            true => Instances::NotStarted,
            false => Instances::Started,
        };
        concerns.volume_checks.observe(observation.volume_look, observation.now, instances);
        concerns.crash_diagnoses.observe(observation, &self.records, node);
        let is_another = self.runtime_has_lost_all || ending::has_lost_others(observation, self.runtime_runs_others);
        let runtime = match is_another {
            true => RuntimeChoice::Found,
            false => RuntimeChoice::of(self.runtime_is_kubelets, &self.records, config),
        };
        concerns.acceptance.observe(observation, &self.records, self.started, runtime, node);
        concerns.mirror_pod_deletions.observe(observation, &self.records, log);
        concerns.mirror_labels.observe(observation, &self.records, log);
        concerns.mirror_owners.observe(observation, log);
        concerns.stuck_sandboxes.observe(observation, &self.records, log);
        concerns.admission_dry_runs.observe(observation, log);
        let deletions = &concerns.mirror_pod_deletions;
        let surroundings = Surroundings {
            node,
            cluster: self.inputs.cluster_uid.as_ref(),
            is_own: &|uid| deletions.is_own(uid),
            fingerprint: concerns.acceptance.surroundings(),
        };
        concerns.restart_orders.observe(observation, &mut self.records, &surroundings, log);
        adopters
    }

    /// Notes which records differ from those `before`, and are to be written.
    pub(super) fn note_unsaved(&mut self, before: &Records) {
        let changed = self.records.iter().filter(|(key, record)| before.get(*key) != Some(*record));
        self.unsaved.extend(changed.map(|(key, _)| key.clone()));
    }

    /// The state of a decision after the effects of its `plan`, which gave `outcome`: a daemon whose effects failed keeps
    /// the record that it had, unless the planned one is in force.
    pub(super) fn commit(mut state: Self, plan: &Plan, outcome: &EffectOutcome, now: Timestamp) -> Self {
        for DaemonPlan { key, record, .. } in &plan.daemons {
            match outcome.records.get(key) {
                Some(RecordFate::OnDisk) => state.unsaved.remove(key),
                Some(RecordFate::InMemory) => state.unsaved.insert(key.clone()),
                None => continue,
            };
            state.records.insert(key.clone(), record.clone());
        }
        let EffectOutcome { left_open, left_closed, .. } = outcome;
        let left = |record: &mut DaemonRecord| record.leave_open(left_open).or(record.leave_closed(left_closed));
        state.unsaved.extend(state.records.values_mut().filter_map(left));
        state.failed = outcome.failures.clone();
        state.written.extend(outcome.written.clone());
        for uid in outcome.finished.union(&outcome.unwritten) {
            state.written.remove(uid);
        }
        for (uid, (written, meant)) in &outcome.touched {
            state.concerns.kubelet_resync.was_touched(uid, written.clone(), meant.clone(), now);
        }
        state.note_cleared(outcome, now);
        if let Some(forgotten) = &outcome.forgotten {
            state.floor = forgotten.floor;
            for key in &forgotten.keys {
                state.records.remove(key);
                state.unsaved.remove(key);
            }
        }
        if let Some(mark) = outcome.inputs_saved {
            state.inputs_on_disk = state.inputs_on_disk.written(mark, now);
        }
        state.passes += 1;
        state
    }
}
