//! Manifests on a disk that has none of their data.

use crate::core::render::Part;

use super::*;

/// A manifest that nothing but itself tells of, on a disk that has nothing of its pod.
fn found(revision: &str) -> Bench {
    let mut bench = Bench::new();
    bench.record.instances.push(Instance::new("uid-a-0", "net-0", 0, revision, NOW));
    bench.record.next_incarnation = 1;
    bench.world.manifests.insert("uid-a-0".to_owned(), "other".to_owned());
    bench.world.empty_volumes.insert("uid-a-0".to_owned(), ["tls".to_owned()].into());
    bench
}

#[test]
fn what_nobody_defines_yet_does_not_start_without_its_data() {
    let unsure = Desired::Unsure { reason: DesiredReason::Unanswered };
    let mut bench = found("a");
    let plan = bench.plan(&unsure);
    assert_eq!(plan.summary.state, State::Waiting);
    assert!(
        plan.summary.reasons.contains(&Reason::ReturnsWithData { lost: Box::new(Reason::DataUnknown) }),
        "{}",
        plan.summary.reasons
    );
    assert_eq!(bench.pass(&unsure), ["end uid-a-0"]);
    bench.now += GONE_AFTER;
    bench.pass(&unsure);
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), ["start uid-a-1"], "under a new UID");
    let mut bench = found("a");
    bench.world.empty_volumes.clear();
    assert_eq!(bench.pass(&unsure), NONE, "its data is there");
}

/// One whose volume is not as it should be, and waits for a Secret that is not there.
fn lacking_its_secret() -> Bench {
    let mut bench = found("a");
    bench.world.stale_volumes.insert("uid-a-0".to_owned());
    let missing = Missing { kind: "Secret".into(), namespace: "a".into(), name: "tls".into(), key: String::new() };
    bench.world.waiting_for = vec![missing.clone()];
    let part = Part::Volume("tls".to_owned());
    bench.world.held = vec![HeldPart { part, missing: vec![missing], ..HeldPart::default() }];
    bench
}

#[test]
fn what_is_defined_gets_its_data_or_waits_for_it() {
    let desired = wanted(&daemon_set("a"));
    let mut bench = found("a");
    bench.world.stale_volumes.insert("uid-a-0".to_owned());
    assert_eq!(bench.pass(&desired), ["refresh uid-a-0 volumes=true manifest=true"], "it is written");
    let mut bench = lacking_its_secret();
    assert_eq!(bench.plan(&desired).actions.len(), 1);
    let mut other = found("a");
    other.world.stale_volumes.insert("uid-a-0".to_owned());
    (other.world.waiting_for, other.world.held) = (bench.world.waiting_for.clone(), bench.world.held.clone());
    other.world.empty_volumes.insert("uid-a-0".to_owned(), ["other".to_owned()].into());
    assert_eq!(bench.pass(&desired), ["end uid-a-0"], "a volume cannot be written");
    assert_eq!(other.pass(&desired), ["refresh uid-a-0 volumes=true manifest=true"], "it keeps what it has");
}

#[test]
fn what_cannot_be_written_is_not_left_to_the_kubelet() {
    let desired = wanted(&daemon_set("a"));
    let on_disk = |empty: &[&str], refuses: bool| {
        let mut bench = lacking_its_secret();
        bench.world.empty_volumes.clear();
        let empty: BTreeSet<String> = empty.iter().map(|name| (*name).to_owned()).collect();
        bench.world.empty_volumes.extend((!empty.is_empty()).then(|| ("uid-a-0".to_owned(), empty)));
        bench.world.unwritable_volumes = refuses.then(|| "no space left on device".to_owned().into());
        bench
    };
    let refresh = ["refresh uid-a-0 volumes=true manifest=true"];
    assert_eq!(on_disk(&["other"], false).pass(&desired), refresh);
    assert_eq!(on_disk(&[], true).pass(&desired), refresh, "what has data keeps it");
    let mut bench = on_disk(&["other"], true);
    let plan = bench.plan(&desired);
    assert!(plan.summary.reasons.to_string().contains("does not take it: no space left"), "{}", plan.summary.reasons);
    assert_eq!(plan.summary.state, State::Waiting);
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
}

#[test]
fn what_cannot_be_ended_because_its_manifest_stays_reads_no_old_data() {
    let mut bench = Bench::running("a");
    let manifests = bench.world.manifests.clone();
    assert_eq!(bench.pass(&wanted(&daemon_set("b"))), ["end uid-a-0"]);
    // The manifest folder takes no change.
    bench.world.manifests = manifests;
    bench.world.stale_volumes.insert("uid-a-0".to_owned());
    assert_eq!(bench.plan(&wanted(&daemon_set("b"))).actions.iter().map(short).collect::<Vec<_>>(), ["end uid-a-0"]);
    bench.now += Span::from_secs(60);
    let actions: Vec<String> = bench.plan(&wanted(&daemon_set("b"))).actions.iter().map(short).collect();
    assert_eq!(actions, ["refresh uid-a-0 volumes=true manifest=false", "end uid-a-0"]);

    bench.world.env_files = vec!["daemonlet-env-c".to_owned()];
    let kept = |bench: &Bench| match &bench.plan(&wanted(&daemon_set("b"))).actions[0] {
        Action::Refresh { kept, .. } => kept.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(kept(&bench), 0);
    bench.world.data_version = "2".to_owned();
    assert_eq!(kept(&bench), 1, "its manifest may name what the env file does not have any more");
}

#[test]
fn what_may_not_exist_is_no_data_that_is_lost() {
    let mut bench = lacking_its_secret();
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), ["end uid-a-0"]);
    let mut bench = lacking_its_secret();
    bench.world.held.iter_mut().for_each(|held| (held.unconfirmed, held.optional) = (true, true));
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), ["refresh uid-a-0 volumes=true manifest=true"]);
}
