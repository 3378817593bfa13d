mod boot;
mod bootstrap;
mod dry_run;
mod lost_data;
mod missing;
mod not_accepted;
mod overlays;
mod permit;
mod ports;
mod progress;
mod refresh;
mod retry;
mod trigger;
mod turn;
mod unrecorded;

use crate::core::model::Mode;
use crate::core::model::Source;
use crate::core::render::Missing;
use crate::core::time::at;
use crate::core::time::ms;
use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::json;

use crate::core::cluster::released::Released;
use crate::core::dry_run::RequestState;
use crate::core::identity::Identity;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::IntOrPercent;
use crate::core::model::Kind;
use crate::core::model::Lookup;
use crate::core::model::OWNER_ANNOTATION;
use crate::core::model::StartGate;
use crate::core::model::Taint;
use crate::core::model::UpdateStrategy;
use crate::core::placement::NamespaceSelector;
use crate::core::policy::Admission;
use crate::core::ports::HostPort;
use crate::core::record::Cause;
use crate::core::record::EndConfirmation;
use crate::core::record::Failure;
use crate::core::record::Fingerprint;
use crate::core::record::HandOver;
use crate::core::record::LastRun;
use crate::core::record::PendingUpdate;
use crate::core::record::Phase;
use crate::core::record::RestartCause;
use crate::core::render::HeldPart;
use crate::core::render::Refused;
use crate::core::render::RenderedPod;
use crate::core::rendering::DataDigests;
use crate::core::rendering::Rendered;
use crate::core::sources::Hold;
use crate::core::start_order::After;

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

/// A world of one daemon: what is on disk, what runs, what data there is.
#[derive(Default)]
struct DaemonWorld {
    manifests: BTreeMap<String, String>,
    running: BTreeSet<String>,
    ready: BTreeMap<String, Timestamp>,
    not_ready: BTreeSet<String>,
    steady: BTreeMap<String, Timestamp>,
    stale_volumes: BTreeSet<String>,
    data_version: String,
    waiting_for: Vec<Missing>,
    /// Which parts that holds back; none: the whole pod.
    held: Vec<HeldPart>,
    /// What the revision with an image refers to, and why it cannot have that.
    needs: BTreeMap<String, (ObjectRef, Option<HeldPart>)>,
    /// What admission waits for.
    unjudged: Option<Missing>,
    /// Whether admission refuses everything.
    forbids: bool,
    references: BTreeSet<ObjectRef>,
    refused: Option<FieldError>,
    no_runtime_view: bool,
    stock: Option<Stock>,
    rollback_version: String,
    rejected: BTreeMap<String, String>,
    /// Instances whose manifests the kubelet does not accept, and those that nothing reports on.
    not_accepted: BTreeSet<String>,
    unknown: BTreeSet<String>,
    conditions: crate::core::record::AcceptanceConditions,
    failures: BTreeMap<String, Failure>,
    images: Option<Images>,
    unreadable_manifests: Option<String>,
    end_observable: Option<EndObservable>,
    former_node: Option<String>,
    moment: Option<PassPhase>,
    may_run_unrecorded: Option<Timestamp>,
    is_remembered: bool,
    empty_volumes: BTreeMap<String, BTreeSet<String>>,
    unwritable_volumes: Option<String>,
    surroundings: Fingerprint,
    /// What they were when the kubelet was given an instance, where that differs.
    tried_in: BTreeMap<String, Fingerprint>,
    mirror_pod_deletions: bool,
    held_ports: Vec<(String, Vec<HostPort>, bool)>,
    permission: Option<Permission>,
    released: Option<ReleasedDefinition>,
    approved: Option<String>,
    rendered: RefCell<u32>,
    /// What the API server says of pods; `None`: nobody asks it.
    says: Option<crate::core::dry_run::DryRunAnswer>,
    /// The data of what admission made, where it has other data.
    data_of_admitted: String,
}

fn image(daemon_set: &DaemonSet) -> String {
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
                Err(Refused { errors: vec![error.clone(); 2], held, ..Refused::default() })
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
                    volumes: Vec::new(),
                    references,
                    tokens: BTreeSet::new(),
                    waiting_for,
                    absent: held.iter().filter(|held| !held.unheard).flat_map(|held| held.missing.clone()).collect(),
                    held,
                    notes: Vec::new(),
                    data_version: data_version.clone(),
                    images: Vec::new(),
                    pull_secrets: Vec::new(),
                    has_gate: daemon_set.gate == StartGate::Has,
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

    fn unreadable_manifests(&self) -> Option<&str> {
        self.unreadable_manifests.as_deref()
    }

    fn volumes(&self, rendering: &RenderResult, _: &BTreeSet<String>) -> VolumesFact {
        match self.stale_volumes.contains(&rendering.identity.uid) {
            true => VolumesFact::Differ,
            false => VolumesFact::Current,
        }
    }

    fn sandbox(&self, instance: &Instance) -> Evidence {
        if self.no_runtime_view {
            return Evidence::Unknown("the runtime does not answer".to_owned());
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
    fn unwritable_volumes(&self) -> Option<&str> {
        self.unwritable_volumes.as_deref()
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
            None if self.not_ready.contains(&instance.uid) => Readiness::NotReady("probe failed".to_owned()),
            None => Readiness::Unknown("no mirror pod".to_owned()),
        }
    }

    fn stock(&self, _: &DaemonSet, _: Option<&HandOver>) -> Stock {
        self.stock.clone().unwrap_or(Stock::Absent)
    }

    fn accepted(&self, instance: &Instance) -> Accepted {
        match self.rejected.get(&instance.uid) {
            Some(reason) if crate::core::upstream::kubelet::has_no_room(reason) => Accepted::NoRoom(reason.clone()),
            Some(reason) => Accepted::Rejected(reason.clone()),
            None if self.not_accepted.contains(&instance.uid) => Accepted::No("nothing of it".to_owned()),
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
    fn apply(&mut self, plan: &DaemonPlan) {
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

fn daemon_set(image: &str) -> DaemonSet {
    DaemonSet {
        key: ObjectKey::new("kube-system", "net"),
        uid: None,
        generation: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        deleting: false,
        finalizers: Vec::new(),
        selector: json!({"matchLabels": {"app": "net"}}),
        template: json!({"metadata": {"labels": {"app": "net"}, "annotations": {OWNER_ANNOTATION: "x"}},
            "spec": {"containers": [{"name": "c", "image": image}]}}),
        update_strategy: UpdateStrategy::RollingUpdate {
            max_unavailable: IntOrPercent::Int(1),
            max_surge: IntOrPercent::Int(0),
        },
        min_ready_seconds: 0,
        admitted: None,
        overlays: None,
        gate: Default::default(),
        rollout: Default::default(),
        source: Source::File { path: "/etc/daemonlet/daemonsets.d/net.yaml".into() },
    }
}

fn wanted(daemon_set: &DaemonSet) -> Desired {
    Desired::Wanted { daemon_set: Arc::new(daemon_set.clone()), mode: Mode::Static, note: None }
}

fn node() -> NodeView {
    NodeView { name: "n1".to_owned(), registered: true, ..NodeView::default() }
}

struct Bench {
    world: DaemonWorld,
    node: NodeView,
    record: DaemonRecord,
    now: Timestamp,
    jitter: Span,
    held: bool,
    boot: String,
    booted: Timestamp,
    after: Option<After>,
    awaited: Vec<ObjectKey>,
    is_named: bool,
}

impl Bench {
    fn new() -> Self {
        let record = DaemonRecord::new(ObjectKey::new("kube-system", "net"), 0);
        Self {
            world: DaemonWorld::default(),
            node: node(),
            record,
            now: NOW,
            jitter: ms(0),
            held: false,
            boot: "boot-1".to_owned(),
            booted: at(0),
            after: None,
            awaited: Vec::new(),
            is_named: false,
        }
    }

    fn plan(&self, desired: &Desired) -> DaemonPlan {
        let context = PlanContext {
            now: self.now,
            node: &self.node,
            update_jitter: self.jitter,
            removals_held: self.held,
            boot: &self.boot,
            booted: self.booted,
            turn: StartTurn {
                after: self.after.as_ref(),
                awaited: &self.awaited,
                absent: &[],
                is_named: self.is_named,
            },
        };
        plan_daemon(desired, &self.record, &context, &self.world)
    }

    /// Plans and executes one pass; gives the actions in short.
    fn pass(&mut self, desired: &Desired) -> Vec<String> {
        let plan = self.plan(desired);
        self.world.apply(&plan);
        self.record = plan.record.clone();
        plan.actions.iter().map(short).collect()
    }

    fn running(image: &str) -> Self {
        let mut bench = Self::new();
        assert_eq!(bench.pass(&wanted(&daemon_set(image))), [format!("start uid-{image}-0")]);
        bench
    }
}

fn short(action: &Action) -> String {
    match action {
        Action::End { uid, .. } => format!("end {uid}"),
        Action::Finish { uid, .. } => format!("finish {uid}"),
        Action::Start { rendering, .. } => format!("start {}", rendering.identity.uid),
        Action::Refresh { rendering, volumes, manifest, .. } => {
            format!("refresh {} volumes={volumes} manifest={manifest}", rendering.identity.uid)
        }
        Action::CloseGate { uid, .. } => format!("close {uid}"),
        Action::OpenGate { uid, .. } => format!("open {uid}"),
        Action::Verify { rendering, .. } => format!("verify {}", rendering.identity.uid),
        Action::Confirm { .. } => "confirm".to_owned(),
        Action::Keep { rendering } => format!("keep {}", rendering.identity.uid),
    }
}

const NONE: [&str; 0] = [];

#[test]
fn a_wanted_daemon_starts_once_and_then_nothing_is_left_to_do() {
    let mut bench = Bench::running("a");
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), NONE);
    assert_eq!(bench.record.instances.len(), 1);
}

#[test]
fn a_template_change_ends_the_old_instance_before_the_new_one_starts() {
    let mut bench = Bench::running("a");
    let desired = wanted(&daemon_set("b"));
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
    assert_eq!(bench.record.next_incarnation, 1, "the number is in the record before the manifest goes");
    assert_eq!(bench.pass(&desired), NONE, "its sandbox is still there");
    assert!(bench.plan(&desired).wake_at.is_some(), "nothing else would look again");
    bench.world.running.clear();
    assert_eq!(bench.pass(&desired), ["finish uid-a-0", "start uid-b-1"]);
}

#[test]
fn a_sandbox_that_was_never_seen_is_waited_for_one_housekeeping_period() {
    let mut bench = Bench::running("a");
    bench.world.running.clear();
    let desired = wanted(&daemon_set("b"));
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
    assert_eq!(bench.pass(&desired), NONE);
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired), ["finish uid-a-0", "start uid-b-1"]);
}

#[test]
fn without_evidence_nothing_new_starts() {
    let mut bench = Bench::running("a");
    let desired = wanted(&daemon_set("b"));
    bench.pass(&desired);
    bench.world.no_runtime_view = true;
    bench.now += ms(3_600_000);
    let plan = bench.plan(&desired);
    assert_eq!(plan.actions, []);
    assert!(plan.summary.reason.contains("the runtime does not answer"), "{}", plan.summary.reason);
}

#[test]
fn surge_starts_the_new_instance_beside_the_old_one_until_it_is_available() {
    let mut new = daemon_set("b");
    new.update_strategy =
        UpdateStrategy::RollingUpdate { max_unavailable: IntOrPercent::Int(0), max_surge: IntOrPercent::Percent(10) };
    new.min_ready_seconds = 5;
    let mut bench = Bench::running("a");
    bench.world.ready.insert("uid-a-0".to_owned(), NOW);
    let desired = wanted(&new);
    assert_eq!(bench.pass(&desired), ["start uid-b-1"]);
    assert_eq!(bench.pass(&desired), NONE);
    bench.world.ready.insert("uid-b-1".to_owned(), NOW);
    assert_eq!(bench.pass(&desired), NONE, "ready, not yet available");
    assert_eq!(bench.plan(&desired).wake_at, Some(NOW + ms(1_000)));
    bench.now += ms(5_000);
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
}

#[test]
fn surge_drops_an_old_instance_that_is_not_ready() {
    let mut new = daemon_set("b");
    new.update_strategy =
        UpdateStrategy::RollingUpdate { max_unavailable: IntOrPercent::Int(0), max_surge: IntOrPercent::Int(1) };
    let mut bench = Bench::running("a");
    bench.world.not_ready.insert("uid-a-0".to_owned());
    assert_eq!(bench.pass(&wanted(&new)), ["start uid-b-1"]);
    assert_eq!(bench.pass(&wanted(&new)), NONE, "it may be the Node that is not ready");
    bench.fails("uid-a-0", Failure { cause: Cause::KubeletNotResponding, message: String::new() });
    assert_eq!(bench.pass(&wanted(&new)), NONE);
    bench.fails("uid-a-0", Failure { cause: Cause::Probe, message: String::new() });
    assert_eq!(bench.pass(&wanted(&new)), ["end uid-a-0"]);
}

#[test]
fn a_template_that_changes_during_a_surge_never_costs_the_instance_that_serves() {
    let surging = |image: &str| {
        let mut new = daemon_set(image);
        new.update_strategy =
            UpdateStrategy::RollingUpdate { max_unavailable: IntOrPercent::Int(0), max_surge: IntOrPercent::Int(1) };
        wanted(&new)
    };
    let mut bench = Bench::running("a");
    bench.world.ready.insert("uid-a-0".to_owned(), NOW);
    assert_eq!(bench.pass(&surging("b")), ["start uid-b-1"]);
    bench.world.not_ready.insert("uid-b-1".to_owned());
    assert_eq!(bench.pass(&surging("c")), ["end uid-b-1", "start uid-c-2"]);
    bench.world.running.remove("uid-b-1");
    bench.now += GONE_AFTER;
    bench.world.ready.insert("uid-c-2".to_owned(), bench.now);
    assert_eq!(bench.pass(&surging("c")), ["finish uid-b-1", "end uid-a-0"]);
}

#[test]
fn a_clock_that_was_set_back_holds_nothing_up() {
    let mut bench = Bench::running("a");
    bench.world.running.clear();
    let desired = wanted(&daemon_set("b"));
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
    bench.now -= ms(86_400_000);
    assert_eq!(bench.pass(&desired), NONE);
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired), ["finish uid-a-0", "start uid-b-1"]);
}

#[test]
fn a_young_instance_that_is_not_ready_yet_is_starting_and_an_older_one_fails() {
    let mut bench = Bench::running("a");
    bench.record.instances[0].started = true;
    bench.world.not_ready.insert("uid-a-0".to_owned());
    let desired = wanted(&daemon_set("a"));
    assert_eq!(bench.plan(&desired).summary.state, State::Starting);
    while bench.now < NOW + ms(60_000) {
        assert_eq!(bench.plan(&desired).summary.state, State::Starting);
        bench.now = bench.plan(&desired).wake_at.unwrap();
    }
    assert_eq!(bench.plan(&desired).summary.state, State::Failing);
}

#[test]
fn an_orphan_ends_when_its_manifest_is_removed() {
    let mut bench = Bench::running("a");
    assert_eq!(bench.pass(&Desired::Orphaned { reason: "orphan".into() }), NONE);
    bench.world.manifests.clear();
    let gone = Desired::Gone { reason: "gone".into(), by_list: false, ignore_file: None };
    assert_eq!(bench.pass(&gone), ["end uid-a-0"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&gone), ["finish uid-a-0"]);
}

#[test]
fn on_delete_keeps_the_old_revision_and_its_data_fresh() {
    let mut bench = Bench::running("a");
    let mut new = daemon_set("b");
    new.update_strategy = UpdateStrategy::OnDelete;
    bench.world.stale_volumes.insert("uid-a-0".to_owned());
    assert_eq!(bench.pass(&wanted(&new)), ["refresh uid-a-0 volumes=true manifest=false"]);
    assert_eq!(bench.record.instances[0].daemon_set.as_ref().map(|d| image(d)), Some("a".to_owned()));
}

#[test]
fn data_changes_refresh_in_place_and_restart_only_when_asked_for() {
    let mut bench = Bench::running("a");
    bench.world.data_version = "2".to_owned();
    bench.world.stale_volumes.insert("uid-a-0".to_owned());
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), ["refresh uid-a-0 volumes=true manifest=true"]);

    let mut asks = daemon_set("a");
    asks.annotations.insert(RESTART_ON_FOR_TEST.to_owned(), "config".to_owned());
    bench.record.instances[0].data_version = "2".to_owned();
    assert_eq!(bench.pass(&wanted(&asks)), NONE);
    bench.world.data_version = "3".to_owned();
    assert_eq!(bench.pass(&wanted(&asks)), ["end uid-a-0"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&wanted(&asks)), ["finish uid-a-0", "start uid-a-1"]);
}

const RESTART_ON_FOR_TEST: &str = crate::core::model::RESTART_ON;

#[test]
fn a_removed_manifest_comes_back_under_a_new_uid() {
    let mut bench = Bench::running("a");
    bench.world.manifests.clear();
    let desired = wanted(&daemon_set("a"));
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired), ["finish uid-a-0", "start uid-a-1"]);
}

#[test]
fn a_manifest_that_is_removed_while_its_definition_is_unknown_never_comes_back() {
    let reason = "its folder is missing".to_owned();
    let kept = Desired::Kept { reason: reason.clone() };
    for unknown in [Desired::Unsure { reason: reason.clone() }, kept, Desired::Left { reason, taken_away: true }] {
        let mut bench = Bench::running("a");
        bench.world.manifests.clear();
        assert_eq!(bench.pass(&unknown), ["end uid-a-0"]);
        bench.world.running.clear();
        bench.now += GONE_AFTER;
        assert_eq!(bench.pass(&wanted(&daemon_set("a"))), ["finish uid-a-0", "start uid-a-1"]);
    }
}

#[test]
fn a_changed_manifest_is_repaired_in_place() {
    let mut bench = Bench::running("a");
    bench.world.manifests.insert("uid-a-0".to_owned(), "foreign".to_owned());
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), ["refresh uid-a-0 volumes=false manifest=true"]);
}

#[test]
fn a_crash_between_record_and_removal_is_continued() {
    let mut bench = Bench::running("a");
    let desired = wanted(&daemon_set("b"));
    let plan = bench.plan(&desired);
    bench.record = plan.record; // the record was saved, the manifest is still there
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
}

#[test]
fn a_new_revision_that_is_refused_or_waits_leaves_the_old_instance() {
    let mut bench = Bench::running("a");
    bench.world.refused = Some(FieldError {
        field: "spec.template.spec.volumes[0].persistentVolumeClaim".to_owned(),
        reason: "a static pod cannot use it".to_owned(),
        hint: Some("use a hostPath".to_owned()),
    });
    let desired = wanted(&daemon_set("b"));
    assert_eq!(bench.pass(&desired), NONE);
    let summary = bench.plan(&desired).summary;
    assert_eq!((summary.state, summary.hints), (State::Refused, vec!["use a hostPath".to_owned()]));
    bench.world.refused = None;
    bench.world.waiting_for =
        vec![Missing { kind: "ConfigMap".into(), namespace: "a".into(), name: "b".into(), key: "c".into() }];
    assert_eq!(bench.pass(&desired), NONE);
    let reason = bench.plan(&desired).summary.reason;
    assert!(reason.contains("key c of ConfigMap a/b"), "{reason}");
}

#[test]
fn a_daemon_that_waits_or_is_refused_writes_nothing() {
    let mut bench = Bench::new();
    bench.world.waiting_for =
        vec![Missing { kind: "Secret".into(), namespace: "a".into(), name: "b".into(), key: String::new() }];
    let plan = bench.plan(&wanted(&daemon_set("a")));
    assert_eq!(plan.summary.state, State::Waiting);
    assert_eq!(plan.actions, []);
}

#[test]
fn what_a_daemon_refers_to_is_asked_for_while_its_namespace_is_unknown() {
    let missing =
        |kind: &str| Missing { kind: kind.into(), namespace: "".into(), name: "a".into(), key: String::new() };
    let mut bench = Bench::new();
    bench.world.unjudged = Some(missing("Namespace"));
    let plan = bench.plan(&wanted(&daemon_set("a")));
    assert_eq!((plan.summary.state, plan.actions), (State::Waiting, Vec::new()), "nobody has said that it may start");
    bench.world.waiting_for = vec![missing("Secret")];
    let (config, secret) = (ObjectRef::new(Kind::ConfigMap, "", "a"), ObjectRef::new(Kind::Secret, "", "a"));
    let other = ObjectRef::new(Kind::ConfigMap, "", "b");
    bench.world.references = [config.clone(), secret.clone(), other.clone()].into();
    bench.world.waiting_for.push(missing("ConfigMap"));
    let plan = bench.plan(&wanted(&daemon_set("a")));
    assert_eq!(plan.summary.waiting_for, [missing("Namespace"), missing("Secret"), missing("ConfigMap")]);
    assert!(plan.references.contains(&config));
    assert!(!plan.references.contains(&other), "what it does not wait for can be asked for later");
    assert!(!plan.references.contains(&secret), "nothing secret is read for a daemon that nobody has let in");
    assert_eq!(plan.actions, []);
}

#[test]
fn only_a_registered_node_removes_by_placement() {
    let mut bench = Bench::running("a");
    let mut picky = daemon_set("a");
    picky.template["spec"]["nodeSelector"] = json!({"gpu": "yes"});
    bench.node.registered = false;
    // Revision "a" again: the helper's revision is the image.
    assert_eq!(bench.pass(&wanted(&picky)), NONE);
    bench.node.registered = true;
    assert_eq!(bench.pass(&wanted(&picky)), ["end uid-a-0"]);
}

#[test]
fn a_no_schedule_taint_keeps_new_ones_away_and_leaves_what_runs() {
    let mut bench = Bench::running("a");
    bench.node.taints = vec![Taint { key: "k".into(), value: String::new(), effect: "NoSchedule".into() }];
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), NONE);
    assert_eq!(bench.pass(&wanted(&daemon_set("b"))), NONE, "the old one would not be replaced by a new one");
    bench.node.taints[0].effect = "NoExecute".into();
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), ["end uid-a-0"]);
}

#[test]
fn an_unapproved_change_of_an_api_daemon_waits_for_its_turn() {
    let mut bench = Bench::running("a");
    bench.jitter = ms(30_000);
    let mut new = daemon_set("b");
    new.source = Source::Api;
    let delay = super::jitter("n1", "b", ms(30_000));
    assert!(delay > ms(0));
    assert_eq!(bench.pass(&wanted(&new)), NONE);
    assert_eq!(bench.record.pending_update, Some(PendingUpdate { revision: "b".into(), since: NOW }));
    assert_eq!(bench.plan(&wanted(&new)).wake_at, Some(NOW + delay));
    bench.now += delay;
    assert_eq!(bench.pass(&wanted(&new)), ["end uid-a-0"]);
}

#[test]
fn a_gone_daemon_ends_is_finished_and_keeps_its_number() {
    let mut bench = Bench::running("a");
    let desired = Desired::Gone { reason: "deleted".into(), by_list: false, ignore_file: None };
    bench.record.previous =
        Some(LastRun { revision: "before".to_owned(), daemon_set: daemon_set("before").into(), claimed: false });
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
    assert!(bench.record.previous.is_none(), "what ran before does not return, either");
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired), ["finish uid-a-0"]);
    assert_eq!(bench.record.next_incarnation, 1);
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), ["start uid-a-1"], "a used UID is never used again");
}

#[test]
fn a_lists_silence_is_held_when_too_much_would_go() {
    let mut bench = Bench::running("a");
    bench.held = true;
    assert_eq!(bench.pass(&Desired::Gone { reason: "not listed".into(), by_list: true, ignore_file: None }), NONE);
    assert_eq!(
        bench.pass(&Desired::Gone { reason: "seen deleted".into(), by_list: false, ignore_file: None }),
        ["end uid-a-0"]
    );
}

#[test]
fn doubt_and_orphaning_keep_what_runs() {
    let mut bench = Bench::running("a");
    assert_eq!(bench.pass(&Desired::Unsure { reason: "the API does not answer".into() }), NONE);
    assert_eq!(bench.pass(&Desired::Confirm { reason: "not listed".into() }), ["confirm"]);
    assert_eq!(bench.pass(&Desired::Orphaned { reason: "orphan".into() }), NONE);
    assert_eq!(
        bench.pass(&Desired::Gone { reason: "gone".into(), by_list: false, ignore_file: None }),
        NONE,
        "an orphaned instance stays when its DaemonSet is gone"
    );
    assert_eq!(bench.plan(&Desired::Unsure { reason: String::new() }).summary.state, State::Orphaned);
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), NONE, "a DaemonSet of the same template adopts it");
    assert!(!bench.record.instances[0].orphaned);
}

#[test]
fn a_replacement_waits_until_the_end_of_the_old_one_can_be_observed() {
    let mut bench = Bench::running("a");
    let new = wanted(&daemon_set("b"));
    bench.world.end_observable = Some(EndObservable::AskRuntime);
    let asking = bench.plan(&new);
    assert_eq!((asking.actions.len(), asking.asks_runtime, asking.wake_at), (0, true, Some(bench.now)));
    assert!(asking.summary.reason.is_empty() || asking.summary.state != State::Waiting, "{:?}", asking.summary);
    bench.world.end_observable = Some(EndObservable::No("no runtime is configured".to_owned()));
    assert_eq!(bench.pass(&new), NONE);
    let waiting = bench.plan(&new);
    assert_eq!((waiting.summary.state, waiting.asks_runtime), (State::Waiting, false));
    assert!(waiting.summary.reason.contains("no runtime is configured") && !waiting.summary.hints.is_empty());
    bench.record.order_restart("uid-a-0", RestartCause::ByHand, bench.now, &Fingerprint::Unknown);
    assert_eq!(bench.pass(&new), NONE, "an order waits, too");
    bench.world.end_observable = Some(EndObservable::By(EndConfirmation::NeverStarted));
    assert_eq!(bench.pass(&new), ["end uid-a-0"]);
    let Phase::Ending { boot, returns, confirmed_by, .. } = &bench.record.instances[0].phase else { panic!() };
    assert_eq!((boot.as_str(), *returns, *confirmed_by), ("boot-1", true, EndConfirmation::NeverStarted));
    bench.world.running.clear();
    assert_eq!(bench.pass(&new), ["finish uid-a-0", "start uid-b-1"], "at once");
}

#[test]
fn an_instance_of_a_former_name_of_the_node_is_replaced_once_and_is_fresh_until_then() {
    let mut bench = Bench::running("a");
    bench.world.former_node = Some("old".to_owned());
    let same = wanted(&DaemonSet { update_strategy: UpdateStrategy::OnDelete, ..daemon_set("a") });
    bench.world.end_observable = Some(EndObservable::No("no runtime is configured".to_owned()));
    bench.world.stale_volumes.insert("uid-a-0".to_owned());
    assert_eq!(bench.pass(&same), ["refresh uid-a-0 volumes=true manifest=false"]);
    bench.world.end_observable = None;
    assert_eq!(bench.pass(&same), ["end uid-a-0"]);
    let Phase::Ending { reason, .. } = &bench.record.instances[0].phase else { panic!() };
    assert_eq!(reason, "the node was named old when it was made");
    assert_eq!(bench.pass(&same), NONE, "the old one ends first");
    bench.world.running.clear();
    assert_eq!(bench.pass(&same), ["finish uid-a-0", "start uid-a-1"]);
    assert_eq!(bench.pass(&same), NONE);
}

#[test]
fn what_others_removed_and_what_is_deleted_ends_unobserved() {
    let unobservable = Some(EndObservable::No(String::new()));
    let mut bench = Bench::running("a");
    bench.world.end_observable = unobservable.clone();
    bench.world.manifests.clear();
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), ["end uid-a-0"]);
    assert!(matches!(bench.record.instances[0].phase, Phase::Ending { confirmed_by: EndConfirmation::ByTime, .. }));
    let mut bench = Bench::running("a");
    bench.world.end_observable = unobservable;
    let gone = Desired::Gone { reason: "deleted".into(), by_list: false, ignore_file: None };
    assert_eq!(bench.pass(&gone), ["end uid-a-0"]);
}

#[test]
fn a_manifest_that_comes_back_in_another_boot_ends_anew() {
    let mut bench = Bench::running("a");
    bench.world.end_observable = Some(EndObservable::By(EndConfirmation::NeverStarted));
    bench.pass(&wanted(&daemon_set("b")));
    bench.world.manifests.insert("uid-a-0".to_owned(), String::new());
    (bench.boot, bench.now) = ("boot-2".to_owned(), bench.now + ms(5_000));
    assert_eq!(bench.pass(&wanted(&daemon_set("b"))), ["end uid-a-0"]);
    let Phase::Ending { since, boot, confirmed_by, .. } = &bench.record.instances[0].phase else { panic!() };
    assert_eq!((*since, boot.as_str(), *confirmed_by), (bench.now, "boot-2", EndConfirmation::ByTime));
}

fn error() -> FieldError {
    FieldError { field: "spec".to_owned(), reason: "is wrong".to_owned(), hint: None }
}

fn held(why: Hold) -> Desired {
    Desired::Held { daemon_set: Arc::new(daemon_set("a")), mode: Mode::Static, why, ask: false }
}

#[test]
fn what_is_held_keeps_its_revision_and_its_data_fresh_and_says_so() {
    let mut bench = Bench::running("a");
    let narrowed = held(Hold::Narrowed("namespace x is not allowed".to_owned()));
    let refused = held(Hold::Refused("the label is wrong".to_owned()));
    for (desired, state, releasable) in [(&narrowed, State::Held, true), (&refused, State::Refused, false)] {
        assert_eq!(bench.pass(desired), NONE);
        let summary = bench.plan(desired).summary;
        assert_eq!((summary.state, summary.releasable, summary.mode), (state, releasable, Some(Mode::Static)));
        assert!(!summary.hints.is_empty() && !summary.reason.is_empty(), "{summary:?}");
    }
    let errors = || vec![FieldError { hint: Some("do it".to_owned()), ..error() }];
    for why in [Hold::Forbidden(errors()), Hold::TooLarge(errors()), Hold::Overlays(errors())] {
        let summary = bench.plan(&held(why)).summary;
        assert!(summary.reason.contains(&error().to_string()) && !summary.reason.contains("hint"), "{summary:?}");
        assert_eq!((summary.hints[0].as_str(), summary.hints.len()), ("do it", 2), "{summary:?}");
    }
    bench.world.stale_volumes.insert("uid-a-0".to_owned());
    assert_eq!(bench.pass(&narrowed), ["refresh uid-a-0 volumes=true manifest=false"]);
    bench.world.manifests.clear();
    assert_eq!(bench.pass(&narrowed), ["end uid-a-0"], "somebody else removed its manifest");
    assert!(bench.record.runs());
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&narrowed), ["finish uid-a-0", "start uid-a-1"], "it returns as it was");
    bench.node.taints = vec![Taint { key: "k".into(), value: String::new(), effect: "NoExecute".into() }];
    assert_eq!(bench.pass(&narrowed), ["end uid-a-1"], "placement counts");
    assert!(!bench.record.runs());
}

#[test]
fn what_the_rules_hold_returns_as_it_was_and_nothing_else_starts() {
    let lost_manifest = |why: Hold| {
        let mut bench = Bench::running("a");
        bench.world.forbids = true;
        let desired = held(why);
        bench.world.manifests.clear();
        assert_eq!(bench.pass(&desired), ["end uid-a-0"], "somebody else removed its manifest");
        bench.world.running.clear();
        bench.now += GONE_AFTER;
        bench.pass(&desired)
    };
    assert_eq!(lost_manifest(Hold::Forbidden(vec![error()])), ["finish uid-a-0", "start uid-a-1"]);
    assert_eq!(lost_manifest(Hold::Narrowed("namespace x".to_owned())), ["finish uid-a-0"]);
    let mut bench = Bench::running("a");
    bench.pass(&wanted(&daemon_set("b")));
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    let undefined = held(Hold::Undefined("its file has no document".to_owned()));
    assert_eq!(bench.pass(&undefined), ["finish uid-a-0", "start uid-a-1"], "it was ended to be replaced");
    let mut bench = Bench::new();
    bench.world.forbids = true;
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), NONE);
}

#[test]
fn a_release_is_over_once_nothing_of_it_is_left_or_it_is_selected_again() {
    let mut bench = Bench::running("a");
    bench.record.released = true;
    bench.pass(&Desired::Unsure { reason: "nothing is known".into() });
    assert!(bench.record.released, "it waits for its time");
    let mut selected = bench.record.clone();
    bench.pass(&Desired::Gone { reason: "it is released".into(), by_list: false, ignore_file: None });
    assert!(bench.record.released && !bench.record.runs());
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    bench.pass(&Desired::Gone { reason: "it is released".into(), by_list: false, ignore_file: None });
    assert!(!bench.record.released && bench.record.instances.is_empty());
    std::mem::swap(&mut bench.record, &mut selected);
    bench.pass(&wanted(&daemon_set("a")));
    assert!(!bench.record.released);
}

#[test]
fn the_same_inputs_give_the_same_plan() {
    let bench = Bench::running("a");
    let desired = wanted(&daemon_set("b"));
    assert_eq!(bench.plan(&desired), bench.plan(&desired));
}

#[test]
fn no_text_of_a_definition_makes_what_is_kept_of_a_daemon_long() {
    let long = || "x".repeat(1 << 20);
    let mut summary =
        Summary { reason: long(), pull_failed: Some(long()), hints: vec![long(); 300], ..Summary::default() };
    summary.shorten();
    let bytes: usize = summary.hints.iter().chain(&summary.pull_failed).chain([&summary.reason]).map(String::len).sum();
    assert!(bytes < 100_000, "{bytes}");
    assert!(summary.reason.ends_with("… (1044480 bytes more)"), "{}", &summary.reason[4_000..]);
    assert_eq!(summary.hints.last().map(String::as_str), Some("mend these first: 280 more hints are left out"));
}
