//! The Leases of the nodes: when they are listed.

use super::*;

const LEASES: &str = "Leases in daemonlet-node-lease";

#[test]
fn the_leases_are_listed_first_and_every_fifteen_seconds_from_then_on() {
    let mut coordinator = Coordinator::new();
    let first = coordinator.pass_as_it_is(vec![]);
    assert_eq!(targets(&first), [LEASES], "nothing is decided before that");
    assert_eq!(coordinator.pass_as_it_is(vec![]).requests, []);
    let listed = all(&first, &RequestOutcome::Leases(BTreeMap::new()));
    let second = coordinator.pass_as_it_is(listed);
    assert_eq!(targets(&second), [A, STATUS]);
    coordinator.later(15_000);
    // It does not wait for the answers to writes, which may be many.
    let third = coordinator.pass_as_it_is(vec![]);
    assert_eq!((targets(&third), third.requests[0].number), (vec![LEASES.to_owned()], 4));
    let answers =
        [all(&second, &RequestOutcome::Written), all(&third, &RequestOutcome::Leases(BTreeMap::new()))].concat();
    let fourth = coordinator.pass_as_it_is(answers);
    assert!(!targets(&fourth).contains(&LEASES.to_owned()));
}

#[test]
fn a_list_of_leases_that_fails_is_logged_once_and_repeated_soon() {
    let unanswered = RequestOutcome::Failed(SendError::Unanswered("too many".to_owned()));
    for (answer, waits) in [(refused(), false), (unanswered, true)] {
        let mut coordinator = Coordinator::new();
        let mut asked = coordinator.pass_as_it_is(vec![]);
        let mut notices = 0;
        for (wait, is_asked) in [(0, false), (1_000, true), (0, false), (1_000, false), (1_000, true)] {
            coordinator.later(wait);
            let replies = all(&asked, &answer).into_iter().take(1).collect();
            let decision = coordinator.pass_as_it_is(replies);
            notices += decision.notices.iter().filter(|notice| matches!(notice, Notice::LeasesUnread(_))).count();
            let targets = targets(&decision);
            assert_eq!(targets.contains(&LEASES.to_owned()), is_asked, "{wait}: {targets:?}");
            assert!(!(waits && targets.contains(&A.to_owned())), "{targets:?}");
            asked.requests = decision.requests.into_iter().filter(|r| r.target == RequestTarget::Leases).collect();
        }
        assert_eq!(notices, 1);
    }
}
