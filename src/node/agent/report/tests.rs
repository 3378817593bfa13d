//! What is reported of a pass.

use serde_json::json;

use crate::core::record::DaemonRecord;
use crate::core::status::LeftAloneCause;
use crate::node::agent::decide::tests::config;
use crate::node::agent::decide::tests::decided;
use crate::node::agent::decide::tests::key;
use crate::node::agent::decide::tests::object;
use crate::node::agent::decide::tests::observation;
use crate::node::agent::decide::tests::state;
use crate::node::agent::decision::Decision;
use crate::node::api::Definition;
use crate::node::api::Snapshot;

use super::*;

#[test]
fn the_author_of_a_misspelt_mode_reads_of_it_wherever_the_node_is_asked_and_nothing_is_done() {
    let config = config();
    let mut known = state(&config);
    known.records.clear();
    let mut api = Snapshot::default();
    let mut add = |name: &str, mode: &str, change: fn(&mut Value)| {
        let mut object = object("d", json!({"daemonlet.dev/mode": mode}));
        object["metadata"]["name"] = json!(name);
        change(&mut object);
        api.daemon_sets.insert(ObjectKey::new("kube-system", name), Definition::of(&object, 1));
    };
    for name in ["net", "x-1", "x-2", "x-3"] {
        add(name, "statik", |_| {});
    }
    let invalid = |object: &mut Value| object["spec"]["template"] = json!(7);
    add("x-4", "statik", invalid);
    add("x-5", "static", invalid);
    let observation = observation(Some(api));
    let decision = decided(&observation, &known, &config);
    assert!(decision.plan.daemons.is_empty(), "{:?}", decision.plan.daemons);
    let look = |decision: &Decision| {
        let last =
            LastPass { observation: observation.clone(), plan: Arc::clone(&decision.plan), ..LastPass::default() };
        let view = ReportInputs { config: &config, state: &decision.state, last: &last, api: None };
        (view.plan_report(), view.left_alone(), view.explain(&key()))
    };
    let (plan, left_alone, explained) = look(&decision);
    assert!(plan.changes.is_empty() && plan.held.is_empty(), "{plan:?}");
    for alone in [plan.left_alone, left_alone.clone()] {
        let [alone] = alone.as_slice() else { panic!("{alone:?}") };
        assert_eq!((alone.cause, alone.count), (LeftAloneCause::UnknownMode, 5), "one of them is invalid besides");
        assert_eq!(alone.daemon_sets, ["kube-system/net", "kube-system/x-1", "kube-system/x-2"]);
        assert!(alone.hint.starts_with("the modes are static and bootstrap: kubectl "), "{}", alone.hint);
    }
    let status = explained.status.expect("it is known");
    assert_eq!((status.state, status.reason.as_str()), (State::LeftAlone, "unknown mode"));
    assert!(status.hints[0].contains("daemonset net "), "{:?}", status.hints);
    assert!(
        explained.problems[0].reason.contains("\"statik\" is neither static nor bootstrap"),
        "{:?}",
        explained.problems
    );

    // A node that has run it, and of which nothing is left, says the same.
    known.records.insert(key(), DaemonRecord { api_uid: Some("d".to_owned()), ..DaemonRecord::new(key(), 7) });
    let decision = decided(&observation, &known, &config);
    let planned = &decision.daemon(&key()).expect("it has a record").summary;
    assert_eq!((planned.state, &planned.source), (crate::core::plan::State::LeftAlone, &None), "{planned:?}");
    let (plan, again, explained) = look(&decision);
    assert!(plan.changes.is_empty() && plan.held.is_empty() && again == left_alone, "{plan:?} {again:?}");
    assert_eq!(explained.status.map(|status| status.state), Some(State::LeftAlone));
}
