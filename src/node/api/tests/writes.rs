//! What the agent writes: tokens, events, status, claims and taints.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use crate::core::cluster::node_daemons::Approval;
use crate::core::cluster::node_daemons::ClaimWrite;
use crate::core::cluster::node_daemons::DaemonReport;
use crate::core::cluster::node_daemons::LeaseTerm;
use crate::core::cluster::node_daemons::Precondition;
use crate::core::cluster::node_daemons::Status;
use crate::core::cluster::node_daemons::StatusPatch;
use crate::core::model::STARTING_TAINT;
use crate::core::model::TokenRequest;

use super::*;

#[tokio::test]
async fn a_token_is_requested_for_this_node_and_wakes_the_loop() {
    let node = json!({"metadata": {"name": "n1", "uid": "node-uid", "resourceVersion": "3"}});
    let fake = Fake::start(100, move |method, path| match (method, path.contains("/nodes"), is_watch(path)) {
        ("POST", ..) => FakeReply::Json(
            201,
            json!({"spec": {"expirationSeconds": 3600},
                "status": {"token": "issued", "expirationTimestamp": "2126-01-01T00:00:00Z"}}),
        ),
        (_, true, false) => list(std::slice::from_ref(&node)),
        _ => empty(path),
    })
    .await;
    let api = Api::start(options(&fake));
    let request =
        TokenRequest { service_account: ObjectKey::new("ns", "sa"), audience: "a".into(), expiration_seconds: 3600 };
    api.tokens().set_wanted(&[request.clone()].into());
    until(&api, "issued", |api| api.tokens().snapshot().token(&request).is_some()).await;
    assert_eq!(api.tokens().snapshot().token(&request), Some("issued"));
    assert_eq!(fake.count("POST /api/v1/namespaces/ns/serviceaccounts/sa/token"), 1);
    assert_eq!(api.tokens().export("b")[0].node_uid, "node-uid");
}

#[tokio::test]
async fn events_are_sent_once_there_is_a_connection() {
    let mut fake = Fake::start(100, |method, path| match method {
        "POST" => FakeReply::Json(201, json!({})),
        _ => empty(path),
    })
    .await;
    fake.stop();
    let api = Api::start(options(&fake));
    for note in ["one", "two", "two"] {
        api.events().record(AgentEvent {
            regarding: Regarding::DaemonSet { cause: note.into() },
            daemon_set: ObjectKey::new("ns", "d"),
            uid: "u".into(),
            kind: EventKind::Warning,
            reason: "Refused".into(),
            action: "Render".into(),
            note: note.into(),
        });
    }
    until(&api, "down", |api| failing(api).is_some()).await;
    fake.restart().await;
    until(&api, "sent", |_| fake.count("POST /apis/events.k8s.io/v1/namespaces/ns/events") == 2).await;
    assert_eq!(api.events().dropped(), 0);
}

#[tokio::test]
async fn a_status_is_written_whole_or_by_its_changes_and_each_refusal_has_its_kind() {
    let of = Precondition { uid: "u", resource_version: None };
    let daemons = (0..9).map(|n| DaemonReport { name: n.to_string(), ..DaemonReport::default() }).collect();
    let before = Status { daemons, ..Status::default() };
    let mut after = before.clone();
    after.daemons[3].message = "news".into();
    let fake = Fake::start(100, |_, path| empty(path)).await;
    let api = Api::start(options(&fake));
    until(&api, "healthy", is_healthy).await;
    for (code, expected) in [(409, FailureKind::Conflict), (422, FailureKind::Invalid)] {
        fake.answer(move |method, path| match method {
            "PATCH" => FakeReply::Json(code, status(code, "", "no")),
            _ => empty(path),
        });
        for patch in [StatusPatch::whole(&of, &after), StatusPatch::changes(&of, &before, &after)] {
            let refused = api.write_status("n1", patch, None).await;
            assert!(matches!(&refused, Err(NotWritten::Failed(why)) if why.kind == expected), "{refused:?}");
        }
    }
    let path = "PATCH /apis/daemonlet.dev/v1beta1/nodedaemons/n1/status?";
    assert_eq!(fake.count(&format!("{path} application/merge-patch+json")), 2, "{:?}", fake.requests());
    assert_eq!(fake.count(&format!("{path} application/json-patch+json")), 2);
}

#[tokio::test]
async fn a_claim_follows_an_object_that_others_write_all_the_time() {
    let term = LeaseTerm { namespace: "s".into(), name: "l".into(), uid: "lease".into(), transitions: 3 };
    let approval = Approval {
        namespace: "ns".into(),
        name: "net".into(),
        uid: "u-net".into(),
        revision: "r2".into(),
        overlays: String::new(),
        approved_at: String::new(),
        lease: Some(term),
        when: None,
    };
    let daemon = |replacing: Option<&str>| {
        let replacing = replacing.map(str::to_owned);
        DaemonReport { namespace: "ns".into(), name: "net".into(), replacing, ..DaemonReport::default() }
    };
    let status_of = |daemon| Status { daemons: vec![daemon], ..Status::default() };
    let claim =
        ClaimWrite { uid: "u".into(), status: status_of(daemon(Some("r2"))), approvals: vec![approval.clone()] };
    let of = Precondition { uid: "u", resource_version: Some("1") };
    let patch = || StatusPatch::whole(&of, &claim.status);
    let fake = Fake::start(100, |_, path| empty(path)).await;
    let api = Api::start(options(&fake));
    until(&api, "healthy", is_healthy).await;

    // `conflicts`: how often another was faster; `stands`: whether the approval is still there then.
    let at_server = move |conflicts: u32, holder: &'static str, stands: bool| {
        let (mut version, approval) = (1, approval.clone());
        move |method: &str, path: &str| match method {
            "PATCH" if version <= conflicts => {
                version += 1;
                FakeReply::Json(409, status(409, "Conflict", "modified"))
            }
            "PATCH" => FakeReply::Json(200, json!({"kind": "NodeDaemons", "metadata": {"name": "n1"}})),
            _ if path.contains("/leases/") => FakeReply::Json(
                200,
                json!({"metadata": {"name": "l", "uid": "lease"}, "spec": {"holderIdentity": holder, "leaseTransitions": 3}}),
            ),
            _ if path.contains("/nodedaemons/n1") => {
                let approvals = if stands { json!([approval]) } else { json!([]) };
                let metadata = json!({"name": "n1", "uid": "u", "resourceVersion": version.to_string()});
                FakeReply::Json(200, json!({"metadata": metadata, "spec": {"approvals": approvals}, "status": {}}))
            }
            _ => empty(path),
        }
    };
    fake.answer(at_server(0, "one", true));
    assert_eq!(api.write_status("n1", patch(), Some(&claim)).await, Ok(None));
    fake.answer(at_server(5, "one", true));
    assert_eq!(api.write_status("n1", patch(), Some(&claim)).await, Ok(Some(claim.status.clone())));
    fake.answer(at_server(5, "one", false));
    let withdrawn = api.write_status("n1", patch(), Some(&claim)).await;
    assert!(matches!(&withdrawn, Err(NotWritten::Failed(why)) if why.kind == FailureKind::Conflict), "{withdrawn:?}");
    fake.answer(at_server(1, "", true));
    let given_back = api.write_status("n1", patch(), Some(&claim)).await;
    assert!(matches!(&given_back, Err(NotWritten::NotHeld { failure: None, .. })), "{given_back:?}");
    fake.answer(at_server(1000, "one", true));
    let before = fake.count("PATCH");
    let gave_up = api.write_status("n1", patch(), Some(&claim)).await;
    assert!(matches!(&gave_up, Err(NotWritten::Failed(_))), "{gave_up:?}");
    assert_eq!(fake.count("PATCH") - before, 9, "what is never quick enough is decided anew");
}

#[tokio::test]
async fn a_taint_that_is_set_while_it_is_being_taken_away_is_there_in_the_end() {
    let node = |taints: Value| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "u"}, "spec": {"taints": taints}});
    let is_tainted = Arc::new(AtomicBool::new(true));
    let at_server = Arc::clone(&is_tainted);
    let refused = "ValidatingAdmissionPolicy 'daemonlet-agent-nodes' with binding 'b' denied request: no";
    let fake = Fake::start(100, move |method, path| match method {
        "PATCH" if path.contains("dryRun=All") => FakeReply::Json(422, status(422, "Invalid", refused)),
        // What is patched is what is not so yet.
        "PATCH" => {
            at_server.fetch_xor(true, Ordering::SeqCst);
            FakeReply::Json(200, node(json!([])))
        }
        _ if path.contains("/nodes/n1") => FakeReply::Json(
            200,
            node(match at_server.load(Ordering::SeqCst) {
                true => json!([{"key": STARTING_TAINT, "effect": "NoSchedule"}]),
                false => json!([]),
            }),
        ),
        _ => empty(path),
    })
    .await;
    let api = Api::start(options(&fake));
    until(&api, "connected", |api| *api.connector().link().borrow() == Link::Up).await;
    let change = |change| api.change_taint("n1", Some("u"), change);
    let results = tokio::join!(change(TaintChange::Remove), change(TaintChange::Set));
    assert_eq!(results, (NodeWriteResult::Done, NodeWriteResult::Done));
    assert!(is_tainted.load(Ordering::SeqCst));
}

#[tokio::test]
async fn what_waits_to_be_sent_is_sent_before_the_end() {
    let fake = Fake::start(100, |method, path| match method {
        "POST" => FakeReply::Json(201, json!({})),
        _ => empty(path),
    })
    .await;
    let api = Api::start(options(&fake));
    let sent = || fake.count("POST /apis/events.k8s.io/v1/namespaces/ns/events");
    until(&api, "connected", |api| *api.connector().link().borrow() == Link::Up).await;
    for note in ["one", "two"] {
        api.events().record(AgentEvent {
            regarding: Regarding::DaemonSet { cause: note.into() },
            daemon_set: ObjectKey::new("ns", "d"),
            uid: "u".into(),
            kind: EventKind::Normal,
            reason: "Removed".into(),
            action: "Remove".into(),
            note: note.into(),
        });
    }
    assert_eq!(sent(), 0, "they wait for others");
    // Shorter than the shortest wait for others.
    api.flush_events(Duration::from_secs(3)).await;
    assert_eq!(sent(), 2);
    api.flush_events(Duration::from_secs(60)).await;
    assert_eq!(sent(), 2, "nothing is left to wait for");
}
