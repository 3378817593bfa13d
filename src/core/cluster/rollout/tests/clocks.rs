//! Old instances whose nodes' clocks are ahead of the coordinator's, as after a change of coordinators.

use super::*;

const MIN_READY: Span = ms(45_000);

fn planned(nodes: &[NodeFact<'_>], at: Timestamp) -> Vec<usize> {
    plan(&rules(1), MIN_READY, nodes, at).approve
}

#[test]
fn what_was_ready_for_an_unknown_time_is_not_replaced_for_nothing() {
    let found = [InstanceFact { was_ready: true, ..fact(PAST, Some(NOW)) }];
    let nodes = ["a", "b", "c", "d", "e"].map(|name| node(name, &found));
    assert_eq!(planned(&nodes, NOW), [0]);
    // What the coordinator has seen to become ready is not available yet, takes the budget, and goes first.
    let restarted = [fact(PAST, Some(NOW))];
    let nodes = [node("a", &found), node("b", &restarted), node("c", &found)];
    assert_eq!(planned(&nodes, NOW), [1]);
    // Nor is one on a node that is not ready.
    let away = NodeFact { ready: false, ..node("b", &found) };
    assert_eq!(planned(&[node("a", &found), away], NOW), [1]);
}

#[test]
fn what_is_wanted_has_to_be_available_for_the_whole_time_that_was_seen() {
    let found = [InstanceFact { was_ready: true, ..fact(PAST, Some(NOW)) }];
    let new = [InstanceFact { was_ready: true, ..fact(WANTED, Some(NOW)) }];
    let nodes = [node("a", &new), node("b", &found), node("c", &found)];
    assert_eq!(planned(&nodes, NOW + MIN_READY - ms(1)), NO_NODE);
    assert_eq!(planned(&nodes, NOW + MIN_READY), [1]);
}

#[test]
fn what_was_found_ready_is_replaced_only_where_the_others_leave_room_in_the_budget() {
    let since = NOW - ms(5_000);
    let found = [InstanceFact { is_found: true, ..fact(PAST, Some(since)) }];
    let planned_at = |nodes: &[NodeFact<'_>], at: Timestamp| {
        let plan = plan(&rules(1), MIN_READY, nodes, at);
        (plan.approve, plan.held, plan.look_again)
    };
    let nodes = ["a", "b", "c", "d", "e"].map(|name| node(name, &found));
    // All of them may be available, and none is by its time: it ends by itself.
    let ends = since + MIN_READY;
    assert_eq!(planned_at(&nodes, NOW), (vec![], None, Some(ends)));
    assert_eq!(planned_at(&nodes, ends - ms(1)), (vec![], None, Some(ends)));
    assert_eq!(planned_at(&nodes, ends).0, [0]);
    assert_eq!(plan(&rules(5), MIN_READY, &nodes, NOW).approve, [0, 1, 2, 3, 4], "the budget is large enough");
    // One of them has its own slot.
    let nodes = [node("a", OLD), node("b", &found), node("c", OLD)];
    assert_eq!(planned(&nodes, NOW), [1]);
    // What is not ready is free, also on a node that is not, and comes before it.
    let nodes = [node("a", &found), node("b", OLD_BROKEN), node("c", OLD)];
    assert_eq!(planned(&nodes, NOW), [1]);
    let away = NodeFact { ready: false, ..node("b", &found) };
    assert_eq!(planned(&[node("a", &found), away], NOW), [1]);
    // One that comes first and waits keeps no place in a step from one behind it.
    let limited = RolloutRules { step: Some(step(1)), ..rules(1) };
    let passed_over = NodeFact { passed_over: Some(NOW), ..node("b", OLD_BROKEN) };
    let nodes = [node("a", &found), passed_over, node("c", OLD)];
    assert_eq!(plan(&limited, MIN_READY, &nodes, NOW).approve, [1]);
    // A surge leaves two: the older one may be what serves.
    let two = [found[0], fact(PAST, None)];
    let nodes = [node("a", &two), node("b", &found)];
    assert_eq!(planned_at(&nodes, NOW), (vec![], None, Some(ends)));
}
