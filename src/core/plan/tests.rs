mod boot;
mod bootstrap;
mod dry_run;
mod gone;
mod held;
mod lost_data;
mod manifests;
mod missing;
mod not_accepted;
mod overlays;
mod permit;
mod ports;
mod progress;
mod refresh;
mod refused;
mod retry;
mod surge;
mod trigger;
mod turn;
mod unrecorded;
mod world;

use crate::core::model::Mode;
use crate::core::model::Source;
use crate::core::render::Missing;
use crate::core::time::at;
use crate::core::time::ms;
use std::collections::BTreeMap;

use serde_json::json;

use crate::core::cluster::released::Released;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::IntOrPercent;
use crate::core::model::Kind;
use crate::core::model::Lookup;
use crate::core::model::OWNER_ANNOTATION;
use crate::core::model::StartGate;
use crate::core::model::Taint;
use crate::core::model::UpdateStrategy;
use crate::core::policy::Admission;
use crate::core::ports::HostPort;
use crate::core::record::Cause;
use crate::core::record::EndConfirmation;
use crate::core::record::Failure;
use crate::core::record::Fingerprint;
use crate::core::record::LastRun;
use crate::core::record::PendingUpdate;
use crate::core::record::Phase;
use crate::core::record::RestartCause;
use crate::core::render::HeldPart;
use crate::core::render::Refused;
use crate::core::set_aside::HeldBack;
use crate::core::sources::DesiredReason;
use crate::core::sources::Hold;
use crate::core::sources::RefusedVersion;
use crate::core::start_order::After;

use super::*;

use world::DaemonWorld;
use world::image;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

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
    let reasons = plan.summary.reasons.to_string();
    assert!(reasons.ends_with("unknown whether it is gone: the container runtime has not been asked yet"), "{reasons}");
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
fn the_same_inputs_give_the_same_plan() {
    let bench = Bench::running("a");
    let desired = wanted(&daemon_set("b"));
    assert_eq!(bench.plan(&desired), bench.plan(&desired));
}

#[test]
fn no_text_of_a_definition_makes_what_is_kept_of_a_daemon_long() {
    let long = || "x".repeat(1 << 20);
    let mut summary = Summary {
        reasons: [Reason::Recorded(long())].into(),
        pull_failed: Some(ImageReason::Reported(long())),
        hints: vec![Hint::Field(long()); 300],
        ..Summary::default()
    };
    summary.shorten();
    let reason = summary.reasons.to_string();
    let pull_failed = summary.pull_failed.as_ref().map(ToString::to_string);
    let texts = summary.hint_lines().into_iter().chain(pull_failed).chain([reason.clone()]);
    let bytes: usize = texts.map(|text| text.len()).sum();
    assert!(bytes < 100_000, "{bytes}");
    assert!(reason.ends_with("… (1044480 bytes more)"), "{}", &reason[4_000..]);
    assert_eq!(summary.reasons, [Reason::Shortened(reason)].into());
    assert_eq!(summary.hint_lines().last().map(String::as_str), Some("mend these first: 280 more hints are left out"));
}
