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

type Asked = Arc<Mutex<Vec<String>>>;

/// The stream of the ConfigMap `c` from a server with these answers, and what it is asked.
fn stream(
    answers: Vec<CannedAnswer>,
    cached: Option<CacheReadPolicy>,
) -> (impl Stream<Item = WatchItem> + Unpin, Asked) {
    stream_of("c", answers, cached)
}

fn stream_of(
    name: &str,
    answers: Vec<CannedAnswer>,
    cached: Option<CacheReadPolicy>,
) -> (impl Stream<Item = WatchItem> + Unpin, Asked) {
    stream_in(Turns::new(), name, answers, cached)
}

fn stream_in(
    turns: Turns,
    name: &str,
    answers: Vec<CannedAnswer>,
    cached: Option<CacheReadPolicy>,
) -> (impl Stream<Item = WatchItem> + Unpin, Asked) {
    let asked = Asked::default();
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
    (follow(api, ObjectRef::new(Kind::ConfigMap, "a", name), 60, cached, turns), asked)
}

fn config_map(version: &str) -> Value {
    json!({"metadata": {"namespace": "a", "name": "c", "resourceVersion": version}})
}

fn found(version: &str) -> CannedAnswer {
    (200, vec![config_map(version).to_string()], true)
}

fn missing() -> CannedAnswer {
    let mut status = status(404);
    status["reason"] = "NotFound".into();
    status["details"] = json!({"kind": "configmaps", "name": "c"});
    (404, vec![status.to_string()], true)
}

fn refused(code: u16) -> CannedAnswer {
    (code, vec![status(code).to_string()], true)
}

fn list(version: &str, items: Value) -> CannedAnswer {
    (200, vec![json!({"metadata": {"resourceVersion": version}, "items": items}).to_string()], true)
}

/// A watch of these events, that ends then.
fn watch(events: &[String]) -> CannedAnswer {
    (200, vec![events.concat()], true)
}

/// The bookmark that ends the initial events.
fn end(version: &str) -> String {
    let metadata = json!({"resourceVersion": version, "annotations": {"k8s.io/initial-events-end": "true"}});
    event("BOOKMARK", json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}))
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
            Err(Error::WatchError(status)) => format!("error {}", status.code),
            Err(Error::WatchStartFailed(kube::Error::Api(status))) => format!("refused {}", status.code),
            Err(error) => error.to_string(),
        };
    }
    words
}

/// The query of each watch that was asked for: whether with initial events, and from which version.
fn watches(asked: &Asked) -> Vec<(bool, String)> {
    let asked = asked.lock().unwrap();
    let queries = asked.iter().filter_map(|uri| uri.strip_prefix("/api/v1/namespaces/a/configmaps?&watch=true&"));
    let origin = |query: &str| {
        assert!(query.contains("timeoutSeconds=60") && query.contains("fieldSelector=metadata.name%3Dc"), "{query}");
        let from = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion=")).unwrap();
        (query.contains("sendInitialEvents=true&resourceVersionMatch=NotOlderThan"), from.to_owned())
    };
    queries.map(origin).collect()
}

/// The other requests: what follows the path of ConfigMaps.
fn reads(asked: &Asked) -> Vec<String> {
    let asked = asked.lock().unwrap();
    let paths = asked.iter().filter_map(|uri| uri.strip_prefix("/api/v1/namespaces/a/configmaps"));
    paths.filter(|path| !path.contains("watch=true")).map(str::to_owned).collect()
}

fn origins<const N: usize>(origins: [(bool, &str); N]) -> Vec<(bool, String)> {
    origins.map(|(state, version)| (state, version.to_owned())).to_vec()
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_from_what_it_reported_last() {
    let bookmark = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": "14"}});
    let events = [event("ADDED", config_map("3")), end("10"), event("MODIFIED", config_map("12"))];
    let lines = events.concat() + &event("BOOKMARK", bookmark);
    let (first, second) = lines.split_at(20);
    let broken = event("DELETED", config_map("15"));
    let answers = vec![
        found("3"),
        (200, vec![first.to_owned(), second.to_owned()], true),
        watch(&[broken[..broken.len() - 4].to_owned()]),
        (200, vec![event("DELETED", config_map("15"))], false),
    ];
    let (mut stream, asked) = stream(answers, None);
    let expected = ["init", "listed 3", "done", "applied 3", "applied 12", "deleted 15"];
    assert_eq!(words(&mut stream).await, expected);
    // The last one stays silent for longer than the server was to let it live.
    let _ = timeout(Duration::from_secs(66), stream.next()).await;
    assert_eq!(reads(&asked), ["/c"]);
    assert_eq!(watches(&asked), origins([(true, "3"), (false, "14"), (false, "14"), (false, "15")]));
}

#[tokio::test]
async fn what_happened_between_the_first_answer_and_the_watch_is_reported() {
    let (mut changed, _) = stream(vec![found("3"), watch(&[event("ADDED", config_map("5")), end("10")])], None);
    assert_eq!(words(&mut changed).await, ["init", "listed 3", "done", "applied 5"]);
    let (mut deleted, asked) = stream(vec![found("3"), watch(&[end("10")]), refused(500)], None);
    assert_eq!(words(&mut deleted).await, ["init", "listed 3", "done", "deleted ", "refused 500"]);
    assert_eq!(watches(&asked), origins([(true, "3"), (false, "10")]));
    let (mut created, asked) = stream(vec![missing(), watch(&[event("ADDED", config_map("5")), end("10")])], None);
    assert_eq!(words(&mut created).await, ["init", "done", "applied 5"]);
    assert_eq!(watches(&asked), origins([(true, "")]), "no version: nothing older than now");
}

#[tokio::test]
async fn a_watch_that_breaks_off_in_its_initial_events_begins_again() {
    let answers = vec![found("3"), watch(&[event("ADDED", config_map("5"))]), watch(&[end("10")]), refused(500)];
    let (mut stream, asked) = stream(answers, None);
    let expected = ["init", "listed 3", "done", "applied 5", "deleted ", "refused 500"];
    assert_eq!(words(&mut stream).await, expected);
    assert_eq!(watches(&asked), origins([(true, "3"), (true, "5"), (false, "10")]));
}

#[tokio::test]
async fn what_the_cache_lacks_is_asked_for_again() {
    let (mut stream, asked) = stream(vec![missing(), found("3")], Some(|_| true));
    assert_eq!(words(&mut stream).await, ["init", "listed 3", "done"]);
    assert_eq!(reads(&asked), ["/c?&resourceVersion=0", "/c"]);
}

#[tokio::test]
async fn what_the_cache_has_counts_only_where_it_is_good_enough() {
    let (mut cached, asked) = stream(vec![found("3")], Some(|object| object["metadata"]["name"] == "c"));
    assert_eq!(words(&mut cached).await, ["init", "listed 3", "done"]);
    assert_eq!(reads(&asked), ["/c?&resourceVersion=0"]);
    let (mut live, asked) =
        stream(vec![found("3"), found("4"), refused(500)], Some(|object| object["metadata"]["name"] != "c"));
    assert_eq!(words(&mut live).await, ["init", "listed 4", "done", "refused 500"]);
    assert_eq!(reads(&asked), ["/c?&resourceVersion=0", "/c"]);
    assert_eq!(watches(&asked), origins([(true, "4")]));
}

#[tokio::test]
async fn an_answer_that_is_not_the_object_says_nothing_of_it() {
    for answer in [json!({}), json!({"message": "maintenance"}), status(503), json!({"metadata": {"name": "d"}})] {
        let (mut stream, _) = stream(vec![(200, vec![answer.to_string()], true), found("3")], None);
        let [_, failed, _, listed] = words(&mut stream).await;
        assert!(failed.starts_with("failed") && listed == "listed 3", "{answer}: {failed}, {listed}");
    }
    let other = json!({"metadata": {"namespace": "a", "name": "d", "resourceVersion": "5"}});
    let events = watch(&[event("ADDED", config_map("3")), end("3"), event("DELETED", other)]);
    let (mut stream, _) = stream(vec![found("3"), events, found("3")], None);
    let [_, _, _, _, failed, _, again] = words(&mut stream).await;
    assert!(failed.contains("not \"c\"") && again == "listed 3", "{failed}, {again}");
}

#[tokio::test]
async fn a_version_that_expired_is_followed_by_the_state() {
    let expired = event("ERROR", status(410));
    let answers = vec![
        found("3"),
        watch(&[event("ADDED", config_map("3")), end("10"), expired]),
        watch(&[event("ADDED", config_map("20")), end("21")]),
        refused(410),
        watch(&[end("30")]),
        refused(500),
    ];
    let (mut stream, asked) = stream(answers, None);
    let expected = ["init", "listed 3", "done", "applied 3", "applied 20", "deleted ", "refused 500"];
    assert_eq!(words(&mut stream).await, expected);
    assert_eq!(reads(&asked), ["/c"]);
    let expected = [(true, "3"), (true, "10"), (false, "21"), (true, "21"), (false, "30")];
    assert_eq!(watches(&asked), origins(expected));
}

#[tokio::test]
async fn a_server_without_initial_events_is_asked_for_a_list() {
    let answers = vec![
        found("3"),
        refused(422),
        list("10", json!([config_map("5")])),
        watch(&[event("ERROR", status(410))]),
        found("5"),
        list("20", json!([])),
        refused(500),
    ];
    let (mut stream, asked) = stream(answers, None);
    assert_eq!(words(&mut stream).await, ["init", "listed 3", "done", "applied 5", "error 410"]);
    assert_eq!(words(&mut stream).await, ["init", "listed 5", "done", "deleted ", "refused 500"]);
    assert_eq!(watches(&asked), origins([(true, "3"), (false, "10"), (false, "20")]));
    let list = "?&fieldSelector=metadata.name%3Dc";
    assert_eq!(reads(&asked), ["/c", list, "/c", list]);
}

#[tokio::test]
async fn a_refusal_is_reported_and_the_watch_tried_again() {
    let events = [event("ERROR", status(500)), "nonsense\n".to_owned(), event("ADDED", config_map("11"))];
    let answers = vec![refused(403), refused(404), found("3"), refused(429), watch(&events)];
    let (mut stream, asked) = stream(answers, None);
    for _ in ["forbidden", "a 404 that does not name the object"] {
        let [begun, refused] = words(&mut stream).await;
        assert!(begun == "init" && refused.contains("failed to perform initial object list"), "{refused}");
    }
    assert_eq!(words(&mut stream).await, ["init", "listed 3", "done", "refused 429", "error 500"]);
    let [nonsense, added] = words(&mut stream).await;
    assert!(nonsense.contains("expected") && added == "applied 11", "{nonsense}, {added}");
    assert_eq!(asked.lock().unwrap().len(), 5, "the watch went on");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_no_object_can_have_becomes_no_path() {
    for name in ["../../kube-system/secrets/c", "c?x", "", "C"] {
        let (mut stream, asked) = stream_of(name, Vec::new(), None);
        assert_eq!(words(&mut stream).await, ["init", "done"]);
        assert!(timeout(Duration::from_secs(3600), stream.next()).await.is_err());
        assert_eq!(asked.lock().unwrap().len(), 0, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_object_that_is_out_of_turn_is_asked_for_again_and_none_is_lost() {
    let (turns, mut large) = (Turns::new(), config_map("3"));
    large["data"] = json!({"k": "x".repeat(1 << 20)});
    let initial = watch(&[event("ADDED", large.clone()), end("3")]);
    large["metadata"]["resourceVersion"] = "4".into();
    let changed = watch(&[event("MODIFIED", large)]);
    let answers = vec![found("2"), initial.clone(), initial, changed.clone(), changed];
    let (mut stream, asked) = stream_in(turns.clone(), "c", answers, None);
    assert_eq!(words(&mut stream).await, ["init", "listed 2", "done"]);
    let all = || async { futures::future::join_all((0..16).map(|_| turns.wait())).await };
    let others = all().await;
    let began = tokio::time::Instant::now();
    assert_eq!(words(&mut stream).await, ["applied 3"]);
    assert!(began.elapsed().as_secs() >= 4, "the others had their turns: {:?}", began.elapsed());
    drop(others);
    let others = all().await;
    assert_eq!(words(&mut stream).await, ["applied 4"]);
    drop(others);
    let state = |version: &str| (true, version.to_owned());
    let after = |version: &str| (false, version.to_owned());
    assert_eq!(watches(&asked), [state("2"), state("2"), after("3"), after("3")]);
}
