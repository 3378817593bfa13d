use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::core::cluster::node_daemons::DaemonReport;
use crate::core::cluster::node_daemons::InstanceReport;
use crate::core::cluster::node_daemons::LeaseTerm;
use crate::core::model::Source;
use crate::core::time::at;
use crate::core::time::ms;
use crate::core::validate;
use crate::node::api::ApiFailure;

/// One that has read version `7` with an empty status, and wants to report `replacing`.
fn claims(replacing: Option<&str>) -> Claims {
    let daemon = DaemonReport { name: "net".to_owned(), replacing: replacing.map(str::to_owned), ..Default::default() };
    let wanted = Status { daemons: vec![daemon], ..Default::default() };
    Claims { exists: true, resource_version: "7".to_owned(), wanted, ..Default::default() }
}

/// The metadata of a write of the whole status.
fn metadata(patch: &StatusPatch) -> &Value {
    let StatusPatch::Whole(patch) = patch else { panic!("{patch:?}") };
    &patch["metadata"]
}

#[test]
fn a_claim_waits_for_nothing_and_is_made_once_on_what_was_read() {
    let mut c = claims(Some("r2"));
    c.next = at(5_000);
    let patch = c.send(at(1_000)).expect("it is due");
    assert_eq!(metadata(&patch)["resourceVersion"], "7");
    assert_eq!(c.due(), None, "one write at a time");
    c.ended(Some(FailureKind::Conflict), at(1_000));
    assert_eq!(c.due(), Some(at(2_000)), "the same version again is no haste");
    c.resource_version = "8".to_owned();
    assert_eq!(c.due(), Some(Timestamp::MIN), "another version is");
}

#[test]
fn a_failure_is_waited_out_and_a_conflict_is_none() {
    let mut c = claims(Some("r2"));
    c.send(at(0)).expect("it is due");
    c.ended(Some(FailureKind::Forbidden), at(0));
    c.resource_version = "8".to_owned();
    assert_eq!(c.due(), Some(at(0) + AGAIN), "a claim, too");
    c.send(at(0) + AGAIN).expect("it is due");
    c.ended(Some(FailureKind::Conflict), at(0) + AGAIN);
    assert_eq!(c.due(), Some(at(0) + AGAIN + PERIOD));
}

#[test]
fn a_clock_that_is_set_back_makes_nothing_wait_longer() {
    let mut c = claims(None);
    c.ended(None, at(5_000));
    c.accepted = Some(c.wanted.clone());
    c.want(c.wanted.clone(), at(1_000), 0.0);
    assert_eq!(c.due(), Some(at(1_000) + INSIST));
    c.accepted = None;
    assert!(c.due() <= Some(at(1_000) + PATIENCE), "{:?}", c.due());
}

fn daemon_set() -> DaemonSet {
    let template =
        json!({"metadata": {"labels": {"app": "net"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let value = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "net", "namespace": "a", "uid": "u"},
        "spec": {"selector": {"matchLabels": {"app": "net"}}, "template": template}});
    validate::daemon_set(&value, Source::Api).expect("a DaemonSet")
}

/// The approval of `r2` for that DaemonSet.
fn approval(when: Option<UpdateTrigger>) -> Approval {
    let text = str::to_owned;
    let (namespace, name, uid, revision, approved_at) = (text("a"), text("net"), text("u"), text("r2"), text(""));
    Approval { namespace, name, uid, revision, overlays: String::new(), approved_at, lease: None, when }
}

#[test]
fn a_claim_that_is_given_back_holds_no_more_whatever_is_still_read() {
    let (daemon_set, text) = (daemon_set(), str::to_owned);
    let mut c = claims(None);
    c.spec.approvals = vec![approval(None)];
    c.live = claims(Some("r2")).wanted;
    for daemon in c.live.daemons.iter_mut().chain(&mut c.wanted.daemons) {
        (daemon.namespace, daemon.uid) = (text("a"), text("u"));
    }
    let claimed = c.live.clone();
    let permission = |c: &Claims| c.permission(true, &daemon_set, "r2");
    assert_eq!(permission(&c), Permission::Claimed, "nothing else has been said");
    c.send(at(0)).expect("it is due");
    assert_eq!(permission(&c), Permission::Approved, "its withdrawal is being written");
    c.ended(Some(FailureKind::Timeout), at(100));
    assert_eq!(permission(&c), Permission::Approved, "the write may have arrived");
    c.send(at(100) + AGAIN).expect("it is due");
    c.ended(None, at(100) + AGAIN);
    assert_eq!(permission(&c), Permission::Approved, "what is read is older");
    // It is wanted again, and bound to what was read: it is not there, or nothing came in between.
    c.want(claimed, at(200) + AGAIN, 0.0);
    assert_eq!(c.wanted, c.live);
    assert_eq!(c.due(), Some(Timestamp::MIN), "as any claim");
    let patch = c.send(at(200) + AGAIN).expect("it is due");
    assert_eq!(metadata(&patch)["resourceVersion"], "7");
    assert_eq!(permission(&c), Permission::Approved, "it is not made yet");
    c.ended(Some(FailureKind::Conflict), at(200) + AGAIN);
    assert_eq!(permission(&c), Permission::Approved);
    c.resource_version = "8".to_owned();
    c.send(at(300) + AGAIN).expect("it is due");
    c.ended(None, at(300) + AGAIN);
    assert_eq!(permission(&c), Permission::Claimed);
    assert_eq!(c.due(), None);
}

#[test]
fn what_is_no_claim_is_bound_to_no_version_and_waits_for_its_time() {
    let mut c = claims(None);
    c.next = at(500);
    assert_eq!(c.send(at(499)), None);
    let patch = c.send(at(500)).expect("it is due");
    assert_eq!(metadata(&patch).get("resourceVersion"), None);
}

#[test]
fn what_was_taken_and_does_not_show_is_insisted_on_rarely() {
    let mut c = claims(None);
    c.send(at(0)).expect("it is due");
    c.ended(None, at(100));
    assert_eq!(c.due(), Some(at(100) + INSIST));
    c.wanted.worst = "news".to_owned();
    assert_eq!(c.due(), Some(at(100) + PERIOD), "other words are another matter");
    c.live = c.wanted.clone();
    assert_eq!(c.due(), None, "nothing to say");
}

#[test]
fn the_object_is_made_once_at_a_time_and_not_while_the_last_failure_is_fresh() {
    let mut c = Claims::default();
    assert!(c.create(at(0)));
    assert!(!c.create(at(0)), "one write at a time");
    c.ended(Some(FailureKind::Forbidden), at(0));
    assert!(!c.create(at(0) + AGAIN - ms(1)));
    assert!(c.create(at(0) + AGAIN));
    assert_eq!(c.due(), None, "what is not there is not patched");
}

#[test]
fn what_nobody_waits_for_has_patience_and_goes_with_what_matters() {
    let mut c = Claims { exists: true, ..Default::default() };
    let said = |ready: bool| {
        let mut status = claims(None).wanted;
        let ready_since = ready.then(|| "2026-01-01T00:00:00Z".to_owned());
        let instance = InstanceReport { pod: "a".to_owned(), ready_since, ..Default::default() };
        status.daemons[0].instances.push(instance);
        status
    };
    c.want(said(false), at(1_000), 0.0);
    assert_eq!(c.due(), Some(at(1_000) + PATIENCE / 2));
    c.want(said(false), at(2_000), 1.0);
    assert_eq!(c.due(), Some(at(1_000) + PATIENCE / 2), "since it became known");
    c.want(said(true), at(2_100), 0.0);
    assert!(c.due() <= Some(at(2_100)), "a rollout waits for that");
    c.want(said(false), at(2_200), 0.0);
    c.send(at(10_000)).expect("it is due");
    c.ended(None, at(10_000));
    c.live = c.wanted.clone();
    c.want(said(false), at(11_000), 0.0);
    assert_eq!((c.due(), c.patient), (None, None), "nothing to say");
    c.want(Status::default(), at(12_000), 0.0);
    c.live.daemons.clear();
    c.live.worst = "x".to_owned();
    assert_eq!(c.due(), Some(at(12_000) + PATIENCE / 2), "patience is new each time");
    c.want(c.wanted.clone(), at(0), 0.0);
    assert_eq!(c.due(), Some(at(0) + AGAIN), "a clock that was set back");
}

#[test]
fn what_an_earlier_holder_of_the_lease_has_approved_is_not_claimed() {
    let lease = |transitions| LeaseTerm::new("s", "l", "u", &json!({"leaseTransitions": transitions}));
    let approval = |transitions| Approval {
        namespace: String::new(),
        name: "net".to_owned(),
        uid: "u".to_owned(),
        revision: "r2".to_owned(),
        overlays: String::new(),
        approved_at: String::new(),
        lease: Some(lease(transitions)),
        when: None,
    };
    let mut c = claims(Some("r2"));
    c.spec.approvals = vec![approval(1)];
    let claimed = c.claim_write().expect("a claim");
    assert_eq!(claimed.terms(), BTreeSet::from([&lease(1)]), "it is read before the claim is made");
    let mut log = Log::default();
    c.terms.not_held(lease(1), None, at(0), &mut log);
    c.terms.follow(&c.spec, at(60_000));
    assert_eq!(c.terms.withholds(&approval(1)), Some(Withheld::NotApproved), "for good");
    assert_eq!((c.reads_again(), log.0.len()), (None, 0));
    c.spec.approvals = vec![approval(2)];
    assert_eq!(c.terms.withholds(&approval(2)), None);
    // A Lease that cannot be read proves nothing: it is read again.
    let failure = ApiFailure::new(FailureKind::Forbidden, "no");
    c.terms.not_held(lease(2), Some(&failure), at(60_000), &mut log);
    c.terms.not_held(lease(2), Some(&failure), at(60_000), &mut log);
    assert_eq!(c.terms.withholds(&approval(2)), Some(Withheld::LeaseNotRead));
    assert_eq!((c.reads_again(), log.0.len()), (Some(at(65_000)), 1), "it is reported once");
    c.terms.follow(&c.spec, at(65_000));
    assert_eq!(c.terms.withholds(&approval(2)), None);
    c.live = c.wanted.clone();
    assert_eq!(c.claim_write(), None, "what is claimed needs no more");
}

#[test]
fn changes_that_do_not_apply_are_no_failure_and_the_whole_status_follows() {
    let mut c = claims(None);
    c.send(at(0)).expect("it is due");
    assert!(!c.ended(None, at(0)));
    c.live = c.wanted.clone();
    c.wanted.daemons.extend((0..9).map(|n| DaemonReport { name: n.to_string(), ..Default::default() }));
    c.live.daemons.clone_from(&c.wanted.daemons);
    c.accepted = Some(c.live.clone());
    c.wanted.daemons[3].stock_pod = Some("x".to_owned());
    let patch = c.send(at(10_000)).expect("it is due");
    assert!(matches!(patch, StatusPatch::Changes(_)), "{patch:?}");
    assert!(!c.ended(Some(FailureKind::Invalid), at(10_000)));
    assert_eq!(c.due(), Some(at(10_000) + PERIOD));
    metadata(&c.send(at(10_000) + PERIOD).expect("it is due"));
    assert!(c.ended(Some(FailureKind::Invalid), at(20_000)), "the API server does not take the status itself");
}

/// The API server: the object's status and resource version, and what a watch has yet to show.
#[derive(Default)]
struct Server {
    object: Value,
    version: u64,
}

impl Server {
    fn write(&mut self, patch: &StatusPatch) -> Result<(), FailureKind> {
        let mut object = self.object.clone();
        match patch {
            StatusPatch::Whole(patch) => json_patch::merge(&mut object, patch),
            StatusPatch::Changes(patch) => json_patch::patch(&mut object, patch).map_err(|_| FailureKind::Invalid)?,
        }
        if object["metadata"]["resourceVersion"] != json!(self.version.to_string()) {
            return Err(FailureKind::Conflict);
        }
        self.object["status"] = object["status"].take();
        self.modified();
        Ok(())
    }

    fn modified(&mut self) {
        self.version += 1;
        self.object["metadata"]["resourceVersion"] = json!(self.version.to_string());
    }

    fn status(&self) -> Status {
        serde_json::from_value(self.object["status"].clone()).unwrap_or_default()
    }
}

#[derive(Clone, Debug)]
enum ClaimOperation {
    /// Another message of one of the daemons, or none of it.
    Want(u8, Option<u8>),
    /// The agent writes; its answer may get lost.
    Write { is_answered: bool },
    /// The coordinator writes its part.
    Approve,
    /// Another client empties the status.
    Empty,
    /// The watch catches up.
    Watch,
}

fn happening() -> impl Strategy<Value = ClaimOperation> {
    prop_oneof![
        4 => (0..12_u8, prop::option::weighted(0.9, 0..2_u8))
            .prop_map(|(name, message)| ClaimOperation::Want(name, message)),
        4 => prop::bool::weighted(0.8).prop_map(|is_answered| ClaimOperation::Write { is_answered }),
        1 => Just(ClaimOperation::Approve),
        1 => Just(ClaimOperation::Empty),
        3 => Just(ClaimOperation::Watch),
    ]
}

/// The status of these daemons, each with a message.
fn said(daemons: &BTreeMap<u8, u8>) -> Status {
    let report = |(name, message): (&u8, &u8)| DaemonReport {
        name: format!("{name:02}"),
        message: message.to_string(),
        ..Default::default()
    };
    Status { daemons: daemons.iter().map(report).collect(), ..Status::default() }
}

proptest! {
    /// What the API server has after a write that it took is what was sent, however late the watch is.
    #[test]
    fn a_write_that_is_taken_leaves_what_was_sent(happenings in prop::collection::vec(happening(), 1..60)) {
        let mut server = Server { object: json!({"metadata": {"uid": "u"}}), version: 0 };
        server.modified();
        let mut c = Claims { exists: true, uid: "u".to_owned(), ..Claims::default() };
        let mut now = at(0);
        let mut daemons: BTreeMap<u8, u8> = (0..12).map(|name| (name, 0)).collect();
        c.want(said(&daemons), now, 0.5);
        for happening in happenings {
            now = now + INSIST + PATIENCE;
            match happening {
                ClaimOperation::Want(name, message) => {
                    match message {
                        Some(message) => drop(daemons.insert(name, message)),
                        None => drop(daemons.remove(&name)),
                    }
                    c.want(said(&daemons), now, 0.5);
                }
                ClaimOperation::Write { is_answered } => {
                    let Some(patch) = c.send(now) else { continue };
                    let sent = c.wanted.clone();
                    let written = server.write(&patch);
                    if written.is_ok() {
                        prop_assert_eq!(server.status(), sent, "{:?}", patch);
                    }
                    c.ended(if is_answered { written.err() } else { Some(FailureKind::Timeout) }, now);
                }
                ClaimOperation::Approve => server.modified(),
                ClaimOperation::Empty => {
                    server.object["status"] = json!({});
                    server.modified();
                }
                ClaimOperation::Watch => {
                    c.live = server.status();
                    c.resource_version = server.version.to_string();
                }
            }
        }
        // Whatever has happened, the status is written in the end.
        for _ in 0..3 {
            now = now + INSIST + PATIENCE;
            c.live = server.status();
            c.resource_version = server.version.to_string();
            if let Some(patch) = c.send(now) {
                let written = server.write(&patch);
                c.ended(written.err(), now);
            }
        }
        prop_assert_eq!(server.status(), c.wanted);
    }
}

#[test]
fn an_approval_for_the_next_boot_is_claimed_as_staged_and_bound_to_what_was_read() {
    let mut c = claims(None);
    c.spec.approvals = vec![approval(Some(UpdateTrigger::Boot))];
    let permission = |c: &Claims| c.permission(true, &daemon_set(), "r2");
    assert_eq!(permission(&c), Permission::Standing(UpdateTrigger::Boot));
    assert_eq!(c.unclaimed(), 0, "no rollout waits for it");
    let text = str::to_owned;
    let staged = DaemonReport {
        namespace: text("a"),
        name: text("net"),
        uid: text("u"),
        staged: Some(text("r2")),
        ..DaemonReport::default()
    };
    let wanted = Status { daemons: vec![staged], ..Status::default() };
    c.want(wanted.clone(), at(0), 0.0);
    assert_eq!(c.due(), Some(Timestamp::MIN), "a claim does not wait");
    c.live = wanted;
    assert_eq!(permission(&c), Permission::Staged);
    c.spec.approvals[0].when = Some(UpdateTrigger::Drain);
    assert_eq!(permission(&c), Permission::Standing(UpdateTrigger::Drain), "it waits for another trigger by now");
    c.spec.approvals.clear();
    assert_eq!(permission(&c), Permission::Withheld(Withheld::NotRead));
    c.is_read = true;
    assert_eq!(permission(&c), Permission::Withheld(Withheld::NotApproved));
}

#[test]
fn a_resource_that_drops_overlays_is_named_as_what_an_approval_waits_for() {
    let revision = "r.digest";
    let permission = |c: &Claims, revision: &str| c.permission(true, &daemon_set(), revision);
    let mut c = claims(None);
    c.is_read = true;
    c.wanted.daemons[0].overlays = "digest".to_owned();
    c.send(at(10_000)).expect("it is due");
    c.ended(None, at(10_000));
    c.live = without_overlays(&c.wanted);
    c.look_for_overlays(at(10_000));
    assert_eq!(permission(&c, revision), Permission::Withheld(Withheld::NotApproved), "it may be read late");
    c.look_for_overlays(at(10_000) + PATIENCE);
    assert_eq!(permission(&c, revision), Permission::Withheld(Withheld::OlderResource));
    assert_eq!(permission(&c, "r"), Permission::Withheld(Withheld::NotApproved), "no overlays, no matter");
    c.live = c.wanted.clone();
    c.look_for_overlays(at(20_000));
    assert_eq!(permission(&c, revision), Permission::Withheld(Withheld::NotApproved), "the resource is newer now");
}
