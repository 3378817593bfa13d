//! Connections: servers that come back, fall silent or move.

use crate::node::api::fake::write_kubeconfig;

use super::*;

#[tokio::test]
async fn more_watches_than_streams_open_more_connections() {
    let fake = Fake::start(20, |_, path| empty(path)).await;
    let api = Api::start(options(&fake));
    let wanted: BTreeSet<ObjectRef> = (0..30).map(|number| reference(&format!("c{number}"))).collect();
    api.set_wanted(&wanted);
    let all = |api: &Api| api.connector().counters().requests == 68 && api.connector().counters().streams == 34;
    until(&api, "a GET or a list, and a watch each", all).await;
    let counters = api.connector().counters();
    assert_eq!(counters.connections, 3, "12 watches each: 8 streams stay free for requests");
    api.set_wanted(&BTreeSet::new());
    until(&api, "spare connections closed", |api| api.connector().counters().connections == 1).await;
    assert!(api.store().snapshot().objects.is_empty());
}

#[tokio::test]
async fn a_server_that_comes_back_is_found_and_watches_go_on_without_a_list() {
    let mut fake = Fake::start(100, |_, path| match path.contains("/configmaps") && !is_watch(path) {
        true => FakeReply::Json(200, config_map("a", "1")),
        false => empty(path),
    })
    .await;
    let api = Api::start(options(&fake));
    api.set_wanted(&[reference("a")].into());
    until(&api, "up", is_healthy).await;
    fake.stop();
    until(&api, "down", |api| failing(api).is_some_and(|error| error.contains("connection refused"))).await;
    assert!(matches!(api.store().snapshot().lookup(&reference("a")), Lookup::Present(_)));
    assert!(matches!(api.get_daemon_set(&ObjectKey::new("d", "x")).await, GetResult::Error(_)));
    fake.restart().await;
    until(&api, "up again", |api| is_healthy(api) && api.connector().counters().streams == 5).await;
    assert_eq!(api.store().snapshot().lists(&Scope::Object(reference("a"))), 1);
    assert_eq!(api.connector().counters().connections_opened, 2);
}

#[tokio::test]
async fn a_server_that_answers_nothing_stops_nobody() {
    let fake = Fake::start(100, |_, _| FakeReply::NoAnswer).await;
    let api = Api::start(options(&fake));
    until(&api, "connected", |api| *api.connector().link().borrow() == Link::Up).await;
    tokio::time::pause();
    let asked = tokio::time::Instant::now();
    let GetResult::Error(failure) = api.get_daemon_set(&ObjectKey::new("d", "x")).await else { panic!("no error") };
    assert_eq!(failure.kind, FailureKind::Timeout);
    assert_eq!(asked.elapsed().as_secs(), 30);
    until(&api, "said", |api| error_of(api, &Scope::Node).is_some_and(|error| error.contains("within 30 s"))).await;
}

#[tokio::test]
async fn a_server_that_takes_the_connection_and_is_silent_is_given_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("k");
    let address = listener.local_addr().unwrap();
    write_kubeconfig(&kubeconfig, &format!("https://{address}"), "token: abc");
    let accepted = tokio::spawn(async move { listener.accept().await.unwrap() });
    let api = Api::start(with_kubeconfig(kubeconfig));
    let _held = accepted.await.unwrap();
    tokio::time::pause();
    until(&api, "said", |api| failing(api).is_some_and(|error| error.contains("no answer within 10 s"))).await;
}

#[tokio::test]
async fn a_connection_that_falls_silent_is_noticed_by_its_pings() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("k");
    let address = listener.local_addr().unwrap();
    write_kubeconfig(&kubeconfig, &format!("http://{address}"), "token: abc");
    let api = Api::start(with_kubeconfig(kubeconfig));
    let _held = listener.accept().await.unwrap();
    until(&api, "connected", |api| *api.connector().link().borrow() == Link::Up).await;
    drop(listener);
    tokio::time::pause();
    let start = tokio::time::Instant::now();
    until(&api, "said", |api| failing(api).is_some_and(|error| error.contains("left a ping unanswered"))).await;
    // The clock stood still only after the connection was up.
    assert!((35..=45).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_fresh_list_goes_over_a_new_connection() {
    let fake = Fake::start(100, |_, path| match path.contains("/daemonsets") && !is_watch(path) {
        true => list(&[daemon_set("a")]),
        false => empty(path),
    })
    .await;
    let api = Api::start(options(&fake));
    until(&api, "listed", is_healthy).await;
    fake.answer(|_, path| empty(path));
    let before = api.relist_fresh();
    assert_eq!(before, 1);
    let key = ObjectKey::new("default", "a");
    assert!(matches!(api.store().snapshot().presence(&key), Presence::Present(_)));
    until(&api, "again", |api| api.store().lists(&Scope::DaemonSets) > before).await;
    assert_eq!(api.store().snapshot().presence(&key), Presence::ListedAbsent { list: 2 });
    assert_eq!(api.connector().counters().connections_opened, 2);
}

#[tokio::test]
async fn a_kubeconfig_may_come_late_and_turn_bad() {
    let fake = Fake::start(100, |_, path| empty(path)).await;
    let good = std::fs::read(fake.kubeconfig()).unwrap();
    std::fs::remove_file(fake.kubeconfig()).unwrap();
    let api = Api::start(options(&fake));
    until(&api, "said", |api| failing(api).is_some_and(|error| error.contains("cannot be read"))).await;
    std::fs::write(fake.kubeconfig(), good).unwrap();
    until(&api, "up", is_healthy).await;
    std::fs::write(fake.kubeconfig(), "nonsense").unwrap();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(6)).await;
    tokio::time::resume();
    let _ = api.cluster_uid().await;
    let health = api.health();
    assert!(health.kubeconfig_error.is_some(), "{health:?}");
    assert_eq!(health.state, LinkHealth::Ok, "the last good one is in force");
}
