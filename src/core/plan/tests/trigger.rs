//! What an approved replacement waits for on its node.

use crate::core::record::RestartCause;
use crate::core::time::ms;
use crate::core::update_trigger::UpdateTrigger;

use super::*;

pub(super) fn of_api(image: &str, update: &str) -> DaemonSet {
    let mut daemon_set = DaemonSet { source: Source::Api, uid: Some("u".into()), ..daemon_set(image) };
    daemon_set.annotations.insert("daemonlet.dev/update".to_owned(), update.to_owned());
    daemon_set.annotations.insert("daemonlet.dev/pre-pull".to_owned(), "0s".to_owned());
    daemon_set
}

/// `a` runs, `b` is wanted.
pub(super) fn bench(permission: Permission, update: &str) -> (Bench, Desired) {
    let mut bench = Bench::new();
    bench.pass(&wanted(&of_api("a", update)));
    bench.world.permission = Some(permission);
    (bench, wanted(&of_api("b", update)))
}

const DRAIN: Permission = Permission::Standing(UpdateTrigger::Drain);
const MANUAL: Permission = Permission::Standing(UpdateTrigger::Manual);
const BOOT: Permission = Permission::Standing(UpdateTrigger::Boot);

/// Nothing is replaced or claimed; the reason has these words.
fn waits(bench: &mut Bench, desired: &Desired, words: &str) {
    assert_eq!(bench.pass(desired), NONE);
    let plan = bench.plan(desired);
    assert_eq!((&plan.replacing, plan.summary.awaits_approval), (&None, false));
    assert!(plan.summary.reasons.to_string().contains(words), "{}", plan.summary.reasons);
}

#[test]
fn a_drain_is_waited_for_and_then_it_is_claimed() {
    let (mut bench, desired) = bench(DRAIN, "drain");
    waits(&mut bench, &desired, "revision b waits: the node has to be drained or cordoned first");
    let plan = bench.plan(&desired);
    assert!(plan.pull.is_some(), "its images are pulled meanwhile");
    let hint = "kubectl drain n1 --ignore-daemonsets --delete-emptydir-data";
    assert!(plan.summary.hint_lines().iter().any(|given| given == hint), "{:?}", plan.summary.hints);
    bench.node.unschedulable = true;
    assert_eq!(bench.pass(&desired), NONE, "no claim, no replacement");
    assert_eq!(bench.plan(&desired).replacing.as_deref(), Some("b"));
    bench.world.permission = Some(Permission::Claimed);
    bench.node.unschedulable = false;
    assert_eq!(bench.pass(&desired), ["end uid-a-0"], "what is claimed goes on");
}

#[test]
fn the_annotation_holds_though_the_approval_names_no_trigger() {
    let (mut bench, desired) = bench(Permission::Approved, "drain");
    waits(&mut bench, &desired, "drained");
    // The approval holds though the annotation is gone.
    bench.world.permission = Some(DRAIN);
    let plain = wanted(&DaemonSet { annotations: BTreeMap::new(), ..of_api("b", "drain") });
    waits(&mut bench, &plain, "drained");
    // A value that is not known never comes.
    bench.world.permission = Some(Permission::Approved);
    bench.node.unschedulable = true;
    waits(&mut bench, &wanted(&of_api("b", "reboot")), "is not known to this version");
}

#[test]
fn without_a_coordinator_and_from_a_folder_the_trigger_is_waited_for_too() {
    let of_folder = |image| {
        let path = "/etc/daemonlet/daemonsets.d/net.yaml".into();
        wanted(&DaemonSet { source: Source::File { path }, ..of_api(image, "manual") })
    };
    let mut folder = Bench::new();
    folder.pass(&of_folder("a"));
    waits(&mut folder, &of_folder("b"), "`daemonlet approve` on the node lets it start");
    folder.record.by_hand = Some("b".to_owned());
    assert_eq!(folder.pass(&of_folder("b")), ["end uid-a-0"]);
    let (mut free, desired) = bench(Permission::Free, "drain");
    waits(&mut free, &desired, "drained");
    free.node.unschedulable = true;
    assert_eq!(free.pass(&desired), ["end uid-a-0"]);
}

#[test]
fn an_approval_by_hand_is_for_one_revision_and_needs_the_coordinators() {
    let (mut bench, desired) = bench(MANUAL, "manual");
    waits(&mut bench, &desired, "`daemonlet approve`");
    let awaited = bench.plan(&desired).summary.awaited.unwrap();
    assert_eq!((awaited.trigger, awaited.revision.as_str()), (UpdateTrigger::Manual, "b"));
    bench.record.by_hand = Some("b".to_owned());
    assert_eq!(bench.plan(&desired).replacing.as_deref(), Some("b"));
    let mut other = Bench { record: bench.record.clone(), now: bench.now, ..Bench::new() };
    other.world.manifests.clone_from(&bench.world.manifests);
    other.world.permission = Some(MANUAL);
    waits(&mut other, &wanted(&of_api("c", "manual")), "`daemonlet approve`");
    bench.world.permission = Some(Permission::Withheld(Withheld::NotApproved));
    assert_eq!(bench.pass(&desired), NONE);
    assert_eq!(bench.plan(&desired).replacing, None);
    // A rollout that is taken back is approved by hand, too.
    let (mut back, desired) = self::bench(MANUAL, "manual");
    back.world.approved = Some("a".to_owned());
    back.record.by_hand = Some("a".to_owned());
    back.pass(&desired);
    assert_eq!(back.record.by_hand.as_deref(), Some("a"));
}

#[test]
fn first_instances_and_restarts_wait_for_no_trigger() {
    let mut first = Bench::new();
    first.world.permission = Some(DRAIN);
    assert_eq!(first.pass(&wanted(&of_api("a", "drain"))), ["start uid-a-0"]);
    let (mut bench, desired) = bench(DRAIN, "drain");
    bench.record.order_restart("uid-a-0", RestartCause::Deleted, bench.now, &Fingerprint::Unknown);
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired), ["finish uid-a-0", "start uid-a-1"], "at its own revision");
}

/// An instance of `a` with `b` staged, and what is wanted.
pub(super) fn staged() -> (Bench, Desired) {
    let (mut bench, desired) = bench(BOOT, "boot");
    assert_eq!(bench.plan(&desired).staging.as_deref(), Some("b"), "its claim");
    assert_eq!(bench.record.staged, None);
    bench.world.permission = Some(Permission::Staged);
    assert_eq!(bench.pass(&desired), NONE);
    assert_eq!(bench.record.staged.as_deref(), Some("b"));
    (bench, desired)
}

/// The machine boots; no API server has answered yet.
pub(super) fn boot(bench: &mut Bench) {
    bench.world.running.clear();
    bench.world.permission = Some(Permission::Withheld(Withheld::NotRead));
    bench.world.moment = Some(PassPhase::BeforeKubelet);
    bench.world.end_observable = Some(EndObservable::By(EndConfirmation::NeverStarted));
    bench.boot = "boot-2".to_owned();
}

#[test]
fn what_is_staged_is_claimed_with_its_images_and_replaces_in_the_first_pass_of_a_boot() {
    let (mut early, desired) = bench(BOOT, "boot");
    early.world.images = Some(Images::Pulling(ImageReason::Reported("image 1 of 1".into())));
    waits(&mut early, &desired, "it starts at the next boot");
    assert_eq!(early.plan(&desired).staging, None, "its images are not here");
    let (mut bench, desired) = staged();
    waits(&mut bench, &desired, "its images are on the node");
    assert!(bench.plan(&desired).pull.is_some(), "they are kept");
    boot(&mut bench);
    bench.world.images = Some(Images::Pulling(ImageReason::Reported("the runtime is not there yet".into())));
    assert_eq!(bench.pass(&desired), ["start uid-b-1", "end uid-a-0"], "no moment without a manifest");
    assert_eq!((&bench.record.staged, bench.record.live().count()), (&None, 1));
    bench.world.moment = None;
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired), ["finish uid-a-0"]);
    assert_eq!(bench.plan(&desired).replacing, None);
}

#[test]
fn what_is_staged_stays_old_where_a_kubelet_has_run_and_is_staged_still() {
    let (mut bench, desired) = staged();
    boot(&mut bench);
    bench.world.moment = Some(PassPhase::First);
    assert_eq!(bench.pass(&desired), NONE);
    assert_eq!(bench.record.staged.as_deref(), Some("b"), "the approval is not known to be gone");
    bench.world.permission = Some(Permission::Withheld(Withheld::NotApproved));
    assert_eq!(bench.pass(&desired), NONE);
    assert_eq!((&bench.record.staged, bench.plan(&desired).staging), (&None, None), "it is read to be gone");
}

#[test]
fn what_is_paused_halted_or_of_another_template_is_not_staged() {
    let paused = |mut daemon_set: DaemonSet| {
        daemon_set.annotations.insert("daemonlet.dev/paused".to_owned(), "true".to_owned());
        wanted(&daemon_set)
    };
    let mut halted = of_api("b", "boot");
    halted.rollout.halted = Some("it failed".to_owned());
    for desired in [
        paused(of_api("b", "boot")),
        wanted(&halted),
        wanted(&of_api("c", "boot")),
        wanted(&of_api("b", "drain")),
        wanted(&of_api("b", "reboot")),
    ] {
        let (bench, _) = staged();
        // As the machine remembers it at the boot.
        let mut other = Bench { record: bench.record.clone(), now: bench.now, ..Bench::new() };
        other.world.manifests.clone_from(&bench.world.manifests);
        boot(&mut other);
        assert_eq!(other.pass(&desired), NONE, "{desired:?}");
        // And before.
        let mut now = bench;
        assert_eq!(now.pass(&desired), NONE);
        assert!(now.plan(&desired).staging.is_none_or(|staged| staged != "b"), "{desired:?}");
        assert_ne!(now.record.staged.as_deref(), Some("b"), "{desired:?}");
    }
}

#[test]
fn from_a_folder_a_boot_needs_no_claim() {
    let of_folder = |image| {
        let path = "/etc/daemonlet/daemonsets.d/net.yaml".into();
        wanted(&DaemonSet { source: Source::File { path }, ..of_api(image, "boot") })
    };
    let mut bench = Bench::new();
    bench.pass(&of_folder("a"));
    waits(&mut bench, &of_folder("b"), "it starts at the next boot");
    boot(&mut bench);
    bench.now += ms(1);
    assert_eq!(bench.pass(&of_folder("b")), ["start uid-b-1", "end uid-a-0"]);
}

#[test]
fn the_way_back_of_a_halted_rollout_is_staged_and_made_at_a_boot_too() {
    let (mut bench, desired) = bench(Permission::Claimed, "boot");
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired), ["finish uid-a-0", "start uid-b-1"]);
    let mut halted = of_api("b", "boot");
    halted.rollout.halted = Some("it failed".to_owned());
    let desired = wanted(&halted);
    bench.world.approved = Some("a".to_owned());
    bench.world.permission = Some(Permission::Staged);
    assert_eq!(bench.pass(&desired), NONE);
    assert_eq!(bench.record.staged.as_deref(), Some("a"));
    bench.world.approved = None;
    boot(&mut bench);
    assert_eq!(bench.pass(&desired), ["start uid-a-2", "end uid-b-1"]);
}

#[test]
fn what_is_read_to_be_withdrawn_before_the_kubelet_starts_is_not_replaced() {
    for read in [Permission::Withheld(Withheld::NotApproved), DRAIN, Permission::Approved] {
        let (mut bench, desired) = staged();
        boot(&mut bench);
        bench.world.permission = Some(read.clone());
        assert_eq!(bench.pass(&desired), NONE, "{read:?}");
        assert_eq!(bench.record.staged, None, "{read:?}");
    }
}
