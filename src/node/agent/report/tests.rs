//! What is reported of a pass.

use serde_json::json;

use crate::core::status::LeftAloneCause;
use crate::node::agent::decide::tests::config;
use crate::node::agent::decide::tests::decided;
use crate::node::agent::decide::tests::key;
use crate::node::agent::decide::tests::object;
use crate::node::agent::decide::tests::observation;
use crate::node::agent::decide::tests::state;
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
    let last = LastPass { observation, plan: Arc::clone(&decision.plan), ..LastPass::default() };
    let view = ReportInputs { config: &config, state: &decision.state, last: &last, api: None };

    let plan = view.plan_report();
    assert!(plan.changes.is_empty() && plan.held.is_empty(), "{plan:?}");
    for alone in [plan.left_alone, view.left_alone()] {
        let [alone] = alone.as_slice() else { panic!("{alone:?}") };
        assert_eq!((alone.cause, alone.count), (LeftAloneCause::UnknownMode, 5), "one of them is invalid besides");
        assert_eq!(alone.daemon_sets, ["kube-system/net", "kube-system/x-1", "kube-system/x-2"]);
        assert!(alone.hint.starts_with("the modes are static and bootstrap: kubectl "), "{}", alone.hint);
    }
    let explained = view.explain(&key());
    let status = explained.status.expect("it is known");
    assert_eq!((status.state, status.reason.as_str()), (State::LeftAlone, "unknown mode"));
    assert!(status.hints[0].contains("daemonset net "), "{:?}", status.hints);
    assert!(
        explained.problems[0].reason.contains("\"statik\" is neither static nor bootstrap"),
        "{:?}",
        explained.problems
    );
}
