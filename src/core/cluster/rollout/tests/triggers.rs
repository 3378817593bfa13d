//! What waits for a trigger.

use super::*;

/// A node with an approval that waits for this trigger.
fn standing(name: &str, when: UpdateTrigger) -> NodeFact<'_> {
    NodeFact {
        approval: Some(ApprovalFact { revision: WANTED, overlays: None, at: at(0), when: Some(when) }),
        ..node(name, OLD)
    }
}

fn on(when: UpdateTrigger) -> RolloutRules {
    RolloutRules { when: Some(when), ..rules(1) }
}

#[test]
fn what_waits_for_a_trigger_is_given_to_all_and_takes_a_slot_from_its_claim_on() {
    let drain = on(UpdateTrigger::Drain);
    let three = [node("a", OLD), node("b", OLD), node("c", OLD_BROKEN)];
    let planned = plan(&drain, ms(0), &three, NOW);
    assert_eq!((planned.approve.len(), planned.slots, planned.waiting), (3, 1, 3), "c is unavailable already");
    let nodes = [standing("a", UpdateTrigger::Drain), standing("b", UpdateTrigger::Drain), node("c", NEW)];
    let planned = plan(&drain, ms(0), &nodes, NOW);
    assert_eq!((planned.withdraw, planned.unclaimed), (vec![], vec![]), "without time limit");
    assert_eq!((planned.slots, planned.waiting, planned.look_again), (0, 2, None));
    let claimed = NodeFact { replacing: true, ..standing("a", UpdateTrigger::Drain) };
    let planned = plan(&drain, ms(0), &[claimed, standing("b", UpdateTrigger::Drain)], NOW);
    assert_eq!((planned.slots, planned.waiting, planned.withdraw), (1, 1, vec![]));
}

#[test]
fn what_waits_for_a_trigger_is_withdrawn_when_that_or_the_rollout_ends() {
    let withdrawn = |rules: &RolloutRules, nodes: &[NodeFact<'_>]| plan(rules, ms(0), nodes, NOW).withdraw;
    let nodes = [standing("a", UpdateTrigger::Drain)];
    let drain = on(UpdateTrigger::Drain);
    assert_eq!(withdrawn(&RolloutRules { hold: Some(RolloutHold::Paused), ..drain.clone() }, &nodes), [0]);
    assert_eq!(withdrawn(&RolloutRules { wanted: Name::first(2), ..drain.clone() }, &nodes), [0]);
    for other in [RolloutRules { when: None, ..drain.clone() }, on(UpdateTrigger::Boot)] {
        assert_eq!(withdrawn(&other, &nodes), [0], "its owner has written another trigger, or none");
    }
    let dropped = plan(&drain, ms(0), &[approved("a", NOW), approved("b", NOW)], NOW);
    assert_eq!((dropped.withdraw, dropped.slots), (vec![], 0), "an older resource drops what it waits for");
    assert_eq!(withdrawn(&drain, &[approved("a", NOW - UNCLAIMED)]), [0], "that has its time limit");
    assert_eq!(withdrawn(&drain, &[NodeFact { failed: true, ..nodes[0].clone() }]), [0]);
    assert_eq!(withdrawn(&drain, &[NodeFact { able: false, ..nodes[0].clone() }]), [0], "its agent is dead");
    let away = NodeFact { able: false, reachable: false, ready: false, ..nodes[0].clone() };
    assert_eq!(withdrawn(&drain, &[away]), [0], "a node that is down is given it anew");
}

#[test]
fn steps_partition_and_canaries_bound_what_waits_for_a_trigger() {
    let boot = on(UpdateTrigger::Boot);
    let one = RolloutRules { step: Some(step(1)), ..boot.clone() };
    assert_eq!(approves(&one, &[node("a", OLD), node("b", OLD)]), ["a"]);
    let nodes = [standing("a", UpdateTrigger::Boot), standing("b", UpdateTrigger::Boot)];
    assert_eq!(plan(&one, ms(0), &nodes, NOW).withdraw, [1], "the steps were changed");
    let staged = NodeFact { staged: Some(WANTED), ..node("b", OLD) };
    assert_eq!(approves(&one, &[node("a", OLD), staged]), NONE, "what was withdrawn counts until its agent says so");
    let kept = RolloutRules { partition: IntOrPercent::Int(1), ..boot.clone() };
    assert_eq!(approves(&kept, &[node("a", OLD), node("b", OLD)]), ["a"]);
    assert_eq!(plan(&kept, ms(0), &nodes, NOW).withdraw, [1]);
    let canary = RolloutRules { canary_hold: Some(ms(0)), ..boot };
    let first = NodeFact { canary: true, ..standing("b", UpdateTrigger::Boot) };
    let nodes = [standing("a", UpdateTrigger::Boot), first];
    assert_eq!(plan(&canary, ms(0), &nodes, NOW).withdraw, [0]);
}

#[test]
fn what_waits_for_a_trigger_on_a_node_that_is_away_keeps_no_place() {
    let drain = on(UpdateTrigger::Drain);
    let step = Some(step(1));
    let away = NodeFact { reachable: false, ..standing("a", UpdateTrigger::Drain) };
    let staged = NodeFact { staged: Some(WANTED), ..away.clone() };
    let withdrawn = |node: NodeFact<'_>| plan(&drain, ms(0), &[node, self::node("b", OLD)], NOW).withdraw;
    assert_eq!((withdrawn(away.clone()), withdrawn(staged)), (vec![0], NO_NODE.to_vec()));
    let many = ["a", "b", "c"].map(|name| NodeFact { name, ..away.clone() });
    assert_eq!(plan(&drain, ms(0), &many, NOW).withdraw, NO_NODE, "an outage takes nothing back");
    // Another node takes its place, in the step and in the zones.
    let rest = NodeFact { approval: None, ..away };
    let of = |zone, fact| NodeFact { zone: Some(zone), ..fact };
    let nodes = [of("z1", rest), of("z2", node("b", OLD))];
    assert_eq!(approves(&RolloutRules { step, ..drain }, &nodes), ["b"]);
}

#[test]
fn what_waits_for_a_trigger_in_a_zone_whose_turn_it_is_not_is_taken_back() {
    let drained = RolloutRules { when: Some(UpdateTrigger::Drain), ..rules(1) };
    let given = |name, zone| {
        let when = Some(UpdateTrigger::Drain);
        let approval = Some(ApprovalFact { revision: WANTED, overlays: None, at: at(0), when });
        NodeFact { approval, zone, ..node(name, OLD) }
    };
    let of = |zones: [Option<&'static str>; 4]| {
        let nodes: Vec<NodeFact<'_>> = ["a", "b", "c", "d"].into_iter().zip(zones).map(|(n, z)| given(n, z)).collect();
        let withdraw = plan(&drained, ms(0), &nodes, NOW).withdraw;
        withdraw.into_iter().map(|i| nodes[i].name.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(of([None; 4]), NONE);
    assert_eq!(of([Some("y"), Some("z"), Some("y"), Some("z")]), ["b", "d"]);
}

#[test]
fn a_first_instance_that_is_not_claimed_is_passed_over_whatever_others_wait_for() {
    for when in [None, Some(UpdateTrigger::Drain), Some(UpdateTrigger::Boot), Some(UpdateTrigger::Manual)] {
        let rules = RolloutRules { when, first_install: Some(IntOrPercent::Int(1)), ..rules(1) };
        let late = NodeFact { instances: &[], ..approved("a", NOW - UNCLAIMED) };
        let planned = plan(&rules, ms(0), &[late, node("b", &[])], NOW);
        assert_eq!((planned.withdraw, planned.unclaimed), (vec![0], vec![0]), "{when:?}");
        let passed = NodeFact { passed_over: Some(NOW), ..node("a", &[]) };
        assert_eq!(approves(&rules, &[passed, node("b", &[])]), ["b"], "{when:?}");
    }
}

#[test]
fn what_waits_for_a_trigger_takes_no_place_of_a_first_install_while_it_is_available() {
    for when in [UpdateTrigger::Drain, UpdateTrigger::Boot, UpdateTrigger::Manual] {
        let rules = RolloutRules { first_install: Some(IntOrPercent::Int(2)), ..on(when) };
        let with = |first: NodeFact<'static>| {
            plan(&rules, ms(0), &[first, standing("b", when), node("c", &[]), node("d", &[])], NOW)
        };
        assert_eq!(with(standing("a", when)).approve, [2, 3], "{when:?}");
        let claimed = NodeFact { replacing: true, ..standing("a", when) };
        assert_eq!(with(claimed).approve, [2], "it ends");
        let broken = |name| NodeFact { instances: OLD_BROKEN, ..standing(name, when) };
        assert_eq!(with(broken("a")).approve, [2], "it is not available");
        // Where these take all places, that is told.
        let planned = plan(&rules, ms(0), &[broken("a"), broken("b"), node("c", &[])], NOW);
        assert_eq!((planned.approve.len(), planned.waiting), (0, 2));
        assert!(said(&planned.held).ends_with("whose turn has not come: a, b"), "{:?}", planned.held);
    }
}
