use proptest::prelude::*;

use super::*;
use crate::core::cluster::node_daemons::InstanceReport;
use crate::core::model::Mode;
use crate::core::status::RefusedCount;
use crate::core::status::State;

const OF: Precondition = Precondition { uid: "u", resource_version: None };

fn object(status: &Status) -> Value {
    json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": {"approvals": []}, "status": status})
}

/// What the API server makes of `before` by a patch.
fn patched(before: &Status, patch: &StatusPatch) -> Value {
    let mut object = object(before);
    match patch {
        StatusPatch::Whole(patch) => json_patch::merge(&mut object, patch),
        StatusPatch::Changes(patch) => json_patch::patch(&mut object, patch).expect("it applies"),
    }
    object
}

fn daemon() -> impl Strategy<Value = DaemonReport> {
    (0..3_u8, 0..6_u8, 0..3_u8).prop_map(|(namespace, name, message)| DaemonReport {
        namespace: format!("namespace-{namespace}"),
        name: format!("name-{name}"),
        message: ["", "a", "b"][usize::from(message)].to_owned(),
        ..DaemonReport::default()
    })
}

/// Daemons in any order, some twice.
fn daemons() -> impl Strategy<Value = Vec<DaemonReport>> {
    let sorted = prop::collection::vec(daemon(), 0..20).prop_map(|mut daemons| {
        daemons.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        daemons.dedup_by(|a, b| a.is_of(b));
        daemons
    });
    prop_oneof![4 => sorted, 1 => prop::collection::vec(daemon(), 0..20)]
}

fn status() -> impl Strategy<Value = Status> {
    let text = || prop_oneof![Just(String::new()), Just("a".to_owned())];
    let refused = || (0..3_usize).prop_map(|count| vec![RefusedCount { reason: "r".to_owned(), count }; count.min(1)]);
    (text(), text(), text(), daemons(), refused()).prop_map(|(agent_version, ready, worst, daemons, refused)| Status {
        agent_version,
        ready,
        worst,
        daemons,
        refused,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn the_changes_lead_from_one_status_to_the_other(before in status(), after in status()) {
        let patch = StatusPatch::changes(&OF, &before, &after);
        prop_assert_eq!(patched(&before, &patch), object(&after));
        prop_assert!(patch.size() <= StatusPatch::whole(&OF, &after).size());
        if let Some(operations) = operations(&OF, &before, &after) {
            prop_assert_eq!(patched(&before, &StatusPatch::Changes(Patch(operations))), object(&after));
        }
    }

    /// Daemons in the order of their names, as an agent reports them, never need the whole status for its own sake.
    #[test]
    fn daemons_in_order_are_changed_one_by_one(before in status(), after in status()) {
        let is_sorted = |status: &Status| {
            status.daemons.windows(2).all(|two| (&two[0].namespace, &two[0].name) < (&two[1].namespace, &two[1].name))
        };
        prop_assume!(is_sorted(&before) && is_sorted(&after));
        prop_assert!(operations(&OF, &before, &after).is_some());
    }
}

/// Twenty daemons that run, as an agent reports them.
fn twenty() -> Status {
    let daemon = |n: u8| DaemonReport {
        namespace: "monitoring".to_owned(),
        name: format!("daemon-{n:02}"),
        uid: "3b0b4e5c-6f7c-4b57-9d6c-0123456789ab".to_owned(),
        mode: Some(Mode::Static),
        phase: Some(State::Running),
        instances: vec![InstanceReport {
            pod: format!("daemon-{n:02}-x7k2p-worker-017.example.org"),
            revision: "6d4c8f7b9c".to_owned(),
            overlays: String::new(),
            created: "2026-01-01T00:00:00.000Z".to_owned(),
            ready_since: Some("2026-01-01T00:00:00Z".to_owned()),
            ending: false,
        }],
        previous: Some("5c9d7f6b84".to_owned()),
        returning: None,
        ..DaemonReport::default()
    };
    Status {
        agent_version: "0.1.0".to_owned(),
        ready: "20/20".to_owned(),
        worst: String::new(),
        daemons: (0..20).map(daemon).collect(),
        refused: Vec::new(),
    }
}

#[test]
fn one_daemon_of_twenty_is_a_small_part_of_the_status() {
    let of = Precondition { uid: "3b0b4e5c-6f7c-4b57-9d6c-0123456789ab", resource_version: Some("123456789") };
    let (before, mut after) = (twenty(), twenty());
    let new = InstanceReport {
        pod: "daemon-07-q9z4m-worker-017.example.org".to_owned(),
        ..before.daemons[7].instances[0].clone()
    };
    let daemon = &mut after.daemons[7];
    daemon.phase = Some(State::Failing);
    daemon.message = "container agent: ImagePullBackOff: ".to_owned() + &"x".repeat(200);
    daemon.replacing = Some("7e5d9a8c0b".to_owned());
    daemon.instances[0].ending = true;
    daemon.instances.push(new);
    after.ready = "19/20".to_owned();
    after.worst = format!("monitoring/daemon-07: failing: {}", daemon.message);
    let (whole, changes) = (StatusPatch::whole(&of, &after), StatusPatch::changes(&of, &before, &after));
    assert!(whole.size() > 6_000, "{}", whole.size());
    assert!(matches!(changes, StatusPatch::Changes(_)) && changes.size() <= 1_500, "{}", changes.size());
}

#[test]
fn another_object_is_not_changed() {
    let (before, mut after) = (twenty(), twenty());
    after.daemons[7].phase = Some(State::Failing);
    let StatusPatch::Changes(patch) = StatusPatch::changes(&OF, &before, &after) else { panic!("it is short") };
    let applies = |object: Value| json_patch::patch(&mut object.clone(), &patch).is_ok();
    assert!(applies(object(&before)));
    let mut other = object(&before);
    other["metadata"]["uid"] = json!("v");
    assert!(!applies(other), "another UID");
    let mut other = before.clone();
    other.daemons[7].name = "x".to_owned();
    assert!(!applies(object(&other)), "another daemon");
    other.daemons.truncate(7);
    assert!(!applies(object(&other)), "no daemon");
    assert!(!applies(json!({"metadata": {"uid": "u"}})), "no status");
}

#[test]
fn a_version_that_was_read_is_put_back_for_the_server_to_compare() {
    let of = Precondition { uid: "u", resource_version: Some("6") };
    let (before, mut after) = (twenty(), twenty());
    after.daemons[7].replacing = Some("r".to_owned());
    let patch = StatusPatch::changes(&of, &before, &after);
    assert!(matches!(patch, StatusPatch::Changes(_)));
    assert_eq!(patched(&before, &patch)["metadata"]["resourceVersion"], "6");
    assert_eq!(patched(&before, &StatusPatch::whole(&of, &after))["metadata"]["resourceVersion"], "6");
}
