use crate::core::record::RestartCause;
use crate::core::time::ms;

use super::*;
use crate::core::cluster::released::RolloutStatus;

mod first_install;
mod released;
mod undone;

fn of_api(image: &str) -> DaemonSet {
    DaemonSet { source: Source::Api, uid: Some("u".into()), ..daemon_set(image) }
}

/// `a` runs, `b` is wanted.
fn bench(permission: Permission) -> (Bench, Desired) {
    let mut bench = Bench::new();
    bench.pass(&wanted(&of_api("a")));
    bench.world.permission = Some(permission);
    (bench, wanted(&of_api("b")))
}

fn withheld() -> Permission {
    Permission::Withheld(Withheld::NotApproved)
}

/// `b` is wanted while nodes are kept on `a`.
fn kept(rollout: RolloutStatus) -> DaemonSet {
    let released = Some(Released { name: "net-a".to_owned(), hash: "a".to_owned(), generation: 1 });
    DaemonSet { rollout: RolloutStatus { released, ..rollout }, ..of_api("b") }
}

#[test]
fn a_change_waits_for_its_approval_claims_it_and_then_replaces() {
    let (mut bench, desired) = bench(withheld());
    assert_eq!(bench.pass(&desired), NONE);
    let plan = bench.plan(&desired);
    assert!(
        plan.summary.reasons.to_string().contains("revision b waits: the coordinator has not"),
        "{}",
        plan.summary.reasons
    );
    assert!(
        plan.pull.is_none() && plan.replacing.is_none() && plan.wake_at.is_some(),
        "its pull has a turn of its own"
    );
    bench.world.permission = Some(Permission::Approved);
    assert_eq!(bench.pass(&desired), NONE, "no claim, no replacement");
    assert_eq!(bench.plan(&desired).replacing.as_deref(), Some("b"));
    bench.world.permission = Some(Permission::Claimed);
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
    assert_eq!(bench.plan(&desired).replacing.as_deref(), Some("b"), "the claim stands until the new one is here");
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired), ["finish uid-a-0", "start uid-b-1"]);
    assert_eq!(bench.plan(&desired).replacing, None);
}

#[test]
fn what_cannot_start_is_not_claimed() {
    let (mut bench, desired) = bench(Permission::Approved);
    bench.world.images = Some(Images::Failed(ImageReason::Reported("no such image".into())));
    assert_eq!(bench.pass(&desired), NONE);
    assert_eq!(bench.plan(&desired).replacing, None);
}

#[test]
fn a_claim_of_what_cannot_start_any_more_is_given_back() {
    let (mut bench, desired) = bench(Permission::Claimed);
    bench.world.waiting_for =
        vec![Missing { kind: "ConfigMap".into(), namespace: "a".into(), name: "b".into(), key: String::new() }];
    assert_eq!(bench.pass(&desired), NONE);
    let plan = bench.plan(&desired);
    assert_eq!(plan.replacing, None);
    assert!(
        plan.summary.reasons.to_string().contains("the old instance stays: waits for ConfigMap"),
        "{}",
        plan.summary.reasons
    );
    bench.world.waiting_for.clear();
    assert_eq!(bench.plan(&desired).replacing.as_deref(), Some("b"));
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
    bench.world.waiting_for =
        vec![Missing { kind: "ConfigMap".into(), namespace: "a".into(), name: "b".into(), key: String::new() }];
    assert_eq!(bench.plan(&desired).replacing.as_deref(), Some("b"), "not once the old one has ended");
}

#[test]
fn changed_data_needs_no_approval_but_its_turn() {
    let restarting = |image| {
        let mut daemon_set = of_api(image);
        daemon_set.annotations.insert(RESTART_ON_FOR_TEST.to_owned(), "config".to_owned());
        wanted(&daemon_set)
    };
    let desired = restarting("a");
    let mut bench = Bench::new();
    bench.world.data_version = "1".to_owned();
    bench.pass(&desired);
    bench.world.permission = Some(withheld());
    bench.jitter = ms(30_000);
    bench.world.data_version = "2".to_owned();
    bench.pass(&desired);
    assert_eq!(bench.record.live().count(), 1);
    let plan = bench.plan(&desired);
    assert!(plan.summary.reasons.to_string().contains("its turn on this node comes"), "{}", plan.summary.reasons);
    bench.now = NOW + crate::core::plan::jitter("n1", "a", ms(30_000));
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
    assert_eq!(bench.plan(&desired).replacing, None, "there is no claim");
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    let mut other = Bench { record: bench.record.clone(), now: bench.now, ..Bench::new() };
    other.world.permission = Some(withheld());
    assert_eq!(bench.pass(&desired), ["finish uid-a-0", "start uid-a-1"]);
    assert_eq!(bench.pass(&desired), NONE, "once");
    assert_eq!(bench.record.pending_update, None, "the next change has a turn of its own");
    assert_eq!(
        other.pass(&restarting("b")),
        ["finish uid-a-0", "start uid-a-1"],
        "a template that changes meanwhile is not approved by that"
    );
}

#[test]
fn a_first_instance_never_waits_and_folders_need_no_approval() {
    let mut bench = Bench::new();
    bench.world.permission = Some(withheld());
    assert_eq!(bench.pass(&wanted(&of_api("a"))), ["start uid-a-0"]);
    let mut bench = Bench::running("a");
    bench.world.permission = Some(withheld());
    assert_eq!(bench.pass(&wanted(&daemon_set("b"))), ["end uid-a-0"]);
}

#[test]
fn what_is_restarted_in_between_returns_at_the_revision_that_is_permitted() {
    let (mut bench, desired) = bench(withheld());
    bench.record.order_restart("uid-a-0", RestartCause::Deleted, bench.now, &Fingerprint::Unknown);
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired), ["finish uid-a-0", "start uid-a-1"]);
    bench.world.manifests.clear();
    assert_eq!(bench.pass(&desired), ["end uid-a-1"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired), ["finish uid-a-1", "start uid-a-2"], "also when its manifest was removed");

    let on_delete = |image| DaemonSet { update_strategy: UpdateStrategy::OnDelete, ..of_api(image) };
    bench.record.order_restart("uid-a-2", RestartCause::Deleted, bench.now, &Fingerprint::Unknown);
    let desired = wanted(&on_delete("b"));
    assert_eq!(bench.pass(&desired), ["end uid-a-2"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired), ["finish uid-a-2", "start uid-b-3"], "deleting is how OnDelete is updated");

    // Not while that is paused or halted.
    let mut paused = on_delete("c");
    paused.annotations.insert("daemonlet.dev/paused".to_owned(), "true".to_owned());
    let halted = on_delete("c");
    let halted =
        DaemonSet { rollout: RolloutStatus { halted: Some("crash".into()), ..halted.rollout.clone() }, ..halted };
    for (number, held) in [(3, paused), (4, halted)] {
        let (old, new) = (format!("uid-b-{number}"), number + 1);
        bench.record.order_restart(&old, RestartCause::Deleted, bench.now, &Fingerprint::Unknown);
        assert_eq!(bench.pass(&wanted(&held)), [format!("end {old}")]);
        bench.world.running.clear();
        bench.now += GONE_AFTER;
        assert_eq!(bench.pass(&wanted(&held)), [format!("finish {old}"), format!("start uid-b-{new}")]);
    }
}

#[test]
fn a_rollout_that_is_taken_back_returns_to_what_ran_here_by_a_claim_as_any_other() {
    let (mut bench, desired) = bench(Permission::Claimed);
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired), ["finish uid-a-0", "start uid-b-1"]);
    bench.world.approved = Some("never ran here".into());
    assert_eq!(bench.pass(&desired), NONE);
    bench.world.approved = Some("a".into());
    bench.world.permission = Some(Permission::Approved);
    assert_eq!(bench.pass(&desired), NONE, "no claim, no replacement");
    assert_eq!(bench.plan(&desired).replacing.as_deref(), Some("a"));
    bench.world.permission = Some(Permission::Claimed);
    assert_eq!(bench.pass(&desired), ["end uid-b-1"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired), ["finish uid-b-1", "start uid-a-2"]);
    // The approval is withdrawn: what is there stays, though another revision is wanted.
    bench.world.approved = None;
    bench.world.permission = Some(withheld());
    assert_eq!(bench.pass(&desired), NONE);
    assert_eq!(bench.plan(&desired).summary.wanted_revision.as_deref(), Some("b"));
}

#[test]
fn a_node_that_the_revision_made_unwell_goes_back_all_the_same() {
    let (mut bench, desired) = bench(Permission::Claimed);
    bench.pass(&desired);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired), ["finish uid-a-0", "start uid-b-1"]);
    let taint = |key: &str| Taint { key: key.into(), value: String::new(), effect: "NoSchedule".into() };
    bench.world.approved = Some("a".into());
    bench.node.taints = vec![taint("reserved")];
    assert_eq!(bench.pass(&desired), NONE, "a taint keeps its pods away");
    bench.node.taints = vec![taint("node.kubernetes.io/not-ready")];
    assert_eq!(bench.pass(&desired), ["end uid-b-1"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired), ["finish uid-b-1", "start uid-a-2"]);
}

#[test]
fn what_is_paused_waits_up_to_the_claim_wherever_it_is_defined() {
    let paused = |mut daemon_set: DaemonSet| {
        daemon_set.annotations.insert("daemonlet.dev/paused".to_owned(), "true".to_owned());
        wanted(&daemon_set)
    };
    let mut of_folder = Bench::running("a");
    assert_eq!(of_folder.pass(&paused(daemon_set("b"))), NONE);
    let plan = of_folder.plan(&paused(daemon_set("b")));
    let waits = [Reason::Withheld(Withheld::Paused)].into();
    assert!(plan.summary.reasons.contains(&Reason::RevisionWaits { revision: "b".to_owned(), waits }), "{plan:?}");
    assert!(plan.pull.is_none(), "nothing is pulled for what is paused");
    assert_eq!(of_folder.pass(&wanted(&daemon_set("b"))), ["end uid-a-0"]);
    for permission in [Permission::Free, Permission::Approved, withheld()] {
        let (mut bench, _) = bench(permission);
        assert_eq!(bench.pass(&paused(of_api("b"))), NONE);
        assert_eq!(bench.plan(&paused(of_api("b"))).replacing, None, "it is not claimed");
    }
    let (mut bench, _) = bench(Permission::Claimed);
    assert_eq!(bench.pass(&paused(of_api("b"))), ["end uid-a-0"]);
}

#[test]
fn a_claimed_replacement_goes_on_though_approvals_are_lost() {
    let (mut bench, desired) = bench(Permission::Claimed);
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
    bench.world.permission = Some(Permission::Withheld(Withheld::NotServed));
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    // Another template comes in between: it waits as any other.
    assert_eq!(bench.pass(&wanted(&of_api("c"))), ["finish uid-a-0", "start uid-b-1"]);
    let plan = bench.plan(&wanted(&of_api("c")));
    assert!(
        plan.summary.reasons.to_string().contains("revision c waits: the API server does not serve NodeDaemons"),
        "{plan:?}"
    );
    assert!(
        !plan.summary.reasons.to_string().contains("apply") && plan.summary.hint_lines()[0].starts_with("apply "),
        "{plan:?}"
    );
}

#[test]
fn a_released_revision_whose_image_cannot_be_pulled_is_passed_over_after_the_deadline() {
    let held = |halted: bool| {
        let halted = halted.then(|| "it failed on 2 nodes".to_owned());
        wanted(&kept(RolloutStatus { is_held: true, halted, ..RolloutStatus::default() }))
    };
    let first = |cause: Cause| {
        let mut bench = Bench::new();
        bench.world.permission = Some(withheld());
        bench.world.released = Some(ReleasedDefinition::Known(Arc::new(of_api("a"))));
        assert_eq!(bench.pass(&held(false)), ["start uid-a-0"]);
        bench.fails("uid-a-0", Failure { cause, message: "404".to_owned() });
        bench
    };
    let mut bench = first(Cause::Image);
    let begun = bench.now;
    bench.now = begun + Span::from_secs(599);
    assert_eq!(bench.pass(&held(false)), NONE);
    bench.now = begun + Span::from_secs(600);
    assert_eq!(bench.pass(&held(true)), NONE, "a halted one starts nowhere");
    assert_eq!(bench.pass(&held(false)), ["end uid-a-0"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&held(false)), ["finish uid-a-0", "start uid-b-1"]);
    // What ran, or fails for another reason, waits for its approval.
    let mut bench = first(Cause::CrashLoop);
    bench.now += Span::from_secs(600);
    assert_eq!(bench.pass(&held(false)), NONE);
}

#[test]
fn pulls_ahead_of_an_approval_are_spread_and_a_failure_is_reported() {
    let within = |window: &str| {
        let mut daemon_set = of_api("b");
        daemon_set.annotations.insert("daemonlet.dev/pre-pull".to_owned(), window.to_owned());
        wanted(&daemon_set)
    };
    let (mut bench, desired) = bench(withheld());
    assert!(bench.plan(&within("0s")).pull.is_some());
    bench.pass(&desired);
    let at = bench.now + crate::core::plan::jitter("n1", "b", Span::from_secs(600));
    assert_eq!(bench.plan(&desired).wake_at, Some(at));
    bench.now = at;
    let failed = ImageReason::Reported("image x cannot be pulled: 404".to_owned());
    bench.world.images = Some(Images::Failed(failed.clone()));
    let plan = bench.plan(&desired);
    assert_eq!((plan.pull.is_some(), &plan.summary.pull_failed), (true, &Some(failed)));
    assert!(plan.summary.reasons.to_string().contains("image x cannot be pulled"), "{plan:?}");
    // An approval pulls at once, and so it goes on when that is withdrawn.
    let (mut bench, desired) = self::bench(Permission::Approved);
    bench.world.images = Some(Images::Pulling(ImageReason::Reported("image 1 of 1".into())));
    bench.pass(&desired);
    bench.world.permission = Some(withheld());
    assert!(bench.plan(&desired).pull.is_some());
    let mut halted = of_api("b");
    halted.rollout.halted = Some("it failed".to_owned());
    assert!(bench.plan(&wanted(&halted)).pull.is_none());
}

#[test]
fn a_node_that_refuses_the_revision_says_so_before_it_is_approved() {
    let (mut bench, _) = bench(withheld());
    let desired = wanted(&of_api("evil/b"));
    assert_eq!(bench.pass(&desired), NONE);
    let plan = bench.plan(&desired);
    assert_eq!((plan.summary.state, plan.replacing), (State::Refused, None));
}

#[test]
fn what_can_start_no_more_keeps_nothing_down() {
    // A claimed replacement whose data went with the next template.
    let (mut bench, desired) = bench(Permission::Claimed);
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
    bench.world.permission = Some(withheld());
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    let refused = || Some(FieldError { field: "spec".to_owned(), reason: "no".to_owned(), hint: None });
    let mut other = Bench { record: bench.record.clone(), now: bench.now, ..Bench::new() };
    other.world.permission = Some(withheld());
    other.world.refused = refused();
    assert_eq!(other.pass(&wanted(&of_api("c"))), ["finish uid-a-0"]);
    assert_eq!(other.record.last, None, "it is forgotten");
    // A released revision that nothing can start: the newest does, unless the rollout is stopped.
    let mut bench = Bench::new();
    bench.world.permission = Some(withheld());
    bench.world.released = Some(ReleasedDefinition::Known(Arc::new(of_api("evil/a"))));
    let mut paused = kept(RolloutStatus { is_held: true, ..RolloutStatus::default() });
    paused.annotations.insert("daemonlet.dev/paused".to_owned(), "true".to_owned());
    assert_eq!(bench.pass(&wanted(&paused)), NONE);
    assert_eq!(
        bench.pass(&wanted(&kept(RolloutStatus { is_held: true, ..RolloutStatus::default() }))),
        ["start uid-b-0"]
    );
}

#[test]
fn a_folders_definition_does_not_return_to_what_the_api_had() {
    let mut bench = Bench::running("a");
    let of_api = |image| wanted(&DaemonSet { source: Source::Api, ..daemon_set(image) });
    bench.record = bench.plan(&of_api("b")).record;
    assert!(bench.record.previous.is_some());
    bench.record = bench.plan(&wanted(&daemon_set("c"))).record;
    assert_eq!(bench.record.previous, None);
}

#[test]
fn what_is_halted_is_not_claimed_though_its_approval_stands() {
    let mut halted = of_api("b");
    halted.rollout.halted = Some("it failed on 2 nodes".to_owned());
    let desired = wanted(&halted);
    for permission in [Permission::Approved, withheld()] {
        let (mut bench, _) = bench(permission);
        assert_eq!(bench.pass(&desired), NONE);
        let plan = bench.plan(&desired);
        assert_eq!(plan.replacing, None);
        assert!(
            plan.summary.reasons.to_string().contains("waits: its rollout is halted or aborted"),
            "{}",
            plan.summary.reasons
        );
    }
    let (mut claimed, _) = bench(Permission::Claimed);
    assert_eq!(claimed.pass(&desired), ["end uid-a-0"], "what is claimed goes on");
    let (mut free, _) = bench(Permission::Free);
    assert_eq!(free.pass(&desired), ["end uid-a-0"], "no coordinator approves it");
}

#[test]
fn what_was_approved_for_an_earlier_template_is_no_way_back() {
    let (mut bench, to_b) = bench(Permission::Claimed);
    assert_eq!(bench.pass(&to_b), ["end uid-a-0"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&to_b), ["finish uid-a-0", "start uid-b-1"]);
    // It ran `a` before. The approval of `a` still stands from then, and the coordinator has not seen `b` yet.
    bench.world.approved = Some("a".into());
    bench.world.permission = Some(Permission::Approved);
    let released = Some(Released { name: "net-a".to_owned(), hash: "a".to_owned(), generation: 1 });
    let behind = RolloutStatus { released, is_behind: true, ..RolloutStatus::default() };
    let looked_at = RolloutStatus { is_behind: false, ..behind.clone() };
    let with = |rollout| wanted(&DaemonSet { rollout, ..of_api("b") });
    assert_eq!(bench.pass(&with(behind.clone())), NONE);
    assert_eq!(bench.plan(&with(behind)).replacing, None);
    assert_eq!(bench.plan(&with(looked_at)).replacing.as_deref(), Some("a"));
}
