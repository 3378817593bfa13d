use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::core::model::Mode;
use crate::core::model::Source;
use crate::core::record::DaemonRecord;
use crate::core::record::HandOver;
use crate::core::record::Instance;
use crate::core::sources::Desired;
use crate::core::sources::DesiredReason;
use crate::core::validate;

const BOOT: &str = "b";

fn daemon_set(namespace: &str, annotations: Value) -> Arc<DaemonSet> {
    let value = json!({
        "metadata": {"namespace": namespace, "name": "net", "annotations": annotations},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}},
        },
    });
    validate::daemon_set(&value, Source::Api).map(Arc::new).unwrap()
}

/// One daemon of a node.
struct TaintBench {
    desired: Desired,
    record: DaemonRecord,
    state: State,
    switch: Switch,
    api_server: ApiServer,
    /// Whether it is to run here once the node is well.
    belongs: bool,
    /// Whether its first instance here waits for the coordinator.
    awaits_approval: bool,
}

impl TaintBench {
    fn new(annotations: Value) -> Self {
        let daemon_set = daemon_set("kube-system", annotations);
        let record = DaemonRecord::new(daemon_set.key.clone(), 0);
        let desired = Desired::Wanted { daemon_set, mode: Mode::Static, note: None };
        let (state, switch, api_server) = (State::Starting, Switch::On, ApiServer::Answers);
        Self { desired, record, state, switch, api_server, belongs: false, awaits_approval: false }
    }

    fn asked() -> Self {
        Self::new(json!({STARTUP_TAINT: "true"}))
    }

    /// A daemon of which no source says anything now, and that was made from what it was `asked` for.
    fn unsure(mut self) -> Self {
        let definition = self.desired.definition().cloned();
        self.record
            .instances
            .push(Instance { daemon_set: definition, ..Instance::new("u", "p", 0, "r", Timestamp::default()) });
        self.desired = Desired::Unsure { reason: DesiredReason::Unanswered };
        self
    }

    /// What follows at that second; the record is kept, as a pass does. Gives the last remark and when to look again, too.
    fn at(&mut self, seconds: i64) -> (StartupTaint, String, Option<Timestamp>) {
        let mut plan = DaemonPlan::new(self.record.clone());
        plan.summary.state = self.state;
        plan.summary.awaits_approval = self.awaits_approval;
        let mut plans = [plan];
        let subjects = [Subject { desired: self.desired.clone(), record: &self.record, unlisted: false }];
        let belongs = self.belongs;
        let is_trusted = |daemon_set: &DaemonSet| daemon_set.key.namespace == "kube-system";
        let rules = TaintRules {
            now: Timestamp::from_secs(seconds),
            boot: BOOT,
            unread_until: Timestamp::default() + TIMEOUT,
            is_trusted: &is_trusted,
            may_be_trusted: &|key| key.namespace == "kube-system",
            belongs: &|_| belongs,
            switch: self.switch,
            api_server: self.api_server,
        };
        let taint = decide(&subjects, &mut plans, &rules);
        let [plan] = plans;
        assert_eq!(plan.summary.keeps_workload_away, taint.awaited.contains(&plan.key));
        let note = plan.summary.notes.last().map(ToString::to_string).unwrap_or_default();
        self.record = plan.record;
        (taint, note, plan.wake_at)
    }

    fn wish(&mut self) -> DesiredTaint {
        self.at(0).0.wish()
    }
}

#[test]
fn the_node_waits_until_the_daemon_was_ready_in_this_boot() {
    let mut bench = TaintBench::asked();
    let (taint, note, _) = bench.at(0);
    assert_eq!((taint.wish(), taint.daemons.len()), (DesiredTaint::Taint, 1));
    assert!(note.starts_with("the node is to carry daemonlet.dev/starting until it is Ready here"), "{note}");
    bench.record.in_boot(BOOT).steady = true;
    assert_eq!(bench.at(1).0.wish(), DesiredTaint::Taint, "its containers run, and it is not known to be Ready");
    bench.record.in_boot(BOOT).ready = true;
    let (taint, note, _) = bench.at(1);
    assert_eq!(
        (taint.wish(), taint.daemons.len(), note.as_str()),
        (DesiredTaint::NoTaint, 1, ""),
        "it does at the next boot"
    );
    bench.record.in_boot("another").ready = true;
    assert_eq!(bench.wish(), DesiredTaint::Taint, "that was another boot");
}

#[test]
fn it_waits_no_longer_than_the_timeout_and_an_agent_that_starts_again_does_not_begin_anew() {
    let mut bench = TaintBench::asked();
    assert_eq!(bench.at(5).2, Some(Timestamp::from_secs(605)), "ten minutes if the DaemonSet does not say");
    assert_eq!(bench.at(604).0.wish(), DesiredTaint::Taint);
    let (taint, note, _) = bench.at(605);
    assert_eq!(taint.wish(), DesiredTaint::NoTaint);
    let start = "the node was to carry daemonlet.dev/starting for 600 s (daemonlet.dev/startup-taint-timeout)";
    assert!(note.starts_with(start), "{note}");
    let mut short = TaintBench::new(json!({STARTUP_TAINT: "true", STARTUP_TAINT_TIMEOUT: "30s"}));
    assert_eq!(short.at(0).2, Some(Timestamp::from_secs(30)));
    let mut odd = TaintBench::new(json!({STARTUP_TAINT: "true", STARTUP_TAINT_TIMEOUT: "soon"}));
    assert_eq!(odd.at(0).2, Some(Timestamp::from_secs(600)));
}

#[test]
fn time_in_which_the_api_server_does_not_answer_does_not_count() {
    let mut bench = TaintBench::new(json!({STARTUP_TAINT: "true", STARTUP_TAINT_TIMEOUT: "100s"}));
    let wish = |bench: &mut TaintBench, api_server, seconds| {
        bench.api_server = api_server;
        let (taint, note, wake) = bench.at(seconds);
        (taint.wish(), note, wake.map(|wake| wake - Timestamp::default()))
    };
    for seconds in [0, 1000] {
        let (wish, note, wake) = wish(&mut bench, ApiServer::Silent, seconds);
        assert_eq!((wish, wake), (DesiredTaint::Taint, None), "the control plane boots, too");
        assert!(note.ends_with("at most for 100 s (daemonlet.dev/startup-taint-timeout) after the API server answers"));
    }
    let until = |seconds| Some(Span::from_secs(seconds));
    let (awaited, _, wake) = wish(&mut bench, ApiServer::Answers, 1000);
    assert_eq!((awaited, wake), (DesiredTaint::Taint, until(1100)), "the first contact");
    for seconds in [1060, 1500] {
        let (wish, note, _) = wish(&mut bench, ApiServer::Silent, seconds);
        assert!(wish == DesiredTaint::Taint && note.contains("at most for 40 s"), "{note}");
    }
    let (awaited, _, wake) = wish(&mut bench, ApiServer::Answers, 2000);
    assert_eq!((awaited, wake), (DesiredTaint::Taint, until(2040)), "60 s were answered before");
    bench.record.shift(Span::from_secs(5000));
    assert_eq!(wish(&mut bench, ApiServer::Answers, 7039).0, DesiredTaint::Taint);
    assert_eq!(wish(&mut bench, ApiServer::Answers, 7040).0, DesiredTaint::NoTaint);
    assert_eq!(wish(&mut bench, ApiServer::Silent, 7041).0, DesiredTaint::NoTaint, "it is over");
}

#[test]
fn only_true_counts_and_only_where_the_agent_may_and_the_namespace_is_trusted() {
    for value in ["false", "True", "yes", ""] {
        assert_eq!(
            TaintBench::new(json!({STARTUP_TAINT: value})).at(0),
            (StartupTaint::default(), String::new(), None)
        );
    }
    let mut off = TaintBench { switch: Switch::Off, ..TaintBench::asked() };
    let (taint, note, _) = off.at(0);
    assert_eq!((taint, off.record.this_boot.is_none()), (StartupTaint::default(), true));
    assert!(note.contains("node.startup-taint is off"), "{note}");
    let mut tenant = TaintBench::asked();
    let daemon_set = daemon_set("tenant", json!({STARTUP_TAINT: "true"}));
    tenant.desired = Desired::Wanted { daemon_set, mode: Mode::Static, note: None };
    let (taint, note, _) = tenant.at(0);
    assert_eq!(taint, StartupTaint::default());
    assert!(note.contains("is not among policy.trusted-namespaces"), "{note}");
}

#[test]
fn what_is_not_to_run_here_is_not_waited_for_and_what_is_unknown_changes_nothing() {
    for state in [
        State::NotSelected,
        State::LeftAlone,
        State::StandingBy,
        State::Refused,
        State::Stopping,
        State::Orphaned,
        State::Held,
    ] {
        assert_eq!(TaintBench { state, ..TaintBench::asked() }.at(0).0, StartupTaint::default(), "{state:?}");
    }
    for state in [State::Waiting, State::Running, State::Failing, State::Replacing, State::Stale, State::NotAccepted] {
        assert_eq!(TaintBench { state, ..TaintBench::asked() }.wish(), DesiredTaint::Taint, "{state:?}");
    }
    let mut soon = TaintBench { state: State::NotSelected, belongs: true, ..TaintBench::asked() };
    assert_eq!(soon.wish(), DesiredTaint::Taint, "the Node is not Ready yet, which it does not tolerate");
    let mut ends = TaintBench { state: State::Stopping, belongs: true, ..TaintBench::asked() };
    assert_eq!(ends.wish(), DesiredTaint::NoTaint);
    let mut unknown = TaintBench { state: State::Unknown, ..TaintBench::asked() };
    assert_eq!(unknown.wish(), DesiredTaint::Unknown);
    assert_eq!(unknown.at(600).0.wish(), DesiredTaint::NoTaint, "not for ever");
    for state in [State::Unknown, State::Held, State::Refused] {
        assert_eq!(
            TaintBench { state, ..TaintBench::asked().unsure() }.wish(),
            DesiredTaint::Taint,
            "an instance of it is here"
        );
    }
}

#[test]
fn a_daemon_that_hands_over_is_waited_for_until_its_successor_is_ready() {
    let mut bench = TaintBench { state: State::NotSelected, ..TaintBench::asked() };
    let hand_over =
        |boot: &str, done| Some(HandOver { boot: boot.into(), pod: "p".into(), uid: "u".into(), done, missing: None });
    for (boot, done, wish) in
        [(BOOT, false, DesiredTaint::Taint), (BOOT, true, DesiredTaint::NoTaint), ("x", false, DesiredTaint::NoTaint)]
    {
        bench.record.hand_over = hand_over(boot, done);
        assert_eq!(bench.wish(), wish);
    }
}

#[test]
fn what_is_being_read_may_ask_for_it_but_not_for_ever() {
    let mut bench = TaintBench::asked();
    bench.desired = Desired::Unsure { reason: DesiredReason::BeingRead };
    let (taint, _, wake) = bench.at(599);
    assert_eq!((taint.wish(), wake), (DesiredTaint::Unknown, Some(Timestamp::from_secs(600))));
    assert_eq!(bench.at(600).0.wish(), DesiredTaint::NoTaint, "ten minutes after the boot");
    assert!(bench.record.this_boot.is_none(), "nothing is remembered of it");
    bench.record = DaemonRecord::new(ObjectKey::new("tenant", "net"), 0);
    assert_eq!(bench.at(0), (StartupTaint::default(), String::new(), None), "whatever it says counts for nothing");
}

#[test]
fn a_first_install_that_waits_for_the_coordinator_keeps_no_workload_away() {
    let mut bench = TaintBench::asked();
    (bench.state, bench.awaits_approval) = (State::Waiting, true);
    assert_eq!(bench.at(0).0, StartupTaint::default());
    bench.awaits_approval = false;
    assert_eq!(bench.at(3600).0.wish(), DesiredTaint::Taint, "its turn comes: the timeout begins");
    assert_eq!(bench.at(3600 + TIMEOUT.as_secs() - 1).0.wish(), DesiredTaint::Taint);
}

#[test]
fn a_taint_with_another_effect_keeps_no_pod_away() {
    let node = |effect: &str| json!({"spec": {"taints": [{"key": STARTING_TAINT, "effect": effect}]}});
    let seen = ["NoSchedule", "PreferNoSchedule"].map(|effect| (is_set(&node(effect)), is_named(&node(effect))));
    assert_eq!(seen, [(true, true), (false, true)]);
}
