//! Manifests that others remove or change.

use super::*;

#[test]
fn an_orphan_ends_when_its_manifest_is_removed() {
    let mut bench = Bench::running("a");
    assert_eq!(bench.pass(&Desired::Orphaned { ignore_file: None }), NONE);
    bench.world.manifests.clear();
    let gone = Desired::Gone { reason: DesiredReason::Deleted, by_list: false, ignore_file: None };
    assert_eq!(bench.pass(&gone), ["end uid-a-0"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&gone), ["finish uid-a-0"]);
}

#[test]
fn a_removed_manifest_comes_back_under_a_new_uid() {
    let mut bench = Bench::running("a");
    bench.world.manifests.clear();
    let desired = wanted(&daemon_set("a"));
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired), ["finish uid-a-0", "start uid-a-1"]);
}

#[test]
fn a_manifest_that_is_removed_while_its_definition_is_unknown_never_comes_back() {
    let reason = DesiredReason::NotSelected;
    let kept = Desired::Kept { reason: reason.clone() };
    for unknown in [Desired::Unsure { reason: reason.clone() }, kept, Desired::Left { reason, taken_away: true }] {
        let mut bench = Bench::running("a");
        bench.world.manifests.clear();
        assert_eq!(bench.pass(&unknown), ["end uid-a-0"]);
        bench.world.running.clear();
        bench.now += GONE_AFTER;
        assert_eq!(bench.pass(&wanted(&daemon_set("a"))), ["finish uid-a-0", "start uid-a-1"]);
    }
}

#[test]
fn a_changed_manifest_is_repaired_in_place() {
    let mut bench = Bench::running("a");
    bench.world.manifests.insert("uid-a-0".to_owned(), "foreign".to_owned());
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), ["refresh uid-a-0 volumes=false manifest=true"]);
}

#[test]
fn a_crash_between_record_and_removal_is_continued() {
    let mut bench = Bench::running("a");
    let desired = wanted(&daemon_set("b"));
    let plan = bench.plan(&desired);
    bench.record = plan.record; // the record was saved, the manifest is still there
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
}
