//! Nodes that cannot be reached, or have taints that the daemon does not tolerate.

use super::*;

#[test]
fn unreachable_on_the_old_revision_takes_no_slot_and_broken_after_the_update_does() {
    let away = NodeFact { reachable: false, ready: false, ..node("away", OLD) };
    assert_eq!(approves(&rules(1), &[node("a", OLD), away.clone()]), ["a"]);
    let exact = RolloutRules { exact: true, ..rules(1) };
    assert_eq!(approves(&exact, &[node("a", OLD), away]), NONE, "upstream's rule");
    let broke = NodeFact { reachable: false, ready: false, ..node("broke", NEW) };
    assert_eq!(approves(&rules(1), &[node("a", OLD), broke]), NONE);
    assert_eq!(approves(&rules(1), &[node("a", OLD), node("b", NEW_BROKEN)]), NONE);
    assert_eq!(approves(&rules(1), &[node("a", OLD), node("b", NEW)]), ["a"]);
}

/// What placement says of a node that is not well, if the daemon does not tolerate its taints.
fn tainted<'a>(node: NodeFact<'a>) -> NodeFact<'a> {
    NodeFact { should_run: false, ready: false, ..node }
}

#[test]
fn a_surge_that_is_not_over_counts_also_with_taints_that_are_not_tolerated() {
    let surges = RolloutRules { max_unavailable: IntOrPercent::Int(0), max_surge: IntOrPercent::Int(1), ..rules(0) };
    let between = [OLD[0], InstanceFact { revision: Name::first(2), ..OLD_BROKEN[0] }];
    let both = tainted(node("both", &between));
    assert_eq!(approves(&surges, &[node("a", OLD), both.clone()]), NONE, "it runs two");
    let elsewhere = NodeFact { belongs: false, ..both };
    assert_eq!(approves(&surges, &[node("a", OLD), elsewhere]), ["a"]);
    assert_eq!(approves(&surges, &[node("a", OLD), tainted(node("old", OLD))]), ["a"]);
}

#[test]
fn a_node_that_breaks_under_the_new_revision_counts_also_with_taints_that_are_not_tolerated() {
    let broke = tainted(node("broke", NEW));
    assert_eq!(approves(&rules(1), &[node("a", OLD), broke.clone()]), NONE, "it keeps its slot");
    assert_eq!(approves(&rules(2), &[node("a", OLD), node("b", OLD), broke.clone()]), ["a"]);
    let claims = NodeFact { replacing: true, ..tainted(node("claims", OLD)) };
    assert_eq!(approves(&rules(1), &[node("a", OLD), claims]), NONE, "it may be in the middle");
    assert_eq!(approves(&rules(1), &[node("a", OLD), tainted(node("old", OLD))]), ["a"], "that is not of the rollout");
    let held = |nodes: &[NodeFact<'_>]| said(&plan(&rules(1), ms(0), nodes, NOW).held);
    let message = "the budget is taken by nodes on which it failed or does not become available: broke";
    assert_eq!(held(&[node("a", OLD), broke.clone()]), message);
    let more = ["c", "d", "e", "f", "g"].map(|name| tainted(node(name, NEW)));
    let many: Vec<NodeFact<'_>> = [node("a", OLD), broke.clone()].into_iter().chain(more).collect();
    assert_eq!(held(&many), format!("{message}, c, d, e, f, …"));
    let failed = NodeFact { failed: true, ..node("broke", NEW_BROKEN) };
    assert_eq!(held(&[node("a", OLD), failed]), message);
    assert_eq!(held(&[node("a", OLD), broke.clone(), node("b", NEW_BROKEN)]), "", "one is on its way");
    assert_eq!(held(&[node("b", NEW), broke.clone()]), "", "no other node waits for it");
    let elsewhere = NodeFact { belongs: false, ..broke.clone() };
    assert_eq!(approves(&rules(1), &[node("a", OLD), elsewhere]), ["a"], "the daemon is not for that node any more");
    let canaries = RolloutRules { canary_hold: Some(ms(0)), ..rules(5) };
    let canary = |node| NodeFact { canary: true, ..node };
    let nodes = [node("a", OLD), canary(node("b", NEW)), canary(broke)];
    let planned = plan(&canaries, ms(0), &nodes, NOW);
    assert!(planned.approve.is_empty() && said(&planned.held).ends_with("and are not: broke"), "{planned:?}");
}

#[test]
fn nothing_waits_for_a_node_that_waits_for_the_rollout() {
    let canaries = RolloutRules { canary_hold: Some(ms(0)), ..rules(5) };
    let waits = || NodeFact { awaits_rollout: true, canary: true, ..node("c", &[]) };
    let tried = NodeFact { canary: true, ..node("b", NEW) };
    assert_eq!(approves(&canaries, &[node("a", OLD), tried, waits()]), ["a"]);
    assert_eq!(approves(&canaries, &[node("a", OLD), waits()]), NONE, "no canary node has tried it");
    let promoted = RolloutRules { is_canary_promoted: true, ..canaries.clone() };
    assert_eq!(approves(&promoted, &[node("a", OLD), waits()]), ["a"]);
    let is_open = |rules: &RolloutRules, nodes: &[NodeFact<'_>]| plan(rules, ms(0), nodes, NOW).is_open;
    assert!(!is_open(&canaries, &[node("a", OLD), waits()]));
    assert!(is_open(&canaries, &[waits(), node("d", &[])]), "no node can be kept on the old one");
    assert!(!is_open(&canaries, &[waits(), node("d", NEW)]), "one that has it alone opens nothing");
    let opened = RolloutRules { was_open: true, ..canaries.clone() };
    assert!(is_open(&opened, &[waits(), node("d", NEW)]), "the others are slower");
    assert!(!is_open(&opened, &[waits(), node("d", NEW), node("e", OLD)]));
    assert!(!is_open(&RolloutRules { hold: Some(RolloutHold::Paused), ..canaries }, &[waits()]));
}

#[test]
fn an_outage_holds_also_where_the_daemon_does_not_tolerate_its_taints() {
    let away = |name| NodeFact { reachable: false, ..tainted(node(name, OLD)) };
    let nodes = [node("a", OLD), node("b", OLD), node("c", OLD), away("d"), away("e"), away("f")];
    let third = RolloutRules { max_unreachable: IntOrPercent::Percent(50), ..rules(1) };
    let planned = plan(&third, ms(0), &nodes, NOW);
    assert_eq!((planned.approve, said(&planned.held).as_str()), (vec![], "3 of 6 nodes are unreachable"));
    let more = RolloutRules { max_unreachable: IntOrPercent::Percent(51), ..rules(1) };
    assert_eq!(approves(&more, &nodes), ["a"]);
}
