use std::convert::Infallible;
use std::sync::Arc;
use std::sync::Mutex;

use http::Request;
use http::Response;
use kube::client::Body;
use serde_json::Value;

use super::*;

/// A client of an API server that answers every GET with `live`, and the requests that it gets.
fn client(live: Option<Value>) -> (kube::Client, Arc<Mutex<Vec<String>>>) {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        seen.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
        let missing = json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "",
            "metadata": {}});
        let revision = json!({"metadata": {"namespace": "n", "name": "d-1"}});
        let (status, body) = match (request.method().as_str(), &live) {
            ("GET", None) => (404, missing),
            ("GET", Some(live)) => (200, live.clone()),
            _ => (200, revision),
        };
        let response = Response::builder().status(status).body(Body::from(body.to_string().into_bytes())).unwrap();
        async { Ok::<_, Infallible>(response) }
    });
    (kube::Client::new(service, "default"), asked)
}

fn daemon_set(uid: &str, deletion: Option<&str>) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"namespace": "n", "name": "d", "uid": uid, "deletionTimestamp": deletion}})
}

#[tokio::test]
async fn a_revision_is_adopted_only_for_a_daemon_set_that_is_there() {
    for (live, adopts) in [
        (Some(daemon_set("u", None)), true),
        (Some(daemon_set("u", Some("2026-01-01T00:00:00Z"))), false),
        (Some(daemon_set("another", None)), false),
        (None, false),
    ] {
        let (client, asked) = client(live);
        let (revision, owner) = (ObjectKey::new("n", "d-1"), ObjectKey::new("n", "d"));
        let (answer, change) =
            answer(Ok(carry_out(&client, Call::AdoptRevision(revision, json!({}), owner, "u".to_owned())).await));
        assert_eq!((answer == RequestOutcome::Written, change.is_some()), (adopts, adopts), "{answer:?}");
        let asked = asked.lock().unwrap().clone();
        assert_eq!(asked[0], "GET /apis/apps/v1/namespaces/n/daemonsets/d");
        let patches: Vec<&str> = asked[1..].iter().map(String::as_str).collect();
        let patch = "PATCH /apis/apps/v1/namespaces/n/controllerrevisions/d-1";
        assert_eq!(patches, if adopts { vec![patch] } else { vec![] });
    }
}

#[test]
fn a_refusal_says_why_in_a_bounded_number_of_words() {
    let refusal = |status: Value| {
        let status: Status = serde_json::from_value(status).unwrap();
        match answer(Ok(Err(kube::Error::Api(Box::new(status))))).0 {
            RequestOutcome::Failed(SendError::Refused(words)) | RequestOutcome::Outdated(words) => words,
            other => panic!("{other:?}"),
        }
    };
    let quota = json!({"code": 403, "reason": "Forbidden", "message": "exceeded quota", "details": {"kind": "pods"}});
    assert_eq!(refusal(quota), "exceeded quota (403)");
    for code in [403, 409] {
        let long = refusal(json!({"code": code, "message": "\u{e9}".repeat(5_000)}));
        assert!(long.len() < 600 && long.ends_with("bytes more)"), "{long}");
    }
    let details = |field: &str| {
        let cause =
            json!({"reason": "FieldValueInvalid", "message": "Invalid value: field is immutable", "field": field});
        json!({"name": "net-1", "group": "apps", "kind": "ControllerRevision", "causes": [cause]})
    };
    let data = refusal(json!({"code": 422, "reason": "Invalid", "message": "immutable", "details": details("data")}));
    assert!(data.contains("ControllerRevision net-1") && data.contains("delete this ControllerRevision"), "{data}");
    let other = refusal(json!({"code": 422, "message": "no", "details": details("revision")}));
    assert_eq!(other, "no (422)");
}
