use serde_json::json;

use crate::core::model::MODE_LABEL;
use crate::node::agent::decide::tests::object;
use crate::node::api::ApiFailure;
use crate::node::api::FailureKind;

use super::*;

#[test]
fn a_get_is_believed_only_for_what_it_says() {
    let ours = json!({MODE_LABEL: "static"});
    let mut broken = object("u1", ours.clone());
    broken["spec"]["selector"] = json!({});
    let mistyped = object("u1", json!({MODE_LABEL: "Static"}));
    for (live, expected) in [
        (GetResult::NotFound, Confirmation::Gone),
        (GetResult::Object(object("u2", ours.clone())), Confirmation::Gone),
        (GetResult::Object(object("u1", ours)), Confirmation::StillThere),
        (GetResult::Object(object("u1", json!({}))), Confirmation::NotCovered),
        (GetResult::Object(broken), Confirmation::StillThere),
        (GetResult::Object(mistyped), Confirmation::StillThere),
    ] {
        let shown = format!("{live:?}");
        assert_eq!(judge(live, Some("u1"), &Policy::default()), expected, "{shown}");
    }
    let failure = GetResult::Error(ApiFailure::new(FailureKind::Protocol, "no"));
    assert!(matches!(judge(failure, Some("u1"), &Policy::default()), Confirmation::Failed(_)));
}
