//! What the API server replies: late, twice, with a conflict or not at all.

use super::*;

#[test]
fn a_reply_that_comes_late_or_twice_tells_nothing() {
    let mut coordinator = Coordinator::new();
    for name in ["b", "c"] {
        coordinator.take(Change::Gone(WatchedKind::Nodes, Box::new(node(name))));
    }
    let first = coordinator.pass(vec![]);
    let replies = all(&first, &refused());
    let second = coordinator.pass([replies.clone(), replies.clone()].concat());
    assert_eq!(second.notices.len(), 2, "each once: {:?}", second.notices);
    let again = coordinator.observation.now + ms(1_000);
    assert_eq!((&second.requests[..], second.next_look), (&[][..], Some(again)));
    coordinator.later(1_000);
    let third = coordinator.pass(vec![]);
    assert_eq!((targets(&third), third.requests[0].number), (vec![A.to_owned(), STATUS.to_owned()], 3));
    let late = coordinator.pass(replies);
    assert_eq!((late.notices.len(), late.requests.len()), (0, 0), "the new ones still have no answer");
    coordinator.pass(all(&third, &refused()));
    coordinator.later(1_999);
    assert_eq!(coordinator.pass(vec![]).requests, [], "it was counted as one failure more, not as two");
    coordinator.later(1);
    assert_eq!(coordinator.pass(vec![]).requests.len(), 2);
}

#[test]
fn an_object_that_a_late_reply_shows_does_not_come_back() {
    let mut coordinator = Coordinator::new();
    let written = |version| {
        Change::Written(WatchedKind::NodeDaemons, Box::new(node_daemons("a", version, approval(), json!({}))))
    };
    coordinator.take(Change::Gone(WatchedKind::NodeDaemons, Box::new(node_daemons("a", "9", json!([]), json!({})))));
    coordinator.take(written("8"));
    assert!(coordinator.observation.snapshot.report("a").is_none());
    coordinator.take(written("10"));
    assert!(coordinator.observation.snapshot.report("a").is_some());
}

#[test]
fn a_write_that_is_refused_with_a_conflict_waits_for_the_watch() {
    let mut coordinator = Coordinator::new();
    let first = coordinator.pass(vec![]);
    let outdated = RequestOutcome::Outdated("the object has been modified".to_owned());
    let second = coordinator.pass(all(&first, &outdated));
    assert_eq!(second.requests, [], "nothing new is known");
    assert!(second.notices.iter().all(|report| matches!(report, Notice::Outdated(..))));
    coordinator.changed(WatchedKind::NodeDaemons, node_daemons("a", "8", json!([]), json!({})));
    let third = coordinator.pass(vec![]);
    assert_eq!((targets(&third), third.requests[0].version.as_str()), (vec![A.to_owned()], "8"));
    // The agent has claimed meanwhile what another coordinator gave: nothing is given twice.
    let claims = node_daemons("a", "9", approval(), json!({"replacing": hash("two")}));
    coordinator.changed(WatchedKind::NodeDaemons, claims);
    coordinator.later(1_000);
    assert_eq!(
        targets(&coordinator.pass(all(&third, &outdated))),
        [STATUS],
        "and a watch that is late is not waited for"
    );
}

#[test]
fn what_is_refused_keeps_nothing_else_from_its_turn() {
    let mut coordinator = Coordinator::new();
    let first = coordinator.pass(vec![]);
    let [_, status] = all(&first, &refused()).try_into().unwrap();
    let written = CoordinatorReply { number: 1, answer: RequestOutcome::Written };
    let second = coordinator.pass(vec![status, written]);
    let is_new = |report: &Notice| matches!(report, Notice::WriteFailed { is_new: true, .. });
    assert_eq!((targets(&second), second.notices.iter().filter(|r| is_new(r)).count()), (vec![A.to_owned()], 1));
    coordinator.later(1_000);
    let third = coordinator.pass(all(&second, &RequestOutcome::Written));
    assert_eq!(targets(&third), [A, STATUS], "what failed comes last");
    let fourth = coordinator.pass(all(&third, &refused()));
    assert_eq!(fourth.notices.iter().filter(|r| is_new(r)).count(), 1, "that of the approvals");
}

#[test]
fn what_could_not_be_sent_is_decided_anew_at_once() {
    let mut coordinator = Coordinator::new();
    let first = coordinator.pass(vec![]);
    let second = coordinator.pass(all(&first, &RequestOutcome::NotSent));
    assert_eq!((targets(&second), second.notices.len()), (vec![A.to_owned()], 0), "the status waits for its turn");
    assert_eq!(second.next_look, Some(NOW + ms(1_000)));
}
