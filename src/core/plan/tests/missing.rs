use super::*;
use crate::core::cluster::node_daemons::MissingReport;
use crate::core::plan::reason::describe;

fn of_api(image: &str) -> DaemonSet {
    DaemonSet { source: Source::Api, uid: Some("u".into()), ..daemon_set(image) }
}

fn reference() -> ObjectRef {
    ObjectRef::new(Kind::ConfigMap, "kube-system", "config")
}

fn held(unconfirmed: bool) -> HeldPart {
    let [kind, namespace, name] = ["ConfigMap", "kube-system", "config"].map(str::to_owned);
    HeldPart {
        missing: vec![Missing { kind, namespace, name, key: String::new() }],
        unconfirmed,
        ..HeldPart::default()
    }
}

fn withheld() -> Permission {
    Permission::Withheld(Withheld::NotApproved)
}

/// `a` runs, `b` is wanted and refers to a ConfigMap.
fn bench(permission: Permission, held: Option<HeldPart>) -> (Bench, Desired) {
    let mut bench = Bench::new();
    bench.pass(&wanted(&of_api("a")));
    bench.world.ready.insert("uid-a-0".to_owned(), bench.now);
    bench.world.permission = Some(permission);
    bench.world.needs.insert("b".to_owned(), (reference(), held));
    (bench, wanted(&of_api("b")))
}

fn missing() -> Option<MissingReport> {
    Some(MissingReport { revision: "b".to_owned(), message: "ConfigMap kube-system/config".to_owned() })
}

#[test]
fn what_an_approved_revision_lacks_is_said_and_stays_known_when_the_approval_is_withdrawn() {
    let (mut bench, desired) = bench(Permission::Approved, Some(held(false)));
    assert_eq!(bench.pass(&desired), NONE);
    for permission in [Permission::Approved, withheld(), Permission::Claimed, withheld()] {
        bench.world.permission = Some(permission.clone());
        assert_eq!(bench.pass(&desired), NONE);
        let plan = bench.plan(&desired);
        assert_eq!((plan.summary.state, &plan.summary.missing), (State::Running, &missing()), "{permission:?}");
        assert!(plan.summary.reasons.to_string().contains("ConfigMap kube-system/config"), "{}", plan.summary.reasons);
        assert!(plan.references.contains(&reference()), "it is watched for its creation: {permission:?}");
        assert_eq!(plan.replacing, None);
    }
    bench.world.needs.insert("b".to_owned(), (reference(), None));
    let plan = bench.plan(&desired);
    assert_eq!((plan.summary.missing, plan.references.contains(&reference())), (None, true));
    bench.world.permission = Some(Permission::Approved);
    assert_eq!(bench.plan(&desired).replacing.as_deref(), Some("b"));
    bench.world.permission = Some(Permission::Claimed);
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
}

#[test]
fn what_nobody_has_said_anything_of_is_not_missing() {
    let (mut bench, desired) = bench(Permission::Approved, Some(held(true)));
    for permission in [Permission::Approved, withheld()] {
        bench.world.permission = Some(permission);
        assert_eq!(bench.pass(&desired), NONE);
        let plan = bench.plan(&desired);
        assert_eq!((plan.summary.missing, plan.references.contains(&reference())), (None, true));
    }
}

#[test]
fn objects_are_asked_for_ahead_of_an_approval_when_images_are() {
    let (mut bench, desired) = bench(withheld(), Some(held(false)));
    bench.pass(&desired);
    let plan = bench.plan(&desired);
    assert_eq!((plan.summary.missing, plan.references.contains(&reference())), (None, false), "not its turn yet");
    bench.now += Span::from_secs(600);
    let plan = bench.plan(&desired);
    assert_eq!((plan.summary.missing, plan.references.contains(&reference())), (missing(), true));
    let mut halted = of_api("b");
    halted.rollout.halted = Some("it failed".to_owned());
    let mut paused = of_api("b");
    paused.annotations.insert("daemonlet.dev/paused".to_owned(), "true".to_owned());
    for stopped in [halted, paused] {
        let plan = bench.plan(&wanted(&stopped));
        assert_eq!((plan.summary.missing, plan.references.contains(&reference())), (None, false));
    }
    bench.world.forbids = true;
    let plan = bench.plan(&desired);
    assert_eq!((plan.summary.missing, plan.references.contains(&reference())), (None, false), "policy refuses it");
}

#[test]
fn what_the_revision_that_runs_lacks_is_not_said_of_another() {
    let restarting = |image: &str| {
        let mut daemon_set = of_api(image);
        daemon_set.annotations.insert(RESTART_ON_FOR_TEST.to_owned(), "config".to_owned());
        wanted(&daemon_set)
    };
    let mut bench = Bench::new();
    bench.world.data_version = "1".to_owned();
    bench.pass(&restarting("a"));
    bench.world.permission = Some(withheld());
    bench.world.needs.insert("a".to_owned(), (reference(), Some(held(false))));
    assert_eq!(bench.plan(&restarting("a")).summary.missing, None);
    bench.record.order_restart("uid-a-0", RestartCause::Deleted, bench.now, &Fingerprint::Unknown);
    assert_eq!(bench.plan(&restarting("a")).summary.missing, None);
    // Nothing runs: the first instance waits for it, and it keeps its slot.
    let mut first = Bench::new();
    first.world.permission = Some(Permission::Approved);
    first.world.needs.insert("b".to_owned(), (reference(), Some(held(false))));
    let plan = first.plan(&wanted(&of_api("b")));
    assert_eq!((plan.summary.state, plan.summary.missing), (State::Waiting, None));
}

#[test]
fn two_tokens_of_one_account_are_told_apart() {
    let token = |audience: &str| {
        let [kind, namespace, name] = ["ServiceAccountToken", "a", "sa"].map(str::to_owned);
        describe(&Missing { kind, namespace, name, key: audience.to_owned() })
    };
    assert_eq!(token(""), "a token of ServiceAccount a/sa");
    assert_eq!(token("vault"), "a token of ServiceAccount a/sa for vault");
}

#[test]
fn only_a_first_instance_waits_for_an_answer_about_optional_objects_and_only_for_some_time() {
    let mut bench = Bench::new();
    bench.world.unanswered = held(true).missing;
    let plan = bench.plan(&wanted(&daemon_set("a")));
    let until = bench.now + ms(5_000);
    assert_eq!((plan.actions.len(), plan.summary.state, plan.wake_at), (0, State::Waiting, Some(until)));
    bench.record = plan.record;
    bench.now = until;
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), ["start uid-a-0"]);
    bench.world.manifests.clear();
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), ["end uid-a-0"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), ["finish uid-a-0", "start uid-a-1"], "what ran returns at once");
}
