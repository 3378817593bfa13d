//! What the agent has observed, as planning asks for it.
//!
//! Owns nothing: it borrows what one pass sees.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::Arc;

use crate::core::dry_run::Question;
use crate::core::dry_run::RequestState;
use crate::core::model::DaemonSet;
use crate::core::model::Kind;
use crate::core::model::Lookup;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectSource;
use crate::core::model::UpdateStrategy;
use crate::core::pass::Subject;
use crate::core::placement::NamespaceSelector;
use crate::core::plan::Accepted;
use crate::core::plan::Data;
use crate::core::plan::Evidence;
use crate::core::plan::Facts;
use crate::core::plan::Images;
use crate::core::plan::ManifestFact;
use crate::core::plan::Permission;
use crate::core::plan::Readiness;
use crate::core::plan::Stock;
use crate::core::policy::Admission;
use crate::core::policy::Policy;
use crate::core::policy::namespace_of;
use crate::core::ports;
use crate::core::ports::HostPort;
use crate::core::record::DaemonRecord;
use crate::core::record::Failure;
use crate::core::record::HandOver;
use crate::core::record::Instance;
use crate::core::record::Phase;
use crate::core::render::Missing;
use crate::core::rendering::RenderResult;
use crate::core::sources::Desired;
use crate::core::time::Timestamp;
use crate::node::api::Snapshot;
use crate::node::volumes::Volumes;

use super::acceptance::Acceptance;
use super::coordination::Coordination;
use super::dry_run::AdmissionDryRuns;
use super::evidence;
use super::evidence::Runtime;
use super::failing;
use super::failing::FailureEvidence;
use super::images::ImageFacts;
use super::kubelet_resync::KubeletResync;
use super::mirror_pod_deletions::MirrorPodDeletions;
use super::objects::Objects;
use super::render_cache::Inputs;
use super::render_cache::RenderCache;
use super::rollback_data::RollbackDataOf;
use super::stock::StockPodLookup;
use super::stock::UnrelatedPod;
use super::volume_check_schedule::VolumeCheckSchedule;

/// Annotation with the generation of the template, which the API shows on every DaemonSet.
pub(super) const GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";

/// The world at one pass.
pub(super) struct ObservedState<'a> {
    pub(super) render_cache: &'a RenderCache,
    pub(super) policy: &'a Policy,
    pub(super) objects: Objects<'a>,
    pub(super) inputs: Inputs<'a>,
    /// Data of good revisions, by daemon.
    pub(super) rollback_data: &'a RollbackDataOf,
    /// Whether Secrets are sealed on disk that could not be opened yet.
    pub(super) is_closed: bool,
    /// SHA-256 of the manifests in the folder, by pod UID; of one that cannot be read, another text.
    pub(super) manifests: &'a BTreeMap<&'a str, &'a str>,
    pub(super) volumes: &'a Volumes,
    pub(super) written: &'a BTreeMap<String, String>,
    /// Whose data on disk is looked at; the others' is trusted to be as it was written.
    pub(super) volume_check_schedule: &'a VolumeCheckSchedule,
    /// Without an agent: what was written is not known and not compared.
    pub(super) offline: bool,
    pub(super) records: &'a BTreeMap<ObjectKey, DaemonRecord>,
    /// What is planned for: the sources' word on each daemon.
    pub(super) subjects: &'a [Subject<'a>],
    /// The record's namespace and the instance, by pod UID ([`by_uid`] of `records`).
    pub(super) instances: &'a HashMap<&'a str, (&'a str, &'a Instance)>,
    pub(super) runtime: &'a Runtime,
    pub(super) api: Option<&'a Snapshot>,
    pub(super) api_answers: bool,
    pub(super) unrelated_pods: &'a [UnrelatedPod<'a>],
    /// What failures are told from.
    pub(super) failure_evidence: FailureEvidence<'a>,
    pub(super) kubelet_resync: &'a KubeletResync,
    pub(super) acceptance: &'a Acceptance,
    pub(super) mirror_pod_deletions: &'a MirrorPodDeletions,
    pub(super) images: ImageFacts<'a>,
    /// Whether the API server is asked about the pods of new instances (`policy.admission`).
    pub(super) asks_admission: bool,
    pub(super) admission_dry_runs: &'a AdmissionDryRuns,
    /// Why nobody can be asked now, if so.
    pub(super) unlinked: Option<&'a str>,
    pub(super) coordination: &'a Coordination,
    /// Whether the cluster has approvals.
    pub(super) coordinated: bool,
    pub(super) node: &'a str,
    pub(super) now: Timestamp,
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
    /// Whether the kubelet may not know the pod yet: then its housekeeping takes our data for an
    /// orphan's and removes folders that are empty.
    fn is_not_started(&self, uid: &str) -> bool {
        self.instances.get(uid).is_some_and(|(_, instance)| !instance.started)
    }

    fn namespace(&self, instance: &Instance) -> &str {
        self.instances.get(instance.uid.as_str()).map_or("", |(namespace, _)| namespace)
    }
}

impl Facts for ObservedState<'_> {
    fn rendering(&self, daemon_set: &Arc<DaemonSet>, incarnation: u64, data: Data) -> Arc<RenderResult> {
        let record = self.records.get(&daemon_set.key);
        let own = |i: &Instance| i.daemon_set.as_ref().is_some_and(|d| Arc::ptr_eq(d, daemon_set));
        let adopted = |i: &Instance| i.phase == Phase::Live && i.incarnation == incarnation && own(i);
        let live = record.is_some_and(|r| r.live().any(|i| i.incarnation == incarnation))
            || self.instances.values().any(|(_, i)| adopted(i));
        let rollback_data = if data == Data::Rollback {
            self.rollback_data.get(&daemon_set.key).map(|rollback_data| &rollback_data.objects)
        } else {
            None
        };
        let objects = Objects { live, rollback_data, ..self.objects };
        let rendering = self.render_cache.rendering(
            daemon_set,
            incarnation,
            (live, data),
            Inputs { objects: &objects, ..self.inputs },
        );
        let is_away = data == Data::Rollback && rollback_data.is_none();
        if !(self.is_closed || is_away && live) {
            return rendering;
        }
        // What runs stays as it is while nobody can say what it is to have, and nothing starts without what is sealed.
        let mut missing: Vec<Missing> = Vec::new();
        if is_away {
            let name = format!("that was kept with revision {}", rendering.revision);
            missing.push(Missing { kind: "data".to_owned(), namespace: String::new(), name, key: String::new() });
        }
        match &rendering.result {
            Ok(rendered) if live && self.is_closed => {
                let secrets = rendered.pod.references.iter().filter(|reference| reference.kind == Kind::Secret);
                let unknown = secrets.filter(|secret| matches!(objects.lookup(secret), Lookup::Unknown));
                missing.extend(unknown.map(|secret| Missing {
                    kind: Kind::Secret.as_str().to_owned(),
                    namespace: secret.key.namespace.clone(),
                    name: secret.key.name.clone(),
                    key: String::new(),
                }));
            }
            _ => {}
        }
        if missing.is_empty() { rendering } else { Arc::new(rendering.waiting_for(missing)) }
    }

    fn revision(&self, daemon_set: &Arc<DaemonSet>) -> String {
        self.render_cache.revision(daemon_set)
    }

    fn manifest(&self, uid: &str) -> ManifestFact<'_> {
        if let Some(meant) = self.manifests.get(uid).and_then(|sha256| self.kubelet_resync.meant(uid, sha256, self.now))
        {
            return ManifestFact::Present(meant);
        }
        self.manifests.get(uid).map_or(ManifestFact::Missing, |sha256| ManifestFact::Present(sha256))
    }

    fn volumes_current(&self, rendering: &RenderResult) -> bool {
        let Ok(rendered) = &rendering.result else { return true };
        let uid = &rendering.identity.uid;
        self.offline
            || rendered.pod.volumes.is_empty()
            || (self.written.get(uid) == Some(&rendered.data_digest)
                && (!(self.volume_check_schedule.all
                    || (self.volume_check_schedule.not_started && self.is_not_started(uid)))
                    || self.volumes.intact(uid)))
    }

    fn sandbox(&self, instance: &Instance) -> Evidence {
        if self.offline {
            return Evidence::Unknown("the agent is not running: nobody has asked whether it has ended".to_owned());
        }
        evidence::sandbox(instance, self.runtime, self.api, self.namespace(instance), self.node, self.now)
    }

    fn readiness(&self, instance: &Instance) -> Readiness {
        if self.offline {
            let why = "its manifest is there; the agent is not running: nobody has asked whether it runs";
            return Readiness::Unknown(why.to_owned());
        }
        let namespace = self.namespace(instance);
        evidence::readiness(instance, self.runtime, self.api, self.api_answers, namespace, self.node, self.now)
    }

    fn stock(&self, daemon_set: &DaemonSet, known: Option<&HandOver>) -> Stock {
        let lookup = StockPodLookup {
            api: self.api,
            api_answers: self.api_answers,
            unrelated_pods: self.unrelated_pods,
            runtime: self.runtime,
            node: self.node,
            booted: self.failure_evidence.booted,
        };
        lookup.stock(daemon_set, known)
    }

    fn accepted(&self, instance: &Instance) -> Accepted {
        self.acceptance.of(instance)
    }

    fn failure(&self, instance: &Instance) -> Option<Failure> {
        let rejected = match self.accepted(instance) {
            Accepted::No(reason) => Some(reason),
            Accepted::Yes | Accepted::NotYet | Accepted::Unknown(_) => None,
        };
        failing::failure(instance, self.namespace(instance), rejected, &self.failure_evidence)
    }

    fn images(&self, rendering: &RenderResult, replaces: bool) -> Images {
        self.images.state(rendering, replaces, &self.objects)
    }

    fn held_ports(&self, key: &ObjectKey, only_desired: bool) -> Vec<(String, Vec<HostPort>)> {
        let mut held = Vec::new();
        for record in self.records.values().filter(|r| r.key != *key) {
            let wanted = match self.subjects.iter().find(|s| s.record.key == record.key).map(|s| &s.desired) {
                Some(Desired::Gone { .. }) if only_desired => continue,
                Some(Desired::Wanted { daemon_set, .. }) if daemon_set.update_strategy != UpdateStrategy::OnDelete => {
                    Some(daemon_set)
                }
                _ => None,
            };
            for instance in record.instances.iter().filter(|i| !only_desired || i.phase == Phase::Live) {
                let Some(own) = &instance.daemon_set else { continue };
                let mut has = ports::host_ports(own.pod_template());
                if let Some(wanted) = wanted.filter(|wanted| only_desired && !Arc::ptr_eq(wanted, own)) {
                    let later = ports::host_ports(wanted.pod_template());
                    has.retain(|port| later.iter().any(|l| l.clashes(port)));
                }
                held.push((format!("{} (pod {})", record.key, instance.pod_name), has));
            }
        }
        held
    }

    fn permission(&self, daemon_set: &DaemonSet, revision: &str) -> Permission {
        self.coordination.permission(self.coordinated, daemon_set, revision)
    }

    fn approved(&self, daemon_set: &DaemonSet) -> Option<&str> {
        self.coordination.approved(daemon_set)
    }

    fn surroundings(&self) -> &str {
        self.acceptance.surroundings()
    }

    fn admission(&self, daemon_set: &DaemonSet) -> Admission {
        self.policy.admit(daemon_set, self.objects.lookup(&namespace_of(daemon_set)))
    }

    fn asks_admission(&self) -> bool {
        self.asks_admission
    }

    fn admission_dry_run(&self, daemon_set: &Arc<DaemonSet>, incarnation: u64) -> (Question, RequestState) {
        let revision = self.render_cache.revision(daemon_set);
        let namespace = self.objects.lookup(&namespace_of(daemon_set));
        let question = Question::new(daemon_set, &revision, self.node, incarnation, namespace);
        let request_state = self.admission_dry_runs.request_state(&question, self.now, self.node, self.unlinked);
        (question, request_state)
    }

    fn namespace_selector(&self, daemon_set: &DaemonSet) -> Option<NamespaceSelector> {
        self.policy.node_selector(daemon_set, self.objects.lookup(&namespace_of(daemon_set)))
    }

    fn mirror_pod_deletion_pending(&self, instance: &Instance) -> bool {
        let mirror = self.api.and_then(|api| evidence::mirror(api, self.namespace(instance), instance, self.node));
        self.api_answers && self.mirror_pod_deletions.is_pending(instance, mirror, self.now)
    }
}
