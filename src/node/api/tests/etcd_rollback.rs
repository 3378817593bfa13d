//! A history that went back.

use super::*;

/// A list of nothing at this resource version.
fn list_at(version: u32) -> FakeReply {
    let metadata = json!({"resourceVersion": version.to_string()});
    FakeReply::Json(200, json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": []}))
}

#[tokio::test]
async fn a_history_that_went_back_is_found_when_watches_are_resumed() {
    let mut fake = Fake::start(100, |_, path| empty(path)).await;
    let api = Api::start(options(&fake));
    until(&api, "healthy", is_healthy).await;
    until(&api, "known", |api| api.store().snapshot().etcd_rollback_detection.is_known).await;
    assert_eq!(
        api.store().snapshot().etcd_rollback_detection,
        EtcdRollbackDetection { reached: 10, is_known: true, ..EtcdRollbackDetection::default() }
    );
    // Cut off and resumed where it was: one question a kind, and nothing is listed.
    fake.stop();
    until(&api, "cut off", |api| *api.connector().link().borrow() != Link::Up).await;
    fake.restart().await;
    let questions =
        |fake: &Fake| fake.count("limit=1&") + fake.requests().iter().filter(|r| r.ends_with("limit=1")).count();
    until(&api, "asked", |_| questions(&fake) >= 4).await;
    assert_eq!((questions(&fake), api.store().lists(&Scope::DaemonSets)), (4, 1), "{:?}", fake.requests());
    // And where it is younger than what was seen.
    fake.stop();
    until(&api, "cut off", |api| *api.connector().link().borrow() != Link::Up).await;
    fake.answer(|_, path| if is_watch(path) { quiet() } else { list_at(7) });
    fake.restart().await;
    until(&api, "listed anew", |api| {
        [Scope::DaemonSets, Scope::Node, Scope::Pods].iter().all(|scope| api.store().lists(scope) == 2)
    })
    .await;
    until(&api, "known", |api| api.store().snapshot().etcd_rollback_detection.is_known).await;
    assert_eq!(
        api.store().snapshot().etcd_rollback_detection.rollback,
        Some(EtcdRollback { number: 2, from: 10, to: 7 }),
        "the check of the watches, and the list of DaemonSets"
    );
    assert_eq!(api.connector().counters().connections_opened, 4, "the lists are of a connection of their own");
}
