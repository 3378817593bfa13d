//! A world of one daemon, as planning asks for it: what is on disk, what runs, what data there is.

use std::cell::RefCell;

use crate::core::dry_run::RequestState;
use crate::core::identity::Identity;
use crate::core::local_failure::LocalFailure;
use crate::core::placement::NamespaceSelector;
use crate::core::record::HandOver;
use crate::core::render::RenderedPod;
use crate::core::rendering::DataDigests;
use crate::core::rendering::Rendered;
use crate::core::volume::VolumeData;

use super::*;

/// A world of one daemon: what is on disk, what runs, what data there is.
#[derive(Default)]
pub(super) struct DaemonWorld {
    pub(super) manifests: BTreeMap<String, String>,
    pub(super) running: BTreeSet<String>,
    pub(super) ready: BTreeMap<String, Timestamp>,
    pub(super) not_ready: BTreeSet<String>,
    pub(super) steady: BTreeMap<String, Timestamp>,
    pub(super) stale_volumes: BTreeSet<String>,
    pub(super) data_version: String,
    pub(super) waiting_for: Vec<Missing>,
    /// Which parts that holds back; none: the whole pod.
    pub(super) held: Vec<HeldPart>,
    /// What the revision with an image refers to, and why it cannot have that.
    pub(super) needs: BTreeMap<String, (ObjectRef, Option<HeldPart>)>,
    /// What admission waits for.
    pub(super) unjudged: Option<Missing>,
    /// Whether admission refuses everything.
    pub(super) forbids: bool,
    pub(super) references: BTreeSet<ObjectRef>,
    /// Whether its manifest depends on a kubelet's version that is not known.
    pub(super) guesses_kubelet: bool,
    pub(super) refused: Option<FieldError>,
    /// The env files of its containers.
    pub(super) env_files: Vec<String>,
    pub(super) no_runtime_view: bool,
    pub(super) stock: Option<Stock>,
    pub(super) lacks_labels_until: Option<Timestamp>,
    pub(super) node_since: Option<Timestamp>,
    pub(super) stock_awaited_until: Option<Timestamp>,
    pub(super) unanswered: Vec<Missing>,
    pub(super) rollback_version: String,
    pub(super) rejected: BTreeMap<String, String>,
    /// Instances whose manifests the kubelet does not accept, and those that nothing reports on.
    pub(super) not_accepted: BTreeSet<String>,
    pub(super) unknown: BTreeSet<String>,
    pub(super) conditions: crate::core::record::AcceptanceConditions,
    pub(super) failures: BTreeMap<String, Failure>,
    pub(super) images: Option<Images>,
    pub(super) unreadable_manifests: Option<LocalFailure>,
    pub(super) end_observable: Option<EndObservable>,
    pub(super) former_node: Option<String>,
    pub(super) moment: Option<PassPhase>,
    pub(super) may_run_unrecorded: Option<Timestamp>,
    pub(super) is_remembered: bool,
    pub(super) empty_volumes: BTreeMap<String, BTreeSet<String>>,
    pub(super) unwritable_volumes: Option<LocalFailure>,
    pub(super) surroundings: Fingerprint,
    /// What they were when the kubelet was given an instance, where that differs.
    pub(super) tried_in: BTreeMap<String, Fingerprint>,
    pub(super) mirror_pod_deletions: bool,
    pub(super) held_ports: Vec<(String, Vec<HostPort>, bool)>,
    pub(super) permission: Option<Permission>,
    pub(super) released: Option<ReleasedDefinition>,
    pub(super) approved: Option<String>,
    pub(super) rendered: RefCell<u32>,
    /// What the API server says of pods; `None`: it is not asked.
    pub(super) says: Option<crate::core::dry_run::DryRunAnswer>,
    /// The data of what admission made, where it has other data.
    pub(super) data_of_admitted: String,
}

/// What the kubelet does not accept it has shown nothing of.
pub(super) const NOTHING_SHOWN: ShownNothing = ShownNothing(Span::from_secs(30));

pub(super) fn image(daemon_set: &DaemonSet) -> String {
    daemon_set.template["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
}

impl Facts for DaemonWorld {
    fn rendering(&self, daemon_set: &Arc<DaemonSet>, incarnation: u64, data: Data) -> Arc<RenderResult> {
        let data_version = match data {
            Data::Current | Data::TokensAlone => &self.data_version,
            Data::Rollback => &self.rollback_version,
        };
        let data_version = match (&daemon_set.admitted, self.data_of_admitted.is_empty()) {
            (Some(_), false) => &self.data_of_admitted,
            _ => data_version,
        };
        *self.rendered.borrow_mut() += 1;
        let env_file = |name: &String| VolumeData { name: name.clone(), is_environment: true, ..VolumeData::default() };
        let volumes: Vec<VolumeData> = self.env_files.iter().map(env_file).collect();
        let (waiting_for, held, references) = self.lacks(&image(daemon_set));
        let identity = Identity {
            uid: format!("uid-{}-{incarnation}", image(daemon_set)),
            pod_name: format!("{}-{incarnation}", daemon_set.key.name),
        };
        let result = match &self.refused {
            Some(error) => {
                let held = match self.held.is_empty() {
                    true => vec![HeldPart { refused: vec![error.clone()], ..HeldPart::default() }],
                    false => self.held.clone(),
                };
                let volumes = volumes.into();
                Err(Refused { errors: vec![error.clone(); 2], held, volumes, ..Refused::default() })
            }
            None => Ok(Rendered {
                file: format!("{}.yaml", identity.pod_name),
                text: String::new(),
                data_digest: String::new(),
                digest: match &daemon_set.admitted {
                    Some(admitted) => format!("{admitted}@{data_version}"),
                    None => format!("{}@{data_version}", image(daemon_set)),
                },
                pod: RenderedPod {
                    pod: json!({}),
                    volumes,
                    references,
                    tokens: BTreeSet::new(),
                    waiting_for,
                    absent: held
                        .iter()
                        .filter(|held| !held.unconfirmed)
                        .flat_map(|held| held.missing.clone())
                        .collect(),
                    held,
                    notes: Vec::new(),
                    data_version: data_version.clone(),
                    images: Vec::new(),
                    pull_secrets: Vec::new(),
                    has_gate: daemon_set.gate == StartGate::Has,
                    guesses_kubelet: self.guesses_kubelet,
                },
            }),
        };
        Arc::new(RenderResult { identity, revision: self.revision(daemon_set), result, data: DataDigests::default() })
    }

    fn revision(&self, daemon_set: &Arc<DaemonSet>) -> String {
        crate::core::overlays::revision(&image(daemon_set), daemon_set)
    }

    fn manifest(&self, uid: &str) -> ManifestFact<'_> {
        match self.manifests.get(uid).map(String::as_str) {
            None => ManifestFact::Missing,
            Some("lost") => ManifestFact::Lost,
            Some(digest) => ManifestFact::Present(digest),
        }
    }

    fn unreadable_manifests(&self) -> Option<&LocalFailure> {
        self.unreadable_manifests.as_ref()
    }

    fn volumes(&self, rendering: &RenderResult, _: &BTreeSet<String>) -> VolumesFact {
        match self.stale_volumes.contains(&rendering.identity.uid) {
            true => VolumesFact::Differ,
            false => VolumesFact::Current,
        }
    }

    fn sandbox(&self, instance: &Instance) -> Evidence {
        if self.no_runtime_view {
            return Evidence::Unknown(Unseen::NotAsked);
        }
        if self.running.contains(&instance.uid) { Evidence::Running } else { Evidence::Gone }
    }

    fn pod_readiness(&self, instance: &Instance) -> Readiness {
        self.readiness(instance)
    }

    fn moment(&self, _: &Instance) -> PassPhase {
        self.moment.unwrap_or(PassPhase::Later)
    }

    fn empty_volumes(&self, instance: &Instance) -> Option<&BTreeSet<String>> {
        self.empty_volumes.get(&instance.uid)
    }
    fn unwritable_volumes(&self) -> Option<&LocalFailure> {
        self.unwritable_volumes.as_ref()
    }

    fn may_run_unrecorded(&self) -> Option<Timestamp> {
        self.may_run_unrecorded
    }

    fn former_node(&self, instance: &Instance) -> Option<&str> {
        self.former_node.as_deref().filter(|_| instance.incarnation == 0)
    }

    fn end_observable(&self, _: &Instance) -> EndObservable {
        self.end_observable.clone().unwrap_or(EndObservable::By(EndConfirmation::Reported))
    }

    fn readiness(&self, instance: &Instance) -> Readiness {
        match self.ready.get(&instance.uid) {
            Some(since) => Readiness::Ready { since: *since },
            None if self.steady.contains_key(&instance.uid) => Readiness::Steady { since: self.steady[&instance.uid] },
            None if self.not_ready.contains(&instance.uid) => {
                Readiness::NotReady(Unready::Reported("probe failed".to_owned()))
            }
            None => Readiness::Unknown(Unseen::NoNode),
        }
    }

    fn stock(&self, _: &DaemonSet, _: Option<&HandOver>) -> Stock {
        self.stock.clone().unwrap_or(Stock::Absent)
    }

    fn stock_awaited_until(&self) -> Option<Timestamp> {
        self.stock_awaited_until
    }

    fn unanswered(&self, _: &RenderResult) -> Vec<Missing> {
        self.unanswered.clone()
    }

    fn accepted(&self, instance: &Instance) -> Accepted {
        match self.rejected.get(&instance.uid) {
            Some(reason) if crate::core::upstream::kubelet::has_no_room(reason) => Accepted::NoRoom(reason.clone()),
            Some(reason) => Accepted::Rejected(reason.clone()),
            None if self.not_accepted.contains(&instance.uid) => Accepted::No(NOTHING_SHOWN),
            None if self.unknown.contains(&instance.uid) => Accepted::NotYet,
            None => Accepted::Yes,
        }
    }

    fn acceptance_conditions(&self) -> crate::core::record::AcceptanceConditions {
        self.conditions.clone()
    }

    fn failure(&self, instance: &Instance) -> Option<Failure> {
        self.failures.get(&instance.uid).cloned()
    }

    fn images(&self, _: &RenderResult, _: bool) -> Images {
        self.images.clone().unwrap_or(Images::Present)
    }

    fn held_ports(&self, _: &ObjectKey, only_desired: bool) -> Vec<(String, Vec<HostPort>)> {
        self.held_ports
            .iter()
            .filter(|(_, _, stays)| *stays || !only_desired)
            .map(|(w, p, _)| (w.clone(), p.clone()))
            .collect()
    }

    fn permission(&self, _: &DaemonSet, _: &str) -> Permission {
        self.permission.clone().unwrap_or(Permission::Free)
    }

    fn is_coordinated(&self, _: &DaemonSet) -> bool {
        self.permission.as_ref().is_some_and(|permission| *permission != Permission::Free)
    }

    fn coordination_is_off(&self, _: &DaemonSet) -> bool {
        false
    }

    fn released(&self, _: &Arc<DaemonSet>, _: &Released) -> ReleasedDefinition {
        self.released.clone().unwrap_or(ReleasedDefinition::Unknown)
    }

    fn is_remembered(&self, _: &DaemonSet) -> bool {
        self.is_remembered
    }

    fn approved(&self, _: &DaemonSet) -> Option<String> {
        self.approved.clone()
    }

    fn mirror_pod_deletion_pending(&self, _: &Instance) -> bool {
        self.mirror_pod_deletions
    }

    fn trusts_annotations(&self, _: &DaemonSet) -> bool {
        true
    }

    fn lacks_labels_until(&self) -> Option<Timestamp> {
        self.lacks_labels_until
    }

    fn node_since(&self) -> Option<Timestamp> {
        self.node_since
    }

    fn namespace_selector(&self, _: &DaemonSet) -> Option<NamespaceSelector> {
        None
    }

    fn surroundings(&self, instance: &Instance) -> Fingerprints<'_> {
        let then = self.tried_in.get(&instance.uid).unwrap_or(&self.surroundings);
        Fingerprints { then, now: &self.surroundings }
    }

    fn admission(&self, daemon_set: &Arc<DaemonSet>) -> Admission {
        let evil = daemon_set.pod_template()["spec"]["containers"][0]["image"].as_str().unwrap().starts_with("evil/");
        let error = || FieldError { field: "image".to_owned(), reason: "is evil".to_owned(), hint: None };
        if let Some(missing) = &self.unjudged {
            return Admission::Waits(missing.clone());
        }
        if evil || self.forbids { Admission::Refused(vec![error()]) } else { Admission::FREE }
    }

    fn asks_admission(&self) -> bool {
        self.says.is_some()
    }

    fn admission_dry_run(&self, daemon_set: &Arc<DaemonSet>, incarnation: u64) -> (Question, RequestState) {
        let question = Question::new(daemon_set, &image(daemon_set), "n1", incarnation, Lookup::Unknown);
        (question, RequestState { answer: self.says.clone().unwrap(), due: false, again: None })
    }
}

impl DaemonWorld {
    /// What a rendering waits for, which parts that holds back, and what it refers to.
    fn lacks(&self, image: &str) -> (Vec<Missing>, Vec<HeldPart>, BTreeSet<ObjectRef>) {
        let mut references = self.references.clone();
        if let Some((reference, held)) = self.needs.get(image) {
            references.insert(reference.clone());
            let held: Vec<HeldPart> = held.iter().cloned().collect();
            return (held.iter().flat_map(|held| held.missing.clone()).collect(), held, references);
        }
        let held = match (self.held.is_empty(), self.waiting_for.is_empty()) {
            (true, false) => vec![HeldPart { missing: self.waiting_for.clone(), ..HeldPart::default() }],
            _ => self.held.clone(),
        };
        (self.waiting_for.clone(), held, references)
    }

    /// Executes a plan as the shell does, all of it.
    pub(super) fn apply(&mut self, plan: &DaemonPlan) {
        for action in &plan.actions {
            match action {
                Action::End { uid, .. } => {
                    self.manifests.remove(uid);
                }
                Action::Start { rendering, .. } => {
                    let uid = rendering.identity.uid.clone();
                    self.manifests.insert(uid.clone(), rendering.result.as_ref().unwrap().digest.clone());
                    self.running.insert(uid);
                }
                Action::Refresh { rendering, manifest, .. } => {
                    if *manifest {
                        let rendered = rendering.result.as_ref().unwrap();
                        self.manifests.insert(rendering.identity.uid.clone(), rendered.digest.clone());
                    }
                    self.stale_volumes.remove(&rendering.identity.uid);
                }
                Action::Keep { .. } => self.rollback_version.clone_from(&self.data_version),
                Action::CloseGate { .. } | Action::OpenGate { .. } => {}
                Action::Finish { .. } | Action::Verify { .. } | Action::Confirm { .. } => {}
            }
        }
    }
}
