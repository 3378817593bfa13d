//! Bridging until the DaemonSet controller's pod is here, and again while it cannot come.

use crate::core::model::MODE_LABEL;
use crate::core::model::ObjectMap;
use crate::core::plan::bootstrap::MISSING;
use crate::core::policy::NotCovered;
use crate::core::policy::Policy;
use crate::core::record::HandOver;
use crate::core::record::LastRun;
use crate::core::sources;
use crate::core::sources::ApiState;
use crate::core::sources::Confirmation;
use crate::core::sources::FolderState;
use crate::core::sources::KnownDefinition;
use crate::core::time::ms;

use super::*;

fn desired() -> Desired {
    Desired::Wanted { daemon_set: Arc::new(daemon_set("a")), mode: Mode::Bootstrap, note: None }
}

fn pod(ready: bool) -> StockPod {
    StockPod { name: "net-x7f2k".to_owned(), uid: "s".to_owned(), ready, runs: ready, unbound: None }
}

/// One that the scheduler could not bind.
fn unbound(may_end_with_instance: bool) -> StockPod {
    let message = "0/1 nodes are available: 1 of them has something".to_owned();
    StockPod { unbound: Some(Unbound { message, may_end_with_instance }), ..pod(false) }
}

/// An instance that has made way for a pod that has not been Ready.
fn handed_over() -> Bench {
    let mut bench = Bench::running("a");
    bench.world.stock = Some(Stock::Here(pod(false)));
    assert_eq!(bench.pass(&desired()), ["end uid-a-0"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired()), ["finish uid-a-0"]);
    bench
}

#[test]
fn the_stock_pod_ends_the_instance_for_this_boot() {
    let mut bench = Bench::running("a");
    assert_eq!(bench.pass(&desired()), NONE);
    bench = handed_over();
    bench.world.stock = Some(Stock::Absent);
    assert_eq!(bench.pass(&desired()), NONE, "a rollout of the DaemonSet controller is no call for us");
    bench.boot = "boot-2".to_owned();
    assert_eq!(bench.pass(&desired()), ["start uid-a-1"], "after a boot it is");
}

#[test]
fn what_was_handed_over_does_not_come_back_when_its_label_is_taken_away() {
    let mut bench = handed_over();
    let mut before = daemon_set("a");
    (before.source, before.uid) = (Source::Api, Some("ds-uid".to_owned()));
    before.labels.insert(MODE_LABEL.to_owned(), "bootstrap".to_owned());
    let mut now = before.clone();
    now.labels.clear();
    let (before, now) = (Arc::new(before), Arc::new(now));
    bench.record.api_uid = before.uid.clone();
    bench.record.ended.clear();
    bench.record.previous = Some(LastRun { revision: "r".to_owned(), daemon_set: Arc::clone(&before), claimed: false });
    let resolved = |record: &DaemonRecord, api| {
        let known = KnownDefinition {
            folder: FolderState::Absent,
            api,
            remembered: None,
            confirmation: Confirmation::Unasked,
            has_file: false,
            is_superseded: false,
            is_changing: false,
        };
        sources::resolve(&known, record, &Policy::default(), &ObjectMap::default())
    };
    let back = resolved(&bench.record, ApiState::Unknown);
    assert!(matches!(back, Desired::Wanted { .. }), "without an answer of the API server it belongs here: {back:?}");
    bench.pass(&resolved(&bench.record, ApiState::Present(&now)));
    assert!(bench.record.is_bare(), "{:?}", bench.record);
    let gone = resolved(&bench.record, ApiState::Unknown);
    assert!(!matches!(gone, Desired::Wanted { .. }), "{gone:?}");
    let mut bench = handed_over();
    bench.pass(&Desired::Left { reason: DesiredReason::NotSelected, taken_away: false });
    assert!(bench.record.hand_over.is_some(), "which may select it again");
}

#[test]
fn what_was_handed_over_is_known_until_the_end_of_the_boot_where_it_may_be_selected_again() {
    let gone = |reason| Desired::Gone { reason, by_list: false, ignore_file: None };
    let undefined = || DesiredReason::Undefined { has_file: false };
    let mut bench = handed_over();
    for reason in [DesiredReason::NotCovered(NotCovered::ModeLabelled), undefined()] {
        bench.pass(&gone(reason));
        assert!(bench.record.hand_over.is_some() && bench.record.previous.is_none());
    }
    bench.world.stock = Some(Stock::Here(unbound(true)));
    assert_eq!(bench.pass(&desired()), NONE);
    bench.now += MISSING;
    assert_eq!(bench.pass(&desired()), ["start uid-a-1"], "once");
    assert_eq!(bench.pass(&desired()), NONE);
    bench = handed_over();
    bench.pass(&gone(DesiredReason::Deleted));
    assert!(bench.record.hand_over.is_none());
    bench = handed_over();
    bench.record.hand_over.as_mut().unwrap().done = true;
    bench.pass(&gone(undefined()));
    assert!(bench.record.hand_over.is_none(), "the API server shows whether its pod is there");
    bench = handed_over();
    bench.pass(&gone(undefined()));
    bench.boot = "boot-2".to_owned();
    bench.pass(&gone(undefined()));
    assert!(bench.record.hand_over.is_none());
}

#[test]
fn the_images_come_first() {
    let mut bench = Bench::running("a");
    bench.world.stock = Some(Stock::Here(pod(false)));
    bench.world.images = Some(Images::Pulling(ImageReason::Reported("image 1 of 1".to_owned())));
    assert_eq!(bench.pass(&desired()), NONE);
    assert!(bench.plan(&desired()).pull.is_some());
    bench.world.images = Some(Images::Failed(ImageReason::Reported("no such image".to_owned())));
    assert_eq!(bench.pass(&desired()), NONE, "what serves goes on serving");
    bench.world.stock = Some(Stock::Here(pod(true)));
    assert_eq!(bench.pass(&desired()), ["end uid-a-0"], "it has them, or it would not run");
}

#[test]
fn the_instance_returns_where_the_stock_pod_cannot_come() {
    let mut bench = handed_over();
    bench.world.stock = Some(Stock::Lost(Evidence::Gone));
    assert_eq!(bench.pass(&desired()), NONE);
    bench.now += MISSING - ms(1);
    assert_eq!(bench.pass(&desired()), NONE);
    bench.world.stock = Some(Stock::Lost(Evidence::Running));
    assert_eq!(bench.pass(&desired()), NONE);
    bench.now += ms(1);
    bench.world.stock = Some(Stock::Lost(Evidence::Gone));
    assert_eq!(bench.pass(&desired()), NONE, "it ran meanwhile: the time begins anew");
    bench.now += MISSING;
    assert_eq!(bench.pass(&desired()), ["start uid-a-1"]);
    bench.now += MISSING;
    assert_eq!(bench.pass(&desired()), NONE, "and stays");
    bench.world.stock = Some(Stock::Here(pod(true)));
    assert_eq!(bench.pass(&desired()), ["end uid-a-1"], "until the pod can");
}

#[test]
fn the_instance_goes_on_where_its_end_would_not_help_the_stock_pod() {
    let mut bench = Bench::running("a");
    bench.world.stock = Some(Stock::Here(unbound(false)));
    assert_eq!(bench.pass(&desired()), NONE);
    let notes = bench.plan(&desired()).summary.notes;
    assert!(notes.iter().any(|note| note.to_string().contains("1 of them has something")), "{notes:?}");
    bench.world.stock = Some(Stock::Here(unbound(true)));
    assert_eq!(bench.pass(&desired()), ["end uid-a-0"], "it may be what is in its way");
}

#[test]
fn the_instance_returns_once_where_the_scheduler_cannot_bind_the_stock_pod_without_it() {
    let returned = || {
        let mut bench = Bench::running("a");
        bench.world.stock = Some(Stock::Here(unbound(true)));
        assert_eq!(bench.pass(&desired()), ["end uid-a-0"]);
        bench.now += ms(1);
        bench.world.stock = Some(Stock::Here(unbound(false)));
        assert_eq!(bench.pass(&desired()), NONE, "what the scheduler says may be older than the end");
        bench.world.running.clear();
        bench.now += GONE_AFTER;
        assert_eq!(bench.pass(&desired()), ["finish uid-a-0"]);
        let plan = bench.plan(&desired());
        assert_eq!((plan.summary.state, plan.wake_at), (State::StandingBy, Some(bench.now + MISSING)));
        assert_eq!(bench.pass(&desired()), NONE);
        bench.now += MISSING - ms(1);
        assert_eq!(bench.pass(&desired()), NONE);
        bench.now += ms(1);
        assert_eq!(bench.pass(&desired()), ["start uid-a-1"]);
        bench.world.stock = Some(Stock::Here(unbound(true)));
        bench
    };
    let mut bench = returned();
    for _ in 0..2 {
        bench.now += MISSING;
        assert_eq!(bench.pass(&desired()), NONE, "it has been tried");
    }
    bench.world.stock = Some(Stock::Here(StockPod { uid: "t".to_owned(), ..unbound(true) }));
    assert_eq!(bench.pass(&desired()), ["end uid-a-1"], "another pod may fit");
    let mut bench = returned();
    bench.boot = "boot-2".to_owned();
    assert_eq!(bench.pass(&desired()), ["end uid-a-1"], "in another boot it may fit");
    let mut bench = returned();
    bench.world.stock = Some(Stock::Here(pod(false)));
    assert_eq!(bench.pass(&desired()), ["end uid-a-1"], "it is bound now");
}

#[test]
fn the_instance_returns_where_the_stock_pod_goes_and_none_follows() {
    let mut bench = handed_over();
    bench.world.stock = Some(Stock::Absent);
    assert_eq!(bench.pass(&desired()), NONE);
    bench.now += MISSING - ms(1);
    assert_eq!(bench.pass(&desired()), NONE, "another may come");
    bench.now += ms(1);
    assert_eq!(bench.pass(&desired()), ["start uid-a-1"]);
    let mut bench = handed_over();
    bench.world.stock = Some(Stock::Here(pod(true)));
    assert_eq!(bench.pass(&desired()), NONE);
    bench.world.stock = Some(Stock::Absent);
    for _ in 0..2 {
        assert_eq!(bench.pass(&desired()), NONE, "it has been ready");
        bench.now += MISSING;
    }
}

#[test]
fn nothing_returns_after_the_stock_pod_was_ready_once() {
    let mut bench = handed_over();
    bench.world.stock = Some(Stock::Here(pod(true)));
    assert_eq!(bench.pass(&desired()), NONE);
    assert_eq!(bench.plan(&desired()).summary.state, State::StandingBy);
    bench.world.stock = Some(Stock::Here(pod(false)));
    assert_eq!(bench.pass(&desired()), NONE);
    bench.world.stock = Some(Stock::Lost(Evidence::Gone));
    assert_eq!(bench.pass(&desired()), NONE);
    bench.now += MISSING * 10;
    assert_eq!(bench.pass(&desired()), NONE);
    bench.boot = "boot-2".to_owned();
    assert_eq!(bench.pass(&desired()), ["start uid-a-1"], "a cold boot without an API server");
}

#[test]
fn a_runtime_that_is_silent_proves_nothing() {
    let mut bench = handed_over();
    for _ in 0..3 {
        bench.world.stock = Some(Stock::Lost(Evidence::Gone));
        assert_eq!(bench.pass(&desired()), NONE);
        bench.now += MISSING / 2;
        bench.world.stock = Some(Stock::Lost(Evidence::Unknown(Unseen::NotAsked)));
        assert_eq!(bench.pass(&desired()), NONE);
        bench.now += MISSING / 2;
    }
}

#[test]
fn nothing_is_started_before_the_pods_are_known() {
    let mut bench = Bench::new();
    bench.world.stock = Some(Stock::Unlisted);
    assert_eq!(bench.pass(&desired()), NONE);
    bench.world.stock = Some(Stock::Here(pod(true)));
    assert_eq!(bench.pass(&desired()), NONE);
    bench.world.stock = Some(Stock::Absent);
    assert_eq!(bench.pass(&desired()), NONE);
    let mut bench = Bench::running("a");
    bench.world.stock = Some(Stock::Unlisted);
    assert_eq!(bench.pass(&desired()), NONE, "what runs goes on");
}

#[test]
fn a_first_instance_beside_a_kubelet_waits_some_time_for_the_api_server() {
    let mut bench = Bench::new();
    let until = bench.now + ms(5_000);
    (bench.world.stock, bench.world.stock_awaited_until) = (Some(Stock::Lost(Evidence::Gone)), Some(until));
    let plan = bench.plan(&desired());
    assert_eq!((plan.actions.len(), plan.summary.state, plan.wake_at), (0, State::Waiting, Some(until)));
    bench.world.stock = Some(Stock::Here(pod(true)));
    assert_eq!(bench.plan(&desired()).actions.len(), 0, "it is there");
    bench.world.stock = Some(Stock::Lost(Evidence::Gone));
    bench.now = until;
    assert_eq!(bench.pass(&desired()), ["start uid-a-0"], "no API server answers");
    let mut bench = Bench::running("a");
    (bench.world.stock, bench.world.stock_awaited_until) = (Some(Stock::Lost(Evidence::Gone)), Some(bench.now + ms(1)));
    bench.world.manifests.clear();
    assert_eq!(bench.pass(&desired()), ["end uid-a-0"]);
    bench.world.running.clear();
    assert_eq!(bench.pass(&desired()), NONE, "it ends");
    bench.now += GONE_AFTER;
    bench.world.stock_awaited_until = Some(bench.now + ms(1));
    assert_eq!(bench.pass(&desired()), ["finish uid-a-0", "start uid-a-1"], "what ran returns at once");
}

#[test]
fn where_its_record_is_lost_it_may_have_been_handed_over_in_this_boot() {
    let lost = |stock: Stock| {
        let mut bench = Bench::new();
        bench.record.hand_over = Some(HandOver::unknown(&bench.boot));
        bench.world.stock = Some(stock);
        bench
    };
    for stock in [Stock::Lost(Evidence::Gone), Stock::Unlisted] {
        let mut bench = lost(stock);
        for _ in 0..3 {
            assert_eq!(bench.pass(&desired()), NONE);
            assert_eq!(bench.plan(&desired()).summary.state, State::Waiting);
            bench.now += MISSING;
        }
        bench.boot = "boot-2".to_owned();
        bench.world.stock = Some(Stock::Lost(Evidence::Gone));
        assert_eq!(bench.pass(&desired()), ["start uid-a-0"], "in another boot it was not");
    }
    assert_eq!(lost(Stock::Absent).pass(&desired()), ["start uid-a-0"], "the API server says that it was not");
    let mut bench = lost(Stock::Here(pod(false)));
    assert_eq!(bench.pass(&desired()), NONE);
    let known = bench.record.hand_over.as_ref().unwrap();
    assert_eq!((known.is_unknown(), known.done), (false, false), "it was, and that pod has yet to be Ready");
    let mut bench = lost(Stock::Lost(Evidence::Gone));
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), ["start uid-a-0"], "its mode is another one now");
    assert!(bench.record.hand_over.is_none());
}

#[test]
fn a_stock_pod_beside_a_static_instance_is_reported() {
    let mut bench = Bench::running("a");
    let mut of_the_api = daemon_set("a");
    of_the_api.source = Source::Api;
    bench.world.stock = Some(Stock::Here(pod(true)));
    let plan = bench.plan(&wanted(&of_the_api));
    assert_eq!(plan.summary.stock_pod.as_deref(), Some("net-x7f2k"));
    assert!(plan.summary.hint_lines()[0].contains("daemonlet.dev/static"), "{:?}", plan.summary.hints);
    assert_eq!(bench.pass(&wanted(&of_the_api)), NONE, "and changes nothing");
}
