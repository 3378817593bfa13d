use serde_json::Value;

use super::*;
use crate::core::model::OVERLAYS;
use crate::core::overlays;
use crate::core::overlays::KnownList;
use crate::core::overlays::ListGap;
use crate::core::overlays::ListSource;
use crate::core::overlays::OverlayFacts;
use crate::core::overlays::Overlays;
use crate::core::policy::PodRules;

const LIST: &str = "[{nodes: {matchLabels: {size: big}}, patch: {spec: {containers: [{name: net, args: [big]}]}}}]";

/// `image` with the overlays of `list` on a node of that size.
pub(super) fn patched(image: &str, found: Lookup<'_>, size: &str, last: Option<&DaemonRecord>) -> Arc<DaemonSet> {
    let mut plain = DaemonSet { source: Source::Api, uid: Some("u".into()), ..daemon_set(image) };
    plain.annotations.insert(OVERLAYS.to_owned(), "sizes".to_owned());
    plain.template["spec"]["containers"][0]["name"] = json!("net");
    let labels = BTreeMap::from([("size".to_owned(), size.to_owned())]);
    let last = last.and_then(|record| record.definition()?.overlays.as_deref());
    let (list, rules) = (ListSource::Api, &PodRules::default());
    overlays::resolve(&Arc::new(plain), &OverlayFacts { found, list, rules, labels: &labels, registered: true, last })
}

/// A list with a patch for big nodes.
pub(super) fn big() -> Value {
    json!({"data": {"overlays.yaml": LIST}})
}

fn on(image: &str, size: &str) -> Arc<DaemonSet> {
    patched(image, Lookup::Present(&big()), size, None)
}

fn want(daemon_set: &Arc<DaemonSet>) -> Desired {
    Desired::Wanted { daemon_set: Arc::clone(daemon_set), mode: Mode::Static, note: None }
}

fn digest() -> String {
    on("a", "big").overlays.as_ref().map(|overlays| overlays.digest.clone()).expect("overlays")
}

#[test]
fn an_instance_is_current_when_template_and_overlays_are() {
    let mut bench = Bench::new();
    assert_eq!(bench.pass(&want(&on("a", "small"))), ["start uid-a-0"]);
    assert_eq!(bench.record.live().next().map(|i| i.revision.clone()).as_deref(), Some("a"));
    assert_eq!(bench.pass(&want(&on("a", "small"))), NONE);
    assert_eq!(bench.pass(&want(&on("a", "big"))), ["end uid-a-0"], "a label of the Node has changed");
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&want(&on("a", "big"))), ["finish uid-a-0", "start uid-a-1"]);
    let instance = bench.record.live().next().expect("it runs").clone();
    assert_eq!(instance.revision, format!("a.{}", digest()), "the record keeps both");
    assert_eq!(instance.daemon_set.expect("its definition").pod_template()["spec"]["containers"][0]["args"][0], "big");
    assert_eq!(bench.pass(&want(&on("a", "big"))), NONE);
    assert_eq!(bench.pass(&want(&on("a", "small"))), ["end uid-a-1"], "and back");
}

#[test]
fn overlays_that_are_not_known_are_waited_for() {
    let mut bench = Bench::new();
    let unknown = patched("a", Lookup::Unknown, "big", None);
    let missing =
        Missing { kind: "ConfigMap".into(), namespace: "kube-system".into(), name: "sizes".into(), key: String::new() };
    bench.world.waiting_for = vec![missing];
    assert_eq!(bench.pass(&want(&unknown)), NONE, "also by first instances");
    assert_eq!(bench.plan(&want(&unknown)).summary.state, State::Waiting);
    bench.world.waiting_for.clear();
    assert_eq!(bench.pass(&want(&on("a", "big"))), ["start uid-a-0"]);
    let forgotten = patched("a", Lookup::Unknown, "big", Some(&bench.record));
    assert_eq!(bench.pass(&want(&forgotten)), NONE, "the last ones stay in force");
    let overlays = forgotten.overlays.clone().expect("overlays");
    assert_eq!((overlays.known.clone(), &overlays.digest), (KnownList::Last(ListGap::NotRead), &digest()));
    let newer = patched("b", Lookup::Absent, "big", Some(&bench.record));
    assert_eq!(bench.pass(&want(&newer)), ["end uid-a-0"], "and are applied to a new template");
    assert_eq!(newer.pod_template()["spec"]["containers"][0]["args"][0], "big");
}

#[test]
fn a_list_is_looked_at_while_its_daemon_waits_for_its_turn() {
    let mut bench = Bench::new();
    bench.pass(&want(&on("a", "small")));
    bench.jitter = ms(30_000);
    let list = ObjectRef::new(Kind::ConfigMap, "kube-system", "sizes");
    for desired in [on("a", "big"), patched("a", Lookup::Unknown, "big", None)] {
        let plan = bench.plan(&want(&desired));
        assert!(plan.summary.reasons.to_string().contains("update-jitter"), "{}", plan.summary.reasons);
        assert!(plan.references.contains(&list), "what is not looked at is not known, and then another revision");
    }
}

#[test]
fn what_runs_stays_while_the_overlays_that_its_definition_names_now_are_not_known() {
    let mut bench = Bench::new();
    bench.pass(&wanted(&DaemonSet { source: Source::Api, uid: Some("u".into()), ..daemon_set("a") }));
    bench.world.permission = Some(Permission::Withheld(Withheld::NotApproved));
    let unknown = patched("a", Lookup::Unknown, "big", Some(&bench.record));
    bench.world.waiting_for = vec![Missing {
        kind: "ConfigMap".into(),
        namespace: "kube-system".into(),
        name: "sizes".into(),
        key: String::new(),
    }];
    assert_eq!(bench.pass(&want(&unknown)), NONE);
    let plan = bench.plan(&want(&unknown));
    assert!(!plan.summary.awaits_approval, "no approval helps");
    assert!(
        plan.summary.reasons.to_string().contains("the old instance stays: waits for ConfigMap"),
        "{}",
        plan.summary.reasons
    );
}

#[test]
fn a_change_of_overlays_needs_its_approval_and_no_previous_revision_is_forgotten() {
    let mut bench = Bench::new();
    bench.pass(&want(&on("a", "small")));
    bench.world.permission = Some(Permission::Withheld(Withheld::NotApproved));
    let desired = want(&on("a", "big"));
    assert_eq!(bench.pass(&desired), NONE);
    assert!(bench.plan(&desired).summary.awaits_approval);
    assert_eq!(bench.record.previous, None, "it is the same template");
    bench.world.approved = Some("a".to_owned());
    assert_eq!(bench.pass(&desired), NONE, "what is approved with other overlays is nothing to return to");
    bench.record.order_restart("uid-a-0", RestartCause::Deleted, bench.now, &Fingerprint::Unknown);
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired), ["finish uid-a-0", "start uid-a-1"], "a restart returns what ran");
    assert_eq!(bench.record.live().next().map(|i| i.revision.clone()).as_deref(), Some("a"));
    bench.world.permission = Some(Permission::Approved);
    assert_eq!(bench.pass(&desired), NONE);
    assert_eq!(bench.plan(&desired).replacing, Some(format!("a.{}", digest())));
    bench.world.permission = Some(Permission::Claimed);
    assert_eq!(bench.pass(&desired), ["end uid-a-1"]);
}

#[test]
fn a_rollout_that_is_taken_back_has_the_overlays_of_today() {
    let mut bench = Bench::new();
    bench.pass(&want(&on("a", "small")));
    bench.world.permission = Some(Permission::Claimed);
    let newer = want(&on("b", "big"));
    assert_eq!(bench.pass(&newer), ["end uid-a-0"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&newer), ["finish uid-a-0", "start uid-b-1"]);
    bench.world.approved = Some(format!("a.{}", digest()));
    assert_eq!(bench.pass(&newer), ["end uid-b-1"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&newer), ["finish uid-b-1", "start uid-a-2"]);
    assert_eq!(bench.record.live().next().map(|i| i.revision.clone()), Some(format!("a.{}", digest())));
}

#[test]
fn bootstrap_refuses_overlays() {
    let mut bench = Bench::new();
    let desired = Desired::Wanted { daemon_set: on("a", "small"), mode: Mode::Bootstrap, note: None };
    assert_eq!(bench.pass(&desired), NONE);
    let plan = bench.plan(&desired);
    assert_eq!(plan.summary.state, State::Refused);
    assert_eq!(plan.summary.refused_field.as_deref(), Some("metadata.annotations[daemonlet.dev/overlays]"));
}

/// The folder's DaemonSet with a list of `source`.
fn of_folder(image: &str, size: &str, source: ListSource) -> Arc<DaemonSet> {
    let of_api = on(image, size);
    let overlays = of_api.overlays.as_ref().map(|o| Arc::new(Overlays { list: source, ..Overlays::clone(o) }));
    let source = Source::File { path: "/net.yaml".into() };
    Arc::new(DaemonSet { source, uid: None, overlays, ..DaemonSet::clone(&of_api) })
}

#[test]
fn a_list_of_the_api_changes_a_folders_daemon_in_its_turn() {
    for (source, waits) in [(ListSource::Api, true), (ListSource::Folder, false)] {
        let mut bench = Bench::new();
        bench.pass(&want(&of_folder("a", "small", source)));
        bench.jitter = ms(30_000);
        let desired = want(&of_folder("a", "big", source));
        let delay = crate::core::plan::jitter("n1", &format!("a.{}", digest()), ms(30_000));
        assert!(delay > ms(0));
        if waits {
            assert_eq!(bench.pass(&desired), NONE, "not on all nodes at once");
            assert_eq!(bench.plan(&desired).wake_at, Some(bench.now + delay));
            bench.now += delay;
        }
        assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
    }
    let mut bench = Bench::new();
    bench.pass(&want(&of_folder("a", "small", ListSource::Api)));
    bench.jitter = ms(30_000);
    let newer = want(&of_folder("b", "small", ListSource::Api));
    assert_eq!(bench.pass(&newer), ["end uid-a-0"], "the folder's template never waits");
}

#[test]
fn what_the_api_patches_of_a_folder_is_checked_by_its_admission() {
    for (source, is_asked) in [(ListSource::Api, true), (ListSource::Folder, false)] {
        let mut bench = Bench::new();
        bench.world.says = Some(crate::core::dry_run::DryRunAnswer::Open);
        assert_eq!(bench.plan(&want(&of_folder("a", "big", source))).question.is_some(), is_asked, "{source:?}");
    }
}

#[test]
fn what_is_lost_returns_while_the_list_is_refused() {
    let mut bench = Bench::new();
    bench.pass(&want(&on("a", "big")));
    let broken = json!({"data": {"overlays.yaml": "- ["}});
    let refused = |record: &DaemonRecord| patched("a", Lookup::Present(&broken), "big", Some(record));
    assert_eq!(bench.pass(&want(&refused(&bench.record))), NONE);
    bench.world.manifests.clear();
    bench.world.running.clear();
    bench.pass(&want(&refused(&bench.record)));
    bench.now += GONE_AFTER;
    let desired = want(&refused(&bench.record));
    assert_eq!(bench.pass(&desired), ["finish uid-a-0", "start uid-a-1"]);
    let notes: Vec<String> = bench.plan(&desired).summary.notes.iter().map(ToString::to_string).collect();
    assert!(notes.iter().any(|note| note.contains("as last known: it is refused: ConfigMap")), "{notes:?}");
}
