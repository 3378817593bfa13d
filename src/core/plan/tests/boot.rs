//! What is staged and made at a boot: with surge, with overlays, in its order, and whatever comes in between.

use crate::core::record::RestartCause;

use super::overlays::big;
use super::overlays::patched;
use super::trigger::boot;
use super::trigger::of_api;
use super::trigger::staged;
use super::*;

const SWAP: [&str; 2] = ["start uid-b-1", "end uid-a-0"];

fn replacing_with(max_surge: u32) -> UpdateStrategy {
    UpdateStrategy::RollingUpdate { max_unavailable: IntOrPercent::Int(0), max_surge: IntOrPercent::Int(max_surge) }
}

/// A later boot of the machine, as the disk has it.
fn boot_again(bench: &mut Bench, name: &str) {
    boot(bench);
    bench.boot = name.to_owned();
    bench.now += Span::from_secs(60);
}

#[test]
fn with_surge_one_takes_the_place_of_the_other_all_the_same() {
    let (mut bench, _) = staged();
    let desired = wanted(&DaemonSet { update_strategy: replacing_with(1), ..of_api("b", "boot") });
    assert_eq!(bench.pass(&desired), NONE);
    assert_eq!(bench.plan(&desired).staging.as_deref(), Some("b"));
    boot(&mut bench);
    assert_eq!(bench.pass(&desired), SWAP, "nothing runs that the new one could start beside");
    assert_eq!(bench.record.live().count(), 1);
}

#[test]
fn the_overlays_are_part_of_what_is_staged() {
    let on = |image: &str, found: Lookup<'_>, bench: &Bench| {
        let it = patched(image, found, "big", Some(&bench.record));
        let annotations = of_api("b", "boot").annotations;
        let annotations = it.annotations.clone().into_iter().chain(annotations).collect();
        Desired::Wanted {
            daemon_set: Arc::new(DaemonSet { annotations, ..DaemonSet::clone(&it) }),
            mode: Mode::Static,
            note: None,
        }
    };
    let list = big();
    let stage = || {
        let mut bench = Bench::new();
        bench.pass(&wanted(&of_api("a", "boot")));
        bench.world.permission = Some(Permission::Staged);
        bench.pass(&on("b", Lookup::Present(&list), &bench));
        assert!(bench.record.staged.as_deref().is_some_and(|staged| staged.starts_with("b.")), "{:?}", bench.record);
        bench
    };
    let mut bench = stage();
    boot(&mut bench);
    assert_eq!(bench.pass(&on("b", Lookup::Present(&list), &bench)), SWAP);
    // Which apply is not known at this boot: the next one may know.
    let mut bench = stage();
    boot(&mut bench);
    let [namespace, key] = [String::new(), String::new()];
    bench.world.waiting_for = vec![Missing { kind: "ConfigMap".into(), name: "sizes".into(), namespace, key }];
    assert_eq!(bench.pass(&on("b", Lookup::Unknown, &bench)), NONE);
    bench.world.waiting_for.clear();
    boot_again(&mut bench, "boot-3");
    assert_eq!(bench.pass(&on("b", Lookup::Present(&list), &bench)), SWAP);
    // Others apply: they have no approval.
    let mut bench = stage();
    boot(&mut bench);
    let other = json!({"data": {"overlays.yaml": "[]"}});
    assert_eq!(bench.pass(&on("b", Lookup::Present(&other), &bench)), NONE);
    assert_eq!(bench.record.staged, None);
}

#[test]
fn what_starts_at_a_boot_waits_for_its_turn_behind_its_gate() {
    let (mut bench, _) = staged();
    let mut definition = of_api("b", "boot");
    definition.gate = StartGate::Has;
    let desired = wanted(&definition);
    let names = BTreeSet::from([ObjectKey::new("a", "x")]);
    bench.after = Some(After { daemons: names.clone(), timeout: Span::from_secs(120), ..After::default() });
    bench.awaited = names.into_iter().collect();
    boot(&mut bench);
    assert_eq!(bench.pass(&desired), ["start uid-b-1", "end uid-a-0", "close uid-b-1"]);
    bench.world.moment = Some(PassPhase::Later);
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired), ["finish uid-a-0"]);
    let plan = bench.plan(&desired);
    assert_eq!((plan.actions, plan.summary.state), (Vec::new(), State::Waiting));
    assert!(plan.summary.reasons.to_string().contains("waits until a/x is Ready here"), "{}", plan.summary.reasons);
    bench.awaited.clear();
    assert_eq!(bench.pass(&desired), ["open uid-b-1"]);
    // No daemon is awaited, and the one before has no gate.
    let (mut bench, _) = staged();
    boot(&mut bench);
    assert_eq!(bench.pass(&desired), SWAP);
}

#[test]
fn an_image_that_is_known_to_be_gone_keeps_the_old_instance_and_the_claim() {
    let (mut bench, desired) = staged();
    boot(&mut bench);
    bench.world.images = Some(Images::Failed(ImageReason::Reported("image b is not on the node any more".into())));
    assert_eq!(bench.pass(&desired), NONE);
    let plan = bench.plan(&desired);
    assert_eq!((plan.staging.as_deref(), plan.record.staged.as_deref()), (Some("b"), Some("b")));
    assert!(plan.summary.reasons.to_string().contains("is not on the node any more"), "{}", plan.summary.reasons);
    assert!(plan.pull.is_some(), "it is pulled again");
    boot_again(&mut bench, "boot-3");
    bench.world.images = None;
    assert_eq!(bench.pass(&desired), SWAP);
}

#[test]
fn what_was_given_back_before_the_power_went_is_not_made_at_the_boot() {
    type Change = fn(&mut Bench) -> Desired;
    let table: [(&str, Change); 6] = [
        ("withdrawn: a pause, a halt, an abort, the end of a window", |bench| {
            bench.world.permission = Some(Permission::Withheld(Withheld::NotApproved));
            wanted(&of_api("b", "boot"))
        }),
        ("it may not start here", |bench| {
            let effect = "NoSchedule".to_owned();
            bench.node.taints.push(Taint { key: "x".to_owned(), value: String::new(), effect });
            wanted(&of_api("b", "boot"))
        }),
        ("OnDelete", |_| wanted(&DaemonSet { update_strategy: UpdateStrategy::OnDelete, ..of_api("b", "boot") })),
        ("it is not known what is wanted, and the approval is withdrawn", |bench| {
            bench.world.permission = Some(Permission::Withheld(Withheld::NotApproved));
            Desired::Unsure { reason: DesiredReason::Unanswered }
        }),
        ("the definition is refused, and the approval is withdrawn", |bench| {
            bench.world.permission = Some(Permission::Withheld(Withheld::NotApproved));
            let daemon_set = Arc::new(of_api("a", "boot"));
            let why = Hold::Refused(RefusedVersion::HeldBack(HeldBack::AwaitsTurn));
            Desired::Held { daemon_set, mode: Mode::Static, why, ask: false }
        }),
        ("its manifests cannot be read, and the approval is withdrawn", |bench| {
            bench.world.permission = Some(Permission::Withheld(Withheld::NotApproved));
            bench.world.unreadable_manifests = Some("EIO".to_owned().into());
            wanted(&of_api("b", "boot"))
        }),
    ];
    for (what, change) in table {
        let (mut bench, desired) = staged();
        let changed = change(&mut bench);
        assert_eq!(bench.pass(&changed), NONE, "{what}");
        assert_eq!((&bench.plan(&changed).staging, &bench.record.staged), (&None, &None), "{what}");
        bench.node.taints.clear();
        bench.world.unreadable_manifests = None;
        boot(&mut bench);
        assert_eq!(bench.pass(&desired), NONE, "{what}");
    }
}

#[test]
fn what_is_claimed_is_reported_for_as_long_as_a_boot_would_make_it() {
    let doubt = Desired::Held {
        daemon_set: Arc::new(of_api("a", "boot")),
        mode: Mode::Static,
        why: Hold::Refused(RefusedVersion::HeldBack(HeldBack::AwaitsTurn)),
        ask: false,
    };
    for permission in [Permission::Staged, Permission::Withheld(Withheld::NotRead)] {
        let (mut bench, desired) = staged();
        bench.world.permission = Some(permission);
        bench.pass(&doubt);
        assert_eq!(bench.plan(&doubt).staging.as_deref(), Some("b"), "no coordinator counts it twice");
        boot(&mut bench);
        assert_eq!(bench.pass(&desired), SWAP);
    }
    // A restart returns what ran, and gives the claim back with the instance.
    let (mut bench, desired) = staged();
    bench.record.order_restart("uid-a-0", RestartCause::Deleted, bench.now, &Fingerprint::Unknown);
    assert_eq!(bench.plan(&desired).staging, None);
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired), ["finish uid-a-0", "start uid-a-1"]);
    assert_eq!(bench.record.staged, None);
}

#[test]
fn power_that_goes_twice_makes_it_once_and_uses_no_uid_twice() {
    // Before anything of it was on the disk.
    let (mut bench, desired) = staged();
    boot(&mut bench);
    let plan = bench.plan(&desired);
    boot_again(&mut bench, "boot-3");
    assert_eq!(bench.pass(&desired), SWAP);
    assert_eq!(plan.actions.len(), 2);
    // After the record and the new manifest, and before the old one went.
    let (mut bench, desired) = staged();
    boot(&mut bench);
    bench.record = bench.plan(&desired).record;
    bench.world.manifests.insert("uid-b-1".to_owned(), "b@".to_owned());
    boot_again(&mut bench, "boot-3");
    assert_eq!(bench.pass(&desired), ["end uid-a-0"], "before the kubelet starts");
    assert_eq!(bench.record.live().map(|i| i.uid.as_str()).collect::<Vec<_>>(), ["uid-b-1"]);
    // After all of it: the old one is not wanted back, and the next boot changes nothing.
    let (mut bench, desired) = staged();
    boot(&mut bench);
    bench.pass(&desired);
    boot_again(&mut bench, "boot-3");
    assert_eq!(bench.pass(&desired), ["finish uid-a-0"]);
    boot_again(&mut bench, "boot-4");
    assert_eq!(bench.pass(&desired), NONE);
    assert_eq!((bench.record.next_incarnation, bench.record.live().count()), (2, 1));
}

#[test]
fn an_agent_that_died_between_both_manifests_removes_the_old_one_and_waits_for_its_end() {
    let (mut bench, desired) = staged();
    boot(&mut bench);
    bench.record = bench.plan(&desired).record;
    bench.world.manifests.insert("uid-b-1".to_owned(), "b@".to_owned());
    // Its successor comes when the kubelet has started both.
    bench.world.moment = Some(PassPhase::First);
    bench.world.running.extend(["uid-a-0".to_owned(), "uid-b-1".to_owned()]);
    bench.world.end_observable = None;
    bench.now += Span::from_secs(5);
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
    assert_eq!(bench.pass(&desired), NONE, "the sandbox of the old one is there");
    let old = bench.record.instance("uid-a-0").unwrap();
    assert!(matches!(&old.phase, Phase::Ending { confirmed_by: EndConfirmation::ByTime, .. }), "{old:?}");
    bench.world.running.remove("uid-a-0");
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired), ["finish uid-a-0"]);
    // One that died before the new manifest was there starts the revision as another instance.
    let (mut bench, desired) = staged();
    boot(&mut bench);
    bench.record = bench.plan(&desired).record;
    bench.world.moment = Some(PassPhase::First);
    bench.world.end_observable = None;
    assert_eq!(bench.pass(&desired), ["end uid-a-0", "end uid-b-1"]);
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired), ["finish uid-a-0", "finish uid-b-1", "start uid-b-2"]);
}

#[test]
fn what_has_the_labels_of_a_new_node_against_it_stays_until_they_are_all_there() {
    let mut bench = Bench::running("a");
    let mut elsewhere = daemon_set("a");
    elsewhere.template["spec"]["nodeSelector"] = json!({"role": "edge"});
    let until = bench.now + ms(1_000);
    bench.world.lacks_labels_until = Some(until);
    let plan = bench.plan(&wanted(&elsewhere));
    assert_eq!((plan.actions.len(), plan.summary.ready), (0, bench.plan(&wanted(&daemon_set("a"))).summary.ready));
    assert!(plan.wake_at.is_some_and(|at| at <= until), "{:?}", plan.wake_at);
    assert!(
        Bench { record: DaemonRecord::new(bench.record.key.clone(), 7), ..Bench::new() }
            .plan(&wanted(&elsewhere))
            .actions
            .is_empty()
    );
    let mut named = elsewhere.clone();
    named.template["spec"]["nodeName"] = json!("n2");
    let ends = |bench: &Bench, daemon_set: &DaemonSet| {
        bench.plan(&wanted(daemon_set)).actions.iter().map(short).collect::<Vec<_>>()
    };
    assert_eq!(ends(&bench, &named), ["end uid-a-0"], "no label will help");
    let taint = Taint { key: "k".to_owned(), value: String::new(), effect: "NoExecute".to_owned() };
    bench.node.taints.push(taint);
    assert_eq!(ends(&bench, &elsewhere), ["end uid-a-0"], "nor against a taint");
    bench.node.taints.clear();
    let created = bench.record.instances[0].created;
    bench.world.node_since = Some(created - ms(1));
    assert_eq!(ends(&bench, &elsewhere), ["end uid-a-0"], "it was started on this Node, which had them");
    bench.record.instances[0].is_adopted = true;
    assert_eq!(ends(&bench, &elsewhere), NONE, "no record tells when it was started");
    bench.record.instances[0].is_adopted = false;
    bench.world.node_since = Some(created + ms(1));
    assert_eq!(ends(&bench, &elsewhere), NONE);
    bench.world.lacks_labels_until = None;
    assert_eq!(bench.pass(&wanted(&elsewhere)), ["end uid-a-0"]);
}

#[test]
fn without_an_api_server_a_configured_taint_ends_what_runs_and_a_label_that_is_not_configured_does_not() {
    let mut bench = Bench::running("a");
    bench.node.registered = false;
    let mut elsewhere = daemon_set("a");
    elsewhere.template["spec"]["nodeSelector"] = json!({"role": "edge"});
    let plan = bench.plan(&wanted(&elsewhere));
    assert!(plan.actions.is_empty() && plan.summary.reasons.contains(&Reason::LabelsUnknown), "{:?}", plan.summary);
    let taint = |key: &str, effect: &str| {
        let (key, effect) = (key.to_owned(), effect.to_owned());
        vec![Taint { key, value: String::new(), effect }]
    };
    bench.node.taints = taint("k", "NoSchedule");
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), NONE);
    bench.node.taints = taint("k", "NoExecute");
    bench.world.lacks_labels_until = Some(bench.now + ms(1));
    let plan = bench.plan(&wanted(&daemon_set("a")));
    assert!(plan.actions.is_empty() && plan.summary.reasons.contains(&Reason::NodeUnread), "{:?}", plan.summary);
    bench.world.lacks_labels_until = None;
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), ["end uid-a-0"]);
}
