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
