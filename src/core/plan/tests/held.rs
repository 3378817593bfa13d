//! What is held, and what is released.

use super::*;

fn error() -> FieldError {
    FieldError { field: "spec".to_owned(), reason: "is wrong".to_owned(), hint: None }
}

fn held(why: Hold) -> Desired {
    Desired::Held { daemon_set: Arc::new(daemon_set("a")), mode: Mode::Static, why, ask: false }
}

#[test]
fn what_is_held_keeps_its_revision_and_its_data_fresh_and_says_so() {
    let mut bench = Bench::running("a");
    let narrowed = held(Hold::Narrowed(DesiredReason::MayBeHidden));
    let refused = held(Hold::Refused(RefusedVersion::Invalid(vec![error()])));
    for (desired, state, releasable) in [(&narrowed, State::Held, true), (&refused, State::Refused, false)] {
        assert_eq!(bench.pass(desired), NONE);
        let summary = bench.plan(desired).summary;
        assert_eq!((summary.state, summary.releasable, summary.mode), (state, releasable, Some(Mode::Static)));
        assert!(!summary.hints.is_empty() && !summary.reasons.is_empty(), "{summary:?}");
    }
    let errors = || vec![FieldError { hint: Some("do it".to_owned()), ..error() }];
    for why in [Hold::Forbidden(errors()), Hold::Refused(RefusedVersion::TooLarge(errors())), Hold::Overlays(errors())]
    {
        let summary = bench.plan(&held(why)).summary;
        assert!(
            summary.reasons.to_string().contains(&error().to_string()) && !summary.reasons.to_string().contains("hint"),
            "{summary:?}"
        );
        assert_eq!((&summary.hints[0], summary.hints.len()), (&Hint::Field("do it".to_owned()), 2), "{summary:?}");
    }
    bench.world.stale_volumes.insert("uid-a-0".to_owned());
    assert_eq!(bench.pass(&narrowed), ["refresh uid-a-0 volumes=true manifest=false"]);
    bench.world.manifests.clear();
    assert_eq!(bench.pass(&narrowed), ["end uid-a-0"], "its manifest was removed from outside");
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
        assert_eq!(bench.pass(&desired), ["end uid-a-0"], "its manifest was removed from outside");
        bench.world.running.clear();
        bench.now += GONE_AFTER;
        bench.pass(&desired)
    };
    assert_eq!(lost_manifest(Hold::Forbidden(vec![error()])), ["finish uid-a-0", "start uid-a-1"]);
    assert_eq!(lost_manifest(Hold::Narrowed(DesiredReason::MayBeHidden)), ["finish uid-a-0", "start uid-a-1"]);
    let mut bench = Bench::running("a");
    bench.pass(&wanted(&daemon_set("b")));
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    let undefined = held(Hold::Undefined(DesiredReason::FolderPassedOver));
    assert_eq!(bench.pass(&undefined), ["finish uid-a-0", "start uid-a-1"], "it was ended to be replaced");
    let mut bench = Bench::new();
    bench.world.forbids = true;
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), NONE);
}

#[test]
fn a_release_is_over_once_nothing_of_it_is_left_or_it_is_selected_again() {
    let mut bench = Bench::running("a");
    bench.record.released = true;
    bench.pass(&Desired::Unsure { reason: DesiredReason::Unanswered });
    assert!(bench.record.released, "it waits for its time");
    let mut selected = bench.record.clone();
    bench.pass(&Desired::Gone { reason: DesiredReason::Deleted, by_list: false, ignore_file: None });
    assert!(bench.record.released && !bench.record.runs());
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    bench.pass(&Desired::Gone { reason: DesiredReason::Deleted, by_list: false, ignore_file: None });
    assert!(!bench.record.released && bench.record.instances.is_empty());
    std::mem::swap(&mut bench.record, &mut selected);
    bench.pass(&wanted(&daemon_set("a")));
    assert!(!bench.record.released);
}

#[test]
fn what_an_instance_came_from_that_another_daemon_set_adopted_stays_while_it_is_held() {
    let of = |uid: &str, image| DaemonSet { source: Source::Api, uid: Some(uid.to_owned()), ..daemon_set(image) };
    let mut bench = Bench::new();
    bench.pass(&wanted(&of("first", "a")));
    bench.pass(&wanted(&of("first", "a")));
    bench.world.permission = Some(Permission::Withheld(Withheld::Paused));
    assert_eq!(bench.pass(&wanted(&of("second", "b"))), NONE);
    bench.record.order_restart("uid-a-0", RestartCause::Deleted, bench.now, &Fingerprint::Unknown);
    bench.pass(&wanted(&of("second", "b")));
    assert!(bench.record.live().next().is_none() && bench.record.last.is_some());
    let why = Hold::Narrowed(DesiredReason::MayBeHidden);
    let narrowed = Desired::Held { daemon_set: Arc::new(of("first", "a")), mode: Mode::Static, why, ask: false };
    for desired in [&narrowed, &wanted(&of("second", "b"))] {
        bench.pass(desired);
        assert!(bench.record.last.is_some(), "it is to return as it was");
    }
}

#[test]
fn what_is_to_return_and_nothing_says_how_to_make_can_be_released() {
    let mut bench = Bench::running("a");
    bench.record.instances.clear();
    let kept = Desired::Kept { reason: DesiredReason::NotInApi };
    for returns in [true, false] {
        bench.record.returns = returns;
        assert_eq!(bench.plan(&kept).summary.releasable, returns);
    }
}
