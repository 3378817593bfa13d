//! Gates: what keeps its manifest at a boot and waits behind it.

use super::*;

/// An instance with a gate that ran before the boot, in the first pass of a boot.
fn booted() -> (Bench, Desired) {
    let mut definition = daemon_set("v1");
    definition.gate = StartGate::Wanted;
    let desired = wanted(&definition);
    let mut bench = waiting();
    let awaited = std::mem::take(&mut bench.awaited);
    assert_eq!(bench.pass(&desired), ["start uid-v1-0"]);
    for instance in &mut bench.record.instances {
        instance.daemon_set = instance.daemon_set.as_ref().map(|d| d.with_gate(StartGate::Has));
    }
    (bench.awaited, bench.boot) = (awaited, "boot-2".to_owned());
    bench.world.moment = Some(PassPhase::BeforeKubelet);
    (bench, desired)
}

#[test]
fn at_a_boot_what_has_a_gate_waits_behind_it_and_keeps_its_manifest() {
    let (mut bench, desired) = booted();
    let plan = bench.plan(&desired);
    assert_eq!(plan.summary.state, State::Waiting);
    assert!(plan.summary.reasons.to_string().contains("waits until a/x is Ready here"), "{}", plan.summary.reasons);
    assert_eq!(bench.pass(&desired), ["close uid-v1-0"]);
    bench.world.moment = Some(PassPhase::Later);
    bench.now += Span::from_secs(119);
    assert_eq!(bench.pass(&desired), Vec::<String>::new());
    assert_eq!((bench.plan(&desired).summary.state, bench.record.live().count()), (State::Waiting, 1));
    // It opens for no manifest folder that cannot be read for a moment.
    bench.world.unreadable_manifests = Some("EIO".to_owned().into());
    assert_eq!(bench.pass(&desired), Vec::<String>::new());
    assert_eq!(bench.plan(&desired).summary.ready, Some(false), "it waits as before");
    bench.world.unreadable_manifests = None;
    bench.awaited.clear();
    assert_eq!(bench.pass(&desired), ["open uid-v1-0"]);
    assert_eq!(bench.pass(&desired), Vec::<String>::new());
}

#[test]
fn at_a_boot_a_gate_closes_although_the_manifests_cannot_be_read_yet() {
    let (mut bench, desired) = booted();
    bench.world.unreadable_manifests = Some("EIO".to_owned().into());
    assert_eq!(bench.pass(&desired), ["close uid-v1-0"]);
    bench.world.moment = Some(PassPhase::Later);
    bench.world.unreadable_manifests = None;
    assert_eq!(bench.pass(&desired), Vec::<String>::new());
    assert_eq!(bench.plan(&desired).summary.state, State::Waiting);
    bench.awaited.clear();
    assert_eq!(bench.pass(&desired), ["open uid-v1-0"]);
}

#[test]
fn a_gate_opens_in_time_although_the_manifests_cannot_be_read() {
    let (mut bench, desired) = booted();
    assert_eq!(bench.pass(&desired), ["close uid-v1-0"]);
    bench.world.moment = Some(PassPhase::Later);
    bench.world.unreadable_manifests = Some("EIO".to_owned().into());
    bench.now += Span::from_secs(119);
    assert_eq!(bench.pass(&desired), Vec::<String>::new());
    bench.now += Span::from_secs(1);
    assert_eq!(bench.pass(&desired), ["open uid-v1-0"]);
    assert_eq!(bench.pass(&desired), Vec::<String>::new());
}

#[test]
fn what_an_earlier_process_left_closed_opens_although_the_manifests_cannot_be_read() {
    let (mut bench, desired) = booted();
    assert_eq!(bench.pass(&desired), ["close uid-v1-0"]);
    bench.world.moment = Some(PassPhase::First);
    bench.world.unreadable_manifests = Some("EIO".to_owned().into());
    assert_eq!(bench.pass(&desired), ["open uid-v1-0"]);
    bench.world.moment = Some(PassPhase::Later);
    assert_eq!(bench.pass(&desired), Vec::<String>::new());
}

#[test]
fn a_gate_stays_closed_while_the_definition_is_in_doubt() {
    let mut first = daemon_set("v2");
    first.key = ObjectKey::new("a", "x");
    let mut second = daemon_set("v1");
    second.annotations.insert(crate::core::model::AFTER.to_owned(), "a/x".to_owned());
    second.gate = StartGate::Has;
    let mut bench = Bench::new();
    assert_eq!(bench.pass(&wanted(&second)), ["start uid-v1-0"]);
    for instance in &mut bench.record.instances {
        instance.daemon_set = Some(Arc::new(second.clone()));
    }
    let mut records = [DaemonRecord::new(first.key.clone(), 0), bench.record.clone()];
    let mut pass = |desired: Desired, moment: PassPhase| {
        bench.world.moment = Some(moment);
        let context = pass::PassContext {
            now: bench.now,
            node: &bench.node,
            update_jitter: ms(0),
            max_removals: pass::MaxRemovals::Off,
            second_list: false,
            boot: "boot-2",
            booted: at(0),
            is_only: false,
        };
        let desired = [wanted(&first), desired];
        let subjects = desired.iter().zip(&records);
        let subjects: Vec<pass::Subject<'_>> = subjects
            .map(|(desired, record)| pass::Subject { desired: desired.clone(), record, unlisted: false })
            .collect();
        let plan = pass::plan(&subjects, &context, &bench.world);
        records = [0, 1].map(|index: usize| plan.daemons[index].record.clone());
        plan.daemons[1].actions.iter().map(short).collect::<Vec<_>>()
    };
    let reason = DesiredReason::Unlisted;
    assert_eq!(pass(wanted(&second), PassPhase::BeforeKubelet), ["close uid-v1-0"]);
    for doubt in [Desired::Confirm { reason: reason.clone() }, Desired::Unsure { reason }] {
        let actions = pass(doubt.clone(), PassPhase::Later);
        assert!(!actions.contains(&"open uid-v1-0".to_owned()), "{doubt:?}: {actions:?}");
    }
}

#[test]
fn a_gate_opens_after_the_timeout_with_a_new_process_and_with_the_annotation() {
    type Change = fn(&mut Bench);
    let table: [(&str, Change); 3] = [
        ("timeout", |bench| bench.now += Span::from_secs(120)),
        ("process", |bench| bench.world.moment = Some(PassPhase::First)),
        ("annotation", |bench| bench.after = None),
    ];
    for (what, change) in table {
        let (mut bench, desired) = booted();
        bench.pass(&desired);
        bench.world.moment = Some(PassPhase::Later);
        assert_eq!(bench.pass(&desired), Vec::<String>::new(), "{what}");
        change(&mut bench);
        assert_eq!(bench.pass(&desired), ["open uid-v1-0"], "{what}");
        bench.world.moment = Some(PassPhase::Later);
        assert_eq!(bench.pass(&desired), Vec::<String>::new(), "{what}");
    }
}

#[test]
fn a_gate_closes_at_the_first_look_of_a_boot_alone() {
    for moment in [PassPhase::First, PassPhase::Later] {
        let (mut bench, desired) = booted();
        bench.world.moment = Some(moment);
        assert_eq!(bench.pass(&desired), Vec::<String>::new(), "{moment:?}: the kubelet may run it");
    }
    let (mut bench, desired) = booted();
    bench.awaited.clear();
    assert_eq!(bench.pass(&desired), Vec::<String>::new(), "no daemon is awaited");
    let (mut bench, desired) = booted();
    for instance in &mut bench.record.instances {
        instance.daemon_set = instance.daemon_set.as_ref().map(|d| d.with_gate(StartGate::None));
    }
    assert_eq!(bench.pass(&desired), Vec::<String>::new(), "it was made without a gate");
    let gates: Vec<StartGate> = bench.record.live().filter_map(|i| Some(i.daemon_set.as_ref()?.gate)).collect();
    assert_eq!(gates, [StartGate::None], "and gets none while it runs");
}

#[test]
fn readiness_from_before_the_first_look_is_of_an_earlier_boot() {
    let mut bench = Bench { is_named: true, ..Bench::running("v1") };
    let desired = wanted(&daemon_set("v1"));
    bench.world.moment = Some(PassPhase::BeforeKubelet);
    bench.world.ready.insert("uid-v1-0".to_owned(), NOW - Span::from_secs(2));
    bench.pass(&desired);
    bench.world.moment = Some(PassPhase::Later);
    bench.pass(&desired);
    assert!(bench.record.this_boot.as_ref().is_some_and(|this| !this.ready));
    bench.world.ready.insert("uid-v1-0".to_owned(), NOW);
    bench.pass(&desired);
    assert!(bench.record.this_boot.as_ref().is_some_and(|this| this.ready));
}

#[test]
fn a_gate_opens_though_everything_else_of_the_pod_is_held_back() {
    let (mut bench, desired) = booted();
    bench.pass(&desired);
    bench.world.moment = Some(PassPhase::Later);
    bench.world.held =
        vec![HeldPart { part: crate::core::render::Part::Everything, unconfirmed: true, ..HeldPart::default() }];
    bench.awaited.clear();
    let opens = |bench: &Bench| bench.plan(&desired).actions.iter().any(|a| matches!(a, Action::OpenGate { .. }));
    assert!(opens(&bench));
}

#[test]
fn a_new_instance_starts_with_an_open_gate() {
    let (mut bench, desired) = booted();
    bench.pass(&desired);
    bench.world.moment = Some(PassPhase::Later);
    bench.world.running.clear();
    let other = wanted(&daemon_set("v2"));
    assert_eq!(bench.pass(&other), ["end uid-v1-0"]);
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&other), ["finish uid-v1-0", "start uid-v2-1"]);
    assert!(bench.record.this_boot.as_ref().is_some_and(|this| !this.gate_closed));
    assert_eq!(bench.pass(&other), Vec::<String>::new(), "nothing opens that was not closed");
}

#[test]
fn the_deadline_of_a_rollout_counts_from_when_the_gate_opens() {
    let (mut bench, desired) = booted();
    bench.record.progress = Some(crate::core::record::Progress {
        revision: "v1".to_owned(),
        data_version: None,
        since: NOW - Span::from_secs(600),
    });
    bench.pass(&desired);
    bench.world.moment = Some(PassPhase::Later);
    bench.awaited.clear();
    bench.now += Span::from_secs(60);
    bench.pass(&desired);
    assert_eq!(bench.record.progress.as_ref().map(|progress| progress.since), Some(bench.now));
}

#[test]
fn what_was_made_without_a_gate_is_reported() {
    let (mut bench, desired) = booted();
    for instance in &mut bench.record.instances {
        instance.daemon_set = instance.daemon_set.as_ref().map(|d| d.with_gate(StartGate::None));
    }
    let notes: Vec<String> = bench.plan(&desired).summary.notes.iter().map(ToString::to_string).collect();
    assert!(notes.iter().any(|note| note.contains("made without a gate")), "{notes:?}");
}
