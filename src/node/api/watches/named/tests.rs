use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::Mutex;

use futures::Stream;
use http::Response;
use http_body_util::StreamBody;
use hyper::body::Bytes;
use hyper::body::Frame;
use kube::client::Body;
use serde_json::Value;
use serde_json::json;

use crate::core::model::Kind;
use crate::node::api::object;

use super::*;

/// An answer: its status, its body in these pieces, and whether the body ends then.
type CannedAnswer = (u16, Vec<String>, bool);

/// The stream of a ConfigMap from a server with these answers, and what it is asked.
fn stream(
    answers: Vec<CannedAnswer>,
    cached: Option<CacheReadPolicy>,
) -> (impl Stream<Item = WatchItem> + Unpin, Arc<Mutex<Vec<String>>>) {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let (seen, mut answers) = (Arc::clone(&asked), VecDeque::from(answers));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        seen.lock().unwrap().push(request.uri().to_string());
        let (status, pieces, ends) = answers.pop_front().unwrap_or((200, Vec::new(), false));
        let pieces = pieces.into_iter().map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::from(piece))));
        let rest = futures::stream::pending().take_until(std::future::ready(()));
        let body = match ends {
            true => futures::stream::iter(pieces).chain(rest).boxed(),
            false => futures::stream::iter(pieces).chain(futures::stream::pending()).boxed(),
        };
        let response = Response::builder().status(status).body(StreamBody::new(body)).unwrap();
        async { Ok::<_, Infallible>(response) }
    });
    let client = kube::Client::new(service, "default");
    let api = Api::namespaced_with(client, "a", &object::resource(Kind::ConfigMap));
    (follow(api, "metadata.name=c".to_owned(), 60, cached), asked)
}

fn config_map(version: &str) -> Value {
    json!({"metadata": {"namespace": "a", "name": "c", "resourceVersion": version}})
}

fn list(version: &str) -> CannedAnswer {
    let list = json!({"metadata": {"resourceVersion": version}, "items": [config_map("3")]});
    (200, vec![list.to_string()], true)
}

fn event(kind: &str, object: Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

fn status(code: u16) -> Value {
    json!({"kind": "Status", "status": "Failure", "code": code, "reason": "R", "message": "m", "metadata": {}})
}

/// The next words, in short.
async fn words<const N: usize>(stream: &mut (impl Stream<Item = WatchItem> + Unpin)) -> [String; N] {
    let mut words = [const { String::new() }; N];
    for word in &mut words {
        *word = match stream.next().await.unwrap() {
            Ok(Event::Init) => "init".to_owned(),
            Ok(Event::InitApply(object)) => format!("listed {}", object.resource_version()),
            Ok(Event::InitDone) => "done".to_owned(),
            Ok(Event::Apply(object)) => format!("applied {}", object.resource_version()),
            Ok(Event::Delete(object)) => format!("deleted {}", object.resource_version()),
            Err(Error::WatchError(status)) => format!("told {}", status.code),
            Err(Error::WatchStartFailed(kube::Error::Api(status))) => format!("refused {}", status.code),
            Err(error) => error.to_string(),
        };
    }
    words
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_from_what_it_told_last() {
    let lines = event("MODIFIED", config_map("12"))
        + &event(
            "BOOKMARK",
            json!({"kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"resourceVersion": "14"}}),
        );
    let (first, second) = lines.split_at(20);
    let broken = event("DELETED", config_map("15"));
    let answers = vec![
        list("10"),
        (200, vec![first.to_owned(), second.to_owned()], true),
        (200, vec![broken[..broken.len() - 4].to_owned()], true),
        (200, vec![event("DELETED", config_map("15"))], false),
    ];
    let (mut stream, asked) = stream(answers, None);
    assert_eq!(words(&mut stream).await, ["init", "listed 3", "done", "applied 12", "deleted 15"]);
    // The last one stays silent for longer than the server was to let it live.
    let _ = timeout(Duration::from_secs(66), stream.next()).await;
    let asked = asked.lock().unwrap().clone();
    assert!(asked.iter().all(|uri| uri.starts_with("/api/v1/namespaces/a/configmaps?")), "{asked:?}");
    assert!(asked.iter().all(|uri| uri.contains("fieldSelector=metadata.name%3Dc")), "{asked:?}");
    let from = |uri: &String| uri.split_once("&resourceVersion=").map(|(_, version)| version.to_owned());
    let from: Vec<Option<String>> = asked.iter().map(from).collect();
    let from: Vec<Option<&str>> = from.iter().map(Option::as_deref).collect();
    assert_eq!(from, [None, Some("10"), Some("14"), Some("14"), Some("15")]);
    assert!(asked[1].contains("watch=true&timeoutSeconds=60"), "{asked:?}");
}

#[tokio::test]
async fn what_the_cache_lacks_is_asked_for_again_and_later_lists_are_consistent() {
    let empty = (200, vec![json!({"metadata": {"resourceVersion": "9"}, "items": []}).to_string()], true);
    let expired = (200, vec![event("ERROR", status(410))], true);
    let (mut stream, asked) = stream(vec![empty, list("10"), expired, list("20")], Some(|_| true));
    let expected = ["init", "listed 3", "done", "told 410", "init", "listed 3", "done"];
    assert_eq!(words(&mut stream).await, expected);
    let cached = |uri: &String| uri.contains("resourceVersion=0&resourceVersionMatch=NotOlderThan");
    let cached: Vec<bool> = asked.lock().unwrap().iter().map(cached).collect();
    assert_eq!(cached, [true, false, false, false], "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn what_the_cache_has_counts_only_where_it_is_trusted() {
    let (mut trusting, asked) = stream(vec![list("10")], Some(|object| object["metadata"]["name"] == "c"));
    assert_eq!(words(&mut trusting).await, ["init", "listed 3", "done"]);
    assert_eq!(asked.lock().unwrap().iter().filter(|uri| !uri.contains("watch=")).count(), 1);
    let (mut doubting, asked) = stream(vec![list("10"), list("20")], Some(|object| object["metadata"]["name"] != "c"));
    assert_eq!(words(&mut doubting).await, ["init", "listed 3", "done"]);
    assert!(timeout(Duration::from_secs(1), doubting.next()).await.is_err(), "it watches");
    let asked = asked.lock().unwrap();
    assert!(asked[0].contains("resourceVersion=0") && !asked[1].contains("resourceVersion="), "{asked:?}");
    assert!(asked[2].contains("resourceVersion=20"), "it goes on from the second: {asked:?}");
}

#[tokio::test]
async fn a_version_that_expired_is_listed_anew() {
    let answers = vec![list("10"), (200, vec![event("ERROR", status(410))], true), list("20")];
    let (mut stream, _) = stream(answers, None);
    assert_eq!(words(&mut stream).await, ["init", "listed 3", "done", "told 410", "init", "listed 3", "done"]);
}

#[tokio::test]
async fn what_is_refused_is_told_and_tried_again() {
    let refused = |code: u16| (code, vec![status(code).to_string()], true);
    let answers = vec![
        refused(403),
        list("10"),
        refused(410),
        (200, vec![event("ERROR", status(500)), "nonsense\n".to_owned(), event("ADDED", config_map("11"))], true),
    ];
    let (mut stream, asked) = stream(answers, None);
    let [begun, refused] = words(&mut stream).await;
    assert!(begun == "init" && refused.contains("failed to perform initial object list"), "{refused}");
    assert_eq!(words(&mut stream).await, ["init", "listed 3", "done", "refused 410", "told 500"]);
    let [nonsense, added] = words(&mut stream).await;
    assert!(nonsense.contains("expected") && added == "applied 11", "{nonsense}, {added}");
    assert_eq!(asked.lock().unwrap().len(), 4, "the watch went on");
}
