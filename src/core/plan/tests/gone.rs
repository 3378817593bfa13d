//! How daemons end that are gone, and what keeps those that may not be.

use crate::core::model::ObjectMap;
use crate::core::policy::Policy;
use crate::core::sources;
use crate::core::sources::ApiState;
use crate::core::sources::Confirmation;
use crate::core::sources::FolderState;
use crate::core::sources::KnownDefinition;
use crate::core::sources::Unproven;

use super::*;

#[test]
fn a_gone_daemon_ends_is_finished_and_keeps_its_number() {
    let mut bench = Bench::running("a");
    let desired = Desired::Gone { reason: DesiredReason::Deleted, by_list: false, ignore_file: None };
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
fn a_file_that_counts_again_counts_whatever_it_has_later() {
    let file = Arc::new(daemon_set("a"));
    let resolved = |record: &DaemonRecord, fingerprint: &str| {
        let known = KnownDefinition {
            folder: FolderState::Present { daemon_set: &file, fingerprint },
            api: ApiState::Absent { by_event: true },
            remembered: None,
            confirmation: Confirmation::Gone,
            has_file: true,
            is_superseded: false,
            is_changing: false,
        };
        sources::resolve(&known, record, &Policy::default(), &ObjectMap::default())
    };
    for is_ending in [true, false] {
        let mut bench = Bench::running("a");
        bench.record.api_uid = Some("ds-uid".to_owned());
        assert_eq!(bench.pass(&resolved(&bench.record, "v1")), ["end uid-a-0"]);
        if !is_ending {
            bench.world.running.clear();
            bench.now += GONE_AFTER;
            assert_eq!(bench.pass(&resolved(&bench.record, "v1")), ["finish uid-a-0"]);
        }
        assert_eq!(bench.pass(&resolved(&bench.record, "v1")), NONE, "it is ignored");
        bench.pass(&resolved(&bench.record, "v2"));
        bench.world.running.retain(|uid| uid != "uid-a-0");
        bench.now += GONE_AFTER;
        bench.pass(&resolved(&bench.record, "v2"));
        assert_eq!(bench.record.live().count(), 1, "it has changed");
        assert_eq!(bench.pass(&resolved(&bench.record, "v1")), NONE, "it has changed again: {is_ending}");
        assert_eq!(bench.record.live().count(), 1);
    }
}

#[test]
fn a_file_that_changes_adopts_what_was_orphaned_and_decides_alone_from_then() {
    let (file, changed) = (Arc::new(daemon_set("a")), Arc::new(daemon_set("b")));
    let resolved = |record: &DaemonRecord, folder| {
        let known = KnownDefinition {
            folder,
            api: ApiState::Orphaned,
            remembered: None,
            confirmation: Confirmation::Unasked,
            has_file: true,
            is_superseded: false,
            is_changing: false,
        };
        sources::resolve(&known, record, &Policy::default(), &ObjectMap::default())
    };
    let mut bench = Bench::running("a");
    let of_api = DaemonSet { source: Source::Api, ..daemon_set("a") };
    bench.record.instances[0].daemon_set = Some(Arc::new(of_api));
    bench.record.api_uid = Some("ds-uid".to_owned());
    let first = FolderState::Present { daemon_set: &file, fingerprint: "v1" };
    for folder in [first, FolderState::Unsure { reason: Unproven::FolderUnread }, first] {
        assert_eq!(bench.pass(&resolved(&bench.record, folder)), NONE);
        assert!(bench.record.instances[0].orphaned);
    }
    let same = FolderState::Present { daemon_set: &file, fingerprint: "v2" };
    for _ in 0..2 {
        assert_eq!(bench.pass(&resolved(&bench.record, same)), NONE, "its template is the same");
        assert!(!bench.record.instances[0].orphaned);
    }
    let other = FolderState::Present { daemon_set: &changed, fingerprint: "v3" };
    assert_eq!(bench.pass(&resolved(&bench.record, other)), ["end uid-a-0"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&resolved(&bench.record, other)), ["finish uid-a-0", "start uid-b-1"]);
    assert_eq!(bench.pass(&resolved(&bench.record, FolderState::Absent)), ["end uid-b-1"], "it goes with its file");
}

#[test]
fn a_lists_silence_is_held_when_too_much_would_go() {
    let mut bench = Bench::running("a");
    bench.held = true;
    assert_eq!(bench.pass(&Desired::Gone { reason: DesiredReason::Unlisted, by_list: true, ignore_file: None }), NONE);
    assert_eq!(
        bench.pass(&Desired::Gone { reason: DesiredReason::Deleted, by_list: false, ignore_file: None }),
        ["end uid-a-0"]
    );
}

#[test]
fn doubt_and_orphaning_keep_what_runs() {
    let mut bench = Bench::running("a");
    assert_eq!(bench.pass(&Desired::Unsure { reason: DesiredReason::Unanswered }), NONE);
    assert_eq!(bench.pass(&Desired::Confirm { reason: DesiredReason::Unlisted }), ["confirm"]);
    assert_eq!(bench.pass(&Desired::Orphaned { ignore_file: None }), NONE);
    assert_eq!(
        bench.pass(&Desired::Gone { reason: DesiredReason::Deleted, by_list: false, ignore_file: None }),
        NONE,
        "an orphaned instance stays when its DaemonSet is gone"
    );
    assert_eq!(bench.plan(&Desired::Unsure { reason: DesiredReason::Unanswered }).summary.state, State::Orphaned);
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), NONE, "a DaemonSet of the same template adopts it");
    assert!(!bench.record.instances[0].orphaned);
}

const UNOBSERVABLE: Unobservable = Unobservable { runtime: RuntimeGap::NotConfigured, api: ApiGap::NoAnswer };

#[test]
fn a_replacement_waits_until_the_end_of_the_old_one_can_be_observed() {
    let mut bench = Bench::running("a");
    let new = wanted(&daemon_set("b"));
    bench.world.end_observable = Some(EndObservable::AskRuntime);
    let asking = bench.plan(&new);
    assert_eq!((asking.actions.len(), asking.asks_runtime, asking.wake_at), (0, true, Some(bench.now)));
    assert!(asking.summary.reasons.is_empty() || asking.summary.state != State::Waiting, "{:?}", asking.summary);
    bench.world.end_observable = Some(EndObservable::No(UNOBSERVABLE));
    assert_eq!(bench.pass(&new), NONE);
    let waiting = bench.plan(&new);
    assert_eq!((waiting.summary.state, waiting.asks_runtime), (State::Waiting, false));
    let why = Reason::EndUnobservable { cause: Box::new(Reason::Replaced("b".to_owned())), why: UNOBSERVABLE };
    assert!(waiting.summary.reasons.contains(&why) && !waiting.summary.hints.is_empty());
    bench.record.order_restart("uid-a-0", RestartCause::ByHand, bench.now, &Fingerprint::Unknown);
    assert_eq!(bench.pass(&new), NONE, "an order waits, too");
    bench.world.end_observable = Some(EndObservable::By(EndConfirmation::NeverStarted));
    let makes_room = |action: &Action| matches!(action, Action::End { successor: Some(_), .. });
    assert!(bench.plan(&new).actions.iter().any(makes_room), "where the disk does not take the new one, it stays");
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
    bench.world.end_observable = Some(EndObservable::No(UNOBSERVABLE));
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
    let unobservable = Some(EndObservable::No(UNOBSERVABLE));
    let mut bench = Bench::running("a");
    bench.world.end_observable = unobservable.clone();
    bench.world.manifests.clear();
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), ["end uid-a-0"]);
    assert!(matches!(bench.record.instances[0].phase, Phase::Ending { confirmed_by: EndConfirmation::ByTime, .. }));
    let mut bench = Bench::running("a");
    bench.world.end_observable = unobservable;
    let gone = Desired::Gone { reason: DesiredReason::Deleted, by_list: false, ignore_file: None };
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
