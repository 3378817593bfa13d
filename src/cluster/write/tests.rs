use std::convert::Infallible;
use std::sync::Arc;
use std::sync::Mutex;

use http::Request;
use http::Response;
use kube::client::Body;

use super::*;

/// A writer for an API server that answers every GET with `live`, and the methods that it is asked with.
fn writer(live: Option<Value>) -> (Writer, Arc<Mutex<Vec<String>>>) {
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
    (Writer::new(kube::Client::new(service, "default")), asked)
}

fn daemon_set(uid: &str, deletion: Option<&str>) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"namespace": "n", "name": "d", "uid": uid, "deletionTimestamp": deletion},
        "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": {"metadata": {"labels": {"app": "d"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

#[tokio::test]
async fn a_revision_is_adopted_only_for_a_daemon_set_that_is_there() {
    let mut view = View::default();
    let mut known = daemon_set("u", None);
    known["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
    view.put(Kind::DaemonSets, known);
    view.put(
        Kind::Revisions,
        json!({"metadata": {"namespace": "n", "name": "d-1", "uid": "r", "resourceVersion": "1"}}),
    );
    for (live, adopts) in [
        (Some(daemon_set("u", None)), true),
        (Some(daemon_set("u", Some("2026-01-01T00:00:00Z"))), false),
        (Some(daemon_set("another", None)), false),
        (None, false),
    ] {
        let (writer, asked) = writer(live);
        let adopt = history::Write::Adopt { name: "d-1".to_owned() };
        let write = Write::Revision { key: ObjectKey::new("n", "d"), write: adopt };
        let prepared = writer.prepare(what(&write), write, &view).unwrap();
        assert_eq!(prepared.request.await.unwrap().is_some(), adopts);
        let asked = asked.lock().unwrap().clone();
        assert_eq!(asked[0], "GET /apis/apps/v1/namespaces/n/daemonsets/d");
        let patches: Vec<&str> = asked[1..].iter().map(String::as_str).collect();
        let patch = "PATCH /apis/apps/v1/namespaces/n/controllerrevisions/d-1";
        assert_eq!(patches, if adopts { vec![patch] } else { vec![] });
    }
}
