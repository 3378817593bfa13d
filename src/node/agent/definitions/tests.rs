use crate::core::time::at;
use serde_json::Value;
use serde_json::json;

use crate::core::model::MODE_LABEL;
use crate::node::api::ApiFailure;
use crate::node::api::Definition;
use crate::node::api::FailureKind;

use super::*;

fn object(uid: &str, labels: Value) -> Value {
    json!({
        "metadata": {"namespace": "kube-system", "name": "net", "uid": uid, "labels": labels},
        "spec": {
            "selector": {"matchLabels": {"app": "net"}},
            "template": {
                "metadata": {"labels": {"app": "net"}},
                "spec": {"containers": [{"name": "c", "image": "i:1"}]}
            }
        }
    })
}

fn key() -> ObjectKey {
    ObjectKey::new("kube-system", "net")
}

#[test]
fn a_get_is_believed_only_for_what_it_says() {
    let mut record = DaemonRecord::new(key(), 0);
    record.api_uid = Some("u1".into());
    let ours = json!({MODE_LABEL: "static"});
    let mut broken = object("u1", ours.clone());
    broken["spec"]["selector"] = json!({});
    for (live, expected) in [
        (GetResult::NotFound, Confirmation::Gone),
        (GetResult::Object(object("u2", ours.clone())), Confirmation::Gone),
        (GetResult::Object(object("u1", ours)), Confirmation::StillThere),
        (GetResult::Object(object("u1", json!({}))), Confirmation::NotCovered),
        (GetResult::Object(broken), Confirmation::StillThere),
    ] {
        let shown = format!("{live:?}");
        assert_eq!(confirm(live, &record, &Policy::default()), expected, "{shown}");
    }
    let failure = GetResult::Error(ApiFailure::new(FailureKind::Protocol, "no"));
    assert!(matches!(confirm(failure, &record, &Policy::default()), Confirmation::Failed(_)));
}

#[test]
fn what_a_get_said_of_a_deleted_daemon_is_not_believed_of_its_successor() {
    let mut definitions = ApiDefinitions::default();
    let about = definitions.ask(&key(), at(0)).unwrap();
    definitions.answered(&key(), about, Confirmation::Gone, at(1));
    let entry = Definition::of(&object("u2", json!({MODE_LABEL: "static"})), 7);
    let mut there = Snapshot::default();
    there.daemon_sets.insert(key(), entry);
    definitions.update(&there);
    definitions.update(&Snapshot::default());
    assert!(definitions.ask(&key(), at(2)).is_some(), "a later absence is asked about anew");
}

#[test]
fn a_get_is_sent_once_and_again_when_it_gave_no_lasting_answer() {
    let mut definitions = ApiDefinitions::default();
    let about = definitions.ask(&key(), at(0)).unwrap();
    assert_eq!(definitions.ask(&key(), at(1)), None, "it is under way");
    definitions.answered(&key(), about, Confirmation::Failed("timeout".into()), at(2));
    assert_eq!(definitions.ask(&key(), at(3)), None);
    assert_eq!(definitions.ask_again_at(), Some(at(2) + ASK_AGAIN));
    assert!(definitions.ask(&key(), at(2) + ASK_AGAIN).is_some());
    definitions.answered(&key(), about, Confirmation::Gone, at(9_000));
    assert_eq!(definitions.ask(&key(), at(1_000_000)), None, "this answer lasts");
    definitions.forget_answers(|_| false);
    assert!(definitions.ask(&key(), at(1_000_001)).is_some());
}

#[test]
fn a_confirmed_absence_is_no_answer_about_the_next_one() {
    let mut definitions = ApiDefinitions::default();
    let about = definitions.ask(&key(), at(0)).unwrap();
    definitions.answered(&key(), about, Confirmation::Gone, at(1));
    definitions.update(&Snapshot::default());
    assert_eq!(definitions.ask(&key(), at(2)), None, "still absent: this answer lasts");
    let mut back = Snapshot::default();
    back.daemon_sets.insert(key(), Definition::of(&object("u2", json!({})), 7));
    definitions.update(&back);
    definitions.update(&Snapshot::default());
    let about = definitions.ask(&key(), at(3)).unwrap();
    definitions.update(&back);
    definitions.answered(&key(), about, Confirmation::Gone, at(4));
    definitions.update(&Snapshot::default());
    assert!(definitions.ask(&key(), at(5)).is_some(), "an answer that came while it was back is dropped");
}
