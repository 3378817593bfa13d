//! Surges: what they take of the budget, and what is left of one that another revision ended.

use super::*;

#[test]
fn what_a_surge_left_beside_an_old_instance_that_serves_is_no_free_slot() {
    let stuck = [OLD[0], InstanceFact { revision: Name::first(2), ..OLD_BROKEN[0] }];
    assert_eq!(approves(&rules(1), &[node("a", &stuck), node("b", &stuck), node("c", OLD)]), ["a"]);
}

#[test]
fn a_surge_is_taken_back_where_it_goes_on_and_keeps_its_slot_until_then() {
    let surges = RolloutRules { max_surge: IntOrPercent::Int(1), ..rules(0) };
    // What is wanted again, and beside it what is not.
    let surging = [NEW[0], InstanceFact { created: at(1), ..OLD_BROKEN[0] }];
    assert_eq!(approves(&surges, &[node("a", &surging), node("b", OLD)]), ["a"], "its slot is not free before");
    let given = NodeFact { instances: &surging, ..approved("a", NOW) };
    let planned = plan(&surges, ms(0), &[given, node("b", OLD)], NOW);
    assert_eq!((planned.approve, planned.withdraw, planned.slots), (vec![], vec![], 1));
    assert_eq!(approves(&surges, &[node("a", NEW), node("b", OLD)]), ["b"]);
}

#[test]
fn a_surge_counts_nodes_with_both() {
    let surge = RolloutRules { max_unavailable: IntOrPercent::Int(0), max_surge: IntOrPercent::Int(1), ..rules(0) };
    let both = [OLD[0], instance(true, false)];
    assert_eq!(approves(&surge, &[node("a", OLD), node("b", &both)]), NONE);
    assert_eq!(approves(&surge, &[node("a", OLD), node("b", OLD_BROKEN), node("c", OLD)]), ["b"]);
    assert_eq!(approves(&surge, &[node("a", OLD), node("b", NEW)]), ["a"]);
}

#[test]
fn upstreams_surge_counts_only_what_is_not_available_yet() {
    let surge = RolloutRules { max_unavailable: IntOrPercent::Int(0), max_surge: IntOrPercent::Int(1), ..rules(0) };
    let exact = RolloutRules { exact: true, ..surge.clone() };
    let (both, both_available) = ([OLD[0], instance(true, false)], [OLD[0], instance(true, true)]);
    for (instances, takes_a_slot) in [(NEW_BROKEN, false), (&both[..], true), (&both_available[..], false)] {
        let nodes = [node("a", OLD), node("b", instances)];
        assert_eq!(approves(&exact, &nodes).is_empty(), takes_a_slot, "{instances:?}");
        assert_eq!(approves(&surge, &nodes), NONE, "{instances:?}");
    }
    assert_eq!(approves(&exact, &[node("a", OLD), approved("b", NOW)]), NONE, "one on its way does");
    let exact = RolloutRules { exact: true, ..rules(1) };
    assert_eq!(approves(&exact, &[node("a", OLD), node("b", NEW_BROKEN)]), NONE, "and without a surge");
}
