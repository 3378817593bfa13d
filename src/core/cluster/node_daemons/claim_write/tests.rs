use serde_json::json;

use super::*;
use crate::core::update_trigger::UpdateTrigger;

fn approval(name: &str, revision: &str) -> Approval {
    Approval {
        namespace: "ns".to_owned(),
        name: name.to_owned(),
        uid: format!("u-{name}"),
        revision: revision.to_owned(),
        overlays: String::new(),
        approved_at: "2026-01-01T00:00:00Z".to_owned(),
        lease: Some(LeaseTerm { uid: "lease".to_owned(), ..LeaseTerm::default() }),
        when: None,
    }
}

fn daemon(name: &str, replacing: Option<&str>) -> DaemonReport {
    let replacing = replacing.map(str::to_owned);
    DaemonReport { namespace: "ns".to_owned(), name: name.to_owned(), replacing, ..DaemonReport::default() }
}

fn status(daemons: &[DaemonReport]) -> Status {
    Status { daemons: daemons.to_vec(), ..Status::default() }
}

fn object(uid: &str, approvals: &[Approval], live: &Status) -> Value {
    json!({"metadata": {"uid": uid, "resourceVersion": "9"}, "spec": {"approvals": approvals}, "status": live})
}

/// What the API server has after the write.
fn written(object: &Value, patch: &StatusPatch) -> Value {
    let mut after = object.clone();
    match patch {
        StatusPatch::Whole(patch) => json_patch::merge(&mut after, patch),
        StatusPatch::Changes(patch) => json_patch::patch(&mut after, patch).expect("it applies"),
    }
    after
}

#[test]
fn a_claim_is_made_on_a_later_version_where_its_approval_stands() {
    let (a, b) = (approval("a", "r2"), approval("b", "r2"));
    let before = status(&[daemon("a", None), daemon("b", None)]);
    let claims = status(&[daemon("a", Some("r2")), daemon("b", Some("r2"))]);
    let write = ClaimWrite { uid: "u".to_owned(), status: claims.clone(), approvals: vec![a.clone(), b.clone()] };
    assert_eq!(write.terms().len(), 1);

    let more = object("u", &[approval("c", "r7"), b.clone(), a.clone()], &before);
    let (said, patch) = write.on(&more).expect("both stand");
    assert_eq!(said, claims);
    let after = written(&more, &patch);
    assert_eq!((&after["status"], &after["metadata"]["resourceVersion"]), (&json!(claims), &json!("9")));

    // One is withdrawn: the other is claimed all the same.
    let one = object("u", std::slice::from_ref(&b), &before);
    let (said, patch) = write.on(&one).expect("one stands");
    assert_eq!(said, status(&[daemon("a", None), daemon("b", Some("r2"))]));
    assert_eq!(written(&one, &patch)["status"], json!(said));
}

#[test]
fn what_does_not_stand_as_it_was_read_is_not_claimed() {
    let a = approval("a", "r2");
    let before = status(&[daemon("a", None)]);
    let write =
        ClaimWrite { uid: "u".to_owned(), status: status(&[daemon("a", Some("r2"))]), approvals: vec![a.clone()] };
    let others = [
        approval("a", "r3"),
        Approval { uid: "another".to_owned(), ..a.clone() },
        Approval { lease: Some(LeaseTerm { transitions: 2, ..LeaseTerm::default() }), ..a.clone() },
        Approval { approved_at: "2026-01-01T00:01:00Z".to_owned(), ..a.clone() },
        Approval { when: Some(UpdateTrigger::Boot), ..a.clone() },
        Approval { overlays: "d".to_owned(), ..a.clone() },
    ];
    assert_eq!(write.on(&object("u", &[], &before)), None, "withdrawn");
    for other in others {
        assert_eq!(write.on(&object("u", std::slice::from_ref(&other), &before)), None, "{other:?}");
    }
    assert_eq!(write.on(&object("other", std::slice::from_ref(&a), &before)), None, "another object of that name");
    assert_eq!(write.on(&json!({"metadata": {"uid": "u"}})), None, "without a version nothing is bound");
}

#[test]
fn a_claim_stays_and_a_revision_without_approval_is_not_claimed() {
    let a = approval("a", "r2");
    let claims = status(&[daemon("a", Some("r2")), daemon("b", Some("r5")), daemon("c", Some("r6"))]);
    let write = ClaimWrite { uid: "u".to_owned(), status: claims, approvals: vec![a.clone()] };
    let live = status(&[daemon("a", None), daemon("b", Some("r5")), daemon("c", None)]);
    let (said, _) = write.on(&object("u", &[a], &live)).expect("it stands");
    assert_eq!(said, status(&[daemon("a", Some("r2")), daemon("b", Some("r5")), daemon("c", None)]));
}
