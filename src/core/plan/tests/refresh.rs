//! What lacks something keeps what it has, and nothing else does.

use crate::core::render::Part;
use crate::core::status::WaitingContainer;

use super::*;

const UID: &str = "uid-a-0";

fn missing(name: &str) -> Missing {
    Missing { kind: "ConfigMap".into(), namespace: "a".into(), name: name.into(), key: "k".into() }
}

fn held(part: Part, name: &str) -> HeldPart {
    HeldPart { part, missing: vec![missing(name)], ..HeldPart::default() }
}

fn volume(name: &str) -> Part {
    Part::Volume(name.to_owned())
}

fn environment(container: &str) -> Part {
    Part::Environment {
        container: container.to_owned(),
        volume: format!("daemonlet-env-{container}"),
        waits_alone: true,
    }
}

impl Bench {
    fn lacks(&mut self, held: Vec<HeldPart>) {
        self.world.waiting_for = held.iter().flat_map(|held| held.missing.clone()).collect();
        self.world.held = held;
    }

    /// The volumes that a pass keeps as they are, and whether it writes the manifest.
    fn refreshed(&mut self) -> Option<(Vec<String>, bool)> {
        let plan = self.plan(&wanted(&daemon_set("a")));
        self.world.apply(&plan);
        self.record = plan.record.clone();
        plan.actions.iter().find_map(|action| match action {
            Action::Refresh { kept, manifest, .. } => Some((kept.iter().cloned().collect(), *manifest)),
            _ => None,
        })
    }

    fn summary(&self) -> Summary {
        self.plan(&wanted(&daemon_set("a"))).summary
    }
}

#[test]
fn a_volume_that_lacks_something_keeps_its_data_and_everything_else_is_refreshed() {
    let mut bench = Bench::running("a");
    bench.world.ready.insert(UID.to_owned(), NOW);
    bench.lacks(vec![held(volume("config"), "c")]);
    bench.world.stale_volumes.insert(UID.to_owned());
    bench.world.data_version = "2".to_owned();
    assert_eq!(bench.refreshed(), Some((vec!["config".to_owned()], true)));

    bench.now += ms(5_000);
    let summary = bench.summary();
    assert_eq!((summary.state, summary.ready), (State::Stale, Some(true)));
    let stale = &summary.stale[0];
    assert_eq!((stale.pod.as_str(), stale.volume.as_str(), &stale.missing), ("net-0", "config", &vec![missing("c")]));
    assert_eq!(stale.since, NOW.to_string(), "since the first pass that saw it");
    let text = format!("volume config of net-0 keeps its last data since {NOW}: missing key k of ConfigMap a/c");
    assert!(summary.reasons.to_string().contains(&text), "{}", summary.reasons);

    let unknown = HeldPart { unconfirmed: true, ..held(volume("config"), "d") };
    bench.lacks(vec![unknown]);
    assert_eq!(bench.refreshed(), None);
    let summary = bench.summary();
    assert_eq!(
        (summary.state, summary.stale[0].since.clone()),
        (State::Stale, NOW.to_string()),
        "it is not up to date"
    );

    bench.lacks(Vec::new());
    assert_eq!(bench.refreshed(), None);
    assert_eq!(bench.summary().state, State::Running);
    assert!(bench.record.instances[0].stale.is_empty());
}

#[test]
fn a_volume_that_is_called_manifest_is_a_volume() {
    let mut bench = Bench::running("a");
    bench.world.ready.insert(UID.to_owned(), NOW);
    bench.lacks(vec![held(volume("manifest"), "c")]);
    bench.world.stale_volumes.insert(UID.to_owned());
    assert_eq!(bench.refreshed(), Some((vec!["manifest".to_owned()], false)));
    let summary = bench.summary();
    assert_eq!((summary.state, summary.stale.len()), (State::Stale, 1));
    let desired = Desired::SetAside { mode: Mode::Static, reason: HeldBack::AwaitsTurn };
    assert_eq!(bench.plan(&desired).summary.stale.len(), 1);
    let error = FieldError { field: "spec".to_owned(), reason: "no".to_owned(), hint: None };
    bench.lacks(vec![HeldPart { refused: vec![error], ..held(Part::Everything, "c") }]);
    assert_eq!(bench.plan(&desired).summary.stale.len(), 0, "the reason of the daemon says it");
}

#[test]
fn a_value_that_no_file_can_carry_holds_back_its_container_alone() {
    let mut bench = Bench::running("a");
    bench.world.ready.insert(UID.to_owned(), NOW);
    let hint = Some("change the value".to_owned());
    let error = FieldError { field: "env".to_owned(), reason: "has a quote".to_owned(), hint };
    bench.world.refused = Some(error.clone());
    bench.world.held = vec![HeldPart { part: environment("c"), refused: vec![error], ..HeldPart::default() }];
    bench.world.stale_volumes.insert(UID.to_owned());
    assert_eq!(bench.refreshed(), Some((vec!["daemonlet-env-c".to_owned()], false)));
    let summary = bench.summary();
    assert_eq!((summary.state, summary.hint_lines()), (State::Stale, vec!["change the value".to_owned()]));
    assert!(
        summary.reasons.to_string().contains("the environment of container c: env: has a quote"),
        "{}",
        summary.reasons
    );
}

#[test]
fn the_env_files_of_all_containers_stay_with_the_manifest_that_names_what_is_in_them() {
    let mut bench = Bench::running("a");
    bench.world.ready.insert(UID.to_owned(), NOW);
    bench.world.env_files = vec!["daemonlet-env-c".to_owned(), "daemonlet-env-d".to_owned()];
    bench.world.stale_volumes.insert(UID.to_owned());
    let both = || vec!["daemonlet-env-c".to_owned(), "daemonlet-env-d".to_owned()];

    bench.lacks(vec![held(environment("c"), "c")]);
    assert_eq!(bench.refreshed(), Some((both(), false)));
    let stale = bench.summary().stale;
    let volumes: Vec<_> = stale.iter().map(|stale| (stale.volume.as_str(), stale.reason.as_str())).collect();
    let of_c = "the environment of container c: missing key k of ConfigMap a/c";
    let of_d = "the manifest, which names its variables, stays as it is";
    assert_eq!(volumes, [("daemonlet-env-c", of_c), ("daemonlet-env-d", of_d)]);

    bench.lacks(vec![held(volume("config"), "c")]);
    bench.world.stale_volumes.insert(UID.to_owned());
    bench.world.data_version = "2".to_owned();
    assert_eq!(bench.refreshed(), Some((vec!["config".to_owned()], true)), "a volume keeps no manifest");

    let error = FieldError { field: "spec".to_owned(), reason: "no".to_owned(), hint: None };
    bench.lacks(vec![HeldPart { refused: vec![error.clone()], ..held(Part::Pod, "c") }]);
    bench.world.refused = Some(error);
    bench.world.stale_volumes.insert(UID.to_owned());
    assert_eq!(bench.refreshed(), Some((both(), false)), "the pod as a whole");
    assert_eq!(bench.summary().stale.len(), 3);

    bench.lacks(vec![HeldPart { unconfirmed: true, ..held(Part::Pod, "c") }]);
    bench.world.refused = None;
    bench.world.stale_volumes.insert(UID.to_owned());
    assert_eq!(bench.refreshed(), Some((both(), false)));
    assert_eq!(bench.summary().stale.len(), 0, "no source says that it is missing");

    bench.lacks(Vec::new());
    bench.world.stale_volumes.insert(UID.to_owned());
    bench.world.data_version = "3".to_owned();
    assert_eq!(bench.refreshed(), Some((Vec::new(), true)));
}

#[test]
fn what_nobody_has_said_anything_of_is_not_stale() {
    let mut bench = Bench::running("a");
    bench.world.ready.insert(UID.to_owned(), NOW);
    bench.lacks(vec![HeldPart { unconfirmed: true, ..held(volume("config"), "c") }]);
    bench.world.stale_volumes.insert(UID.to_owned());
    assert_eq!(bench.refreshed(), Some((vec!["config".to_owned()], false)));
    let summary = bench.summary();
    assert_eq!((summary.state, summary.stale.len()), (State::Running, 0));
    let reason = "keeps its last data until this is known: key k of ConfigMap a/c";
    assert!(summary.reasons.to_string().contains(reason), "no source says that it is missing: {}", summary.reasons);
    bench.lacks(vec![held(Part::Pod, "c")]);
    let reason = bench.summary().reasons.to_string();
    assert!(reason.contains("keeps its last data: missing key k of ConfigMap a/c"), "{reason}");
}

#[test]
fn a_manifest_that_the_disk_has_lost_waits_for_what_its_pod_lacks() {
    let mut bench = Bench::running("a");
    bench.world.manifests.insert(UID.to_owned(), "lost".to_owned());
    bench.world.ready.insert(UID.to_owned(), NOW);
    bench.lacks(vec![held(volume("config"), "c")]);
    assert_eq!(bench.refreshed(), None);
    let summary = bench.summary();
    assert_eq!((summary.state, summary.ready), (State::Waiting, Some(false)));
    assert!(summary.reasons.contains(&Reason::ManifestLost), "{}", summary.reasons);
    bench.lacks(Vec::new());
    assert_eq!(bench.summary().state, State::Running, "it is written in this pass");
    assert_eq!(bench.refreshed(), Some((Vec::new(), true)));
}

#[test]
fn a_manifest_is_not_rewritten_for_a_kubelet_of_unknown_version() {
    let mut bench = Bench::running("a");
    bench.world.ready.insert(UID.to_owned(), NOW);
    bench.world.guesses_kubelet = true;
    assert_eq!(bench.summary().reasons, Reasons::default(), "it is as it would be written");
    bench.world.data_version = "2".to_owned();
    bench.world.stale_volumes.insert(UID.to_owned());
    bench.world.env_files = vec!["daemonlet-env-c".to_owned()];
    assert_eq!(bench.refreshed(), Some((bench.world.env_files.clone(), false)), "its data follows, but for variables");
    bench.world.stale_volumes.clear();
    assert!(bench.summary().reasons.contains(&Reason::AwaitsKubeletVersion));
    bench.world.guesses_kubelet = false;
    assert_eq!(bench.refreshed(), Some((Vec::new(), true)));
    bench.world.guesses_kubelet = true;
    bench.world.manifests.insert(UID.to_owned(), "lost".to_owned());
    assert_eq!(bench.refreshed(), Some((Vec::new(), true)), "at a boot nothing runs that it could end");
}

#[test]
fn a_container_without_its_environment_waits_alone_and_is_started_in_place() {
    let mut bench = Bench::new();
    bench.lacks(vec![held(environment("c"), "c"), held(environment("d"), "d")]);
    let mut asks = daemon_set("a");
    asks.annotations.insert(crate::core::model::RESTART_ON.to_owned(), "config".to_owned());
    let desired = wanted(&asks);
    assert_eq!(bench.pass(&desired), ["start uid-a-0"]);
    let waits = |name: &str| WaitingContainer { container: name.to_owned(), missing: vec![missing(name)] };
    let summary = bench.plan(&desired).summary;
    assert_eq!((summary.state, summary.waiting_containers), (State::Waiting, vec![waits("c"), waits("d")]));
    assert!(
        summary.reasons.to_string().contains("container c waits for key k of ConfigMap a/c"),
        "{}",
        summary.reasons
    );

    bench.lacks(vec![held(environment("d"), "d")]);
    bench.world.data_version = "2".to_owned();
    bench.world.stale_volumes.insert(UID.to_owned());
    assert_eq!(bench.pass(&desired), ["refresh uid-a-0 volumes=true manifest=true"], "no restart of the others");
    assert_eq!(bench.plan(&desired).summary.waiting_containers, [waits("d")]);

    bench.lacks(vec![held(environment("c"), "c"), held(environment("d"), "d")]);
    bench.world.data_version = "3".to_owned();
    assert_eq!(bench.pass(&desired), NONE, "what c was given stays");
    let summary = bench.plan(&desired).summary;
    assert_eq!((summary.stale.len(), summary.waiting_containers), (1, vec![waits("d")]));

    bench.lacks(Vec::new());
    bench.world.data_version = "4".to_owned();
    assert_eq!(bench.pass(&desired), ["refresh uid-a-0 volumes=false manifest=true"]);
    assert!(bench.record.instances[0].waiting.is_empty());
    bench.world.data_version = "5".to_owned();
    assert_eq!(bench.pass(&desired), ["end uid-a-0"], "from now on changed data counts");
}

#[test]
fn the_deadline_of_a_revision_counts_from_when_no_container_waits() {
    let mut bench = Bench::new();
    bench.lacks(vec![held(environment("c"), "c")]);
    let desired = wanted(&daemon_set("a"));
    assert_eq!(bench.pass(&desired), ["start uid-a-0"]);
    bench.world.not_ready.insert(UID.to_owned());
    let failure = Failure { cause: Cause::CrashLoop, message: "exits".to_owned() };
    bench.world.failures.insert(UID.to_owned(), failure);
    bench.now += Span::from_mins(20);
    bench.pass(&desired);
    assert_eq!(bench.record.failed, None, "a missing object is no fault of the revision");
    bench.lacks(Vec::new());
    bench.world.data_version = "2".to_owned();
    bench.pass(&desired);
    bench.now += Span::from_mins(9);
    bench.pass(&desired);
    assert_eq!(bench.record.failed, None);
    bench.now += Span::from_mins(2);
    bench.pass(&desired);
    assert!(bench.record.failed.is_some());
}

#[test]
fn what_replaces_an_instance_lacks_nothing_and_a_pod_waits_for_its_volumes() {
    let mut bench = Bench::running("a");
    bench.lacks(vec![held(environment("c"), "c")]);
    assert_eq!(bench.pass(&wanted(&daemon_set("b"))), NONE, "a replacement");
    let mut bench = Bench::new();
    bench.lacks(vec![held(environment("c"), "c"), held(volume("config"), "d")]);
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), NONE, "a volume");
    let Part::Environment { container, volume, .. } = environment("c") else { panic!() };
    bench.lacks(vec![held(Part::Environment { container, volume, waits_alone: false }, "c")]);
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), NONE, "an init container, or an older kubelet");
}

#[test]
fn a_first_start_gives_the_api_server_a_moment_to_say_whether_an_object_exists() {
    let mut bench = Bench::new();
    bench.lacks(vec![HeldPart { unconfirmed: true, ..held(environment("c"), "c") }]);
    let desired = wanted(&daemon_set("a"));
    let plan = bench.plan(&desired);
    assert_eq!((plan.actions.len(), plan.wake_at), (0, Some(NOW + ms(2_000))));
    assert_eq!(bench.pass(&desired), NONE);
    bench.now += ms(2_000);
    assert_eq!(bench.pass(&desired), ["start uid-a-0"]);
}

#[test]
fn what_another_version_or_another_node_name_made_says_that_it_is_not_kept_up_to_date() {
    let mut bench = Bench::running("a");
    bench.world.ready.insert(UID.to_owned(), NOW);
    bench.world.manifests = bench.world.manifests.values().map(|digest| ("uid-x".to_owned(), digest.clone())).collect();
    bench.record.instances[0].uid = "uid-x".to_owned();
    bench.world.ready.insert("uid-x".to_owned(), NOW);
    bench.world.data_version = "2".to_owned();
    bench.world.stale_volumes.insert("uid-x".to_owned());
    let plan = bench.plan(&wanted(&daemon_set("a")));
    assert_eq!((plan.actions.len(), plan.summary.state), (0, State::Stale), "{}", plan.summary.reasons);
    assert_eq!(plan.summary.hint_lines(), ["`daemonlet restart kube-system/net` replaces it"]);
    assert_eq!(plan.record.instances[0].stale.len(), 1);
}

#[test]
fn what_is_lost_does_not_wait_for_what_may_not_exist() {
    let optional = |part: Part| HeldPart { unconfirmed: true, optional: true, ..held(part, "c") };
    let lost = |part: Part| {
        let mut bench = Bench::running("a");
        bench.world.manifests.insert(UID.to_owned(), "lost".to_owned());
        bench.lacks(vec![optional(part)]);
        bench
    };
    assert_eq!(lost(volume("config")).refreshed(), Some((vec!["config".to_owned()], true)), "its data stays");
    let mut bench = lost(environment("c"));
    assert_eq!(bench.refreshed(), Some((Vec::new(), true)));
    assert_eq!(bench.record.instances[0].waiting, ["c".to_owned()].into(), "it may have had it");
    bench = lost(volume("config"));
    bench.world.held.push(HeldPart { unconfirmed: true, ..held(volume("other"), "d") });
    assert_eq!(bench.refreshed(), None, "something else is needed");
    bench = lost(environment("c"));
    bench.world.manifests.insert(UID.to_owned(), "other".to_owned());
    bench.world.stale_volumes.insert(UID.to_owned());
    assert_eq!(bench.refreshed(), Some((vec!["daemonlet-env-c".to_owned()], false)), "what is there stays as it is");
}
