use super::*;
use crate::core::cluster::node_daemons::DaemonReport;

/// One that has read version `7` with nothing said, and wants to say `replacing`.
fn coordination(replacing: Option<&str>) -> Coordination {
    let daemon = DaemonReport { name: "net".to_owned(), replacing: replacing.map(str::to_owned), ..Default::default() };
    let wanted = Status { daemons: vec![daemon], ..Default::default() };
    Coordination { exists: true, resource_version: "7".to_owned(), wanted, ..Default::default() }
}

#[test]
fn a_claim_waits_for_nothing_and_is_made_once_on_what_was_read() {
    let mut c = coordination(Some("r2"));
    c.next = 5_000;
    let patch = c.send(1_000).expect("it is due");
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    assert_eq!(c.due(), None, "one write at a time");
    c.ended(Some("the object has been modified"), 1_000);
    assert_eq!(c.due(), Some(2_000), "the same version again is no haste");
    c.resource_version = "8".to_owned();
    assert_eq!(c.due(), Some(0), "another version is");
}

#[test]
fn a_failure_is_waited_out_and_a_conflict_is_none() {
    let mut c = coordination(Some("r2"));
    c.send(0).expect("it is due");
    c.ended(Some("forbidden"), 0);
    c.resource_version = "8".to_owned();
    assert_eq!(c.due(), Some(AGAIN), "a claim, too");
    c.send(AGAIN).expect("it is due");
    c.ended(Some(CONFLICT), AGAIN);
    assert_eq!(c.due(), Some(AGAIN + PERIOD));
}

#[test]
fn what_is_no_claim_is_bound_to_no_version_and_waits_for_its_time() {
    let mut c = coordination(None);
    c.next = 500;
    assert_eq!(c.send(499), None);
    let patch = c.send(500).expect("it is due");
    assert_eq!(patch["metadata"].get("resourceVersion"), None);
}

#[test]
fn what_was_taken_and_does_not_show_is_insisted_on_rarely() {
    let mut c = coordination(None);
    c.send(0).expect("it is due");
    c.ended(None, 100);
    assert_eq!(c.due(), Some(100 + INSIST));
    c.wanted.worst = "news".to_owned();
    assert_eq!(c.due(), Some(100 + PERIOD), "other words are another matter");
    c.live = c.wanted.clone();
    assert_eq!(c.due(), None, "nothing to say");
}

#[test]
fn the_object_is_made_once_at_a_time_and_not_while_the_last_failure_is_fresh() {
    let mut c = Coordination::default();
    assert!(c.create(0));
    assert!(!c.create(0), "one write at a time");
    c.ended(Some("forbidden"), 0);
    assert!(!c.create(AGAIN - 1));
    assert!(c.create(AGAIN));
    assert_eq!(c.due(), None, "what is not there is not patched");
}
