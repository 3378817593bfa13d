//! What the agent has observed, as planning asks for it.
//!
//! Owns nothing: it borrows what one pass sees.

pub(super) mod doubt;
mod former_names;
mod held_back;
mod held_ports;
mod room;
mod tenant_counts;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::HashMap;
use std::sync::Arc;

use crate::config::Config;
use crate::core::annotations;
use crate::core::cluster::released::Released;
use crate::core::dry_run::Question;
use crate::core::dry_run::RequestState;
use crate::core::knowledge::Knowledge;
use crate::core::knowledge::Unlinked;
use crate::core::local_failure::LocalFailure;
use crate::core::model::DaemonSet;
use crate::core::model::Kind;
use crate::core::model::Lookup;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::model::ObjectSource;
use crate::core::pass::Subject;
use crate::core::placement::NamespaceSelector;
use crate::core::plan::Accepted;
use crate::core::plan::Data;
use crate::core::plan::EndObservable;
use crate::core::plan::Evidence;
use crate::core::plan::Facts;
use crate::core::plan::Fingerprints;
use crate::core::plan::Images;
use crate::core::plan::ManifestFact;
use crate::core::plan::Permission;
use crate::core::plan::Readiness;
use crate::core::plan::ReleasedDefinition;
use crate::core::plan::Stock;
use crate::core::plan::VolumesFact;
use crate::core::policy::Admission;
use crate::core::policy::namespace_of;
use crate::core::ports::HostPort;
use crate::core::record::AcceptanceConditions;
use crate::core::record::Cause;
use crate::core::record::DaemonRecord;
use crate::core::record::Failure;
use crate::core::record::HandOver;
use crate::core::record::Instance;
use crate::core::record::Phase;
use crate::core::render::Missing;
use crate::core::rendering::RenderResult;
use crate::core::rendering::digest;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::concerns::images::ImageFacts;
use super::concerns::stock_controller;
use super::ending;
use super::evidence;
use super::evidence::NodeReadyCondition;
use super::failing;
use super::failing::FailureEvidence;
use super::objects::Objects;
use super::observation::Observation;
use super::observation::VolumeDataState;
use super::render_cache::RenderCache;
use super::render_cache::RenderCacheInputs;
use super::state::AgentState;

use tenant_counts::TenantCounts;

/// Stands for the digest of a manifest that was lost with the disk and not removed.
pub(super) const LOST: &str = "lost with the disk";

/// What one pass knows, as planning asks for it.
pub(super) struct ObservedState<'a> {
    pub(super) observation: &'a Observation,
    pub(super) state: &'a AgentState,
    pub(super) config: &'a Config,
    pub(super) render_cache: &'a RenderCache,
    pub(super) objects: Objects<'a>,
    pub(super) inputs: RenderCacheInputs<'a>,
    /// SHA-256 of the manifests in the folder, by pod UID; of one that cannot be read, another text.
    pub(super) manifests: &'a BTreeMap<&'a str, &'a str>,
    /// What is planned for: what the sources want of each daemon.
    pub(super) subjects: &'a [Subject<'a>],
    /// The record's namespace and the instance, by pod UID ([`by_uid`] of the records).
    pub(super) instances: &'a HashMap<&'a str, (&'a str, &'a Instance)>,
    pub(super) unrelated_pods: &'a [stock_controller::UnrelatedPod<'a>],
    /// Why the API server cannot be asked now, if so.
    pub(super) unlinked: Option<Unlinked>,
    pub(super) tenants: TenantCounts<'a>,
}

/// Every instance with its record's namespace, by pod UID.
pub(super) fn by_uid(records: &BTreeMap<ObjectKey, DaemonRecord>) -> HashMap<&str, (&str, &Instance)> {
    let mut instances = HashMap::with_capacity(records.len());
    for record in records.values() {
        instances.extend(record.instances.iter().map(|i| (i.uid.as_str(), (record.key.namespace.as_str(), i))));
    }
    instances
}

impl ObservedState<'_> {
    fn namespace(&self, instance: &Instance) -> &str {
        self.instances.get(instance.uid.as_str()).map_or("", |(namespace, _)| namespace)
    }

    /// The evidence about an instance's end.
    fn pods(&self, instance: &Instance) -> ending::Ends<'_> {
        let since = self.state.ending_since.get(&instance.uid);
        ending::Ends {
            observation: self.observation,
            mirror: self
                .observation
                .snapshot()
                .and_then(|api| evidence::mirror(api, self.namespace(instance), instance, &self.config.node_name)),
            has_lost_all: self.has_lost_all(),
            has_asked: self.state.asks_runtime,
            is_kubelets: self.state.runtime_is_kubelets || self.instances.values().any(|(_, i)| i.listed),
            ended_for: since.map_or(Span::ZERO, |since| self.observation.steady - *since),
            is_api_current: self.state.concerns.api_freshness.is_current(self.observation.now),
        }
    }

    fn readiness_with(&self, instance: &Instance, condition: NodeReadyCondition) -> Readiness {
        let namespace = self.namespace(instance);
        let ready = evidence::readiness(instance, self.observation, namespace, &self.config.node_name, condition);
        self.observation.boot.present_readiness(ready, self.observation.now)
    }
}

impl Facts for ObservedState<'_> {
    fn rendering(&self, daemon_set: &Arc<DaemonSet>, incarnation: u64, data: Data) -> Arc<RenderResult> {
        if let Some(why) = self.state.held_back(self.observation, daemon_set) {
            return self.held_back(daemon_set, incarnation, &why);
        }
        let record = self.state.records.get(&daemon_set.key);
        let own = |i: &Instance| i.daemon_set.as_ref().is_some_and(|d| Arc::ptr_eq(d, daemon_set));
        let adopted = |i: &Instance| i.phase == Phase::Live && i.incarnation == incarnation && own(i);
        let live = record.is_some_and(|r| r.live().any(|i| i.incarnation == incarnation))
            || self.instances.values().any(|(_, i)| adopted(i));
        let rollback_data = if data == Data::Rollback {
            self.state.inputs.rollback_data.get(&daemon_set.key).map(|rollback_data| &rollback_data.objects)
        } else {
            None
        };
        let has_run = live || record.is_some_and(|record| record.definition().is_some());
        let are_folders_unread = live && self.are_folders_unread(&daemon_set.source);
        let runs = live || record.is_some_and(|record| record.live().next().is_some());
        let is_in_doubt = runs && self.state.inputs.incomplete;
        let had_all = live && record.is_some_and(|record| self.had_all(record, incarnation));
        let objects =
            Objects { live, has_run, had_all, is_in_doubt, rollback_data, are_folders_unread, ..self.objects };
        let former = self.former_options(daemon_set, incarnation);
        let inputs = match &former {
            Some((options, version)) => RenderCacheInputs { options, options_version: *version, ..self.inputs },
            None => self.inputs,
        };
        let inputs = RenderCacheInputs { objects: &objects, ..inputs };
        let rendering = self.render_cache.rendering(daemon_set, incarnation, (live, data), inputs);
        let is_away = data == Data::Rollback && rollback_data.is_none();
        let doubtful = if live { self.doubtful(&rendering) } else { self.unread(&rendering, has_run) };
        if !(self.observation.seal.is_closed || is_away && live || !doubtful.is_empty()) {
            return rendering;
        }
        // An instance stays as it is while the data that it should have is not known; nothing starts without its sealed data.
        let mut missing: Vec<Missing> = doubtful.into_iter().map(Self::missing_object).collect();
        if is_away {
            let name = format!("that was kept with revision {}", rendering.revision);
            missing.push(Missing { kind: "data".to_owned(), namespace: String::new(), name, key: String::new() });
        }
        if live && self.observation.seal.is_closed {
            missing.extend(objects.sealed(&rendering).map(Self::missing_object));
        }
        if missing.is_empty() { rendering } else { Arc::new(rendering.waiting_for(missing)) }
    }

    fn revision(&self, daemon_set: &Arc<DaemonSet>) -> String {
        self.render_cache.revision(daemon_set)
    }

    fn unreadable_manifests(&self) -> Option<&LocalFailure> {
        match &self.observation.manifests {
            Knowledge::Unreadable(why) => Some(why),
            _ => None,
        }
    }

    fn manifest(&self, uid: &str) -> ManifestFact<'_> {
        let sha256 = match self.manifests.get(uid) {
            None => return ManifestFact::Missing,
            Some(&LOST) => return ManifestFact::Lost,
            Some(sha256) => sha256,
        };
        let meant = self.state.concerns.kubelet_resync.meant(uid, sha256, self.observation.now);
        ManifestFact::Present(meant.unwrap_or(sha256))
    }

    fn volumes(&self, rendering: &RenderResult, kept: &BTreeSet<String>) -> VolumesFact {
        if rendering.volumes().iter().all(|volume| kept.contains(&volume.name) && volume.tokens.is_empty()) {
            return VolumesFact::Current;
        }
        let (digest, uid) = (rendering.data.without(kept), rendering.identity.uid.as_str());
        let on_disk = self.observation.volumes.get(uid);
        match self.state.written.get(uid) {
            Some(written) if *written != digest => VolumesFact::Differ,
            Some(_) => match on_disk {
                Some(VolumeDataState::Touched) => VolumesFact::Differ,
                Some(VolumeDataState::Intact | VolumeDataState::Unverified) | None => VolumesFact::Current,
            },
            // Written by an agent before this one: the record says what.
            None => {
                let known = self.instances.get(uid).and_then(|(_, instance)| instance.data.as_ref());
                match (on_disk, known) {
                    (Some(VolumeDataState::Touched), _) => VolumesFact::Differ,
                    (_, Some(known)) if known.digest != digest => VolumesFact::Differ,
                    _ => VolumesFact::Unverified,
                }
            }
        }
    }

    fn sandbox(&self, instance: &Instance) -> Evidence {
        ending::sandbox(instance, &self.pods(instance))
    }

    fn moment(&self, instance: &Instance) -> crate::core::plan::PassPhase {
        evidence::moment(instance, self.observation, self.state.passes)
    }

    fn empty_volumes(&self, instance: &Instance) -> Option<&BTreeSet<String>> {
        self.observation.empty_volumes.get(&instance.uid)
    }

    fn unwritable_volumes(&self) -> Option<&LocalFailure> {
        self.observation.unwritable_volumes.as_ref()
    }

    fn may_run_unrecorded(&self) -> Option<Timestamp> {
        self.state.may_run_unrecorded.then(|| self.runtime_due())
    }

    fn former_node(&self, instance: &Instance) -> Option<&str> {
        self.state.made_under.get(&instance.uid).map(String::as_str)
    }

    fn end_observable(&self, instance: &Instance) -> EndObservable {
        let is_refused = instance.not_accepted
            || matches!(self.accepted(instance), Accepted::Rejected(_) | Accepted::NoRoom(_) | Accepted::No(_));
        ending::end_observable(instance, is_refused, &self.pods(instance))
    }

    fn readiness(&self, instance: &Instance) -> Readiness {
        self.readiness_with(instance, NodeReadyCondition::Counts)
    }

    fn pod_readiness(&self, instance: &Instance) -> Readiness {
        self.readiness_with(instance, NodeReadyCondition::Ignored)
    }

    fn stock(&self, daemon_set: &DaemonSet, known: Option<&HandOver>) -> Stock {
        let has_lost_all = self.has_lost_all();
        let known = known.map(|known| (known, has_lost_all));
        stock_controller::stock(self.observation, self.unrelated_pods, daemon_set, known)
    }

    fn stock_awaited_until(&self) -> Option<Timestamp> {
        self.api_awaited_until()
    }

    fn unanswered(&self, rendering: &RenderResult) -> Vec<Missing> {
        self.unanswered_objects(rendering)
    }

    fn accepted(&self, instance: &Instance) -> Accepted {
        self.state.concerns.acceptance.of(instance)
    }

    fn failure(&self, instance: &Instance) -> Option<Failure> {
        let rejected = match self.accepted(instance) {
            Accepted::Rejected(message) | Accepted::NoRoom(message) => {
                Some(Failure { cause: Cause::Admission, message })
            }
            Accepted::No(why) => Some(Failure { cause: Cause::NotAccepted, message: why.to_string() }),
            Accepted::Yes | Accepted::NotYet | Accepted::Unknown(_) => None,
        };
        let concerns = &self.state.concerns;
        let api = self.observation.snapshot().filter(|_| concerns.api_freshness.is_current(self.observation.now));
        let evidence = FailureEvidence {
            api,
            observation: self.observation,
            crash_diagnoses: &concerns.crash_diagnoses,
            node: &self.config.node_name,
        };
        failing::failure(instance, self.namespace(instance), rejected, &evidence)
    }

    fn images(&self, rendering: &RenderResult, replaces: bool) -> Images {
        ImageFacts::new(self.observation, self.config).of(rendering, replaces, &self.objects)
    }

    fn held_ports(&self, key: &ObjectKey, only_desired: bool) -> Vec<(String, Vec<HostPort>)> {
        self.ports_held_by_others(key, only_desired)
    }

    fn permission(&self, daemon_set: &DaemonSet, revision: &str) -> Permission {
        self.state.concerns.claims.permission(self.is_coordinated(daemon_set), daemon_set, revision)
    }

    fn is_coordinated(&self, daemon_set: &DaemonSet) -> bool {
        let inputs = &self.state.inputs;
        (inputs.coordinated || inputs.coordination_unknown || daemon_set.rollout.released.is_some())
            && !self.coordination_is_off(daemon_set)
    }

    fn coordination_is_off(&self, daemon_set: &DaemonSet) -> bool {
        !self.config.coordination || annotations::is_uncoordinated(daemon_set)
    }

    fn is_remembered(&self, daemon_set: &DaemonSet) -> bool {
        self.observation.is_remembered(&daemon_set.source)
    }

    fn released(&self, daemon_set: &Arc<DaemonSet>, released: &Released) -> ReleasedDefinition {
        let reference = ObjectRef::new(Kind::ControllerRevision, &daemon_set.key.namespace, &released.name);
        match self.objects.lookup(&reference) {
            Lookup::Unknown => ReleasedDefinition::Unknown,
            Lookup::Absent => ReleasedDefinition::Gone,
            Lookup::Present(revision) | Lookup::Deleted(revision) => {
                let known = self.render_cache.with_revision(daemon_set, &released.hash, revision);
                known.map_or(ReleasedDefinition::Gone, ReleasedDefinition::Known)
            }
        }
    }

    fn approved(&self, daemon_set: &DaemonSet) -> Option<String> {
        self.state.concerns.claims.approved(daemon_set)
    }

    fn acceptance_conditions(&self) -> AcceptanceConditions {
        let Config { api_endpoint, inline_secret_env, pull_as_written, default_token_expiration, .. } = self.config;
        let of_manifests = (api_endpoint, inline_secret_env, pull_as_written, default_token_expiration);
        let places = (&self.config.manifest_dir, &self.config.kubelet_root);
        let configuration = digest(format!("{of_manifests:?} {places:?}").as_bytes());
        let kubelet = self.state.node.kubelet_version.clone();
        AcceptanceConditions { kubelet, configuration, has_api: self.observation.api_answers() }
    }

    fn surroundings(&self, instance: &Instance) -> Fingerprints<'_> {
        self.state.concerns.acceptance.surroundings_of(instance)
    }

    fn admission(&self, daemon_set: &Arc<DaemonSet>) -> Admission {
        self.admitted(daemon_set)
    }

    fn asks_admission(&self) -> bool {
        self.config.dry_run_admission
    }

    fn admission_dry_run(&self, daemon_set: &Arc<DaemonSet>, incarnation: u64) -> (Question, RequestState) {
        let revision = self.render_cache.revision(daemon_set);
        let namespace = self.objects.lookup(&namespace_of(daemon_set));
        let node = &self.config.node_name;
        let question = Question::new(daemon_set, &revision, node, incarnation, namespace);
        let state = self.state.concerns.admission_dry_runs.state(&question, self.observation.now, node, self.unlinked);
        (question, state)
    }

    fn trusts_annotations(&self, daemon_set: &DaemonSet) -> bool {
        self.state.policy.trusts_annotations(daemon_set)
    }

    fn lacks_labels_until(&self) -> Option<Timestamp> {
        self.labels_awaited_until()
    }

    fn node_since(&self) -> Option<Timestamp> {
        self.state.inputs.node_since
    }

    fn namespace_selector(&self, daemon_set: &DaemonSet) -> Option<NamespaceSelector> {
        self.state.policy.node_selector(daemon_set, self.objects.lookup(&namespace_of(daemon_set)))
    }

    fn mirror_pod_deletion_pending(&self, instance: &Instance) -> bool {
        let (node, observation) = (&self.config.node_name, self.observation);
        let mirror =
            observation.snapshot().and_then(|api| evidence::mirror(api, self.namespace(instance), instance, node));
        let deletions = &self.state.concerns.mirror_pod_deletions;
        observation.api_answers() && deletions.is_pending(instance, mirror, observation.now)
    }
}
